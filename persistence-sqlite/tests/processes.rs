//! Several processes on one file, and processes that are killed. The children are ignored tests of this program.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

mod support;

use latchwork_core::{
    lock::{DistributedLockProvider, LockProviderExt, Loss, lease::LeaseOptions},
    store::{InstanceQuery, PersistenceProvider, Revision, StoreErrorKind, WorkflowStatus},
};
use latchwork_persistence_sqlite::{SqliteLeaseLocks, SqliteLeaseOptions, SqliteOptions};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};
use support::{checkpoint, committed, create, open_at};

/// The name of the file that a child works on.
const FILE: &str = "LATCHWORK_TEST_FILE";
/// What a child prints for its parent begins with this, since the test harness prints too.
const MARK: &str = "child: ";

fn spawn(name: &str, file: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
        .env(FILE, file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts again")
}

fn child_file() -> Option<PathBuf> {
    std::env::var_os(FILE).map(PathBuf::from)
}

/// What the child says, line by line.
fn heard(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    lines.map_while(Result::ok).filter_map(|line| line.split_once(MARK).map(|(_, text)| text.to_owned()))
}

const GROUP: usize = 100;

#[tokio::test]
async fn a_group_is_there_or_not_however_its_writer_is_killed() {
    for rounds in [0, 1, 7, 30] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("orders.db");
        let mut child = spawn("writer_of_groups", &path);
        let mut lines = heard(&mut child);
        let mut acknowledged = 0;
        while acknowledged < rounds {
            let line = lines.next().expect("the child goes on until it is killed");
            acknowledged = line.parse().expect("a round");
        }
        // It is in the middle of a group nearly always, since it does nothing else.
        child.kill().expect("killed");
        child.wait().expect("it ends");
        // What it said before it died counts too.
        let acknowledged: i64 = lines.last().map_or(acknowledged, |line| line.parse().expect("a round"));

        let store = open_at(&path).await;
        let query = InstanceQuery::new().with_status([WorkflowStatus::Runnable]).with_limit(GROUP + 1);
        let found = store.find(&query).await.expect("found").items;
        assert!(found.len() == GROUP || acknowledged == 0, "{} instances after {acknowledged} rounds", found.len());
        for summary in found {
            let loaded = store.load(&summary.header.id).await.expect("loaded").expect("there");
            let revision = loaded.header.revision;
            // All members of the last group, or none.
            assert!(
                revision == Revision(acknowledged + 1) || revision == Revision(acknowledged + 2),
                "{revision} after {acknowledged} rounds"
            );
            let written = revision.0 - 1;
            assert_eq!(loaded.data.as_str(), if written == 0 { "0".to_owned() } else { revision.to_string() });
            assert_eq!(loaded.pointers.len(), usize::try_from(written).expect("a count"));
        }
        store.stop(Duration::from_secs(5)).await.expect("stopped");
    }
}

/// Commits round after round of a checkpoint for each of its instances, and tells the number of each round once it is committed.
#[tokio::test]
#[ignore = "a process of `a_group_is_there_or_not_however_its_writer_is_killed`"]
async fn writer_of_groups() {
    let Some(path) = child_file() else { return };
    let store = open_at(&path).await;
    let ids = create(&store, GROUP).await;
    for round in 1_i64.. {
        let batch = ids.iter().map(|id| Arc::new(checkpoint(id, Revision(round)))).collect();
        for answer in store.commit(batch).await {
            assert_eq!(committed(&answer), Revision(round + 1));
        }
        println!("{MARK}{round}");
    }
}

#[tokio::test]
async fn k23_several_processes_write_one_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("orders.db");
    let mut children: Vec<_> = (0..3).map(|_| spawn("one_of_several", &path)).collect();
    for child in &mut children {
        assert_eq!(heard(child).collect::<Vec<_>>(), ["done"]);
        assert!(child.wait().expect("it ends").success());
    }
    let store = open_at(&path).await;
    let query = InstanceQuery::new().with_limit(1_000);
    let found = store.find(&query).await.expect("found").items;
    assert_eq!(found.len(), 300);
    assert!(found.iter().all(|summary| summary.header.revision == Revision(11)));
    store.stop(Duration::from_secs(5)).await.expect("stopped");
}

