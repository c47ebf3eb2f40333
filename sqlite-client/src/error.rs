//! What can go wrong with a SQLite file, sorted by what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What kind of trouble a [`SqliteError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SqliteErrorKind {
    /// Another connection held the file longer than the busy time-out (`SQLITE_BUSY`, `SQLITE_LOCKED`).
    Busy,
    /// The disk, the quota or `max_page_count` is full (`SQLITE_FULL`).
    DiskFull,
    /// The file is damaged or is not a SQLite database (`SQLITE_CORRUPT`, `SQLITE_NOTADB`).
    Corrupt,
    /// The file or its folder cannot be written (`SQLITE_READONLY`, `SQLITE_PERM`).
    ReadOnly,
    /// The file cannot be opened: it or its folder is missing, or access is denied (`SQLITE_CANTOPEN`).
    CannotOpen,
    /// Reading or writing the file failed (`SQLITE_IOERR`).
    Io,
    /// A row broke a constraint (`SQLITE_CONSTRAINT`).
    Constraint,
    /// A value or a statement is larger than SQLite takes (`SQLITE_TOOBIG`).
    TooLarge,
    /// The schema in the file is not the one this program needs.
    Schema,
    /// The file is claimed by another process.
    Claimed,
    /// The client was closed.
    Closed,
    /// The statement or the call is wrong: a fault of the program, not of the file.
    Misuse,
}

/// Whether a write that failed may stand in the file all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing of it is stored, and nothing will be.
    NotCommitted,
    /// The commit was under way when the file failed. Read back before trying again.
    Unknown,
}

/// An error of a SQLite file: which file, what happened, and what to do.
///
/// It is cheap to clone, since all members of a failed group receive the same one.
#[derive(Clone)]
pub struct SqliteError {
    inner: Arc<Inner>,
}

#[derive(Debug, Clone)]
struct Inner {
    kind: SqliteErrorKind,
    outcome: Outcome,
    file: PathBuf,
    message: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl SqliteError {
    /// An error of `kind` about `file`; nothing was committed.
    pub fn new(kind: SqliteErrorKind, file: &Path, message: impl Into<String>) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                outcome: Outcome::NotCommitted,
                file: file.to_owned(),
                message: message.into(),
                source: None,
            }),
        }
    }

    /// Sorts an error of the driver by its code.
    pub fn from_driver(file: &Path, error: sqlx::Error) -> Self {
        let kind = classify(&error);
        Self::new(kind, file, error.to_string()).with_source(error)
    }

    /// Sorts an input or output error of the operating system.
    pub fn from_io(file: &Path, doing: &str, error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => SqliteErrorKind::DiskFull,
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => SqliteErrorKind::CannotOpen,
            std::io::ErrorKind::ReadOnlyFilesystem => SqliteErrorKind::ReadOnly,
            _ => SqliteErrorKind::Io,
        };
        Self::new(kind, file, format!("{doing}: {error}")).with_source(error)
    }

    /// The same error with `source` as its cause.
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.inner);
        inner.source = Some(Arc::new(source));
        Self { inner: Arc::new(inner) }
    }

    /// The same error with what is known of the commit.
    pub fn with_outcome(self, outcome: Outcome) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.inner);
        inner.outcome = outcome;
        Self { inner: Arc::new(inner) }
    }

    /// What kind of trouble it is.
    pub fn kind(&self) -> SqliteErrorKind {
        self.inner.kind
    }

    /// The database file.
    pub fn file(&self) -> &Path {
        &self.inner.file
    }

    /// What the driver or this crate had to say, without the file and the advice.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Whether the write may be stored all the same. For reads this is [`Outcome::NotCommitted`].
    pub fn outcome(&self) -> Outcome {
        self.inner.outcome
    }

    /// Whether the same call can succeed later without a change to the program or its input.
    pub fn is_retryable(&self) -> bool {
        match self.inner.kind {
            SqliteErrorKind::Busy | SqliteErrorKind::DiskFull | SqliteErrorKind::Io => true,
            SqliteErrorKind::Corrupt
            | SqliteErrorKind::ReadOnly
            | SqliteErrorKind::CannotOpen
            | SqliteErrorKind::Constraint
            | SqliteErrorKind::TooLarge
            | SqliteErrorKind::Schema
            | SqliteErrorKind::Claimed
            | SqliteErrorKind::Closed
            | SqliteErrorKind::Misuse => false,
        }
    }

    /// Whether the trouble is the file's, so that every other write would meet it too.
    pub(crate) fn is_of_the_file(&self) -> bool {
        match self.inner.kind {
            SqliteErrorKind::Constraint | SqliteErrorKind::TooLarge | SqliteErrorKind::Misuse => false,
            SqliteErrorKind::Busy
            | SqliteErrorKind::DiskFull
            | SqliteErrorKind::Corrupt
            | SqliteErrorKind::ReadOnly
            | SqliteErrorKind::CannotOpen
            | SqliteErrorKind::Io
            | SqliteErrorKind::Schema
            | SqliteErrorKind::Claimed
            | SqliteErrorKind::Closed => true,
        }
    }

    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self.inner.kind {
            SqliteErrorKind::Busy => {
                "another connection keeps it locked: find the program with the long transaction, or raise the busy time-out"
            }
            SqliteErrorKind::DiskFull => "free space or raise the quota; the write can then be tried again",
            SqliteErrorKind::Corrupt => "stop all programs that use it and restore a backup; `PRAGMA integrity_check` tells more",
            SqliteErrorKind::ReadOnly => "make the file and its folder writable for this process",
            SqliteErrorKind::CannotOpen => "check the path, that its folder exists, and the access rights",
            SqliteErrorKind::Io => "check the device and the system's log",
            SqliteErrorKind::Constraint => "the rows contradict what is stored; look at the data that was written",
            SqliteErrorKind::TooLarge => "write less at once",
            SqliteErrorKind::Schema => "use a build that knows this schema, or migrate the file",
            SqliteErrorKind::Claimed => "stop the other process, or use a lock provider that reaches all processes",
            SqliteErrorKind::Closed => "open the client again",
            SqliteErrorKind::Misuse => "this is a fault of the program that made the call",
        }
    }
}

