//! What bodies answer: each result is kept, and goes on after a restart.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::store::{ActivityOutcome, PointerStatus, SubmitOutcome};
use serde_json::json;

/// Answers according to what it kept, saw and waited for.
#[derive(Default)]
struct Answers {
    how: String,
    heard: String,
}

impl StepBody for Answers {
    async fn run(&mut self, cx: &StepContext) -> StepResult {
        step(cx).await?;
        let round: Option<u32> = cx.state()?;
        match (self.how.as_str(), round) {
            ("persist", None | Some(..3)) => ExecutionResult::persist(round.unwrap_or(0) + 1),
            ("sleep", None) => ExecutionResult::sleep(Duration::from_secs(100)).with_state(7),
            ("event", _) => match cx.event::<String>()? {
                None => ExecutionResult::wait_for_event("called", "k").with_state(1),
                Some(text) => {
                    self.heard = text;
                    Ok(ExecutionResult::next())
                }
            },
            ("activity", _) => match cx.activity() {
                None => ExecutionResult::wait_for_activity("approve", json!({"amount": 5}))?.with_state(1),
                Some(outcome) => {
                    self.heard = format!("{outcome:?}");
                    Ok(ExecutionResult::next())
                }
            },
            ("outcome", _) => ExecutionResult::outcome("good"),
            ("other outcome", _) => ExecutionResult::outcome(42),
            ("branch", _) => ExecutionResult::branch([1, 2, 3]),
            ("branch nothing", _) => ExecutionResult::branch([0; 0]),
            _ => {
                self.heard = format!("{round:?}");
                Ok(ExecutionResult::next())
            }
        }
    }
}

workflow!(Result_, |flow| {
    flow.step::<Answers>("answer")
        .input(|body, data| body.how = data.text.clone())
        .output(|body, data| data.log.push(body.heard.clone()))
        .outcome("good", |good| {
            good.run("good 1", async |_, cx| step(cx).await);
            good.delay("good pause", Duration::from_secs(50));
            good.run("good 2", async |_, cx| step(cx).await);
        })
        .outcome("bad", |bad| bad.run("bad", async |_, cx| step(cx).await))
        .branches(|each| {
            each.delay("value pause", Duration::from_secs(50));
            each.run("value", async |(_, value), cx| step(cx).await.map(|()| value.to_string()))
                .output(|text, data| data.log.push(text));
        });
    flow.run("after", async |_, cx| step(cx).await);
});

fn how(text: &str) -> Data {
    Data { text: text.into(), ..Data::default() }
}

async fn waits(world: &World, id: &InstanceId, status: PointerStatus) {
    world
        .soon_until(async || {
            let loaded = world.store().load(id).await.expect("loads").expect("there");
            loaded.pointers.iter().any(|pointer| pointer.status == status)
        })
        .await;
}

/// Stops the node, loses the queue, and starts another one.
async fn restart(world: &World, node: TestNode) -> TestNode {
    node.stop_clean().await;
    world.lose_queue();
    world.run(Result_).await
}

async fn finish(world: &World, node: &TestNode, id: InstanceId) -> Data {
    let record = world.fly(node.instance(id).ended()).await.expect("it ends");
    let latchwork::store::InstanceRecord::Instance { data, header, .. } = record else { panic!("deleted") };
    assert_eq!(header.status, WorkflowStatus::Complete);
    serde_json::from_str(data.as_str()).expect("data")
}

