//! Several processes on one file. The children are this test program itself, started to be a consumer.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

use latchwork_core::{
    name::Namespace,
    options::ProviderContext,
    queue::{Delivery, QueueKind, QueueProvider, WorkItem},
    store::InstanceId,
};
use latchwork_queue_sqlite::{SqliteQueue, SqliteQueueOptions};
use latchwork_testkit::queue::process::{self, Consumer};
use std::{
    collections::HashSet,
    path::Path,
    time::{Duration, Instant},
};

const QUEUE: QueueKind = QueueKind::Workflow;
const LEASE: Duration = Duration::from_millis(1_500);
/// A hint that has not come by then is lost.
const LONG: Duration = Duration::from_secs(30);
const FILE: &str = "LATCHWORK_TEST_QUEUE_FILE";

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
    let Ok(file) = std::env::var(FILE) else { return };
    process::serve(async || open(Path::new(&file)).await).await;
}

async fn start(file: &Path, part: &str) -> Consumer {
    Consumer::start("child", part, &[(FILE, &file.display().to_string())]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_had_in_hand_comes_again_when_its_lease_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("queue.db");
    let queue = open(&file).await;
    let items = hints(10);
    queue.enqueue(QUEUE, &items).await.expect("queued");
    let mut victim = start(&file, "hold").await;
    victim.go().await;
    assert_eq!(victim.says("holds").await, "10");
    // It lives: its leases are renewed, beyond their length.
    let early = queue.dequeue(QUEUE, 100, LEASE * 2).await.expect("dequeued");
    assert_eq!(early.iter().map(Delivery::item).collect::<Vec<_>>(), Vec::<&WorkItem>::new());

    victim.kill().await;
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
    let mut consumers = vec![start(&file, "drain").await, start(&file, "drain").await];
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
        consumer.ends().await;
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
    let mut other = start(&file, "enqueue").await;
    let (taken, ()) = tokio::join!(queue.dequeue(QUEUE, 10, LONG), other.go());
    let taken = taken.expect("dequeued");
    assert_eq!(taken.iter().map(Delivery::attempt).collect::<Vec<_>>(), [1]);
    for delivery in taken {
        delivery.ack().await.expect("settled");
    }
    other.ends().await;
}
