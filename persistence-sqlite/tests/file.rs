//! What is special about a file: locks of other programs, a full disk, what is written and what is not.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

mod support;

use latchwork_core::{
    name::Namespace,
    options::ProviderContext,
    store::{CheckpointOutcome, Encoded, NewInstance, PersistenceProvider, PointerStatus, Revision, SchemaMode, StoreErrorKind},
};
use latchwork_persistence_sqlite::{SqliteOptions, SqliteStore};
use latchwork_sqlite_client::{
    SqliteClient,
    sqlx::{self, AssertSqlSafe, Connection, SqliteConnection},
};
use std::{path::PathBuf, sync::Arc, time::Duration};
use support::{checkpoint, commit, committed, create, open_at, pointer};
use tempfile::TempDir;

fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("orders.db");
    (folder, path)
}

async fn foreign(path: &std::path::Path) -> SqliteConnection {
    SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.expect("a foreign connection")
}

#[tokio::test]
async fn a_busy_file_is_unavailable_and_the_same_checkpoint_can_be_tried_again() {
    let (_folder, path) = file();
    // The client's options are those of the first who opens the file.
    let options = SqliteOptions::new(&path).with_busy_timeout(Duration::from_millis(50));
    let client = SqliteClient::open(options).await.expect("opened");
    let store = open_at(&path).await;
    let ids = create(&store, 1).await;
    let mut foreign = foreign(&path).await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut foreign).await.expect("the foreign lock");

    let next = checkpoint(&ids[0], Revision::FIRST);
    match commit(&store, next.clone()).await {
        CheckpointOutcome::Failed(error) => {
            assert_eq!((error.kind, error.is_retryable()), (StoreErrorKind::Unavailable, true));
            assert!(error.to_string().contains("the write lock was not free within 50 ms"), "{error}");
            assert!(error.to_string().contains("orders.db"), "{error}");
        }
        other => panic!("expected a failure, found {other:?}"),
    }
    let found = store.load(&ids[0]).await.expect("reads go on").expect("there");
    assert_eq!((found.header.revision, found.pointers.len()), (Revision::FIRST, 0));

    foreign.close().await.expect("closed");
    assert_eq!(committed(&commit(&store, next).await), Revision(2));
    store.stop(Duration::from_secs(5)).await.expect("stopped");
    client.close().await;
}

#[tokio::test]
async fn a_full_disk_is_told_and_nothing_is_lost() {
    let (_folder, path) = file();
    let client = SqliteClient::open(SqliteOptions::new(&path)).await.expect("opened");
    let store = open_at(&path).await;
    let ids = create(&store, 10).await;
    let limit = async |pages: i64| {
        let job = client.write(move |connection| {
            // What a full disk says, the limit of pages says too.
            let sql = AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
            Box::pin(async move { sqlx::query(sql).execute(connection).await.map(|_| ()) })
        });
        job.await.expect("limited");
    };
    let large = |id| {
        let mut large = checkpoint(id, Revision::FIRST);
        large.data = Some(Encoded::from_json(format!("\"{}\"", "x".repeat(100_000))));
        Arc::new(large)
    };
    limit(60).await;
    for answer in store.commit(ids.iter().map(large).collect()).await {
        match answer {
            CheckpointOutcome::Failed(error) => {
                assert_eq!((error.kind, error.is_retryable()), (StoreErrorKind::Full, true));
                assert!(error.to_string().contains("free space"), "{error}");
            }
            other => panic!("expected a failure, found {other:?}"),
        }
    }
    let found = store.load(&ids[3]).await.expect("reads go on").expect("there");
    assert_eq!((found.header.revision, found.data.as_str()), (Revision::FIRST, "0"));

    limit(1_000_000).await;
    for answer in store.commit(ids.iter().map(large).collect()).await {
        assert_eq!(committed(&answer), Revision(2));
    }
    store.stop(Duration::from_secs(5)).await.expect("stopped");
    client.close().await;
}

#[tokio::test]
async fn k22_a_checkpoint_writes_what_changed_and_nothing_else() {
    let (_folder, path) = file();
    let store = open_at(&path).await;
    let ids = create(&store, 1).await;
    let mut first = checkpoint(&ids[0], Revision::FIRST);
    first.pointers = (1..=10_000).map(|number| pointer(number).with_status(PointerStatus::Complete)).collect();
    committed(&commit(&store, first).await);

    let mut watch = foreign(&path).await;
    sqlx::raw_sql("CREATE TABLE written (what TEXT)").execute(&mut watch).await.expect("a table of its own");
    for table in ["data", "pointer", "instance"] {
        for event in ["INSERT", "UPDATE", "DELETE"] {
            let sql = format!(
                "CREATE TRIGGER {event}_{table} AFTER {event} ON latchwork_{table}
                 BEGIN INSERT INTO written VALUES ('{table}'); END"
            );
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut watch).await.expect("a trigger");
        }
    }
    let mut next = checkpoint(&ids[0], Revision(2));
    next.data = None;
    next.pointers = vec![pointer(10_001), pointer(10_002)];
    committed(&commit(&store, next).await);

    let written: Vec<String> =
        sqlx::query_scalar("SELECT what FROM written ORDER BY what").fetch_all(&mut watch).await.expect("read");
    assert_eq!(written, ["instance", "pointer", "pointer"]);
    watch.close().await.expect("closed");
    store.stop(Duration::from_secs(5)).await.expect("stopped");
}

