//! What is the SQLite queue's own: its file, its faults, its clock, its wiring.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

use latchwork_core::{
    async_trait,
    clock::{Clock, Timestamp},
    name::Namespace,
    options::{ProviderContext, WorkflowOptions},
    queue::{Delivery, QueueError, QueueKind, QueueProvider, Redelivery, WorkItem},
    store::{InstanceId, SchemaMode},
};
use latchwork_queue_sqlite::{SqliteOptions, SqliteQueue, SqliteQueueOptions, UseSqliteQueue};
use latchwork_sqlite_client::{
    SqliteClient,
    sqlx::{self, AssertSqlSafe},
};
use std::{error::Error, path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinSet};

const QUEUE: QueueKind = QueueKind::Workflow;
const LEASE: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(30);

fn context() -> ProviderContext {
    ProviderContext::new(Namespace::default(), "node")
}

fn options(folder: &TempDir) -> SqliteQueueOptions {
    SqliteQueueOptions::new(folder.path().join("queue.db")).with_lease(LEASE)
}

async fn open(options: SqliteQueueOptions, context: &ProviderContext) -> SqliteQueue {
    SqliteQueue::open_with(options, context).await.unwrap_or_else(|error| panic!("{error}"))
}

fn hints(count: usize) -> Vec<WorkItem> {
    (0..count).map(|_| WorkItem::new(InstanceId::new(), "order", 1)).collect()
}

