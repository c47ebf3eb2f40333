//! The writer: one connection, one thread, and all the writes of this process to one file.

mod group;
mod job;
mod lane;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::{Notify, oneshot, watch};

use crate::turn::Turn;
use crate::{SqliteError, SqliteErrorKind, SqliteOptions, connection};
pub use lane::{Lane, WriteBatch};

use self::job::{Job, Jobs, Slot};
use self::lane::AnyLane;

/// What a writer has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriterStats {
    /// Transactions committed.
    pub groups: u64,
    /// Items written in them.
    pub items: u64,
    /// Groups that were taken apart because one member could not be written.
    pub isolated: u64,
    /// Groups that failed as a whole.
    pub failed: u64,
    /// The longest wait for the write lock.
    pub longest_wait: Duration,
}

/// What the handle, the lanes and the thread share.
pub(crate) struct Shared {
    file: PathBuf,
    wake: Notify,
    closing: AtomicBool,
    lanes: Mutex<Vec<Arc<dyn AnyLane>>>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    groups: AtomicU64,
    items: AtomicU64,
    isolated: AtomicU64,
    failed: AtomicU64,
    longest_wait_micros: AtomicU64,
}

impl Shared {
    fn lanes(&self) -> std::sync::MutexGuard<'_, Vec<Arc<dyn AnyLane>>> {
        // Nothing that can panic runs under this lock.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer of one file in this process.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    jobs: Lane<Jobs>,
    done: watch::Receiver<bool>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("file", &self.shared.file).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Writer {
    /// Opens the file and starts the thread that owns its writing connection.
    ///
    /// A thread and not a task: the writer goes on when the runtime that opened it ends, it makes the rows of a group
    /// without delaying anybody's task, and it may ask for file locks.
    pub(crate) async fn start(options: SqliteOptions) -> Result<Self, SqliteError> {
        let shared = Arc::new(Shared {
            file: options.path().to_owned(),
            wake: Notify::new(),
            closing: AtomicBool::new(false),
            lanes: Mutex::default(),
            counters: Counters::default(),
        });
        let (lane, queue) = Lane::new(Jobs, &shared);
        shared.lanes().push(queue);

        let (opened, ready) = oneshot::channel();
        let (finished, done) = watch::channel(false);
        let file = shared.file.clone();
        let thread_shared = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("latchwork-sqlite-writer".to_owned())
            .spawn(move || {
                let _finished = Finished(finished);
                let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        let error = SqliteError::from_io(options.path(), "starting the writer's runtime", error);
                        opened.send(Err(error)).ok();
                        return;
                    }
                };
                runtime.block_on(write(options, thread_shared, opened));
            })
            .map_err(|error| SqliteError::from_io(&file, "starting the writer's thread", error))?;
        match ready.await {
            Ok(result) => result?,
            Err(_) => {
                return Err(SqliteError::new(SqliteErrorKind::Closed, &file, "the writer ended while it opened the file"));
            }
        }
        Ok(Self { shared, jobs: lane, done })
    }

    /// Adds a lane.
    pub(crate) fn lane<H: WriteBatch>(&self, handler: H) -> Lane<H> {
        let (lane, queue) = Lane::new(handler, &self.shared);
        if self.shared.closing.load(Ordering::Acquire) {
            queue.close(&closed(&self.shared));
        }
        self.shared.lanes().push(queue);
        lane
    }

    /// Runs one job in the next group.
    pub(crate) async fn run<T, F>(&self, job: F) -> Result<T, SqliteError>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + Sync + 'static,
    {
        let slot = Slot::default();
        self.jobs.submit(Job::new(job, slot.clone())).await?;
        slot.take()
            .ok_or_else(|| SqliteError::new(SqliteErrorKind::Misuse, &self.shared.file, "a job was committed without a result"))
    }

    pub(crate) fn is_running(&self) -> bool {
        !*self.done.borrow()
    }

    pub(crate) fn stats(&self) -> WriterStats {
        let counters = &self.shared.counters;
        WriterStats {
            groups: counters.groups.load(Ordering::Relaxed),
            items: counters.items.load(Ordering::Relaxed),
            isolated: counters.isolated.load(Ordering::Relaxed),
            failed: counters.failed.load(Ordering::Relaxed),
            longest_wait: Duration::from_micros(counters.longest_wait_micros.load(Ordering::Relaxed)),
        }
    }

    /// Asks the thread to write what is queued, and to end. Does not wait.
    pub(crate) fn close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.wake.notify_one();
    }

    /// Waits until the thread has ended.
    pub(crate) async fn ended(&self) {
        // An error means that the sender is gone, and so is the thread.
        self.done.clone().wait_for(|done| *done).await.ok();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

/// Tells that the thread has ended, also when it panicked.
struct Finished(watch::Sender<bool>);

impl Drop for Finished {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

fn closed(shared: &Shared) -> SqliteError {
    SqliteError::new(SqliteErrorKind::Closed, &shared.file, "the client was closed")
}

/// The life of the writer.
async fn write(options: SqliteOptions, shared: Arc<Shared>, opened: oneshot::Sender<Result<(), SqliteError>>) {
    let start = async {
        let connection = connection::open_writing(&options).await?;
        Ok((connection, Turn::open(options.path())?))
    };
    let (connection, turn) = match start.await {
        Ok(start) => start,
        Err(error) => {
            opened.send(Err(error)).ok();
            return;
        }
    };
    if opened.send(Ok(())).is_err() {
        return;
    }
    let mut session = group::Session::new(options, turn, connection);
    loop {
        let lanes: Vec<_> = shared.lanes().clone();
        let batches: Vec<_> = lanes.into_iter().filter_map(AnyLane::take).collect();
        if !batches.is_empty() {
            session.write(batches, &shared.counters).await;
            continue;
        }
        forget_lanes(&shared);
        if shared.closing.load(Ordering::Acquire) {
            break;
        }
        shared.wake.notified().await;
    }
    // From here on nobody waits for ever: what came after the last look is refused.
    let error = closed(&shared);
    for lane in shared.lanes().drain(..) {
        lane.close(&error);
    }
    if let Some(mut connection) = session.into_connection() {
        // Moves the log into the database, so that the next opening need not; others may still be reading it.
        if let Err(error) = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await {
            tracing::debug!(%error, "the log was left for the next opening");
        }
        connection.close().await.ok();
    }
}

/// Drops the lanes that nobody can submit to any more.
fn forget_lanes(shared: &Shared) {
    shared.lanes().retain(|lane| Arc::strong_count(lane) > 1 || !lane.is_empty());
}
