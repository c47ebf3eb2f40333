use crate::{Session, SqlServerError, pool::Opener};
use deadpool::managed::Object;
use std::{any::Any, fmt, time::Duration};
use tiberius::{Row, ToSql};

/// A transaction on a session of its own, at READ COMMITTED. An error of a statement rolls it back as a whole (`XACT_ABORT`).
///
/// Dropped, its session is closed, and so the server rolls it back. Its statements must not begin, commit or roll back by
/// themselves.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct SqlServerTransaction {
    /// `None` once it has ended.
    session: Option<Object<Opener>>,
    limit: Duration,
}

impl fmt::Debug for SqlServerTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlServerTransaction").finish_non_exhaustive()
    }
}

impl Drop for SqlServerTransaction {
    fn drop(&mut self) {
        // Not back to the pool: with the session the transaction ends.
        drop(self.session.take().map(Object::take));
    }
}

impl SqlServerTransaction {
    pub(crate) async fn begin(session: Object<Opener>, limit: Duration) -> Result<Self, SqlServerError> {
        let mut transaction = Self { session: Some(session), limit };
        let begin = "SET XACT_ABORT ON; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN TRANSACTION;";
        transaction.session()?.batch(begin, limit).await?;
        Ok(transaction)
    }

    fn session(&mut self) -> Result<&mut Session, SqlServerError> {
        self.session.as_deref_mut().ok_or_else(|| SqlServerError::closed("the transaction has ended"))
    }

    /// Runs one or more statements with parameters (`@P1`, `@P2`, ...), and gives the rows of each result.
    ///
    /// # Errors
    /// [`SqlServerError`]; the transaction is lost then.
    pub async fn query(&mut self, sql: &str, parameters: &[&dyn ToSql]) -> Result<Vec<Vec<Row>>, SqlServerError> {
        let limit = self.limit;
        self.session()?.query(sql, parameters, limit).await
    }

    /// Commits.
    ///
    /// # Errors
    /// Nothing is stored then, unless [`SqlServerError::leaves_the_outcome_open`].
    pub async fn commit(self) -> Result<(), SqlServerError> {
        self.end("COMMIT TRANSACTION;").await
    }

    /// Rolls back, and returns when that is done.
    ///
    /// # Errors
    /// Those of the session; all is rolled back all the same when the server notices its end.
    pub async fn rollback(self) -> Result<(), SqlServerError> {
        self.end("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;").await
    }

    async fn end(mut self, statement: &str) -> Result<(), SqlServerError> {
        let limit = self.limit;
        self.session()?.batch(statement, limit).await?;
        // Clean, and so of use to others.
        drop(self.session.take());
        Ok(())
    }

    /// The typed transaction behind the untyped one that a step is given, if it is one of SQL Server.
    pub fn of(transaction: &mut (dyn Any + Send)) -> Option<&mut Self> {
        transaction.downcast_mut()
    }
}