#[tokio::test]
#[ignore = "a process of `k23_several_processes_write_one_file`"]
async fn one_of_several() {
    let Some(path) = child_file() else { return };
    let store = open_at(&path).await;
    let ids = create(&store, 100).await;
    for round in 1..=10 {
        let batch = ids.iter().map(|id| Arc::new(checkpoint(id, Revision(round)))).collect();
        for answer in store.commit(batch).await {
            assert_eq!(committed(&answer), Revision(round + 1));
        }
    }
    store.stop(Duration::from_secs(5)).await.expect("stopped");
    println!("{MARK}done");
}

#[tokio::test]
async fn a_file_that_is_claimed_alone_is_refused_to_a_second_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("orders.db");
    let store = open_at(&path).await;
    let claim = store.claim_exclusive("node-1").await.expect("claimed");
    let again = store.claim_exclusive("node-1").await.expect("claimed again by the same process");
    let mut child = spawn("second_process", &path);
    let told: Vec<_> = heard(&mut child).collect();
    child.wait().expect("it ends");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&format!("claimed by another process (process {}, node node-1)", std::process::id())), "{told:?}");

    drop((claim, again));
    let mut child = spawn("second_process", &path);
    assert_eq!(heard(&mut child).collect::<Vec<_>>(), ["opened"]);
    child.wait().expect("it ends");
    store.stop(Duration::from_secs(5)).await.expect("stopped");
}

#[tokio::test]
#[ignore = "a process of `a_file_that_is_claimed_alone_is_refused_to_a_second_process`"]
async fn second_process() {
    let Some(path) = child_file() else { return };
    let url = format!("sqlite:{}", path.display());
    match latchwork_persistence_sqlite::SqliteStore::connect(&url).await {
        Ok(store) => {
            println!("{MARK}opened");
            store.stop(Duration::from_secs(5)).await.expect("stopped");
        }
        Err(error) => {
            assert_eq!(error.kind, StoreErrorKind::Denied);
            println!("{MARK}{error}");
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_commit_that_fails_half_way_is_told_by_the_fence() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("orders.db");
    // Beyond this size the system refuses to write to a file of the child: in the middle of a commit, as it happens.
    let limited = "trap '' XFSZ; ulimit -f 4000; exec \"$0\" --exact writer_in_a_small_file --ignored --nocapture";
    let mut child = Command::new("sh")
        .args(["-c", limited])
        .arg(std::env::current_exe().expect("this program has a path"))
        .env(FILE, &path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts again");
    let told: Vec<_> = heard(&mut child).collect();
    assert!(child.wait().expect("it ends").success());
    let acknowledged: i64 = told.last().expect("it says how far it came").parse().expect("a revision");

    let store = open_at(&path).await;
    let query = InstanceQuery::new().with_limit(2);
    let found = store.find(&query).await.expect("found").items;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].header.revision, Revision(acknowledged), "what failed is not there, what was told is");
    store.stop(Duration::from_secs(5)).await.expect("stopped");
}

/// Writes large data until that fails, and tells the last revision that was committed.
#[cfg(unix)]
#[tokio::test]
#[ignore = "a process of `a_commit_that_fails_half_way_is_told_by_the_fence`"]
async fn writer_in_a_small_file() {
    use latchwork_core::store::{CheckpointOutcome, Encoded};
    let Some(path) = child_file() else { return };
    let store = open_at(&path).await;
    let ids = create(&store, 1).await;
    for round in 1.. {
        let mut next = checkpoint(&ids[0], Revision(round));
        next.data = Some(Encoded::from_json(format!("\"{}\"", "x".repeat(100_000))));
        match support::commit(&store, next).await {
            CheckpointOutcome::Committed(committed) => assert_eq!(committed.revision, Revision(round + 1)),
            CheckpointOutcome::Failed(error) => {
                assert_eq!((error.kind, error.is_retryable()), (StoreErrorKind::Unavailable, true));
                assert!(format!("{:?}", error.source).contains("outcome: Unknown"), "{error:?}");
                println!("{MARK}{round}");
                return;
            }
            CheckpointOutcome::Refused { stored } => panic!("refused in favour of {stored:?}"),
        }
        assert!(round < 1_000, "the file must not grow for ever");
    }
}

/// Longest that a test waits: far more than it takes.
const SOON: Duration = Duration::from_secs(90);

/// Leases of 6 s.
async fn leases(file: &Path, node: &str) -> SqliteLeaseLocks {
    let lease = LeaseOptions::default().with_renewal_period(Duration::from_secs(1)).with_margin(Duration::from_secs(5));
    let options = SqliteLeaseOptions::new(SqliteOptions::new(file)).with_lease(lease.with_node(node));
    SqliteLeaseLocks::open(options).await.expect("the file opens")
}

#[tokio::test]
async fn k49_leases_of_a_killed_process_are_taken_over_when_they_have_expired() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("orders.db");
    let locks = leases(&path, "parent").await;
    let mut child = spawn("holder_of_leases", &path);
    assert_eq!(heard(&mut child).next().as_deref(), Some("holding"));
    assert!(locks.try_lock("held-7").await.expect("asked").is_none());
    child.kill().expect("killed");
    child.wait().expect("it ends");
    let first = locks.lock("held-7", SOON).await.expect("asked").expect("taken over");
    // The others with it: one lease for all.
    for number in (0..20).filter(|number| *number != 7) {
        assert!(locks.try_lock(&format!("held-{number}")).await.expect("asked").is_some(), "{number}");
    }
    assert!(!first.is_lost());
    locks.stop(SOON).await.expect("stopped");
}

