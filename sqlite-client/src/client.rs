//! The client: what the crates of one file share in one process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Connection, Sqlite, SqliteConnection, SqlitePool};

use crate::claim::{Claims, SqliteClaim};
use crate::transaction::{Spare, SqliteTransaction};
use crate::turn::Turn;
use crate::writer::{Lane, WriteBatch, Writer, WriterStats};
use crate::{SqliteError, SqliteErrorKind, SqliteOptions, connection};

/// A connection for reading, lent from the client's readers. It goes back when it is dropped.
pub type Reader = PoolConnection<Sqlite>;

/// One SQLite file, opened once in this process: its writer, its readers, its claim.
///
/// Cheap to clone. Opening the same file again gives a handle to the same writer, so that all crates of a process share
/// it. Dropping the last handle writes what is queued and ends the writer in the background; [`close`](Self::close) waits
/// for that.
#[derive(Debug, Clone)]
pub struct SqliteClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    options: SqliteOptions,
    writer: Writer,
    readers: SqlitePool,
    spare: Mutex<Vec<Spare>>,
    claims: Arc<Claims>,
}

/// Transaction connections that are kept for the next transaction.
const MOST_SPARE: usize = 2;

/// The files that are open in this process.
static OPEN: Mutex<Option<HashMap<PathBuf, Weak<Inner>>>> = Mutex::new(None);
/// Held while a file is being opened, so that two tasks that open it together share one writer.
static OPENING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

impl SqliteClient {
    /// Opens the file, or gives a handle to the one that this process has open.
    ///
    /// In the latter case the first caller's options stay in force.
    ///
    /// # Errors
    /// [`SqliteErrorKind::CannotOpen`], [`SqliteErrorKind::ReadOnly`], [`SqliteErrorKind::Corrupt`] and whatever else
    /// opening a file can meet.
    pub async fn open(options: SqliteOptions) -> Result<Self, SqliteError> {
        let path = options.path().to_owned();
        let canonical = blocking(&path, {
            let path = path.clone();
            move || canonical(&path)
        })
        .await?;
        let options = options.at(canonical.clone());
        // Held across the opening: a second opener must find the first one's client.
        let _opening = OPENING.lock().await;
        let known = open_files().as_mut().and_then(|files| files.get(&canonical).and_then(Weak::upgrade));
        if let Some(inner) = known.filter(|inner| inner.writer.is_running()) {
            return Ok(Self { inner });
        }
        let writer = Writer::start(options.clone()).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(options.readers())
            // A connection to a file does not go stale, so it needs neither a test nor a reaper.
            .test_before_acquire(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .acquire_timeout(options.busy_timeout().max(Duration::from_secs(1)))
            .connect_lazy_with(connection::reading(&canonical, options.busy_timeout()));
        let claims = Arc::new(Claims::new(&canonical));
        let inner = Arc::new(Inner { options, writer, readers, spare: Mutex::default(), claims });
        let mut files = open_files();
        let files = files.get_or_insert_default();
        files.retain(|_, inner| inner.strong_count() > 0);
        files.insert(canonical, Arc::downgrade(&inner));
        Ok(Self { inner })
    }

    /// The database file, as an absolute path.
    pub fn path(&self) -> &Path {
        self.inner.options.path()
    }

    /// The options in force.
    pub fn options(&self) -> &SqliteOptions {
        &self.inner.options
    }

    /// Adds a lane: a typed queue whose items are written together. Call it once per kind of write and keep the lane.
    pub fn lane<H: WriteBatch>(&self, handler: H) -> Lane<H> {
        self.inner.writer.lane(handler)
    }

    /// Runs a single job in the next group and returns its result once that is committed.
    ///
    /// The job may run more than once, see [`WriteBatch`]; it must not begin, commit or roll back. Dropping the future does
    /// not take the job back.
    ///
    /// # Errors
    /// The job's own error, or that of its group; [`SqliteError::outcome`] tells whether it may be stored.
    pub async fn write<T, F>(&self, job: F) -> Result<T, SqliteError>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + Sync + 'static,
    {
        self.inner.writer.run(job).await
    }

    /// Lends a connection for reading. A statement sees everything that was committed before it began.
    ///
    /// # Errors
    /// [`SqliteErrorKind::Busy`] when none becomes free in time, [`SqliteErrorKind::Closed`].
    pub async fn reader(&self) -> Result<Reader, SqliteError> {
        self.inner.readers.acquire().await.map_err(|error| self.error(error))
    }

    /// Runs `read` on a connection for reading.
    ///
    /// # Errors
    /// Those of [`reader`](Self::reader) and of the closure.
    pub async fn read<T, F>(&self, read: F) -> Result<T, SqliteError>
    where
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>>,
    {
        let mut reader = self.reader().await?;
        read(&mut reader).await.map_err(|error| self.error(error))
    }

    /// Begins a transaction of its own, on a connection of its own: for writes that must not share a group. It holds the
    /// file's write lock until it is committed, rolled back or dropped, so keep it short.
    ///
    /// # Errors
    /// [`SqliteErrorKind::Busy`] when the lock was not free within the busy time-out.
    pub async fn begin(&self) -> Result<SqliteTransaction, SqliteError> {
        let spare = self.inner.spare().pop();
        let spare = match spare {
            Some(spare) => spare,
            None => {
                let path = self.path().to_owned();
                let turn = blocking(&path, {
                    let path = path.clone();
                    move || Turn::open(&path)
                })
                .await?;
                Spare { connection: connection::open_writing(&self.inner.options).await?, turn }
            }
        };
        SqliteTransaction::begin(spare, Arc::downgrade(&self.inner), self.inner.options.busy_timeout()).await
    }

    /// Keeps other processes from claiming the file, until the claim is dropped. `node` is told to those who are refused,
    /// beside the process id. Another claim of this process is granted too.
    ///
    /// # Errors
    /// [`SqliteErrorKind::Claimed`], naming the holder, when another process has claimed it, alone or together with others.
    pub async fn claim_exclusive(&self, node: &str) -> Result<SqliteClaim, SqliteError> {
        self.claim(node, true).await
    }

    /// Notes that this process uses the file together with others: until the claim is dropped, no other process can claim it
    /// alone.
    ///
    /// # Errors
    /// [`SqliteErrorKind::Claimed`], naming the holder, when another process has claimed it alone.
    pub async fn claim_shared(&self, node: &str) -> Result<SqliteClaim, SqliteError> {
        self.claim(node, false).await
    }

    async fn claim(&self, node: &str, exclusive: bool) -> Result<SqliteClaim, SqliteError> {
        let claims = Arc::clone(&self.inner.claims);
        let node = node.to_owned();
        blocking(self.path(), move || claims.take(&node, exclusive)).await
    }

    /// What the writer has done so far.
    pub fn stats(&self) -> WriterStats {
        self.inner.writer.stats()
    }

    /// An error of the driver on this file, sorted.
    pub fn error(&self, error: sqlx::Error) -> SqliteError {
        SqliteError::from_driver(self.path(), error)
    }

    /// Gives the handle back. If it was the last one: writes what is queued, moves the log into the database, ends the
    /// writer's thread and closes all connections, and returns when that is done.
    pub async fn close(self) {
        let Some(inner) = Arc::into_inner(self.inner) else {
            return;
        };
        inner.readers.close().await;
        let spare = std::mem::take(&mut *inner.spare());
        for spare in spare {
            spare.connection.close().await.ok();
        }
        inner.writer.close();
        inner.writer.ended().await;
    }
}

impl Inner {
    pub(crate) fn path(&self) -> &Path {
        self.options.path()
    }

