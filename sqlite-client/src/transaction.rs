//! Transactions on a connection of their own.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Weak;
use std::time::Duration;

use sqlx::SqliteConnection;

use crate::client::Inner;
use crate::turn::Turn;
use crate::{Outcome, SqliteError, SqliteErrorKind};

/// A connection that waits for the next transaction.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) connection: SqliteConnection,
    pub(crate) turn: Turn,
}

/// An open transaction that holds the file's write lock. It derefs to the connection that its statements run on.
///
/// Dropped, it is rolled back. Its statements must not begin, commit or roll back by themselves; savepoints are allowed.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct SqliteTransaction {
    // No `Drop` here: a connection that is dropped ends its transaction itself.
    spare: Spare,
    home: Weak<Inner>,
    file: PathBuf,
}

impl fmt::Debug for SqliteTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTransaction").field("file", &self.file).finish_non_exhaustive()
    }
}

impl SqliteTransaction {
    pub(crate) async fn begin(mut spare: Spare, home: Weak<Inner>, timeout: Duration) -> Result<Self, SqliteError> {
        let file = match home.upgrade() {
            Some(inner) => inner.path().to_owned(),
            None => PathBuf::new(),
        };
        spare.turn.begin(&mut spare.connection, timeout).await?;
        Ok(Self { spare, home, file })
    }

    /// Commits.
    ///
    /// # Errors
    /// Nothing is stored then, unless [`SqliteError::outcome`] says that this is unknown.
    pub async fn commit(mut self) -> Result<(), SqliteError> {
        match sqlx::query("COMMIT").execute(&mut self.spare.connection).await {
            Ok(_) => {
                self.keep();
                Ok(())
            }
            Err(error) => {
                let error = SqliteError::from_driver(&self.file, error);
                Err(match error.kind() {
                    SqliteErrorKind::Io => error.with_outcome(Outcome::Unknown),
                    _ => error,
                })
            }
        }
    }

    /// Rolls back, and returns when that is done.
    ///
    /// # Errors
    /// That of the connection; the transaction is rolled back all the same when it is closed.
    pub async fn rollback(mut self) -> Result<(), SqliteError> {
        match sqlx::query("ROLLBACK").execute(&mut self.spare.connection).await {
            Ok(_) => {
                self.keep();
                Ok(())
            }
            Err(error) => Err(SqliteError::from_driver(&self.file, error)),
        }
    }

    /// The typed transaction behind the untyped one that a step is given, if it is one of SQLite.
    pub fn of(transaction: &mut (dyn std::any::Any + Send)) -> Option<&mut Self> {
        transaction.downcast_mut()
    }

    /// An error of the driver on this file, sorted.
    pub fn error(&self, error: sqlx::Error) -> SqliteError {
        SqliteError::from_driver(&self.file, error)
    }

    fn keep(self) {
        if let Some(home) = self.home.upgrade() {
            home.keep(self.spare);
        }
    }
}

impl Deref for SqliteTransaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.spare.connection
    }
}

impl DerefMut for SqliteTransaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.spare.connection
    }
}
