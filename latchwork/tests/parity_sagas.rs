//! Parity with the scenarios of Workflow Core's own integration tests, part 3 of 3: compensation and sagas. See `parity_flow.rs`.
//!
//! Two habits differ. There a step without a word is tried again for ever, every minute; here ten times, so tests that are about
//! something else say `Retry::never()`. There a saga whose steps were compensated counts as done, and the workflow goes on; here it has
//! failed, and the instance is terminated with the reason, unless the saga says `then_continue`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::store::ActivityOutcome;

const SECOND: Duration = Duration::from_secs(1);

/// A step whose compensation is named `compensate {name}`.
macro_rules! undoable {
    ($flow:expr, $name:expr) => {
        $flow.run($name, async |_, cx| step(cx).await).on_error(Retry::never()).compensate(async |_, cx| step(cx).await)
    };
}

macro_rules! plain {
    ($flow:expr, $name:expr) => {
        $flow.run($name, async |_, cx| step(cx).await).on_error(Retry::never())
    };
}

workflow!(Compensation, |flow| {
    plain!(flow, "begin");
    undoable!(flow, "step");
    plain!(flow, "tail");
});

workflow!(Compensation2, |flow| {
    plain!(flow, "begin");
    flow.run("step", async |_, cx| step(cx).await).on_error(Retry::never()).compensate_sequence(|undo| {
        undo.run("undo 1", async |_, cx| step(cx).await);
        undo.run("undo 2", async |_, cx| step(cx).await);
    });
    plain!(flow, "tail");
});

workflow!(FailingSaga, |flow| {
    flow.saga("saga", |saga| {
        saga.when(
            "always",
            |_| true,
            |then| {
                plain!(then, "throws");
            },
        );
    })
    .on_error(Retry::never().then_terminate());
    plain!(flow, "tail");
});

workflow!(MultistepCompensation, |flow| {
    flow.saga("saga", |saga| {
        undoable!(saga, "1");
        undoable!(saga, "2");
        undoable!(saga, "3");
        undoable!(saga, "4");
    })
    .on_error(Retry::never().then_continue());
    plain!(flow, "tail");
});

workflow!(MultistepCompensation2, |flow| {
    flow.saga("saga", |saga| {
        saga.run("first", async |_, cx| step(cx).await).compensate_sequence(|undo| {
            undo.run("undo 5", async |_, cx| step(cx).await);
            undo.run("undo 6", async |_, cx| step(cx).await);
        });
        saga.when(
            "always",
            |_| true,
            |then| {
                then.run("second", async |_, cx| step(cx).await).compensate_sequence(|undo| {
                    undo.run("undo 3", async |_, cx| step(cx).await);
                    undo.run("undo 4", async |_, cx| step(cx).await);
                });
                then.run("throws", async |_, cx| step(cx).await).on_error(Retry::never()).compensate_sequence(|undo| {
                    undo.run("undo 1", async |_, cx| step(cx).await);
                    undo.run("undo 2", async |_, cx| step(cx).await);
                });
            },
        );
    })
    .on_error(Retry::never().then_continue());
    plain!(flow, "tail");
});

workflow!(NestedRetrySaga, |flow| {
    plain!(flow, "begin");
    flow.when(
        "always",
        |_| true,
        |then| {
            then.saga("saga", |saga| {
                undoable!(saga, "1");
                saga.when(
                    "always, too",
                    |_| true,
                    |inner| {
                        undoable!(inner, "2");
                    },
                );
            })
            .on_error(Retry::fixed(SECOND));
        },
    );
    plain!(flow, "tail");
});

workflow!(RetrySaga, |flow| {
    flow.saga("saga", |saga| {
        undoable!(saga, "1");
        undoable!(saga, "2");
        undoable!(saga, "3");
    })
    .compensate(async |_, cx| step(cx).await)
    .on_error(Retry::fixed(SECOND));
    plain!(flow, "tail");
});

workflow!(RetrySagaWithUserTask, |flow| {
    flow.saga("saga", |saga| {
        undoable!(saga, "1");
        saga.activity("approve", |data| data.n).output(|answer: String, data| data.log.push(answer));
        undoable!(saga, "2");
    })
    .on_error(Retry::fixed(SECOND));
    plain!(flow, "tail");
});

workflow!(Saga, |flow| {
    flow.saga("saga", |saga| {
        undoable!(saga, "1");
        undoable!(saga, "2");
        undoable!(saga, "3");
    })
    .compensate(async |_, cx| step(cx).await)
    .on_error(Retry::never().then_continue());
    plain!(flow, "tail");
});

/// The steps that ran, in their order, with `compensate x` as `-x`.
fn path(world: &World) -> Vec<String> {
    world.probe.steps().into_iter().map(|step| step.replace("compensate ", "-")).collect()
}