    pub(crate) fn spare(&self) -> MutexGuard<'_, Vec<Spare>> {
        // Nothing that can panic runs under this lock.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a transaction's connection for the next one, unless there are enough.
    pub(crate) fn keep(&self, spare: Spare) {
        let mut kept = self.spare();
        if kept.len() < MOST_SPARE {
            kept.push(spare);
        }
    }
}

fn open_files() -> MutexGuard<'static, Option<HashMap<PathBuf, Weak<Inner>>>> {
    // Nothing that can panic runs under this lock.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what may wait for the file system where it delays no task.
pub(crate) async fn blocking<T: Send + 'static>(
    file: &Path,
    call: impl FnOnce() -> Result<T, SqliteError> + Send + 'static,
) -> Result<T, SqliteError> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(error) => {
            Err(SqliteError::new(SqliteErrorKind::Closed, file, "the runtime ended during the call").with_source(error))
        }
    }
}

/// The one name of the file, also before it exists: two paths to it must give one writer.
fn canonical(path: &Path) -> Result<PathBuf, SqliteError> {
    let failed = |error| SqliteError::from_io(path, "looking for the file", error);
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let Some(name) = path.file_name() else {
                return Err(failed(error));
            };
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                _ => Path::new("."),
            };
            let folder = folder
                .canonicalize()
                .map_err(|error| SqliteError::from_io(path, &format!("looking for its folder {}", folder.display()), error))?;
            Ok(folder.join(name))
        }
        Err(error) => Err(failed(error)),
    }
}
