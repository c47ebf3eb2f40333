//! A node tells where it stands: services, queue, poller, stuck instances (A21, K05, K14).

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::store::{Checkpoint, CheckpointId, CheckpointOutcome, Due, HeaderUpdate, StoreErrorKind};

const POLL: Duration = Duration::from_secs(10);

workflow!(One, |flow| { flow.run("one", async |_, cx| step(cx).await).output(|(), data| data.n += 1) });

workflow!(Waits, |flow| { flow.wait_for("go", |_| "k".into()).output(|n: i64, data| data.n = n) });

async fn node(world: &World) -> TestNode {
    world.node().with(|b| b.workflow(One).workflow(Waits)).start().await
}

fn has(concerns: &[String], parts: &[&str]) -> bool {
    concerns.iter().any(|concern| parts.iter().all(|part| concern.contains(part)))
}

on_each_store! {
    async fn a_node_that_is_well_has_no_concerns(world: World) {
        let node = node(&world).await;
        world.rest().await;
        let report = node.health_report().await;
        assert!(report.is_healthy());
        assert_eq!(report.concerns(), [""; 0]);
        let depth = report.queue_depth.expect("the local queue tells");
        assert_eq!((depth.waiting, depth.in_hand, depth.oldest, depth.dropped), (0, 0, None, 0));
        assert!(report.poller.polls && report.poller.since_poll == Some(Duration::ZERO) && report.poller.since_other.is_none());
        assert_eq!((report.stuck, report.active, report.poll_interval), (Some(0), 0, POLL));
        world.pass(POLL * 20).await;
        assert_eq!(node.health_report().await.concerns(), [""; 0]);
        node.stop_clean().await;
    }

    /// Plant the fault: in `Node::observe`, do not keep the depth.
    async fn a_queue_that_backs_up_shows(world: World) {
        let node = world.node().with(|b| b.workflow(One).max_concurrent_workflows(1)).start().await;
        let gate = world.probe.hold("one");
        let mut handles = Vec::new();
        for _ in 0..5 { handles.push(node.begin::<One>(Data::default()).await); }
        world.soon(gate.reached(1)).await;
        world.pass(POLL * 4).await;
        // The cheap report has what was seen last.
        assert!(has(&node.health().concerns(), &["the queue backs up"]), "{:?}", node.health());
        let report = node.health_report().await;
        assert!(report.is_healthy(), "the services work: {report:?}");
        let depth = report.queue_depth.expect("a depth");
        assert!(depth.waiting >= 3 && depth.oldest.is_some_and(|oldest| oldest >= POLL * 3), "{depth:?}");
        assert!(has(&report.concerns(), &["the queue backs up", "hints wait, the oldest of them for"]), "{:?}", report.concerns());
        assert!(report.poller.oldest_overdue >= POLL * 3, "{:?}", report.poller);
        gate.open();
        for handle in &handles { world.fly(handle.completion()).await.expect("done"); }
        world.pass(POLL * 3).await;
        assert_eq!(node.health().poller.oldest_overdue, Duration::ZERO);
        assert_eq!(node.health_report().await.concerns(), [""; 0]);
        assert_eq!(node.health().concerns(), [""; 0]);
        node.stop_clean().await;
    }

    async fn a_long_step_is_no_concern(world: World) {
        let node = node(&world).await;
        let gate = world.probe.hold("one");
        let handle = node.begin::<One>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        world.pass(POLL * 20).await;
        let report = node.health_report().await;
        assert_eq!((report.concerns(), report.active, report.poller.oldest_overdue), (vec![], 1, Duration::ZERO));
        gate.open();
        world.fly(handle.completion()).await.expect("done");
        node.stop_clean().await;
    }

    /// K05. Also when there is nothing to do that would come upon it.
    async fn a_lost_lock_service_shows_at_once(world: World) {
        let node = node(&world).await;
        world.rest().await;
        for call in [LockCall::Check, LockCall::Acquire] { node.means.locks.on(call).fail(LockFault::Unavailable); }
        let report = node.health_report().await;
        assert!(!report.is_healthy() && report.queue.is_healthy() && report.store.is_healthy(), "{report:?}");
        assert!(has(&report.concerns(), &["the lock service fails"]), "{:?}", report.concerns());
        world.pass(POLL * 5).await;
        let report = node.health_report().await;
        assert!(report.poller.lag > POLL * 3, "{:?}", report.poller);
        assert!(has(&report.concerns(), &["nobody has polled for", "lock service is unavailable"]), "{:?}", report.concerns());
        node.means.locks.clear();
        world.pass(POLL * 2).await;
        assert_eq!(node.health_report().await.concerns(), [""; 0]);
        node.stop_clean().await;
    }

    async fn what_only_a_check_came_upon_is_over_when_a_check_works(world: World) {
        let node = node(&world).await;
        world.rest().await;
        node.means.locks.on(LockCall::Check).fail(LockFault::Unavailable);
        node.means.queue.on(QueueCall::Depth).fail(QueueFault::Unavailable);
        node.means.store.on(StoreCall::Now).fail(StoreErrorKind::Unavailable);
        let report = node.health_report().await;
        assert!([&report.lock, &report.queue, &report.store].iter().all(|service| !service.is_healthy()), "{report:?}");
        assert_eq!(report.queue_depth, None);
        node.means.locks.clear();
        node.means.queue.clear();
        node.means.store.clear();
        assert!(node.health_report().await.is_healthy());
        node.stop_clean().await;
    }

    async fn a_service_that_does_not_answer_is_told_and_does_not_hold_the_report(world: World) {
        let node = node(&world).await;
        world.rest().await;
        let gate = node.means.store.on(StoreCall::Now).hold();
        tokio::time::pause();
        let report = node.health_report().await;
        tokio::time::resume();
        assert!(report.store.failure.is_some_and(|failure| failure == "it did not answer within 5 s"));
        gate.open();
        node.stop_clean().await;
    }

    async fn another_node_that_polls_is_seen(world: World) {
        let first = node(&world).await;
        world.lose_queue();
        let second = node(&world).await;
        world.rest().await;
        let gate = first.means.store.on(StoreCall::Runnable).hold();
        world.fly_until(async || gate.arrived() == 1).await;
        world.pass(POLL * 5).await;
        assert_eq!(gate.arrived(), 1);
        let (here, there) = (first.health().poller, second.health().poller);
        assert!(here.lag > POLL * 3, "{here:?}");
        assert!(there.lag <= POLL * 2 && there.since_other.is_some_and(|since| since <= POLL * 2), "{there:?}");
        assert!(there.since_poll.is_some_and(|since| since > POLL * 3), "{there:?}");
        assert_eq!(second.health_report().await.concerns(), [""; 0]);
        gate.open();
        first.stop_clean().await;
        second.stop_clean().await;
    }

    /// K14.
    async fn stuck_instances_are_counted(world: World) {
        let node = node(&world).await;
        let handle = node.begin::<Waits>(Data::default()).await;
        world.fly_until(async || !world.store().load(handle.id()).await.expect("loaded").expect("there").subscriptions.is_empty()).await;
        world.quiet().await;
        let header = world.store().load(handle.id()).await.expect("loaded").expect("there").header;
        let update = HeaderUpdate { status: WorkflowStatus::Suspended, reason: None, due: Due::Never, fault_count: 3 };
        let checkpoint = Checkpoint::new(handle.id().clone(), CheckpointId { burst: 1, number: 1 }, header.revision, update);
        let outcome = world.store().commit(vec![Arc::new(checkpoint)]).await.pop();
        assert!(matches!(outcome, Some(CheckpointOutcome::Committed(_))), "{outcome:?}");
        let report = node.health_report().await;
        assert_eq!(report.stuck, Some(1));
        assert_eq!(report.concerns(), ["1 instance is held back because bursts were cut short again and again"]);
        assert_eq!(node.health().stuck, None);
        node.stop_clean().await;
    }
}
