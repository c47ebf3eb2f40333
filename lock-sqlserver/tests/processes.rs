//! What only several processes can show. The children are ignored tests of this program.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod support;

use latchwork_core::{
    lock::{LockProviderExt, Loss},
    store::{
        Checkpoint, CheckpointId, CheckpointOutcome, Due, Encoded, HeaderUpdate, InstanceId, NewInstance, PersistenceProvider,
        Revision, SchemaMode, WorkflowStatus,
    },
};
use latchwork_lock_sqlserver::{SqlServerLockOptions, SqlServerLocks};
use latchwork_persistence_sqlite::SqliteStore;
use latchwork_testkit::sqlserver::SimulatedSqlServer;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
};
use support::{PATIENCE, loss, take};

/// The connection string and the file of a child.
const SERVER: &str = "LATCHWORK_TEST_SERVER";
const FILE: &str = "LATCHWORK_TEST_FILE";
/// What a child prints for its parent begins with this, since the test harness prints too.
const MARK: &str = "child: ";
const LOCK: &str = "order";

/// A child process; killed when the test ends.
struct Node {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Node {
    fn start(test: &str, server: &SimulatedSqlServer, file: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
            .env(SERVER, server.connection_string())
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let says = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, says }
    }

    /// What the child says next. The server lives in this process, so the wait is on a thread of its own.
    async fn hear(mut self) -> (Self, String) {
        let heard = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            while self.says.read_line(&mut line).expect("read") > 0 {
                if let Some((_, text)) = line.trim_end().split_once(MARK) {
                    let text = text.to_owned();
                    return (self, text);
                }
                line.clear();
            }
            panic!("the child ended without a word");
        });
        tokio::time::timeout(PATIENCE, heard).await.expect("heard in time").expect("a word")
    }

    fn tell(&mut self) {
        writeln!(self.child.stdin.as_mut().expect("its input"), "go on").expect("told");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", self.child.id())]).status().expect("sent");
        assert!(sent.success(), "{signal}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn open(path: &Path) -> SqliteStore {
    let store = SqliteStore::connect(&format!("sqlite:{}", path.display())).await.expect("the file opens");
    store.prepare(SchemaMode::Migrate).await.expect("the schema is made");
    store
}

/// Writes the instance as one who has loaded it at this revision.
async fn write(store: &SqliteStore, instance: &InstanceId, revision: Revision, data: &str) -> CheckpointOutcome {
    let header = HeaderUpdate { status: WorkflowStatus::Runnable, reason: None, due: Due::Keep, fault_count: 0 };
    let id = CheckpointId { burst: std::process::id().into(), number: 1 };
    let mut checkpoint = Checkpoint::new(instance.clone(), id, revision, header);
    checkpoint.data = Some(Encoded::from_json(data));
    store.commit(vec![Arc::new(checkpoint)]).await.pop().expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn k01_a_holder_that_was_stopped_and_lost_its_session_is_refused_when_it_writes_late() {
    let server = Arc::new(SimulatedSqlServer::start().await.expect("started"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("orders.db");
    let store = open(&path).await;
    let new = NewInstance::new("order", 1, "shape", Encoded::from_json("\"new\""));
    let instance = new.id.clone();
    store.create(&[new]).await.expect("created");

    let node = Node::start("holder", &server, &path);
    let (mut node, said) = node.hear().await;
    assert_eq!(said, "holds revision 1");
    node.signal("STOP");
    let session = server.held()[0].session;
    let locks = SqlServerLocks::connect(&SqlServerLockOptions::new(server.connection_string())).await.expect("connected");
    assert!(locks.try_lock(LOCK).await.expect("answered").is_none(), "a stopped process keeps its locks");
    // It cannot close its end now; the kill waits for that, and frees at once.
    let killing = tokio::spawn({
        let server = server.clone();
        async move { server.kill(session).await }
    });
    let guard = locks.lock(LOCK, PATIENCE).await.expect("answered").expect("free");
    assert!(matches!(write(&store, &instance, Revision(1), "\"second\"").await, CheckpointOutcome::Committed(_)));

    node.tell();
    node.signal("CONT");
    let (node, said) = node.hear().await;
    assert_eq!(said, "refused in favour of revision 2");
    let (_node, said) = node.hear().await;
    assert_eq!(said, "lost");
    killing.await.expect("killed");
    let stored = store.load(&instance).await.expect("loaded").expect("there");
    assert_eq!((stored.header.revision, stored.data.as_str()), (Revision(2), "\"second\""));
    assert!(!guard.is_lost());
    guard.release().await.expect("freed");
}

/// Takes the lock, loads, waits for a word, and writes without a look at its guard, as a step does that was under way.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process of `k01_a_holder_that_was_stopped_and_lost_its_session_is_refused_when_it_writes_late`"]
async fn holder() {
    let (Ok(server), Ok(file)) = (std::env::var(SERVER), std::env::var(FILE)) else { return };
    let store = open(Path::new(&file)).await;
    let locks = SqlServerLocks::connect(&SqlServerLockOptions::new(server)).await.expect("connected");
    let guard = take(&locks, LOCK).await;
    let found = store.find(&latchwork_core::store::InstanceQuery::new()).await.expect("found").items;
    let header = &found[0].header;
    println!("{MARK}holds revision {}", header.revision);
    std::io::stdin().lines().next();
    match write(&store, &header.id, header.revision, "\"first\"").await {
        CheckpointOutcome::Refused { stored } => println!("{MARK}refused in favour of revision {}", stored.expect("it is there")),
        other => println!("{MARK}{other:?}"),
    }
    assert_eq!(loss(&guard).await, Loss::SessionClosed);
    println!("{MARK}lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn k49_a_killed_holder_frees_at_once() {
    let server = SimulatedSqlServer::start().await.expect("started");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("orders.db");
    let store = open(&path).await;
    store.create(&[NewInstance::new("order", 1, "shape", Encoded::from_json("0"))]).await.expect("created");
    let (mut node, _) = Node::start("holder", &server, &path).hear().await;
    let locks = SqlServerLocks::connect(&SqlServerLockOptions::new(server.connection_string())).await.expect("connected");
    assert!(locks.try_lock(LOCK).await.expect("answered").is_none());
    node.child.kill().expect("killed");
    assert!(locks.lock(LOCK, PATIENCE).await.expect("answered").is_some());
}
