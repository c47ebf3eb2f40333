//! One owner (I1), and transitions exactly once (I2), whatever is lost: locks, answers, nodes.
//!
//! Each test names the line of the engine that, broken on purpose, makes it fail.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::{
    core::queue::QueueKind,
    queue::WorkItem,
    store::{PersistenceProvider, StoreErrorKind},
};
use std::sync::Mutex;

workflow!(Chain, |flow| {
    flow.repeat_while(
        "rounds",
        |data| data.n < 8,
        |round| {
            round.run("step", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
            round.parallel("sides", |all| {
                all.branch("left", |b| b.run("left", async |_, cx| step(cx).await).output(|(), data| data.items[0] += 1));
                all.branch("right", |b| b.run("right", async |_, cx| step(cx).await).output(|(), data| data.items[1] += 1));
            });
        },
    );
});

/// Looks at what is stored when a body begins.
#[derive(Clone, Debug)]
struct Witness {
    store: Arc<dyn PersistenceProvider>,
    /// The steps that began when their completion was committed already.
    again: Arc<Mutex<Vec<String>>>,
}

/// A step of the round `round` begins: in that round `count` tells how often it is done, by the stored data.
async fn begin(cx: &StepContext, round: i64, count: fn(&Data) -> i64) -> StepResult<()> {
    let witness = cx.service::<Witness>()?;
    let stored = witness.store.load(cx.instance()).await?.ok_or("it is gone")?;
    let stored: Data = serde_json::from_str(stored.data.as_str())?;
    if count(&stored) > round {
        witness.again.lock().expect("no panic").push(format!("{} of round {round}", cx.step()));
    }
    step(cx).await
}

workflow!(Seen, |flow| {
    flow.repeat_while(
        "rounds",
        |data| data.n < 8,
        |round| {
            round.run("step", async |data, cx| begin(cx, data.n, |data| data.n).await).output(|(), data| data.n += 1);
            round.parallel("sides", |all| {
                all.branch("left", |b| {
                    b.run("left", async |data, cx| begin(cx, data.items[0], |data| data.items[0]).await)
                        .output(|(), data| data.items[0] += 1);
                });
                all.branch("right", |b| {
                    b.run("right", async |data, cx| begin(cx, data.items[1], |data| data.items[1]).await)
                        .output(|(), data| data.items[1] += 1);
                });
            });
        },
    );
});

workflow!(Two, |flow| {
    flow.run("one", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    flow.run("two", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
});

workflow!(Nested, |flow| {
    flow.run("first", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    flow.when(
        "always",
        |data| data.n > 0,
        |then| {
            then.run("in if", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
            then.repeat_while(
                "twice",
                |data| data.items.len() < 2,
                |round| {
                    round.run("in while", async |_, cx| step(cx).await).output(|(), data| data.items.push(0));
                    round
                        .for_each(
                            "items",
                            |_| vec![1, 2, 3],
                            |each| {
                                each.run("in for-each", async |_, cx| step(cx).await)
                                    .output_each(|(), data, item| data.n += 10 * item);
                                each.when(
                                    "even?",
                                    |(_, item)| item % 2 == 0,
                                    |even| {
                                        even.run("in all", async |_, cx| step(cx).await).output(|(), data| data.n += 1_000);
                                    },
                                );
                            },
                        )
                        .at_most(2);
                },
            );
        },
    );
    flow.run("last", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
});

/// Two nodes that do not share a queue, so that each can be given hints of its own.
async fn two_nodes<W: Workflow>(world: &World, workflow: fn() -> W) -> [TestNode; 2] {
    let first = world.run(workflow()).await;
    world.lose_queue();
    [first, world.run(workflow()).await]
}

async fn hint(node: &TestNode, item: &WorkItem) {
    node.queue().enqueue(QueueKind::Workflow, std::slice::from_ref(item)).await.expect("queued");
}

on_each_store! {
    /// K01, K02. The owner loses its lock while its checkpoint is on its way, again and again; the next owner is some checkpoints further
    /// when it arrives. Plant the fault: in `Burst::written`, take `Refused` for `Committed` with the stored revision.
    async fn a_refused_owner_runs_nothing_that_was_committed(world: World) {
        let witness = Witness { store: world.store().clone(), again: Arc::default() };
        let first = world.node().with(|b| b.workflow(Seen).service(witness.clone())).start().await;
        world.lose_queue();
        let nodes = [first, world.node().with(|b| b.workflow(Seen).service(witness.clone())).start().await];
        let mut gate = nodes[0].means.store.on(StoreCall::Commit).skip(1).once().hold();
        let handle = nodes[0].begin::<Seen>(Data { items: vec![0, 0], ..Data::default() }).await;
        let item = WorkItem::new(handle.id().clone(), "Seen", 1);
        world.soon(gate.reached(1)).await;
        let mut refused = 0;
        for round in 0.. {
            let (owner, next) = (&nodes[round % 2], &nodes[(round + 1) % 2]);
            let next_gate = next.means.store.on(StoreCall::Commit).skip(1 + round % 3).once().hold();
            assert_eq!(owner.means.losses.lose_silently(handle.id().as_str()), 1, "round {round}");
            hint(next, &item).await;
            world.fly_until(async || next_gate.arrived() == 1 || handle.status().await.expect("there").is_terminal()).await;
            gate.open();
            world.rest().await;
            refused += 1;
            if next_gate.arrived() == 0 { next_gate.open(); break; }
            gate = next_gate;
        }
        let done = world.fly(handle.completion()).await.expect("done");
        assert_eq!((done.n, done.items), (8, vec![8, 8]));
        assert_eq!(*witness.again.lock().expect("no panic"), Vec::<String>::new(), "what ran after it was committed");
        assert!(refused >= 5, "{refused} owners were refused");
        for node in nodes { node.stop_clean().await; }
    }

    /// The same at moments that nobody chose.
    async fn k01_nodes_that_lose_their_locks_without_knowing_end_as_one_node_would(world: World) {
        let nodes = two_nodes(&world, || Chain).await;
        let handle = nodes[0].begin::<Chain>(Data { items: vec![0, 0], ..Data::default() }).await;
        let item = WorkItem::new(handle.id().clone(), "Chain", 1);
        let mut lost = 0;
        for round in 0.. {
            let [a, b] = &nodes;
            lost += a.means.losses.lose_silently(handle.id().as_str());
            hint(b, &item).await;
            for _ in 0..round % 3 { tokio::task::yield_now().await; }
            lost += b.means.losses.lose_silently(handle.id().as_str());
            hint(a, &item).await;
            settle().await;
            world.clock.advance(Duration::from_millis(50));
            if handle.status().await.expect("there").is_terminal() { break; }
            assert!(round < 10_000, "it never ends");
        }
        let done = world.soon(handle.completion()).await.expect("done");
        assert_eq!((done.n, done.items), (8, vec![8, 8]));
        assert!(lost > 0, "the test lost no lock");
        let pointers = handle.pointers().await;
        let mut ids: Vec<_> = pointers.iter().map(|pointer| pointer.id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), pointers.len());
        assert_eq!(pointers.iter().filter(|pointer| &*pointer.step == "step").count(), 8);
        for name in ["step", "left", "right"] {
            assert_eq!(world.probe.keys(name).len(), 8);
        }
        for node in nodes { node.stop_clean().await; }
    }

    /// Plant the fault: as above.
    async fn a_node_whose_checkpoint_is_refused_walks_away(world: World) {
        let [a, b] = two_nodes(&world, || Two).await;
        let gate = a.means.store.on(StoreCall::Commit).once().hold();
        let handle = a.begin::<Two>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        a.means.losses.lose_silently(handle.id().as_str());
        hint(&b, &WorkItem::new(handle.id().clone(), "Two", 1)).await;
        world.fly_until(async || handle.is(WorkflowStatus::Complete).await).await;
        let runs = world.probe.steps().len();
        let commits = a.means.store.count(StoreCall::Commit);
        gate.open();
        world.quiet().await;
        world.pass(Duration::from_secs(5)).await;
        assert_eq!(handle.data().await.expect("data").n, 2);
        assert_eq!((world.probe.steps().len(), a.means.store.count(StoreCall::Commit)), (runs, commits), "nothing more is run or written");
        a.stop_clean().await;
        b.stop_clean().await;
    }

    /// Plant the fault: in `Burst::wait`, leave out the branch of `lost`.
    async fn a_lost_lock_fires_the_token_and_hands_over_nothing_more(world: World) {
        let a = world.run(Two).await;
        world.lose_queue();
        // It takes nothing up by its own polls: the first one may be late, and then it would wait for the lock that is lost here.
        let b = world.node().with(|b| b.workflow(Two));
        let polls = b.means.store.on(StoreCall::Runnable).hold();
        let b = b.start().await;
        let gate = world.probe.hold("one");
        let handle = a.begin::<Two>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        let commits = a.means.store.count(StoreCall::Commit);
        assert_eq!(a.means.losses.lose(handle.id().as_str()), 1);
        // While the lock service is away for this node, it takes nothing up again.
        a.means.locks.on(LockCall::Acquire).fail(LockFault::Unavailable);
        world.fly_until(async || world.probe.inside() == 0).await;
        gate.open();
        world.pass(Duration::from_secs(2)).await;
        assert_eq!(a.means.store.count(StoreCall::Commit), commits);
        assert_eq!(world.probe.ended("one"), 0);
        polls.open();
        hint(&b, &WorkItem::new(handle.id().clone(), "Two", 1)).await;
        assert_eq!(world.fly(handle.completion()).await.expect("done").n, 2);
        a.means.locks.clear();
        a.stop_clean().await;
        b.stop_clean().await;
    }

    /// The store did what it was asked, and the answer was lost: nothing runs twice. Plant the fault: in `commit` of the burst, take a
    /// new checkpoint for the second try.
    async fn an_answer_that_is_lost_repeats_nothing(world: World) {
        let node = world.run(Nested).await;
        node.means.store.on(StoreCall::Commit).times(3).lose_answer(StoreErrorKind::Unavailable);
        node.means.store.on(StoreCall::Commit).skip(6).times(2).lose_answer(StoreErrorKind::Unavailable);
        let handle = node.begin::<Nested>(Data::default()).await;
        assert_eq!(world.fly(handle.completion()).await.expect("done").n, 2_123);
        assert!(world.probe.all().iter().all(|run| run.attempt == 1));
        for name in ["first", "in if", "in while", "in for-each", "in all", "last"] {
            assert!(world.probe.keys(name).values().all(|runs| *runs == 1), "{name}: {:?}", world.probe.keys(name));
        }
        assert!(node.health().is_healthy());
        node.stop_clean().await;
    }

    /// Killed between effect and checkpoint, at each checkpoint in turn: one key for each effect, and what was committed never runs
    /// again. Plant the fault: in `pointer_id`, leave out the round; or in `Instance::done`, ask for no checkpoint.
    async fn a_kill_between_effect_and_checkpoint_repeats_only_what_was_not_committed(world: World) {
        for committed in 0.. {
            let (probe, first) = (Probe::default(), world.probe.clone());
            let node = world.node().with(|b| b.service(probe.clone()).workflow(Nested)).start().await;
            drop(first);
            node.means.store.on(StoreCall::Commit).skip(committed).fail(StoreErrorKind::Unavailable);
            let handle = node.begin::<Nested>(Data::default()).await;
            let id = handle.id().clone();
            world.soon_until(async || node.means.store.count(StoreCall::Commit) > committed || world.store().load(&id).await.expect("loads").expect("there").header.status.is_terminal()).await;
            let all_done = node.means.store.count(StoreCall::Commit) <= committed;
            world.rest().await;
            let before = probe.steps().len();
            drop(handle);
            world.kill(node);
            let node = world.node().with(|b| b.service(probe.clone()).workflow(Nested)).start().await;
            let record = world.fly(node.instance(id.clone()).ended()).await.expect("ended");
            let latchwork::store::InstanceRecord::Instance { data, .. } = record else { panic!("deleted") };
            let done: Data = serde_json::from_str(data.as_str()).expect("data");
            assert_eq!(done.n, 3 + 120 + 2_000, "after {committed} checkpoints");
            let expected = [("first", 1), ("in if", 1), ("in while", 2), ("in for-each", 6), ("in all", 2), ("last", 1)];
            let mut repeated = 0;
            for (name, effects) in expected {
                let keys = probe.keys(name);
                assert_eq!(keys.len(), effects, "{name} after {committed} checkpoints");
                assert!(keys.values().all(|runs| *runs <= 2));
                repeated += keys.values().filter(|runs| **runs == 2).count();
            }
            assert_eq!(probe.steps().len(), 13 + repeated);
            // Two bodies run at the same time at most, each with one successor that may have begun unless it waits for the commit.
            assert!(repeated <= 2, "{repeated} of {before} ran again after {committed} checkpoints");
            node.stop_clean().await;
            world.lose_queue();
            if all_done { break; }
        }
    }

    /// The same, with the last checkpoint written and its answer lost: nothing that was committed runs again.
    async fn a_kill_after_the_checkpoint_repeats_nothing(world: World) {
        for committed in 0.. {
            let probe = Probe::default();
            let node = world.node().with(|b| b.service(probe.clone()).workflow(Two)).start().await;
            let rule = node.means.store.on(StoreCall::Commit).skip(committed);
            let gate = rule.hold_answer();
            let handle = node.begin::<Two>(Data::default()).await;
            let id = handle.id().clone();
            world.soon_until(async || gate.arrived() > 0 || world.store().load(&id).await.expect("loads").expect("there").header.status.is_terminal()).await;
            let all_done = gate.arrived() == 0;
            drop(handle);
            world.kill(node);
            let node = world.node().with(|b| b.service(probe.clone()).workflow(Two)).start().await;
            world.fly(node.instance(id).ended()).await.expect("ended");
            assert_eq!(probe.steps(), ["one", "two"], "after {committed} checkpoints");
            gate.open();
            node.stop_clean().await;
            world.lose_queue();
            if all_done { break; }
        }
    }

    /// The owner stops between building a group and sending it: none of it is lost, none of it twice.
    async fn an_owner_that_stops_with_checkpoints_in_hand_loses_none(world: World) {
        let node = world.node().with(|b| b.workflow(Two).stop_grace(Duration::from_millis(50))).start().await;
        let gate = node.means.store.on(StoreCall::Commit).hold();
        let mut ids = Vec::new();
        for _ in 0..100 { ids.push(node.begin::<Two>(Data::default()).await.id().clone()); }
        world.soon_until(async || world.probe.runs("one") == 100).await;
        assert!(gate.arrived() > 0);
        let stopped = world.fly_by(Duration::from_millis(100), node.stop()).await.expect("stopped");
        assert_eq!(stopped.unfinished, []);
        gate.open();
        drop(node);
        world.lose_queue();
        let node = world.run(Two).await;
        for id in ids {
            world.fly(node.instance(id.clone()).ended()).await.expect("ended");
            let record = node.instance(id).record().await;
            let latchwork::store::InstanceRecord::Instance { data, .. } = record else { panic!("deleted") };
            assert_eq!(serde_json::from_str::<Data>(data.as_str()).expect("data").n, 2);
        }
        assert_eq!((world.probe.keys("one").len(), world.probe.keys("two").len()), (100, 100));
        assert!(world.probe.keys("two").values().all(|runs| *runs == 1));
        node.stop_clean().await;
    }

    /// A group of a hundred with one that can never be written: its neighbours are.
    async fn one_that_can_never_be_written_does_not_fail_its_neighbours(world: World) {
        let node = world.run(Two).await;
        let gate = world.probe.hold("one");
        let mut handles = Vec::new();
        for _ in 0..100 { handles.push(node.begin::<Two>(Data::default()).await); }
        world.soon(gate.reached(100)).await;
        let poison = handles.swap_remove(50);
        node.means.store.on(StoreCall::Commit).about(poison.id().as_str()).once().fail(StoreErrorKind::Invalid);
        gate.open();
        for handle in &handles { assert_eq!(world.soon(handle.completion()).await.expect("done").n, 2); }
        world.soon_until(async || poison.is(WorkflowStatus::Suspended).await).await;
        assert!(poison.reason().await.starts_with("what the last step left can never be stored: "), "{}", poison.reason().await);
        let errors = poison.all_errors().await;
        assert_eq!((errors.len(), &*errors[0].step), (1, "one"));
        assert_eq!(world.probe.runs("one"), 100);
        poison.retry_step().await.expect("stored");
        assert_eq!(world.soon(poison.completion()).await.expect("done").n, 2);
        node.stop_clean().await;
    }

    /// A group of a hundred whose connection is cut after COMMIT was sent.
    async fn a_group_whose_answer_is_lost_is_committed_once(world: World) {
        let node = world.run(Two).await;
        let gate = world.probe.hold("one");
        let mut handles = Vec::new();
        for _ in 0..100 { handles.push(node.begin::<Two>(Data::default()).await); }
        world.soon(gate.reached(100)).await;
        node.means.store.on(StoreCall::Commit).times(100).lose_answer(StoreErrorKind::Unavailable);
        gate.open();
        for handle in &handles { assert_eq!(world.fly(handle.completion()).await.expect("done").n, 2); }
        assert_eq!((world.probe.runs("one"), world.probe.runs("two")), (100, 100));
        node.stop_clean().await;
    }
}
