//! Bodies: what they are given, how they run beside each other, what they cost, and what reaches an instance while one runs long.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by a panic")]

#[macro_use]
mod common;
use common::*;

const HOUR: Duration = Duration::from_hours(1);

workflow!(Long, |flow| {
    flow.parallel("all", |all| {
        all.branch("long", |b| {
            b.run("long", async |_, cx| step(cx).await).output(|(), data| data.log.push("long".into()));
            b.run("after long", async |_, cx| step(cx).await);
        });
        all.branch("timer", |b| {
            b.delay("pause", Duration::from_secs(100));
            b.run("timer", async |_, cx| step(cx).await).output(|(), data| data.log.push("timer".into()));
        });
        all.branch("event", |b| {
            b.wait_for("go", |_| "k".into());
            b.run("event", async |_, cx| step(cx).await).output(|(), data| data.log.push("event".into()));
        });
    });
});

workflow!(Seen, |flow| {
    flow.parallel("both", |all| {
        all.branch("slow", |b| {
            b.run("slow", async |data, cx| step(cx).await.map(|()| data.n)).output(|seen, data| data.items.push(seen))
        });
        all.branch("fast", |b| b.run("fast", async |_, cx| step(cx).await).output(|(), data| data.n = 9));
    });
});

workflow!(Wide, |flow| {
    flow.for_each("items", |data| data.items.clone(), |each| each.run("each", async |_, cx| step(cx).await)).at_most(1_000);
});

