//! What the cases share.

use super::Fault;
use latchwork_core::{
    queue::{Delivery, QueueKind, QueueProvider, WorkItem},
    store::InstanceId,
};
use std::time::{Duration, Instant};

pub(super) const QUEUE: QueueKind = QueueKind::Workflow;
/// How long a case looks for what must not come.
pub(super) const QUIET: Duration = Duration::from_millis(150);
/// A delay that no case lives to see.
pub(super) const NEVER: Duration = Duration::from_hours(1);
/// How long a stop may take.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// Ends the case with a fault unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::queue::Fault::new(format!($($text)+)));
        }
    };
}
pub(super) use ensure;

pub(super) fn hint() -> WorkItem {
    WorkItem::new(InstanceId::new(), "order", 1)
}

pub(super) fn hints(count: usize) -> Vec<WorkItem> {
    (0..count).map(|_| hint()).collect()
}

/// Takes up to `max` hints, at least one.
pub(super) async fn take(
    node: &impl QueueProvider,
    max: usize,
    within: Duration,
    expected: &str,
) -> Result<Vec<Delivery>, Fault> {
    let start = Instant::now();
    loop {
        // Some services bound a single wait.
        let left = within.saturating_sub(start.elapsed());
        let taken = node.dequeue(QUEUE, max, left).await?;
        if !taken.is_empty() {
            return Ok(taken);
        }
        ensure!(start.elapsed() < within, "{expected} did not come within {within:?}");
    }
}

/// Takes the one hint that should be there.
pub(super) async fn take_this(
    node: &impl QueueProvider,
    item: &WorkItem,
    within: Duration,
    expected: &str,
) -> Result<Delivery, Fault> {
    let mut taken = take(node, 1, within, expected).await?;
    ensure!(taken.len() == 1, "a dequeue of at most 1 gave {} hints", taken.len());
    let Some(delivery) = taken.pop() else { return Err(Fault::new("no hint")) };
    ensure!(delivery.item() == item, "{expected} should come, and {:?} came", delivery.item());
    Ok(delivery)
}

/// Takes exactly these hints, in any order, each at least once, and returns one delivery for each; further copies are
/// acknowledged.
pub(super) async fn take_these(
    node: &impl QueueProvider,
    items: &[WorkItem],
    within: Duration,
    expected: &str,
) -> Result<Vec<Delivery>, Fault> {
    let mut held: Vec<Delivery> = Vec::new();
    while held.len() < items.len() {
        for delivery in take(node, items.len(), within, expected).await? {
            ensure!(items.contains(delivery.item()), "{expected} should come, and {:?} came", delivery.item());
            if held.iter().any(|other| other.item() == delivery.item()) {
                delivery.ack().await?;
            } else {
                held.push(delivery);
            }
        }
    }
    Ok(held)
}

/// Looks for a while, and finds nothing.
pub(super) async fn nothing_comes(node: &impl QueueProvider, time: Duration, why: &str) -> Result<(), Fault> {
    let start = Instant::now();
    while start.elapsed() < time {
        let taken = node.dequeue(QUEUE, 10, time.saturating_sub(start.elapsed())).await?;
        if let Some(delivery) = taken.first() {
            let (item, attempt) = (delivery.item(), delivery.attempt());
            return Err(Fault::new(format!("{why}, yet after {:?} came {item:?}, attempt {attempt}", start.elapsed())));
        }
    }
    Ok(())
}

/// Asks for the depth until it fits, as a service may count late.
pub(super) async fn depth_becomes(
    node: &impl QueueProvider,
    waiting: u64,
    in_hand: u64,
    within: Duration,
    when: &str,
) -> Result<(), Fault> {
    let start = Instant::now();
    loop {
        let depth = node.depth(QUEUE).await?;
        if depth.waiting == waiting && depth.in_hand == in_hand {
            return Ok(());
        }
        ensure!(start.elapsed() < within, "{when}, {waiting} should wait and {in_hand} be in hand, and the depth is {depth:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