impl fmt::Debug for SqliteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteError")
            .field("kind", &self.inner.kind)
            .field("outcome", &self.inner.outcome)
            .field("file", &self.inner.file)
            .field("message", &self.inner.message)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for SqliteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SQLite file {}: {}; {}", self.inner.file.display(), self.inner.message, self.advice())?;
        match self.inner.outcome {
            Outcome::NotCommitted => Ok(()),
            Outcome::Unknown => f.write_str(" (the commit was under way: whether it is stored is unknown)"),
        }
    }
}

impl std::error::Error for SqliteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.inner.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}

/// The kinds by SQLite's primary result code, <https://www.sqlite.org/rescode.html>.
fn classify(error: &sqlx::Error) -> SqliteErrorKind {
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().and_then(|code| code.parse::<i32>().ok());
            match code.map(|code| code & 0xff) {
                // 15 is SQLITE_PROTOCOL: too many tries for a lock of the write-ahead log.
                Some(5 | 6 | 15) => SqliteErrorKind::Busy,
                Some(3 | 8) => SqliteErrorKind::ReadOnly,
                // 7 is SQLITE_NOMEM: like a device that refuses for now.
                Some(7 | 10) => SqliteErrorKind::Io,
                Some(11 | 26) => SqliteErrorKind::Corrupt,
                Some(13) => SqliteErrorKind::DiskFull,
                Some(14) => SqliteErrorKind::CannotOpen,
                Some(18) => SqliteErrorKind::TooLarge,
                Some(19) => SqliteErrorKind::Constraint,
                _ => SqliteErrorKind::Misuse,
            }
        }
        sqlx::Error::Io(error) => match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => SqliteErrorKind::CannotOpen,
            _ => SqliteErrorKind::Io,
        },
        // The driver's thread ended: the connection is lost, not the file.
        sqlx::Error::WorkerCrashed => SqliteErrorKind::Io,
        // What was read is not what this program wrote.
        sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => SqliteErrorKind::Corrupt,
        sqlx::Error::PoolTimedOut => SqliteErrorKind::Busy,
        sqlx::Error::PoolClosed => SqliteErrorKind::Closed,
        _ => SqliteErrorKind::Misuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file_the_trouble_and_the_way_out() {
        let error = SqliteError::new(SqliteErrorKind::DiskFull, Path::new("/data/orders.db"), "database or disk is full");
        let text = error.to_string();
        assert_eq!(
            text,
            "SQLite file /data/orders.db: database or disk is full; free space or raise the quota; the write can then be tried again"
        );
        assert!(error.is_retryable());
        assert_eq!(error.outcome(), Outcome::NotCommitted);
    }

    #[test]
    fn an_unknown_outcome_is_said_in_the_text() {
        let error = SqliteError::new(SqliteErrorKind::Io, Path::new("a.db"), "disk I/O error").with_outcome(Outcome::Unknown);
        assert!(error.to_string().ends_with("whether it is stored is unknown)"));
        assert_eq!(error.outcome(), Outcome::Unknown);
    }
}
