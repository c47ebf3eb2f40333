//! Starting hosts: what is refused, with which words; versions; services.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::{
    core::{Scope, lock::DistributedLockProvider},
    store::{StoreCapabilities, StoreClock},
};
use latchwork_lock_local::LocalLocks;
use latchwork_persistence_memory::MemoryStore;
use latchwork_queue_local::LocalQueue;

workflow!(Plain, |flow| { flow.run("one", async |_, cx| step(cx).await) });

workflow!(First: Data = 1 as "versioned", |flow| {
    flow.run("one", async |_, cx| step(cx).await);
    flow.delay("pause", Duration::from_secs(60));
    flow.run("old end", async |_, cx| step(cx).await);
});

workflow!(Second: Data = 2 as "versioned", |flow| {
    flow.run("one", async |_, cx| step(cx).await);
    flow.run("new middle", async |_, cx| step(cx).await);
    flow.run("new end", async |_, cx| step(cx).await);
});

// The first version, changed in place.
workflow!(Changed: Data = 1 as "versioned", |flow| {
    flow.run("one", async |_, cx| step(cx).await);
    flow.run("inserted", async |_, cx| step(cx).await);
    flow.delay("pause", Duration::from_secs(60));
    flow.run("old end", async |_, cx| step(cx).await);
});

// The first version again, with other times and policies: the same shape.
workflow!(Tuned: Data = 1 as "versioned", |flow| {
    flow.run("one", async |_, cx| step(cx).await).on_error(Retry::never());
    flow.delay("pause", Duration::from_secs(90));
    flow.run("old end", async |_, cx| step(cx).await).output(|(), data| data.n = 1);
});

struct Stock;
struct Carrier;

struct Ship;

impl StepBody for Ship {
    async fn run(&mut self, cx: &StepContext) -> StepResult {
        cx.service::<Stock>()?;
        Ok(ExecutionResult::next())
    }
}

workflow!(NeedsStock, |flow| { flow.step_with("ship", |_| Ok(Ship)).needs::<Stock>() });
workflow!(NeedsCarrier, |flow| { flow.step_with("ship", |services| services.get::<Carrier>().map(|_| Ship)) });
workflow!(AsksAnyhow, |flow| {
    flow.run("ask", async |_, cx| Ok(cx.service::<Carrier>().map(|_| ())?)).on_error(Retry::never())
});

workflow!(Unsound, |flow| {
    flow.run("a", async |_, cx| step(cx).await);
    flow.run("a", async |_, cx| step(cx).await);
    flow.go_to("nowhere");
});

async fn refused(world: &World, change: impl FnOnce(latchwork::WorkflowHostBuilder) -> latchwork::WorkflowHostBuilder) -> String {
    world.node().with(change).try_start().await.err().expect("refused").to_string()
}

fn sources(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {}", sources(source)))
}

