//! Several processes on one file. The children are ignored tests of this program, each in a process of its own.

#![allow(clippy::expect_used, reason = "helpers of tests are tests")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::Child;
use std::time::{Duration, Instant};

use latchwork_sqlite_client::sqlx;
use latchwork_sqlite_client::{Migration, MigrationSet, SchemaMode, SqliteClient, SqliteErrorKind, SqliteOptions};
use support::{Insert, Row, child_file, count, open, spawn};

/// The lines that a child prints for its parent begin with this, since the test harness prints too.
const MARK: &str = "child: ";

/// Waits until the child says something.
fn hear(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stdout.as_mut().expect("its output")).lines();
    loop {
        let line = lines.next().expect("the child speaks before it ends").expect("readable");
        if let Some((_, text)) = line.split_once(MARK) {
            return text.to_owned();
        }
    }
}

fn finish(child: &mut Child) {
    assert!(child.wait().expect("it ends").success());
}

#[tokio::test]
async fn three_full_writers_take_turns() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.db");
    let client = open(SqliteOptions::new(&path)).await;

    let mut writers: Vec<_> = (0..3).map(|_| spawn("full_writer", &path)).collect();
    for writer in &mut writers {
        assert_eq!(hear(writer), "ready");
    }
    for writer in &mut writers {
        writer.stdin.as_mut().expect("its input").write_all(b"go\n").expect("told");
    }
    let results: Vec<_> = writers.iter_mut().map(hear).collect();
    writers.iter_mut().for_each(finish);

    println!("groups, longest wait and p99.9 of the waits in microseconds: {results:?}");
    let groups: Vec<u64> =
        results.iter().map(|result| result.split(' ').next().and_then(|groups| groups.parse().ok()).expect("a number")).collect();
    let (least, most) = (groups.iter().min().expect("three"), groups.iter().max().expect("three"));
    assert!(*least > 0 && most / least < 2, "each has its share: {groups:?}");
    let bypassed = most_bypassed(&owners(&client).await);
    println!("groups of others between two of one: {bypassed}");
    assert!(bypassed <= 8, "nobody is passed by again and again: {bypassed}");
    let rows: u64 = groups.iter().sum::<u64>() * 64;
    assert_eq!(count(&client).await, i64::try_from(rows).expect("a count"), "every answered group is stored");
    client.close().await;
}

/// The process of each group, in the order of their commits.
async fn owners(client: &SqliteClient) -> Vec<String> {
    client
        .read(|connection| {
            let sql = "SELECT substr(name, 1, instr(name, '-') - 1) FROM item WHERE name LIKE '%-0' ORDER BY rowid";
            Box::pin(sqlx::query_scalar(sql).fetch_all(connection))
        })
        .await
        .expect("read")
}

/// The most groups of others that were committed between two of one process, while all were at work.
fn most_bypassed(owners: &[String]) -> usize {
    let places = |owner: &String| -> Vec<usize> { (0..owners.len()).filter(|at| owners[*at] == *owner).collect() };
    let mut processes = owners.to_vec();
    processes.sort();
    processes.dedup();
    let places: Vec<_> = processes.iter().map(places).collect();
    let all_began = places.iter().filter_map(|places| places.first()).max().copied().unwrap_or_default();
    let one_ended = places.iter().filter_map(|places| places.last()).min().copied().unwrap_or_default();
    let inner = places.iter().map(|places| places.iter().filter(|at| (all_began..=one_ended).contains(at)).collect::<Vec<_>>());
    inner.flat_map(|places| places.windows(2).map(|pair| pair[1] - pair[0] - 1).collect::<Vec<_>>()).max().unwrap_or_default()
}

/// Writes groups of 64 rows back to back, for two seconds, so that three of them fight all the time.
#[tokio::test]
#[ignore = "a process of `three_full_writers_take_turns`"]
async fn full_writer() {
    let Some(path) = child_file() else { return };
    let client = open(SqliteOptions::new(path)).await;
    let lane = client.lane(Insert);
    println!("{MARK}ready");
    std::io::stdin().read_line(&mut String::new()).expect("told");
    let start = Instant::now();
    let mut waits = Vec::new();
    let mut groups = 0;
    while start.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        let rows = (0..64).map(|n| {
            let name = format!("{:x}-{groups:x}-{n:x}", std::process::id());
            lane.submit(Row::new(name).with_body("x".repeat(1_000)))
        });
        for answer in futures_util::future::join_all(rows).await {
            answer.expect("written");
        }
        waits.push(asked.elapsed().as_micros());
        groups += 1;
    }
    waits.sort_unstable();
    let p999 = waits[waits.len() - 1 - waits.len() / 1_000];
    println!("{MARK}{groups} {} {p999}", waits[waits.len() - 1]);
    client.close().await;
}

