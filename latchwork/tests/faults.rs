//! Poison belongs to the instance: a body that takes its process with it is held back, and does not take the nodes one by one.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;

use common::*;
use latchwork::core::store::InstanceQuery;

workflow!(Poisoned, |flow| {
    flow.run("poison", async |_, cx| step(cx).await);
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(Healthy, |flow| flow.run("healthy", async |_, cx| step(cx).await));

/// Runs the instance until its node dies of it; how long after the begin of the node that was.
async fn dies_of_it(world: &World, runs: usize) -> Duration {
    let node = world.node().with(|b| b.workflow(Poisoned).poll_interval(Duration::from_secs(10))).start().await;
    let began = world.now();
    world.fly_until(async || world.probe.runs("poison") == runs).await;
    let waited = world.clock.since(began);
    world.kill(node);
    waited
}

async fn fault_count(handle: &WorkflowHandle<Poisoned>) -> u32 {
    match handle.record().await {
        latchwork::core::store::InstanceRecord::Instance { header, .. } => header.fault_count,
        latchwork::core::store::InstanceRecord::Deleted(_) => panic!("it is there"),
    }
}

on_each_store! {
    async fn k14_a_body_that_kills_its_process_is_tried_later_and_later_and_then_suspends_its_instance(world: World) {
        let gate = world.probe.hold("poison");
        let first = world.node().with(|b| b.workflow(Poisoned)).start().await;
        let id = first.begin::<Poisoned>(Data::default()).await.id().clone();
        world.soon(gate.reached(1)).await;
        world.kill(first);

        let mut waits = Vec::new();
        for runs in 2..=10 {
            waits.push(dies_of_it(&world, runs).await);
        }
        // Two tries are free; from the third on the due time is put off, each time twice as far.
        let put_off: Vec<_> = waits[2..].iter().zip([1, 2, 4, 8, 16, 32, 60]).filter(|(wait, least)| wait.as_secs() < *least).collect();
        assert_eq!(put_off, [], "{waits:?}");

        let last = world.run(Poisoned).await;
        let handle = last.workflow_instance::<Poisoned>(id);
        world.fly_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        assert_eq!((world.probe.runs("poison"), fault_count(&handle).await), (10, 10));
        let reason = handle.reason().await;
        assert!(reason.contains("10 bursts in a row were cut short") && reason.contains("`poison`"), "{reason}");
        let stuck = last.find(&InstanceQuery::new().with_faults(3)).await.expect("found");
        assert_eq!(stuck.items.iter().map(|stuck| &stuck.header.id).collect::<Vec<_>>(), [handle.id()]);

        // Mended, and resumed: it goes on, and the faults are forgotten.
        gate.open();
        handle.resume().await.expect("resumed");
        world.fly(handle.completion()).await.expect("done");
        assert_eq!((world.probe.runs("poison"), fault_count(&handle).await), (11, 0));
        assert_eq!(last.find(&InstanceQuery::new().with_faults(1)).await.expect("found").items.len(), 0);
        last.stop_clean().await;
    }

    async fn an_instance_that_gets_on_is_not_held_back_however_often_its_nodes_die(world: World) {
        let gate = world.probe.hold("after");
        let first = world.node().with(|b| b.workflow(Poisoned)).start().await;
        let id = first.begin::<Poisoned>(Data::default()).await.id().clone();
        world.soon(gate.reached(1)).await;
        world.kill(first);
        let node = world.run(Poisoned).await;
        let handle = node.workflow_instance::<Poisoned>(id);
        world.soon(gate.reached(2)).await;
        assert_eq!(fault_count(&handle).await, 1);
        gate.open();
        world.soon(handle.completion()).await.expect("done");
        assert_eq!((world.probe.runs("poison"), world.probe.runs("after"), fault_count(&handle).await), (1, 2, 0));
        node.stop_clean().await;
    }

    async fn an_ordinary_start_writes_no_mark_of_a_fault(world: World) {
        let node = world.run(Healthy).await;
        let handle = node.begin::<Healthy>(Data::default()).await;
        world.soon(handle.completion()).await.expect("done");
        assert_eq!(node.means.store.count(StoreCall::Commit), 1);
        node.stop_clean().await;
    }
}
