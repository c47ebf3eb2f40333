//! Several processes on one file. The children are this test program itself, started to be a consumer.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

use latchwork_core::{
    name::Namespace,
    options::ProviderContext,
    queue::{Delivery, QueueKind, QueueProvider, WorkItem},
    store::InstanceId,
};
use latchwork_queue_sqlite::{SqliteQueue, SqliteQueueOptions};
use std::{
    collections::HashSet,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

const QUEUE: QueueKind = QueueKind::Workflow;
const LEASE: Duration = Duration::from_millis(1_500);
/// A hint that has not come by then is lost.
const LONG: Duration = Duration::from_secs(30);
const FILE: &str = "LATCHWORK_TEST_QUEUE_FILE";
const PART: &str = "LATCHWORK_TEST_QUEUE_PART";

async fn open(file: &Path) -> SqliteQueue {
    let options = SqliteQueueOptions::new(file).with_lease(LEASE);
    let context = ProviderContext::new(Namespace::default(), "node");
    SqliteQueue::open_with(options, &context).await.unwrap_or_else(|error| panic!("{error}"))
}

fn hints(count: usize) -> Vec<WorkItem> {
    (0..count).map(|_| WorkItem::new(InstanceId::new(), "order", 1)).collect()
}

/// What a child does when it is started as one; nothing in an ordinary run of the tests.
#[tokio::test]
#[ignore = "the children's part"]
async fn child() {
    let (Ok(file), Ok(part)) = (std::env::var(FILE), std::env::var(PART)) else { return };
    let queue = open(Path::new(&file)).await;
    println!("ready");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    // The parent says when; its end is the child's.
    let Ok(Some(_)) = input.next_line().await else { return };
    match part.as_str() {
        "hold" => {
            let held = queue.dequeue(QUEUE, 100, LONG).await.expect("dequeued");
            println!("holds {}", held.len());
            let _ = input.next_line().await;
            drop(held);
        }
        "drain" => loop {
            let taken = queue.dequeue(QUEUE, 20, Duration::from_millis(500)).await.expect("dequeued");
            if taken.is_empty() {
                break println!("done");
            }
            for delivery in taken {
                println!("took {} {}", delivery.item().instance, delivery.attempt());
                delivery.ack_later();
            }
        },
        "enqueue" => queue.enqueue(QUEUE, &hints(1)).await.expect("queued"),
        other => panic!("{other} is no part"),
    }
    queue.stop(LONG).await.expect("stopped");
}

struct Consumer {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Consumer {
    async fn start(file: &Path, part: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env(FILE, file)
            .env(PART, part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{error}"));
        let input = child.stdin.take().unwrap_or_else(|| panic!("no input"));
        let output = child.stdout.take().unwrap_or_else(|| panic!("no output"));
        let mut consumer = Self { child, input, output: BufReader::new(output).lines() };
        consumer.says("ready").await;
        consumer
    }

    async fn go(&mut self) {
        self.input.write_all(b"go\n").await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// The rest of the next line that begins with this word, or `None` at the end.
    async fn next(&mut self, words: &[&str]) -> Option<(String, String)> {
        while let Some(line) = self.output.next_line().await.unwrap_or_else(|error| panic!("{error}")) {
            // The test harness writes to the same stream, also within a line.
            let found = words.iter().find_map(|word| line.split_once(word).map(|(_, rest)| (*word, rest)));
            if let Some((word, rest)) = found {
                return Some((word.to_owned(), rest.trim().to_owned()));
            }
        }
        None
    }

    async fn says(&mut self, word: &str) -> String {
        self.next(&[word]).await.unwrap_or_else(|| panic!("the child ended without saying {word}")).1
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_had_in_hand_comes_again_when_its_lease_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("queue.db");
    let queue = open(&file).await;
    let items = hints(10);
    queue.enqueue(QUEUE, &items).await.expect("queued");
    let mut victim = Consumer::start(&file, "hold").await;
    victim.go().await;
    assert_eq!(victim.says("holds").await, "10");
    // It lives: its leases are renewed, beyond their length.
    let early = queue.dequeue(QUEUE, 100, LEASE * 2).await.expect("dequeued");
    assert_eq!(early.iter().map(Delivery::item).collect::<Vec<_>>(), Vec::<&WorkItem>::new());

    victim.child.kill().await.expect("killed"); // SIGKILL
    let killed = Instant::now();
    let mut came = HashSet::new();
    while came.len() < items.len() && killed.elapsed() < LONG {
        for delivery in queue.dequeue(QUEUE, 100, LONG).await.expect("dequeued") {
            assert_eq!(delivery.attempt(), 2);
            came.insert(delivery.item().clone());
            delivery.ack().await.expect("settled");
        }
    }
    assert_eq!(came, items.into_iter().collect());
    assert_eq!(queue.depth(QUEUE).await.expect("counted").waiting, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_drain_one_queue_and_each_hint_goes_to_one_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("queue.db");
    let queue = open(&file).await;
    let items = hints(2_000);
    queue.enqueue(QUEUE, &items).await.expect("queued");
    let mut consumers = vec![Consumer::start(&file, "drain").await, Consumer::start(&file, "drain").await];
    for consumer in &mut consumers {
        consumer.go().await;
    }
    let mut came = Vec::new();
    for consumer in &mut consumers {
        let before = came.len();
        while let Some((word, rest)) = consumer.next(&["took", "done"]).await {
            if word == "done" {
                break;
            }
            let (instance, attempt) = rest.split_once(' ').expect("two words");
            assert_eq!(attempt, "1");
            came.push(instance.to_owned());
        }
        assert!(came.len() > before, "a process got nothing");
        assert!(consumer.child.wait().await.expect("ended").success());
    }
    came.sort_unstable();
    let mut queued: Vec<String> = items.iter().map(|item| item.instance.to_string()).collect();
    queued.sort_unstable();
    assert_eq!(came, queued);
    let depth = queue.depth(QUEUE).await.expect("counted");
    assert_eq!((depth.waiting, depth.in_hand), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_consumer_finds_what_another_process_queues() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("queue.db");
    let queue = open(&file).await;
    let mut other = Consumer::start(&file, "enqueue").await;
    let (taken, ()) = tokio::join!(queue.dequeue(QUEUE, 10, LONG), other.go());
    let taken = taken.expect("dequeued");
    assert_eq!(taken.iter().map(Delivery::attempt).collect::<Vec<_>>(), [1]);
    for delivery in taken {
        delivery.ack().await.expect("settled");
    }
    assert!(other.child.wait().await.expect("ended").success());
}
