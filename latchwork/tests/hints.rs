//! The queue is a hint, the store is the truth (I5): hints lost, doubled, mixed up and contended.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::{core::queue::QueueKind, queue::WorkItem};

const POLL: Duration = Duration::from_secs(10);

workflow!(Two, |flow| {
    flow.run("one", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    flow.run("two", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
});

workflow!(Waits, |flow| {
    flow.run("one", async |_, cx| step(cx).await);
    flow.wait_for("go", |_| "k".into()).output(|(): (), data| data.n += 1);
    flow.run("two", async |_, cx| step(cx).await);
});

workflow!(Other, |flow| { flow.run("other", async |_, cx| step(cx).await) });

async fn hints(node: &TestNode, id: &InstanceId, definition: &str, count: usize) {
    let items = vec![WorkItem::new(id.clone(), definition, 1); count];
    node.queue().enqueue(QueueKind::Workflow, &items).await.expect("queued");
}

on_each_store! {
    /// Plant the fault: in `Node::walk`, leave out what is overdue.
    async fn k45_a_queue_that_loses_everything_delays_work_by_two_polls(world: World) {
        let node = world.run(Waits).await;
        node.means.queue.on(QueueCall::Enqueue).swallow();
        let handle = node.begin::<Waits>(Data::default()).await;
        let began = world.now();
        world.fly_until(async || world.probe.runs("one") == 1).await;
        world.quiet().await;
        node.publish_event("go", "k", ()).await.expect("published");
        world.fly(handle.completion()).await.expect("done");
        assert!(world.clock.since(began) <= POLL * 5, "two polls for the start, two for the event: {:?}", world.clock.since(began));
        node.stop_clean().await;
    }

    async fn a_queue_that_fails_is_told_by_health_and_made_up_for(world: World) {
        let node = world.run(Waits).await;
        node.means.queue.on_any().fail(QueueFault::Unavailable);
        let handle = node.begin::<Waits>(Data::default()).await;
        world.fly_until(async || !node.health().queue.is_healthy()).await;
        assert!(node.health().queue.failure.is_some_and(|failure| failure.contains("queue is unavailable")));
        node.publish_event("go", "k", ()).await.expect("published");
        world.fly(handle.completion()).await.expect("done");
        node.means.queue.clear();
        let handle = node.begin::<Waits>(Data::default()).await;
        node.publish_event("go", "k", ()).await.expect("published");
        world.fly(handle.completion()).await.expect("done");
        assert!(node.health().is_healthy());
        node.stop_clean().await;
    }

    async fn hints_that_are_doubled_and_come_in_another_order_change_nothing(world: World) {
        let node = world.run(Two).await;
        node.means.disorder.set_copies(5);
        node.means.disorder.set_reverse(true);
        let mut handles = Vec::new();
        for _ in 0..50 { handles.push(node.begin::<Two>(Data::default()).await); }
        for handle in &handles { assert_eq!(world.fly(handle.completion()).await.expect("done").n, 2); }
        assert_eq!((world.probe.runs("one"), world.probe.runs("two")), (50, 50));
        node.stop_clean().await;
    }

    /// K11, K12. Plant the fault: in `Node::dispatch`, start a burst for each hint.
    async fn k11_ten_thousand_hints_under_a_long_step_cost_one_burst(world: World) {
        let node = world.run(Two).await;
        let gate = world.probe.hold("one");
        let handle = node.begin::<Two>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        let acquires = || node.means.locks.calls().iter().filter(|call| call.call == LockCall::Acquire && call.about.contains(handle.id().as_str())).count();
        // Behind the back of a queue that would keep the like of what is in hand.
        node.means.disorder.inject(vec![WorkItem::new(handle.id().clone(), "Two", 1); 10_000]);
        hints(&node, &InstanceId::new(), "Two", 1).await;
        world.soon_until(async || node.means.disorder.left() == 0).await;
        world.rest().await;
        // The instance that woke the queue is nowhere, so its burst ends.
        world.soon_until(async || node.health().active == 1).await;
        let (loads, reads) = (node.means.store.count(StoreCall::Load), node.means.store.count(StoreCall::ReadInbox));
        assert_eq!((acquires(), node.health().active, world.probe.runs("one")), (1, 1, 1));
        // One load more is for the instance that woke the queue.
        assert!(loads <= 2 && reads <= 200, "{loads} loads, {reads} reads");
        gate.open();
        assert_eq!(world.soon(handle.completion()).await.expect("done").n, 2);
        node.stop_clean().await;
    }

    /// Another node gets the hint while this one has the instance: it keeps the hint, quietly, and nothing that the hint was about is lost.
    async fn a_contended_hint_is_kept_and_not_hot(world: World) {
        let a = world.run(Waits).await;
        world.lose_queue();
        let b = world.run(Waits).await;
        let gate = world.probe.hold("one");
        let handle = a.begin::<Waits>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        b.publish_event("go", "k", ()).await.expect("published");
        hints(&b, handle.id(), "Waits", 1).await;
        world.pass(Duration::from_secs(60)).await;
        let tries = b.means.locks.calls().iter().filter(|call| call.call == LockCall::Acquire && call.about.contains(handle.id().as_str())).count();
        assert!((1..=70).contains(&tries), "{tries} tries in a minute");
        gate.open();
        world.fly(handle.completion()).await.expect("done");
        a.stop_clean().await;
        b.stop_clean().await;
    }

    /// A hint arrives at each instant between the last checkpoint of a burst and the release of its lock. Plant the fault: in
    /// `ActiveMap::end`, do not look whether it was woken.
    async fn news_at_the_end_of_a_burst_is_not_lost(world: World) {
        for instant in 0..4 {
            for from_other in [false, true] {
                let a = world.run(Waits).await;
                world.lose_queue();
                let b = world.run(Waits).await;
                // The polls of both are off, so that nothing makes up for a hint that is lost.
                for node in [&a, &b] { node.means.store.on(StoreCall::Runnable).fail(latchwork::store::StoreErrorKind::Unavailable); }
                let commits = a.means.store.on(StoreCall::Commit);
                let gate = match instant {
                    0 => commits.once().hold(),
                    1 => commits.once().hold_answer(),
                    2 => a.means.locks.on(LockCall::Release).about("wfc:0").once().hold(),
                    _ => a.means.locks.on(LockCall::Release).about("wfc:0").once().hold_answer(),
                };
                let handle = a.begin::<Waits>(Data::default()).await;
                world.soon_until(async || gate.arrived() == 1 || handle.status().await.is_err()).await;
                // What is published on the node itself is not to be found by a hint that comes late.
                a.means.queue.on(QueueCall::Enqueue).swallow();
                let publisher = if from_other { &b } else { &a };
                publisher.publish_event("go", "k", ()).await.expect("published");
                settle().await;
                gate.open();
                world.fly(handle.completion()).await.unwrap_or_else(|error| panic!("instant {instant}, from the other {from_other}: {error}"));
                a.stop_clean().await;
                b.stop_clean().await;
                world.clock.advance(Duration::from_secs(60));
            }
        }
    }

    /// K45: the poller of a node that knows less wins the polls, and does not stand in the way of one that knows more.
    async fn polls_won_by_a_node_that_knows_less_leave_nothing_behind(world: World) {
        let less = world.run(Other).await;
        world.lose_queue();
        let more = world.node().with(|b| b.workflow(Other).workflow(Two)).start().await;
        more.means.queue.on(QueueCall::Enqueue).times(3).swallow();
        let handle = more.begin::<Two>(Data::default()).await;
        let began = world.now();
        world.fly(handle.completion()).await.expect("done");
        assert!(world.clock.since(began) <= POLL * 3, "{:?}", world.clock.since(began));
        less.stop_clean().await;
        more.stop_clean().await;
    }

    /// K09, K39: hints that always come to a node without the definition reach the one that has it by its polls, and are not hot. Plant the
    /// fault: in `Node::leave_unknown`, offer the hint to others for ever; in `Node::walk`, trust what is overdue to the queue.
    async fn k09_a_node_without_the_definition_neither_starves_nor_spins(world: World) {
        let stranger = world.run(Other).await;
        let node = world.run(Two).await;
        // All that is queued comes to the stranger, and for now the other finds nothing by itself.
        node.means.queue.on(QueueCall::Dequeue).fail(QueueFault::Unavailable);
        node.means.store.on(StoreCall::Runnable).fail(latchwork::store::StoreErrorKind::Unavailable);
        let looks = || stranger.means.store.count(StoreCall::Load);
        let began = world.now();
        let handle = node.begin::<Two>(Data::default()).await;
        // Offered to others three times, a second apart; then there is one look for calls that need no definition.
        world.fly_until(async || looks() > 0).await;
        assert!(world.clock.since(began) >= Duration::from_secs(3), "{:?}", world.clock.since(began));
        // That look acknowledged the hint, and no poll of the stranger brings what it does not know.
        world.pass(POLL * 6).await;
        assert_eq!((looks(), world.probe.steps().len()), (1, 0));
        node.means.store.clear();
        let began = world.now();
        world.fly(handle.completion()).await.expect("done");
        assert!(world.clock.since(began) <= POLL * 2, "{:?}", world.clock.since(began));
        assert_eq!(looks(), 1);
        node.means.queue.clear();
        stranger.stop_clean().await;
        node.stop_clean().await;
    }
}
