//! Turn-taking between the writers of one file, in all processes.
//!
//! SQLite has no queue for its write lock: whoever tries at the right moment gets it, and a process that writes back to
//! back starves the others for seconds. So writers pass a turnstile: an operating-system lock on a file beside the
//! database. A writer holds it from before its first try for the write lock until it has it. The one that has just
//! committed thus stands behind the one that is waiting, and only one process at a time asks SQLite again and again.
//!
//! The turnstile is a courtesy. Correctness is SQLite's lock alone: a writer that does not get past the turnstile within
//! a second (its holder may be a stopped process) goes on without it.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sqlx::SqliteConnection;

use crate::backoff::jittered;
use crate::{SqliteError, SqliteErrorKind};

/// The first pause at the turnstile. It shrinks with each try, so that who has waited longest is the quickest to notice.
const NEWCOMER_PAUSE: Duration = Duration::from_millis(2);
const LONG_WAITER_PAUSE: Duration = Duration::from_micros(200);
/// How long a writer stands at the turnstile before it passes by.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause between two tries for the write lock. It grows, as the holder may be a program that keeps it for long.
const TRY_PAUSE: Duration = Duration::from_micros(250);
const LONGEST_TRY_PAUSE: Duration = Duration::from_millis(5);

/// One writer's view of the turnstile. Each writer opens its own, also within one process.
#[derive(Debug)]
pub(crate) struct Turn {
    database: PathBuf,
    file: File,
}

impl Turn {
    /// Opens the file of the turnstile. Blocks for as long as opening a file does.
    pub(crate) fn open(database: &Path) -> Result<Self, SqliteError> {
        let path = beside(database, "-turn");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| SqliteError::from_io(database, &format!("opening {}", path.display()), error))?;
        Ok(Self { database: database.to_owned(), file })
    }

    /// Begins a transaction that holds the write lock. Returns how long it waited for others.
    ///
    /// # Errors
    /// [`SqliteErrorKind::Busy`] when the lock was not free within `timeout`; anything else at once.
    pub(crate) async fn begin(&self, connection: &mut SqliteConnection, timeout: Duration) -> Result<Duration, SqliteError> {
        let start = Instant::now();
        let _pass = self.pass(timeout.min(PATIENCE)).await?;
        let mut pause = TRY_PAUSE;
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
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 5 / 4).min(LONGEST_TRY_PAUSE);
        }
    }

    /// Stands at the turnstile; `None` when patience ran out.
    async fn pass(&self, patience: Duration) -> Result<Option<Pass<'_>>, SqliteError> {
        let start = Instant::now();
        let mut pause = NEWCOMER_PAUSE;
        loop {
            match self.file.try_lock() {
                Ok(()) => return Ok(Some(Pass(&self.file))),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    return Err(SqliteError::from_io(&self.database, "locking the file beside it with the ending -turn", error));
                }
            }
            if start.elapsed() >= patience {
                return Ok(None);
            }
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause / 2).max(LONG_WAITER_PAUSE);
        }
    }
}

/// Given back when dropped, also by a caller who stops waiting.
struct Pass<'a>(&'a File);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        // A lock that cannot be given back here is given back when the file is closed.
        self.0.unlock().ok();
    }
}

/// The path of a file beside the database: its own name with an ending, as SQLite names its log.
pub(crate) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}