workflow!(Cheap, |flow| {
    flow.run("one", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    flow.when(
        "yes",
        |_| true,
        |then| {
            then.decide("which", |data| data.n).case(1, |one| {
                one.parallel("both", |all| {
                    all.branch("a", |b| b.when("no", |_| false, |no| no.end()));
                    all.branch("b", |b| b.when("nor", |_| false, |no| no.end()));
                });
            });
        },
    );
    flow.run("replayable", async |_, cx| step(cx).await).replayable().output(|(), data| data.n += 1);
    flow.repeat_while(
        "to ten",
        |data| data.n < 10,
        |round| {
            round.run("count", async |_, cx| step(cx).await).replayable().output(|(), data| data.n += 1);
        },
    );
    flow.run("two", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
});

workflow!(Told, |flow| {
    flow.repeat_while(
        "twice",
        |data| data.log.len() < 2,
        |round| {
            round
                .run("tell", async |_, cx| {
                    step(cx).await?;
                    Ok(format!(
                        "{} {} {} {} {}",
                        cx.step(),
                        cx.attempt(),
                        cx.fencing_token().is_some(),
                        cx.instance(),
                        cx.idempotency_key()
                    ))
                })
                .output(|text, data| data.log.push(text))
                .on_error(Retry::fixed(Duration::from_secs(1)));
        },
    );
});

workflow!(Listens, |flow| {
    flow.repeat_while(
        "rounds",
        |data| data.items.len() < 5,
        |round| {
            round.wait_for("news", |data| data.text.clone()).output(|n: i64, data| {
                data.n += n;
                data.items.push(n);
            });
        },
    );
});

on_each_store! {
    /// A body of an hour: beside it a timer fires, an event from another node arrives, and all is stored while it runs.
    async fn k21_a_body_of_an_hour_holds_up_neither_timer_nor_event(world: World) {
        let node = world.run(Long).await;
        let other = world.node().with(|b| b.workflow(Long).configure(|o| o.run_workflows = false)).start().await;
        let gate = world.probe.hold("long");
        let handle = node.begin::<Long>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        other.publish_event("go", "k", ()).await.expect("published");
        world.fly_until(async || handle.data().await.expect("data").log == ["event"]).await;
        world.pass(Duration::from_secs(110)).await;
        world.fly_until(async || handle.data().await.expect("data").log == ["event", "timer"]).await;
        world.fly_by(Duration::from_secs(9), async { for _ in 0..20 { settle().await; } }).await;
        world.clock.advance(HOUR);
        world.rest().await;
        assert_eq!((world.probe.runs("long"), world.probe.runs("after long")), (1, 0));
        gate.open();
        assert_eq!(world.fly(handle.completion()).await.expect("done").log, ["event", "timer", "long"]);
        node.stop_clean().await;
        other.stop_clean().await;
    }

    async fn a_body_of_an_hour_ends_when_another_node_terminates_its_instance(world: World) {
        let node = world.run(Long).await;
        let other = world.node().with(|b| b.workflow(Long).configure(|o| o.run_workflows = false)).start().await;
        let gate = world.probe.hold("long");
        let handle = other.begin::<Long>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        other.instance(handle.id().clone()).terminate("too long").await.expect("stored");
        let error = world.fly(handle.completion()).await.expect_err("terminated");
        assert!(error.to_string().ends_with("was terminated: too long"), "{error}");
        assert_eq!((world.probe.ended("long"), world.probe.runs("after long")), (0, 0));
        node.stop_clean().await;
        other.stop_clean().await;
    }

    async fn a_body_sees_the_data_as_it_was_when_it_started(world: World) {
        let node = world.run(Seen).await;
        let gate = world.probe.hold("slow");
        let handle = node.begin::<Seen>(Data::n(1)).await;
        world.soon_until(async || handle.data().await.expect("data").n == 9).await;
        gate.open();
        assert_eq!(world.soon(handle.completion()).await.expect("done").items, [1]);
        node.stop_clean().await;
    }

    async fn as_many_bodies_run_at_once_as_are_allowed(world: World) {
        let node = world.node().with(|b| b.workflow(Wide).configure(|o| o.max_concurrent_steps = 5)).start().await;
        let gate = world.probe.hold("each");
        let handle = node.begin::<Wide>(Data::items(0..30)).await;
        world.soon(gate.reached(5)).await;
        world.rest().await;
        assert_eq!(world.probe.runs("each"), 5);
        gate.open();
        world.soon(handle.completion()).await.expect("done");
        assert_eq!((world.probe.runs("each"), world.probe.most_at_once()), (30, 5));
        node.stop_clean().await;
    }

    async fn k47_instances_run_at_the_same_time_up_to_the_limit_of_the_node(world: World) {
        let node = world.node().with(|b| b.workflow(Seen).max_concurrent_workflows(7)).start().await;
        let gate = world.probe.hold("slow");
        let mut handles = Vec::new();
        for _ in 0..20 { handles.push(node.begin::<Seen>(Data::default()).await); }
        world.soon(gate.reached(7)).await;
        world.rest().await;
        assert_eq!((world.probe.runs("slow"), node.health().active), (7, 7));
        gate.open();
        for handle in handles { world.soon(handle.completion()).await.expect("done"); }
        node.stop_clean().await;
    }

    /// Pure control flow and replayable bodies cost no checkpoint of their own. Plant the fault: set `durable` in `Instance::open`.
    async fn only_bodies_cost_checkpoints(world: World) {
        let node = world.run(Cheap).await;
        // The first poll is over.
        world.rest().await;
        let handle = node.begin::<Cheap>(Data::default()).await;
        assert_eq!(world.soon(handle.completion()).await.expect("done").n, 11);
        assert_eq!(node.means.store.count(StoreCall::Commit), 2, "one for each of the two steps that ask for it");
        assert_eq!((node.means.locks.calls().iter().filter(|call| call.call == LockCall::Acquire && !call.about.contains('!')).count(), node.means.store.count(StoreCall::Load)), (1, 1));
        node.stop_clean().await;
    }

    async fn a_body_is_told_who_it_is(world: World) {
        let node = world.run(Told).await;
        world.probe.fail("tell", 1);
        let handle = node.begin::<Told>(Data::default()).await;
        let done = world.fly(handle.completion()).await.expect("done");
        let fencing = node.locks().capabilities().fencing;
        let keys: Vec<_> = world.probe.keys("tell").into_keys().collect();
        assert_eq!(keys.len(), 2);
        for (text, attempt) in done.log.iter().zip([2, 1]) {
            assert!(keys.iter().any(|key| *text == format!("tell {attempt} {fencing} {} {key}", handle.id())), "{text} {keys:?}");
        }
        node.stop_clean().await;
    }

    /// Many publishers and many waits on three nodes: every event reaches every instance that waits for its key, once.
    async fn events_and_waits_from_many_tasks_meet_each_other(world: World) {
        let mut nodes = Vec::new();
        for _ in 0..3 { nodes.push(world.run(Listens).await); }
        let (keys, events) = (8, 5_i64);
        let starts: Vec<_> = (0..24).map(|n| {
            let host = nodes[n % 3].host.clone();
            let data = Data { text: format!("key {}", n % keys), ..Data::default() };
            tokio::spawn(async move { host.start_workflow::<Listens>(data).await.expect("started") })
        }).collect();
        let publishes: Vec<_> = (0..keys * events as usize).map(|n| {
            let host = nodes[(n + 1) % 3].host.clone();
            tokio::spawn(async move {
                for _ in 0..n % 4 { tokio::task::yield_now().await; }
                host.publish_event("news", &format!("key {}", n % keys), 10_i64.pow((n / keys) as u32)).await.expect("published");
            })
        }).collect();
        for publish in publishes { publish.await.expect("no panic"); }
        for start in starts {
            let handle = start.await.expect("no panic");
            assert_eq!(world.fly(handle.completion()).await.expect("done").n, 11_111);
        }
        for node in nodes { node.stop_clean().await; }
    }
}

on_each_store! {
    async fn from_when_to_when_a_step_ran_can_be_read(world: World) {
        let node = world.run(Seen).await;
        let gate = world.probe.hold("slow");
        let handle = node.begin::<Seen>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        world.pass(Duration::from_secs(30)).await;
        gate.open();
        world.fly(handle.completion()).await.expect("done");
        let history = handle.history(0, 100).await.expect("a history").items;
        let slow = history.iter().find(|pointer| &*pointer.step == "slow").expect("its pointer");
        let (started, ended) = slow.started.zip(slow.ended).expect("both times");
        assert!((ended - started).num_seconds() >= 30, "from {started} to {ended}");
        node.stop_clean().await;
    }
}
