//! Versioned schemas.

#![allow(clippy::expect_used, reason = "helpers of tests are tests")]

use latchwork_sqlite_client::{Migration, MigrationSet, SchemaMode, SqliteClient, SqliteErrorKind, SqliteOptions};
use tempfile::TempDir;

fn set(versions: i64) -> MigrationSet {
    let migrations =
        (1..=versions).map(|version| Migration::new(version, "a step", format!("CREATE TABLE t{version} (n INTEGER)"))).collect();
    MigrationSet::new("steps", migrations)
}

async fn client(folder: &TempDir) -> SqliteClient {
    SqliteClient::open(SqliteOptions::new(folder.path().join("a.db"))).await.expect("opened")
}

#[tokio::test]
async fn each_mode_does_what_it_may_and_no_more() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let client = client(&folder).await;
    let refused = async |versions, mode| {
        let error = client.migrate(&set(versions), mode).await.expect_err("refused");
        assert_eq!(error.kind(), SqliteErrorKind::Schema);
        error.to_string()
    };

    assert!(refused(1, SchemaMode::Verify).await.contains("needs version 1, the file has none of it"));
    assert_eq!(client.migrate(&set(1), SchemaMode::CreateIfMissing).await.ok(), Some(1));
    assert_eq!(client.migrate(&set(1), SchemaMode::Verify).await.ok(), Some(1));
    assert!(refused(2, SchemaMode::CreateIfMissing).await.contains("the file has the older version 1"));
    assert!(refused(2, SchemaMode::Verify).await.contains("the file has the older version 1"));
    assert_eq!(client.migrate(&set(3), SchemaMode::Migrate).await.ok(), Some(3));
    assert_eq!(client.migrate(&set(3), SchemaMode::Migrate).await.ok(), Some(3));
    for mode in [SchemaMode::Migrate, SchemaMode::CreateIfMissing, SchemaMode::Verify] {
        assert!(refused(2, mode).await.contains("needs version 2, the file has the newer version 3"));
    }
    client.close().await;
}

#[tokio::test]
async fn a_changed_history_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let client = client(&folder).await;
    client.migrate(&set(2), SchemaMode::Migrate).await.expect("migrated");
    let changed = MigrationSet::new(
        "steps",
        vec![
            Migration::new(1, "a step", "CREATE TABLE other (n INTEGER)"),
            Migration::new(2, "a step", "CREATE TABLE t2 (n INTEGER)"),
        ],
    );
    let error = client.migrate(&changed, SchemaMode::Migrate).await.expect_err("refused");
    assert!(error.to_string().contains("version 1 in the file was made by other statements"), "{error}");
    client.close().await;
}

#[tokio::test]
async fn a_failed_migration_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let client = client(&folder).await;
    let broken = MigrationSet::new(
        "broken",
        vec![Migration::new(1, "fine", "CREATE TABLE fine (n INTEGER)"), Migration::new(2, "broken", "CREATE TABEL x (n)")],
    );
    let error = client.migrate(&broken, SchemaMode::Migrate).await.expect_err("refused");
    assert!(error.to_string().contains("migration 2 (broken) failed"), "{error}");
    let error = client.migrate(&broken, SchemaMode::Verify).await.expect_err("refused");
    assert!(error.to_string().contains("the file has none of it"), "{error}");
    // Two sets of one file do not know of each other.
    assert_eq!(client.migrate(&set(1), SchemaMode::Migrate).await.ok(), Some(1));
    client.close().await;
}
