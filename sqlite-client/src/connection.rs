//! Opening one connection with the settings that every connection of this crate has.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::backoff::Backoff;
use crate::{SqliteError, SqliteErrorKind, SqliteOptions};

/// Pages in the write-ahead log after which a commit moves them into the database: 16 MiB. Fewer moves cost less in all,
/// since a page that changed often is moved once; more make the log longer to read.
const CHECKPOINT_PAGES: &str = "4000";
/// KiB, negative by SQLite's convention.
const WRITER_CACHE: &str = "-65536";
const READER_CACHE: &str = "-16384";
/// Bytes to which the log file is cut back after a large transaction.
const LOG_LIMIT: &str = "67108864";

fn base(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        // The crates' tables have no foreign keys: rows of one instance are written by one owner.
        .foreign_keys(false)
        .synchronous(SqliteSynchronous::Full)
        .pragma("temp_store", "MEMORY")
        // The result of most statements fits, so that the driver's thread need not wait for who reads it.
        .row_buffer_size(1_024)
        .thread_name(|id| format!("latchwork-sqlite-{id}"))
        .disable_statement_logging()
}

/// The settings of the writer and of transactions: the busy handler is off, since it is not fair; who waits is decided by
/// [`crate::turn`].
pub(crate) fn writing(path: &Path) -> SqliteConnectOptions {
    base(path)
        .busy_timeout(Duration::ZERO)
        .pragma("cache_size", WRITER_CACHE)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", LOG_LIMIT)
}

/// The settings of the readers. In WAL they wait only while a log is being recovered.
pub(crate) fn reading(path: &Path, busy_timeout: Duration) -> SqliteConnectOptions {
    base(path)
        .busy_timeout(busy_timeout.min(Duration::from_mins(1)))
        .pragma("cache_size", READER_CACHE)
        .pragma("query_only", "ON")
}

/// Opens the writer's connection, creates the file if asked to, and makes sure that it is in WAL mode.
///
/// Only one process at a time can turn the file to WAL, and SQLite does not wait there: so this does.
pub(crate) async fn open_writing(options: &SqliteOptions) -> Result<SqliteConnection, SqliteError> {
    let path = options.path();
    let connect = writing(path).create_if_missing(options.create_if_missing()).journal_mode(SqliteJournalMode::Wal);
    let mut backoff = Backoff::new(options.busy_timeout());
    loop {
        let error = match connect.connect().await {
            Ok(mut connection) => match check(path, &mut connection).await {
                Ok(()) => return Ok(connection),
                Err(error) => {
                    connection.close().await.ok();
                    error
                }
            },
            Err(error) => SqliteError::from_driver(path, error),
        };
        if error.kind() != SqliteErrorKind::Busy || !backoff.pause().await {
            return Err(error);
        }
    }
}

/// What was asked for must be what is: SQLite answers a refused journal mode with the old one, not with an error.
async fn check(path: &Path, connection: &mut SqliteConnection) -> Result<(), SqliteError> {
    let failed = |error| SqliteError::from_driver(path, error);
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await.map_err(failed)?;
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *connection).await.map_err(failed)?;
    if mode != "wal" || synchronous != 2 {
        return Err(SqliteError::new(
            SqliteErrorKind::CannotOpen,
            path,
            format!(
                "the file stays in journal mode {mode} with synchronous={synchronous}, needed are wal and 2 (FULL); \
                 its file system may lack shared memory"
            ),
        ));
    }
    Ok(())
}
