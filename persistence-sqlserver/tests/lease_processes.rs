//! What only several processes can show: a node that is killed, and one that is paused. The children are this test binary itself: it is
//! started again with only the test `child` and a script for it in the environment.

#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod support;

use latchwork_core::{
    BoxError,
    lock::{DistributedLockProvider, LockProviderExt, Loss, lease::LeaseOptions},
    name::Namespace,
    store::{
        Checkpoint, CheckpointId, CheckpointOutcome, Due, Encoded, HeaderUpdate, InstanceId, NewInstance, PersistenceProvider,
        Revision, SchemaMode, WorkflowStatus,
    },
};
use latchwork_engine::{StepContext, StepResult, Workflow, WorkflowBuilder, WorkflowHost};
use latchwork_persistence_sqlite::UseSqlitePersistence;
use latchwork_persistence_sqlserver::{SqlServerLeaseLocks, SqlServerLeaseOptions, SqlServerStore, UseSqlServerLeaseLocking};
use latchwork_queue_local::UseLocalQueue;
use latchwork_sqlserver_client::SchemaName;
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};
use support::Database;

const SCRIPT: &str = "LATCHWORK_LEASE_TEST";
/// Generous: test machines are slow.
const SOON: Duration = Duration::from_secs(90);

/// Leases of 21 s: a busy machine may take seconds for an answer.
fn options(database: &Database, node: &str) -> SqlServerLeaseOptions {
    let lease = LeaseOptions::default().with_renewal_period(Duration::from_secs(1)).with_margin(Duration::from_secs(20));
    SqlServerLeaseOptions::new(database.connection_string.as_str())
        .with_lease(lease.with_namespace(database.namespace.clone()).with_node(node))
        .with_answer_within(SOON)
}

/// A child process; killed when the test ends.
struct Node {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Node {
    fn start(role: &str, database: &Database, file: &str) -> Result<Self, BoxError> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(SCRIPT, format!("{role} {} {file}", database.namespace))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let says = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let hears = child.stdin.take().ok_or("no stdin")?;
        Ok(Self { child, says, hears })
    }

    /// Reads until the child has said this; the test harness in it says other things too.
    fn hear(&mut self, word: &str) -> Result<(), BoxError> {
        let mut line = String::new();
        while self.says.read_line(&mut line)? > 0 {
            if line.trim_end().ends_with(word) {
                return Ok(());
            }
            line.clear();
        }
        Err(format!("the child ended without saying `{word}`").into())
    }

    fn tell(&mut self, word: &str) -> Result<(), BoxError> {
        Ok(writeln!(self.hears, "{word}")?)
    }

