//! The way to the server.

use crate::{
    error::Failure,
    sql::{Columns, Request},
};
use latchwork_sqlserver_client::{SchemaName, SqlServerError, SqlServerPool, SqlServerTransaction};
use std::{fmt, sync::Arc};

/// How often a request is tried again because another wrote the same key at the same moment.
const DUPLICATES: u32 = 5;

/// The pool, and the schema that statements are for.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) pool: SqlServerPool,
    pub(crate) schema: SchemaName,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Server {
    /// Sends a request, and again after errors that pass, so it must be one that may be done twice. Gives the rows of all its results.
    pub(crate) async fn ask(&self, mut request: Request) -> Result<Vec<Columns>, Failure> {
        self.apply(&mut request);
        let request = Arc::new(request);
        let limit = self.pool.options().request_timeout;
        let mut left = DUPLICATES;
        loop {
            let request = request.clone();
            let answer = self.pool.retry(move |session| {
                let request = request.clone();
                Box::pin(async move { session.query(&request.text, &request.parameters(), limit).await })
            });
            match answer.await.map_err(Failure::from) {
                Ok(results) => return Ok(results.into_iter().flatten().map(Columns::from).collect()),
                Err(error) if error.is_duplicate() && left > 0 => left -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`ask`](Self::ask), once: after an error it may have been done.
    pub(crate) async fn ask_once(&self, mut request: Request) -> Result<Vec<Columns>, Failure> {
        self.apply(&mut request);
        let limit = self.pool.options().request_timeout;
        let answer = self
            .pool
            .run(move |session| Box::pin(async move { session.query(&request.text, &request.parameters(), limit).await }));
        Ok(answer.await?.into_iter().flatten().map(Columns::from).collect())
    }

    /// As [`ask`](Self::ask), once, within a transaction.
    pub(crate) async fn ask_within(
        &self,
        transaction: &mut SqlServerTransaction,
        mut request: Request,
    ) -> Result<Vec<Columns>, SqlServerError> {
        self.apply(&mut request);
        let results = transaction.query(&request.text, &request.parameters()).await?;
        Ok(results.into_iter().flatten().map(Columns::from).collect())
    }

    fn apply(&self, request: &mut Request) {
        if let std::borrow::Cow::Owned(text) = self.schema.apply(&request.text) {
            request.text = text.into();
        }
    }
}
