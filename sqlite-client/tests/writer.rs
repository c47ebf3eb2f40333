//! One writer: groups, faults of members, faults of the file.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use latchwork_sqlite_client::sqlx::{self, Connection, SqliteConnection};
use latchwork_sqlite_client::{Outcome, SqliteClient, SqliteErrorKind, SqliteOptions, WriteBatch};
use support::{Insert, Row, count, open};
use tempfile::TempDir;
use tokio::sync::Notify;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[tokio::test]
async fn what_is_queued_together_is_committed_together() {
    let folder = folder();
    let client = open(SqliteOptions::new(folder.path().join("a.db"))).await;
    let lane = client.lane(Insert);
    let before = client.stats();

    let answers = join_all((0..1_000).map(|n| lane.submit(Row::new(format!("row {n}"))))).await;

    assert!(answers.iter().all(Result::is_ok));
    let after = client.stats();
    assert_eq!(after.items - before.items, 1_000);
    // 1,000 rows in groups of up to 256; the first group may have taken less than was queued in the end.
    assert!((4..=20).contains(&(after.groups - before.groups)), "{after:?}");
    assert_eq!(count(&client).await, 1_000);
    client.close().await;
}

#[tokio::test]
async fn lanes_and_jobs_share_a_group() {
    let folder = folder();
    let client = open(SqliteOptions::new(folder.path().join("a.db"))).await;
    let (first, second) = (client.lane(Insert), client.lane(Insert));
    // The writer is kept busy until the others have queued up.
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let busy = client.write({
        let (begun, go_on) = (begun.clone(), go_on.clone());
        move |_| {
            let (begun, go_on) = (begun.clone(), go_on.clone());
            Box::pin(async move {
                begun.notify_one();
                go_on.notified().await;
                Ok(())
            })
        }
    });
    let others = async {
        begun.notified().await;
        let before = client.stats().groups;
        let job = client.write(|connection| {
            Box::pin(async move {
                sqlx::query("INSERT INTO item VALUES ('job', '')").execute(connection).await?;
                Ok(7)
            })
        });
        // The last is polled when the others have been, and so are in the queue.
        let (row, other) = (first.submit(Row::new("first")), second.submit(Row::new("second")));
        let (one, two, seven, ()) = tokio::join!(biased; row, other, job, async { go_on.notify_one() });
        assert_eq!((one.ok(), two.ok(), seven.ok()), (Some(1), Some(1), Some(7)));
        client.stats().groups - before
    };
    let (_, groups) = tokio::join!(busy, others);
    assert_eq!(groups, 2, "the busy job, then one group of all three");
    client.close().await;
}

#[tokio::test]
async fn a_poisoned_member_fails_alone() {
    let folder = folder();
    let client = open(SqliteOptions::new(folder.path().join("a.db"))).await;
    let (lane, other) = (client.lane(Insert), client.lane(Insert));
    let poisoned = |n: usize| if n == 50 { "this name is longer than allowed".to_owned() } else { format!("row {n}") };

    let rows = join_all((0..100).map(|n| lane.submit(Row::new(poisoned(n)))));
    let neighbours = join_all((0..10).map(|n| other.submit(Row::new(format!("other {n}")))));
    let (rows, neighbours) = tokio::join!(rows, neighbours);

    for (n, answer) in rows.iter().enumerate() {
        match answer {
            Err(error) => {
                assert_eq!((n, error.kind(), error.outcome()), (50, SqliteErrorKind::Constraint, Outcome::NotCommitted));
                assert!(!error.is_retryable());
            }
            Ok(_) => assert_ne!(n, 50),
        }
    }
    assert!(neighbours.iter().all(Result::is_ok));
    assert_eq!(count(&client).await, 109);
    assert_eq!(client.stats().isolated, 1);
    client.close().await;
}

/// Panics at the item "panic", and gives one answer too few for the item "short".
#[derive(Debug)]
struct Faulty;

impl WriteBatch for Faulty {
    type Item = &'static str;
    type Answer = ();

