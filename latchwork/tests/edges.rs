//! Where features meet: failures beside running siblings, waits in bodies that fail, late branches over restarts, jumps into loops,
//! data that another program wrote.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by a panic")]

#[macro_use]
mod common;
use common::*;
use latchwork::store::ActivityOutcome;
use serde_json::json;

const MINUTE: Duration = Duration::from_secs(60);

workflow!(Siblings, |flow| {
    flow.default_error_policy(Retry::never());
    flow.parallel("all", |all| {
        all.branch("a", |b| b.run("a", async |_, cx| step(cx).await).output(|(), data| data.log.push("a".into())));
        all.branch("b", |b| b.run("b", async |_, cx| step(cx).await).output(|(), data| data.log.push("b".into())));
        all.branch("c", |b| {
            b.run("c", async |_, cx| step(cx).await).output(|(), data| data.log.push("c".into()));
            b.run("after c", async |_, cx| step(cx).await).output(|(), data| data.log.push("after c".into()));
        });
    });
});

workflow!(Fatal, |flow| {
    flow.parallel("all", |all| {
        all.branch("a", |b| b.run("fatal", async |_, cx| step(cx).await).on_error(Retry::never().then_terminate()));
        all.branch("b", |b| {
            b.run("beside", async |_, cx| {
                step(cx).await?;
                cx.cancellation().cancelled().await;
                Ok(())
            })
        });
    });
});

/// Waits twice for an event and once for a worker, and fails after each.
#[derive(Default)]
struct Listener {
    heard: Vec<String>,
}

impl StepBody for Listener {
    async fn run(&mut self, cx: &StepContext) -> StepResult {
        step(cx).await?;
        let mut heard: Vec<String> = cx.state()?.unwrap_or_default();
        if let Some(text) = cx.event::<String>()? {
            heard.push(text);
        }
        if let Some(ActivityOutcome::Success(result)) = cx.activity() {
            heard.push(result.to_string());
        }
        match heard.len() {
            0 | 1 => ExecutionResult::wait_for_event("news", "k").with_state(heard),
            2 => ExecutionResult::wait_for_activity("work", json!(null))?.with_state(heard),
            _ => {
                self.heard = heard;
                Ok(ExecutionResult::next())
            }
        }
    }
}

workflow!(Hears, |flow| {
    flow.step::<Listener>("listen")
        .output(|body, data| data.log = body.heard.clone())
        .on_error(Retry::fixed(Duration::from_secs(1)));
});

