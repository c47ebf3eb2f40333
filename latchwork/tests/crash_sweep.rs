//! A process is killed at every write boundary in turn, before and after each, and at random moments; then it is started again. The end is
//! the same, no step is lost, and each body runs at most once more than its checkpoints.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

use latchwork::{
    core::options::ProviderContext,
    prelude::*,
    store::{EventId, NewEvent},
};
use latchwork_persistence_sqlite::SqliteStore;
use latchwork_sqlite_client::{SqliteClient, SqliteOptions, SqliteTransaction, sqlx};
use latchwork_testkit::faults::{FaultyStore, StoreCall};
use std::{
    collections::HashMap,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

/// Tells the child its folder; without it the child's test does nothing.
const FOLDER: &str = "LATCHWORK_SWEEP_FOLDER";
/// Tells the child where to die: `Commit 3 before`.
const DEATH: &str = "LATCHWORK_SWEEP_DEATH";
const RANDOM_KILLS: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Log {
    steps: Vec<String>,
}

/// The effects of steps, in a file that the engine knows nothing of.
struct Ledger(PathBuf);

impl Ledger {
    fn enter(&self, step: &str, cx: &StepContext) -> StepResult<()> {
        let mut file = File::options().append(true).create(true).open(&self.0)?;
        // One write: a line is there whole or not at all.
        file.write_all(format!("{step} {}\n", cx.idempotency_key()).as_bytes())?;
        Ok(())
    }
}

/// Parallel branches, an event, a timer, a retry, a loop over items.
struct Sweep;

impl Workflow for Sweep {
    type Data = Log;
    const ID: &'static str = "sweep";

    fn build(&self, flow: &mut WorkflowBuilder<Log>) {
        fn step<S: latchwork::Scope<Data = Log>>(flow: &mut WorkflowBuilder<S>, name: &'static str) {
            flow.step_with(name, move |_| Ok(Effect { name }))
                .output(move |_, log| log.steps.push(name.to_owned()))
                .on_error(Retry::fixed(Duration::from_millis(5)).max_attempts(5));
        }
        step(flow, "begin");
        flow.parallel("both", |both| {
            both.branch("left", |b| step(b, "flaky"));
            both.branch("right", |b| {
                b.wait_for("go", |_| "now".to_owned());
                step(b, "after event");
            });
        });
        flow.delay("pause", Duration::from_millis(10));
        step(flow, "after timer");
        flow.for_each("items", |_| vec![1, 2, 3], |each| step(each, "item"));
        flow.run("book", book)
            .transactional()
            .output(|(), log| log.steps.push("book".to_owned()))
            .on_error(Retry::fixed(Duration::from_millis(5)).max_attempts(5));
        flow.saga("trip", |saga| {
            for name in ["flight", "hotel"] {
                saga.step_with(name, move |_| Ok(Effect { name }))
                    .output(move |_, log| log.steps.push(name.to_owned()))
                    .compensate_sequence(move |undo| {
                        let name: &'static str = if name == "flight" { "no flight" } else { "no hotel" };
                        step(undo, name);
                    });
            }
            saga.run("car", async |_, _| Err::<(), _>("no car".into())).on_error(Retry::never());
        })
        .on_error(Retry::never().then_continue());
        step(flow, "end");
    }
}

/// Writes to a table of the business, in the transaction of the step's checkpoint.
async fn book(_: &Log, cx: &StepContext) -> StepResult<()> {
    let mut transaction = cx.transaction().await?;
    let sql = transaction.of::<SqliteTransaction>()?;
    sqlx::query("INSERT INTO booking (key) VALUES (?)").bind(cx.idempotency_key()).execute(&mut **sql).await?;
    Ok(())
}

async fn make_booking_table(file: &Path) {
    let client = SqliteClient::open(SqliteOptions::new(file)).await.expect("opened");
    let mut transaction = client.begin().await.expect("begun");
    let table = sqlx::query("CREATE TABLE IF NOT EXISTS booking (key TEXT NOT NULL)");
    table.execute(&mut *transaction).await.expect("made");
    transaction.commit().await.expect("committed");
    client.close().await;
}

/// The rows of the business.
fn bookings(file: &Path) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = SqliteClient::open(SqliteOptions::new(file)).await.expect("opened");
        let mut reader = client.reader().await.expect("a reader");
        let rows = sqlx::query_scalar("SELECT key FROM booking").fetch_all(&mut *reader).await.expect("read");
        drop(reader);
        client.close().await;
        rows
    })
}

struct Effect {
    name: &'static str,
}

impl StepBody for Effect {
    async fn run(&mut self, cx: &StepContext) -> StepResult {
        if self.name == "flaky" && cx.attempt() == 1 {
            return Err("the first try fails".into());
        }
        cx.service::<Ledger>()?.enter(self.name, cx)?;
        Ok(ExecutionResult::next())
    }
}

/// One life of the process: starts the instance if there is none, publishes the event, waits for the end.
#[test]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(live(Path::new(&folder)));
}