on_each_store! {
    async fn next_goes_on(world: World) {
        let node = world.run(Result_).await;
        let done = world.soon(node.begin::<Result_>(how("next")).await.completion()).await.expect("done");
        assert_eq!((done.log, world.probe.steps()), (vec!["None".to_owned()], vec!["answer".to_owned(), "after".into()]));
        node.stop_clean().await;
    }

    async fn what_a_body_persists_it_finds_in_its_next_run(world: World) {
        let node = world.run(Result_).await;
        let handle = node.begin::<Result_>(how("persist")).await;
        let done = world.soon(handle.completion()).await.expect("done");
        assert_eq!((done.log, world.probe.runs("answer")), (vec!["Some(3)".to_owned()], 4));
        assert_eq!(world.probe.keys("answer").len(), 1);
        assert!(world.probe.all().iter().all(|run| run.attempt == 1));
        node.stop_clean().await;
    }

    async fn what_was_persisted_outlives_the_node(world: World) {
        let node = world.run(Result_).await;
        let gate = world.probe.hold("answer");
        let handle = node.begin::<Result_>(how("persist")).await;
        world.soon(gate.reached(1)).await;
        gate.open();
        world.soon_until(async || world.probe.runs("answer") >= 2).await;
        let id = handle.id().clone();
        world.kill(node);
        let node = world.run(Result_).await;
        assert_eq!(finish(&world, &node, id).await.log, ["Some(3)"]);
        node.stop_clean().await;
    }

    async fn a_sleeping_body_wakes_on_another_node_with_its_state(world: World) {
        let node = world.run(Result_).await;
        let handle = node.begin::<Result_>(how("sleep")).await;
        let id = handle.id().clone();
        waits(&world, &id, PointerStatus::Sleeping).await;
        let node = restart(&world, node).await;
        world.clock.advance(Duration::from_secs(95));
        world.rest().await;
        assert_eq!(world.probe.runs("answer"), 1);
        assert_eq!(finish(&world, &node, id).await.log, ["Some(7)"]);
        assert_eq!(world.probe.runs("answer"), 2);
        node.stop_clean().await;
    }

    async fn a_body_waits_for_an_event_over_a_restart(world: World) {
        let node = world.run(Result_).await;
        let handle = node.begin::<Result_>(how("event")).await;
        let id = handle.id().clone();
        waits(&world, &id, PointerStatus::WaitingForEvent).await;
        let node = restart(&world, node).await;
        node.publish_event("called", "other", "no").await.expect("published");
        node.publish_event("called", "k", "hello").await.expect("published");
        assert_eq!(finish(&world, &node, id).await.log, ["hello"]);
        node.stop_clean().await;
    }

    async fn a_body_waits_for_a_worker_over_a_restart(world: World) {
        let node = world.run(Result_).await;
        let handle = node.begin::<Result_>(how("activity")).await;
        let id = handle.id().clone();
        waits(&world, &id, PointerStatus::WaitingForActivity).await;
        let node = restart(&world, node).await;
        assert!(node.claim_activity(&["other"], "w", Duration::from_secs(60)).await.expect("claim").is_none());
        let claim = node.claim_activity(&["other", "approve"], "w", Duration::from_secs(60)).await.expect("claim").expect("one");
        assert_eq!(claim.parameters.as_ref().map(|p| p.as_str()), Some(r#"{"amount":5}"#));
        assert!(node.claim_activity(&["approve"], "v", Duration::from_secs(60)).await.expect("claim").is_none());
        let submitted = node.submit_activity(&claim.token, ActivityOutcome::Success(json!("yes"))).await.expect("submit");
        assert!(matches!(submitted, SubmitOutcome::Accepted(_)), "{submitted:?}");
        let again = node.submit_activity(&claim.token, ActivityOutcome::Failure(json!("late"))).await.expect("submit");
        assert_eq!(again, SubmitOutcome::Refused);
        assert_eq!(finish(&world, &node, id).await.log, [r#"Success(String("yes"))"#]);
        node.stop_clean().await;
    }

    async fn an_expired_token_frees_the_activity(world: World) {
        let node = world.run(Result_).await;
        let handle = node.begin::<Result_>(how("activity")).await;
        let id = handle.id().clone();
        waits(&world, &id, PointerStatus::WaitingForActivity).await;
        let first = node.claim_activity(&["approve"], "w", Duration::from_secs(60)).await.expect("claim").expect("one");
        world.clock.advance(Duration::from_secs(61));
        let second = node.claim_activity(&["approve"], "v", Duration::from_secs(60)).await.expect("claim").expect("free again");
        let late = node.submit_activity(&first.token, ActivityOutcome::Success(json!("late"))).await.expect("submit");
        assert_eq!(late, SubmitOutcome::Refused);
        node.submit_activity(&second.token, ActivityOutcome::Failure(json!("no"))).await.expect("submit");
        assert_eq!(finish(&world, &node, id).await.log, [r#"Failure(String("no"))"#]);
        node.stop_clean().await;
    }

    async fn an_outcome_takes_its_branch_also_when_the_node_is_gone(world: World) {
        let node = world.run(Result_).await;
        let handle = node.begin::<Result_>(how("outcome")).await;
        let id = handle.id().clone();
        waits(&world, &id, PointerStatus::Sleeping).await;
        let node = restart(&world, node).await;
        finish(&world, &node, id).await;
        assert_eq!(world.probe.steps(), ["answer", "good 1", "good 2", "after"]);
        node.stop_clean().await;
    }

    async fn an_outcome_that_nobody_named_goes_on(world: World) {
        let node = world.run(Result_).await;
        world.soon(node.begin::<Result_>(how("other outcome")).await.completion()).await.expect("done");
        assert_eq!(world.probe.steps(), ["answer", "after"]);
        node.stop_clean().await;
    }

    async fn a_body_branches_for_each_value_also_when_the_node_is_gone(world: World) {
        let node = world.run(Result_).await;
        let handle = node.begin::<Result_>(how("branch")).await;
        let id = handle.id().clone();
        waits(&world, &id, PointerStatus::Sleeping).await;
        let node = restart(&world, node).await;
        let done = finish(&world, &node, id).await;
        assert_eq!(done.log[0], "");
        assert_eq!(done.sorted(), ["", "1", "2", "3"]);
        assert_eq!((world.probe.keys("value").len(), world.probe.runs("value"), world.probe.runs("after")), (3, 3, 1));
        node.stop_clean().await;
    }

    async fn a_branch_for_no_values_goes_on(world: World) {
        let node = world.run(Result_).await;
        world.soon(node.begin::<Result_>(how("branch nothing")).await.completion()).await.expect("done");
        assert_eq!(world.probe.steps(), ["answer", "after"]);
        node.stop_clean().await;
    }
}
