//! Leases with a table in memory: the conformance suite, and what goes wrong between a node and its server, on virtual clocks.

#![cfg(feature = "lock")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[path = "lease/table.rs"]
mod table;

use latchwork_core::{
    BoxError,
    clock::{Clock, SystemClock},
    lock::{
        DistributedLockProvider, LockError, LockKey, LockProviderExt, LockRequest, Loss, Wait,
        lease::{LeaseAnswer, LeaseLocks, LeaseOptions},
    },
};
use latchwork_testkit::{clock::VirtualClock, lock::Fixture};
use std::{sync::Arc, time::Duration};
use table::{Fault, Faults, Server, Table};

const SECOND: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_secs(20);

async fn suite() -> Result<Fixture, BoxError> {
    let server = Server::new(Arc::new(SystemClock::new()));
    let node = async |name: &str| {
        let table = Table { server: server.clone(), faults: Arc::default() };
        let options = LeaseOptions::default().with_node(name).with_renewal_period(SECOND).with_margin(SECOND);
        Ok::<_, LockError>((LeaseLocks::connect(table.clone(), options).await?, table))
    };
    let ((one, table), (other, _)) = (node("one").await?, node("other").await?);
    Ok(Fixture::new(one, other).with_break(move || {
        // No renewal of the lease that it has now arrives; the next lease is a sound one.
        *table.faults.broken.lock().unwrap() = table.server.hosts_of("one").first().copied();
        std::future::ready(())
    }))
}

mod on_a_table_in_memory {
    latchwork_testkit::lock_conformance!(super::suite);
}

/// A node, and its clock.
struct Node {
    locks: LeaseLocks,
    clock: VirtualClock,
    faults: Arc<Faults>,
}

/// Two nodes and their server, each with a clock of its own.
struct World {
    clock: VirtualClock,
    server: Arc<Server>,
    one: Node,
    other: Node,
}

impl World {
    async fn new() -> Self {
        let clock = VirtualClock::new();
        let server = Server::new(Arc::new(clock.clone()));
        let (one, other) = (Self::node(&server, "one").await, Self::node(&server, "other").await);
        server.done();
        Self { clock, server, one, other }
    }

    async fn node(server: &Arc<Server>, name: &str) -> Node {
        let (clock, faults) = (VirtualClock::new(), Arc::<Faults>::default());
        let options = LeaseOptions::default().with_node(name).with_clock(Arc::new(clock.clone()));
        let table = Table { server: server.clone(), faults: faults.clone() };
        Node { locks: LeaseLocks::connect(table, options).await.expect("connected"), clock, faults }
    }

    /// Time goes by everywhere, in steps.
    async fn pass(&self, span: Duration) {
        let end = self.clock.monotonic() + span;
        while self.clock.monotonic() < end {
            self.clock.advance(STEP);
            self.one.clock.advance(STEP);
            self.other.clock.advance(STEP);
            settle().await;
        }
    }
}

/// Lets all tasks do what they can do now.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

impl Node {
    async fn has(&self, name: &str) -> latchwork_core::lock::LockGuard {
        self.locks.try_lock(name).await.expect("answered").expect("free")
    }

