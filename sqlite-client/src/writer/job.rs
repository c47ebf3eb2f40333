//! Single jobs: closures that share the group with the lanes.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use sqlx::SqliteConnection;

use super::WriteBatch;

/// Where a job leaves its result until the group is committed.
pub(super) struct Slot<T>(Arc<Mutex<Option<T>>>);

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Slot<T> {
    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }
}

trait Run: Send + Sync {
    fn run<'c>(&'c self, connection: &'c mut SqliteConnection) -> BoxFuture<'c, Result<(), sqlx::Error>>;
}

struct Call<F, T> {
    call: F,
    slot: Slot<T>,
}

impl<F, T> Run for Call<F, T>
where
    T: Send + 'static,
    F: for<'c> Fn(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + Sync,
{
    fn run<'c>(&'c self, connection: &'c mut SqliteConnection) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        Box::pin(async move {
            self.slot.put((self.call)(connection).await?);
            Ok(())
        })
    }
}

/// A closure without its type.
pub(super) struct Job(Box<dyn Run>);

impl Job {
    pub(super) fn new<F, T>(call: F, slot: Slot<T>) -> Self
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + Sync + 'static,
    {
        Self(Box::new(Call { call, slot }))
    }
}

/// The lane of the single jobs.
pub(super) struct Jobs;

impl WriteBatch for Jobs {
    type Item = Job;
    type Answer = ();

    async fn run(&self, connection: &mut SqliteConnection, items: &[Job]) -> Result<Vec<()>, sqlx::Error> {
        for job in items {
            job.0.run(connection).await?;
        }
        Ok(vec![(); items.len()])
    }
}
