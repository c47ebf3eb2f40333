//! Faults that are known of systems like this one, each a test of what must happen here; the number is that of `docs/known-faults.md`,
//! whose table names all of them. Those with a topic of their own stand in its file.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::{
    core::queue::QueueKind,
    queue::WorkItem,
    store::{InstanceQuery, InstanceRecord, NewEvent},
};
use std::cell::Cell;

const MINUTE: Duration = Duration::from_secs(60);

const TEN: usize = 10;

workflow!(TenBodies, |flow| {
    flow.parallel("all", |all| {
        for n in 0..TEN {
            all.branch(&n.to_string(), |b| {
                b.run(&format!("body {n}"), async |_, cx| step(cx).await).output(|(), data| data.n += 1)
            });
        }
    });
});

workflow!(FourWaits, |flow| {
    flow.for_each(
        "items",
        |data| data.items.clone(),
        |each| {
            each.wait_for("go", |_| "k".into()).output_each(|(): (), data, item| data.log.push(item.to_string()));
        },
    );
});

workflow!(Waits, |flow| {
    flow.wait_for("go", |data| data.text.clone());
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(Rounds, |flow| {
    flow.repeat_while(
        "rounds",
        |data| data.n < 300,
        |round| {
            round.when(
                "always",
                |_| true,
                |then| {
                    then.run("count", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
                },
            );
        },
    );
    flow.wait_for("go", |_| "k".into());
});

workflow!(Sleeps, |flow| flow.delay("an hour", MINUTE * 60));

workflow!(Ends, |flow| {
    flow.decide("how", |data| data.text.clone())
        .case("end", |b| b.end())
        .case("error", |b| {
            b.run("fails", async |_, _| StepResult::<()>::Err("no".into())).on_error(Retry::never().then_terminate())
        })
        .case("saga", |b| {
            b.saga("saga", |saga| {
                saga.run("fails, too", async |_, _| StepResult::<()>::Err("no".into())).on_error(Retry::never());
            });
        })
        .case("wait", |b| b.wait_for("never", |_| "k".into()))
        .case("child", |b| b.sub_workflow::<Waits>("child", |data| data.clone()));
});

workflow!(Names, |flow| {
    flow.decide("what", |data| data.log[0].clone())
        .case("event key", |b| b.wait_for("go", |data| data.text.clone()))
        .case("activity name", |b| b.activity("do", |_| ()).name_by(|data| data.text.clone()))
        .case("event name", |b| b.step::<WaitsByName>("wait").input(|body, data| body.0 = data.text.clone()));
});

#[derive(Default)]
struct WaitsByName(String);

impl StepBody for WaitsByName {
    async fn run(&mut self, _: &StepContext) -> StepResult {
        Ok(ExecutionResult::wait_for_event(self.0.clone(), "k"))
    }
}

/// Yesterday's code.
mod old {
    use super::*;

    #[derive(Clone, Serialize, Deserialize)]
    pub(super) struct Order {
        pub(super) id: String,
        pub(super) lines: Vec<Line>,
    }

    #[derive(Clone, Serialize, Deserialize)]
    pub(super) struct Line {
        pub(super) sku: String,
    }

    #[derive(Default)]
    pub(super) struct Reserve;

    impl StepBody for Reserve {
        async fn run(&mut self, cx: &StepContext) -> StepResult {
            step(cx).await?;
            Ok(match cx.state::<u32>()? {
                None => return ExecutionResult::sleep(MINUTE).with_state(7),
                Some(_) => ExecutionResult::next(),
            })
        }
    }
}

/// Today's: all types have other names, and stand elsewhere.
mod new {
    use super::*;

    #[derive(Clone, Serialize, Deserialize)]
    pub(super) struct Purchase {
        pub(super) id: String,
        pub(super) lines: Vec<Position>,
    }

    #[derive(Clone, Serialize, Deserialize)]
    pub(super) struct Position {
        pub(super) sku: String,
    }

    #[derive(Default)]
    pub(super) struct SetAside(pub(super) u32);

    impl StepBody for SetAside {
        async fn run(&mut self, cx: &StepContext) -> StepResult {
            step(cx).await?;
            self.0 = cx.state()?.unwrap_or(0);
            Ok(ExecutionResult::next())
        }
    }
}

workflow!(OrderFlow: old::Order = 1 as "order", |flow| flow.step::<old::Reserve>("reserve"));
workflow!(PurchaseFlow: new::Purchase = 1 as "order", |flow| {
    flow.step::<new::SetAside>("reserve").output(|body, data| data.id.push_str(&body.0.to_string()));
});

workflow!(First: Data = 1 as "rolling", |flow| flow.run("old", async |_, cx| step(cx).await));
workflow!(Second: Data = 2 as "rolling", |flow| flow.run("new", async |_, cx| step(cx).await));

thread_local! {
    /// How many [`Counted`] there are: all of a test's tasks run on its thread.
    static ALIVE: Cell<isize> = const { Cell::new(0) };
}

/// Data that are counted.
#[derive(Serialize, Deserialize)]
#[serde(from = "Data", into = "Data")]
struct Counted(Data);

impl From<Data> for Counted {
    fn from(data: Data) -> Self {
        ALIVE.set(ALIVE.get() + 1);
        Self(data)
    }
}

impl From<Counted> for Data {
    fn from(mut counted: Counted) -> Self {
        std::mem::take(&mut counted.0)
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::from(self.0.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
    }
}

workflow!(CountedFlow: Counted, |flow| {
    flow.run("one", async |_, cx| step(cx).await).output(|(), data: &mut Counted| data.0.n += 1);
    flow.when("waits?", |data: &Counted| data.0.text == "wait", |then| then.wait_for("go", |_| "k".into()));
});

/// Two nodes that do not share a queue, so that each can be given hints of its own.
async fn two_nodes<W: Workflow>(world: &World, workflow: fn() -> W) -> [TestNode; 2] {
    let first = world.run(workflow()).await;
    world.lose_queue();
    [first, world.run(workflow()).await]
}

async fn hint<W: Workflow>(node: &TestNode, id: &InstanceId) {
    let item = WorkItem::new(id.clone(), W::ID, W::VERSION);
    node.queue().enqueue(QueueKind::Workflow, &[item]).await.expect("queued");
}

async fn subscriptions(world: &World, id: &InstanceId) -> usize {
    world.store().load(id).await.expect("loads").expect("there").subscriptions.len()
}

fn text(text: &str) -> Data {
    Data { text: text.into(), ..Data::default() }
}

on_each_store! {
    /// Two nodes run the same ten bodies; of the first, five end, of the second, the other five. Plant the fault: let the store ignore the
    /// revision.
    async fn k02_completion_follows_from_what_is_stored_not_from_what_a_node_saw(world: World) {
        let seen = [Probe::default(), Probe::default()];
        let gates = seen.each_ref().map(|probe| (0..TEN).map(|n| probe.hold(&format!("body {n}"))).collect::<Vec<_>>());
        let a = world.node().with(|b| b.workflow(TenBodies).service(seen[0].clone())).start().await;
        world.lose_queue();
        let b = world.node().with(|b| b.workflow(TenBodies).service(seen[1].clone())).start().await;
        let handle = a.begin::<TenBodies>(Data::default()).await;
        for gate in &gates[0] { world.soon(gate.reached(1)).await; }
        assert_eq!(a.means.losses.lose_silently(handle.id().as_str()), 1);
        hint::<TenBodies>(&b, handle.id()).await;
        for gate in &gates[1] { world.fly(gate.reached(1)).await; }
        for gate in &gates[0][..5] { gate.open(); }
        world.soon_until(async || handle.data().await.expect("data").n == 5).await;
        // What the second node stores now it did not load; it walks away, loads, and runs what is not stored.
        for gate in &gates[1][5..] { gate.open(); }
        assert_eq!(world.fly(handle.completion()).await.expect("done").n, 10);
        for gate in &gates[0][5..] { gate.open(); }
        world.pass(MINUTE).await;
        assert_eq!(handle.data().await.expect("data").n, 10);
        for n in 0..TEN {
            let name = format!("body {n}");
            assert_eq!(handle.pointers().await.iter().filter(|pointer| *pointer.step == *name).count(), 1, "{name}");
            assert_eq!(seen[1].runs(&name), if n < 5 { 1 } else { 2 }, "{name}");
        }
        a.stop_clean().await;
        b.stop_clean().await;
    }

    /// Two nodes begin the same waits, again and again. Plant the fault: draw the ids of waits at random, and let the store ignore the
    /// revision; either alone is made up for by the other.
    async fn k04_a_wait_has_one_subscription_however_many_nodes_began_it(world: World) {
        let nodes = two_nodes(&world, || FourWaits).await;
        // Nothing that the first node does is stored before the other has done the same.
        let gate = nodes[0].means.store.on(StoreCall::Commit).once().hold();
        let handle = nodes[0].begin::<FourWaits>(Data::items(1..=4)).await;
        world.soon(gate.reached(1)).await;
        nodes[0].means.losses.lose_silently(handle.id().as_str());
        hint::<FourWaits>(&nodes[1], handle.id()).await;
        world.fly_until(async || subscriptions(&world, handle.id()).await == 4).await;
        gate.open();
        for _ in 0..20 {
            for node in &nodes {
                hint::<FourWaits>(node, handle.id()).await;
                node.means.losses.lose_silently(handle.id().as_str());
                settle().await;
            }
        }
        world.pass(MINUTE).await;
        assert_eq!(subscriptions(&world, handle.id()).await, 4);
        nodes[0].publish_event("go", "k", ()).await.expect("published");
        assert_eq!(world.fly(handle.completion()).await.expect("done").sorted(), ["1", "2", "3", "4"]);
        for node in nodes { node.stop_clean().await; }
    }

    /// What a load costs does not grow with the rounds that were. Plant the fault: let the store load finished pointers.
    async fn k22_a_loop_leaves_nothing_open_behind(world: World) {
        let node = world.run(Rounds).await;
        let handle = node.begin::<Rounds>(Data::default()).await;
        world.soon_until(async || subscriptions(&world, handle.id()).await == 1).await;
        world.quiet().await;
        let loaded = world.store().load(handle.id()).await.expect("loads").expect("there");
        assert_eq!(loaded.pointers.iter().map(|pointer| &*pointer.step).collect::<Vec<_>>(), ["wait for go"]);
        assert_eq!((world.probe.runs("count"), handle.pointers().await.iter().filter(|pointer| &*pointer.step == "count").count()), (300, 300));
        node.stop_clean().await;
    }

    /// Plant the fault: in `Instance::enter`, do not check the key of a wait.
    async fn k25_a_name_that_is_too_long_is_refused_where_it_enters_with_the_limit(world: World) {
        let (fits, long) = ("n".repeat(200), "n".repeat(201));
        let node = world.node().with(|b| b.workflow(Waits).workflow(Names)).start().await;
        let start = || node.start_workflow::<Waits>(text("k"));
        let said = [
            node.publish_event(&long, "k", ()).await.expect_err("refused").to_string(),
            node.publish_event("go", &long, ()).await.expect_err("refused").to_string(),
            node.publish(NewEvent::new(long.as_str(), "k")).await.expect_err("refused").to_string(),
            node.publish(NewEvent::new("go", long.as_str())).await.expect_err("refused").to_string(),
            start().business_key(&long).await.expect_err("refused").to_string(),
            start().reference(&long).await.expect_err("refused").to_string(),
            start().attribute(&long, latchwork::store::AttributeValue::Number(1.0)).await.expect_err("refused").to_string(),
        ];
        assert!(said.iter().all(|said| said.contains("200")), "{said:?}");
        // Names that are known at run time only: a failure for good, not one that is tried for ever.
        for what in ["event key", "activity name", "event name"] {
            let handle = node.begin::<Names>(Data { log: vec![what.into()], ..text(&long) }).await;
            world.soon_until(async || handle.is(WorkflowStatus::Suspended).await).await;
            let reason = handle.reason().await;
            assert!(reason.contains(what) && reason.contains("200") && reason.contains("after 1 try"), "{reason}");
        }
        // And what fits is stored whole.
        let handle = start().business_key(&fits).reference(&fits).await.expect("started");
        world.quiet().await;
        handle.terminate("seen").await.expect("stored");
        let waits = node.begin::<Waits>(text(&fits)).await;
        world.quiet().await;
        node.publish_event("go", &fits, ()).await.expect("published");
        world.soon(waits.completion()).await.expect("done");
        node.stop_clean().await;
    }

    /// Plant the fault: let the store set the time of the end of completed instances only.
    async fn k27_however_an_instance_ends_it_has_the_time_of_its_end(world: World) {
        let node = world.node().with(|b| b.workflow(Ends).workflow(Waits)).start().await;
        let began = world.now();
        for how in ["", "end", "error", "saga"] {
            let handle = node.begin::<Ends>(text(how)).await;
            world.soon(handle.ended()).await.expect("ended");
        }
        for how in ["wait", "child"] {
            let handle = node.begin::<Ends>(text(how)).await;
            world.quiet().await;
            if how == "wait" { handle.suspend("first").await.expect("stored"); }
            handle.terminate("enough").await.expect("stored");
            world.fly(handle.ended()).await.expect("ended");
        }
        let off = world.node().with(|b| b.workflow(Ends).workflow(Waits).configure(|options| options.run_workflows = false)).start().await;
        let never_ran = off.begin::<Ends>(text("wait")).await;
        off.instance(never_ran.id().clone()).terminate("before it ran").await.expect("stored");
        world.fly(never_ran.ended()).await.expect("ended");
        world.quiet().await;
        let all = node.find(&InstanceQuery::new()).await.expect("found").items;
        assert_eq!(all.len(), 8, "seven, and the child of one");
        for row in all {
            let header = row.header;
            assert!(header.status.is_terminal(), "{header:?}");
            assert!(header.ended.is_some_and(|ended| ended >= began && ended <= world.now()), "{header:?}");
        }
        off.stop_clean().await;
        node.stop_clean().await;
    }

    async fn k28_what_is_stored_names_no_type_and_renaming_types_breaks_nothing(world: World) {
        let first = world.run(OrderFlow).await;
        let order = old::Order { id: "A".into(), lines: vec![old::Line { sku: "x".into() }] };
        let handle = first.begin::<OrderFlow>(order).await;
        world.quiet().await;
        let id = handle.id().clone();
        let InstanceRecord::Instance { data, .. } = handle.record().await else { panic!("deleted") };
        assert_eq!(data.as_str(), r#"{"id":"A","lines":[{"sku":"x"}]}"#);
        let stored = format!("{:?}", world.store().load(&id).await.expect("loads").expect("there"));
        for name in ["OrderFlow", "Reserve", "Line", "known_faults"] { assert!(!stored.contains(name), "{name} in {stored}"); }
        first.stop_clean().await;
        let node = world.run(PurchaseFlow).await;
        let done = world.fly(node.workflow_instance::<PurchaseFlow>(id).completion()).await.expect("done");
        assert_eq!((done.id.as_str(), done.lines[0].sku.as_str()), ("A7", "x"));
        node.stop_clean().await;
    }

    /// Plant the fault: let `Instance::enter` forget a clone of the data.
    async fn k29_a_node_holds_no_data_of_instances_that_have_ended_or_wait(world: World) {
        let node = world.run(CountedFlow).await;
        for n in 0..200 {
            let data = if n % 4 == 0 { text("wait") } else { Data::default() };
            node.begin::<CountedFlow>(data.into()).await;
        }
        world.soon_until(async || world.probe.ended("one") == 200).await;
        world.quiet().await;
        assert_eq!((ALIVE.get(), node.health().active), (0, 0));
        node.publish_event("go", "k", ()).await.expect("published");
        let waiting = InstanceQuery::new().with_status([WorkflowStatus::Runnable]);
        world.soon_until(async || node.find(&waiting).await.expect("found").items.is_empty()).await;
        world.quiet().await;
        assert_eq!((ALIVE.get(), node.health().active), (0, 0));
        node.stop_clean().await;
    }

    /// A rolling update: each node takes what it knows, whoever gets the hints. Plant the fault: let `Registry::get` give another version,
    /// and do not compare fingerprints.
    async fn k39_old_and_new_nodes_take_the_versions_that_they_know(world: World) {
        let old = world.run(First).await;
        let new = world.node().with(|b| b.workflow(First).workflow(Second)).start().await;
        for _ in 0..10 {
            new.begin::<Second>(Data::default()).await;
            old.begin::<First>(Data::default()).await;
        }
        let began = world.now();
        let open = InstanceQuery::new().with_status([WorkflowStatus::Runnable]);
        world.fly_until(async || old.find(&open).await.expect("found").items.is_empty()).await;
        assert!(world.clock.since(began) <= Duration::from_secs(30), "within three polls: {:?}", world.clock.since(began));
        assert_eq!((world.probe.runs("old"), world.probe.runs("new")), (10, 10));
        assert_eq!((world.probe.keys("old").len(), world.probe.keys("new").len()), (10, 10));
        let loads = old.means.store.count(StoreCall::Load);
        assert!(loads <= 20, "one for each of its own, and at most one look at each of the others: {loads}");
        new.stop_clean().await;
        old.stop_clean().await;
    }

    async fn k47_a_sleeping_instance_costs_the_polls_only(world: World) {
        let node = world.node().with(|b| b.workflow(Sleeps).poll_interval(MINUTE)).start().await;
        let handle = node.begin::<Sleeps>(Data::default()).await;
        world.quiet().await;
        let before = node.means.store.calls().len();
        world.pass(MINUTE * 50).await;
        let calls: Vec<_> = node.means.store.calls().into_iter().skip(before).map(|call| call.call).collect();
        // Besides the polls there are the sweeps for what is over.
        assert!(calls.iter().all(|call| matches!(call, StoreCall::Runnable | StoreCall::Purge)) && calls.len() <= 60, "{calls:?}");
        assert_eq!(node.health().active, 0);
        world.fly(handle.completion()).await.expect("done");
        node.stop_clean().await;
    }
}
