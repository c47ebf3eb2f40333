//! What others ask of an instance, from any node, also while a step runs (A10).

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::hub::LifeCycleKind;

const MINUTE: Duration = Duration::from_secs(60);

workflow!(Steps, |flow| {
    flow.run("one", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    flow.run("two", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    flow.delay("pause", MINUTE);
    flow.run("three", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
});

workflow!(Sides, |flow| {
    flow.parallel("sides", |all| {
        all.branch("left", |b| {
            b.run("left", async |_, cx| step(cx).await);
            b.run("left after", async |_, cx| step(cx).await);
        });
        all.branch("right", |b| {
            b.wait_for("go", |_| "k".into());
            b.run("right after", async |_, cx| step(cx).await);
        });
    });
});

workflow!(Stubborn, |flow| {
    flow.run("stubborn", async |_, cx| {
        let ran = step(cx).await;
        // Not before its token fires does it end.
        cx.cancellation().cancelled().await;
        ran
    });
    flow.run("after", async |_, cx| step(cx).await);
});

async fn two_nodes<W: Workflow>(world: &World, workflow: fn() -> W) -> (TestNode, TestNode) {
    let worker = world.run(workflow()).await;
    // The other does not run anything, so that what it asks is asked from outside.
    let other = world.node().with(|b| b.workflow(workflow()).configure(|options| options.run_workflows = false)).start().await;
    (worker, other)
}

on_each_store! {
    async fn k32_suspend_while_a_step_runs_lets_it_finish_and_starts_no_other(world: World) {
        let (worker, other) = two_nodes(&world, || Steps).await;
        let gate = world.probe.hold("one");
        let handle = worker.begin::<Steps>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        other.instance(handle.id().clone()).suspend("audit").await.expect("stored");
        // Seen within a second where the body runs, which goes on.
        world.fly_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        assert_eq!((handle.reason().await, world.probe.ended("one")), ("audit".to_owned(), 0));
        gate.open();
        world.soon_until(async || handle.data().await.expect("data").n == 1).await;
        world.pass(MINUTE).await;
        assert_eq!(world.probe.steps(), ["one"]);
        assert!(handle.is(WorkflowStatus::Suspended).await);
        other.instance(handle.id().clone()).resume().await.expect("stored");
        assert_eq!(world.fly(handle.completion()).await.expect("done").n, 3);
        assert_eq!(world.probe.steps(), ["one", "two", "three"]);
        worker.stop_clean().await;
        other.stop_clean().await;
    }

    async fn k32_terminate_while_a_step_runs_fires_its_token(world: World) {
        let (worker, other) = two_nodes(&world, || Stubborn).await;
        let handle = worker.begin::<Stubborn>(Data::default()).await;
        world.soon_until(async || world.probe.ended("stubborn") == 1).await;
        other.instance(handle.id().clone()).terminate("no longer wanted").await.expect("stored");
        let error = world.fly(handle.completion()).await.expect_err("terminated");
        assert_eq!(error.to_string(), format!("instance {} was terminated: no longer wanted", handle.id()));
        assert_eq!(world.probe.runs("after"), 0);
        let record = handle.record().await;
        let latchwork::store::InstanceRecord::Instance { header, .. } = record else { panic!("deleted") };
        assert_eq!((header.status, header.ended.is_some(), header.due), (WorkflowStatus::Terminated, true, None));
        worker.stop_clean().await;
        other.stop_clean().await;
    }

    async fn what_is_asked_on_the_node_itself_reaches_a_running_step_at_once(world: World) {
        let node = world.run(Stubborn).await;
        let handle = node.begin::<Stubborn>(Data::default()).await;
        world.soon_until(async || world.probe.ended("stubborn") == 1).await;
        handle.suspend("a look").await.expect("stored");
        world.soon_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        handle.terminate("enough").await.expect("stored");
        world.soon(handle.completion()).await.expect_err("terminated");
        node.stop_clean().await;
    }

    async fn a_body_that_does_not_heed_its_token_is_dropped_after_the_grace(world: World) {
        let node = world.run(Steps).await;
        let _gate = world.probe.hold("one");
        let handle = node.begin::<Steps>(Data::default()).await;
        world.soon_until(async || world.probe.runs("one") == 1).await;
        handle.terminate("now").await.expect("stored");
        world.fly(handle.ended()).await.expect("ended");
        assert_eq!(world.probe.ended("one"), 0);
        node.stop_clean().await;
    }

    async fn suspended_instances_keep_timers_and_events_for_later(world: World) {
        let node = world.node().with(|b| b.workflow(Steps).workflow(Sides)).start().await;
        let (steps, sides) = (node.begin::<Steps>(Data::default()).await, node.begin::<Sides>(Data::default()).await);
        world.soon_until(async || world.probe.runs("two") == 1 && world.probe.runs("left after") == 1).await;
        world.quiet().await;
        for handle in [&*steps, &*sides] {
            handle.suspend("holiday").await.expect("stored");
            world.soon_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        }
        node.publish_event("go", "k", ()).await.expect("published");
        world.pass(MINUTE * 2).await;
        assert_eq!((world.probe.runs("three"), world.probe.runs("right after")), (0, 0));
        steps.resume().await.expect("stored");
        sides.resume().await.expect("stored");
        world.soon(steps.completion()).await.expect("done");
        world.soon(sides.completion()).await.expect("done");
        node.stop_clean().await;
    }

    async fn an_instance_can_be_suspended_before_it_ever_ran(world: World) {
        let off = world.node().with(|b| b.workflow(Steps).configure(|options| options.run_workflows = false)).start().await;
        let handle = off.begin::<Steps>(Data::default()).await;
        handle.suspend("first look").await.expect("stored");
        let node = world.run(Steps).await;
        world.fly_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        world.pass(MINUTE).await;
        assert_eq!(world.probe.steps(), [""; 0]);
        node.instance(handle.id().clone()).resume().await.expect("stored");
        world.fly(handle.completion()).await.expect("done");
        off.stop_clean().await;
        node.stop_clean().await;
    }

    async fn an_instance_can_be_terminated_before_it_ever_ran_and_while_it_is_suspended(world: World) {
        let off = world.node().with(|b| b.workflow(Steps).configure(|options| options.run_workflows = false)).start().await;
        let first = off.begin::<Steps>(Data::default()).await;
        first.terminate("never mind").await.expect("stored");
        let second = off.begin::<Steps>(Data::default()).await;
        second.suspend("wait").await.expect("stored");
        second.terminate("never mind").await.expect("stored");
        let node = world.run(Steps).await;
        for handle in [first, second] {
            let record = world.fly(handle.ended()).await.expect("ended");
            assert_eq!((record.status(), handle.reason().await.as_str()), (WorkflowStatus::Terminated, "never mind"));
        }
        assert_eq!(world.probe.steps(), [""; 0]);
        off.stop_clean().await;
        node.stop_clean().await;
    }

    async fn calls_on_ended_and_unknown_instances_say_so(world: World) {
        let node = world.run(Steps).await;
        let handle = node.begin::<Steps>(Data::default()).await;
        world.fly(handle.completion()).await.expect("done");
        let id = handle.id().clone();
        let ended = format!("instance {id} has ended already: it is complete");
        for error in [handle.suspend("x").await, handle.resume().await, handle.terminate("x").await, handle.retry_step().await] {
            assert_eq!(error.expect_err("refused").to_string(), ended);
        }
        let unknown = node.instance(InstanceId::new());
        let said = format!("there is no instance {}", unknown.id());
        for error in [unknown.suspend("x").await, unknown.resume().await, unknown.terminate("x").await, unknown.retry_step().await] {
            assert_eq!(error.expect_err("refused").to_string(), said);
        }
        assert_eq!(unknown.status().await.expect_err("unknown").to_string(), said);
        assert_eq!(world.soon(unknown.ended()).await.expect_err("unknown").to_string(), said);
        assert!(matches!(node.start_workflow::<Sides>(Data::default()).await, Err(HostError::UnknownWorkflow { .. })));
        node.stop_clean().await;
    }

    async fn completion_is_seen_from_another_node_and_can_time_out(world: World) {
        let (worker, other) = two_nodes(&world, || Steps).await;
        let gate = world.probe.hold("two");
        let handle = other.begin::<Steps>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        let error = world.fly(handle.completion().timeout(Duration::from_secs(5))).await.expect_err("not yet");
        assert_eq!(error.to_string(), format!("instance {} has not ended in time; it is runnable", handle.id()));
        assert!(error.is_retryable());
        gate.open();
        assert_eq!(world.fly(handle.completion().timeout(MINUTE * 10)).await.expect("done").n, 3);
        worker.stop_clean().await;
        other.stop_clean().await;
    }

    async fn a_failed_step_is_retried_from_another_node(world: World) {
        let worker = world.node().with(|b| b.workflow(Steps).default_error_policy(Retry::never())).start().await;
        let other = world.node().with(|b| b.workflow(Steps).configure(|options| options.run_workflows = false)).start().await;
        world.probe.fail("two", 1);
        let handle = worker.begin::<Steps>(Data::default()).await;
        world.soon_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        other.instance(handle.id().clone()).retry_step().await.expect("stored");
        assert_eq!(world.fly(handle.completion()).await.expect("done").n, 3);
        assert_eq!(world.probe.steps(), ["one", "two", "two", "three"]);
        assert_eq!(handle.reason().await, "");
        worker.stop_clean().await;
        other.stop_clean().await;
    }

    async fn suspend_resume_and_terminate_work_where_the_definition_is_unknown(world: World) {
        let node = world.run(Steps).await;
        let stranger = world.run(Sides).await;
        let handle = node.begin::<Steps>(Data::default()).await;
        world.soon_until(async || world.probe.runs("two") == 1).await;
        stranger.instance(handle.id().clone()).suspend("by a stranger").await.expect("stored");
        world.fly_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        stranger.instance(handle.id().clone()).terminate("by a stranger").await.expect("stored");
        world.fly_until(async || handle.is(WorkflowStatus::Terminated).await).await;
        node.stop_clean().await;
        stranger.stop_clean().await;
    }

    async fn k41_business_keys_start_an_instance_once(world: World) {
        let (worker, other) = two_nodes(&world, || Steps).await;
        let first = worker.start_workflow::<Steps>(Data::default()).business_key("A-1").await.expect("started");
        let again = other.start_workflow::<Steps>(Data::n(100)).business_key("A-1").await.expect("started");
        assert_eq!((first.was_created(), again.was_created()), (true, false));
        assert_eq!(first.id(), again.id());
        assert_eq!(world.fly(again.completion()).await.expect("done").n, 3);
        let late = worker.start_workflow::<Steps>(Data::default()).business_key("A-1").await.expect("started");
        assert_eq!((late.was_created(), late.id()), (false, first.id()));
        let found = other.find_by_key::<Steps>("A-1").await.expect("store").expect("found");
        assert_eq!(found.id(), first.id());
        assert!(other.find_by_key::<Steps>("A-2").await.expect("store").is_none());
        for key in ["", " A", "A\n", &"k".repeat(201)] {
            let error = worker.start_workflow::<Steps>(Data::default()).business_key(key).await.expect_err("refused");
            assert!(error.to_string().contains("business key"), "{error}");
        }
        worker.stop_clean().await;
        other.stop_clean().await;
    }

    async fn one_hundred_starts_by_look_alike_keys_on_three_nodes_start_each_once(world: World) {
        let mut nodes = Vec::new();
        for _ in 0..3 { nodes.push(world.run(Steps).await); }
        let keys = ["a", "A", "á", "a\u{301}", "a1", "1", "01", "Ａ", "ﬀ", "ff"];
        let starts = (0..100).map(|n| {
            let (host, key) = (nodes[n % 3].host.clone(), keys[n % keys.len()]);
            tokio::spawn(async move {
                let handle = host.start_workflow::<Steps>(Data::default()).business_key(key).await.expect("started");
                (key, handle.id().clone(), handle.was_created())
            })
        });
        let mut created = std::collections::BTreeMap::<_, Vec<_>>::new();
        let mut all = std::collections::BTreeMap::<_, std::collections::BTreeSet<_>>::new();
        for start in starts.collect::<Vec<_>>() {
            let (key, id, was_created) = start.await.expect("no panic");
            if was_created { created.entry(key).or_default().push(id.clone()); }
            all.entry(key).or_default().insert(id);
        }
        assert_eq!(created.len(), keys.len());
        assert!(created.values().all(|ids| ids.len() == 1), "{created:?}");
        assert!(all.values().all(|ids| ids.len() == 1), "{all:?}");
        world.fly_until(async || world.probe.runs("three") == keys.len()).await;
        assert!(world.probe.keys("one").values().all(|runs| *runs == 1));
        for node in nodes { node.stop_clean().await; }
    }

    async fn a_start_whose_answer_was_lost_can_be_repeated(world: World) {
        let node = world.run(Steps).await;
        node.means.store.on(StoreCall::Create).once().lose_answer(latchwork::store::StoreErrorKind::Unavailable);
        let id = InstanceId::new();
        let error = node.start_workflow::<Steps>(Data::default()).id(id.clone()).await.expect_err("lost");
        assert!(error.is_retryable(), "{error}");
        let handle = node.start_workflow::<Steps>(Data::default()).id(id.clone()).await.expect("started");
        assert_eq!(handle.id(), &id);
        world.fly(handle.completion()).await.expect("done");
        assert!(world.probe.keys("one").values().all(|runs| *runs == 1));
        node.stop_clean().await;
    }

    async fn life_cycle_events_tell_what_happened_after_the_commit(world: World) {
        let node = world.node().with(|b| b.workflow(Steps).default_error_policy(Retry::never())).start().await;
        let mut events = node.subscribe();
        world.probe.fail("two", 1);
        let handle = node.start_workflow::<Steps>(Data::default()).reference("ref").await.expect("started");
        world.soon_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        handle.retry_step().await.expect("stored");
        world.fly(handle.completion()).await.expect("done");
        let mut told = Vec::new();
        while told.last() != Some(&"completed".to_owned()) {
            let event = world.soon(events.next()).await.expect("an event");
            assert_eq!((&event.instance, event.reference.as_deref()), (handle.id(), Some("ref")));
            told.push(match event.kind {
                LifeCycleKind::Started => "started".to_owned(),
                LifeCycleKind::StepCompleted { step } => format!("{step} completed"),
                LifeCycleKind::Error { step, .. } => format!("{step} failed"),
                LifeCycleKind::Suspended { .. } => "suspended".to_owned(),
                LifeCycleKind::Resumed => "resumed".to_owned(),
                LifeCycleKind::Completed => "completed".to_owned(),
                LifeCycleKind::StepStarted { .. } => continue,
                other => format!("{other:?}"),
            });
        }
        assert_eq!(told, ["started", "one completed", "two failed", "suspended", "resumed", "two completed", "three completed", "completed"]);
        node.stop_clean().await;
    }
}

workflow!(Gone, |flow| flow.wait_for("never", |_| "k".into()));
workflow!(Other, |flow| flow.run("other", async |_, cx| step(cx).await));

on_each_store! {
    /// Contracts, section 3: suspend, resume and terminate need no definition.
    async fn an_instance_whose_definition_is_gone_can_be_suspended_resumed_and_terminated(world: World) {
        let node = world.run(Gone).await;
        let id = node.begin::<Gone>(Data::default()).await.id().clone();
        world.quiet().await;
        node.stop_clean().await;
        let node = world.run(Other).await;
        let handle = node.instance(id);
        let stands = async |status| world.fly_until(async || handle.status().await.expect("there") == status).await;
        handle.suspend("its code is gone").await.expect("stored");
        stands(WorkflowStatus::Suspended).await;
        handle.resume().await.expect("stored");
        stands(WorkflowStatus::Runnable).await;
        handle.terminate("nobody can run it").await.expect("stored");
        world.fly(handle.ended()).await.expect("ended");
        let history = handle.history(0, 10).await.expect("a history").items;
        assert!(history.iter().all(|pointer| !pointer.status.is_open()), "{history:?}");
        node.stop_clean().await;
    }
}
