//! Workflows run on the caller's task, with and without persistence; workflows under test; definitions that changed.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;

use common::*;
use latchwork::{builder::define, core::store::InstanceQuery, orphans};
use latchwork_lock_local::UseLocalLocking;
use latchwork_persistence_memory::UseMemoryPersistence;
use latchwork_queue_local::UseLocalQueue;
use latchwork_testkit::workflow::WorkflowTest;

const DAY: Duration = Duration::from_hours(24);

workflow!(Sum, |flow| {
    flow.for_each(
        "items",
        |data| data.items.clone(),
        |each| {
            each.run("add", async |(_, item), cx| {
                step(cx).await?;
                Ok(*item)
            })
            .output(|item, data| data.n += item);
        },
    );
    flow.delay("an hour", Duration::from_hours(1));
    flow.run("last", async |_, cx| step(cx).await).on_error(Retry::fixed(Duration::from_secs(1)).max_attempts(3));
});

workflow!(Undone, |flow| {
    flow.saga("saga", |saga| {
        saga.run("a", async |_, cx| step(cx).await).compensate(async |_, cx| step(cx).await);
        saga.run("b", async |_, cx| step(cx).await).on_error(Retry::never());
    })
    .on_error(Retry::never().then_continue());
});

workflow!(Waits, |flow| flow.wait_for("never", |_| "k".to_owned()));
workflow!(Publishes, |flow| flow
    .run("publish", async |_, cx| cx.publish_event("told", "k", 1).map(|_| ()))
    .on_error(Retry::never()));
workflow!(Quick, |flow| flow.run("quick", async |_, cx| step(cx).await));

on_each_store! {
    async fn a_persistent_run_ends_with_its_data_and_its_record(world: World) {
        let node = world.run(Sum).await;
        let done = world.fly_by(Duration::from_secs(60), node.run_workflow::<Sum>(Data::items(1..=5))).await.expect("done");
        assert_eq!(done.n, 15);
        let stored = node.find(&InstanceQuery::new()).await.expect("found").items;
        assert_eq!(stored.iter().map(|found| found.header.status).collect::<Vec<_>>(), [WorkflowStatus::Complete]);
        node.stop_clean().await;
    }

    async fn a_persistent_run_goes_on_when_its_caller_goes_away_in_the_middle_of_a_step(world: World) {
        let gate = world.probe.hold("quick");
        let node = world.run(Quick).await;
        {
            let mut run = std::pin::pin!(node.run_workflow::<Quick>(Data::default()).business_key("one").into_future());
            tokio::select! {
                _ = &mut run => panic!("the step is held"),
                () = gate.reached(1) => {}
            }
        }
        gate.open();
        let handle = node.find_by_key::<Quick>("one").await.expect("found").expect("it was stored");
        world.soon(handle.completion()).await.expect("done");
        assert_eq!(world.probe.runs("quick"), 1, "the body was not cut off");
        node.stop_clean().await;
    }

    async fn a_run_that_takes_too_long_says_so_and_the_instance_goes_on(world: World) {
        let node = world.run(Sum).await;
        let run = node.run_workflow::<Sum>(Data::items([1])).business_key("one").timeout(Duration::from_secs(60));
        let error = world.fly(run).await.expect_err("an hour is longer");
        assert!(matches!(error, HostError::TimedOut { .. }), "{error}");
        let handle = node.find_by_key::<Sum>("one").await.expect("found").expect("it was stored");
        world.fly_by(Duration::from_secs(60), handle.completion()).await.expect("done");
        node.stop_clean().await;
    }

    async fn k46_a_run_without_persistence_is_the_same_engine_and_leaves_nothing(world: World) {
        world.probe.fail("last", 2);
        let node = world.node().with(|b| b.workflow(Sum).workflow(Undone)).start().await;
        let run = node.run_workflow::<Sum>(Data::items(1..=5)).without_persistence();
        assert_eq!(world.fly_by(Duration::from_secs(60), run).await.expect("done").n, 15);
        assert_eq!((world.probe.runs("add"), world.probe.runs("last")), (5, 3));
        world.probe.fail("b", 1);
        world.soon(node.run_workflow::<Undone>(Data::default()).without_persistence()).await.expect("done");
        assert_eq!(world.probe.runs("compensate a"), 1);
        assert_eq!(node.find(&InstanceQuery::new()).await.expect("found").items.len(), 0);
        node.stop_clean().await;
    }

    async fn a_run_without_persistence_says_what_it_cannot_do(world: World) {
        let node = world.node().with(|b| b.workflow(Waits).workflow(Publishes)).start().await;
        let error = world.soon(node.run_workflow::<Waits>(Data::default()).without_persistence()).await.expect_err("no event comes");
        assert!(error.to_string().contains("waits for an event, which never comes"), "{error}");
        let error = world.soon(node.run_workflow::<Publishes>(Data::default()).without_persistence()).await.expect_err("nobody is told");
        assert!(error.to_string().contains("a run without persistence cannot publish events"), "{error}");
        node.stop_clean().await;
    }

    async fn a_changed_definition_tells_which_open_instances_stand_at_steps_that_are_gone(world: World) {
        let node = world.run(Before).await;
        let stays = node.begin::<Before>(Data::n(0)).await;
        let goes = node.begin::<Before>(Data::n(1)).await;
        let ended = node.begin::<Before>(Data::n(2)).await;
        world.soon(ended.completion()).await.expect("done");
        world.quiet().await;
        let same = define(&Before).expect("sound");
        assert_eq!(orphans(&**world.store(), &same).await.expect("asked"), []);
        let found = orphans(&**world.store(), &define(&After).expect("sound")).await.expect("asked");
        let found: Vec<_> = found.iter().map(|orphan| (&orphan.instance, orphan.steps.iter().map(|step| &**step).collect::<Vec<_>>())).collect();
        assert_eq!(found, [(goes.id(), vec!["wait for old in old?/1"])]);
        drop(stays);
        node.stop_clean().await;
    }
}

