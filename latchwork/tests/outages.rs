//! Services that fail for a while: nothing runs unlocked (I6), no loop ends (I8), health says so, and work resumes by itself.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::store::StoreErrorKind;

const MINUTE: Duration = Duration::from_secs(60);

workflow!(Steps, |flow| {
    flow.run("one", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    flow.delay("pause", Duration::from_secs(5));
    flow.run("two", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
});

workflow!(Far, |flow| {
    flow.delay("far", MINUTE * 2);
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(Long, |flow| {
    flow.parallel("both", |all| {
        all.branch("long", |b| b.run("long", async |_, cx| step(cx).await));
        all.branch("waits", |b| {
            b.wait_for("go", |_| "k".into());
            b.run("heard", async |_, cx| step(cx).await);
        });
    });
});

fn all(b: latchwork::WorkflowHostBuilder) -> latchwork::WorkflowHostBuilder {
    b.workflow(Steps).workflow(Far).workflow(Long)
}

/// All that a node has to do in the background works: hints, timers, polls, news for long bodies.
async fn all_loops_work(world: &World, node: &TestNode) {
    let before = world.probe.runs("after");
    let steps = node.begin::<Steps>(Data::default()).await;
    let far = node.begin::<Far>(Data::default()).await;
    node.means.queue.on(QueueCall::Enqueue).once().swallow();
    let polled = node.begin::<Steps>(Data::default()).await;
    let gate = world.probe.hold("long");
    let long = node.begin::<Long>(Data::default()).await;
    world.fly(gate.reached(1)).await;
    let heard = world.probe.runs("heard");
    let other = world.node().with(|b| all(b).configure(|o| o.run_workflows = false)).start().await;
    other.publish_event("go", "k", ()).await.expect("published");
    world.fly_until(async || world.probe.runs("heard") == heard + 1).await;
    gate.open();
    world.fly(long.completion()).await.expect("done");
    for handle in [steps, polled] {
        assert_eq!(world.fly(handle.completion()).await.expect("done").n, 2);
    }
    world.fly(far.completion()).await.expect("done");
    assert_eq!(world.probe.runs("after"), before + 1);
    assert!(node.health().is_healthy(), "{:?}", node.health());
    other.stop_clean().await;
}

on_each_store! {
    /// K05.
    async fn k05_with_the_lock_service_down_nothing_starts_and_health_says_so(world: World) {
        let node = world.node().with(all).start().await;
        node.means.locks.on(LockCall::Acquire).fail(LockFault::Unavailable);
        let handles = [node.begin::<Steps>(Data::default()).await, node.begin::<Steps>(Data::default()).await];
        world.pass(MINUTE).await;
        assert_eq!(world.probe.steps(), [""; 0]);
        let health = node.health();
        assert!(!health.is_healthy() && health.store.is_healthy());
        assert!(health.lock.failures > 1);
        let failure = health.lock.failure.expect("a failure");
        assert!(failure.starts_with("the faulty lock service is unavailable while working on `wfc:"), "{failure}");
        node.means.locks.clear();
        for handle in handles {
            assert_eq!(world.fly(handle.completion()).await.expect("done").n, 2);
        }
        assert!(node.health().is_healthy());
        node.stop_clean().await;
    }

    async fn a_lock_service_that_refuses_is_asked_again_with_the_polls(world: World) {
        let node = world.node().with(all).start().await;
        node.means.locks.on(LockCall::Acquire).fail(LockFault::Refused);
        let handle = node.begin::<Steps>(Data::default()).await;
        world.pass(MINUTE).await;
        let tries = node.means.locks.count(LockCall::Acquire);
        assert!((1..=40).contains(&tries), "{tries} tries in a minute");
        node.means.locks.clear();
        assert_eq!(world.fly(handle.completion()).await.expect("done").n, 2);
        node.stop_clean().await;
    }

    async fn a_step_that_runs_when_the_lock_service_goes_away_is_finished_and_stored(world: World) {
        let node = world.node().with(all).start().await;
        let gate = world.probe.hold("one");
        let handle = node.begin::<Steps>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        node.means.locks.on(LockCall::Acquire).fail(LockFault::Unavailable);
        gate.open();
        world.soon_until(async || handle.data().await.expect("data").n == 1).await;
        node.means.locks.clear();
        world.fly(handle.completion()).await.expect("done");
        node.stop_clean().await;
    }

    async fn a_release_that_was_not_confirmed_ends_with_its_session(world: World) {
        let node = world.node().with(all).start().await;
        node.means.locks.on(LockCall::Release).about("wfc:0").once().fail(LockFault::Unavailable);
        let handle = node.begin::<Steps>(Data::default()).await;
        let releases = || node.means.locks.calls().iter().filter(|call| call.call == LockCall::Release && call.about.contains(handle.id().as_str())).count();
        world.soon_until(async || releases() == 1).await;
        world.pass(Duration::from_secs(8)).await;
        assert_eq!(world.probe.runs("two"), 0);
        assert_eq!(node.means.losses.lose(handle.id().as_str()), 1);
        assert_eq!(world.fly(handle.completion()).await.expect("done").n, 2);
        node.stop_clean().await;
    }

    /// Plant the fault: let `Node::poll` return on an error.
    async fn a_store_that_is_away_for_a_while_ends_nothing(world: World) {
        let node = world.node().with(all).start().await;
        let gate = world.probe.hold("one");
        let running = node.begin::<Steps>(Data::default()).await;
        let far = node.begin::<Far>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        node.means.store.on_any().fail(StoreErrorKind::Unavailable);
        gate.open();
        let error = node.start_workflow::<Steps>(Data::default()).await.expect_err("away");
        assert!(error.is_retryable() && error.to_string().ends_with("store failed to create"), "{error}");
        assert!(node.publish_event("go", "k", ()).await.expect_err("away").is_retryable());
        world.pass(MINUTE * 3).await;
        assert!(!node.health().store.is_healthy());
        let tries = node.means.store.count(StoreCall::Commit);
        assert!((2..=80).contains(&tries), "{tries} tries in three minutes");
        node.means.store.clear();
        assert_eq!(world.fly(running.completion()).await.expect("done").n, 2);
        world.fly(far.completion()).await.expect("done");
        assert_eq!(world.probe.runs("one"), 1);
        all_loops_work(&world, &node).await;
        node.stop_clean().await;
    }

    async fn a_store_that_fails_now_and_then_loses_nothing(world: World) {
        let node = world.node().with(|b| all(b).configure(|o| o.error_retry_interval = Duration::from_millis(100))).start().await;
        for skip in (0..120).step_by(4) {
            for call in [StoreCall::Load, StoreCall::Commit, StoreCall::ReadInbox, StoreCall::Runnable] {
                node.means.store.on(call).skip(skip).once().fail(StoreErrorKind::Unavailable);
                node.means.store.on(call).skip(skip + 1).once().lose_answer(StoreErrorKind::Unavailable);
            }
        }
        let mut handles = Vec::new();
        for _ in 0..20 { handles.push(node.begin::<Steps>(Data::default()).await); }
        for handle in handles { assert_eq!(world.fly(handle.completion()).await.expect("done").n, 2); }
        assert!(["one", "two"].iter().all(|name| world.probe.keys(name).values().all(|runs| *runs == 1)));
        // Rules may be left, and with them a burst that waits for a moment to look again.
        assert_eq!(world.fly(node.stop()).await.expect("stopped").unfinished, []);
    }

    /// What a provider must not do, it may do all the same. Plant the fault: in `Node::keep_up`, begin no loop again.
    async fn a_provider_that_panics_ends_no_loop(world: World) {
        let node = world.node().with(all).start().await;
        for call in [StoreCall::Load, StoreCall::Runnable, StoreCall::ReadInbox, StoreCall::Commit] {
            node.means.store.on(call).times(2).panic();
        }
        node.means.locks.on(LockCall::Acquire).times(2).panic();
        node.means.queue.on(QueueCall::Dequeue).times(2).panic();
        node.means.queue.on(QueueCall::Enqueue).skip(1).once().panic();
        let handle = node.begin::<Steps>(Data::default()).await;
        world.fly(handle.completion()).await.expect("done");
        world.pass(MINUTE).await;
        node.means.store.clear();
        node.means.queue.clear();
        node.means.locks.clear();
        all_loops_work(&world, &node).await;
        node.stop_clean().await;
    }
}
