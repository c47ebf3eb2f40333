use crate::clock::VirtualClock;
use async_trait::async_trait;
use latchwork_core::{
    BoxError,
    store::{PersistenceProvider, StepTransaction},
};
use std::{fmt, sync::Arc, time::Duration};

/// Why a fixture cannot be made here, for example because no server is named. A factory that fails with it skips its case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped(pub &'static str);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "skipped: {}", self.0)
    }
}

impl std::error::Error for Skipped {}

/// What the suite needs to know of a store: how to open several nodes on one of them, and a few things that no trait offers.
///
/// A fixture stands for one empty store: a fresh file, schema or database. The factory makes one for each case. It is dropped
/// after the case, when all its nodes have been stopped.
#[async_trait]
pub trait StoreFixture: Send + Sync + 'static {
    /// One more node on the store, with connections of its own, as another process has them. The schema need not exist yet:
    /// the suite calls [`prepare`](PersistenceProvider::prepare).
    ///
    /// # Errors
    /// What keeps it from opening; the case fails with it.
    async fn open(&self) -> Result<Arc<dyn PersistenceProvider>, BoxError>;

    /// The virtual clock that all nodes were opened with, so that no case waits. `None` (the default) for a store that has
    /// its own clock, or was opened with the system's: the cases about time then wait in real time, some seconds in all.
    fn clock(&self) -> Option<VirtualClock> {
        None
    }

    /// A short span in real time, for a store without a virtual clock: far longer than a few calls take. Some cases wait for several
    /// of them. Default 700 ms.
    fn span(&self) -> Duration {
        Duration::from_millis(700)
    }

    /// Longest a case may last; a store that hangs fails with its case's name. Default 3 min.
    fn time_limit(&self) -> Duration {
        Duration::from_secs(180)
    }

    /// Removes the store from its server, where it is on one. Called after the case, when all its nodes have been stopped.
    ///
    /// # Errors
    /// What is left; the case has its own result all the same.
    async fn remove(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Marks the schema, which exists, as that of a later version of the crate, which this one cannot know. `false` (the
    /// default) where there is no schema; the case about it is then skipped.
    ///
    /// # Errors
    /// What went wrong with the marking; the case fails with it.
    async fn make_schema_newer(&self) -> Result<bool, BoxError> {
        Ok(false)
    }

    /// Writes a row of the user's own, with this text, in the transaction of a step. `false` (the default) where there are no
    /// such transactions, or the fixture cannot do it; the cases then look at the checkpoint only.
    ///
    /// # Errors
    /// What went wrong with the writing; the case fails with it.
    async fn write_own_row(&self, transaction: &mut dyn StepTransaction, text: &str) -> Result<bool, BoxError> {
        let _ = (transaction, text);
        Ok(false)
    }

    /// Whether the row of [`write_own_row`](Self::write_own_row) with this text is there, as a new connection sees it.
    ///
    /// # Errors
    /// What went wrong with the reading; the case fails with it.
    async fn has_own_row(&self, text: &str) -> Result<bool, BoxError> {
        let _ = text;
        Ok(false)
    }
}
