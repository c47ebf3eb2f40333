//! Delays, on a virtual clock, over restarts and with wrong clocks.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::clock::Clock;

const HOUR: Duration = Duration::from_hours(1);

workflow!(Delayed, |flow| {
    flow.run("before", async |_, cx| step(cx).await);
    flow.delay_by("pause", |data| Duration::from_secs(data.n.unsigned_abs()));
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(DelayFirst, |flow| {
    flow.delay("pause", Duration::from_secs(5));
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(TwoDelays, |flow| {
    flow.parallel("both", |all| {
        all.branch("short", |b| {
            b.delay("short pause", Duration::from_secs(30));
            b.run("short", async |_, cx| step(cx).await);
        });
        all.branch("long", |b| {
            b.delay("long pause", Duration::from_secs(3_000));
            b.run("long", async |_, cx| step(cx).await);
        });
    });
});

async fn committed_delay(world: &World, id: &InstanceId) {
    world
        .soon_until(async || {
            world.store().load(id).await.expect("loads").expect("there").header.due.is_some_and(|due| due > world.now())
        })
        .await;
    world.quiet().await;
}

on_each_store! {
    async fn a_delay_ends_at_its_time_and_not_before(world: World) {
        let node = world.run(Delayed).await;
        let handle = node.begin::<Delayed>(Data::n(5)).await;
        committed_delay(&world, handle.id()).await;
        world.clock.advance(Duration::from_micros(4_999_999));
        world.rest().await;
        assert_eq!(world.probe.runs("after"), 0);
        world.clock.advance(Duration::from_micros(1));
        world.soon(handle.completion()).await.expect("done");
        assert_eq!(world.probe.steps(), ["before", "after"]);
        node.stop_clean().await;
    }

    async fn a_delay_can_be_the_first_step_and_of_no_length(world: World) {
        let node = world.node().with(|b| b.workflow(DelayFirst).workflow(Delayed)).start().await;
        let handle = node.begin::<DelayFirst>(Data::default()).await;
        committed_delay(&world, handle.id()).await;
        world.clock.advance(Duration::from_secs(5));
        world.soon(handle.completion()).await.expect("done");
        world.soon(node.begin::<Delayed>(Data::n(0)).await.completion()).await.expect("done");
        node.stop_clean().await;
    }

    async fn a_month_passes_in_no_time(world: World) {
        let node = world.run(Delayed).await;
        let month = 30 * 24 * HOUR;
        let handle = node.begin::<Delayed>(Data::n(month.as_secs() as i64)).await;
        committed_delay(&world, handle.id()).await;
        let began = world.now();
        world.fly_by(HOUR, handle.completion()).await.expect("done");
        assert!(world.clock.since(began) >= month, "{:?}", world.clock.since(began));
        node.stop_clean().await;
    }

    async fn the_timer_of_a_node_that_is_gone_fires_on_another(world: World) {
        let node = world.run(Delayed).await;
        let handle = node.begin::<Delayed>(Data::n(8)).await;
        committed_delay(&world, handle.id()).await;
        let (id, began) = (handle.id().clone(), world.now());
        drop(handle);
        world.kill(node);
        let node = world.run(Delayed).await;
        world.fly(node.instance(id).ended()).await.expect("ended");
        assert!((8..40).contains(&world.clock.since(began).as_secs()), "{:?}", world.clock.since(began));
        assert_eq!(world.probe.steps(), ["before", "after"]);
        node.stop_clean().await;
    }

    async fn a_timer_that_fell_due_while_no_node_lived_fires_at_the_next_start(world: World) {
        let node = world.run(Delayed).await;
        let handle = node.begin::<Delayed>(Data::n(8)).await;
        committed_delay(&world, handle.id()).await;
        let id = handle.id().clone();
        drop(handle);
        node.stop_clean().await;
        world.lose_queue();
        world.clock.advance(HOUR);
        let node = world.run(Delayed).await;
        world.soon(node.instance(id).ended()).await.expect("ended, without the clock going on");
        node.stop_clean().await;
    }

    async fn each_of_several_timers_fires(world: World) {
        let node = world.run(TwoDelays).await;
        let handle = node.begin::<TwoDelays>(Data::default()).await;
        committed_delay(&world, handle.id()).await;
        world.fly_until(async || world.probe.runs("short") == 1).await;
        assert_eq!(world.probe.runs("long"), 0);
        world.fly_by(Duration::from_secs(10), handle.completion()).await.expect("done");
        assert_eq!(world.probe.steps(), ["short", "long"]);
        node.stop_clean().await;
    }

    /// The store's time decides. Plant the fault: let `StoreTime::now` or `StoreTime::deadline` take the node's own wall clock.
    async fn k55_a_node_whose_clock_is_wrong_by_an_hour_fires_at_the_stores_time(world: World) {
        for wrong in [-3_600_i64, 3_600] {
            let skewed = VirtualClock::starting_at(world.clock.now() + chrono_seconds(wrong));
            let clock = skewed.clone();
            let node = world.node().with(|b| b.workflow(Delayed).configure(move |o| o.clock = Arc::new(clock))).start().await;
            let handle = node.begin::<Delayed>(Data::n(100)).await;
            committed_delay(&world, handle.id()).await;
            let began = world.now();
            let before = world.probe.runs("after");
            for _ in 0..99 {
                world.clock.advance(Duration::from_secs(1));
                skewed.advance(Duration::from_secs(1));
                settle().await;
            }
            world.rest().await;
            assert_eq!(world.probe.runs("after"), before, "not before its time");
            world.soon_until(async || {
                world.clock.advance(Duration::from_secs(1));
                skewed.advance(Duration::from_secs(1));
                settle().await;
                handle.is(WorkflowStatus::Complete).await
            }).await;
            assert!((100..130).contains(&world.clock.since(began).as_secs()), "{:?}", world.clock.since(began));
            node.stop_clean().await;
            world.lose_queue();
        }
    }

    async fn a_clock_that_jumps_while_a_timer_runs_moves_no_timer_of_the_node(world: World) {
        // The node's own wall jumps; the store's does not.
        let own = VirtualClock::starting_at(world.clock.now());
        let clock = own.clone();
        let node = world.node().with(|b| b.workflow(Delayed).configure(move |o| o.clock = Arc::new(clock))).start().await;
        let handle = node.begin::<Delayed>(Data::n(8)).await;
        committed_delay(&world, handle.id()).await;
        own.jump_forward(HOUR);
        world.rest().await;
        assert_eq!(world.probe.runs("after"), 0);
        own.jump_back(HOUR * 2);
        for clock in [&world.clock, &own] { clock.advance(Duration::from_secs(8)); }
        world.soon(handle.completion()).await.expect("done");
        node.stop_clean().await;
    }
}

fn chrono_seconds(seconds: i64) -> chrono::TimeDelta {
    chrono::TimeDelta::seconds(seconds)
}
