//! A clean stop (I7): bodies finish or are cancelled, what they did is stored, locks are free, and it ends in time.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::{
    clock::Clock,
    store::{PointerStatus, StoreErrorKind},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
};

/// A grace period unlike any other span of the engine.
const GRACE: Duration = Duration::from_secs(77);
/// How long a body has after its token has fired, before its future is dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(1);
/// The least that the clock can go on.
const MICRO: Duration = Duration::from_micros(1);

workflow!(Sides, |flow| {
    flow.parallel("sides", |all| {
        all.branch("left", |b| {
            b.run("left", async |_, cx| step(cx).await).output(|(), data| data.log.push("left".into()));
            b.run("left after", async |_, cx| step(cx).await).output(|(), data| data.log.push("left after".into()));
        });
        all.branch("right", |b| b.run("right", async |_, cx| step(cx).await).output(|(), data| data.log.push("right".into())));
    });
});

/// A body that ends when its token fires, with an error.
async fn heed(cx: &StepContext) -> StepResult<()> {
    step(cx).await?;
    cx.cancellation().cancelled().await;
    Err("the token fired".into())
}

workflow!(Heeds, |flow| { flow.run("heeds", async |_, cx| heed(cx).await) });

workflow!(HeedsBeside, |flow| {
    flow.parallel("sides", |all| {
        all.branch("left", |b| b.run("heeds", async |_, cx| heed(cx).await));
        all.branch("right", |b| b.run("heeds too", async |_, cx| heed(cx).await));
    });
});

workflow!(Deaf, |flow| { flow.run("deaf", async |_, cx| step(cx).await) });

/// How a store is away: it does not answer, or it fails; or it fails when it is told that what it was given can never be stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Away {
    Hangs,
    Fails,
    FailsLater,
}

type Stopping = tokio::task::JoinHandle<Result<latchwork::StopReport, HostError>>;

/// Begins to stop this node: its grace period runs from this moment of the clock on.
fn begin_to_stop(node: &TestNode) -> Stopping {
    let host = node.host.clone();
    let mut stop = Box::pin(async move { host.stop().await });
    let begun = stop.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(begun.is_pending(), "something runs that is waited for");
    tokio::spawn(stop)
}

/// Stops this node, which has a burst that does not end within the grace; what did not end at all.
async fn stop_beyond_the_grace(world: &World, node: &TestNode) -> Vec<(InstanceId, Vec<Arc<str>>)> {
    let stop = begin_to_stop(node);
    world.clock.advance(GRACE);
    // In short steps, so that a store on a busy machine can do its work in the seconds that follow.
    world.fly_by(Duration::from_millis(100), stop).await.expect("no panic").expect("stopped").unfinished
}

/// Blocks its thread until it is told to stop.
#[derive(Clone, Default)]
struct Blocker(Arc<AtomicBool>);

/// Tells the blocker to stop when the test ends: also when it fails, or its runtime would wait for the thread for ever.
struct Unblock(Blocker);

