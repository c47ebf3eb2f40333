//! Lanes: typed queues of work for the writer.

use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::SqliteConnection;
use tokio::sync::{oneshot, watch};

use super::Shared;
use crate::{SqliteError, SqliteErrorKind};

/// How the items of one lane are written: all that are queued together in one call, inside the transaction that they
/// share with the other lanes.
///
/// A call can be repeated with the same items after its transaction was rolled back, so it must not change anything but
/// the database. It must not begin, commit or roll back, and must not set savepoints.
///
/// A conflict (an old revision, a key that exists) is an *answer*, not an error. An error rolls the transaction back; if
/// it lies in the items (a constraint, a value that is too large), they are then tried one by one, so that each of the
/// others is written and only the bad one gets the error.
pub trait WriteBatch: Send + Sync + 'static {
    /// What is submitted.
    type Item: Send + Sync + 'static;
    /// What the submitter gets once the transaction is committed.
    type Answer: Send + 'static;

    /// Writes `items` and returns one answer for each, in their order. There is at least one item.
    ///
    /// # Errors
    /// The driver's error; nothing of the call is kept then. An error of another kind can be carried as
    /// [`sqlx::Error::Encode`] or [`sqlx::Error::Protocol`].
    fn run<'a>(
        &'a self,
        connection: &'a mut SqliteConnection,
        items: &'a [Self::Item],
    ) -> impl Future<Output = Result<Vec<Self::Answer>, sqlx::Error>> + Send + 'a;

    /// About how many bytes the item writes: what the limit of a group is measured by.
    fn bytes(&self, _item: &Self::Item) -> usize {
        512
    }

    /// The most items of this lane in one group.
    fn max_items(&self) -> usize {
        256
    }

    /// The most bytes of this lane in one group; a single item may be larger.
    fn max_bytes(&self) -> usize {
        4 * 1024 * 1024
    }
}

/// A handle to submit items of one kind to the writer of a file. Cheap to clone.
///
/// A lane does not keep the client open: hold the client as long as the lane is used.
pub struct Lane<H: WriteBatch> {
    queue: Arc<LaneQueue<H>>,
}

impl<H: WriteBatch> Clone for Lane<H> {
    fn clone(&self) -> Self {
        Self { queue: Arc::clone(&self.queue) }
    }
}

impl<H: WriteBatch> fmt::Debug for Lane<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("file", &self.queue.file)
            .field("queued", &self.queue.lock().items.len())
            .finish_non_exhaustive()
    }
}

impl<H: WriteBatch> Lane<H> {
    pub(super) fn new(handler: H, shared: &Arc<Shared>) -> (Self, Arc<LaneQueue<H>>) {
        let queue = Arc::new(LaneQueue {
            handler,
            file: shared.file.clone(),
            writer: Arc::downgrade(shared),
            state: Mutex::new(State { items: VecDeque::new(), submitted: 0, closed: None }),
            settled: watch::Sender::new(0),
        });
        let lane = Self { queue: Arc::clone(&queue) };
        (lane, queue)
    }

    /// Submits an item and waits until it is committed. The item is queued when the future is first polled.
    ///
    /// A caller who drops the future later takes nothing back: the item is written all the same.
    ///
    /// # Errors
    /// The error of the item, or of the group that it was in; [`SqliteError::outcome`] tells whether it may be stored.
    pub async fn submit(&self, item: H::Item) -> Result<H::Answer, SqliteError> {
        self.enqueue(item).await
    }

    /// Queues an item at once; the future waits until it is committed. For several items that are to be written together.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit).
    pub fn enqueue(&self, item: H::Item) -> impl Future<Output = Result<H::Answer, SqliteError>> + Send + use<H> {
        let (sender, receiver) = oneshot::channel();
        let queued = self.queue.put(item, Some(sender));
        let queue = Arc::clone(&self.queue);
        async move {
            queued?;
            match receiver.await {
                Ok(answer) => answer,
                Err(_) => {
                    Err(SqliteError::new(SqliteErrorKind::Closed, &queue.file, "the writer ended before it came to this write"))
                }
            }
        }
    }

    /// Submits an item without waiting. What becomes of it is logged only.
    ///
    /// # Errors
    /// [`SqliteErrorKind::Closed`].
    pub fn push(&self, item: H::Item) -> Result<(), SqliteError> {
        self.queue.put(item, None)
    }

    /// Waits until all that was submitted before this call has its answer, whatever that is.
    pub async fn flush(&self) {
        let target = self.queue.lock().submitted;
        // The sender lives as long as this lane.
        self.queue.settled.subscribe().wait_for(|settled| *settled >= target).await.ok();
    }
}

type Reply<A> = Option<oneshot::Sender<Result<A, SqliteError>>>;

pub(super) struct LaneQueue<H: WriteBatch> {
    handler: H,
    file: PathBuf,
    writer: Weak<Shared>,
    state: Mutex<State<H>>,
    /// How many of the submitted items have their answer.
    settled: watch::Sender<u64>,
}

struct State<H: WriteBatch> {
    items: VecDeque<(H::Item, Reply<H::Answer>)>,
    submitted: u64,
    closed: Option<SqliteError>,
}

impl<H: WriteBatch> LaneQueue<H> {
    fn lock(&self) -> MutexGuard<'_, State<H>> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settled(&self, items: usize) {
        self.settled.send_modify(|settled| *settled += items as u64);
    }

    fn put(&self, item: H::Item, reply: Reply<H::Answer>) -> Result<(), SqliteError> {
        {
            let mut state = self.lock();
            if let Some(error) = &state.closed {
                return Err(error.clone());
            }
            state.items.push_back((item, reply));
            state.submitted += 1;
        }
        if let Some(writer) = self.writer.upgrade() {
            writer.wake.notify_one();
        }
        Ok(())
    }
}

