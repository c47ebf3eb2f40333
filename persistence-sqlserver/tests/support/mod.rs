//! A database schema of its own on the server that `LATCHWORK_TEST_SQLSERVER` names.
#![allow(dead_code, reason = "each test uses a part")]

use latchwork_core::{BoxError, name::Namespace, options::ProviderContext, store::StoreError};
use latchwork_persistence_sqlserver::{SqlServerStore, SqlServerStoreOptions};
use latchwork_sqlserver_client::{SchemaName, Session, SqlServerOptions};
use latchwork_testkit::store::Skipped;
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A namespace, and so a schema, that nobody else uses.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) connection_string: String,
    pub(crate) namespace: Namespace,
    pub(crate) schema: SchemaName,
    /// Whether the server is a stand-in, which lacks some of SQL Server and is slow in a session's first requests.
    pub(crate) is_a_stand_in: bool,
}

impl Database {
    /// On the named server. [`Skipped`] without one.
    pub(crate) async fn named() -> Result<Self, BoxError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let connection_string =
            std::env::var("LATCHWORK_TEST_SQLSERVER").map_err(|_| Skipped("LATCHWORK_TEST_SQLSERVER is not set"))?;
        let time = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace::new(&format!("t{}_{time:x}_{number}", std::process::id()))?;
        let schema = SchemaName::new(&format!("latchwork_{namespace}")).ok_or("no name of a schema")?;
        let mut database = Self { connection_string, namespace, schema, is_a_stand_in: false };
        let answer =
            "SELECT CASE WHEN CAST(SERVERPROPERTY('babelfish') AS int) = 1 THEN CAST(1 AS bigint) ELSE CAST(0 AS bigint) END;";
        database.is_a_stand_in = database.count(answer).await? == 1;
        Ok(database)
    }

    pub(crate) fn options(&self) -> SqlServerStoreOptions {
        // A first request is dear on a stand-in, so that few sessions are better than many.
        SqlServerStoreOptions::new(self.connection_string.as_str()).with_sessions(3).with_request_timeout(LIMIT)
    }

    /// A node on it.
    pub(crate) async fn store(&self, node: &str) -> Result<SqlServerStore, StoreError> {
        SqlServerStore::open(&self.options(), &ProviderContext::new(self.namespace.clone(), node)).await
    }

    pub(crate) async fn session(&self) -> Result<Session, BoxError> {
        Ok(Session::open(&SqlServerOptions::new(self.connection_string.as_str())).await?)
    }

    /// Runs statements that are written for `[latchwork]`.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), BoxError> {
        self.session().await?.batch(&self.schema.apply(sql), LIMIT).await?;
        Ok(())
    }

    /// The number that a query gives.
    pub(crate) async fn count(&self, sql: &str) -> Result<i64, BoxError> {
        let results = self.session().await?.batch(&self.schema.apply(sql), LIMIT).await?;
        let number = results.first().and_then(|rows| rows.first()).and_then(|row| row.get::<i64, _>(0));
        Ok(number.ok_or("no number")?)
    }

    /// As [`named`](Self::named), for tests of the store: a stand-in whose `OPENJSON` leaves escapes in texts, or cuts them, is [`Skipped`], since what it
    /// stores is not what it was given. SQL Server never is.
    pub(crate) async fn for_a_store() -> Result<Self, BoxError> {
        let database = Self::named().await?;
        let read = r#"SELECT CAST(MAX(LEN(r.[text])) AS bigint)
            FROM OPENJSON(N'[["\"' + REPLICATE(CAST(N'x' AS nvarchar(max)), 5000) + N'"]]') WITH ([text] nvarchar(max) '$[0]') AS r;"#;
        if database.is_a_stand_in && database.count(read).await? != 5_001 {
            return Err(Skipped("the stand-in for SQL Server reads texts of JSON as they are escaped, or cuts them").into());
        }
        Ok(database)
    }

    /// Drops the schema with all that is in it.
    pub(crate) async fn remove(&self) -> Result<(), BoxError> {
        let mut session = self.session().await?;
        let views = "SELECT v.[name] FROM sys.views AS v WHERE v.[schema_id] = SCHEMA_ID(@P1);";
        let tables = "SELECT t.[name] FROM sys.tables AS t WHERE t.[schema_id] = SCHEMA_ID(@P1);";
        for (kind, list) in [("VIEW", views), ("TABLE", tables)] {
            let found = session.query(list, &[&self.schema.as_str()], LIMIT).await?;
            for row in found.iter().flatten() {
                let name = row.get::<&str, _>(0).ok_or("no name")?;
                session.batch(&format!("DROP {kind} [{}].[{name}];", self.schema), LIMIT).await?;
            }
        }
        // By its name: a stand-in's list of sequences is empty.
        session.batch(&format!("DROP SEQUENCE IF EXISTS [{}].[lease_fence];", self.schema), LIMIT).await?;
        session.batch(&format!("IF SCHEMA_ID(N'{0}') IS NOT NULL DROP SCHEMA [{0}];", self.schema), LIMIT).await?;
        Ok(())
    }
}
