//! Spans, logs and metrics (A21).

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by a panic")]

#[macro_use]
mod common;
use common::*;
use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span,
};

workflow!(Fails, |flow| {
    flow.run("one", async |_, cx| step(cx).await);
    flow.run("two", async |_, cx| step(cx).await).on_error(Retry::fixed(Duration::from_secs(1)));
    flow.wait_for("go", |_| "k".into());
});

/// Counts.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Counts {
    fn cell(&self, key: &Key) -> Arc<AtomicU64> {
        self.0.lock().expect("no panic").entry(key.name().to_owned()).or_default().clone()
    }

    fn of(&self, name: &str) -> u64 {
        self.0.lock().expect("no panic").get(name).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    fn level(&self, name: &str) -> Option<f64> {
        self.0.lock().expect("no panic").get(name).map(|cell| f64::from_bits(cell.load(Ordering::Relaxed)))
    }
}

struct Cell(Arc<AtomicU64>);

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

impl HistogramFn for Cell {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Cell(self.cell(key))))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let labels: String = key.labels().map(|label| format!("{{{}}}", label.value())).collect();
        let level = self.0.lock().expect("no panic").entry(format!("{}{labels}", key.name())).or_default().clone();
        Gauge::from_arc(Arc::new(Level(level)))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Cell(self.cell(key))))
    }
}

/// The value of a gauge, as its bits.
struct Level(Arc<AtomicU64>);

impl GaugeFn for Level {
    fn increment(&self, value: f64) {
        self.set(f64::from_bits(self.0.load(Ordering::Relaxed)) + value);
    }

    fn decrement(&self, value: f64) {
        self.increment(-value);
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

/// Keeps the spans and events of the engine, with their fields, as text.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn push(&self, name: &str, record: impl FnOnce(&mut Text)) {
        let mut text = Text(name.to_owned());
        record(&mut text);
        self.0.lock().expect("no panic").push(text.0);
    }

    fn any(&self, parts: &[&str]) -> bool {
        self.0.lock().expect("no panic").iter().any(|line| parts.iter().all(|part| line.contains(part)))
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("latchwork")
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        self.push(&format!("span {}", span.metadata().name()), |text| span.record(text));
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        self.push(&event.metadata().level().to_string(), |text| event.record(text));
    }

    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The recorder and the subscriber are those of this thread, on which all of a test's tasks run.
#[tokio::test]
async fn what_a_node_does_is_counted_and_traced() {
    let (counts, lines) = (Counts::default(), Lines::default());
    let _counting = metrics::set_default_local_recorder(&counts);
    let _tracing = tracing::subscriber::set_default(lines.clone());

    let world = World::memory();
    let node = world.node().with(|b| b.workflow(Fails).node_id("node-7")).start().await;
    world.probe.fail("two", 2);
    let handle = node.begin::<Fails>(Data::default()).await;
    world.fly_until(async || world.probe.ended("two") == 1).await;
    world.quiet().await;
    node.publish_event("go", "k", ()).await.expect("published");
    world.fly(handle.completion()).await.expect("done");

    assert_eq!(counts.of("latchwork.workflows.started"), 1);
    assert_eq!(counts.of("latchwork.events.published"), 1);
    assert_eq!(counts.of("latchwork.step.completed"), 2);
    assert_eq!(counts.of("latchwork.step.errors"), 2);
    assert_eq!(counts.of("latchwork.checkpoints"), node.means.store.count(StoreCall::Commit) as u64);
    assert!(counts.of("latchwork.bursts") >= 3);

    let id = handle.id().to_string();
    assert!(lines.any(&["span burst", "node=node-7", &id, "definition=Fails", "version=1"]), "{lines:?}");
    assert!(lines.any(&["span step", "step=two", "attempt=3", &id]), "{lines:?}");
    assert!(lines.any(&["WARN", "step failed", &id, "two was told to fail", "attempt=2"]), "{lines:?}");

    node.means.locks.on(LockCall::Acquire).fail(LockFault::Unavailable);
    node.begin::<Fails>(Data::default()).await;
    world.pass(Duration::from_secs(10)).await;
    assert!(counts.of("latchwork.lock.failures") >= 2);
    assert!(lines.any(&["ERROR", "the lock service fails: nothing is started on this node until it is back"]), "{lines:?}");
    node.means.locks.clear();
    node.stop_clean().await;
}

#[tokio::test]
async fn gauges_show_a_queue_that_backs_up_and_a_service_that_is_down() {
    let counts = Counts::default();
    let _counting = metrics::set_default_local_recorder(&counts);
    let world = World::memory();
    let node = world.node().with(|b| b.workflow(Fails).max_concurrent_workflows(1)).start().await;
    world.rest().await;
    let levels = |names: &[&str]| names.iter().map(|name| counts.level(&format!("latchwork.{name}"))).collect::<Vec<_>>();
    let services = ["service.up{lock}", "service.up{queue}", "service.up{store}"];
    assert_eq!(levels(&["queue.depth", "queue.in_hand", "queue.dropped", "bursts.active", "poll.lag_seconds"]), [Some(0.0); 5]);
    assert_eq!(levels(&services), [Some(1.0); 3]);

    let gate = world.probe.hold("one");
    for _ in 0..5 {
        node.begin::<Fails>(Data::default()).await;
    }
    world.soon(gate.reached(1)).await;
    node.means.locks.on(LockCall::Acquire).fail(LockFault::Unavailable);
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(levels(&services), [Some(0.0), Some(1.0), Some(1.0)]);
    assert_eq!(levels(&["bursts.active"]), [Some(1.0)]);
    let above = |name: &str, least: f64| counts.level(name).is_some_and(|level| level >= least);
    assert!(
        above("latchwork.queue.depth", 3.0) && above("latchwork.queue.oldest_seconds", 30.0),
        "{:?}",
        levels(&["queue.depth"])
    );
    assert!(above("latchwork.poll.lag_seconds", 30.0), "{:?}", levels(&["poll.lag_seconds"]));
    gate.open();
    node.means.locks.clear();
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(levels(&["queue.depth", "queue.oldest_seconds", "poll.oldest_overdue_seconds"]), [Some(0.0); 3]);
    assert_eq!(levels(&services), [Some(1.0); 3]);
    assert!(counts.of("latchwork.commit.group") >= 5);
    node.stop_clean().await;
}

impl Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.lock().expect("no panic").join("\n"))
    }
}