async fn live(folder: &Path) {
    make_booking_table(&folder.join("store.db")).await;
    let context = ProviderContext::new(Namespace::default(), "node");
    let options = SqliteOptions::parse(&folder.join("store.db").to_string_lossy()).expect("a path");
    let store = FaultyStore::new(SqliteStore::open(options, &context).await.expect("the store opens"));
    let faults = store.faults().clone();
    if let Ok(death) = std::env::var(DEATH) {
        let [call, number, side] = death.split(' ').collect::<Vec<_>>()[..] else { panic!("{death}?") };
        let call = CALLS.into_iter().find(|known| format!("{known:?}") == call).expect("a call");
        let rule = faults.on(call).skip(number.parse().expect("a number")).once();
        let gate = if side == "before" { rule.hold() } else { rule.hold_answer() };
        std::thread::spawn(move || {
            while gate.arrived() == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
            std::process::abort();
        });
    }
    let host = WorkflowHost::builder()
        .use_local_locking()
        .use_local_queue()
        .configure(|options| {
            options.use_persistence(async move |_| Ok(store));
        })
        .poll_interval(Duration::from_millis(50))
        .service(Ledger(folder.join("ledger")))
        .workflow(Sweep)
        .start()
        .await
        .expect("the host starts");
    let handle = host.start_workflow::<Sweep>(Log::default()).business_key("one").await.expect("started");
    let event: EventId = "01900000-0000-7000-8000-000000000001".parse().expect("an id");
    host.publish(NewEvent::new("go", "now").with_id(event)).await.expect("published");
    let done = handle.completion().timeout(Duration::from_secs(60)).await.expect("it ends");
    host.stop().await.expect("the host stops");
    let counts: Vec<String> = CALLS.into_iter().map(|call| faults.count(call).to_string()).collect();
    fs::write(folder.join("counts"), counts.join(" ")).expect("counts");
    fs::write(folder.join("done"), serde_json::to_string(&done).expect("json")).expect("the end");
}

/// The calls that write.
const CALLS: [StoreCall; 4] = [StoreCall::Create, StoreCall::Publish, StoreCall::Commit, StoreCall::CommitStep];

fn spawn(folder: &Path, death: Option<&str>) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().expect("this test's file"));
    command.args(["child", "--exact", "--nocapture"]).env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(death) = death {
        command.env(DEATH, death);
    }
    command.spawn().expect("a process")
}

/// Lets the process live to its end, and holds the end against what must be; `kills` lives were cut off before.
fn check(folder: &Path, kills: usize, what: &str) {
    let status = spawn(folder, None).wait().expect("waited");
    assert!(status.success(), "{what}: the last life failed");
    let mut done: Log = serde_json::from_str(&fs::read_to_string(folder.join("done")).expect("the end")).expect("json");
    done.steps.sort();
    let all = [
        "after event",
        "after timer",
        "begin",
        "book",
        "end",
        "flaky",
        "flight",
        "hotel",
        "item",
        "item",
        "item",
        "no flight",
        "no hotel",
    ];
    assert_eq!(done.steps, all, "{what}: the end differs");
    // Neither half of a transactional step stands alone: its row is there once, however often it was tried.
    assert_eq!(bookings(&folder.join("store.db")).len(), 1, "{what}: the step's own row");
    let expected: Vec<&str> = all.into_iter().filter(|step| *step != "book").collect();
    let ledger = fs::read_to_string(folder.join("ledger")).expect("the ledger");
    let mut by_key: HashMap<&str, (&str, usize)> = HashMap::new();
    for line in ledger.lines() {
        let (step, key) = line.rsplit_once(' ').expect("a step and a key");
        by_key.entry(key).or_insert((step, 0)).1 += 1;
    }
    let mut steps: Vec<&str> = by_key.values().map(|(step, _)| *step).collect();
    steps.sort_unstable();
    assert_eq!(steps, expected, "{what}: each piece of work has one key, in all lives");
    for (key, (step, runs)) in by_key {
        assert!(runs <= 1 + kills, "{what}: `{step}` ran {runs} times with {kills} kills, as {key}");
    }
}

#[test]
fn killed_at_every_write_boundary_it_ends_the_same() {
    let clean = tempfile::tempdir().expect("a folder");
    check(clean.path(), 0, "without a kill");
    let counts = fs::read_to_string(clean.path().join("counts")).expect("counts");
    let counts: Vec<usize> = counts.split(' ').map(|count| count.parse().expect("a count")).collect();
    let commits = counts[2];
    assert!(commits >= 8, "a checkpoint follows each body; there were {commits}");
    let mut deaths = Vec::new();
    for (call, count) in CALLS.into_iter().zip(counts) {
        for number in 0..count {
            deaths.extend(["before", "after"].map(|side| format!("{call:?} {number} {side}")));
        }
    }
    in_parallel(deaths.len(), |index| {
        let folder = tempfile::tempdir().expect("a folder");
        let status = spawn(folder.path(), Some(&deaths[index])).wait().expect("waited");
        // How checkpoints fall together varies: the last numbers may not be reached.
        check(folder.path(), usize::from(!status.success()), &deaths[index]);
    });
}

#[test]
fn killed_at_random_moments_it_ends_the_same() {
    let clean = tempfile::tempdir().expect("a folder");
    let start = Instant::now();
    check(clean.path(), 0, "without a kill");
    let life = start.elapsed();
    in_parallel(RANDOM_KILLS, |index| {
        let folder = tempfile::tempdir().expect("a folder");
        let share = (index as u32).wrapping_mul(2_654_435_769) >> 16;
        let moment = life * share / (1 << 16);
        let mut child = spawn(folder.path(), None);
        std::thread::sleep(moment);
        child.kill().expect("killed");
        let killed = !child.wait().expect("waited").success();
        check(folder.path(), usize::from(killed), &format!("killed after {moment:?}"));
    });
}

/// Some at a time: most of a life is waiting for the disk.
fn in_parallel(count: usize, run: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    run(index);
                }
            });
        }
    });
}
