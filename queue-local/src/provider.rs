use crate::{
    LocalQueueOptions,
    line::{Line, News, Ticket},
};
use latchwork_core::{
    Scope, async_trait,
    clock::{Clock, SystemClock},
    options::InvalidSetting,
    queue::{
        Delivery, QueueCapabilities, QueueDepth, QueueError, QueueKind, QueueProvider, Redelivery, Settle, Settlement, WorkItem,
    },
};
use std::{
    fmt,
    future::pending,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

const PROVIDER: &str = "local";

/// Numbers the queues and handles of this process.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// A queue of hints within this process.
///
/// Each clone is a handle of its own on the same queue, as each host of a process has one: stopping a handle gives back what
/// was taken through it, and leaves the others at work.
pub struct LocalQueue {
    shared: Arc<Shared>,
    holder: u64,
    /// Cancelled under the lock of the line, so that nothing is taken through this handle after it was stopped.
    stopped: CancellationToken,
}

struct Shared {
    name: u64,
    clock: Arc<dyn Clock>,
    capacity: usize,
    queues: Mutex<Vec<(QueueKind, Line)>>,
    /// Rung for one waiting consumer when there is a hint, for all when a delayed hint is due earlier than they know.
    bell: Notify,
}

impl fmt::Debug for LocalQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalQueue")
            .field("name", &self.shared.name)
            .field("capacity", &self.shared.capacity)
            .field("stopped", &self.stopped.is_cancelled())
            .finish_non_exhaustive()
    }
}

impl Clone for LocalQueue {
    fn clone(&self) -> Self {
        Self::handle(self.shared.clone())
    }
}

impl Default for LocalQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalQueue {
    /// A queue with the default capacity.
    #[must_use]
    pub fn new() -> Self {
        Self::build(LocalQueueOptions::default())
    }

    /// A queue with these options.
    ///
    /// # Errors
    /// [`InvalidSetting`] for a capacity of zero.
    pub fn with_options(options: LocalQueueOptions) -> Result<Self, InvalidSetting> {
        options.validate()?;
        Ok(Self::build(options))
    }

    fn build(options: LocalQueueOptions) -> Self {
        Self::handle(Arc::new(Shared {
            name: NUMBER.fetch_add(1, Ordering::Relaxed),
            clock: options.clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
            capacity: options.capacity,
            queues: Mutex::default(),
            bell: Notify::new(),
        }))
    }

    fn handle(shared: Arc<Shared>) -> Self {
        Self { shared, holder: NUMBER.fetch_add(1, Ordering::Relaxed), stopped: CancellationToken::new() }
    }

    /// Takes what is there now; when there is nothing, says when to look again at the latest.
    fn take(&self, queue: QueueKind, max: usize) -> Result<Result<Vec<Delivery>, Option<Duration>>, QueueError> {
        let now = self.shared.clock.monotonic();
        let (taken, more) = {
            let mut queues = self.shared.queues();
            if self.stopped.is_cancelled() {
                return Err(QueueError::stopped(PROVIDER));
            }
            let line = self.shared.line(&mut queues, queue);
            let taken = line.take(max, now, self.holder);
            if taken.is_empty() {
                return Ok(Err(line.next_due()));
            }
            (taken, line.is_ready())
        };
        if more {
            self.shared.bell.notify_one();
        }
        let deliveries = taken.into_iter().map(|taken| {
            let settle = LocalSettle { shared: self.shared.clone(), queue, ticket: taken.ticket };
            Delivery::new(taken.item, taken.attempt, settle)
        });
        Ok(Ok(deliveries.collect()))
    }

    fn check_open(&self) -> Result<(), QueueError> {
        if self.stopped.is_cancelled() { Err(QueueError::stopped(PROVIDER)) } else { Ok(()) }
    }
}

