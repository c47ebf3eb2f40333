//! The store in SQLite keeps the promises of the contract.

use latchwork_core::{
    name::Namespace,
    options::ProviderContext,
    store::{PersistenceProvider, StepTransaction},
};
use latchwork_persistence_sqlite::{SqliteOptions, SqliteStore, SqliteTransaction};
use latchwork_sqlite_client::sqlx::{self, Connection, SqliteConnection};
use latchwork_testkit::{
    clock::VirtualClock,
    store::{BoxError, StoreFixture, async_trait},
};
use std::sync::Arc;
use tempfile::TempDir;

struct File {
    folder: TempDir,
    clock: VirtualClock,
    namespace: Namespace,
}

impl File {
    fn new(namespace: Namespace) -> Result<Self, BoxError> {
        Ok(Self { folder: tempfile::tempdir()?, clock: VirtualClock::new(), namespace })
    }

    async fn connection(&self) -> Result<SqliteConnection, BoxError> {
        let path = self.folder.path().join("orders.db");
        Ok(SqliteConnection::connect(&format!("sqlite:{}", path.display())).await?)
    }
}

#[async_trait]
impl StoreFixture for File {
    async fn open(&self) -> Result<Arc<dyn PersistenceProvider>, BoxError> {
        let options = SqliteOptions::new(self.folder.path().join("orders.db"));
        let context = ProviderContext::new(self.namespace.clone(), "node").with_clock(Arc::new(self.clock.clone()));
        Ok(Arc::new(SqliteStore::open(options, &context).await?))
    }

    fn clock(&self) -> Option<VirtualClock> {
        Some(self.clock.clone())
    }

    async fn make_schema_newer(&self) -> Result<bool, BoxError> {
        let mut connection = self.connection().await?;
        sqlx::query("UPDATE latchwork_migrations SET version = version + 1000").execute(&mut connection).await?;
        connection.close().await?;
        Ok(true)
    }

    async fn write_own_row(&self, transaction: &mut dyn StepTransaction, text: &str) -> Result<bool, BoxError> {
        let transaction = SqliteTransaction::of(transaction.as_any()).ok_or("not a transaction of SQLite")?;
        sqlx::query("CREATE TABLE IF NOT EXISTS own (text TEXT)").execute(&mut **transaction).await?;
        sqlx::query("INSERT INTO own VALUES (?1)").bind(text).execute(&mut **transaction).await?;
        Ok(true)
    }

    async fn has_own_row(&self, text: &str) -> Result<bool, BoxError> {
        let mut connection = self.connection().await?;
        let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'own')")
            .fetch_one(&mut connection)
            .await?;
        let found = exists
            && sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM own WHERE text = ?1)")
                .bind(text)
                .fetch_one(&mut connection)
                .await?;
        connection.close().await?;
        Ok(found)
    }
}

async fn one_file() -> Result<File, BoxError> {
    File::new(Namespace::default())
}

latchwork_testkit::store_conformance!(one_file);
