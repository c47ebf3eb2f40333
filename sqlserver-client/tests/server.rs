//! Schemas and transactions on the server that `LATCHWORK_TEST_SQLSERVER` names.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

use latchwork_sqlserver_client::{
    Migration, MigrationSet, SchemaMode, SchemaName, SqlServerError, SqlServerOptions, SqlServerPool, SqlServerTransaction,
};
use std::{any::Any, time::Duration};

const LIMIT: Duration = Duration::from_secs(60);

const FIRST: Migration = Migration {
    version: 1,
    name: "a table",
    sql: "CREATE TABLE [latchwork].[note] ([text] nvarchar(50) NOT NULL);\nGO\nINSERT INTO [latchwork].[note] VALUES (N'first');",
};
const SECOND: Migration =
    Migration { version: 2, name: "a view", sql: "CREATE VIEW [latchwork].[notes] AS SELECT [text] FROM [latchwork].[note];" };
const BROKEN: Migration = Migration {
    version: 2,
    name: "broken",
    sql: "INSERT INTO [latchwork].[note] VALUES (N'half');\nGO\nSELECT [no] FROM [latchwork].[note];",
};
const OLD: &[Migration] = &[FIRST];
const NEW: &[Migration] = &[FIRST, SECOND];
const BAD: &[Migration] = &[FIRST, BROKEN];

/// A schema of its own on the server.
struct Place {
    options: SqlServerOptions,
    schema: SchemaName,
    pool: SqlServerPool,
}

impl Place {
    fn new(name: &str) -> Option<Self> {
        let Ok(text) = std::env::var("LATCHWORK_TEST_SQLSERVER") else {
            println!("skipped: LATCHWORK_TEST_SQLSERVER is not set");
            return None;
        };
        let options = SqlServerOptions::new(text);
        let schema = SchemaName::new(&format!("latchwork_{name}_{}", std::process::id())).expect("a schema");
        let pool = SqlServerPool::new(options.clone(), 4).expect("a pool");
        Some(Self { options, schema, pool })
    }

    async fn migrate(&self, migrations: &'static [Migration], mode: SchemaMode) -> Result<i32, SqlServerError> {
        MigrationSet::new(self.schema.clone(), "notes", migrations).migrate(&self.options, mode).await
    }

    async fn ask(&self, sql: &'static str) -> Vec<String> {
        let sql = self.schema.apply(sql).into_owned();
        let rows = self.pool.run(move |session| Box::pin(async move { session.batch(&sql, LIMIT).await })).await.expect("rows");
        rows.into_iter().flatten().map(|row| row.get::<&str, _>(0).expect("a text").to_owned()).collect()
    }

    async fn notes(&self) -> Vec<String> {
        self.ask("SELECT [text] FROM [latchwork].[note] ORDER BY [text];").await
    }

    async fn remove(self) {
        self.ask("DROP VIEW IF EXISTS [latchwork].[notes]; DROP TABLE IF EXISTS [latchwork].[note];").await;
        self.ask("DROP TABLE IF EXISTS [latchwork].[migration];").await;
        self.ask("DROP SCHEMA IF EXISTS [latchwork];").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_ten_nodes_that_start_at_once_one_migrates() {
    let Some(place) = Place::new("ten") else { return };
    let migrated = futures_util::future::join_all((0..10).map(|_| place.migrate(NEW, SchemaMode::Migrate))).await;
    for version in migrated {
        assert_eq!(version.expect("migrated"), 2);
    }
    assert_eq!(place.notes().await, ["first"]);
    assert_eq!(place.ask("SELECT [text] FROM [latchwork].[notes];").await, ["first"]);
    place.remove().await;
}

#[tokio::test]
async fn each_mode_does_what_it_may_and_no_more() {
    let Some(place) = Place::new("modes") else { return };
    let told = |result: Result<i32, SqlServerError>| result.map_err(|error| error.to_string());
    let refused = told(place.migrate(OLD, SchemaMode::Verify).await).expect_err("nothing is there");
    assert!(refused.contains("the database has none of it") && refused.contains("Verify"), "{refused}");
    assert_eq!(told(place.migrate(OLD, SchemaMode::CreateIfMissing).await), Ok(1));
    for mode in [SchemaMode::CreateIfMissing, SchemaMode::Verify] {
        let refused = told(place.migrate(NEW, mode).await).expect_err("it is older");
        assert!(refused.contains("the older version 1"), "{refused}");
    }
    let failed = place.migrate(BAD, SchemaMode::Migrate).await.expect_err("a missing column");
    assert!(matches!(failed, SqlServerError::Server { .. }) && failed.to_string().contains("version 2"), "{failed}");
    assert_eq!(place.notes().await, ["first"], "what failed left nothing");
    assert_eq!(told(place.migrate(NEW, SchemaMode::Migrate).await), Ok(2));
    assert_eq!(told(place.migrate(NEW, SchemaMode::Verify).await), Ok(2));
    let refused = told(place.migrate(OLD, SchemaMode::Migrate).await).expect_err("it is newer");
    assert!(refused.contains("the newer version 2"), "{refused}");
    place.remove().await;
}

#[tokio::test]
async fn a_database_that_a_dba_prepared_by_the_script_passes_the_check() {
    let Some(place) = Place::new("script") else { return };
    for (migrations, from) in [(OLD, 0), (NEW, 1)] {
        let script = MigrationSet::new(place.schema.clone(), "notes", migrations).script(from);
        place
            .pool
            .run(move |session| {
                Box::pin(async move {
                    for batch in script.split("\nGO\n").filter(|batch| !batch.trim().is_empty()) {
                        session.batch(batch, LIMIT).await?;
                    }
                    Ok(())
                })
            })
            .await
            .expect("the script runs");
    }
    assert_eq!(place.migrate(NEW, SchemaMode::Verify).await.expect("verified"), 2);
    place.remove().await;
}

#[tokio::test]
async fn a_transaction_is_committed_rolled_back_or_dropped() {
    let Some(place) = Place::new("transactions") else { return };
    place.migrate(OLD, SchemaMode::Migrate).await.expect("migrated");
    let insert = place.schema.apply("INSERT INTO [latchwork].[note] VALUES (@P1);").into_owned();
    let begun = async |text: &str| {
        let mut transaction = place.pool.begin().await.expect("begun");
        let untyped: &mut (dyn Any + Send) = &mut transaction;
        SqlServerTransaction::of(untyped).expect("typed").query(&insert, &[&text]).await.expect("inserted");
        transaction
    };
    begun("kept").await.commit().await.expect("committed");
    begun("taken back").await.rollback().await.expect("rolled back");
    drop(begun("dropped").await);
    let mut failed = begun("failed").await;
    let error = failed.query("SELECT [no] FROM [latchwork].[missing];", &[]).await.expect_err("no such table");
    assert!(matches!(error, SqlServerError::Server { .. }), "{error}");
    drop(failed);
    assert_eq!(place.notes().await, ["first", "kept"]);
    place.remove().await;
}