/// One number from the file.
async fn number(client: &SqliteClient, sql: &'static str) -> i64 {
    let mut reader = client.reader().await.unwrap_or_else(|error| panic!("{error}"));
    sqlx::query_scalar(sql).fetch_one(&mut *reader).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Sets the most pages that the file may have, on the writer's connection.
async fn limit_pages(client: &SqliteClient, pages: i64) {
    let set = client.write(move |connection| {
        Box::pin(async move {
            let set = format!("PRAGMA max_page_count = {pages}");
            sqlx::query(AssertSqlSafe(set)).execute(connection).await.map(drop)
        })
    });
    set.await.unwrap_or_else(|error| panic!("{error}"));
}

fn sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

async fn client(folder: &TempDir) -> SqliteClient {
    let options = SqliteOptions::new(folder.path().join("queue.db"));
    SqliteClient::open(options).await.unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_a_clear_error_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(options(&folder), &context()).await;
    let first = hints(3);
    queue.enqueue(QUEUE, &first).await.expect("queued");
    let client = client(&folder).await;
    limit_pages(&client, number(&client, "PRAGMA page_count").await).await;

    let more = hints(2_000);
    let full = queue.enqueue(QUEUE, &more).await.expect_err("the disk is full");
    assert!(full.is_retryable());
    let text = sources(&full);
    assert!(text.contains("enqueue 2000 hints") && text.contains("queue.db") && text.contains("full"), "{text}");

    // What was there can still be worked on.
    let taken = queue.dequeue(QUEUE, 10, LONG).await.expect("dequeued");
    assert_eq!(taken.iter().map(Delivery::item).collect::<Vec<_>>(), first.iter().collect::<Vec<_>>());
    for delivery in taken {
        delivery.ack().await.expect("settled");
    }
    limit_pages(&client, 1_000_000).await;
    queue.enqueue(QUEUE, &more).await.expect("there is room again");
    assert_eq!(queue.depth(QUEUE).await.expect("counted").waiting, 2_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_stays_locked_is_a_clear_error_and_what_is_in_hand_comes_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(&folder);
    options.file = options.file.with_busy_timeout(Duration::from_millis(200));
    let queue = open(options, &context()).await;
    let items = hints(1);
    queue.enqueue(QUEUE, &items).await.expect("queued");
    let delivery = queue.dequeue(QUEUE, 1, LONG).await.expect("dequeued").pop().expect("the hint");
    let transaction = client(&folder).await.begin().await.expect("the write lock");

    let busy = queue.enqueue(QUEUE, &hints(1)).await.expect_err("the file is locked");
    assert!(busy.is_retryable() && sources(&busy).contains("write lock"), "{}", sources(&busy));
    let unsettled = delivery.ack().await.expect_err("the file is locked");
    assert!(unsettled.is_retryable() && unsettled.to_string().contains("settle 1 deliveries"), "{unsettled}");

    transaction.rollback().await.expect("the lock is free");
    let again = queue.dequeue(QUEUE, 1, LONG).await.expect("dequeued").pop().expect("the hint whose ack was not written");
    assert_eq!((again.item(), again.attempt()), (&items[0], 2));
    again.ack().await.expect("settled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k16_the_file_does_not_grow_with_the_hints_that_went_through_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(options(&folder).with_lease(LONG), &context()).await;
    let client = client(&folder).await;
    let (mut used, mut all) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        queue.enqueue(QUEUE, &hints(2_000)).await.expect("queued");
        let mut settlements = JoinSet::new();
        while settlements.len() < 2_000 {
            let taken = queue.dequeue(QUEUE, 2_000, LONG).await.expect("dequeued");
            settlements.extend(taken.into_iter().map(|delivery| async { delivery.ack().await.expect("settled") }));
        }
        // With an acknowledgement still under way the next round would need room for its row, and more or less of it by chance.
        settlements.join_all().await;
        assert_eq!(number(&client, "SELECT count(*) FROM latchwork_queue").await, 0);
        let pages = number(&client, "PRAGMA page_count").await;
        used.push(pages - number(&client, "PRAGMA freelist_count").await);
        all.push(pages);
    }
    assert!(used.iter().all(|pages| *pages == used[0]), "pages in use after each 2,000 hints: {used:?}");
    // Pages that became free are used again; how the writer groups its work makes a few more or less.
    assert!(all.iter().all(|pages| *pages <= all[0] + all[0] / 8), "pages of the file after each 2,000 hints: {all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_enqueue_of_what_waits_already_writes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(options(&folder), &context()).await;
    let items = hints(100);
    queue.enqueue(QUEUE, &items).await.expect("queued");
    let client = client(&folder).await;
    let before = number(&client, "SELECT sum(position) FROM latchwork_queue").await;
    queue.enqueue(QUEUE, &items).await.expect("queued again");
    assert_eq!(number(&client, "SELECT sum(position) FROM latchwork_queue").await, before);
}

/// A clock that goes when it is told to.
#[derive(Debug)]
struct Turned(watch::Sender<Duration>);

impl Turned {
    fn turn(&self, to: Duration) {
        self.0.send_replace(to);
    }
}

#[async_trait]
impl Clock for Turned {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + *self.0.borrow()
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep_until(&self, _: Duration) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delays_and_leases_follow_the_hosts_clock() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(Turned(watch::Sender::new(Duration::from_hours(10))));
    let queue = open(options(&folder), &context().with_clock(clock.clone())).await;
    queue.enqueue(QUEUE, &hints(1)).await.expect("queued");
    let month = Duration::from_hours(24 * 30);
    let delivery = queue.dequeue(QUEUE, 1, LONG).await.expect("dequeued").pop().expect("the hint");
    delivery.nack(month).await.expect("nacked");
    assert!(queue.dequeue(QUEUE, 1, Duration::from_millis(20)).await.expect("dequeued").is_empty());
    clock.turn(Duration::from_hours(10) + month);
    let delivery = queue.dequeue(QUEUE, 1, LONG).await.expect("dequeued").pop().expect("the delayed hint");
    assert_eq!(delivery.attempt(), 1);
    // This clock renews nothing, so that the lease ends by the other one.
    clock.turn(Duration::from_hours(11) + month);
    let again = queue.dequeue(QUEUE, 1, LONG).await.expect("dequeued").pop().expect("the hint with an ended lease");
    assert_eq!(again.attempt(), 2);
    again.ack().await.expect("settled");
    delivery.ack().await.expect("stale, and harmless");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_turned_back_does_not_keep_a_dead_consumers_hint() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(Turned(watch::Sender::new(Duration::from_hours(10))));
    let queue = open(options(&folder), &context().with_clock(clock.clone())).await;
    let items = hints(2);
    queue.enqueue(QUEUE, &items).await.expect("queued");
    let dead = queue.dequeue(QUEUE, 1, LONG).await.expect("dequeued");
    clock.turn(Duration::from_hours(9));
    assert!(queue.dequeue(QUEUE, 1, Duration::from_millis(20)).await.expect("dequeued").is_empty());
    // The poller queues again what is due.
    queue.enqueue(QUEUE, &items).await.expect("queued");
    let waiting = queue.dequeue(QUEUE, 2, LONG).await.expect("dequeued");
    assert_eq!(waiting.iter().map(Delivery::item).collect::<Vec<_>>(), [&items[1]]);
    clock.turn(Duration::from_hours(9) + LEASE);
    let taken = queue.dequeue(QUEUE, 2, LONG).await.expect("dequeued");
    assert!(taken.iter().any(|delivery| delivery.item() == &items[0] && delivery.attempt() == 2), "{taken:?}");
    drop(dead);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_outlives_its_queue_is_settled() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(options(&folder).with_lease(LONG), &context()).await;
    let other = open(options(&folder).with_lease(LONG), &context()).await;
    queue.enqueue(QUEUE, &hints(2)).await.expect("queued");
    let mut taken = queue.dequeue(QUEUE, 2, LONG).await.expect("dequeued");
    drop(queue);
    taken.pop().expect("two").ack().await.expect("settled");
    drop(taken);
    let again = other.dequeue(QUEUE, 2, LONG).await.expect("dequeued");
    assert_eq!(again.iter().map(Delivery::attempt).collect::<Vec<_>>(), [2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_may_not_be_made_is_refused_and_so_are_impossible_options() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = SqliteQueue::open_with(options(&folder), &context().with_schema(SchemaMode::Verify)).await;
    let refused = refused.expect_err("there is no schema");
    assert!(sources(&*refused).contains("schema latchwork_queue"), "{}", sources(&*refused));
    assert!(matches!(refused.downcast_ref::<QueueError>(), Some(error) if !error.is_retryable()));

    let refused = SqliteQueue::open_with(options(&folder).with_lease(Duration::ZERO), &context()).await;
    assert!(refused.expect_err("no lease").to_string().contains("`lease`"));

    open(options(&folder), &context()).await;
    open(options(&folder), &context().with_schema(SchemaMode::Verify)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_is_wired_by_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("queue.db");
    let mut wired = WorkflowOptions::default();
    (&mut wired).use_sqlite_queue(&file);
    assert!(!Path::new(&file).exists(), "nothing opens before the host starts");
    let context = wired.provider_context();
    let queue = wired.open_queue(&context).await.expect("wired").expect("opened");
    let capabilities = queue.capabilities();
    let canonical = file.canonicalize().expect("made");
    assert_eq!(capabilities.domain, format!("sqlite:{}", canonical.display()));
    assert_eq!(capabilities.redelivery, Redelivery::Lease(Duration::from_secs(5)));
    assert!(capabilities.durable && capabilities.native_delay && !capabilities.push);
}
