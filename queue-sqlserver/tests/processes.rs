//! Several processes on one server, the one that `LATCHWORK_TEST_SQLSERVER` names. The children are this test program itself.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod place;

use latchwork_core::queue::{Delivery, QueueProvider, WorkItem};
use latchwork_testkit::queue::process::{self, Consumer};
use place::{LONG, Place, QUEUE, SERVER, hints};
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

const LEASE: Duration = Duration::from_secs(3);
const NAMESPACE: &str = "LATCHWORK_TEST_QUEUE_NAMESPACE";

/// What a child does when it is started as one; nothing in an ordinary run of the tests.
#[tokio::test]
#[ignore = "the children's part"]
async fn child() {
    let (Ok(server), Ok(namespace)) = (std::env::var(SERVER), std::env::var(NAMESPACE)) else { return };
    let place = Place::existing(server, &namespace);
    process::serve(async || place.open(place.options().with_lease(LEASE)).await).await;
}

async fn start(place: &Place, part: &str) -> Consumer {
    Consumer::start("child", part, &[(NAMESPACE, place.namespace.as_str())]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_had_in_hand_comes_again_when_its_lease_ends() {
    let Some(place) = Place::new() else { return };
    let queue = place.open(place.options().with_lease(LEASE)).await;
    let items = hints(10);
    queue.enqueue(QUEUE, &items).await.expect("queued");
    let mut victim = start(&place, "hold").await;
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

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_claim_at_once_and_each_hint_goes_to_one_of_them() {
    let Some(place) = Place::new() else { return };
    let queue = place.open(place.options()).await;
    let items = hints(1_000);
    queue.enqueue(QUEUE, &items).await.expect("queued");
    let mut consumers = [start(&place, "drain").await, start(&place, "drain").await];
    for consumer in &mut consumers {
        consumer.go().await;
    }
    let mut came = Vec::new();
    for consumer in &mut consumers {
        while let Some((word, rest)) = consumer.next(&["took", "done"]).await {
            if word == "done" {
                break;
            }
            let (instance, attempt) = rest.split_once(' ').expect("two words");
            assert_eq!(attempt, "1");
            came.push(instance.to_owned());
        }
        consumer.ends().await;
    }
    came.sort_unstable();
    let mut queued: Vec<String> = items.iter().map(|item| item.instance.to_string()).collect();
    queued.sort_unstable();
    assert_eq!(came, queued);
    assert_eq!(place.number("SELECT COUNT_BIG(*) FROM [latchwork].[queue];").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_consumer_finds_what_another_process_queues() {
    let Some(place) = Place::new() else { return };
    let queue = place.open(place.options()).await;
    let mut other = start(&place, "enqueue").await;
    let (taken, ()) = tokio::join!(queue.dequeue(QUEUE, 10, LONG), other.go());
    let taken = taken.expect("dequeued");
    assert_eq!(taken.iter().map(Delivery::attempt).collect::<Vec<_>>(), [1]);
    for delivery in taken {
        delivery.ack().await.expect("settled");
    }
    other.ends().await;
}