on_each_store! {
    async fn k53_impossible_settings_are_refused(world: World) {
        let said = refused(&world, |b| b.poll_interval(Duration::ZERO)).await;
        assert_eq!(said, "the setting `poll_interval` is refused: it must be at least 10 ms, or the node does nothing but poll");
        let said = refused(&world, |b| b.max_concurrent_workflows(0)).await;
        assert_eq!(said, "the setting `max_concurrent_workflows` is refused: it must be at least 1; to run none, switch `run_workflows` off");
        let said = refused(&world, |b| b.configure(|o| o.data_limit = 17 << 20)).await;
        assert_eq!(said, "the setting `data_limit` is refused: it must be 1 byte to 16 MiB");
    }

    async fn definitions_that_are_not_sound_or_registered_twice_are_refused(world: World) {
        let said = refused(&world, |b| b.workflow(Unsound)).await;
        for part in ["`Unsound`", "`a`", "`nowhere`", "hosts.rs:"] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        let said = refused(&world, |b| b.workflow(First).workflow(Changed)).await;
        assert_eq!(said, "workflow `versioned` version 1 is registered twice; give the changed one a new version");
    }

    async fn a_host_that_runs_no_workflows_needs_no_services_for_their_steps(world: World) {
        let caller = world.node().with(|b| b.workflow(NeedsStock).workflow(NeedsCarrier).configure(|o| o.run_workflows = false)).start().await;
        let handle = caller.begin::<NeedsStock>(Data::default()).await;
        let node = world.node().with(|b| b.workflow(NeedsStock).service(Stock)).start().await;
        world.fly(handle.completion()).await.expect("done by the one that has them");
        node.stop_clean().await;
        caller.stop_clean().await;
    }

    async fn k44_a_missing_service_is_found_at_the_start(world: World) {
        let said = refused(&world, |b| b.workflow(NeedsStock)).await;
        assert_eq!(said, "workflow `NeedsStock` version 1, step `ship`: no service of type `hosts::Stock` is registered; add it with `.service(..)` on the host's builder");
        let said = refused(&world, |b| b.workflow(NeedsCarrier).service(Stock)).await;
        assert!(said.contains("step `ship`: no service of type `hosts::Carrier`"), "{said}");
        let node = world.node().with(|b| b.workflow(NeedsStock).workflow(NeedsCarrier).workflow(AsksAnyhow).service(Stock).service(Carrier)).start().await;
        world.soon(node.begin::<NeedsStock>(Data::default()).await.completion()).await.expect("done");
        world.soon(node.begin::<NeedsCarrier>(Data::default()).await.completion()).await.expect("done");
        world.soon(node.begin::<AsksAnyhow>(Data::default()).await.completion()).await.expect("done");
        node.stop_clean().await;
        let node = world.run(AsksAnyhow).await;
        let handle = node.begin::<AsksAnyhow>(Data::default()).await;
        world.soon_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        assert!(handle.reason().await.contains("no service of type `hosts::Carrier`"));
        node.stop_clean().await;
    }

    async fn versions_run_side_by_side_and_instances_stay_with_theirs(world: World) {
        let node = world.run(First).await;
        let old = node.begin::<First>(Data::default()).await;
        world.soon_until(async || world.probe.runs("one") == 1).await;
        let id = old.id().clone();
        drop(old);
        node.stop_clean().await;
        let node = world.node().with(|b| b.workflow(First).workflow(Second)).start().await;
        let new = node.begin::<Second>(Data::default()).await;
        world.soon(new.completion()).await.expect("done");
        assert_eq!(world.probe.runs("new end"), 1);
        world.fly(node.instance(id).ended()).await.expect("ended");
        assert_eq!((world.probe.runs("old end"), world.probe.runs("new middle")), (1, 1));
        assert_eq!(world.soon(node.begin::<Second>(Data::default()).await.completion()).await.expect("done").n, 0);
        node.stop_clean().await;
    }

    async fn k38_a_changed_shape_is_refused_with_the_difference_while_the_host_runs_on(world: World) {
        let node = world.run(First).await;
        let old = node.begin::<First>(Data::default()).await;
        world.soon_until(async || world.probe.runs("one") == 1).await;
        world.quiet().await;
        let changed = world.node().with(|b| b.workflow(Changed).workflow(Second).workflow(Plain)).start().await;
        let error = changed.start_workflow::<Changed>(Data::default()).await.expect_err("refused");
        let said = error.to_string();
        assert!(said.starts_with("workflow `versioned` version 1 has changed while instances of it are open, so no instance is started here: "), "{said}");
        assert!(said.contains("`inserted`") && said.ends_with("Give the changed workflow a new version"), "{said}");
        // The host runs on.
        world.fly(changed.begin::<Plain>(Data::default()).await.completion()).await.expect("done");
        world.fly(changed.begin::<Second>(Data::default()).await.completion()).await.expect("done");
        // The old instance is left to the node that has its shape.
        world.fly(old.completion()).await.expect("done");
        assert_eq!((world.probe.runs("old end"), world.probe.runs("inserted")), (1, 0));
        changed.stop_clean().await;
        node.stop_clean().await;
        // With no open instance left, the changed shape takes its place.
        let node = world.run(Changed).await;
        world.fly(node.begin::<Changed>(Data::default()).await.completion()).await.expect("done");
        assert_eq!(world.probe.runs("inserted"), 1);
        node.stop_clean().await;
    }

    async fn other_times_and_policies_are_the_same_shape(world: World) {
        let node = world.run(First).await;
        let handle = node.begin::<First>(Data::default()).await;
        world.soon_until(async || world.probe.runs("one") == 1).await;
        world.quiet().await;
        let id = handle.id().clone();
        drop(handle);
        node.stop_clean().await;
        let node = world.run(Tuned).await;
        node.begin::<Tuned>(Data::default()).await;
        world.fly(node.instance(id).ended()).await.expect("ended");
        node.stop_clean().await;
    }

    async fn a_node_leaves_what_it_does_not_know_to_those_who_do(world: World) {
        let stranger = world.run(Plain).await;
        let node = world.run(First).await;
        let handles: Vec<_> = futures(node.host.clone()).await;
        for handle in handles {
            world.fly(handle.completion()).await.expect("done");
        }
        assert_eq!(world.probe.keys("old end").len(), 10);
        stranger.stop_clean().await;
        node.stop_clean().await;
    }

    async fn what_a_host_may_not_do_is_refused(world: World) {
        let node = world.node().with(|b| b.workflow(Plain).configure(|o| o.publish_events = false)).start().await;
        let error = node.publish_event("e", "k", 1).await.expect_err("refused");
        assert_eq!(error.to_string(), "this host may not publish events: its setting `publish_events` is off");
        let error = node.start_workflow::<First>(Data::default()).await.expect_err("unknown");
        assert_eq!(error.to_string(), "no workflow `versioned` version 1 is registered on this host");
        for (event, key) in [("", "k"), ("e", " k"), ("e\u{7}", "k")] {
            assert!(matches!(node.publish_event(event, key, 1).await, Err(HostError::Name(_))));
        }
        node.stop_clean().await;
    }
}

