//! `use_sqlite_persistence` on everything that can be configured.

use crate::SqliteStore;
use latchwork_core::options::Configure;
use latchwork_sqlite_client::SqliteOptions;

/// Keeps workflows in a SQLite file.
pub trait UseSqlitePersistence: Configure {
    /// Keeps everything in this file, which is given as a path or as a URL: `orders.db`, `sqlite:orders.db`,
    /// `sqlite:///data/orders.db?mode=rw`. It is created when it is missing; nothing is opened before the host starts.
    #[must_use]
    fn use_sqlite_persistence(mut self, url: impl Into<String>) -> Self {
        let url = url.into();
        self.options().use_persistence(async move |context| {
            let options = SqliteOptions::parse(&url)?;
            Ok(SqliteStore::open(options, &context).await?)
        });
        self
    }

    /// As [`use_sqlite_persistence`](Self::use_sqlite_persistence), with all options of the file.
    #[must_use]
    fn use_sqlite_persistence_with(mut self, options: SqliteOptions) -> Self {
        self.options().use_persistence(async move |context| Ok(SqliteStore::open(options, &context).await?));
        self
    }
}

impl<T: Configure> UseSqlitePersistence for T {}
