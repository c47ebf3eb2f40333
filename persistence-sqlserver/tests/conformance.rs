//! The store in SQL Server keeps the promises of the contract, on the server that `LATCHWORK_TEST_SQLSERVER` names.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod support;

use latchwork_core::{
    BoxError,
    store::{PersistenceProvider, StepTransaction},
};
use latchwork_persistence_sqlserver::SqlServerTransaction;
use latchwork_testkit::store::{StoreFixture, async_trait};
use std::{sync::Arc, time::Duration};
use support::Database;

#[async_trait]
impl StoreFixture for Database {
    async fn open(&self) -> Result<Arc<dyn PersistenceProvider>, BoxError> {
        Ok(Arc::new(self.store("node").await?))
    }

    fn span(&self) -> Duration {
        if self.is_a_stand_in { Duration::from_secs(6) } else { Duration::from_millis(700) }
    }

    fn time_limit(&self) -> Duration {
        Duration::from_secs(if self.is_a_stand_in { 1_200 } else { 180 })
    }

    async fn remove(&self) -> Result<(), BoxError> {
        Database::remove(self).await
    }

    async fn make_schema_newer(&self) -> Result<bool, BoxError> {
        self.run("UPDATE [latchwork].[migration] SET [version] = [version] + 1000;").await?;
        Ok(true)
    }

    async fn write_own_row(&self, transaction: &mut dyn StepTransaction, text: &str) -> Result<bool, BoxError> {
        // Beside the transaction, since the table must be there for those who look meanwhile.
        self.run(
            "IF OBJECT_ID(N'[latchwork].[own]', N'U') IS NULL CREATE TABLE [latchwork].[own] ([text] nvarchar(100) NOT NULL);",
        )
        .await?;
        let transaction = SqlServerTransaction::of(transaction.as_any()).ok_or("not a transaction of SQL Server")?;
        transaction.query(&self.schema.apply("INSERT INTO [latchwork].[own] ([text]) VALUES (@P1);"), &[&text]).await?;
        Ok(true)
    }

    async fn has_own_row(&self, text: &str) -> Result<bool, BoxError> {
        let there =
            self.count("SELECT COUNT_BIG(*) FROM sys.tables AS t WHERE t.[object_id] = OBJECT_ID(N'[latchwork].[own]');").await?;
        if there == 0 {
            return Ok(false);
        }
        // What is not committed yet is passed over.
        let found =
            self.count(&format!("SELECT COUNT_BIG(*) FROM [latchwork].[own] WITH (READPAST) WHERE [text] = N'{text}';")).await?;
        Ok(found > 0)
    }
}

async fn one_schema() -> Result<Database, BoxError> {
    Database::for_a_store().await
}

latchwork_testkit::store_conformance!(one_schema);
