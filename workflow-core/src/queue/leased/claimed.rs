use super::{
    Settled,
    hand::{Hand, Message},
};
use crate::{
    queue::{Delivery, QueueKind, Settlement, WorkItem},
    store::InstanceId,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// Gives back what was claimed for nobody.
#[derive(Clone, Debug)]
pub struct GiveBack(pub(super) mpsc::WeakUnboundedSender<Message>);

impl GiveBack {
    fn give_back(&self, queue: QueueKind, claim: i64, instances: impl IntoIterator<Item = InstanceId>) {
        // Without the queue nobody is left to write it; the leases end by themselves.
        let Some(settled) = self.0.upgrade() else { return };
        let outcome = Settlement::Nack { delay: Duration::ZERO };
        for instance in instances {
            let _ = settled.send(Message::Settle(Settled { queue, instance, claim, outcome }, None));
        }
    }
}

/// A hint that was claimed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClaimedHint {
    /// The hint.
    pub item: WorkItem,
    /// How many of its consumers died or dropped it.
    pub failures: u32,
    /// Its place in the line.
    pub position: i64,
}

impl ClaimedHint {
    /// A hint at this place, after so many failures.
    pub fn new(item: WorkItem, failures: u32, position: i64) -> Self {
        Self { item, failures, position }
    }
}

/// Hints in the hands of this queue, and of nobody in particular yet. Dropped, they are given back: the one who asked for
/// them stopped waiting.
#[derive(Debug)]
pub struct Claimed {
    queue: QueueKind,
    claim: i64,
    since: Duration,
    hints: Vec<ClaimedHint>,
    back: GiveBack,
}

impl Claimed {
    /// What the claim of this number took; its lease began at `since` or later, by the monotonic clock of the [`Hand`].
    pub fn new(queue: QueueKind, claim: i64, since: Duration, mut hints: Vec<ClaimedHint>, back: GiveBack) -> Self {
        // A statement takes them in order, and returns them in any.
        hints.sort_unstable_by_key(|hint| hint.position);
        Self { queue, claim, since, hints, back }
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hints.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hints.is_empty()
    }

    /// The first of them, up to `max`; the others stay here.
    #[must_use]
    pub fn split(&mut self, max: usize) -> Self {
        let hints = self.hints.drain(..max.min(self.hints.len())).collect();
        Self { queue: self.queue, claim: self.claim, since: self.since, hints, back: self.back.clone() }
    }

    /// Makes a delivery of each.
    #[must_use]
    pub fn into_deliveries(mut self, hand: &Arc<Hand>) -> Vec<Delivery> {
        let hints = std::mem::take(&mut self.hints).into_iter();
        let deliver =
            |hint: ClaimedHint| hand.deliver(self.queue, hint.item, hint.failures.saturating_add(1), self.claim, self.since);
        hints.map(deliver).collect()
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let instances = self.hints.drain(..).map(|hint| hint.item.instance);
        self.back.give_back(self.queue, self.claim, instances);
    }
}
