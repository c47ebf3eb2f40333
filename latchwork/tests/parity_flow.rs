//! Parity with the scenarios of Workflow Core's own integration tests, part 1 of 3: control flow, data and services.
//!
//! One test for each scenario, named after it; where the outcome differs from Workflow Core's, its comment says how and why. The other
//! parts are `parity_waiting.rs` and `parity_sagas.rs`; Middleware is in `around.rs`. The scenarios StoredJson and StoredYaml
//! (definitions as text) and User (user tasks) belong to features that are still to come.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

workflow!(Basic, |flow| {
    flow.run("step 1", async |_, cx| step(cx).await);
    flow.run("step 2", async |_, cx| step(cx).await);
});

workflow!(Attach, |flow| {
    flow.run("step 1", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    flow.when(
        "again?",
        |data| data.n < 4,
        |again| {
            again.run("step 2", async |_, cx| step(cx).await);
            again.go_to("step 1");
        },
    );
});

/// Adds, in Workflow Core's way: inputs and outputs are properties.
#[derive(Default)]
struct AddNumbers {
    left: i64,
    right: i64,
    sum: i64,
}

impl StepBody for AddNumbers {
    async fn run(&mut self, _: &StepContext) -> StepResult {
        self.sum = self.left + self.right;
        Ok(ExecutionResult::next())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Numbers {
    one: i64,
    two: i64,
    three: i64,
    largest: u64,
    tenths: f64,
    price: String,
    twice: (u64, f64, String),
}

#[derive(Default)]
struct Copy3(u64, f64, String);

impl StepBody for Copy3 {
    async fn run(&mut self, _: &StepContext) -> StepResult {
        Ok(ExecutionResult::next())
    }
}

workflow!(DataIo: Numbers, |flow| {
    flow.step::<AddNumbers>("add")
        .input(|body, data| body.left = data.one)
        .input(|body, data| body.right = data.two)
        .output(|body, data| data.three = body.sum);
    flow.delay("over a restart", Duration::from_secs(30));
    flow.step::<Copy3>("copy")
        .input(|body, data| *body = Copy3(data.largest, data.tenths, data.price.clone()))
        .output(|body, data| data.twice = (body.0, body.1, std::mem::take(&mut body.2)));
});

type ByName = BTreeMap<String, i64>;

workflow!(DynamicDataIo: ByName, |flow| {
    flow.step::<AddNumbers>("add")
        .input(|body, data: &ByName| body.left = data["Value1"])
        .input(|body, data: &ByName| body.right = data["Value2"])
        .output(|body, data: &mut ByName| _ = data.insert("Value3".into(), body.sum));
});

workflow!(Decision, |flow| {
    flow.decide("operator", |data| data.text.clone())
        .case("+", |add| {
            add.step::<AddNumbers>("add")
                .input(|body, data| (body.left, body.right) = (data.items[0], data.items[1]))
                .output(|body, data| data.n = body.sum);
        })
        .case("-", |subtract| {
            subtract
                .step::<AddNumbers>("subtract")
                .input(|body, data| (body.left, body.right) = (data.items[0], -data.items[1]))
                .output(|body, data| data.n = body.sum);
        });
});

workflow!(EndStep, |flow| {
    flow.repeat_while(
        "for ever",
        |_| true,
        |round| {
            round.run("step 1", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
            round.when("enough?", |data| data.n == 3, |enough| enough.end());
        },
    );
    flow.run("tail", async |_, cx| step(cx).await);
});

workflow!(Foreach, |flow| {
    flow.run("step 1", async |_, cx| step(cx).await);
    flow.for_each(
        "items",
        |data| data.items.clone(),
        |each| {
            each.run("step 2", async |(_, item), cx| step(cx).await.map(|()| *item)).output(|item, data| data.n += item);
            each.when("two?", |(_, item)| *item == 2, |two| two.run("step 3", async |_, cx| step(cx).await));
        },
    );
    flow.run("tail", async |_, cx| step(cx).await);
});

workflow!(ForeachSync, |flow| {
    flow.for_each(
        "items",
        |data| data.items.clone(),
        |each| {
            each.delay_by("as long as the item says", |(_, item)| Duration::from_secs(u64::try_from(*item).unwrap_or(0)));
            each.run("took", async |_, cx| step(cx).await).output_each(|(), data, item| data.log.push(item.to_string()));
        },
    )
    .sequential();
    flow.run("tail", async |_, cx| step(cx).await).output(|(), data| data.log.push("tail".into()));
});

workflow!(ForeachWithCompensation, |flow| {
    flow.for_each(
        "items",
        |data| data.items.clone(),
        |each| {
            each.decide("odd?", |(_, item)| item % 2).case(1, |odd| {
                odd.run("fails", async |_, cx| step(cx).await).on_error(Retry::never()).compensate_sequence(|undo| {
                    undo.run("undo", async |_, cx| step(cx).await)
                        .output_each(|(), data, item| data.log.push(format!("undone {item}")));
                });
            });
            each.run("after", async |_, cx| step(cx).await).output_each(|(), data, item| data.log.push(format!("after {item}")));
        },
    );
    flow.run("tail", async |_, cx| step(cx).await);
});

#[derive(Default)]
struct Answer(bool);

impl StepBody for Answer {
    async fn run(&mut self, cx: &StepContext) -> StepResult {
        step(cx).await?;
        ExecutionResult::outcome(self.0)
    }
}

workflow!(Fork, |flow| {
    flow.step::<Answer>("answer")
        .input(|body, data| body.0 = data.n > 0)
        .outcome(true, |yes| yes.run("task A", async |_, cx| step(cx).await))
        .outcome(false, |no| no.run("task B", async |_, cx| step(cx).await));
    flow.run("tail", async |_, cx| step(cx).await);
});

workflow!(If, |flow| {
    flow.when("less than 3?", |data| data.n < 3, |then| then.run("if 1", async |_, cx| step(cx).await));
    flow.when("less than 5?", |data| data.n < 5, |then| then.run("if 2", async |_, cx| step(cx).await));
    flow.run("tail", async |_, cx| step(cx).await);
});

workflow!(When, |flow| {
    flow.decide("first that fits", |data| data.n)
        .case(1, |case| case.run("case 1", async |_, cx| step(cx).await))
        .case(2, |case| case.run("case 2a", async |_, cx| step(cx).await))
        .case(2, |case| case.run("case 2b", async |_, cx| step(cx).await));
    flow.when("1?", |data| data.n == 1, |case| case.run("when 1", async |_, cx| step(cx).await));
    flow.when("2?", |data| data.n == 2, |case| case.run("when 2a", async |_, cx| step(cx).await));
    flow.when("2, too?", |data| data.n == 2, |case| case.run("when 2b", async |_, cx| step(cx).await));
    flow.run("tail", async |_, cx| step(cx).await);
});

workflow!(While, |flow| {
    flow.repeat_while(
        "less than 3?",
        |data| data.n < 3,
        |round| {
            round.run("round", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
        },
    );
    flow.run("tail", async |_, cx| step(cx).await);
});

workflow!(Parallel, |flow| {
    flow.run("begin", async |_, cx| step(cx).await);
    flow.parallel("all", |all| {
        all.branch("1", |b| {
            b.run("1.1", async |_, cx| step(cx).await);
            b.run("1.2", async |_, cx| step(cx).await);
        });
        all.branch("2", |b| {
            b.wait_for("MyEvent", |data| data.text.clone()).output(|text: String, data| data.log.push(text));
            b.run("2.1", async |_, cx| step(cx).await);
        });
        all.branch("3", |b| b.run("3.1", async |_, cx| step(cx).await));
    });
    flow.run("end", async |_, cx| step(cx).await);
});

/// Counts how many were made.
#[derive(Clone, Default)]
struct Made(Arc<AtomicUsize>);

/// What is made anew for each run of a body, and what is one for all.
#[derive(Clone)]
struct Scoped(usize, Made);

struct UsesServices(Scoped, Scoped);

impl StepBody for UsesServices {
    async fn run(&mut self, cx: &StepContext) -> StepResult {
        assert!(Arc::ptr_eq(&cx.service::<Made>()?.0, &self.0.1.0), "the host has one `Made` for all");
        step(cx).await?;
        Ok(ExecutionResult::next())
    }
}

fn make_scoped(services: &latchwork::Services) -> Result<UsesServices, latchwork::ServiceMissing> {
    let made = services.get::<Made>()?.clone();
    let scoped = Scoped(made.0.fetch_add(1, Ordering::Relaxed), made);
    Ok(UsesServices(scoped.clone(), scoped))
}

workflow!(Di, |flow| {
    for name in ["step 1", "step 2"] {
        flow.step_with(name, make_scoped).output(|body, data| data.items.extend([body.0.0 as i64, body.1.0 as i64]));
    }
});

on_each_store! {
    /// Basic.
    async fn basic_runs_two_steps_once_each(world: World) {
        let node = world.run(Basic).await;
        world.soon(node.begin::<Basic>(Data::default()).await.completion()).await.expect("done");
        assert_eq!(world.probe.steps(), ["step 1", "step 2"]);
        node.stop_clean().await;
    }

    /// Attach. A jump leaves no open scope behind, and a target that does not exist is an error of the definition, as there.
    async fn attach_goes_back_by_name(world: World) {
        let node = world.run(Attach).await;
        world.soon(node.begin::<Attach>(Data::default()).await.completion()).await.expect("done");
        assert_eq!((world.probe.runs("step 1"), world.probe.runs("step 2")), (4, 3));
        node.stop_clean().await;
    }

    /// DataIO. There decimals come back as they went in; here there is no decimal type, and what stands in for one (text, whole numbers up
    /// to 64 bits, floating point) comes back to the last digit, also from the store.
    async fn data_io_maps_inputs_and_outputs_and_keeps_numbers_exact(world: World) {
        let node = world.run(DataIo).await;
        let data = Numbers {
            one: 2, two: 3, three: 0, largest: u64::MAX, tenths: 0.1 + 0.2, price: "79228162514264337593543950335.0001".into(),
            twice: (0, 0.0, String::new()),
        };
        let id = node.begin::<DataIo>(data.clone()).await.id().clone();
        world.quiet().await;
        node.stop_clean().await;
        let node = world.run(DataIo).await;
        let done = world.fly(node.workflow_instance::<DataIo>(id).completion()).await.expect("done");
        let twice = (data.largest, data.tenths, data.price.clone());
        assert_eq!(done, Numbers { three: 5, twice, ..data });
        node.stop_clean().await;
    }

    /// DynamicDataIO.
    async fn dynamic_data_io_writes_by_index(world: World) {
        let node = world.run(DynamicDataIo).await;
        let data = BTreeMap::from([("Value1".to_owned(), 2), ("Value2".to_owned(), 3)]);
        assert_eq!(world.soon(node.begin::<DynamicDataIo>(data).await.completion()).await.expect("done")["Value3"], 5);
        node.stop_clean().await;
    }

    /// Decision. The branches are joined here: what comes after the decision runs after each of them, so none has to attach to it.
    async fn decision_takes_the_branch_of_the_value(world: World) {
        let node = world.run(Decision).await;
        for (operator, n) in [("+", 5), ("-", -1), ("*", 0)] {
            let data = Data { text: operator.into(), ..Data::items([2, 3]) };
            assert_eq!(world.soon(node.begin::<Decision>(data).await.completion()).await.expect("done").n, n, "{operator}");
        }
        node.stop_clean().await;
    }

    /// EndStep. There what else is open stays as it is, and no completed event is told; here all is closed, and the event is told.
    async fn end_step_completes_out_of_a_loop_for_ever(world: World) {
        let node = world.run(EndStep).await;
        let mut events = node.subscribe();
        let handle = node.begin::<EndStep>(Data::default()).await;
        assert_eq!(world.soon(handle.completion()).await.expect("complete").n, 3);
        assert_eq!((world.probe.runs("step 1"), world.probe.runs("tail")), (3, 0));
        assert!(handle.pointers().await.iter().all(|pointer| !pointer.status.is_open()));
        while world.soon(events.next()).await.expect("an event").kind != latchwork::hub::LifeCycleKind::Completed {}
        node.stop_clean().await;
    }

    /// Foreach.
    async fn foreach_runs_its_body_for_each_item_and_joins(world: World) {
        let node = world.run(Foreach).await;
        let done = world.soon(node.begin::<Foreach>(Data::items([2, 2, 3])).await.completion()).await.expect("done");
        let runs = ["step 1", "step 2", "step 3", "tail"].map(|step| world.probe.runs(step));
        assert_eq!((done.n, runs), (7, [1, 3, 2, 1]));
        assert_eq!(world.probe.steps().last().map(String::as_str), Some("tail"));
        node.stop_clean().await;
    }

    /// Foreach, empty and sequential.
    async fn foreach_of_an_empty_collection_goes_on(world: World) {
        let node = world.node().with(|b| b.workflow(Foreach).workflow(ForeachSync)).start().await;
        world.soon(node.begin::<ForeachSync>(Data::default()).await.completion()).await.expect("done");
        world.soon(node.begin::<Foreach>(Data::default()).await.completion()).await.expect("done");
        assert_eq!((world.probe.runs("tail"), world.probe.runs("took"), world.probe.runs("step 2")), (2, 0, 0));
        node.stop_clean().await;
    }

    /// ForeachSync. There the collection is read anew for each item; here the loop keeps the one it began with.
    async fn foreach_sync_keeps_the_order_whatever_an_item_takes(world: World) {
        let node = world.run(ForeachSync).await;
        let handle = node.begin::<ForeachSync>(Data::items([10, 2, 6])).await;
        assert_eq!(world.fly(handle.completion()).await.expect("done").log, ["10", "2", "6", "tail"]);
        node.stop_clean().await;
    }

    /// ForeachWithCompensation.
    async fn foreach_with_compensation_undoes_the_items_that_failed_only(world: World) {
        world.probe.fail("fails", 2);
        let node = world.run(ForeachWithCompensation).await;
        let handle = node.begin::<ForeachWithCompensation>(Data::items([1, 2, 3])).await;
        let done = world.soon(handle.completion()).await.expect("done");
        assert_eq!(done.sorted(), ["after 1", "after 2", "after 3", "undone 1", "undone 3"]);
        assert_eq!((world.probe.runs("undo"), world.probe.runs("tail")), (2, 1));
        node.stop_clean().await;
    }

    /// Fork. There all outcomes that match go their ways side by side, without a join; here the first that matches is taken, and joined.
    async fn fork_takes_the_way_of_the_outcome(world: World) {
        let node = world.run(Fork).await;
        for (n, task) in [(1, "task A"), (0, "task B")] {
            let before = world.probe.steps().len();
            world.soon(node.begin::<Fork>(Data::n(n)).await.completion()).await.expect("done");
            assert_eq!(&world.probe.steps()[before..], ["answer", task, "tail"]);
        }
        node.stop_clean().await;
    }

    /// If.
    async fn if_runs_the_blocks_whose_conditions_hold(world: World) {
        let node = world.run(If).await;
        world.soon(node.begin::<If>(Data::n(2)).await.completion()).await.expect("done");
        world.soon(node.begin::<If>(Data::n(4)).await.completion()).await.expect("done");
        assert_eq!(world.probe.steps(), ["if 1", "if 2", "tail", "if 2", "tail"]);
        node.stop_clean().await;
    }

    /// When. There all cases that are equal run; here a `decide` takes the first, and what shall run each time is a `when` of its own.
    async fn when_runs_the_cases_that_match(world: World) {
        let node = world.run(When).await;
        world.soon(node.begin::<When>(Data::n(2)).await.completion()).await.expect("done");
        assert_eq!(world.probe.steps(), ["case 2a", "when 2a", "when 2b", "tail"]);
        node.stop_clean().await;
    }

    /// While.
    async fn while_repeats_and_goes_on(world: World) {
        let node = world.run(While).await;
        world.soon(node.begin::<While>(Data::default()).await.completion()).await.expect("done");
        assert_eq!(world.probe.steps(), ["round", "round", "round", "tail"]);
        node.stop_clean().await;
    }

    /// Parallel. There branches take turns, a step each; here they run at the same time.
    async fn parallel_joins_when_the_branch_with_the_event_has_ended(world: World) {
        let node = world.run(Parallel).await;
        let handle = node.begin::<Parallel>(Data { text: "K".into(), ..Data::default() }).await;
        world.soon_until(async || world.probe.ended("1.2") == 1 && world.probe.ended("3.1") == 1).await;
        world.quiet().await;
        assert_eq!((world.probe.runs("2.1"), world.probe.runs("end")), (0, 0));
        node.publish_event("MyEvent", "K", "Pass").await.expect("published");
        assert_eq!(world.soon(handle.completion()).await.expect("done").log, ["Pass"]);
        assert!(["1.1", "1.2", "2.1", "3.1", "end"].into_iter().all(|step| world.probe.runs(step) == 1));
        node.stop_clean().await;
    }

    /// Di (there in four variants: two containers, transient and scoped). There is no container here: a factory makes the body for each
    /// run, and whatever it makes there is that run's own; the host's services are one for all.
    async fn di_shares_a_scope_within_a_run_of_a_step_only(world: World) {
        let node = world.node().with(|b| b.workflow(Di).service(Made::default())).start().await;
        let [a, b, c, d] = world.soon(node.begin::<Di>(Data::default()).await.completion()).await.expect("done").items[..] else {
            panic!("four values");
        };
        assert_eq!((a, c), (b, d));
        assert_ne!(a, c);
        node.stop_clean().await;
    }
}