fn raced_schema() -> MigrationSet {
    MigrationSet::new(
        "raced",
        vec![
            Migration::new(1, "first", "CREATE TABLE raced (n INTEGER) STRICT; INSERT INTO raced VALUES (1)"),
            Migration::new(2, "second", "INSERT INTO raced VALUES (2)"),
        ],
    )
}

#[tokio::test]
async fn ten_processes_that_start_at_once_migrate_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.db");
    let mut children: Vec<_> = (0..10).map(|_| spawn("migrating_process", &path)).collect();
    for child in &mut children {
        assert_eq!(hear(child), "version 2");
    }
    children.iter_mut().for_each(finish);

    let client = SqliteClient::open(SqliteOptions::new(path)).await.expect("opened");
    let rows: Vec<i64> = client
        .read(|connection| Box::pin(sqlx::query_scalar("SELECT n FROM raced ORDER BY n").fetch_all(connection)))
        .await
        .expect("read");
    assert_eq!(rows, [1, 2]);
    client.close().await;
}

#[tokio::test]
#[ignore = "a process of `ten_processes_that_start_at_once_migrate_once`"]
async fn migrating_process() {
    let Some(path) = child_file() else { return };
    let client = SqliteClient::open(SqliteOptions::new(path)).await.expect("opened");
    let version = client.migrate(&raced_schema(), SchemaMode::Migrate).await.expect("migrated");
    println!("{MARK}version {version}");
    client.close().await;
}

#[tokio::test]
async fn a_claimed_file_is_refused_to_a_second_process_with_the_holder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.db");
    let mut child = spawn("claiming_process", &path);
    assert_eq!(hear(&mut child), "claimed");

    let client = SqliteClient::open(SqliteOptions::new(&path)).await.expect("opened");
    for exclusive in [true, false] {
        let claim = if exclusive { client.claim_exclusive("second").await } else { client.claim_shared("second").await };
        let error = claim.expect_err("refused");
        assert_eq!(error.kind(), SqliteErrorKind::Claimed);
        assert!(error.to_string().contains(&format!("process {}, node first", child.id())), "{error}");
    }
    // A claim ends with its process, however that ends.
    child.kill().expect("killed");
    child.wait().expect("it ends");

    let one = client.claim_exclusive("second").await.expect("free again");
    let two = client.claim_exclusive("second").await.expect("shared within the process");
    drop(one);
    assert!(two.is_exclusive());
    let mut child = spawn("refused_process", &path);
    assert_eq!(hear(&mut child), "refused");
    finish(&mut child);
    drop(two);

    let shared = client.claim_shared("second").await.expect("shared");
    let mut child = spawn("refused_process", &path);
    assert_eq!(hear(&mut child), "refused", "who shares keeps others from claiming alone");
    finish(&mut child);
    let alone = client.claim_exclusive("second").await.expect("the only process may claim alone");
    drop((shared, alone));
    client.close().await;
}

#[tokio::test]
#[ignore = "a process of `a_claimed_file_is_refused_to_a_second_process_with_the_holder`"]
async fn claiming_process() {
    let Some(path) = child_file() else { return };
    let client = SqliteClient::open(SqliteOptions::new(path)).await.expect("opened");
    let _claim = client.claim_exclusive("first").await.expect("claimed");
    println!("{MARK}claimed");
    // Ends when it is killed, or with its parent, whose end closes the input.
    std::io::stdin().read_line(&mut String::new()).expect("told");
}

#[tokio::test]
#[ignore = "a process of `a_claimed_file_is_refused_to_a_second_process_with_the_holder`"]
async fn refused_process() {
    let Some(path) = child_file() else { return };
    let client = SqliteClient::open(SqliteOptions::new(path)).await.expect("opened");
    let answer = if client.claim_exclusive("third").await.is_err() { "refused" } else { "granted" };
    println!("{MARK}{answer}");
    client.close().await;
}
