//! What goes wrong on the way to the server that `LATCHWORK_TEST_SQLSERVER` names, through a proxy.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod place;

use latchwork_core::queue::{QueueProvider, WorkItem};
use latchwork_queue_sqlserver::{SqlServerQueue, SqlServerQueueOptions};
use latchwork_sqlserver_client::SqlServerOptions;
use latchwork_testkit::proxy::{Cut, Proxy, Way};
use place::{LONG, Place, QUEUE, hints, patient};
use std::time::Duration;

/// A queue whose way to the server can be cut.
struct Remote {
    proxy: Proxy,
    queue: SqlServerQueue,
}

impl Remote {
    async fn open(place: &Place, lease: Duration) -> Self {
        let server = SqlServerOptions::new(place.connection_string.as_str()).server();
        let (host, port) = server.split_once(',').unwrap_or((&server, "1433"));
        let proxy = Proxy::start(format!("{host}:{port}")).await.expect("a proxy");
        // The last server counts.
        let through = format!("{};Server=tcp:127.0.0.1,{}", place.connection_string, proxy.address().port());
        let options = patient(SqlServerQueueOptions::new(through)).with_lease(lease);
        Self { queue: place.open(options).await, proxy }
    }

    /// Lets a request reach the server, or not even that, and cuts the connection before there is an answer.
    async fn cut_at(&self, way: Way) {
        self.proxy.until_held(way).await;
        self.proxy.cut(Cut::Reset).await;
        self.proxy.carry_on();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_enqueue_whose_answer_is_lost_is_said_again_and_queues_once() {
    let Some(place) = Place::new() else { return };
    for way in [Way::Requests, Way::Answers] {
        let remote = Remote::open(&place, LONG).await;
        let items = hints(10);
        remote.proxy.hold(way);
        let (queued, ()) = tokio::join!(remote.queue.enqueue(QUEUE, &items), remote.cut_at(way));
        queued.expect("queued by another try");
        assert_eq!(came(&remote.queue, items.len()).await, items, "{way:?}");
        assert_eq!(place.number("SELECT COUNT_BIG(*) FROM [latchwork].[queue];").await, 0, "{way:?}");
    }
}

/// Takes and acknowledges so many hints, in the order in which they come.
async fn came(queue: &SqlServerQueue, count: usize) -> Vec<WorkItem> {
    let mut came = Vec::new();
    while came.len() < count {
        let taken = queue.dequeue(QUEUE, 100, LONG).await.expect("dequeued");
        assert!(!taken.is_empty(), "{} of {count} hints came", came.len());
        for delivery in taken {
            came.push(delivery.item().clone());
            delivery.ack().await.expect("settled");
        }
    }
    came
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_whose_answer_is_lost_is_said_again() {
    let Some(place) = Place::new() else { return };
    for way in [Way::Requests, Way::Answers] {
        let remote = Remote::open(&place, LONG).await;
        remote.queue.enqueue(QUEUE, &hints(2)).await.expect("queued");
        let mut taken = remote.queue.dequeue(QUEUE, 2, LONG).await.expect("dequeued");
        let (acknowledged, nacked) = (taken.remove(0), taken.remove(0));
        let kept = nacked.item().clone();
        remote.proxy.hold(way);
        let (settled, again, ()) = tokio::join!(acknowledged.ack(), nacked.nack(Duration::ZERO), remote.cut_at(way));
        settled.and(again).expect("settled by another try");
        let back = remote.queue.dequeue(QUEUE, 2, LONG).await.expect("dequeued");
        assert_eq!(
            back.iter().map(|delivery| (delivery.item(), delivery.attempt())).collect::<Vec<_>>(),
            [(&kept, 1)],
            "{way:?}"
        );
        for delivery in back {
            delivery.ack().await.expect("settled");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_of_a_claim_whose_answer_is_lost_come_again_when_its_lease_ends() {
    let Some(place) = Place::new() else { return };
    let remote = Remote::open(&place, Duration::from_secs(3)).await;
    let items = hints(5);
    place.open(place.options()).await.enqueue(QUEUE, &items).await.expect("queued");
    remote.proxy.hold(Way::Answers);
    let (taken, ()) = tokio::join!(remote.queue.dequeue(QUEUE, 5, LONG), remote.cut_at(Way::Answers));
    let mut taken = taken.expect("the second try takes what the first has not");
    while taken.len() < items.len() {
        let more = remote.queue.dequeue(QUEUE, 5, LONG).await.expect("dequeued");
        assert!(!more.is_empty(), "{} of 5 hints came", taken.len());
        taken.extend(more);
    }
    let mut came: Vec<_> = taken.iter().map(|delivery| delivery.item().clone()).collect();
    came.sort_by_key(|item| items.iter().position(|queued| queued == item));
    assert_eq!(came, items, "each came once");
    assert!(taken.iter().all(|delivery| delivery.attempt() == 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_told_and_work_goes_on_when_it_is_back() {
    let Some(place) = Place::new() else { return };
    let remote = Remote::open(&place, LONG).await;
    remote.queue.enqueue(QUEUE, &hints(1)).await.expect("queued");
    let held = remote.queue.dequeue(QUEUE, 1, LONG).await.expect("dequeued").pop().expect("the hint");
    remote.proxy.refuse(true);
    remote.proxy.cut(Cut::Reset).await;
    let away = remote.queue.dequeue(QUEUE, 1, Duration::ZERO).await.expect_err("the server is away");
    assert!(away.is_retryable() && away.to_string().contains("sqlserver"), "{away}");
    remote.proxy.refuse(false);
    // A session that broke meanwhile is replaced; the delivery is still this one's.
    held.ack().await.expect("settled");
    let items = hints(3);
    remote.queue.enqueue(QUEUE, &items).await.expect("queued");
    assert_eq!(came(&remote.queue, 3).await, items);
    remote.queue.stop(LONG).await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_within_its_grace_also_when_the_server_is_silent() {
    let Some(place) = Place::new() else { return };
    let remote = Remote::open(&place, Duration::from_secs(2)).await;
    let items = hints(2);
    remote.queue.enqueue(QUEUE, &items).await.expect("queued");
    let held = remote.queue.dequeue(QUEUE, 2, LONG).await.expect("dequeued");
    remote.proxy.hold(Way::Answers);
    remote.proxy.hold(Way::Requests);
    let stopped = remote.queue.stop(Duration::from_millis(300)).await.expect_err("nothing was confirmed");
    assert!(stopped.is_retryable(), "{stopped}");
    drop(held);
    let other = place.open(place.options()).await;
    let mut came = Vec::new();
    while came.len() < 2 {
        came.extend(other.dequeue(QUEUE, 2, LONG).await.expect("dequeued"));
    }
    assert!(came.iter().all(|delivery| items.contains(delivery.item())));
}