workflow!(Late, |flow| {
    flow.wait_for("never", |_| "k".into()).timeout(MINUTE).on_timeout(|late| {
        late.run("late", async |_, cx| step(cx).await);
        late.delay("later", MINUTE);
        late.run("latest", async |_, cx| step(cx).await);
    });
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(IntoLoop, |flow| {
    flow.run("top", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    flow.repeat_while(
        "loop",
        |data| data.items.len() < 4,
        |round| {
            round.run("round", async |_, cx| step(cx).await).output(|(), data| data.items.push(0));
            round.when(
                "jump?",
                |data| data.items.len() == 2 && data.n < 3,
                |jump| {
                    jump.run("jumping", async |_, cx| step(cx).await).output(|(), data| data.items.pop().map_or((), drop));
                    jump.go_to("top");
                },
            );
        },
    );
    flow.run("bottom", async |_, cx| step(cx).await);
});

workflow!(BigCollection, |flow| {
    flow.for_each(
        "items",
        |data| vec!["x".repeat(1_000); data.n as usize],
        |each| each.run("each", async |_, cx| step(cx).await),
    );
});

/// As another program wrote it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct OldData {
    n: i64,
}

/// As this one reads it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct NewData {
    n: i64,
    needed: String,
}

workflow!(OldReader: OldData = 1 as "reader", |flow| {
    flow.delay("pause", MINUTE);
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(NewReader: NewData = 1 as "reader", |flow| {
    flow.delay("pause", MINUTE);
    flow.run("after", async |_, cx| step(cx).await);
});

on_each_store! {
    async fn siblings_of_a_failed_step_finish_and_all_that_failed_is_tried_again(world: World) {
        let node = world.run(Siblings).await;
        world.probe.fail("a", 1);
        world.probe.fail("b", 1);
        let gate = world.probe.hold("c");
        let handle = node.begin::<Siblings>(Data::default()).await;
        world.soon_until(async || handle.all_errors().await.len() == 2 && handle.is(WorkflowStatus::Suspended).await).await;
        gate.open();
        world.soon_until(async || handle.data().await.expect("data").log == ["c"]).await;
        world.rest().await;
        assert_eq!(world.probe.runs("after c"), 0);
        handle.retry_step().await.expect("stored");
        assert_eq!(world.soon(handle.completion()).await.expect("done").sorted(), ["a", "after c", "b", "c"]);
        assert_eq!((world.probe.runs("a"), world.probe.runs("c"), world.probe.keys("a").len()), (2, 1, 1));
        node.stop_clean().await;
    }

    async fn a_fatal_step_ends_the_bodies_beside_it(world: World) {
        let node = world.run(Fatal).await;
        let gate = world.probe.hold("fatal");
        world.probe.fail("fatal", 1);
        let handle = node.begin::<Fatal>(Data::default()).await;
        world.soon_until(async || gate.arrived() == 1 && world.probe.ended("beside") == 1).await;
        gate.open();
        let error = world.fly(handle.completion()).await.expect_err("terminated");
        assert!(error.to_string().ends_with("step `fatal` failed for good after 1 try: fatal was told to fail"), "{error}");
        assert_eq!(world.store().load(handle.id()).await.expect("loads").expect("there").pointers, []);
        node.stop_clean().await;
    }

    async fn a_body_that_fails_after_what_it_waited_for_is_given_it_again(world: World) {
        let node = world.run(Hears).await;
        let handle = node.begin::<Hears>(Data::default()).await;
        for text in ["one", "two"] {
            world.fly_until(async || world.store().load(handle.id()).await.expect("loads").expect("there").subscriptions.len() == 1).await;
            world.probe.fail("listen", 2);
            node.publish_event("news", "k", text).await.expect("published");
            world.fly_until(async || handle.all_errors().await.len() % 2 == 0 && !handle.all_errors().await.is_empty()).await;
            world.fly_until(async || { let loaded = world.store().load(handle.id()).await.expect("loads").expect("there"); loaded.subscriptions.len() + loaded.activities.len() == 1 && loaded.inbox.is_empty() }).await;
        }
        world.probe.fail("listen", 1);
        let claim = node.claim_activity(&["work"], "w", MINUTE).await.expect("claim").expect("one");
        node.submit_activity(&claim.token, ActivityOutcome::Success(json!(3))).await.expect("submitted");
        assert_eq!(world.fly(handle.completion()).await.expect("done").log, ["one", "two", "3"]);
        assert_eq!(world.probe.keys("listen").len(), 1);
        node.stop_clean().await;
    }

    async fn activities_of_a_suspended_instance_are_not_handed_out(world: World) {
        let node = world.run(Hears).await;
        let handle = node.begin::<Hears>(Data::default()).await;
        for text in ["one", "two"] { node.publish_event("news", "k", text).await.expect("published"); }
        world.fly_until(async || world.store().load(handle.id()).await.expect("loads").expect("there").activities.len() == 1).await;
        handle.suspend("pause").await.expect("stored");
        world.fly_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        assert!(node.claim_activity(&["work"], "w", MINUTE).await.expect("claim").is_none());
        handle.resume().await.expect("stored");
        world.fly_until(async || handle.is(WorkflowStatus::Runnable).await).await;
        assert!(node.claim_activity(&["work"], "w", MINUTE).await.expect("claim").is_some());
        node.stop_clean().await;
    }

    async fn the_branch_of_a_timeout_goes_on_after_a_restart(world: World) {
        let node = world.run(Late).await;
        let handle = node.begin::<Late>(Data::default()).await;
        let id = handle.id().clone();
        world.fly_until(async || world.probe.runs("late") == 1).await;
        world.quiet().await;
        drop(handle);
        world.kill(node);
        let node = world.run(Late).await;
        world.fly(node.instance(id).ended()).await.expect("ended");
        assert_eq!(world.probe.steps(), ["late", "latest", "after"]);
        node.stop_clean().await;
    }

    async fn a_jump_out_of_a_loop_and_into_it_again_has_new_keys(world: World) {
        let node = world.run(IntoLoop).await;
        let done = world.soon(node.begin::<IntoLoop>(Data::default()).await.completion()).await.expect("done");
        assert_eq!((done.n, done.items.len()), (3, 4));
        for name in ["top", "round", "jumping", "bottom"] {
            assert_eq!(world.probe.keys(name).len(), world.probe.runs(name), "{name}");
        }
        assert_eq!((world.probe.runs("top"), world.probe.runs("jumping"), world.probe.runs("bottom")), (3, 2, 1));
        node.stop_clean().await;
    }

    async fn a_collection_that_is_too_large_is_a_failure_that_says_so(world: World) {
        let node = world.run(BigCollection).await;
        let handle = node.begin::<BigCollection>(Data::n(2_000)).await;
        world.soon_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        assert!(handle.reason().await.contains("the collection has 2006001 bytes of JSON, the limit is 1048576 (option `data_limit`)"), "{}", handle.reason().await);
        assert_eq!(world.probe.runs("each"), 0);
        let smaller = node.begin::<BigCollection>(Data::n(100)).await;
        world.soon(smaller.completion()).await.expect("done");
        node.stop_clean().await;
    }

    /// K09 with data: left for a node that can read it, and not hot.
    async fn data_that_cannot_be_read_here_is_left_for_a_node_that_can(world: World) {
        let node = world.run(OldReader).await;
        let handle = node.begin::<OldReader>(OldData { n: 5 }).await;
        let id = handle.id().clone();
        world.soon_until(async || world.store().load(&id).await.expect("loads").expect("there").header.due.is_some_and(|due| due > world.now())).await;
        world.quiet().await;
        drop(handle);
        node.stop_clean().await;
        world.lose_queue();
        let new = world.run(NewReader).await;
        world.pass(MINUTE * 5).await;
        let loads = new.means.store.count(StoreCall::Load);
        assert!((1..=40).contains(&loads), "{loads} loads in five minutes, {} polls", new.means.store.count(StoreCall::Runnable));
        assert!(new.instance(id.clone()).is(WorkflowStatus::Runnable).await);
        let old = world.run(OldReader).await;
        world.fly(old.instance(id).ended()).await.expect("ended");
        new.stop_clean().await;
        old.stop_clean().await;
    }
}
