//! Steps that have somebody else do something: external workers, and other workflows.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;

use common::*;
use latchwork::{
    AfterCancel,
    core::store::{ActivityOutcome, AttributeValue, InstanceQuery, SubmitOutcome},
};
use serde_json::json;

const MINUTE: Duration = Duration::from_secs(60);

workflow!(Approval, |flow| {
    flow.activity("approve", |data| data.n)
        .output(|answer: String, data| data.text = answer)
        .on_error(Retry::fixed(Duration::from_secs(1)).max_attempts(3));
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(ApprovalInTime, |flow| {
    flow.first_of("in time", |race| {
        race.branch("answer", |b| _ = b.activity("approve", |data| data.n).name_by(|data| format!("approve {}", data.n)));
        race.branch("late", |b| b.delay("an hour", Duration::from_hours(1)));
    });
});

workflow!(Child, |flow| {
    flow.run("child", async |data, cx| {
        step(cx).await?;
        Ok(data.n)
    })
    .on_error(Retry::never().then_terminate())
    .output(|n, data| data.n = n * 2);
    flow.delay("an hour", Duration::from_hours(1));
});

workflow!(Parent, |flow| {
    flow.sub_workflow::<Child>("call", |data| Data::n(data.n))
        .output(|child, data| data.log.push(format!("child said {}", child.n)))
        .on_error(Retry::fixed(MINUTE).max_attempts(2))
        .cancel_when(|data| data.text == "cancel", AfterCancel::Proceed);
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(ParentOfMany, |flow| {
    flow.for_each(
        "children",
        |data| data.items.clone(),
        |each| {
            each.sub_workflow::<Child>("call", |(_, item)| Data::n(*item))
                .output_each(|child, data, item| data.log.push(format!("{item}: {}", child.n)));
        },
    );
});

fn both(builder: latchwork::WorkflowHostBuilder) -> latchwork::WorkflowHostBuilder {
    builder.workflow(Parent).workflow(ParentOfMany).workflow(Child)
}

async fn child_of(node: &TestNode, parent: &InstanceId) -> Option<InstanceId> {
    let mut query = InstanceQuery::new();
    query.parent = Some(parent.clone());
    query.newest_first = true;
    node.find(&query).await.expect("found").items.first().map(|child| child.header.id.clone())
}

on_each_store! {
    async fn an_activity_is_done_by_a_worker_whose_result_comes_back(world: World) {
        let node = world.run(Approval).await;
        let handle = node.begin::<Approval>(Data::n(7)).await;
        world.quiet().await;
        let claim = node.claim_activity(&["other", "approve"], "worker 1", MINUTE).await.expect("asked").expect("there is one");
        assert_eq!((claim.parameters.as_ref().map(|p| p.as_str().to_owned()), &claim.instance), (Some("7".into()), handle.id()));
        assert!(node.claim_activity(&["approve"], "worker 2", MINUTE).await.expect("asked").is_none(), "it is taken");
        let submitted = node.submit_activity(&claim.token, ActivityOutcome::Success(json!("granted"))).await.expect("submitted");
        assert!(matches!(submitted, SubmitOutcome::Accepted(_)));
        assert_eq!(world.soon(handle.completion()).await.expect("done").text, "granted");
        let again = node.submit_activity(&claim.token, ActivityOutcome::Success(json!("no"))).await.expect("submitted");
        assert_eq!(again, SubmitOutcome::Refused);
        node.stop_clean().await;
    }

    async fn k37_a_failed_activity_is_asked_for_again_and_no_more_often_than_its_tries(world: World) {
        let node = world.run(Approval).await;
        let handle = node.begin::<Approval>(Data::n(7)).await;
        for attempt in 1..=3 {
            let mut claimed = None;
            for _ in 0..100 {
                claimed = node.claim_activity(&["approve"], "worker", MINUTE).await.expect("asked");
                if claimed.is_some() {
                    break;
                }
                world.clock.advance(Duration::from_millis(500));
                world.rest().await;
            }
            let claim = claimed.unwrap_or_else(|| panic!("asked for attempt {attempt}"));
            node.submit_activity(&claim.token, ActivityOutcome::Failure(json!({"no": attempt}))).await.expect("submitted");
        }
        world.fly_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        let errors: Vec<_> = handle.all_errors().await.into_iter().map(|error| (error.attempt, error.message)).collect();
        assert_eq!(errors.iter().map(|(attempt, _)| *attempt).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(errors[2].1.contains(r#"activity `approve` failed: {"no":3}"#), "{errors:?}");
        // Somebody looks into it, and has it asked for again.
        handle.retry_step().await.expect("tried again");
        world.quiet().await;
        let claim = node.claim_activity(&["approve"], "worker", MINUTE).await.expect("asked").expect("asked for again");
        node.submit_activity(&claim.token, ActivityOutcome::Success(json!("granted"))).await.expect("submitted");
        assert_eq!(world.soon(handle.completion()).await.expect("done").text, "granted");
        node.stop_clean().await;
    }

    async fn k37_an_expired_token_frees_the_activity_and_its_late_result_is_refused(world: World) {
        let node = world.run(Approval).await;
        let handle = node.begin::<Approval>(Data::n(7)).await;
        world.quiet().await;
        let slow = node.claim_activity(&["approve"], "slow", MINUTE).await.expect("asked").expect("there is one");
        world.clock.advance(MINUTE + Duration::from_secs(1));
        let quick = node.claim_activity(&["approve"], "quick", MINUTE).await.expect("asked").expect("free again");
        let late = node.submit_activity(&slow.token, ActivityOutcome::Success(json!("slow"))).await.expect("submitted");
        assert_eq!(late, SubmitOutcome::Refused);
        node.submit_activity(&quick.token, ActivityOutcome::Success(json!("quick"))).await.expect("submitted");
        assert_eq!(world.soon(handle.completion()).await.expect("done").text, "quick");
        node.stop_clean().await;
    }

    async fn what_comes_from_outside_is_bounded_and_what_is_refused_loses_nothing(world: World) {
        let node = world.run(Approval).await;
        let attribute = |value| node.start_workflow::<Approval>(Data::n(1)).attribute("a", value);
        let long = attribute(AttributeValue::Text("x".repeat(401))).await.expect_err("too long").to_string();
        assert!(long.contains("attribute `a`") && long.contains("401") && long.contains("400"), "{long}");
        let odd = attribute(AttributeValue::Number(f64::NAN)).await.expect_err("no number");
        let cause = std::error::Error::source(&odd).expect("a cause").to_string();
        assert!(odd.to_string().contains("attribute `a`") && cause.contains("NaN"), "{odd}: {cause}");
        assert_eq!(node.find(&InstanceQuery::new()).await.expect("found").items.len(), 0);

        let handle = node.begin::<Approval>(Data::n(7)).await;
        world.quiet().await;
        let claim = node.claim_activity(&["approve"], "worker", MINUTE).await.expect("asked").expect("there is one");
        let large = ActivityOutcome::Success(json!("x".repeat(300_000)));
        let refused = node.submit_activity(&claim.token, large).await.expect_err("too large").to_string();
        assert!(refused.contains("result of an activity") && refused.contains("300002") && refused.contains("262144"), "{refused}");
        node.submit_activity(&claim.token, ActivityOutcome::Success(json!("granted"))).await.expect("the token is still good");
        assert_eq!(world.soon(handle.completion()).await.expect("done").text, "granted");

        let handle = node.begin::<Approval>(Data::n(8)).await;
        handle.terminate("x".repeat(10_000)).await.expect("terminated");
        world.soon(handle.ended()).await.expect("ended");
        assert_eq!(handle.reason().await.len(), 8 * 1024, "a long reason is cut");
        node.stop_clean().await;
    }

    async fn an_activity_that_loses_a_race_is_withdrawn(world: World) {
        let node = world.run(ApprovalInTime).await;
        let handle = node.begin::<ApprovalInTime>(Data::n(7)).await;
        world.quiet().await;
        let claim = node.claim_activity(&["approve 7"], "worker", Duration::from_hours(9)).await.expect("asked").expect("named by its data");
        world.fly_by(MINUTE, handle.completion()).await.expect("done");
        let late = node.submit_activity(&claim.token, ActivityOutcome::Success(json!("late"))).await.expect("submitted");
        assert_eq!(late, SubmitOutcome::Refused);
        node.stop_clean().await;
    }

    async fn k40_a_sub_workflow_is_awaited_and_its_data_come_back_over_the_deaths_of_nodes(world: World) {
        let first = world.node().with(both).start().await;
        let id = first.begin::<Parent>(Data::n(21)).await.id().clone();
        world.soon_until(async || world.probe.ended("child") == 1).await;
        world.rest().await;
        world.kill(first);
        let node = world.node().with(both).start().await;
        let handle = node.workflow_instance::<Parent>(id);
        assert_eq!(world.fly_by(MINUTE, handle.completion()).await.expect("done").log, ["child said 42"]);
        assert_eq!(world.probe.keys("child").len(), 1, "one child, run once");
        node.stop_clean().await;
    }

    async fn many_sub_workflows_run_beside_each_other(world: World) {
        let node = world.node().with(both).start().await;
        let handle = node.begin::<ParentOfMany>(Data::items(1..=30)).await;
        let data = world.fly_by(MINUTE, handle.completion()).await.expect("done");
        let mut expected: Vec<_> = (1..=30).map(|item| format!("{item}: {}", item * 2)).collect();
        expected.sort();
        assert_eq!(data.sorted(), expected);
        node.stop_clean().await;
    }

    async fn a_terminated_sub_workflow_is_a_failure_that_another_try_starts_anew(world: World) {
        world.probe.fail("child", 1);
        let node = world.node().with(both).start().await;
        let handle = node.begin::<Parent>(Data::n(21)).await;
        assert_eq!(world.fly_by(MINUTE / 4, handle.completion()).await.expect("done").log, ["child said 42"]);
        let errors = handle.all_errors().await;
        assert!(errors.iter().any(|error| error.message.contains("sub-workflow `Child` was terminated: step `child` failed")), "{errors:?}");
        assert_eq!(world.probe.keys("child").len(), 2, "two children");
        node.stop_clean().await;
    }

    async fn a_sub_workflow_ends_with_its_parent(world: World) {
        let node = world.node().with(both).start().await;
        let handle = node.begin::<Parent>(Data::n(1)).await;
        world.soon_until(async || world.probe.ended("child") == 1).await;
        let child = node.instance(child_of(&node, handle.id()).await.expect("a child"));
        handle.terminate("enough").await.expect("terminated");
        world.soon_until(async || child.is(WorkflowStatus::Terminated).await).await;
        let reason = child.reason().await;
        assert!(reason.contains("step `call` of instance"), "{reason}");
        node.stop_clean().await;
    }

    async fn a_sub_workflow_ends_with_the_step_that_waits_for_it(world: World) {
        let node = world.node().with(both).start().await;
        let handle = node.begin::<Parent>(Data { n: 1, text: "cancel".into(), ..Data::default() }).await;
        world.soon(handle.completion()).await.expect("done");
        assert_eq!(child_of(&node, handle.id()).await, None, "the step did not even begin");
        node.stop_clean().await;
    }
}

#[tokio::test]
async fn a_sub_workflow_that_is_not_registered_is_found_when_the_host_starts() {
    let world = World::memory();
    let error = world.node().with(|b| b.workflow(Parent)).try_start().await.err().expect("refused").to_string();
    assert!(error.contains("step `call`") && error.contains("`Child` version 1"), "{error}");
    // Who only starts instances for others to run needs the parent only.
    let caller = world.node().with(|b| b.workflow(Parent).configure(|options| options.run_workflows = false)).start().await;
    let handle = caller.begin::<Parent>(Data::n(21)).await;
    let node = world.node().with(both).start().await;
    assert_eq!(world.fly_by(MINUTE, handle.completion()).await.expect("done").log, ["child said 42"]);
    node.stop_clean().await;
    caller.stop_clean().await;
}
