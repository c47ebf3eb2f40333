//! What is over is deleted, when it is to be, whatever becomes of the node that ended it (A22, K26, K27, K54).

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::store::{AttributeValue, InstanceQuery, InstanceRecord, PurgeReport, PurgeRequest, StoreErrorKind};

const DAY: Duration = Duration::from_hours(24);

workflow!(Waits, |flow| {
    flow.run("one", async |_, cx| step(cx).await).on_error(Retry::fixed(Duration::from_secs(1)));
    flow.wait_for("go", |data| data.text.clone()).output(|n: i64, data| data.n = n);
    flow.run("two", async |_, cx| step(cx).await);
});

workflow!(Grows, |flow| {
    flow.run("grow", async |data, cx| {
        step(cx).await?;
        Ok("x".repeat(data.n as usize))
    })
    .output(|text, data| data.text = text);
});

workflow!(Parent, |flow| {
    flow.for_each(
        "children",
        |data| data.items.clone(),
        |each| {
            each.sub_workflow::<Grows>("call", |(_, item)| Data::n(*item))
                .output_each(|child, data, _| data.n += child.text.len() as i64);
        },
    );
});

async fn node(world: &World, retention: Retention) -> TestNode {
    world.node().with(|b| b.workflow(Waits).workflow(Grows).workflow(Parent).retention(retention)).start().await
}

async fn deleted(handle: &WorkflowHandle<impl Workflow>) -> bool {
    matches!(handle.get().await, Ok(InstanceRecord::Deleted(_)))
}

/// An instance with an error, an attribute, a business key, and a row in each table that an instance can have.
async fn rich(world: &World, node: &TestNode, key: &str) -> WorkflowHandle<Waits> {
    world.probe.fail("one", 1);
    let data = Data { text: key.into(), ..Data::default() };
    let start = node.start_workflow::<Waits>(data).business_key(key).attribute("kind", AttributeValue::Text("rich".into()));
    let handle = start.await.expect("started");
    world
        .fly_until(async || {
            handle.pointers().await.iter().any(|pointer| pointer.step.as_ref() == "wait for go" || pointer.step.contains("go"))
        })
        .await;
    assert_eq!(handle.all_errors().await.len(), 1);
    handle
}

async fn nothing_is_left(world: &World, node: &TestNode, handle: &WorkflowHandle<Waits>) {
    assert_eq!(handle.all_errors().await, []);
    assert_eq!(handle.pointers().await, []);
    assert!(world.store().load(handle.id()).await.expect("loaded").is_none());
    assert!(node.find(&InstanceQuery::new()).await.expect("found").items.is_empty());
    let statistics = node.statistics().await.expect("counted");
    assert_eq!((statistics.complete, statistics.terminated, statistics.inbox, statistics.open_activities), (0, 0, 0, 0));
}

