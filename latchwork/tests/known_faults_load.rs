//! Known faults that are about load and background work; see `known_faults.rs`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::store::StoreErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};

const MINUTE: Duration = Duration::from_secs(60);

workflow!(Waits, |flow| {
    flow.wait_for("go", |data| data.text.clone());
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(Steps, |flow| {
    flow.run("one", async |_, cx| step(cx).await);
    flow.run("two", async |_, cx| step(cx).await);
});

workflow!(Sleeps, |flow| flow.delay("an hour", MINUTE * 60));

/// Ten thousand that wait, and three thousand that run: more than a node has room for. Plant the fault: give the node more permits than
/// `max_concurrent_workflows`.
#[tokio::test]
async fn k13_a_node_drains_more_work_than_it_has_room_for() {
    let world = World::memory();
    let node = world.node().with(|b| b.workflow(Waits).workflow(Steps)).start().await;
    let mut waiting = Vec::new();
    for _ in 0..10_000 {
        waiting.push(node.begin::<Waits>(Data { text: "k".into(), ..Data::default() }).await);
    }
    world.fly_until(async || node.statistics().await.expect("counted").runnable == 10_000 && node.health().active == 0).await;
    let gate = world.probe.hold("one");
    let mut running = Vec::new();
    for _ in 0..3_000 {
        running.push(node.begin::<Steps>(Data::default()).await);
    }
    world.soon(gate.reached(1_024)).await;
    world.pass(MINUTE).await;
    assert_eq!((world.probe.runs("one"), node.health().active), (1_024, 1_024), "as many as there is room for");
    gate.open();
    for handle in running {
        world.fly(handle.completion()).await.expect("done");
    }
    node.publish_event("go", "k", ()).await.expect("published");
    for handle in waiting {
        world.fly(handle.completion()).await.expect("done");
    }
    assert_eq!((world.probe.keys("two").len(), world.probe.keys("after").len()), (3_000, 10_000));
    node.stop_clean().await;
}

/// Counts the warnings of the engine that speak of this.
#[derive(Clone)]
struct Warnings(&'static str, Arc<AtomicUsize>);

struct Speaks(&'static str, bool);

impl tracing::field::Visit for Speaks {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.1 |= format!("{value:?}").contains(self.0);
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut speaks = Speaks(self.0, false);
        event.record(&mut speaks);
        self.1.fetch_add(usize::from(speaks.1), Ordering::Relaxed);
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// The subscriber is that of this thread, on which all of a test's tasks run. Plant the fault: let `Registry::report_once` always be true.
#[tokio::test]
async fn k09_a_definition_that_is_unknown_here_is_reported_once() {
    let warnings = Warnings("it is not registered here", Arc::default());
    let _tracing = tracing::subscriber::set_default(warnings.clone());
    let world = World::memory();
    let caller = world.node().with(|b| b.workflow(Steps).configure(|options| options.run_workflows = false)).start().await;
    let stranger = world.run(Sleeps).await;
    for _ in 0..50 {
        caller.begin::<Steps>(Data::default()).await;
    }
    world.pass(MINUTE * 60).await;
    assert_eq!(warnings.1.load(Ordering::Relaxed), 1);
    let loads = stranger.means.store.count(StoreCall::Load);
    assert!(loads <= 50, "at most one look at each, for calls that need no definition: {loads}");
    assert_eq!(world.probe.steps(), [""; 0]);
    stranger.stop_clean().await;
    caller.stop_clean().await;
}

/// A node whose store is away for each load says so, and is not hot. Plant the fault: try again after 50 ms.
#[tokio::test]
async fn k14_what_fails_in_the_consumer_is_tried_again_and_not_hot() {
    let world = World::memory();
    let node = world.run(Steps).await;
    node.means.store.on(StoreCall::Load).fail(StoreErrorKind::Unavailable);
    let handle = node.begin::<Steps>(Data::default()).await;
    for _ in 0..300 {
        world.clock.advance(MINUTE / 300);
        world.rest().await;
    }
    let tries = node.means.store.count(StoreCall::Load);
    assert!((5..=75).contains(&tries), "{tries} tries in a minute");
    assert!(!node.health().store.is_healthy());
    node.means.store.clear();
    world.fly(handle.completion()).await.expect("done");
    assert!(node.health().is_healthy());
    node.stop_clean().await;
}