#[tokio::test]
async fn a_text_is_stored_as_it_is_whatever_stands_in_it() {
    let (_folder, path) = file();
    let store = open_at(&path).await;
    let ids = create(&store, 1).await;
    let text = "quote \" back \\ line\n tab\t nul \u{0} bell \u{7} zażółć 🦀 \u{2028} {\"not\": [json]}";
    let data = serde_json::to_string(text).expect("JSON");
    let mut next = checkpoint(&ids[0], Revision::FIRST);
    next.header.reason = Some(text.replace('\u{0}', ""));
    next.data = Some(Encoded::from_json(data.as_str()));
    next.pointers = vec![pointer(1).with_state(Encoded::from_json(data.as_str()))];
    committed(&commit(&store, next.clone()).await);

    let found = store.load(&ids[0]).await.expect("loaded").expect("there");
    assert_eq!(found.header.reason, next.header.reason);
    assert_eq!(found.data.as_str(), data);
    assert_eq!(found.pointers, next.pointers);
    store.stop(Duration::from_secs(5)).await.expect("stopped");
}

#[tokio::test]
async fn k10_two_namespaces_share_a_file_undisturbed() {
    let (_folder, path) = file();
    let open = async |namespace: &str| {
        let context = ProviderContext::new(Namespace::new(namespace).expect("a namespace"), "node");
        let store = SqliteStore::open(SqliteOptions::new(&path), &context).await.expect("opened");
        store.prepare(SchemaMode::Migrate).await.expect("prepared");
        store
    };
    let stores = [open("wfc").await, open("orders-2").await, open("orders_2").await];
    for (number, store) in stores.iter().enumerate() {
        let new = NewInstance::new("order", 1, "shape", Encoded::from_json(number.to_string())).with_business_key("A-1");
        store.create(&[new]).await.expect("created");
    }
    let mut holders = Vec::new();
    for store in &stores {
        assert_eq!(store.statistics().await.expect("counted").runnable, 1);
        holders.push(store.find_by_key("order", "A-1").await.expect("found").expect("there"));
    }
    holders.dedup();
    assert_eq!(holders.len(), 3);
    for store in &stores {
        store.stop(Duration::from_secs(5)).await.expect("stopped");
    }
}

#[tokio::test]
async fn a_stopped_store_refuses_calls_and_leaves_others_at_work() {
    let (_folder, path) = file();
    let (one, other) = (open_at(&path).await, open_at(&path).await);
    let ids = create(&one, 1).await;
    one.stop(Duration::from_secs(5)).await.expect("stopped");
    one.stop(Duration::from_secs(5)).await.expect("stopped again");

    assert_eq!(one.load(&ids[0]).await.expect_err("stopped").kind, StoreErrorKind::Stopped);
    match commit(&one, checkpoint(&ids[0], Revision::FIRST)).await {
        CheckpointOutcome::Failed(error) => assert_eq!(error.kind, StoreErrorKind::Stopped),
        answer => panic!("expected a failure, found {answer:?}"),
    }
    assert_eq!(committed(&commit(&other, checkpoint(&ids[0], Revision::FIRST)).await), Revision(2));
    other.stop(Duration::from_secs(5)).await.expect("stopped");
    assert!(!path.with_file_name("orders.db-wal").exists(), "the last one moves the log into the database");
}

#[tokio::test]
async fn checkpoints_of_many_callers_share_a_transaction() {
    let (_folder, path) = file();
    let client = SqliteClient::open(SqliteOptions::new(&path)).await.expect("opened");
    let store = open_at(&path).await;
    let ids = create(&store, 512).await;
    let before = client.stats();
    let calls = ids.iter().map(|id| commit(&store, checkpoint(id, Revision::FIRST)));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(committed(&answer), Revision(2));
    }
    let after = client.stats();
    assert_eq!(after.items - before.items, 512);
    assert!(after.groups - before.groups <= 10, "{} transactions", after.groups - before.groups);
    store.stop(Duration::from_secs(5)).await.expect("stopped");
    client.close().await;
}

#[tokio::test]
async fn two_checkpoints_of_one_instance_in_one_group_are_written_in_turn() {
    let (_folder, path) = file();
    let store = open_at(&path).await;
    let ids = create(&store, 1).await;
    let rival = {
        let mut rival = checkpoint(&ids[0], Revision::FIRST);
        rival.id.burst = 2;
        rival
    };
    let batch = vec![Arc::new(checkpoint(&ids[0], Revision::FIRST)), Arc::new(rival), Arc::new(checkpoint(&ids[0], Revision(2)))];
    let answers = store.commit(batch).await;
    assert_eq!(committed(&answers[0]), Revision(2));
    assert!(matches!(answers[1], CheckpointOutcome::Refused { stored: Some(Revision(2)) }), "{:?}", answers[1]);
    assert_eq!(committed(&answers[2]), Revision(3));
    store.stop(Duration::from_secs(5)).await.expect("stopped");
}