    fn signal(&self, signal: &str) -> Result<(), BoxError> {
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", self.child.id())]).status()?;
        if sent.success() { Ok(()) } else { Err(format!("the signal {signal} was not sent").into()) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The schema of a test; without a server the test is skipped.
async fn schema() -> Option<Database> {
    let named = Database::named().await;
    if let Err(why) = &named {
        println!("skipped: {why}");
    }
    named.ok()
}

fn id() -> InstanceId {
    "0190a0a0-0000-7000-8000-000000000001".parse().expect("an id")
}

/// What a holder of the first revision writes.
async fn write(store: &SqlServerStore, burst: u128) -> Result<CheckpointOutcome, BoxError> {
    let header = HeaderUpdate { status: WorkflowStatus::Runnable, reason: None, due: Due::Keep, fault_count: 0 };
    let mut checkpoint = Checkpoint::new(id(), CheckpointId { burst, number: 1 }, Revision::FIRST, header);
    checkpoint.data = Some(Encoded::from_json(burst.to_string()));
    Ok(store.commit(vec![Arc::new(checkpoint)]).await.pop().ok_or("no answer")?)
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Count {
    n: u32,
}

/// Whether bodies of this process come to an end.
struct Ends(bool);

async fn work(cx: &StepContext) -> StepResult<()> {
    if !cx.service::<Ends>()?.0 {
        println!("running");
        std::future::pending::<()>().await;
    }
    Ok(())
}

struct Job;

impl Workflow for Job {
    type Data = Count;
    const ID: &'static str = "job";
    const VERSION: u32 = 1;

    fn build(&self, flow: &mut WorkflowBuilder<Count>) {
        flow.run("work", async |_, cx| work(cx).await).output(|(), data| data.n += 1);
    }
}

async fn host(database: &Database, node: &str, file: &str, ends: bool) -> Result<WorkflowHost, BoxError> {
    let builder = WorkflowHost::builder()
        .namespace(database.namespace.clone())
        .node_id(node)
        .poll_interval(Duration::from_secs(1))
        .use_sqlite_persistence(file)
        .use_sqlserver_lease_locking_with(options(database, node))
        .use_local_queue()
        .service(Ends(ends))
        .workflow(Job);
    Ok(builder.start().await?)
}

/// Resolves when the parent is gone: a child whose parent was killed must not stay.
async fn orphaned() -> Result<(), BoxError> {
    tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await?;
    Ok(())
}

/// Not a test: what a child does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() -> Result<(), BoxError> {
    let Ok(script) = std::env::var(SCRIPT) else { return Ok(()) };
    let (role, rest) = script.split_once(' ').ok_or("a bad script")?;
    let (namespace, file) = rest.split_once(' ').ok_or("a bad script")?;
    let database = Database {
        connection_string: std::env::var("LATCHWORK_TEST_SQLSERVER")?,
        namespace: Namespace::new(namespace)?,
        schema: SchemaName::new(&format!("latchwork_{namespace}")).ok_or("no name of a schema")?,
        is_a_stand_in: false,
    };
    match role {
        "hold" => {
            let locks = SqlServerLeaseLocks::connect(&options(&database, "child")).await?;
            let mut held = Vec::new();
            for number in 0..20 {
                held.push(locks.try_lock(&format!("held-{number}")).await?.ok_or("not free")?);
            }
            println!("holding");
            orphaned().await?;
        }
        "pause" => {
            let store = database.store("child").await?;
            let locks = SqlServerLeaseLocks::connect(&options(&database, "child")).await?;
            let guard = locks.try_lock("paused").await?.ok_or("not free")?;
            println!("holding");
            // This thread is stopped in here, with all others.
            std::io::stdin().lines().next();
            println!("{}", if guard.is_lost() { "lost" } else { "held" });
            println!("{}", if guard.lost().await == Loss::LeaseExpired { "expired" } else { "other" });
            match write(&store, 1).await? {
                CheckpointOutcome::Refused { .. } => println!("refused"),
                other => println!("{other:?}"),
            }
            guard.release().await?;
            println!("{}", if locks.try_lock("paused").await?.is_none() { "of another" } else { "stolen" });
            let again = locks.try_lock("mended").await?.ok_or("not free")?;
            println!("{}", if again.is_lost() { "useless" } else { "mended" });
            locks.stop(SOON).await?;
        }
        "work" => {
            let _host = host(&database, "child", file, false).await?;
            println!("started");
            orphaned().await?;
        }
        _ => return Err("a bad role".into()),
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn k49_locks_of_a_killed_process_are_taken_over_after_its_lease() -> Result<(), BoxError> {
    let Some(database) = schema().await else { return Ok(()) };
    let locks = SqlServerLeaseLocks::connect(&options(&database, "parent")).await?;
    let mut node = Node::start("hold", &database, "")?;
    node.hear("holding")?;
    assert!(locks.try_lock("held-7").await?.is_none());
    node.child.kill()?;
    node.child.wait()?;
    let live = "SELECT COUNT_BIG(*) FROM [latchwork].[lease_host] WHERE [node] = 'child' AND [owned_until] > SYSUTCDATETIME();";
    let first = locks.lock("held-7", SOON).await?.ok_or("never taken over")?;
    assert_eq!(database.count(live).await?, 0, "taken over before the lease had expired");
    // The others with it: one lease for all.
    for number in (0..20).filter(|number| *number != 7) {
        assert!(locks.try_lock(&format!("held-{number}")).await?.is_some(), "{number}");
    }
    assert!(!first.is_lost());
    locks.stop(SOON).await?;
    database.remove().await
}

#[tokio::test(flavor = "multi_thread")]
async fn k01_a_paused_process_learns_on_waking_and_what_it_writes_is_refused() -> Result<(), BoxError> {
    let Some(database) = schema().await else { return Ok(()) };
    let store = database.store("parent").await?;
    store.prepare(SchemaMode::Migrate).await?;
    let mut instance = NewInstance::new("order", 1, "shape", Encoded::from_json("0"));
    instance.id = id();
    store.create(&[instance]).await?;
    let locks = SqlServerLeaseLocks::connect(&options(&database, "parent")).await?;
    let mut node = Node::start("pause", &database, "")?;
    node.hear("holding")?;
    node.signal("STOP")?;
    let guard = locks.lock("paused", SOON).await?.ok_or("never taken over")?;
    assert!(matches!(write(&store, 2).await?, CheckpointOutcome::Committed(_)));
    node.tell("go on")?;
    node.signal("CONT")?;
    for word in ["lost", "expired", "refused", "of another", "mended"] {
        node.hear(word)?;
    }
    assert!(!guard.is_lost());
    let stored = store.load(&id()).await?.ok_or("it is gone")?;
    assert_eq!(stored.data.as_str(), "2");
    locks.stop(SOON).await?;
    store.stop(SOON).await?;
    database.remove().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_work_of_a_killed_host_goes_on_at_another() -> Result<(), BoxError> {
    let Some(database) = schema().await else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("orders.db").display());
    let mut node = Node::start("work", &database, &file)?;
    node.hear("started")?;
    // Calls only, so that the other one runs it.
    let caller = WorkflowHost::builder()
        .namespace(database.namespace.clone())
        .node_id("caller")
        .configure(|options| options.run_workflows = false)
        .use_sqlite_persistence(file.as_str())
        .use_sqlserver_lease_locking_with(options(&database, "caller"))
        .use_local_queue()
        .workflow(Job)
        .start()
        .await?;
    let job = caller.start_workflow::<Job>(Count::default()).await?;
    node.hear("running")?;
    let host = host(&database, "parent", &file, true).await?;
    node.child.kill()?;
    node.child.wait()?;
    let done = tokio::time::timeout(SOON, job.completion()).await??;
    assert_eq!(done.n, 1);
    caller.stop().await?;
    host.stop().await?;
    database.remove().await
}
