//! What stands around workflows and steps: middleware, the hook at every end, and what a body asks to be stored with its checkpoint.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;

use common::*;
use latchwork::{
    AfterCancel, Next, StepMiddleware, WorkflowContext, WorkflowMiddleware,
    core::{
        async_trait,
        hub::LifeCycleKind,
        store::{InstanceQuery, StoreErrorKind},
    },
};
use std::sync::Mutex;

type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, line: impl Into<String>) {
    log.lock().expect("no panic").push(line.into());
}

fn noted(log: &Log) -> Vec<String> {
    log.lock().expect("no panic").clone()
}

/// A layer of the onion.
struct Layer(&'static str, Log);

#[async_trait]
impl StepMiddleware for Layer {
    async fn run(&self, cx: &StepContext, next: Next<'_>) -> StepResult {
        note(&self.1, format!("{} before {}", self.0, cx.step()));
        let answer = next.run().await;
        note(&self.1, format!("{} after {}", self.0, cx.step()));
        answer
    }
}

/// Answers in place of the step "ask", and changes the body of "greet".
struct Replaces;

#[async_trait]
impl StepMiddleware for Replaces {
    async fn run(&self, cx: &StepContext, mut next: Next<'_>) -> StepResult {
        match cx.step() {
            "ask" => next.answer(String::from("nobody")),
            "wrong" => next.answer(7_u8),
            _ => {
                if let Some(greet) = next.body::<Greet>() {
                    greet.name.push('!');
                }
                next.run().await
            }
        }
    }
}

/// Notes what happens to workflows, and fails where it is told to.
struct Watch {
    name: &'static str,
    log: Log,
    fail_at_end: Arc<Mutex<usize>>,
    refuse: &'static str,
}

impl Watch {
    fn new(name: &'static str, log: &Log) -> Self {
        Self { name, log: log.clone(), fail_at_end: Arc::default(), refuse: "never" }
    }
}

#[async_trait]
impl WorkflowMiddleware for Watch {
    async fn before_start(&self, workflow: &WorkflowContext<'_>) -> StepResult<()> {
        note(&self.log, format!("{} start {}", self.name, workflow.definition()));
        if workflow.data::<Data>().is_some_and(|data| data.text == self.refuse) {
            return Err("not these data".into());
        }
        Ok(())
    }

    async fn before_burst(&self, workflow: &WorkflowContext<'_>) -> StepResult<()> {
        note(&self.log, format!("{} burst {}", self.name, workflow.status()));
        Ok(())
    }

    async fn at_end(&self, workflow: &WorkflowContext<'_>) -> StepResult<()> {
        let n = workflow.data::<Data>().map(|data| data.n);
        note(&self.log, format!("{} end {} {n:?}", self.name, workflow.status()));
        let mut failures = self.fail_at_end.lock().expect("no panic");
        if *failures > 0 {
            *failures -= 1;
            return Err("the hook fails".into());
        }
        Ok(())
    }
}

#[derive(Default)]
struct Greet {
    name: String,
}

impl StepBody for Greet {
    async fn run(&mut self, cx: &StepContext) -> StepResult {
        step(cx).await?;
        Ok(ExecutionResult::next())
    }
}

workflow!(Two, |flow| {
    flow.run("one", async |_, cx| step(cx).await);
    flow.run("two", async |_, cx| step(cx).await).output(|(), data| data.n = 2);
});

workflow!(Asks, |flow| {
    flow.run("ask", async |_, _| Ok(String::from("somebody"))).output(|name, data| data.text = name);
    flow.step::<Greet>("greet")
        .input(|greet, data| greet.name.clone_from(&data.text))
        .output(|greet, data| data.log.push(greet.name.clone()));
});

workflow!(WrongAnswer, |flow| _ = flow.run("wrong", async |_, _| Ok(String::new())).on_error(Retry::never()));

workflow!(EndsEarly, |flow| {
    flow.when("early?", |data| data.n == 1, |then| then.end());
    flow.run("work", async |_, cx| step(cx).await).on_error(Retry::never().then_terminate());
    flow.wait_for("go on", |_| "k".to_owned()).cancel_when(|data| data.n == 3, AfterCancel::Stop);
});

workflow!(Publishes, |flow| {
    flow.run("publish", async |data, cx| {
        cx.publish_event("told", "k", data.n)?;
        cx.start_workflow::<Two>(&Data::default(), Some("only one"))?;
        step(cx).await
    })
    .on_error(Retry::fixed(Duration::from_secs(1)));
    flow.wait_for("told", |_| "k".to_owned()).output(|n: i64, data| data.log.push(format!("told {n}")));
});

on_each_store! {
    async fn step_middleware_is_an_onion_whose_first_layer_is_outermost(world: World) {
        let log = Log::default();
        let (outer, inner) = (Layer("outer", log.clone()), Layer("inner", log.clone()));
        let node = world.node().with(|b| b.workflow(Two).step_middleware(outer).step_middleware(inner)).start().await;
        let handle = node.begin::<Two>(Data::default()).await;
        world.soon(handle.completion()).await.expect("done");
        let one = ["outer before one", "inner before one", "inner after one", "outer after one"];
        assert_eq!(noted(&log)[..4], one);
        assert_eq!(noted(&log).len(), 8);
        node.stop_clean().await;
    }

    async fn step_middleware_can_answer_in_place_of_a_step_and_change_its_body(world: World) {
        let node = world.node().with(|b| b.workflow(Asks).workflow(WrongAnswer).step_middleware(Replaces)).start().await;
        let handle = node.begin::<Asks>(Data::default()).await;
        assert_eq!(world.soon(handle.completion()).await.expect("done").log, ["nobody!"]);
        let wrong = node.begin::<WrongAnswer>(Data::default()).await;
        world.soon_until(async || wrong.is(WorkflowStatus::Suspended).await).await;
        assert!(wrong.reason().await.contains("no function with a result of type `u8`"), "{}", wrong.reason().await);
        node.stop_clean().await;
    }

    async fn workflow_middleware_is_called_in_order_at_the_start_at_each_burst_and_at_the_end(world: World) {
        let log = Log::default();
        let (a, b) = (Watch::new("a", &log), Watch::new("b", &log));
        let node = world.node().with(|builder| builder.workflow(Two).workflow_middleware(a).workflow_middleware(b)).start().await;
        let handle = node.begin::<Two>(Data::default()).await;
        world.soon(handle.completion()).await.expect("done");
        let all = ["a start Two", "b start Two", "a burst runnable", "b burst runnable", "a end complete Some(2)", "b end complete Some(2)"];
        assert_eq!(noted(&log), all);
        node.stop_clean().await;
    }

    async fn a_middleware_refuses_a_start_with_its_reason_and_nothing_is_created(world: World) {
        let watch = Watch { refuse: "bad", ..Watch::new("a", &Log::default()) };
        let node = world.node().with(|b| b.workflow(Two).workflow_middleware(watch)).start().await;
        let refused = node.start_workflow::<Two>(Data { text: "bad".into(), ..Data::default() }).await.expect_err("refused");
        assert!(refused.to_string().contains("`Two`: not these data"), "{refused}");
        assert_eq!(node.find(&InstanceQuery::new()).await.expect("found").items.len(), 0);
        node.stop_clean().await;
    }

    async fn k33_every_end_calls_the_hook_and_tells_one_event(world: World) {
        let log = Log::default();
        let watch = Watch::new("w", &log);
        let node = world.node().with(|b| b.workflow(EndsEarly).workflow_middleware(watch)).start().await;
        let mut events = node.subscribe();
        // Ended from within, by an error, by a call, and by a cancel condition.
        let early = node.begin::<EndsEarly>(Data::n(1)).await;
        world.soon(early.ended()).await.expect("ended");
        world.probe.fail("work", 1);
        let failed = node.begin::<EndsEarly>(Data::n(2)).await;
        world.soon(failed.ended()).await.expect("ended");
        let called = node.begin::<EndsEarly>(Data::n(4)).await;
        world.soon_until(async || world.probe.ended("work") == 1).await;
        world.quiet().await;
        called.terminate("enough").await.expect("terminated");
        world.soon(called.ended()).await.expect("ended");
        let cancelled = node.begin::<EndsEarly>(Data::n(3)).await;
        world.soon(cancelled.ended()).await.expect("ended");
        let ends: Vec<_> = noted(&log).into_iter().filter(|line| line.contains(" end ")).collect();
        assert_eq!(ends, ["w end complete Some(1)", "w end terminated Some(2)", "w end terminated Some(4)", "w end complete Some(3)"]);
        node.stop_clean().await;
        let mut told = Vec::new();
        while let Some(event) = events.next().await {
            match event.kind {
                LifeCycleKind::Completed => told.push("completed"),
                LifeCycleKind::Terminated { .. } => told.push("terminated"),
                _ => {}
            }
        }
        assert_eq!(told, ["completed", "terminated", "terminated", "completed"]);
    }

    async fn a_hook_that_fails_is_called_again_and_does_not_keep_an_instance_from_its_end(world: World) {
        let log = Log::default();
        let watch = Watch::new("w", &log);
        let failures = watch.fail_at_end.clone();
        *failures.lock().expect("no panic") = 2;
        let retry = Retry::fixed(Duration::from_secs(1)).max_attempts(3);
        let node = world.node().with(|b| b.workflow(Two).workflow_middleware(watch).default_error_policy(retry)).start().await;
        let handle = node.begin::<Two>(Data::default()).await;
        world.fly(handle.completion()).await.expect("done");
        assert_eq!(noted(&log).iter().filter(|line| line.contains(" end ")).count(), 3);
        assert_eq!(handle.all_errors().await, []);
        *failures.lock().expect("no panic") = 9;
        let handle = node.begin::<Two>(Data::default()).await;
        world.fly(handle.completion()).await.expect("done all the same");
        let errors: Vec<_> = handle.all_errors().await.into_iter().map(|e| (e.step.to_string(), e.attempt, e.message)).collect();
        assert_eq!(errors, [("at_end".to_owned(), 3, "the hook fails".to_owned())]);
        node.stop_clean().await;
    }

    async fn a_hook_is_called_again_when_its_node_dies_before_the_end_is_stored(world: World) {
        let log = Log::default();
        let first = world.node().with(|b| b.workflow(Two).workflow_middleware(Watch::new("first", &log))).start().await;
        let gate = first.means.store.on(StoreCall::Commit).skip(1).hold();
        let id = first.begin::<Two>(Data::default()).await.id().clone();
        world.soon(gate.reached(1)).await;
        world.kill(first);
        let second = world.node().with(|b| b.workflow(Two).workflow_middleware(Watch::new("second", &log))).start().await;
        world.fly(second.workflow_instance::<Two>(id).completion()).await.expect("done");
        let ends: Vec<_> = noted(&log).into_iter().filter(|line| line.contains(" end ")).collect();
        assert_eq!(ends, ["first end complete Some(2)", "second end complete Some(2)"]);
        second.stop_clean().await;
    }

    async fn what_a_body_publishes_and_starts_is_stored_with_its_checkpoint_once(world: World) {
        // The first run publishes and fails; the second one's checkpoint is not answered, and tried again.
        world.probe.fail("publish", 1);
        let node = world.node().with(|b| b.workflow(Publishes).workflow(Two)).start().await;
        node.means.store.on(StoreCall::Commit).skip(1).once().lose_answer(StoreErrorKind::Unavailable);
        let handle = node.begin::<Publishes>(Data::n(7)).await;
        assert_eq!(world.fly(handle.completion()).await.expect("done").log, ["told 7"]);
        assert_eq!(node.statistics().await.expect("counted").events, 1);
        let started = node.find_by_key::<Two>("only one").await.expect("found").expect("started");
        world.fly(started.completion()).await.expect("done");
        assert_eq!(node.find(&InstanceQuery::new().with_definition("Two")).await.expect("found").items.len(), 1);
        node.stop_clean().await;
    }

    async fn the_start_of_a_step_is_told_while_it_runs(world: World) {
        let gate = world.probe.hold("one");
        let node = world.run(Two).await;
        let mut events = node.subscribe();
        let handle = node.begin::<Two>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        let mut kinds = Vec::new();
        for _ in 0..2 {
            kinds.push(world.soon(events.next()).await.expect("an event").kind);
        }
        assert_eq!(kinds, [LifeCycleKind::Started, LifeCycleKind::StepStarted { step: "one".into() }]);
        gate.open();
        world.soon(handle.completion()).await.expect("done");
        node.stop_clean().await;
    }
}
