//! Large data is stored in less room, and is readable either way (A23).

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::{
    decompress,
    store::{Checkpoint, CheckpointId, CheckpointOutcome, Due, Encoded, HeaderUpdate, InstanceRecord},
};

const OVER: usize = 1_000;

workflow!(Large, |flow| {
    flow.run("grow", async |data, cx| {
        step(cx).await?;
        Ok(data.text.repeat(20))
    })
    .output(|text, data| data.text = text);
    flow.wait_for("go", |_| "k".into()).output(|n: i64, data| data.n = n);
    flow.run("end", async |_, cx| step(cx).await);
});

workflow!(Items, |flow| {
    flow.for_each(
        "each",
        |data| data.items.clone(),
        |each| {
            each.run("begin item", async |_, cx| step(cx).await);
            each.run("item", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
        },
    );
});

workflow!(Parent, |flow| {
    flow.sub_workflow::<Large>("call", |_| start()).output(|child, data| data.n = child.text.len() as i64);
});

workflow!(Undoes: Vec<String>, |flow| {
    flow.saga("saga", |saga| {
        saga.for_each(
            "each",
            |data| data.clone(),
            |each| {
                each.run("do", async |_, cx| step(cx).await).compensate(async |(_, item), cx| {
                    step(cx).await?;
                    assert_eq!(item.len(), 4_000, "the item that it was done for");
                    Ok(())
                });
            },
        );
        saga.run("fail", async |_, cx| step(cx).await).on_error(Retry::never());
    })
    .on_error(Retry::never().then_continue());
});

fn start() -> Data {
    Data { text: "all the same ".repeat(100), ..Data::default() }
}

fn expected() -> Data {
    Data { text: start().text.repeat(20), n: 7, ..Data::default() }
}

async fn node(world: &World, over: Option<usize>) -> TestNode {
    world
        .node()
        .with(|b| {
            b.workflow(Large)
                .workflow(Items)
                .workflow(Parent)
                .workflow(Undoes)
                .configure(|options| options.compress_data_over = over)
        })
        .start()
        .await
}

async fn stored(world: &World, id: &InstanceId) -> Encoded {
    match world.store().get(id).await.expect("got") {
        Some(InstanceRecord::Instance { data, .. }) => data,
        other => panic!("{other:?}"),
    }
}

/// Replaces the stored data behind the engine's back.
async fn overwrite(world: &World, id: &InstanceId, data: Encoded, number: u64) {
    let header = world.store().load(id).await.expect("loaded").expect("there").header;
    let update = HeaderUpdate { status: header.status, reason: header.reason, due: Due::Keep, fault_count: header.fault_count };
    let mut checkpoint = Checkpoint::new(id.clone(), CheckpointId { burst: 1, number }, header.revision, update);
    checkpoint.data = Some(data);
    let outcome = world.store().commit(vec![Arc::new(checkpoint)]).await.pop().expect("an answer");
    assert!(matches!(outcome, CheckpointOutcome::Committed(_)), "{outcome:?}");
}

on_each_store! {
    /// Plant the fault: in `Instance::load`, leave out `decompress`.
    async fn what_is_written_with_the_option_is_read_without_it_and_the_other_way_round(world: World) {
        for (writes, reads) in [(Some(OVER), None), (None, Some(OVER))] {
            let node_that_writes = node(&world, writes).await;
            let handle = node_that_writes.begin::<Large>(start()).await;
            world.fly_until(async || !world.store().load(handle.id()).await.expect("loaded").expect("there").subscriptions.is_empty()).await;
            let text = stored(&world, handle.id()).await;
            assert_eq!(text.as_str().starts_with("gz:"), writes.is_some());
            // The read side does not depend on the option of who reads.
            assert_eq!(handle.data().await.expect("readable").text, expected().text);
            node_that_writes.stop_clean().await;
            let node_that_reads = node(&world, reads).await;
            let handle = node_that_reads.instance(handle.id().clone());
            node_that_reads.publish_event("go", "k", 7).await.expect("published");
            let InstanceRecord::Instance { data, .. } = world.fly(handle.ended()).await.expect("done") else { panic!("deleted?") };
            assert_eq!(serde_json::from_str::<Data>(data.as_str()).expect("JSON"), expected());
            assert_eq!(stored(&world, handle.id()).await.as_str().starts_with("gz:"), reads.is_some());
            node_that_reads.stop_clean().await;
            // The event of one round is too old for the next one's instance.
            world.clock.advance(Duration::from_secs(1));
        }
    }

    async fn large_data_takes_less_room_and_small_data_stays_readable_text(world: World) {
        let node = node(&world, Some(OVER)).await;
        let large = node.begin::<Large>(start()).await;
        let created = stored(&world, large.id()).await;
        assert!(created.as_str().starts_with("gz:") && created.as_str().len() < 150, "{}", created.as_str().len());
        let small = node.begin::<Items>(Data::n(1)).await;
        world.fly(small.completion()).await.expect("done");
        assert_eq!(stored(&world, small.id()).await, Encoded::of(&Data::n(1)).expect("JSON"));
        node.publish_event("go", "k", 7).await.expect("published");
        assert_eq!(world.fly(large.completion()).await.expect("done"), expected());
        let text = stored(&world, large.id()).await;
        assert!(text.as_str().len() < 1_000, "{} bytes for {}", text.as_str().len(), expected().text.len());
        assert_eq!(decompress(&text).expect("readable"), Encoded::of(&expected()).expect("JSON"));
        node.stop_clean().await;
    }

    /// The collection of a for-each is stored once, in a record of its own.
    async fn a_large_collection_is_compressed_and_gone_on_with_by_another_node(world: World) {
        let first = node(&world, Some(OVER)).await;
        let gate = world.probe.hold("item");
        let handle = first.begin::<Items>(Data::items((0..500).map(|n| 1_000_000 + n % 3))).await;
        world.soon(gate.reached(1)).await;
        let pointers = world.store().load(handle.id()).await.expect("loaded").expect("there").pointers;
        let states: Vec<_> = pointers.iter().filter_map(|pointer| pointer.state.as_ref().map(|state| state.as_str().to_owned())).collect();
        assert!(states.iter().any(|state| state.starts_with("gz:")) && states.iter().all(|state| state.len() < OVER), "{states:?}");
        let shown: Vec<_> = handle.pointers().await.iter().filter_map(|pointer| pointer.state.clone()).collect();
        assert!(shown.iter().any(|state| state.as_str().starts_with("[1000000,1000001,")), "a history shows JSON");
        world.kill(first);
        gate.open();
        let second = node(&world, None).await;
        let handle = second.instance(handle.id().clone());
        let InstanceRecord::Instance { data, .. } = world.fly(handle.ended()).await.expect("done") else { panic!("deleted?") };
        assert_eq!(serde_json::from_str::<Data>(data.as_str()).expect("JSON").n, 500);
        second.stop_clean().await;
    }

    /// What a saga keeps of its steps to undo them, and what a sub-workflow is given and gives back.
    async fn items_of_a_saga_and_data_of_a_child_are_compressed_too(world: World) {
        let node = node(&world, Some(OVER)).await;
        world.probe.fail("fail", 1);
        let gate = world.probe.hold("fail");
        let saga = node.begin::<Undoes>(vec!["x".repeat(4_000), "y".repeat(4_000)]).await;
        world.soon(gate.reached(1)).await;
        let page = world.store().history(saga.id(), 0, 100).await.expect("a history");
        let states: Vec<_> = page.items.iter().filter_map(|pointer| pointer.state.as_ref()).collect();
        assert!(states.len() >= 2 && states.iter().all(|state| state.as_str().len() < OVER), "{states:?}");
        gate.open();
        world.fly(saga.completion()).await.expect("done");
        let undone = world.probe.steps().iter().filter(|step| *step != "do" && *step != "fail").count();
        assert_eq!((world.probe.runs("do"), undone), (2, 2), "{:?}", world.probe.steps());

        let parent = node.begin::<Parent>(Data::default()).await;
        world.fly_until(async || world.probe.ended("grow") == 1).await;
        let children = node.find(&latchwork::store::InstanceQuery::new().with_parent(parent.id().clone())).await.expect("found");
        let child = children.items.first().expect("one").header.id.clone();
        assert!(stored(&world, &child).await.as_str().starts_with("gz:"));
        node.publish_event("go", "k", 7).await.expect("published");
        assert_eq!(world.fly(parent.completion()).await.expect("done").n, expected().text.len() as i64);
        node.stop_clean().await;
    }

    async fn the_limits_count_the_json(world: World) {
        let limited = |b: latchwork::WorkflowHostBuilder| b.workflow(Large).compress_data_over(OVER).configure(|options| options.data_limit = 2_000);
        let node = world.node().with(limited).start().await;
        let large = Data { text: "x".repeat(2_000), ..Data::default() };
        let refused = node.start_workflow::<Large>(large).await.expect_err("refused");
        assert!(matches!(refused, HostError::TooLarge { limit: 2_000, bytes, .. } if bytes > 2_000), "{refused}");
        let handle = node.begin::<Large>(start()).await;
        world.fly_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        assert!(handle.reason().await.contains("bytes of JSON, the limit is 2000"), "{}", handle.reason().await);
        node.stop_clean().await;
    }

    /// The data of a tombstone counts as it is stored.
    async fn a_compressed_result_stays_in_the_tombstone(world: World) {
        let node = world.node().with(|b| b.workflow(Large).compress_data_over(OVER).retention(Retention::delete_at_end())).start().await;
        let handle = node.begin::<Large>(start()).await;
        node.publish_event("go", "k", 7).await.expect("published");
        world.fly_until(async || matches!(handle.record().await, InstanceRecord::Deleted(_))).await;
        assert!(expected().text.len() > 8 * 1_024);
        assert_eq!(handle.completion().await.expect("the result"), expected());
        node.stop_clean().await;
    }

    async fn damaged_data_is_told_and_nothing_is_lost(world: World) {
        let node = node(&world, Some(OVER)).await;
        let handle = node.begin::<Large>(start()).await;
        world.fly_until(async || !world.store().load(handle.id()).await.expect("loaded").expect("there").subscriptions.is_empty()).await;
        world.quiet().await;
        let sound = stored(&world, handle.id()).await;
        let half = sound.as_str().get(..sound.as_str().len() / 2).expect("ASCII");
        overwrite(&world, handle.id(), Encoded::from_json(half), 1).await;
        let (header, pointers) = (world.store().load(handle.id()).await.expect("loaded").expect("there").header, handle.pointers().await);

        node.publish_event("go", "k", 7).await.expect("published");
        world.pass(Duration::from_secs(60)).await;
        let error = handle.data().await.expect_err("damaged");
        let cause = std::error::Error::source(&error).expect("a cause").to_string();
        assert!(cause.contains("its compressed text is damaged"), "{error}: {cause}");
        assert!(handle.get().await.is_err() && handle.is(WorkflowStatus::Runnable).await, "what needs no data is told");
        let left = world.store().load(handle.id()).await.expect("loaded").expect("there");
        assert_eq!((left.header, left.inbox.len(), handle.pointers().await), (header, 1, pointers));

        overwrite(&world, handle.id(), sound, 2).await;
        assert_eq!(world.fly(handle.completion()).await.expect("done"), expected());
        assert_eq!((world.probe.runs("grow"), world.probe.runs("end")), (1, 1));
        node.stop_clean().await;
    }

    /// Calls that need neither definition nor data reach it; and who waits for it is told.
    async fn an_instance_with_damaged_data_can_be_terminated(world: World) {
        let node = node(&world, Some(OVER)).await;
        let parent = node.begin::<Parent>(Data::default()).await;
        world.fly_until(async || world.probe.ended("grow") == 1).await;
        world.quiet().await;
        let children = node.find(&latchwork::store::InstanceQuery::new().with_parent(parent.id().clone())).await.expect("found");
        let child = node.workflow_instance::<Large>(children.items.first().expect("one").header.id.clone());
        overwrite(&world, child.id(), Encoded::from_json("gz:AAAA"), 1).await;
        child.suspend("look at it").await.expect("accepted");
        world.fly_until(async || child.is(WorkflowStatus::Suspended).await).await;
        child.terminate("beyond repair").await.expect("accepted");
        world.fly_until(async || child.is(WorkflowStatus::Terminated).await).await;
        assert!(matches!(child.completion().await, Err(HostError::Terminated { .. })));
        world.fly_until(async || !parent.all_errors().await.is_empty()).await;
        let error = parent.all_errors().await.remove(0).message;
        assert!(error.contains("was terminated: beyond repair"), "{error}");
        node.stop_clean().await;
    }
}