    async fn finds_held(&self, name: &str) -> bool {
        self.locks.try_lock(name).await.expect("answered").is_none()
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_keep_a_lease_and_their_number_does_not_grow_with_the_locks() {
    let world = World::new().await;
    let mut guards = Vec::new();
    for number in 0..1_000 {
        guards.push(world.one.has(&format!("lock-{number}")).await);
    }
    world.server.done();
    world.pass(600 * SECOND).await;
    assert!(!guards.iter().any(latchwork_core::lock::LockGuard::is_lost));
    assert!(world.other.finds_held("lock-7").await);
    let done = world.server.done();
    let renewals = done.iter().filter(|what| **what == "renew").count();
    assert!((38..=40).contains(&renewals), "{renewals} renewals of two nodes in ten minutes");
    assert_eq!(done.len(), renewals + 1, "an idle node does nothing but renew: {done:?}");
}

#[tokio::test(start_paused = true)]
async fn renewals_that_fail_are_tried_again_and_one_in_time_keeps_the_lease() {
    let world = World::new().await;
    let guard = world.one.has("x").await;
    world.one.faults.renew.send_replace(Fault::Refused);
    world.pass(50 * SECOND).await;
    world.one.faults.renew.send_replace(Fault::None);
    world.pass(120 * SECOND).await;
    assert!(!guard.is_lost() && world.other.finds_held("x").await);
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_told_of_the_loss_by_itself_and_before_another_can_be_granted() {
    for fault in [Fault::Refused, Fault::Unanswered, Fault::AnsweredLate] {
        let world = World::new().await;
        world.pass(10 * SECOND).await;
        let guard = world.one.has("x").await;
        let told = tokio::spawn(guard.lost());
        if fault != Fault::Refused {
            // One renewal more is done, and not heard of.
            world.pass(15 * SECOND).await;
        }
        world.one.faults.renew.send_replace(fault);
        let granted = loop {
            world.pass(STEP).await;
            if let Some(granted) = world.other.locks.try_lock("x").await.expect("answered") {
                break granted;
            }
            assert!(world.clock.monotonic() < 300 * SECOND, "{fault:?}: it is never free");
        };
        assert!(told.is_finished(), "{fault:?}: granted to another before the holder was told");
        assert_eq!(guard.lost().await, Loss::LeaseExpired);
        assert!(granted.fencing_token() > guard.fencing_token());
        // Neither a stale release nor a late answer touches the newer grant.
        world.one.faults.renew.send_replace(Fault::None);
        settle().await;
        guard.release().await.expect("harmless");
        assert!(world.one.finds_held("x").await && !granted.is_lost());
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_deadline_revives_nothing() {
    let world = World::new().await;
    let guard = world.one.has("x").await;
    let before = world.server.hosts_of("one");
    world.pass(25 * SECOND).await;
    world.one.faults.renew.send_replace(Fault::AnsweredLate);
    // Sent at 30 s and done: the server would keep the lease until 90 s. Here it ended at 54 s.
    world.pass(40 * SECOND).await;
    assert!(guard.is_lost());
    assert_eq!(world.server.hosts_of("one"), before, "for the server it is live");
    world.one.faults.renew.send_replace(Fault::None);
    world.pass(SECOND).await;
    assert!(guard.is_lost());
    let again = world.one.has("x").await;
    assert_ne!(world.server.hosts_of("one"), before, "a new host, and the old one ended");
    assert_eq!(world.server.hosts_of("one").len(), 1);
    guard.release().await.expect("harmless");
    assert!(world.other.finds_held("x").await && !again.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_paused_holder_learns_by_its_first_call_after_waking() {
    let world = World::new().await;
    let (guard, second) = (world.one.has("x").await, world.one.has("y").await);
    // No task of the node runs meanwhile.
    world.clock.advance(61 * SECOND);
    world.one.clock.advance(61 * SECOND);
    assert!(guard.is_lost());
    assert!(second.lost_token().is_cancelled());
    // It may ask again at once, as a new host.
    let again = world.one.has("x").await;
    assert!(!again.is_lost() && again.fencing_token() > guard.fencing_token());
}

#[tokio::test(start_paused = true)]
async fn a_suspended_machine_learns_although_its_monotonic_clock_stood_still() {
    let world = World::new().await;
    let (guard, second) = (world.one.has("x").await, world.one.has("y").await);
    let told = tokio::spawn(second.lost());
    settle().await;
    world.clock.advance(61 * SECOND);
    world.one.clock.jump_forward(61 * SECOND);
    assert!(guard.is_lost(), "by the first call");
    world.one.clock.advance(SECOND);
    settle().await;
    assert!(told.is_finished(), "and by itself within a second");
}

#[tokio::test(start_paused = true)]
async fn k55_clocks_of_nodes_are_never_compared_with_the_servers() {
    for ahead in [true, false] {
        let world = World::new().await;
        let day = Duration::from_hours(24);
        let set = |clock: &VirtualClock| if ahead { clock.jump_forward(day) } else { clock.jump_back(day) };
        // Set before it enters: as a node has it whose clock is wrong.
        let wrong = VirtualClock::new();
        set(&wrong);
        let options = LeaseOptions::default().with_node("wrong").with_clock(Arc::new(wrong.clone()));
        let table = Table { server: world.server.clone(), faults: Arc::default() };
        let locks = LeaseLocks::connect(table, options).await.expect("connected");
        let (theirs, its) = (world.one.has("x").await, locks.try_lock("y").await.expect("answered").expect("free"));
        assert!(locks.try_lock("x").await.expect("answered").is_none());
        assert!(world.one.finds_held("y").await);
        for _ in 0..2_000 {
            wrong.advance(STEP);
            world.pass(STEP).await;
        }
        assert!(!theirs.is_lost() && !its.is_lost());
        assert!(locks.try_lock("x").await.expect("answered").is_none());
        assert!(world.one.finds_held("y").await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_makes_no_lease_longer() {
    let world = World::new().await;
    let guard = world.one.has("x").await;
    world.one.clock.jump_back(Duration::from_hours(1));
    world.one.faults.renew.send_replace(Fault::Refused);
    world.pass(53 * SECOND).await;
    assert!(!guard.is_lost());
    world.pass(2 * SECOND).await;
    assert!(guard.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_the_server_ended_is_lost_by_the_next_renewal_or_request() {
    let world = World::new().await;
    let guard = world.one.has("x").await;
    world.server.end("one");
    world.pass(31 * SECOND).await;
    assert!(guard.is_lost(), "by its renewal");
    let guard = world.one.has("x").await;
    world.server.end("one");
    let refused = world.one.locks.try_lock("y").await.expect_err("its lease has ended");
    assert!(refused.is_retryable(), "{refused}");
    assert!(guard.is_lost(), "by a request");
    let _ = world.one.has("y").await;
}

#[tokio::test(start_paused = true)]
async fn what_an_unanswered_request_was_granted_is_given_back() {
    let world = World::new().await;
    let kept = world.one.has("kept").await;
    world.one.faults.exchange.send_replace(Fault::Unanswered);
    let error = world.one.locks.try_lock("x").await.expect_err("no answer");
    assert!(error.is_retryable(), "{error}");
    assert!(world.other.finds_held("x").await, "granted for nobody");
    world.one.faults.exchange.send_replace(Fault::None);
    assert!(world.other.locks.lock("x", SOON).await.expect("answered").is_some(), "given back");
    assert!(!kept.is_lost(), "a connection that broke costs no lease");
}

#[tokio::test(start_paused = true)]
async fn the_same_node_is_granted_what_its_unanswered_request_left() {
    let world = World::new().await;
    world.one.faults.exchange.send_replace(Fault::Unanswered);
    assert!(world.one.locks.try_lock("x").await.is_err());
    world.one.faults.exchange.send_replace(Fault::None);
    let guard = world.one.has("x").await;
    world.pass(SECOND).await;
    tokio::time::sleep(SECOND).await;
    assert!(world.other.finds_held("x").await && !guard.is_lost(), "what was given back was the older grant");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_successor_does_nothing() {
    let world = World::new().await;
    world.one.faults.exchange.send_replace(Fault::Delayed);
    assert!(world.one.locks.try_lock("x").await.is_err());
    world.one.faults.exchange.send_replace(Fault::None);
    let newer = world.one.has("x").await;
    assert_eq!(world.server.deliver(), [LeaseAnswer::Ended]);
    newer.release().await.expect("freed");
    assert_eq!(world.server.deliver(), []);
    let _ = world.other.has("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_is_sent_again_until_it_is_confirmed() {
    for fault in [Fault::Refused, Fault::Unanswered] {
        let world = World::new().await;
        let guard = world.one.has("x").await;
        world.one.faults.exchange.send_replace(fault);
        let error = guard.release().await.expect_err("not confirmed");
        assert!(error.is_retryable(), "{error}");
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(world.other.finds_held("x").await, fault == Fault::Refused);
        world.one.faults.exchange.send_replace(Fault::None);
        assert!(world.other.locks.lock("x", SOON).await.expect("answered").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_a_request_is_under_way_goes_together_in_the_next() {
    let world = World::new().await;
    world.one.faults.exchange.send_replace(Fault::AnsweredLate);
    let tasks: Vec<_> = (0..400)
        .map(|number| {
            let locks = world.one.locks.clone();
            tokio::spawn(async move { locks.try_lock(&format!("lock-{number}")).await })
        })
        .collect();
    for _ in 0..50 {
        settle().await;
    }
    world.one.faults.exchange.send_replace(Fault::None);
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.expect("joined").expect("answered").expect("free"));
    }
    let requests = world.server.done().len();
    assert!(requests <= 3, "{requests} requests for 400 locks");
    drop(guards);
    let _ = world.one.has("behind-the-releases").await;
    let requests = world.server.done().len();
    assert!(requests <= 2, "{requests} requests to free 400 locks");
    let _ = world.other.has("lock-399").await;
}

#[tokio::test(start_paused = true)]
async fn stop_frees_everything_in_one_request() {
    let world = World::new().await;
    let mut guards = Vec::new();
    for number in 0..100 {
        guards.push(world.one.has(&format!("lock-{number}")).await);
    }
    world.server.done();
    world.one.locks.stop(SOON).await.expect("stopped");
    assert_eq!(world.server.done(), ["leave"]);
    assert_eq!(guards[0].lost().await, Loss::Stopped);
    for number in 0..100 {
        let _ = world.other.has(&format!("lock-{number}")).await;
    }
    drop(guards);
    world.pass(100 * SECOND).await;
    assert!(world.server.hosts_of("one").is_empty(), "nothing renews what was stopped");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_dropped_leaves_and_one_whose_guards_live_does_not() {
    let world = World::new().await;
    let World { server, one, other, clock } = world;
    let guard = one.has("x").await;
    let (own, faults) = (one.clock.clone(), one.faults.clone());
    drop(one);
    for _ in 0..1_000 {
        clock.advance(STEP);
        own.advance(STEP);
        other.clock.advance(STEP);
        settle().await;
    }
    assert!(!guard.is_lost() && other.finds_held("x").await);
    drop(guard);
    settle().await;
    assert!(server.hosts_of("one").is_empty());
    let _ = other.has("x").await;
    drop(faults);
}

#[tokio::test(start_paused = true)]
async fn k05_a_service_that_is_down_is_an_error_at_once_and_mends_by_itself() {
    let world = World::new().await;
    world.one.faults.renew.send_replace(Fault::Refused);
    world.one.faults.enter.send_replace(Fault::Refused);
    world.one.faults.exchange.send_replace(Fault::Refused);
    world.pass(60 * SECOND).await;
    for _ in 0..3 {
        let error = world.one.locks.try_lock("x").await.expect_err("down");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
        assert!(world.one.locks.check().await.is_err());
    }
    let request = LockRequest::new(LockKey::new(world.one.locks.namespace(), "x").unwrap()).with_wait(Wait::Forever);
    assert!(world.one.locks.acquire(request).await.is_err(), "a wait for ever is no wait for the service");
    world.one.faults.renew.send_replace(Fault::None);
    world.one.faults.enter.send_replace(Fault::None);
    world.one.faults.exchange.send_replace(Fault::None);
    let guard = world.one.has("x").await;
    world.one.locks.check().await.expect("it answers");
    world.pass(200 * SECOND).await;
    assert!(!guard.is_lost());
}
