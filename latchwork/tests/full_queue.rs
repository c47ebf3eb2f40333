//! A full local queue drops hints, and the poller makes up for them as soon as there is room (section "Background" of the architecture).

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::core::queue::QueueKind;
use latchwork_queue_local::{LocalQueue, LocalQueueOptions};

const POLL: Duration = Duration::from_secs(10);
const CAPACITY: usize = 16;
const STARTS: usize = 500;

workflow!(One, |flow| { flow.run("one", async |_, cx| step(cx).await).output(|(), data| data.n += 1) });

/// A node with a small queue of its own, and the means to trouble that queue.
async fn node(world: &World) -> (TestNode, Faults<QueueCall, QueueFault>) {
    let options = LocalQueueOptions::default().with_capacity(CAPACITY).with_clock(Arc::new(world.clock.clone()));
    let queue = FaultyQueue::new(LocalQueue::with_options(options).expect("sound options"));
    let faults = queue.faults().clone();
    let with_queue = |b: latchwork::WorkflowHostBuilder| {
        b.workflow(One).configure(|options| {
            options.use_queue_provider(async move |_| Ok(queue));
        })
    };
    (world.node().with(with_queue).start().await, faults)
}

async fn dropped(node: &TestNode) -> u64 {
    node.queue().depth(QueueKind::Workflow).await.expect("a depth").dropped
}

on_each_store! {
    /// Plant the fault: in `Node::look_for_drops`, do not wake the poller.
    async fn what_a_full_queue_dropped_runs_before_the_next_poll(world: World) {
        let (node, faults) = node(&world).await;
        world.rest().await;
        let gate = faults.on(QueueCall::Dequeue).hold();
        let polls = node.means.store.count(StoreCall::Runnable);
        let mut handles = Vec::new();
        for _ in 0..STARTS { handles.push(node.begin::<One>(Data::default()).await); }
        // The dequeue that waited already takes the first of them.
        assert!(dropped(&node).await >= (STARTS - 2 * CAPACITY) as u64, "{}", dropped(&node).await);
        let began = world.now();
        gate.open();
        for handle in &handles {
            assert_eq!(world.fly_by(Duration::from_millis(100), handle.completion()).await.expect("done").n, 1);
        }
        assert!(world.clock.since(began) < POLL, "{:?}", world.clock.since(began));
        assert_eq!(world.probe.runs("one"), STARTS);
        let polls = node.means.store.count(StoreCall::Runnable) - polls;
        assert!((1..=6).contains(&polls), "{polls} polls for 500 hints");
        for handle in handles.iter().take(20) {
            let record = handle.record().await;
            let latchwork::store::InstanceRecord::Instance { header, .. } = record else { panic!("deleted?") };
            assert_eq!(header.fault_count, 0, "a dropped hint is no fault of its instance");
        }
        node.stop_clean().await;
    }

    async fn drops_that_were_made_up_for_cause_no_more_polls(world: World) {
        let (node, faults) = node(&world).await;
        world.rest().await;
        let gate = faults.on(QueueCall::Dequeue).hold();
        let mut handles = Vec::new();
        for _ in 0..100 { handles.push(node.begin::<One>(Data::default()).await); }
        gate.open();
        for handle in &handles { world.fly_by(Duration::from_millis(100), handle.completion()).await.expect("done"); }
        world.pass(Duration::from_secs(30)).await;
        let (before, drops) = (node.means.store.count(StoreCall::Runnable), dropped(&node).await);
        world.pass(POLL * 10).await;
        let polls = node.means.store.count(StoreCall::Runnable) - before;
        assert!((5..=11).contains(&polls), "{polls} polls in ten intervals");
        assert_eq!(dropped(&node).await, drops);
        node.stop_clean().await;
    }

    /// What stays due, because no node can run it, does not make the poller run hot.
    async fn a_backlog_that_nobody_can_work_off_is_polled_once_a_second_at_most(world: World) {
        let (node, faults) = node(&world).await;
        world.rest().await;
        let gate = faults.on(QueueCall::Dequeue).hold();
        let mut handles = Vec::new();
        for _ in 0..400 { handles.push(node.begin::<One>(Data::default()).await); }
        node.means.store.on(StoreCall::Load).fail(latchwork::store::StoreErrorKind::Corrupt);
        gate.open();
        let before = node.means.store.count(StoreCall::Runnable);
        world.pass(Duration::from_secs(60)).await;
        let polls = node.means.store.count(StoreCall::Runnable) - before;
        assert!((5..=66).contains(&polls), "{polls} polls in a minute");
        node.means.store.clear();
        for handle in &handles { assert_eq!(world.fly(handle.completion()).await.expect("done").n, 1); }
        node.stop_clean().await;
    }
}

/// Plant the fault: in `Node::walk`, go on when the queue is full.
#[tokio::test]
async fn a_poll_for_what_was_dropped_ends_when_the_queue_is_full_again() {
    let world = World::memory();
    let (node, faults) = node(&world).await;
    world.rest().await;
    let gate = faults.on(QueueCall::Dequeue).hold();
    let mut handles = Vec::new();
    for _ in 0..5_000 {
        handles.push(node.begin::<One>(Data::default()).await);
    }
    let before = node.means.store.count(StoreCall::Runnable);
    let began = world.now();
    gate.open();
    for handle in &handles {
        assert_eq!(world.fly_by(Duration::from_millis(100), handle.completion()).await.expect("done").n, 1);
    }
    let pages = node.means.store.count(StoreCall::Runnable) - before;
    // About one page a second, and those of the polls that come by the interval anyway.
    let seconds = world.clock.since(began).as_secs() as usize;
    assert!(pages <= seconds + 6 * (seconds / 10 + 1), "{pages} pages in {seconds} s");
    assert_eq!(world.probe.runs("one"), 5_000);
    node.stop_clean().await;
}
