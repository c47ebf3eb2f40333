//! Waits for events: whichever comes first, the wait or the event (I3).

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::clock::{Clock, add};

const MINUTE: Duration = Duration::from_secs(60);

workflow!(Waits, |flow| {
    flow.run("before", async |_, cx| step(cx).await);
    flow.wait_for("packed", |data| data.text.clone())
        .output(|n: i64, data| data.n += n)
        .output(|n: i64, data| data.log.push(n.to_string()));
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(ReachesBack, |flow| {
    flow.wait_for("packed", |data| data.text.clone())
        .as_of(|_| latchwork::clock::Timestamp::from_timestamp_micros(0).unwrap_or_default())
        .output(|n: i64, data| data.n += n);
});

workflow!(InLoop, |flow| {
    flow.repeat_while(
        "rounds",
        |data| data.n < 3,
        |round| {
            round.wait_for("tick", |_| "k".into()).output(|text: String, data| {
                data.n += 1;
                data.log.push(text);
            });
        },
    );
});

workflow!(InParallel, |flow| {
    flow.parallel("both", |all| {
        all.branch("a", |b| {
            b.wait_for("tick", |_| "k".into()).named("a waits").output(|text: String, data| data.log.push(format!("a {text}")))
        });
        all.branch("b", |b| {
            b.wait_for("tick", |_| "k".into()).named("b waits").output(|text: String, data| data.log.push(format!("b {text}")))
        });
    });
});

workflow!(InForEach, |flow| {
    flow.for_each(
        "items",
        |data| data.items.clone(),
        |each| {
            each.wait_for("tick", |_| "k".into()).output_each(|text: String, data, item| data.log.push(format!("{item} {text}")));
        },
    );
});

workflow!(TimeoutInLoop, |flow| {
    flow.repeat_while(
        "rounds",
        |data| data.n < 3,
        |round| {
            round.wait_for("tick", |_| "k".into()).output(|text: String, data| data.log.push(text)).timeout(MINUTE).on_timeout(
                |late| late.run("late", async |_, cx| step(cx).await).output(|(), data| data.log.push("late".into())),
            );
            round.run("next", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
        },
    );
});

workflow!(Twice, |flow| {
    flow.wait_for("tick", |_| "k".into()).named("first").output(|text: String, data| data.log.push(format!("first {text}")));
    flow.wait_for("tick", |_| "k".into()).named("second").output(|text: String, data| data.log.push(format!("second {text}")));
});

/// The instance is committed as waiting for so many events.
async fn waiting(world: &World, id: &InstanceId, count: usize) {
    world.soon_until(async || world.store().load(id).await.expect("loads").expect("there").subscriptions.len() == count).await;
    world.quiet().await;
}

fn key(text: &str) -> Data {
    Data { text: text.into(), ..Data::default() }
}

/// Which of the two comes first.
#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    Event,
    Wait,
    Same,
}

const ORDERS: [First; 3] = [First::Event, First::Wait, First::Same];

/// Starts an instance, and publishes events: before anything of it runs, when it waits, or while it starts.
async fn meet<W: Workflow>(
    world: &World,
    workflow: W,
    data: W::Data,
    first: First,
    waits: usize,
    events: &[&str],
) -> WorkflowHandle<W> {
    let node = world.node().with(|b| b.workflow(workflow));
    let store = node.means.store.clone();
    let node = node.start().await;
    // Nothing of the instance is committed before the gate opens.
    let gate = store.on(StoreCall::Commit).hold();
    let handle = node.begin::<W>(data).await;
    world.soon(gate.reached(1)).await;
    let publish = async || {
        for text in events {
            node.publish_event("tick", "k", text).await.expect("published");
        }
    };
    match first {
        First::Event => {
            publish().await;
            store.clear();
        }
        First::Wait => {
            store.clear();
            waiting(world, handle.id(), waits).await;
            publish().await;
        }
        First::Same => {
            let open = async {
                tokio::task::yield_now().await;
                store.clear();
            };
            tokio::join!(publish(), open);
        }
    }
    handle
}

on_each_store! {
    async fn an_event_ends_a_wait_that_began_before(world: World) {
        let node = world.run(Waits).await;
        let handle = node.begin::<Waits>(key("A-1")).await;
        waiting(&world, handle.id(), 1).await;
        node.publish_event("packed", "A-2", 1).await.expect("published");
        node.publish_event("shipped", "A-1", 1).await.expect("published");
        node.publish_event("packed", "A-1", 5).await.expect("published");
        assert_eq!(world.soon(handle.completion()).await.expect("done").log, ["5"]);
        node.stop_clean().await;
    }

    async fn an_event_ends_a_wait_that_begins_after(world: World) {
        let node = world.run(Waits).await;
        let gate = world.probe.hold("before");
        let handle = node.begin::<Waits>(key("A-1")).await;
        world.soon(gate.reached(1)).await;
        node.publish_event("packed", "A-1", 5).await.expect("published");
        gate.open();
        assert_eq!(world.soon(handle.completion()).await.expect("done").n, 5);
        node.stop_clean().await;
    }

    async fn an_event_older_than_the_instance_counts_only_when_the_wait_reaches_back(world: World) {
        let node = world.node().with(|b| b.workflow(Waits).workflow(ReachesBack)).start().await;
        node.publish_event("packed", "A-1", 5).await.expect("published");
        world.clock.advance(MINUTE);
        let waits = node.begin::<Waits>(key("A-1")).await;
        let reaches = node.begin::<ReachesBack>(key("A-1")).await;
        assert_eq!(world.soon(reaches.completion()).await.expect("done").n, 5);
        waiting(&world, waits.id(), 1).await;
        node.publish_event("packed", "A-1", 7).await.expect("published");
        assert_eq!(world.soon(waits.completion()).await.expect("done").n, 7);
        node.stop_clean().await;
    }

    async fn an_event_of_the_same_moment_as_the_creation_counts(world: World) {
        let node = world.run(Waits).await;
        node.publish_event("packed", "A-1", 5).await.expect("published");
        let handle = node.begin::<Waits>(key("A-1")).await;
        assert_eq!(world.soon(handle.completion()).await.expect("done").n, 5);
        node.stop_clean().await;
    }

    async fn a_future_dated_event_arrives_at_its_time(world: World) {
        let node = world.run(Waits).await;
        let handle = node.begin::<Waits>(key("A-1")).await;
        waiting(&world, handle.id(), 1).await;
        let event = node.new_event("packed", "A-1", &9).expect("an event").at(add(world.now(), MINUTE));
        node.publish(event.clone()).await.expect("published");
        node.publish(event).await.expect("a repeated publish is a no-op");
        world.clock.advance(MINUTE - Duration::from_secs(1));
        world.rest().await;
        assert_eq!(world.probe.runs("after"), 0);
        let before = world.clock.now();
        assert_eq!(world.fly(handle.completion()).await.expect("done").log, ["9"]);
        assert!(world.clock.since(before) <= Duration::from_secs(25), "within two polls");
        node.stop_clean().await;
    }

    async fn an_event_reaches_each_instance_that_waits_and_each_once(world: World) {
        let node = world.run(Waits).await;
        let mut handles = Vec::new();
        for _ in 0..20 {
            handles.push(node.begin::<Waits>(key("all")).await);
        }
        for handle in &handles {
            waiting(&world, handle.id(), 1).await;
        }
        node.publish_event("packed", "all", 3).await.expect("published");
        for handle in handles {
            assert_eq!(world.soon(handle.completion()).await.expect("done").log, ["3"]);
        }
        node.stop_clean().await;
    }

    /// K17. Plant the fault: let `Instance::slot` append the round.
    async fn k17_each_round_of_a_loop_takes_an_event_of_its_own(world: World) {
        for first in ORDERS {
            let handle = meet(&world, InLoop, Data::default(), first, 1, &["1", "2"]).await;
            world.soon_until(async || handle.data().await.expect("data").log == ["1", "2"]).await;
            waiting(&world, handle.id(), 1).await;
            let node = world.run(InLoop).await;
            node.publish_event("tick", "k", "3").await.expect("published");
            assert_eq!(world.fly(handle.completion()).await.expect("done").log, ["1", "2", "3"], "{first:?}");
            world.clock.advance(MINUTE);
            node.stop_clean().await;
        }
    }

    async fn one_event_satisfies_each_parallel_wait(world: World) {
        for first in ORDERS {
            let handle = meet(&world, InParallel, Data::default(), first, 2, &["1", "2"]).await;
            assert_eq!(world.soon(handle.completion()).await.expect("done").sorted(), ["a 1", "b 1"], "{first:?}");
            world.clock.advance(MINUTE);
        }
    }

    async fn one_event_satisfies_the_wait_of_each_item(world: World) {
        for first in ORDERS {
            let handle = meet(&world, InForEach, Data::items(1..=3), first, 3, &["1"]).await;
            assert_eq!(world.soon(handle.completion()).await.expect("done").sorted(), ["1 1", "2 1", "3 1"], "{first:?}");
            world.clock.advance(MINUTE);
        }
    }

    async fn a_wait_that_ran_out_leaves_its_event_to_the_next_round(world: World) {
        for first in ORDERS {
            let handle = meet(&world, TimeoutInLoop, Data::default(), first, 1, &["1"]).await;
            world.soon_until(async || handle.data().await.expect("data").n == 1).await;
            waiting(&world, handle.id(), 1).await;
            world.pass(MINUTE).await;
            world.fly_until(async || handle.data().await.expect("data").n == 2).await;
            waiting(&world, handle.id(), 1).await;
            let node = world.run(TimeoutInLoop).await;
            node.publish_event("tick", "k", "2").await.expect("published");
            assert_eq!(world.fly(handle.completion()).await.expect("done").log, ["1", "late", "2"], "{first:?}");
            world.clock.advance(MINUTE);
            node.stop_clean().await;
        }
    }

    /// The event and the end of the time at the same moment: one of the two, whole, and the event is not lost.
    async fn an_event_at_the_moment_of_the_timeout_is_taken_by_this_round_or_the_next(world: World) {
        // With polls far apart the timer is in the node's wheel from the start, and fires to the second.
        let node = world.node().with(|b| b.workflow(TimeoutInLoop).poll_interval(2 * MINUTE)).start().await;
        let handle = node.begin::<TimeoutInLoop>(Data::default()).await;
        waiting(&world, handle.id(), 1).await;
        world.pass(MINUTE - Duration::from_secs(1)).await;
        let gate = node.means.store.on(StoreCall::Commit).hold();
        world.clock.advance(Duration::from_secs(1));
        world.soon(gate.reached(1)).await;
        // The time-out is decided, and not committed.
        node.publish_event("tick", "k", "1").await.expect("published");
        node.means.store.clear();
        world.soon_until(async || handle.data().await.expect("data").n == 2).await;
        assert_eq!(handle.data().await.expect("data").log, ["late", "1"]);
        node.stop_clean().await;
    }

    async fn waits_of_different_steps_take_the_same_event_each(world: World) {
        let node = world.run(Twice).await;
        let handle = node.begin::<Twice>(Data::default()).await;
        waiting(&world, handle.id(), 1).await;
        node.publish_event("tick", "k", "1").await.expect("published");
        assert_eq!(world.soon(handle.completion()).await.expect("done").log, ["first 1", "second 1"]);
        node.stop_clean().await;
    }

    async fn events_are_taken_in_the_order_of_their_times(world: World) {
        let node = world.run(InLoop).await;
        let now = world.now();
        world.clock.advance(MINUTE);
        for (text, seconds) in [("2", 20), ("3", 30), ("1", 10)] {
            let event = node.new_event("tick", "k", &text).expect("an event").at(add(now, Duration::from_secs(60 + seconds)));
            node.publish(event).await.expect("published");
        }
        let handle = node.begin::<InLoop>(Data::default()).await;
        assert_eq!(world.fly(handle.completion()).await.expect("done").log, ["1", "2", "3"]);
        node.stop_clean().await;
    }

    async fn an_event_whose_data_does_not_fit_suspends_and_says_why(world: World) {
        let node = world.run(Waits).await;
        let handle = node.begin::<Waits>(key("A-1")).await;
        waiting(&world, handle.id(), 1).await;
        node.publish_event("packed", "A-1", "not a number").await.expect("published");
        world.soon_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        assert!(handle.reason().await.contains("`packed`"), "{}", handle.reason().await);
        handle.retry_step().await.expect("stored");
        waiting(&world, handle.id(), 1).await;
        node.publish_event("packed", "A-1", 4).await.expect("published");
        assert_eq!(world.soon(handle.completion()).await.expect("done").n, 4);
        node.stop_clean().await;
    }

    /// K18, both orders: a publisher held between its insert and its answer, while the last checkpoint of a burst commits.
    async fn k18_a_publisher_that_is_held_loses_no_event(world: World) {
        for held_before in [true, false] {
            let node = world.run(Waits).await;
            let gate = world.probe.hold("before");
            let handle = node.begin::<Waits>(key("A-1")).await;
            world.soon(gate.reached(1)).await;
            let other = world.run(Waits).await;
            let rule = other.means.store.on(StoreCall::Publish).once();
            let held = if held_before { rule.hold() } else { rule.hold_answer() };
            let publisher = tokio::spawn({ let host = other.host.clone(); async move { host.publish_event("packed", "A-1", 5).await } });
            world.soon(held.reached(1)).await;
            gate.open();
            if held_before {
                // Not `waiting`: the other node's poller may hold a hint for the instance, and try it again as time goes by.
                let waits = async || world.store().load(handle.id()).await.expect("loads").expect("there").subscriptions.len() == 1;
                world.fly_until(waits).await;
                held.open();
            }
            assert_eq!(world.fly(handle.completion()).await.expect("done").log, ["5"]);
            held.open();
            publisher.await.expect("no panic").expect("published");
            world.clock.advance(MINUTE);
            other.stop_clean().await;
            node.stop_clean().await;
        }
    }
}
