//! What is the local queue's own: its bound, its clock, its wiring.

use latchwork_core::{
    async_trait,
    clock::{Clock, Timestamp},
    options::WorkflowOptions,
    queue::{Delivery, QueueError, QueueKind, QueueProvider, WorkItem},
    store::InstanceId,
};
use latchwork_queue_local::{LocalQueue, LocalQueueOptions, UseLocalQueue};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

const QUEUE: QueueKind = QueueKind::Workflow;
const NEVER: Duration = Duration::from_hours(1);

/// A clock that goes when it is told to.
#[derive(Debug)]
struct Turned(watch::Sender<Duration>);

impl Turned {
    fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(Duration::ZERO)))
    }

    fn turn(&self, by: Duration) {
        self.0.send_modify(|now| *now += by);
    }
}

#[async_trait]
impl Clock for Turned {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + *self.0.borrow()
    }

    fn monotonic(&self) -> Duration {
        *self.0.borrow()
    }

    async fn sleep_until(&self, deadline: Duration) {
        let _ = self.0.subscribe().wait_for(|now| *now >= deadline).await;
    }
}

fn hints(count: usize) -> Vec<WorkItem> {
    (0..count).map(|_| WorkItem::new(InstanceId::new(), "order", 1)).collect()
}

async fn take(queue: &LocalQueue, max: usize) -> Vec<Delivery> {
    queue.dequeue(QUEUE, max, Duration::ZERO).await.unwrap_or_default()
}

#[tokio::test]
async fn a_full_queue_keeps_what_it_has_and_counts_what_it_drops() {
    let queue = LocalQueue::with_options(LocalQueueOptions::default().with_capacity(3)).expect("valid");
    let items = hints(5);
    queue.enqueue(QUEUE, &items).await.expect("dropping is no error");
    let depth = queue.depth(QUEUE).await.expect("open");
    assert_eq!((depth.waiting, depth.dropped, depth.capacity), (3, 2, Some(3)));
    let taken = take(&queue, 10).await;
    assert_eq!(taken.iter().map(Delivery::item).collect::<Vec<_>>(), items.iter().take(3).collect::<Vec<_>>());
}

#[test]
fn a_queue_without_room_is_refused() {
    let refused = LocalQueue::with_options(LocalQueueOptions::default().with_capacity(0));
    assert_eq!(refused.expect_err("no room").setting, "capacity");
}

#[tokio::test]
async fn a_delay_follows_the_clock_that_was_given() {
    let clock = Turned::new();
    let queue = LocalQueue::with_options(LocalQueueOptions::default().with_clock(clock.clone())).expect("valid");
    queue.enqueue(QUEUE, &hints(1)).await.expect("queued");
    take(&queue, 1).await.pop().expect("the hint").nack(Duration::from_hours(24 * 30)).await.expect("nacked");
    assert!(take(&queue, 1).await.is_empty());
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.dequeue(QUEUE, 1, NEVER).await }
    });
    tokio::task::yield_now().await;
    clock.turn(Duration::from_hours(24 * 30));
    assert_eq!(waiting.await.expect("joined").expect("open").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_waiting_consumer_learns_of_an_earlier_due_time() {
    let queue = LocalQueue::new();
    queue.enqueue(QUEUE, &hints(2)).await.expect("queued");
    let (late, soon) = {
        let mut taken = take(&queue, 2).await;
        (taken.pop().expect("two"), taken.pop().expect("one"))
    };
    late.nack(Duration::from_secs(60)).await.expect("nacked");
    let consumers: Vec<_> = (0..3)
        .map(|number| {
            let queue = queue.clone();
            // The first of them leaves before anything is due.
            let wait = if number == 0 { Duration::from_millis(5) } else { NEVER };
            tokio::spawn(async move { queue.dequeue(QUEUE, 1, wait).await.map(|taken| taken.len()) })
        })
        .collect();
    tokio::task::yield_now().await;
    soon.nack(Duration::from_millis(50)).await.expect("nacked");
    let mut came = Vec::new();
    for consumer in consumers {
        came.push(consumer.await.expect("joined").expect("open"));
    }
    assert_eq!(came, [0, 1, 1]);
}

#[tokio::test]
async fn one_hint_wakes_one_consumer_and_a_batch_wakes_as_many_as_it_feeds() {
    let queue = LocalQueue::new();
    let consumers: Vec<_> = (0..8)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.dequeue(QUEUE, 1, NEVER).await.map(|taken| taken.len()) })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.enqueue(QUEUE, &hints(8)).await.expect("queued");
    for consumer in consumers {
        assert_eq!(consumer.await.expect("joined").expect("open"), 1);
    }
}

#[tokio::test]
async fn a_delivery_may_be_dropped_outside_a_runtime_and_after_its_queue() {
    let queue = LocalQueue::new();
    queue.enqueue(QUEUE, &hints(2)).await.expect("queued");
    let mut taken = take(&queue, 2).await;
    let last = taken.pop();
    std::thread::spawn(move || drop(taken)).join().expect("no panic");
    assert_eq!(take(&queue, 10).await.first().map(Delivery::attempt), Some(2));
    drop(queue);
    drop(last);
}

#[tokio::test]
async fn a_settlement_after_the_stop_says_that_the_queue_was_stopped() {
    let queue = LocalQueue::new();
    queue.enqueue(QUEUE, &hints(1)).await.expect("queued");
    let held = take(&queue, 1).await.pop().expect("the hint");
    queue.stop(Duration::ZERO).await.expect("stopped");
    assert!(matches!(held.ack().await, Err(QueueError::Stopped { .. })));
    assert_eq!(queue.clone().depth(QUEUE).await.expect("a handle of its own").waiting, 1);
}

#[tokio::test]
async fn hosts_of_one_process_share_a_queue_when_they_are_told_to() {
    let shared = LocalQueue::new();
    let mut hosts = Vec::new();
    for _ in 0..2 {
        let mut options = WorkflowOptions::default();
        (&mut options).use_shared_local_queue(&shared);
        let context = options.provider_context();
        hosts.push(options.open_queue(&context).await.expect("wired").expect("opened"));
    }
    let [first, second] = hosts.try_into().expect("two");
    first.enqueue(QUEUE, &hints(1)).await.expect("queued");
    first.stop(Duration::ZERO).await.expect("stopped");
    assert_eq!(second.dequeue(QUEUE, 1, Duration::ZERO).await.expect("still open").len(), 1);
    assert_eq!(first.capabilities().domain, second.capabilities().domain);
}

#[tokio::test]
async fn a_host_gives_its_queue_its_clock_and_refuses_impossible_options() {
    let clock = Turned::new();
    let mut options = WorkflowOptions::default();
    options.clock = clock.clone();
    (&mut options).use_local_queue();
    let context = options.provider_context();
    let queue = options.open_queue(&context).await.expect("wired").expect("opened");
    queue.enqueue(QUEUE, &hints(1)).await.expect("queued");
    clock.turn(NEVER);
    assert_eq!(queue.depth(QUEUE).await.expect("open").oldest, Some(NEVER));

    (&mut options).use_local_queue_with(LocalQueueOptions::default().with_capacity(0));
    let refused = options.open_queue(&context).await.expect("wired").expect_err("no room");
    assert!(refused.to_string().contains("`capacity`"), "{refused}");
}