/// A lane as the writer sees it.
pub(super) trait AnyLane: Send + Sync {
    /// Takes what fits in one group.
    fn take(self: Arc<Self>) -> Option<Box<dyn AnyBatch>>;
    /// Whether nothing is queued.
    fn is_empty(&self) -> bool;
    /// Refuses what is queued and what comes later.
    fn close(&self, error: &SqliteError);
}

impl<H: WriteBatch> AnyLane for LaneQueue<H> {
    fn take(self: Arc<Self>) -> Option<Box<dyn AnyBatch>> {
        let mut state = self.lock();
        let mut items = Vec::new();
        let mut replies = Vec::new();
        let mut bytes = 0;
        while items.len() < self.handler.max_items() {
            let Some((item, _)) = state.items.front() else {
                break;
            };
            bytes += self.handler.bytes(item);
            if bytes > self.handler.max_bytes() && !items.is_empty() {
                break;
            }
            if let Some((item, reply)) = state.items.pop_front() {
                items.push(item);
                replies.push(reply);
            }
        }
        if items.is_empty() {
            return None;
        }
        drop(state);
        Some(Box::new(Batch { lane: self, items, replies, answers: Vec::new() }))
    }

    fn is_empty(&self) -> bool {
        self.lock().items.is_empty()
    }

    fn close(&self, error: &SqliteError) {
        let refused = {
            let mut state = self.lock();
            state.closed = Some(error.clone());
            std::mem::take(&mut state.items)
        };
        let items = refused.len();
        for (_, reply) in refused {
            if let Some(reply) = reply {
                reply.send(Err(error.clone())).ok();
            }
        }
        self.settled(items);
    }
}

/// The items of one lane in one group.
pub(super) trait AnyBatch: Send {
    fn len(&self) -> usize;

    /// Writes all items; their answers are kept until [`settle`](AnyBatch::settle).
    fn run<'a>(&'a mut self, connection: &'a mut SqliteConnection) -> BoxFuture<'a, Result<(), SqliteError>>;

    /// Writes the item at `index` alone. Items are tried in ascending order.
    fn run_one<'a>(&'a mut self, index: usize, connection: &'a mut SqliteConnection) -> BoxFuture<'a, Result<(), SqliteError>>;

    /// Forgets the answers of a try that was rolled back.
    fn reset(&mut self);

    /// Notes that the item that was tried last failed for good.
    fn refuse(&mut self, error: SqliteError);

    /// Hands every submitter its answer, or `error`.
    fn settle(self: Box<Self>, outcome: Result<(), &SqliteError>);
}

struct Batch<H: WriteBatch> {
    lane: Arc<LaneQueue<H>>,
    items: Vec<H::Item>,
    replies: Vec<Reply<H::Answer>>,
    answers: Vec<Result<H::Answer, SqliteError>>,
}

/// Runs the handler, and makes a panic in it an error: the writer serves others too.
async fn guarded<H: WriteBatch>(
    lane: &LaneQueue<H>,
    connection: &mut SqliteConnection,
    items: &[H::Item],
) -> Result<Vec<H::Answer>, SqliteError> {
    let misuse = |message: String| SqliteError::new(SqliteErrorKind::Misuse, &lane.file, message);
    let run = AssertUnwindSafe(lane.handler.run(connection, items)).catch_unwind();
    match run.await {
        Ok(Ok(answers)) if answers.len() == items.len() => Ok(answers),
        Ok(Ok(answers)) => Err(misuse(format!("the handler of a lane gave {} answers for {} items", answers.len(), items.len()))),
        Ok(Err(error)) => Err(SqliteError::from_driver(&lane.file, error)),
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            Err(misuse(format!("the handler of a lane panicked: {text}")))
        }
    }
}

impl<H: WriteBatch> AnyBatch for Batch<H> {
    fn len(&self) -> usize {
        self.items.len()
    }

    fn run<'a>(&'a mut self, connection: &'a mut SqliteConnection) -> BoxFuture<'a, Result<(), SqliteError>> {
        Box::pin(async move {
            let answers = guarded(&self.lane, connection, &self.items).await?;
            self.answers = answers.into_iter().map(Ok).collect();
            Ok(())
        })
    }

    fn run_one<'a>(&'a mut self, index: usize, connection: &'a mut SqliteConnection) -> BoxFuture<'a, Result<(), SqliteError>> {
        Box::pin(async move {
            let item = self.items.get(index..=index).unwrap_or_default();
            let answers = guarded(&self.lane, connection, item).await?;
            self.answers.extend(answers.into_iter().map(Ok));
            Ok(())
        })
    }

    fn reset(&mut self) {
        self.answers.clear();
    }

    fn refuse(&mut self, error: SqliteError) {
        self.answers.push(Err(error));
    }

    fn settle(self: Box<Self>, outcome: Result<(), &SqliteError>) {
        let items = self.items.len();
        let silent = match outcome {
            Ok(()) => {
                let mut silent = None;
                for (reply, answer) in self.replies.into_iter().zip(self.answers) {
                    match (reply, answer) {
                        (Some(reply), answer) => {
                            // The submitter may have stopped waiting.
                            reply.send(answer).ok();
                        }
                        (None, Err(error)) => silent = Some(error),
                        (None, Ok(_)) => {}
                    }
                }
                silent
            }
            Err(error) => {
                let mut silent = None;
                for reply in self.replies {
                    match reply {
                        Some(reply) => {
                            reply.send(Err(error.clone())).ok();
                        }
                        None => silent = Some(error.clone()),
                    }
                }
                silent
            }
        };
        if let Some(error) = silent {
            tracing::warn!(%error, "a write that nobody waits for failed");
        }
        self.lane.settled(items);
    }
}