/// Runs a workflow to its completion; what it ran.
async fn run<W: Workflow<Data = Data>>(world: &World, workflow: W) -> Vec<String> {
    let node = world.run(workflow).await;
    world.fly(node.begin::<W>(Data::default()).await.completion()).await.expect("done");
    node.stop_clean().await;
    path(world)
}

on_each_store! {
    /// Compensation.
    async fn compensation_undoes_a_failed_step_and_goes_on(world: World) {
        world.probe.fail("step", 1);
        assert_eq!(run(&world, Compensation).await, ["begin", "step", "-step", "tail"]);
    }

    /// Compensation, without a failure.
    async fn compensation_does_nothing_on_success(world: World) {
        assert_eq!(run(&world, Compensation).await, ["begin", "step", "tail"]);
    }

    /// Compensation2.
    async fn compensation_2_undoes_by_a_sequence(world: World) {
        world.probe.fail("step", 1);
        assert_eq!(run(&world, Compensation2).await, ["begin", "step", "undo 1", "undo 2", "tail"]);
    }

    /// Compensation2, without a failure.
    async fn compensation_2_does_nothing_on_success(world: World) {
        assert_eq!(run(&world, Compensation2).await, ["begin", "step", "tail"]);
    }

    /// FailingSaga.
    async fn failing_saga_terminates_its_instance(world: World) {
        world.probe.fail("throws", 1);
        let node = world.run(FailingSaga).await;
        let handle = node.begin::<FailingSaga>(Data::default()).await;
        world.soon(handle.completion()).await.expect_err("terminated");
        assert!(handle.is(WorkflowStatus::Terminated).await);
        assert_eq!((path(&world), handle.all_errors().await.len()), (vec!["throws".to_owned()], 1));
        node.stop_clean().await;
    }

    /// MultistepCompensation.
    async fn multistep_compensation_goes_backwards(world: World) {
        world.probe.fail("4", 1);
        assert_eq!(run(&world, MultistepCompensation).await, ["1", "2", "3", "4", "-4", "-3", "-2", "-1", "tail"]);
    }

    /// MultistepCompensation2. The steps are undone in reverse order, each by its sequence in forward order.
    async fn multistep_compensation_2_undoes_by_sequences_out_of_a_nested_if(world: World) {
        world.probe.fail("throws", 1);
        let undo = (1..=6).map(|n| format!("undo {n}"));
        let expected: Vec<_> = ["first", "second", "throws"].map(String::from).into_iter().chain(undo).chain(["tail".into()]).collect();
        assert_eq!(run(&world, MultistepCompensation2).await, expected);
    }

    /// NestedRetrySaga.
    async fn nested_retry_saga_is_undone_and_tried_until_it_succeeds(world: World) {
        world.probe.fail("2", 2);
        assert_eq!(run(&world, NestedRetrySaga).await, ["begin", "1", "2", "-2", "-1", "1", "2", "-2", "-1", "1", "2", "tail"]);
    }

    /// RetrySaga.
    async fn retry_saga_is_undone_and_tried_until_it_succeeds(world: World) {
        world.probe.fail("2", 2);
        let expected = ["1", "2", "-2", "-1", "-saga", "1", "2", "-2", "-1", "-saga", "1", "2", "3", "tail"];
        assert_eq!(run(&world, RetrySaga).await, expected);
    }

    /// RetrySagaWithUserTask, with an activity for the user task. Each attempt asks anew.
    async fn retry_saga_with_user_task_asks_anew_with_each_attempt(world: World) {
        world.probe.fail("2", 2);
        let node = world.run(RetrySagaWithUserTask).await;
        let handle = node.begin::<RetrySagaWithUserTask>(Data::default()).await;
        for attempt in 1..=3 {
            world.fly_until(async || world.probe.runs("1") == attempt).await;
            world.quiet().await;
            let claim = node.claim_activity(&["approve"], "user", SECOND * 60).await.expect("asked").expect("open");
            assert_eq!(node.claim_activity(&["approve"], "user", SECOND * 60).await.expect("asked"), None, "one at a time");
            let answer = serde_json::json!(format!("yes {attempt}"));
            node.submit_activity(&claim.token, ActivityOutcome::Success(answer)).await.expect("submitted");
        }
        assert_eq!(world.fly(handle.completion()).await.expect("done").log, ["yes 1", "yes 2", "yes 3"]);
        assert_eq!(path(&world), ["1", "2", "-2", "-1", "1", "2", "-2", "-1", "1", "2", "tail"]);
        node.stop_clean().await;
    }

    /// Saga. What was not reached is not undone; the saga's own compensation comes last.
    async fn saga_undoes_what_was_reached_then_itself_and_goes_on(world: World) {
        world.probe.fail("2", 1);
        assert_eq!(run(&world, Saga).await, ["1", "2", "-2", "-1", "-saga", "tail"]);
    }

    /// Saga, without a failure.
    async fn saga_does_nothing_on_success(world: World) {
        assert_eq!(run(&world, Saga).await, ["1", "2", "3", "tail"]);
    }
}