    async fn run(&self, connection: &mut SqliteConnection, items: &[&'static str]) -> Result<Vec<()>, sqlx::Error> {
        let mut answers = Vec::new();
        for item in items {
            sqlx::query("INSERT INTO item VALUES (?1, '')").bind(*item).execute(&mut *connection).await?;
            match *item {
                "panic" => panic!("a fault of the handler"),
                "short" => {}
                _ => answers.push(()),
            }
        }
        Ok(answers)
    }
}

#[tokio::test]
async fn a_faulty_handler_costs_its_own_items_only() {
    let folder = folder();
    let client = open(SqliteOptions::new(folder.path().join("a.db"))).await;
    let lane = client.lane(Faulty);

    let answers = join_all(["one", "panic", "two", "short", "three"].map(|item| lane.submit(item))).await;

    let kinds: Vec<_> = answers.iter().map(|answer| answer.as_ref().map_err(|error| error.kind()).err()).collect();
    let misuse = Some(SqliteErrorKind::Misuse);
    assert_eq!(kinds, [None, misuse, None, misuse, None]);
    assert!(answers[1].as_ref().is_err_and(|error| error.to_string().contains("a fault of the handler")));
    assert_eq!(count(&client).await, 3);
    client.close().await;
}

#[tokio::test]
async fn a_write_waits_for_a_foreign_lock_and_then_succeeds() {
    let folder = folder();
    let path = folder.path().join("a.db");
    let client = open(SqliteOptions::new(&path)).await;
    let lane = client.lane(Insert);
    let mut foreign = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.expect("a foreign connection");
    sqlx::query("BEGIN IMMEDIATE").execute(&mut foreign).await.expect("the foreign lock");

    let write = tokio::spawn(async move { lane.submit(Row::new("late")).await });
    // Real time, and much of it: the writer's thread may be slow to begin to wait.
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert!(!write.is_finished());
    sqlx::query("COMMIT").execute(&mut foreign).await.expect("the foreign commit");

    assert_eq!(write.await.expect("no panic").ok(), Some(1));
    assert!(client.stats().longest_wait >= Duration::from_millis(40), "{:?}", client.stats());
    foreign.close().await.expect("closed");
    client.close().await;
}

#[tokio::test]
async fn a_foreign_lock_beyond_the_time_out_is_a_retryable_error() {
    let folder = folder();
    let path = folder.path().join("a.db");
    let client = open(SqliteOptions::new(&path).with_busy_timeout(Duration::from_millis(30))).await;
    let lane = client.lane(Insert);
    let mut foreign = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.expect("a foreign connection");
    sqlx::query("BEGIN IMMEDIATE").execute(&mut foreign).await.expect("the foreign lock");

    let error = lane.submit(Row::new("row")).await.expect_err("busy");
    assert_eq!((error.kind(), error.outcome(), error.is_retryable()), (SqliteErrorKind::Busy, Outcome::NotCommitted, true));
    assert!(error.to_string().contains("a.db"), "{error}");
    let error = client.begin().await.expect_err("busy too");
    assert_eq!(error.kind(), SqliteErrorKind::Busy);

    foreign.close().await.expect("closed");
    assert_eq!(lane.submit(Row::new("row")).await.ok(), Some(1), "the same write, tried again");
    client.close().await;
}

#[tokio::test]
async fn a_full_disk_is_a_clear_error_and_nothing_is_lost() {
    let folder = folder();
    let client = open(SqliteOptions::new(folder.path().join("a.db"))).await;
    let lane = client.lane(Insert);
    assert_eq!(lane.submit(Row::new("before")).await.ok(), Some(1));
    let limit = |pages: i64| {
        client.write(move |connection| {
            Box::pin(async move {
                // What a full disk says, the limit of pages says too.
                let sql = format!("PRAGMA max_page_count = {pages}");
                sqlx::query(sqlx::AssertSqlSafe(sql)).execute(connection).await.map(|_| ())
            })
        })
    };
    limit(10).await.expect("limited");

    let body = "x".repeat(50_000);
    let answers = join_all((0..4).map(|n| lane.submit(Row::new(format!("row {n}")).with_body(body.clone())))).await;
    for answer in &answers {
        let error = answer.as_ref().expect_err("full");
        assert_eq!((error.kind(), error.outcome()), (SqliteErrorKind::DiskFull, Outcome::NotCommitted));
        assert!(error.is_retryable());
        assert!(error.to_string().contains("free space"), "{error}");
    }
    assert_eq!(count(&client).await, 1);

    limit(1_000_000).await.expect("space is there again");
    let answers = join_all((0..4).map(|n| lane.submit(Row::new(format!("row {n}")).with_body(body.clone())))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(count(&client).await, 5);
    client.close().await;
}

#[tokio::test]
async fn a_caller_who_stops_waiting_leaves_the_writer_whole() {
    let folder = folder();
    let client = open(SqliteOptions::new(folder.path().join("a.db"))).await;
    let lane = client.lane(Insert);
    for n in 0..100 {
        let row = Row::new(format!("row {n}"));
        // Polled once, so that the row is submitted, and dropped.
        assert!(lane.submit(row).now_or_never().is_none());
    }
    lane.flush().await;
    assert_eq!(count(&client).await, 100, "a submitted row is written all the same");
    assert_eq!(lane.submit(Row::new("last")).await.ok(), Some(1));
    client.close().await;
}

#[tokio::test]
async fn a_dropped_transaction_is_rolled_back_and_frees_the_lock() {
    let folder = folder();
    let client = open(SqliteOptions::new(folder.path().join("a.db"))).await;
    let insert = "INSERT INTO item VALUES (?1, '')";

    let mut dropped = client.begin().await.expect("begun");
    sqlx::query(insert).bind("dropped").execute(&mut *dropped).await.expect("written");
    drop(dropped);
    let mut rolled_back = client.begin().await.expect("begun");
    sqlx::query(insert).bind("rolled back").execute(&mut *rolled_back).await.expect("written");
    rolled_back.rollback().await.expect("rolled back");
    let mut committed = client.begin().await.expect("begun");
    sqlx::query(insert).bind("committed").execute(&mut *committed).await.expect("written");
    assert_eq!(count(&client).await, 0, "nobody sees it before");
    committed.commit().await.expect("committed");

    assert_eq!(count(&client).await, 1);
    client.close().await;
}

#[tokio::test]
async fn closing_writes_what_is_queued_and_refuses_the_rest() {
    let folder = folder();
    let path = folder.path().join("a.db");
    let client = open(SqliteOptions::new(&path)).await;
    let lane = client.lane(Insert);
    for n in 0..300 {
        lane.push(Row::new(format!("row {n}"))).expect("queued");
    }
    client.close().await;

    assert_eq!(lane.submit(Row::new("late")).await.expect_err("closed").kind(), SqliteErrorKind::Closed);
    assert!(!folder.path().join("a.db-wal").exists(), "the log was moved into the database");
    let client = open(SqliteOptions::new(&path)).await;
    assert_eq!(count(&client).await, 300);
    client.close().await;
}

#[tokio::test]
async fn opening_a_file_twice_gives_one_writer() {
    let folder = folder();
    let path = folder.path().join("a.db");
    std::fs::create_dir(folder.path().join("sub")).expect("a folder");
    let around = folder.path().join("sub").join("..").join("a.db");
    let (one, two) = tokio::join!(SqliteClient::open(SqliteOptions::new(&path)), SqliteClient::open(SqliteOptions::new(around)));
    let (one, two) = (one.expect("opened"), two.expect("opened"));
    one.write(|_| Box::pin(async { Ok(()) })).await.expect("written");
    assert_eq!(two.stats().items, 1);
    // The first handle's closing leaves the second at work.
    one.close().await;
    two.write(|_| Box::pin(async { Ok(()) })).await.expect("written");
    two.close().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_named_with_the_reason() {
    let folder = folder();
    let missing = SqliteClient::open(SqliteOptions::new(folder.path().join("no folder").join("a.db"))).await;
    let error = missing.expect_err("no folder");
    assert_eq!(error.kind(), SqliteErrorKind::CannotOpen);
    assert!(error.to_string().contains("no folder"), "{error}");

    let missing = SqliteClient::open(SqliteOptions::new(folder.path().join("a.db")).with_create_if_missing(false)).await;
    assert_eq!(missing.expect_err("no file").kind(), SqliteErrorKind::CannotOpen);

    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "this is not a database, and long enough to be sure of it".repeat(50)).expect("written");
    let error = SqliteClient::open(SqliteOptions::new(&text)).await.expect_err("not a database");
    assert_eq!(error.kind(), SqliteErrorKind::Corrupt);
}