#[tokio::test]
#[ignore = "a process of `k49_leases_of_a_killed_process_are_taken_over_when_they_have_expired`"]
async fn holder_of_leases() {
    let Some(path) = child_file() else { return };
    let locks = leases(&path, "child").await;
    let mut held = Vec::new();
    for number in 0..20 {
        held.push(locks.try_lock(&format!("held-{number}")).await.expect("asked").expect("free"));
    }
    println!("{MARK}holding");
    // Ends with its parent.
    tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await.expect("read");
}

#[cfg(unix)]
#[tokio::test]
async fn k01_a_paused_holder_of_a_lease_learns_on_waking_and_what_it_writes_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("orders.db");
    let (store, locks) = (open_at(&path).await, leases(&path, "parent").await);
    let id = create(&store, 1).await.remove(0);
    let mut child = spawn("paused_holder", &path);
    let mut says = heard(&mut child);
    assert_eq!(says.next().as_deref(), Some("holding"));
    let process = child.id().to_string();
    let signal = |signal: &str| Command::new("kill").args([signal, &process]).status().expect("sent");
    assert!(signal("-STOP").success());
    let guard = locks.lock("paused", SOON).await.expect("asked").expect("taken over");
    committed(&support::commit(&store, checkpoint(&id, Revision::FIRST)).await);
    writeln!(child.stdin.as_mut().expect("its input"), "go on").expect("told");
    assert!(signal("-CONT").success());
    assert_eq!(says.collect::<Vec<_>>(), ["lost", "LeaseExpired", "refused", "of another"]);
    assert!(child.wait().expect("it ends").success() && !guard.is_lost());
    locks.stop(SOON).await.expect("stopped");
    store.stop(SOON).await.expect("stopped");
}

#[cfg(unix)]
#[tokio::test]
#[ignore = "a process of `k01_a_paused_holder_of_a_lease_learns_on_waking_and_what_it_writes_is_refused`"]
async fn paused_holder() {
    use latchwork_core::store::CheckpointOutcome;
    let Some(path) = child_file() else { return };
    let (store, locks) = (open_at(&path).await, leases(&path, "child").await);
    let guard = locks.try_lock("paused").await.expect("asked").expect("free");
    let id = store.find(&InstanceQuery::new()).await.expect("found").items.remove(0).header.id;
    println!("{MARK}holding");
    // This thread is stopped in here, with all others.
    std::io::stdin().lines().next();
    println!("{MARK}{}", if guard.is_lost() { "lost" } else { "held" });
    let loss: Loss = guard.lost().await;
    println!("{MARK}{loss:?}");
    let mut late = checkpoint(&id, Revision::FIRST);
    late.id.burst = 2;
    let answer = support::commit(&store, late).await;
    println!("{MARK}{}", if matches!(answer, CheckpointOutcome::Refused { .. }) { "refused" } else { "written" });
    guard.release().await.expect("harmless");
    let again = locks.try_lock("paused").await.expect("asked");
    println!("{MARK}{}", if again.is_none() { "of another" } else { "stolen" });
    locks.stop(SOON).await.expect("stopped");
    store.stop(SOON).await.expect("stopped");
}