workflow!(Before: Data = 1 as "changing", |flow| {
    flow.when("new?", |data| data.n == 0, |then| _ = then.wait_for("new", |_| "k".to_owned()));
    flow.when("old?", |data| data.n == 1, |then| _ = then.wait_for("old", |_| "k".to_owned()));
});

workflow!(After: Data = 1 as "changing", |flow| {
    flow.when("new?", |data| data.n == 0, |then| _ = then.wait_for("new", |_| "k".to_owned()));
    flow.when("old?", |data| data.n == 1, |then| _ = then.wait_for("newer", |_| "k".to_owned()));
});

workflow!(Month, |flow| {
    flow.recur("daily", DAY, |each| {
        each.run("mail", async |_, _| Err::<(), _>("no mail server".into())).output(|(), data| data.n += 1);
    })
    .until(|data| data.n == 30);
    flow.step::<Charge>("charge")
        .input(|charge, data| charge.amount = data.n)
        .output(|charge, data| data.text.clone_from(&charge.receipt))
        .on_error(Retry::fixed(Duration::from_secs(60)).max_attempts(3));
    flow.wait_for("paid", |_| "k".to_owned()).output(|(), data: &mut Data| data.log.push("paid".into()));
});

#[derive(Default)]
struct Charge {
    amount: i64,
    receipt: String,
}

impl StepBody for Charge {
    async fn run(&mut self, _: &StepContext) -> StepResult {
        Err("no bank".into())
    }
}

#[tokio::test]
async fn a_month_with_a_daily_recurrence_is_tested_with_its_steps_failed_and_replaced() {
    let backends = WorkflowHost::builder().use_local_locking().use_local_queue().use_memory_persistence();
    let test = WorkflowTest::start(backends.workflow(Month)).await.expect("started");
    test.answer("mail", || ());
    test.replace("charge", |charge: &mut Charge| {
        charge.receipt = format!("charged {}", charge.amount);
        Ok(ExecutionResult::next())
    });
    test.fail("charge", 2);
    let month = test.begin::<Month>(Data::default()).await.expect("started");
    assert_eq!(test.path(), ["charge", "mail"]);
    test.advance(Duration::from_secs(120)).await;
    let charges: Vec<_> = test.calls("charge").into_iter().map(|call| (call.attempt, call.error.is_some())).collect();
    assert_eq!(charges, [(1, true), (2, true), (3, false)]);
    assert_eq!(month.errors().await.expect("errors").len(), 2);
    test.publish("paid", "k", ()).await.expect("published");
    test.advance(29 * DAY).await;
    let data = month.completion().await.expect("done");
    assert_eq!((data.n, data.log, data.text.as_str()), (30, vec!["paid".to_owned()], "charged 1"));
    assert_eq!(test.calls("mail").len(), 30);
    test.stop().await.expect("stopped");
}
