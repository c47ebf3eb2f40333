use super::{Faults, Rule};
use latchwork_core::{
    async_trait,
    queue::{Delivery, QueueCapabilities, QueueDepth, QueueError, QueueKind, QueueProvider, Settle, Settlement, WorkItem},
};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;

/// The calls of a queue. What they are about: the instances of the hints, blank between them; empty for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each is named after its method")]
pub enum QueueCall {
    Enqueue,
    Dequeue,
    Depth,
    Stop,
}

/// How a call of a queue fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueFault {
    /// The broker cannot be reached.
    Unavailable,
    /// The broker refuses, now and always.
    Refused,
}

/// A queue that fails, waits, and loses, duplicates and reorders hints on command; see the [module](super).
#[derive(Debug)]
pub struct FaultyQueue<P> {
    inner: P,
    faults: Faults<QueueCall, QueueFault>,
    disorder: Disorder,
}

/// How deliveries are mixed up. Clones are handles to the same.
#[derive(Clone, Debug, Default)]
pub struct Disorder(Arc<Mixed>);

#[derive(Debug, Default)]
struct Mixed {
    copies: AtomicUsize,
    reverse: AtomicBool,
    injected: Mutex<VecDeque<WorkItem>>,
}

impl Disorder {
    /// Each hint is delivered so many times more, at once.
    pub fn set_copies(&self, copies: usize) {
        self.0.copies.store(copies, Ordering::Relaxed);
    }

    /// Hints that are taken together come last first.
    pub fn set_reverse(&self, reverse: bool) {
        self.0.reverse.store(reverse, Ordering::Relaxed);
    }
}

impl Disorder {
    /// Delivers these as well, before anything else, whatever the queue below has or holds back. A dequeue that waits already is not
    /// woken by it.
    pub fn inject(&self, items: impl IntoIterator<Item = WorkItem>) {
        self.injected().extend(items);
    }

    /// How many of the injected hints were not delivered yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.injected().len()
    }

    fn injected(&self) -> MutexGuard<'_, VecDeque<WorkItem>> {
        self.0.injected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_injected(&self, max: usize) -> Vec<Delivery> {
        let mut injected = self.injected();
        let take = max.min(injected.len());
        injected.drain(..take).map(|item| Delivery::new(item, 1, Nothing)).collect()
    }
}

impl<P: QueueProvider> FaultyQueue<P> {
    /// Wraps a queue.
    pub fn new(inner: P) -> Self {
        Self { inner, faults: Faults::default(), disorder: Disorder::default() }
    }

    /// The rules, to be kept when the queue is given to a host.
    #[must_use]
    pub fn faults(&self) -> &Faults<QueueCall, QueueFault> {
        &self.faults
    }

    /// How deliveries are mixed up, to be kept when the queue is given to a host.
    #[must_use]
    pub fn disorder(&self) -> &Disorder {
        &self.disorder
    }

    fn error(fault: QueueFault, action: &str) -> QueueError {
        match fault {
            QueueFault::Unavailable => QueueError::unavailable("faulty", action, "a fault on command"),
            QueueFault::Refused => QueueError::refused("faulty", action, "a fault on command"),
        }
    }
}

impl Rule<'_, QueueCall, QueueFault> {
    /// They are answered as if they had been done, and are not passed on: the hints of an enqueue are lost.
    pub fn swallow(self) {
        self.swallow_calls();
    }
}

/// Settles a copy that the queue below knows nothing of.
struct Nothing;

impl Settle for Nothing {
    fn settle(self: Box<Self>, _: Settlement, reply: Option<oneshot::Sender<Result<(), QueueError>>>) {
        if let Some(reply) = reply {
            let _ = reply.send(Ok(()));
        }
    }
}

#[async_trait]
impl<P: QueueProvider> QueueProvider for FaultyQueue<P> {
    fn capabilities(&self) -> QueueCapabilities {
        self.inner.capabilities()
    }

    async fn enqueue(&self, queue: QueueKind, items: &[WorkItem]) -> Result<(), QueueError> {
        let about = items.iter().map(|item| item.instance.as_str()).collect::<Vec<_>>().join(" ");
        let failed = |fault| Self::error(fault, "enqueue");
        let answer = self.faults.before(QueueCall::Enqueue, &about).await.map_err(failed)?;
        if !answer.swallowed {
            self.inner.enqueue(queue, items).await?;
        }
        answer.after().await.map_err(failed)
    }

    async fn dequeue(&self, queue: QueueKind, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let failed = |fault| Self::error(fault, "dequeue");
        let answer = self.faults.before(QueueCall::Dequeue, "").await.map_err(failed)?;
        let injected = self.disorder.take_injected(max);
        if !injected.is_empty() {
            return Ok(injected);
        }
        let mut taken = self.inner.dequeue(queue, max, wait).await?;
        answer.after().await.map_err(failed)?;
        if self.disorder.0.reverse.load(Ordering::Relaxed) {
            taken.reverse();
        }
        let copies = self.disorder.0.copies.load(Ordering::Relaxed);
        let copied: Vec<_> = taken
            .iter()
            .flat_map(|delivery| std::iter::repeat_n((delivery.item().clone(), delivery.attempt()), copies))
            .collect();
        taken.extend(copied.into_iter().map(|(item, attempt)| Delivery::new(item, attempt, Nothing)));
        Ok(taken)
    }

    async fn depth(&self, queue: QueueKind) -> Result<QueueDepth, QueueError> {
        let failed = |fault| Self::error(fault, "tell its depth");
        let answer = self.faults.before(QueueCall::Depth, "").await.map_err(failed)?;
        let depth = self.inner.depth(queue).await?;
        answer.after().await.map_err(failed)?;
        Ok(depth)
    }

    async fn stop(&self, grace: Duration) -> Result<(), QueueError> {
        let failed = |fault| Self::error(fault, "stop");
        let answer = self.faults.before(QueueCall::Stop, "").await.map_err(failed)?;
        self.inner.stop(grace).await?;
        answer.after().await.map_err(failed)
    }
}
