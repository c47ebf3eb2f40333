//! One group: what is queued at one moment, in one transaction.

use std::sync::atomic::Ordering;

use sqlx::{Connection, SqliteConnection};

use super::Counters;
use super::lane::AnyBatch;
use crate::backoff::Backoff;
use crate::turn::Turn;
use crate::{Outcome, SqliteError, SqliteErrorKind, SqliteOptions, connection};

/// The writer's connection and what it needs to write a group.
pub(super) struct Session {
    options: SqliteOptions,
    turn: Turn,
    /// `None` after a failure that leaves its state in doubt: it is opened again for the next group.
    connection: Option<SqliteConnection>,
}

/// What became of one try.
enum Failed {
    /// Nothing is stored, for a reason of the file: every member gets this error.
    Group(SqliteError),
    /// Nothing is stored, for a reason of one member: take the group apart.
    Member(SqliteError),
    /// Nothing is stored since the file was busy: try again.
    Busy(SqliteError),
}

impl Session {
    pub(super) fn new(options: SqliteOptions, turn: Turn, connection: SqliteConnection) -> Self {
        Self { options, turn, connection: Some(connection) }
    }

    pub(super) fn into_connection(self) -> Option<SqliteConnection> {
        self.connection
    }

    /// Writes a group and answers all its submitters.
    pub(super) async fn write(&mut self, mut batches: Vec<Box<dyn AnyBatch>>, counters: &Counters) {
        let items: usize = batches.iter().map(|batch| batch.len()).sum();
        let mut backoff = Backoff::new(self.options.busy_timeout());
        let mut apart = false;
        let outcome = loop {
            let failed = match self.attempt(&mut batches, apart, counters).await {
                Ok(()) => break Ok(()),
                Err(failed) => failed,
            };
            for batch in &mut batches {
                batch.reset();
            }
            match failed {
                Failed::Group(error) => break Err(error),
                Failed::Member(error) if items == 1 || apart => break Err(error),
                Failed::Member(error) => {
                    tracing::debug!(%error, items, "a member of a group cannot be written; each is tried alone");
                    counters.isolated.fetch_add(1, Ordering::Relaxed);
                    apart = true;
                }
                Failed::Busy(error) => {
                    if !backoff.pause().await {
                        break Err(error);
                    }
                }
            }
        };
        match &outcome {
            Ok(()) => {
                counters.groups.fetch_add(1, Ordering::Relaxed);
                counters.items.fetch_add(items as u64, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::debug!(%error, items, "a group was not written");
                counters.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        for batch in batches {
            batch.settle(outcome.as_ref().copied());
        }
    }

    async fn attempt(&mut self, batches: &mut [Box<dyn AnyBatch>], apart: bool, counters: &Counters) -> Result<(), Failed> {
        let path = self.options.path().to_owned();
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connection::open_writing(&self.options).await.map_err(Failed::Group)?,
        };
        match self.turn.begin(&mut connection, self.options.busy_timeout()).await {
            Ok(waited) => {
                let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
                counters.longest_wait_micros.fetch_max(micros, Ordering::Relaxed);
            }
            Err(error) => {
                if error.kind() == SqliteErrorKind::Busy {
                    self.connection = Some(connection);
                }
                return Err(Failed::Group(error));
            }
        }
        let run =
            if apart { run_apart(&path, &mut connection, batches).await } else { run_together(&mut connection, batches).await };
        if let Err(error) = run {
            // Some errors end the transaction by themselves; SQLite then refuses the rollback. A connection that is
            // dropped has rolled back for certain, so that is the answer to every doubt.
            if sqlx::query("ROLLBACK").execute(&mut connection).await.is_ok() {
                self.connection = Some(connection);
            } else {
                connection.close().await.ok();
            }
            return Err(match error.kind() {
                SqliteErrorKind::Busy => Failed::Busy(error),
                _ if error.is_of_the_file() => Failed::Group(error),
                _ => Failed::Member(error),
            });
        }
        if let Err(error) = sqlx::query("COMMIT").execute(&mut connection).await {
            let error = SqliteError::from_driver(&path, error);
            let rolled_back = sqlx::query("ROLLBACK").execute(&mut connection).await.is_ok();
            connection.close().await.ok();
            return Err(match error.kind() {
                // Nothing was written yet, or not all of it: no frame of the log carries the mark of a commit.
                SqliteErrorKind::Busy if rolled_back => Failed::Busy(error),
                SqliteErrorKind::DiskFull if rolled_back => Failed::Group(error),
                // The last frame may have reached the disk, and its sync failed.
                _ => Failed::Group(error.with_outcome(Outcome::Unknown)),
            });
        }
        self.connection = Some(connection);
        Ok(())
    }
}

async fn run_together(connection: &mut SqliteConnection, batches: &mut [Box<dyn AnyBatch>]) -> Result<(), SqliteError> {
    for batch in batches {
        batch.run(connection).await?;
    }
    Ok(())
}

/// Each member within a savepoint of its own, all in one transaction, so that the good ones still share one sync.
async fn run_apart(
    path: &std::path::Path,
    connection: &mut SqliteConnection,
    batches: &mut [Box<dyn AnyBatch>],
) -> Result<(), SqliteError> {
    for batch in batches {
        for index in 0..batch.len() {
            statement(path, connection, "SAVEPOINT member").await?;
            if let Err(error) = batch.run_one(index, connection).await {
                if error.is_of_the_file() {
                    return Err(error);
                }
                statement(path, connection, "ROLLBACK TO member").await?;
                batch.refuse(error);
            }
            statement(path, connection, "RELEASE member").await?;
        }
    }
    Ok(())
}

async fn statement(path: &std::path::Path, connection: &mut SqliteConnection, sql: &'static str) -> Result<(), SqliteError> {
    sqlx::query(sql).execute(connection).await.map(|_| ()).map_err(|error| SqliteError::from_driver(path, error))
}