async fn futures(host: WorkflowHost) -> Vec<WorkflowHandle<First>> {
    let mut handles = Vec::new();
    for _ in 0..10 {
        handles.push(host.start_workflow::<First>(Data::default()).await.expect("started"));
    }
    handles
}

/// A store of this scope over memory, without a claim.
fn wide(scope: Scope) -> FaultyStore {
    FaultyStore::new(MemoryStore::new()).with_capabilities(move |_| StoreCapabilities::new(scope, StoreClock::Server, "far:db"))
}

fn host_on(store: FaultyStore, locks: impl DistributedLockProvider) -> latchwork::WorkflowHostBuilder {
    WorkflowHost::builder().service(Probe::default()).workflow(Plain).configure(|options| {
        options.use_persistence(async move |_| Ok(store));
        options.use_distributed_lock_manager(async move |_| Ok(locks));
        options.use_queue_provider(async |_| Ok(LocalQueue::new()));
    })
}

/// K03.
#[tokio::test]
async fn k03_locks_that_reach_less_far_than_the_store_are_refused() {
    let error = host_on(wide(Scope::Cluster), LocalLocks::new()).start().await.expect_err("refused");
    let domain = LocalLocks::new().capabilities().domain;
    let domain = domain.rsplit_once(|c: char| !c.is_ascii_digit()).map_or(domain.as_str(), |(head, _)| head);
    let said = error.to_string();
    assert!(said.starts_with("the store `far:db` can be reached by every process of its cluster, the locks `"), "{said}");
    assert!(said.contains(domain), "{said}");
    assert!(
        said.ends_with(
            "exclude only those of one process: two nodes could run the same instance. Use locks of scope cluster or wider, or promise \
             with `single_node()` that this is the only host"
        ),
        "{said}"
    );
    let host = host_on(wide(Scope::Cluster), LocalLocks::new()).single_node().start().await.expect("promised");
    host.stop().await.expect("stopped");
}

#[tokio::test]
async fn a_store_that_can_be_claimed_alone_needs_no_wider_locks() {
    let store = FaultyStore::new(MemoryStore::new())
        .with_capabilities(|_| StoreCapabilities::new(Scope::Host, StoreClock::Injected, "file").with_exclusive_claim());
    let faults = store.faults().clone();
    let host = host_on(store, LocalLocks::new()).start().await.expect("claimed");
    assert_eq!(faults.count(StoreCall::ClaimExclusive), 1);
    host.stop().await.expect("stopped");
}

/// K10: hosts that do not exclude each other cannot share a store.
#[tokio::test]
async fn k10_a_store_of_another_namespace_or_lock_service_is_refused() {
    let (store, locks) = (MemoryStore::new(), LocalLocks::new());
    let first = host_on(FaultyStore::new(store.clone()), locks.peer()).start().await.expect("the first");
    let second = host_on(FaultyStore::new(store.clone()), locks.peer()).start().await.expect("locks of the same service");
    let error = host_on(FaultyStore::new(store.clone()), locks.peer())
        .namespace(latchwork::name::Namespace::new("other").expect("a name"))
        .start()
        .await;
    let said = error.expect_err("another namespace").to_string();
    assert!(said.contains("hosts of namespace `wfc`") && said.contains("this host has namespace `other`"), "{said}");
    for host in [first, second] {
        host.stop().await.expect("stopped");
    }
}

#[tokio::test]
async fn a_provider_that_is_missing_or_cannot_be_opened_is_named() {
    let error = WorkflowHost::builder().workflow(Plain).start().await.expect_err("no store");
    assert_eq!(error.to_string(), "the host has no store; choose one with a `use_...` call on its builder");
    let error = host_on(wide(Scope::Process), LocalLocks::new())
        .configure(|options| {
            options.use_queue_provider(async |_| Err::<LocalQueue, _>("the broker is not there".into()));
        })
        .start()
        .await
        .expect_err("no queue");
    assert_eq!(sources(&error), "the queue could not be opened: the broker is not there");
}