on_each_store! {
    /// Plant the fault: in `Completions::ended`, do not tell the sweep.
    async fn what_is_deleted_at_its_end_leaves_its_result(world: World) {
        let node = node(&world, Retention::delete_at_end()).await;
        let handle = rich(&world, &node, "k").await;
        node.publish_event("go", "k", 7).await.expect("published");
        let began = world.now();
        assert_eq!(world.fly(handle.completion()).await.expect("done").n, 7);
        world.fly_until(async || deleted(&handle).await).await;
        assert!(world.clock.since(began) <= Duration::from_secs(5), "{:?}", world.clock.since(began));
        nothing_is_left(&world, &node, &handle).await;
        // The tombstone speaks for it.
        assert_eq!((handle.data().await.expect("the result").n, handle.completion().await.expect("the result").n), (7, 7));
        let again = node.start_workflow::<Waits>(Data::default()).business_key("k").await.expect("started");
        assert_eq!((again.was_created(), again.id()), (false, handle.id()));
        let late = handle.terminate("late").await.expect_err("refused");
        assert!(matches!(late, HostError::AlreadyEnded { .. } | HostError::NotFound { .. }), "{late}");
        node.stop_clean().await;
    }

    /// K27.
    async fn a_terminated_instance_is_deleted_with_all_that_belongs_to_it(world: World) {
        let node = node(&world, Retention::delete_at_end()).await;
        let handle = rich(&world, &node, "k").await;
        handle.terminate("enough").await.expect("accepted");
        world.fly_until(async || deleted(&handle).await).await;
        nothing_is_left(&world, &node, &handle).await;
        assert!(matches!(handle.completion().await, Err(HostError::Terminated { .. })));
        assert_eq!(world.store().publish(&[]).await.expect("published").wake, []);
        node.publish_event("go", "k", 7).await.expect("published");
        world.pass(Duration::from_secs(60)).await;
        assert_eq!(world.probe.runs("two"), 0);
        node.stop_clean().await;
    }

    async fn many_that_end_together_are_deleted_together(world: World) {
        let node = node(&world, Retention::delete_at_end()).await;
        let mut handles = Vec::new();
        for _ in 0..100 { handles.push(node.begin::<Grows>(Data::n(3)).await); }
        for handle in &handles { assert_eq!(world.fly(handle.completion()).await.expect("done").text, "xxx"); }
        world.fly_until(async || node.statistics().await.expect("counted").complete == 0).await;
        let purges = node.means.store.count(StoreCall::Purge);
        assert!(purges <= 20, "{purges} purges of a hundred instances");
        for handle in &handles { assert_eq!(handle.completion().await.expect("done").text, "xxx"); }
        node.stop_clean().await;
    }

    async fn a_result_beyond_eight_kilobytes_is_for_those_who_waited(world: World) {
        let node = node(&world, Retention::delete_at_end()).await;
        let handle = node.begin::<Grows>(Data::n(9_000)).await;
        assert_eq!(world.fly(handle.completion()).await.expect("done").text.len(), 9_000);
        world.fly_until(async || deleted(&handle).await).await;
        let late = handle.completion().await.expect_err("gone");
        assert!(late.to_string().contains("its data was deleted since"), "{late}");
        assert!(matches!(late, HostError::Deleted { .. }));
        node.stop_clean().await;
    }

    /// A child is deleted at its end, perhaps before its parent was looked at again, and what it left reaches the parent.
    async fn the_results_of_children_reach_their_parent(world: World) {
        let node = node(&world, Retention::delete_at_end()).await;
        // Larger than what a tombstone holds.
        let handle = node.begin::<Parent>(Data::items([9_000, 3, 20_000])).await;
        assert_eq!(world.fly(handle.completion()).await.expect("done").n, 29_003);
        world.fly_until(async || node.statistics().await.expect("counted").complete == 0).await;
        assert_eq!(handle.completion().await.expect("the result").n, 29_003);
        node.stop_clean().await;
    }

    /// K54. Plant the fault: in `Node::sweep`, begin with `now + interval`.
    async fn k54_what_a_node_left_that_died_before_cleaning_up_is_found_by_the_next(world: World) {
        let first = node(&world, Retention::delete_at_end()).await;
        first.means.store.on(StoreCall::Purge).fail(StoreErrorKind::Unavailable);
        let handle = first.begin::<Grows>(Data::n(3)).await;
        world.fly(handle.completion()).await.expect("done");
        world.kill(first);
        world.clock.advance(Duration::from_secs(1));
        let second = node(&world, Retention::delete_at_end()).await;
        let handle = second.instance(handle.id().clone());
        world.soon_until(async || matches!(handle.get().await, Ok(InstanceRecord::Deleted(_)))).await;
        second.stop_clean().await;
    }

    async fn each_kind_of_end_has_an_age_of_its_own(world: World) {
        let retention = Retention::delete_after(DAY).with_terminated(Keep::For(DAY * 3));
        let node = node(&world, retention).await;
        let complete = node.begin::<Grows>(Data::n(3)).await;
        world.fly(complete.completion()).await.expect("done");
        let terminated = rich(&world, &node, "k").await;
        let open = rich(&world, &node, "l").await;
        terminated.terminate("enough").await.expect("accepted");
        world.fly_until(async || terminated.is(WorkflowStatus::Terminated).await).await;
        let ages = [(DAY - Duration::from_secs(600), false, false), (Duration::from_secs(1_300), true, false), (DAY, true, false), (DAY * 2, true, true)];
        for (span, complete_is_deleted, terminated_is_deleted) in ages {
            world.clock.advance(span);
            world.pass(Duration::from_secs(3)).await;
            assert_eq!((deleted(&complete).await, deleted(&terminated).await), (complete_is_deleted, terminated_is_deleted), "{span:?}");
        }
        // What runs is never too old.
        assert!(open.is(WorkflowStatus::Runnable).await);
        node.publish_event("go", "l", 1).await.expect("published");
        world.fly(open.completion()).await.expect("done");
        node.stop_clean().await;
    }

    /// K26. By default instances stay, and events and tombstones do not.
    async fn k26_events_and_tombstones_grow_old(world: World) {
        let node = node(&world, Retention::new()).await;
        let kept = node.begin::<Grows>(Data::n(3)).await;
        world.fly(kept.completion()).await.expect("done");
        let gone = node.start_workflow::<Grows>(Data::n(3)).business_key("k").await.expect("started");
        gone.terminate("enough").await.expect("accepted");
        world.fly_until(async || gone.status().await.expect("there").is_terminal()).await;
        node.publish_event("go", "nobody", 1).await.expect("published");
        world.clock.advance(Duration::from_secs(1));
        let request = PurgeRequest::new().with_instances(Duration::ZERO).with_status([gone.status().await.expect("there")]);
        let by_hand = node.purge(&request.with_limit(1)).await.expect("purged");
        assert_eq!(by_hand.instances, 1);
        for (days, events, tombstone) in [(6, 1, true), (2, 1, false), (81, 1, false), (2, 0, false)] {
            world.clock.advance(DAY * days);
            world.pass(Duration::from_secs(3)).await;
            let left = [&kept, &gone].map(|handle| async { handle.get().await.is_ok() });
            let [kept_is_there, gone_is_known] = left;
            let there = usize::from(kept_is_there.await) + usize::from(gone_is_known.await);
            assert_eq!(node.statistics().await.expect("counted").events, events, "after {days} days more");
            assert_eq!(there, 1 + usize::from(tombstone), "after {days} days more");
        }
        node.stop_clean().await;
    }

    async fn one_node_sweeps_at_a_time(world: World) {
        let first = node(&world, Retention::delete_at_end()).await;
        world.lose_queue();
        let second = node(&world, Retention::delete_at_end()).await;
        world.rest().await;
        let before = second.means.store.count(StoreCall::Purge);
        let gate = first.means.store.on(StoreCall::Purge).hold();
        let one = first.begin::<Grows>(Data::n(1)).await;
        world.fly(one.completion()).await.expect("done");
        world.fly_until(async || gate.arrived() == 1).await;
        let two = second.begin::<Grows>(Data::n(2)).await;
        world.fly(two.completion()).await.expect("done");
        world.pass(Duration::from_secs(20)).await;
        assert_eq!((gate.arrived(), second.means.store.count(StoreCall::Purge)), (1, before));
        gate.open();
        world.fly_until(async || deleted(&one).await && deleted(&two).await).await;
        first.stop_clean().await;
        second.stop_clean().await;
    }

    async fn a_sweep_that_fails_is_told_and_tried_again(world: World) {
        let node = node(&world, Retention::delete_at_end()).await;
        world.rest().await;
        assert_eq!(node.health().retention.failure, None);
        node.means.store.on(StoreCall::Purge).fail(StoreErrorKind::Unavailable);
        let before = node.means.store.count(StoreCall::Purge);
        let handle = node.begin::<Grows>(Data::n(1)).await;
        world.fly(handle.completion()).await.expect("done");
        world.fly_until(async || node.health().retention.failure.is_some()).await;
        world.pass(Duration::from_secs(120)).await;
        let tries = node.means.store.count(StoreCall::Purge) - before;
        assert!((3..=12).contains(&tries), "{tries} tries in two minutes, with a pause that doubles");
        node.means.store.clear();
        // What was deleted is told a moment later.
        world.fly_until(async || deleted(&handle).await && node.health().retention.failure.is_none()).await;
        let health = node.health().retention;
        assert_eq!((health.failure, health.deleted), (None, PurgeReport::new(1, 0, 0, false)));
        assert!(health.since_sweep.is_some_and(|since| since <= Duration::from_secs(2)), "{:?}", health.since_sweep);
        node.stop_clean().await;
    }

    async fn a_host_that_leaves_it_to_others_deletes_nothing(world: World) {
        let node = node(&world, Retention::by_hand()).await;
        let handle = node.begin::<Grows>(Data::n(1)).await;
        world.fly(handle.completion()).await.expect("done");
        world.clock.advance(DAY * 100);
        world.pass(Duration::from_secs(60)).await;
        assert_eq!(node.means.store.count(StoreCall::Purge), 0);
        assert!(handle.is(WorkflowStatus::Complete).await);
        node.stop_clean().await;
    }
}

#[tokio::test]
async fn a_retention_that_cannot_work_is_refused() {
    let world = World::memory();
    let short = Retention::delete_at_end().with_tombstones(Some(Duration::from_secs(19)));
    let refused = world.node().with(|b| b.workflow(Grows).retention(short)).try_start().await.err().expect("refused");
    assert!(refused.to_string().contains("`retention.tombstones` is refused"), "{refused}");
}
