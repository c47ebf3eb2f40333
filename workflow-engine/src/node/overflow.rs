//! What a full queue dropped: the poller makes up for it as soon as there is room again.

use super::Node;
use latchwork_core::queue::{QueueDepth, QueueKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

/// Hints that a queue with a bound dropped, and the poller that is to look for their instances.
#[derive(Debug, Default)]
pub(crate) struct Overflow {
    /// The drops that a poll has made up for.
    made_up: AtomicU64,
    /// Whether that poll came to its end.
    cut_short: AtomicBool,
    room: Notify,
}

impl Overflow {
    fn is_pending(&self, depth: &QueueDepth) -> bool {
        depth.dropped > self.made_up.load(Ordering::Relaxed) || self.cut_short.load(Ordering::Relaxed)
    }

    /// A poll that began when so many had been dropped has looked at all that is due, or at as much as there was room for.
    pub(super) fn made_up_for(&self, dropped: u64, all: bool) {
        self.made_up.fetch_max(dropped, Ordering::Relaxed);
        self.cut_short.store(!all, Ordering::Relaxed);
    }
}

/// What a look at the queue's depth says of its drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drops {
    /// The queue has no bound, and so never drops.
    Never,
    /// None, or none that a poll has not made up for.
    None,
    /// Some, and the queue is still more than half full.
    Waiting,
    /// Some, and there is room.
    Room,
}

impl Node {
    /// Looks at the queue, and wakes the poller when hints were dropped and there is room again. Cheap where there is a bound: such a queue
    /// is in this process.
    pub(super) async fn look_for_drops(&self) -> Drops {
        let drops = self.drops().await;
        if drops == Drops::Room {
            self.overflow.room.notify_one();
        }
        drops
    }

    async fn drops(&self) -> Drops {
        let Ok(depth) = self.queue.depth(QueueKind::Workflow).await else { return Drops::None };
        match depth.capacity {
            None => Drops::Never,
            Some(_) if !self.overflow.is_pending(&depth) => Drops::None,
            Some(capacity) if held(&depth) > capacity / 2 => Drops::Waiting,
            Some(_) => Drops::Room,
        }
    }

    /// Resolves when hints were dropped since the last complete poll, and there is room again.
    pub(super) async fn room_for_dropped(&self) {
        loop {
            self.overflow.room.notified().await;
            // The ring may be of before the last poll.
            if self.drops().await == Drops::Room {
                return;
            }
        }
    }

    /// How many hints were dropped so far.
    pub(super) async fn dropped(&self) -> u64 {
        self.queue.depth(QueueKind::Workflow).await.map_or(0, |depth| depth.dropped)
    }

    /// Whether the queue would drop what is added.
    pub(super) async fn queue_is_full(&self) -> bool {
        let depth = self.queue.depth(QueueKind::Workflow).await;
        depth.is_ok_and(|depth| depth.capacity.is_some_and(|capacity| held(&depth) >= capacity))
    }
}

fn held(depth: &QueueDepth) -> u64 {
    depth.waiting.saturating_add(depth.in_hand)
}
