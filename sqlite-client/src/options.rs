//! How a SQLite file is opened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{SqliteError, SqliteErrorKind};

/// How a SQLite file is opened. Every connection uses WAL and `synchronous=FULL`; there is no switch for less.
///
/// ```
/// use std::time::Duration;
/// use latchwork_sqlite_client::SqliteOptions;
///
/// let options = SqliteOptions::parse("sqlite:data/orders.db")?
///     .with_busy_timeout(Duration::from_secs(10))
///     .with_readers(8);
/// assert_eq!(options.path().to_str(), Some("data/orders.db"));
/// # Ok::<(), latchwork_sqlite_client::SqliteError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteOptions {
    path: PathBuf,
    create_if_missing: bool,
    busy_timeout: Duration,
    readers: u32,
}

impl SqliteOptions {
    /// Options for the file at `path`: created when missing, 30 s busy time-out, 4 readers.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), create_if_missing: true, busy_timeout: Duration::from_secs(30), readers: 4 }
    }

    /// Options from a path or from a URL: `orders.db`, `sqlite:orders.db`, `sqlite:///data/orders.db`, each with an
    /// optional `?mode=rw` (the file must exist) or `?mode=rwc` (created when missing, the default).
    ///
    /// # Errors
    /// [`SqliteErrorKind::Misuse`] for a database in memory (it has no write-ahead log and no second process), an empty
    /// path and an unknown parameter.
    pub fn parse(url: &str) -> Result<Self, SqliteError> {
        let refuse = |why: String| Err(SqliteError::new(SqliteErrorKind::Misuse, Path::new(url), why));
        let rest = url.strip_prefix("sqlite:").unwrap_or(url);
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, query),
            None => (rest, ""),
        };
        if path.is_empty() {
            return refuse("the URL names no file; write sqlite:path/to/file.db".to_owned());
        }
        if path == ":memory:" {
            return refuse("a database in memory is not durable; name a file, or use the memory store".to_owned());
        }
        let mut options = Self::new(path);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter {
                "mode=rwc" => options.create_if_missing = true,
                "mode=rw" => options.create_if_missing = false,
                other => {
                    return refuse(format!("the parameter {other:?} is not known; known are mode=rw and mode=rwc"));
                }
            }
        }
        Ok(options)
    }

    /// Whether a missing file is created. Its folder never is.
    #[must_use]
    pub fn with_create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// How long a write waits for the file's write lock before it fails with [`SqliteErrorKind::Busy`].
    #[must_use]
    pub fn with_busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// How many connections serve reads, at least 1. Each has a thread of its own.
    #[must_use]
    pub fn with_readers(mut self, readers: u32) -> Self {
        self.readers = readers.max(1);
        self
    }

    pub(crate) fn at(mut self, path: PathBuf) -> Self {
        self.path = path;
        self
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a missing file is created.
    pub fn create_if_missing(&self) -> bool {
        self.create_if_missing
    }

    /// How long a write waits for the file's write lock.
    pub fn busy_timeout(&self) -> Duration {
        self.busy_timeout
    }

    /// How many connections serve reads.
    pub fn readers(&self) -> u32 {
        self.readers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_file_and_whether_it_may_be_created() {
        for (url, path, create) in [
            ("a.db", "a.db", true),
            ("sqlite:a.db", "a.db", true),
            ("sqlite://a.db?mode=rw", "a.db", false),
            ("sqlite:///data/a.db?mode=rwc", "/data/a.db", true),
        ] {
            let options = SqliteOptions::parse(url).unwrap();
            assert_eq!(options.path(), Path::new(path), "{url}");
            assert_eq!(options.create_if_missing(), create, "{url}");
        }
    }

    #[test]
    fn a_url_that_would_weaken_durability_is_refused() {
        for url in ["sqlite::memory:", "sqlite:", "sqlite:a.db?synchronous=off"] {
            let error = SqliteOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), SqliteErrorKind::Misuse, "{url}");
        }
    }
}