impl Drop for Unblock {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

workflow!(Blocks, |flow| {
    flow.run("before", async |_, cx| step(cx).await);
    flow.run("blocks", async |_, cx| {
        let blocker = cx.service::<Blocker>()?.clone();
        step(cx).await?;
        while !blocker.0.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    });
});

on_each_store! {
    async fn k31_a_running_body_finishes_within_the_grace(world: World) {
        let node = world.node().with(|b| b.workflow(Sides).stop_grace(GRACE)).start().await;
        let gate = world.probe.hold("left");
        let handle = node.begin::<Sides>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        let stop = begin_to_stop(&node);
        world.clock.advance(GRACE - MICRO);
        world.rest().await;
        assert!(!stop.is_finished());
        gate.open();
        assert_eq!(world.soon(stop).await.expect("no panic").expect("stopped").unfinished, []);
        let loaded = world.store().load(handle.id()).await.expect("loads").expect("there");
        let mut done: Data = serde_json::from_str(loaded.data.as_str()).expect("data");
        done.log.sort();
        assert_eq!(done.log, ["left", "right"], "what finished is stored, and nothing new was started");
        assert!(loaded.pointers.iter().any(|pointer| &*pointer.step == "left after" && pointer.status == PointerStatus::Ready));
        assert_eq!(node.means.losses.held(), [""; 0]);
        let node = world.run(Sides).await;
        world.fly(node.instance(handle.id().clone()).ended()).await.expect("ended");
        assert_eq!((world.probe.runs("left"), world.probe.runs("right"), world.probe.runs("left after")), (1, 1, 1));
        node.stop_clean().await;
    }

    /// Plant the fault: let the grace in `WorkflowHost::stop` be none, or one of real time; or, in `Burst::wait`, tell no body that runs in
    /// the burst's own task that the grace is over.
    async fn bodies_have_the_whole_grace_and_are_told_when_it_is_over(world: World) {
        let node = world.node().with(|b| b.workflow(Heeds).workflow(HeedsBeside).stop_grace(GRACE)).start().await;
        node.begin::<Heeds>(Data::default()).await;
        node.begin::<HeedsBeside>(Data::default()).await;
        world.soon_until(async || world.probe.ended("heeds") == 2 && world.probe.ended("heeds too") == 1).await;
        let stop = begin_to_stop(&node);
        world.clock.advance(GRACE - MICRO);
        world.rest().await;
        assert_eq!((node.health().active, stop.is_finished()), (2, false), "before the end of the grace");
        world.clock.advance(MICRO);
        // They end by themselves, at their token.
        assert_eq!(world.soon(stop).await.expect("no panic").expect("stopped").unfinished, []);
        assert_eq!((node.health().active, node.means.losses.held()), (0, vec![]));
    }

    /// Plant the fault: in `Burst::cancel_bodies`, drop them at once.
    async fn a_body_that_is_deaf_to_its_token_is_dropped_a_moment_later(world: World) {
        let node = world.node().with(|b| b.workflow(Deaf).stop_grace(GRACE)).start().await;
        let gate = world.probe.hold("deaf");
        node.begin::<Deaf>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        let stop = begin_to_stop(&node);
        world.clock.advance(GRACE);
        let dropped_at = world.clock.monotonic() + CANCEL_GRACE;
        world.soon_until(async || world.clock.pending_deadline() == Some(dropped_at)).await;
        world.clock.advance(CANCEL_GRACE - MICRO);
        world.rest().await;
        assert_eq!((node.health().active, stop.is_finished()), (1, false), "before its future is dropped");
        world.clock.advance(MICRO);
        assert_eq!(world.soon(stop).await.expect("no panic").expect("stopped").unfinished, []);
        assert_eq!((node.health().active, world.probe.ended("deaf")), (0, 0));
    }

    async fn k31_beyond_the_grace_bodies_are_cancelled_and_the_others_are_stored(world: World) {
        let node = world.node().with(|b| b.workflow(Sides).stop_grace(GRACE)).start().await;
        let gate = world.probe.hold("left");
        let handle = node.begin::<Sides>(Data::default()).await;
        world.soon_until(async || gate.arrived() == 1 && world.probe.ended("right") == 1).await;
        assert_eq!(stop_beyond_the_grace(&world, &node).await, []);
        assert_eq!(node.means.losses.held(), [""; 0]);
        assert_eq!(world.probe.ended("left"), 0);
        let id = handle.id().clone();
        drop(handle);
        drop(node);
        gate.open();
        let node = world.run(Sides).await;
        world.fly(node.instance(id).ended()).await.expect("ended");
        // The cancelled one runs again, with the same key; the other one does not.
        assert_eq!((world.probe.runs("left"), world.probe.keys("left").len(), world.probe.runs("right")), (2, 1, 1));
        node.stop_clean().await;
    }

    async fn a_cancelled_body_that_ends_with_an_error_has_not_failed(world: World) {
        let node = world.node().with(|b| b.workflow(Heeds).stop_grace(GRACE).default_error_policy(Retry::never())).start().await;
        let handle = node.begin::<Heeds>(Data::default()).await;
        world.soon_until(async || world.probe.runs("heeds") == 1).await;
        assert_eq!(stop_beyond_the_grace(&world, &node).await, []);
        let loaded = world.store().load(handle.id()).await.expect("loads").expect("there");
        assert_eq!(loaded.header.status, WorkflowStatus::Runnable);
        assert_eq!(world.store().errors(handle.id()).await.expect("errors"), []);
    }

    async fn stop_takes_no_more_work_and_gives_back_what_it_has(world: World) {
        let node = world.node().with(|b| b.workflow(Sides).max_concurrent_workflows(2).stop_grace(GRACE)).start().await;
        let gate = world.probe.hold("left");
        for _ in 0..10 { node.begin::<Sides>(Data::default()).await; }
        world.soon(gate.reached(2)).await;
        assert_eq!(stop_beyond_the_grace(&world, &node).await, []);
        assert_eq!(world.probe.runs("left"), 2);
        assert_eq!(node.stop().await.expect("again, harmless").unfinished, []);
        gate.open();
        let other = world.run(Sides).await;
        world.fly_until(async || world.probe.runs("left after") == 10).await;
        other.stop_clean().await;
    }

    /// Plant the faults: in `Burst::wait`, leave out what ends a burst whose checkpoint stays away, at the end of the grace or when its
    /// bodies are dropped; in `commit` of the burst, try on when the grace is over.
    async fn with_the_store_away_a_burst_ends_with_the_grace_and_loses_nothing(world: World) {
        // With a body beside, which is dropped, and with none.
        for (away, beside) in [(Away::Hangs, false), (Away::Hangs, true), (Away::Fails, false), (Away::Fails, true), (Away::FailsLater, false)] {
            let node = world.node().with(|b| b.workflow(Sides).stop_grace(GRACE)).start().await;
            // A first poll that met the new instance would take its hint for lost: a checkpoint would count that before any body began.
            world.soon_until(async || node.health().poller.since_poll.is_some()).await;
            let left = beside.then(|| world.probe.hold("left"));
            let commits = || node.means.store.on(StoreCall::Commit);
            let gate = match away {
                Away::Hangs => Some(commits().hold()),
                Away::Fails | Away::FailsLater => {
                    if away == Away::FailsLater { commits().once().fail(StoreErrorKind::Invalid); }
                    commits().fail(StoreErrorKind::Unavailable);
                    None
                }
            };
            let before = world.probe.ended("right");
            let handle = node.begin::<Sides>(Data::default()).await;
            let tries = || node.means.store.count(StoreCall::Commit);
            world.soon_until(async || world.probe.ended("right") > before && tries() > usize::from(away == Away::FailsLater)).await;
            let stop = begin_to_stop(&node);
            world.clock.advance(GRACE);
            if beside {
                let dropped_at = world.clock.monotonic() + CANCEL_GRACE;
                world.soon_until(async || world.clock.pending_deadline() == Some(dropped_at)).await;
                world.clock.advance(CANCEL_GRACE);
            }
            // From here on the clock stands still.
            let case = format!("{away:?}, with a body beside: {beside}");
            let stopped = world.soon(stop).await.expect("no panic").unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!((stopped.unfinished, node.health().active, node.means.losses.held()), (vec![], 0, vec![]), "{case}");
            let tried = tries();
            world.pass(GRACE).await;
            assert_eq!(tries(), tried, "nothing is tried after the stop, {case}");
            for gate in gate.into_iter().chain(left) { gate.open(); }
            let id = handle.id().clone();
            drop(handle);
            drop(node);
            world.lose_queue();
            let node = world.run(Sides).await;
            let record = world.fly(node.instance(id).ended()).await.expect("ended");
            let latchwork::store::InstanceRecord::Instance { data, .. } = record else { panic!("deleted") };
            let done: Data = serde_json::from_str(data.as_str()).expect("data");
            assert_eq!(done.sorted(), ["left", "left after", "right"], "{case}");
            node.stop_clean().await;
            world.lose_queue();
        }
    }

    async fn stop_ends_also_when_a_load_or_a_release_does_not_answer(world: World) {
        let node = world.node().with(|b| b.workflow(Sides).stop_grace(GRACE)).start().await;
        let load = node.means.store.on(StoreCall::Load).once().hold();
        node.begin::<Sides>(Data::default()).await;
        world.soon(load.reached(1)).await;
        let release = node.means.locks.on(LockCall::Release).about("wfc:0").once().hold();
        node.begin::<Sides>(Data::default()).await;
        world.soon(release.reached(1)).await;
        assert_eq!(stop_beyond_the_grace(&world, &node).await, []);
        load.open();
        release.open();
    }
}

/// Plant the fault: in `Burst::start_bodies`, do not tell that a body runs in the burst's own task.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_body_that_blocks_its_thread_is_reported_and_keeps_its_lock() {
    let (world, blocker) = (World::memory(), Blocker::default());
    let _unblock = Unblock(blocker.clone());
    let build = || world.node().with(|b| b.workflow(Blocks).service(blocker.clone()).stop_grace(GRACE));
    let node = build().start().await;
    let handle = node.begin::<Blocks>(Data::default()).await;
    world.soon_until(async || world.probe.ended("blocks") == 1).await;
    assert_eq!(stop_beyond_the_grace(&world, &node).await, [(handle.id().clone(), vec![Arc::from("blocks")])]);
    assert_eq!(node.means.losses.held(), [format!("wfc:{}", handle.id())]);
    // Nobody else may run it while its body does.
    world.lose_queue();
    let other = build().start().await;
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.probe.runs("blocks"), 1);
    blocker.0.store(true, Ordering::Relaxed);
    world.fly(other.instance(handle.id().clone()).ended()).await.expect("ended");
    other.stop_clean().await;
}

/// The same, with others beside it: they run on, and the stop reports the one.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn k30_a_blocking_body_holds_up_no_other_instance() {
    let (world, blocker) = (World::memory(), Blocker::default());
    let _unblock = Unblock(blocker.clone());
    let node = world.node().with(|b| b.workflow(Blocks).workflow(Sides).service(blocker.clone()).stop_grace(GRACE)).start().await;
    let blocked = node.begin::<Blocks>(Data::default()).await;
    world.soon_until(async || world.probe.ended("blocks") == 1).await;
    for _ in 0..20 {
        world.soon(node.begin::<Sides>(Data::default()).await.completion()).await.expect("done");
    }
    blocker.0.store(true, Ordering::Relaxed);
    world.soon(blocked.completion()).await.expect("done");
    node.stop_clean().await;
}
