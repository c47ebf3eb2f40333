use super::{QueueError, WorkItem};
use std::{fmt, time::Duration};
use tokio::sync::oneshot;

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The store needs this hint no more.
    Ack,
    /// Deliver again, not before this delay. Not counted as an attempt.
    Nack {
        /// The shortest time until it comes again.
        delay: Duration,
    },
    /// The value was dropped without a word: its consumer failed. Deliver again, counted as an attempt.
    Abandoned,
}

/// How a provider settles one delivery. Handed in with the delivery, called exactly once.
///
/// Must not block and need not be inside a runtime: it passes the outcome to a task of the provider, which batches.
pub trait Settle: Send + Sync {
    /// Settles, and answers `reply` when there is one and the backend has confirmed.
    fn settle(self: Box<Self>, outcome: Settlement, reply: Option<oneshot::Sender<Result<(), QueueError>>>);
}

/// A hint in the hands of a consumer. While the value lives its provider keeps it from other consumers: a lease is
/// renewed, a broker's time limit is dealt with. Dropped without [`ack`](Self::ack) or [`nack`](Self::nack), it comes again.
#[must_use = "a delivery dropped without `ack` comes again"]
pub struct Delivery {
    item: WorkItem,
    attempt: u32,
    settle: Option<Box<dyn Settle>>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("item", &self.item).field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(settle) = self.settle.take() {
            settle.settle(Settlement::Abandoned, None);
        }
    }
}

impl Delivery {
    /// For providers: a delivery of `item`; `attempt` counts from 1 and grows when a consumer died or abandoned it.
    pub fn new(item: WorkItem, attempt: u32, settle: impl Settle + 'static) -> Self {
        Self { item, attempt, settle: Some(Box::new(settle)) }
    }

    /// The hint.
    #[must_use]
    pub fn item(&self) -> &WorkItem {
        &self.item
    }

    /// Which delivery of this hint it is, from 1. Only a consumer's death or failure counts.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The store needs this hint no more. Dropping the future does not take it back.
    ///
    /// # Errors
    /// [`QueueError`] when the backend did not confirm; the hint may come again.
    pub async fn ack(self) -> Result<(), QueueError> {
        self.finish(Settlement::Ack).await
    }

    /// Deliver again, not before `delay`. Dropping the future does not take it back.
    ///
    /// # Errors
    /// [`QueueError`] when the backend did not confirm; the hint may come again earlier.
    pub async fn nack(self, delay: Duration) -> Result<(), QueueError> {
        self.finish(Settlement::Nack { delay }).await
    }

    /// As [`ack`](Self::ack), without waiting for the backend's answer.
    pub fn ack_later(mut self) {
        if let Some(settle) = self.settle.take() {
            settle.settle(Settlement::Ack, None);
        }
    }

    /// As [`nack`](Self::nack), without waiting for the backend's answer.
    pub fn nack_later(mut self, delay: Duration) {
        if let Some(settle) = self.settle.take() {
            settle.settle(Settlement::Nack { delay }, None);
        }
    }

    async fn finish(mut self, outcome: Settlement) -> Result<(), QueueError> {
        let Some(settle) = self.settle.take() else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        settle.settle(outcome, Some(reply));
        // No answer: the provider was stopped meanwhile; an unsettled hint comes again.
        answer.await.unwrap_or(Ok(()))
    }
}
