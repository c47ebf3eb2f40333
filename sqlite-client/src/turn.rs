//! Turn-taking between the writers of one file, in all processes.
//!
//! SQLite has no queue for its write lock: whoever tries at the right moment gets it, and a process that writes back to
//! back starves the others for seconds. So writers pass a turnstile: an operating-system lock on a file beside the
//! database. A writer holds it from before its first try for the write lock until it has it. The one that has just
//! committed thus stands behind the one that is waiting, and only one process at a time asks SQLite again and again.
//!
//! Who finds the turnstile closed waits for it in the system's queue, which is in order of arrival, on a thread of its own.
//!
//! The turnstile is a courtesy. Correctness is SQLite's lock alone: a writer that does not get past the turnstile within
//! a second (its holder may be a stopped process) goes on without it.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sqlx::SqliteConnection;
use tokio::sync::oneshot;

use crate::backoff::jittered;
use crate::{SqliteError, SqliteErrorKind};

/// How long a writer stands at the turnstile before it passes by.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause between two tries for the write lock, and the longer one against a program that keeps it for long.
const TRY_PAUSE: Duration = Duration::from_micros(400);
const LONG_TRY_PAUSE: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_millis(200);

/// One writer's view of the turnstile. Each writer opens its own, also within one process.
#[derive(Debug)]
pub(crate) struct Turn {
    database: PathBuf,
    path: PathBuf,
    file: File,
}

impl Turn {
    /// Opens the file of the turnstile. Blocks for as long as opening a file does.
    pub(crate) fn open(database: &Path) -> Result<Self, SqliteError> {
        let path = beside(database, "-turn");
        let file = open(&path).map_err(|error| failed(database, error))?;
        Ok(Self { database: database.to_owned(), path, file })
    }

    /// Begins a transaction that holds the write lock. Returns how long it waited for others.
    ///
    /// # Errors
    /// [`SqliteErrorKind::Busy`] when the lock was not free within `timeout`; anything else at once.
    pub(crate) async fn begin(&self, connection: &mut SqliteConnection, timeout: Duration) -> Result<Duration, SqliteError> {
        let start = Instant::now();
        let _pass = self.pass(timeout.min(PATIENCE)).await?;
        loop {
            let error = match sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await {
                Ok(_) => return Ok(start.elapsed()),
                Err(error) => SqliteError::from_driver(&self.database, error),
            };
            if error.kind() != SqliteErrorKind::Busy {
                return Err(error);
            }
            if start.elapsed() >= timeout {
                return Err(SqliteError::new(
                    SqliteErrorKind::Busy,
                    &self.database,
                    format!("the write lock was not free within {} ms", timeout.as_millis()),
                )
                .with_source(error));
            }
            let pause = if start.elapsed() < LONG { TRY_PAUSE } else { LONG_TRY_PAUSE };
            tokio::time::sleep(jittered(pause)).await;
        }
    }

    /// Stands at the turnstile; `None` when patience ran out.
    async fn pass(&self, patience: Duration) -> Result<Option<Pass<'_>>, SqliteError> {
        match self.file.try_lock() {
            Ok(()) => return Ok(Some(Pass::Own(&self.file))),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(failed(&self.database, error)),
        }
        let (granted, wait) = oneshot::channel();
        let path = self.path.clone();
        // Waiting for a file's lock cannot be called off, so the thread is left to itself when patience runs out: a grant that
        // comes then is given back by closing the file, and the end of the process ends the thread.
        let waiter = std::thread::Builder::new()
            .name("latchwork-sqlite-turn".to_owned())
            .spawn(move || granted.send(open(&path).and_then(|file| file.lock().map(|()| file))));
        if let Err(error) = waiter {
            tracing::debug!(%error, "no thread to wait for the turn; going on without it");
            return Ok(None);
        }
        match tokio::time::timeout(patience, wait).await {
            Ok(Ok(Ok(file))) => Ok(Some(Pass::Waited(file))),
            Ok(Ok(Err(error))) => Err(failed(&self.database, error)),
            // The thread does not end without an answer.
            Ok(Err(_)) | Err(_) => Ok(None),
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)
}

fn failed(database: &Path, error: std::io::Error) -> SqliteError {
    SqliteError::from_io(database, "locking the file beside it with the ending -turn", error)
}

/// Given back when dropped, also by a caller who stops waiting.
enum Pass<'a> {
    Own(&'a File),
    /// Closing the file gives the lock back.
    Waited(#[allow(dead_code, reason = "held until it is dropped")] File),
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        match self {
            // A lock that cannot be given back here is given back when the file is closed.
            Self::Own(file) => drop(file.unlock()),
            Self::Waited(_) => {}
        }
    }
}

/// The path of a file beside the database: its own name with an ending, as SQLite names its log.
pub(crate) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}