impl Shared {
    fn queues(&self) -> MutexGuard<'_, Vec<(QueueKind, Line)>> {
        // Nothing that can panic half-way through a change runs under this lock.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line of one kind. There are so few kinds that looking along them is the quickest.
    fn line<'a>(&self, queues: &'a mut Vec<(QueueKind, Line)>, queue: QueueKind) -> &'a mut Line {
        let at = match queues.iter().position(|(kind, _)| *kind == queue) {
            Some(at) => at,
            None => {
                queues.push((queue, Line::new(self.capacity)));
                queues.len() - 1
            }
        };
        // `at` was found or made above, under the same lock.
        &mut queues[at].1
    }

    fn tell(&self, news: News) {
        if news.ready {
            self.bell.notify_one();
        }
        if news.earlier {
            self.bell.notify_waiters();
        }
    }
}

#[async_trait]
impl QueueProvider for LocalQueue {
    fn capabilities(&self) -> QueueCapabilities {
        let domain = format!("local:{}/{}", std::process::id(), self.shared.name);
        QueueCapabilities::new(Scope::Process, Redelivery::Never, domain).with_push().with_native_delay()
    }

    async fn enqueue(&self, queue: QueueKind, items: &[WorkItem]) -> Result<(), QueueError> {
        self.check_open()?;
        let now = self.shared.clock.monotonic();
        let news = self.shared.line(&mut self.shared.queues(), queue).enqueue(items, now);
        self.shared.tell(news);
        if news.full {
            tracing::warn!(
                queue = queue.as_str(),
                capacity = self.shared.capacity,
                "the local queue is full: hints are dropped, and the poller makes up for them"
            );
        }
        Ok(())
    }

    async fn dequeue(&self, queue: QueueKind, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        if let Ok(taken) = self.take(queue, max)? {
            return Ok(taken);
        }
        if max == 0 || wait.is_zero() {
            return Ok(Vec::new());
        }
        // A consumer waits in real time, also under a virtual clock, which would otherwise have to stop at each idle wait.
        let mut end = pin!(tokio::time::sleep(wait));
        loop {
            let mut rung = pin!(self.shared.bell.notified());
            // From here on a ring is not missed, so that what arrives after the look is seen.
            rung.as_mut().enable();
            let due = match self.take(queue, max)? {
                Ok(taken) => return Ok(taken),
                Err(due) => due,
            };
            let due = async {
                match due {
                    Some(due) => self.shared.clock.sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => return Err(QueueError::stopped(PROVIDER)),
                () = rung => {}
                () = due => {}
                () = &mut end => return Ok(Vec::new()),
            }
        }
    }

    async fn depth(&self, queue: QueueKind) -> Result<QueueDepth, QueueError> {
        self.check_open()?;
        let now = self.shared.clock.monotonic();
        Ok(self.shared.line(&mut self.shared.queues(), queue).depth(now))
    }

    async fn stop(&self, _grace: Duration) -> Result<(), QueueError> {
        let now = self.shared.clock.monotonic();
        let mut news = News::default();
        {
            let mut queues = self.shared.queues();
            self.stopped.cancel();
            for (_, line) in queues.iter_mut() {
                news.ready |= line.give_back(self.holder, now).ready;
            }
        }
        self.shared.tell(news);
        Ok(())
    }
}

/// Settles at once, in the caller's task: there is nothing to wait for.
struct LocalSettle {
    shared: Arc<Shared>,
    queue: QueueKind,
    ticket: Ticket,
}

impl Settle for LocalSettle {
    fn settle(self: Box<Self>, outcome: Settlement, reply: Option<oneshot::Sender<Result<(), QueueError>>>) {
        let now = self.shared.clock.monotonic();
        let settled = {
            let mut queues = self.shared.queues();
            self.shared.line(&mut queues, self.queue).settle(self.ticket, outcome, now)
        };
        // A delivery that is not known has been given back when its handle was stopped.
        let result = settled.map(|news| self.shared.tell(news)).ok_or_else(|| QueueError::stopped(PROVIDER));
        if let Some(reply) = reply {
            // The caller may have stopped waiting.
            let _ = reply.send(result);
        }
    }
}
