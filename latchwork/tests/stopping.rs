//! A clean stop (I7): bodies finish or are cancelled, what they did is stored, locks are free, and it ends in time.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::store::PointerStatus;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

const SHORT: Duration = Duration::from_millis(100);

workflow!(Sides, |flow| {
    flow.parallel("sides", |all| {
        all.branch("left", |b| {
            b.run("left", async |_, cx| step(cx).await).output(|(), data| data.log.push("left".into()));
            b.run("left after", async |_, cx| step(cx).await).output(|(), data| data.log.push("left after".into()));
        });
        all.branch("right", |b| b.run("right", async |_, cx| step(cx).await).output(|(), data| data.log.push("right".into())));
    });
});

workflow!(Heeds, |flow| {
    flow.run("heeds", async |_, cx| {
        step(cx).await?;
        cx.cancellation().cancelled().await;
        Err::<(), StepError>("the token fired".into())
    });
});

/// Blocks its thread until it is told to stop.
#[derive(Clone, Default)]
struct Blocker(Arc<AtomicBool>);

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
    async fn a_running_body_finishes_within_the_grace(world: World) {
        let node = world.run(Sides).await;
        let gate = world.probe.hold("left");
        let handle = node.begin::<Sides>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        let stop = tokio::spawn({ let host = node.host.clone(); async move { host.stop().await } });
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

    async fn beyond_the_grace_bodies_are_cancelled_and_the_others_are_stored(world: World) {
        let node = world.node().with(|b| b.workflow(Sides).stop_grace(SHORT)).start().await;
        let gate = world.probe.hold("left");
        let handle = node.begin::<Sides>(Data::default()).await;
        world.soon_until(async || gate.arrived() == 1 && world.probe.ended("right") == 1).await;
        assert_eq!(world.fly(node.stop()).await.expect("stopped").unfinished, []);
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
        let node = world.node().with(|b| b.workflow(Heeds).stop_grace(SHORT).default_error_policy(Retry::never())).start().await;
        let handle = node.begin::<Heeds>(Data::default()).await;
        world.soon_until(async || world.probe.runs("heeds") == 1).await;
        assert_eq!(world.fly(node.stop()).await.expect("stopped").unfinished, []);
        let loaded = world.store().load(handle.id()).await.expect("loads").expect("there");
        assert_eq!(loaded.header.status, WorkflowStatus::Runnable);
        assert_eq!(world.store().errors(handle.id()).await.expect("errors"), []);
    }

    async fn stop_takes_no_more_work_and_gives_back_what_it_has(world: World) {
        let node = world.node().with(|b| b.workflow(Sides).max_concurrent_workflows(2).stop_grace(SHORT)).start().await;
        let gate = world.probe.hold("left");
        for _ in 0..10 { node.begin::<Sides>(Data::default()).await; }
        world.soon(gate.reached(2)).await;
        assert_eq!(world.fly(node.stop()).await.expect("stopped").unfinished, []);
        assert_eq!(world.probe.runs("left"), 2);
        assert_eq!(node.stop().await.expect("again, harmless").unfinished, []);
        gate.open();
        let other = world.run(Sides).await;
        world.fly_until(async || world.probe.runs("left after") == 10).await;
        other.stop_clean().await;
    }

    /// Plant the fault: in `Burst::wait`, leave out what ends a burst whose checkpoint stays away.
    async fn stop_ends_also_when_the_store_does_not_answer(world: World) {
        let node = world.node().with(|b| b.workflow(Sides).stop_grace(SHORT)).start().await;
        let gate = node.means.store.on(StoreCall::Commit).hold();
        let handle = node.begin::<Sides>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        assert_eq!(world.fly(node.stop()).await.expect("stopped").unfinished, []);
        gate.open();
        let id = handle.id().clone();
        drop(handle);
        let node = world.run(Sides).await;
        world.fly(node.instance(id).ended()).await.expect("ended");
        node.stop_clean().await;
    }

    async fn stop_ends_also_when_a_load_or_a_release_does_not_answer(world: World) {
        let node = world.node().with(|b| b.workflow(Sides).stop_grace(SHORT)).start().await;
        let load = node.means.store.on(StoreCall::Load).once().hold();
        node.begin::<Sides>(Data::default()).await;
        world.soon(load.reached(1)).await;
        let release = node.means.locks.on(LockCall::Release).about("wfc:0").once().hold();
        node.begin::<Sides>(Data::default()).await;
        world.soon(release.reached(1)).await;
        assert_eq!(world.fly(node.stop()).await.expect("stopped").unfinished, []);
        load.open();
        release.open();
    }
}

/// Plant the fault: in `Burst::start_bodies`, do not tell that a body runs in the burst's own task.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_body_that_blocks_its_thread_is_reported_and_keeps_its_lock() {
    let (world, blocker) = (World::memory(), Blocker::default());
    let build = || world.node().with(|b| b.workflow(Blocks).service(blocker.clone()).stop_grace(SHORT));
    let node = build().start().await;
    let handle = node.begin::<Blocks>(Data::default()).await;
    world.soon_until(async || world.probe.ended("blocks") == 1).await;
    let report = world.fly(node.stop()).await.expect("stopped");
    assert_eq!(report.unfinished, [(handle.id().clone(), vec![Arc::from("blocks")])]);
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
async fn a_blocking_body_holds_up_no_other_instance() {
    let (world, blocker) = (World::memory(), Blocker::default());
    let node = world.node().with(|b| b.workflow(Blocks).workflow(Sides).service(blocker.clone()).stop_grace(SHORT)).start().await;
    let blocked = node.begin::<Blocks>(Data::default()).await;
    world.soon_until(async || world.probe.ended("blocks") == 1).await;
    for _ in 0..20 {
        world.soon(node.begin::<Sides>(Data::default()).await.completion()).await.expect("done");
    }
    blocker.0.store(true, Ordering::Relaxed);
    world.soon(blocked.completion()).await.expect("done");
    node.stop_clean().await;
}
