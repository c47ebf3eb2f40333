use crate::{SqliteQueue, SqliteQueueOptions};
use latchwork_core::options::Configure;
use std::path::PathBuf;

/// Wires the SQLite queue into a host.
pub trait UseSqliteQueue: Configure {
    /// Takes hints from a table in the SQLite file at `path`, which is created when it is missing. It may be the store's own
    /// file: both then share one writer.
    fn use_sqlite_queue(self, path: impl Into<PathBuf>) -> Self {
        self.use_sqlite_queue_with(SqliteQueueOptions::new(path))
    }

    /// Takes hints from a table in a SQLite file. Impossible options fail the start of the host.
    fn use_sqlite_queue_with(mut self, options: SqliteQueueOptions) -> Self {
        self.options().use_queue_provider(async move |context| SqliteQueue::open_with(options.clone(), &context).await);
        self
    }
}

impl<T: Configure> UseSqliteQueue for T {}
