//! Sagas: reverse order, each once, durable in the middle, tried again as a whole, nested, beside each other, over items.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;

use common::*;

const NEVER: fn() -> Retry = Retry::never;

/// `step!(flow, "a")`: a step whose body calls the probe, and whose compensation, "compensate a", does too.
macro_rules! undoable {
    ($flow:expr, $name:expr) => {
        $flow.run($name, async |_, cx| step(cx).await).on_error(NEVER()).compensate(async |_, cx| step(cx).await)
    };
}

macro_rules! plain {
    ($flow:expr, $name:expr) => {
        $flow.run($name, async |_, cx| step(cx).await).on_error(NEVER())
    };
}

workflow!(Three, |flow| {
    flow.saga("saga", |saga| {
        undoable!(saga, "a");
        undoable!(saga, "b");
        plain!(saga, "between");
        undoable!(saga, "c");
        undoable!(saga, "d");
    })
    .on_error(NEVER().then_continue());
    plain!(flow, "tail");
});

workflow!(Ends, |flow| {
    flow.saga("saga", |saga| {
        undoable!(saga, "a");
        undoable!(saga, "b");
    });
    plain!(flow, "tail");
});

workflow!(Retried, |flow| {
    flow.saga("saga", |saga| {
        undoable!(saga, "a");
        undoable!(saga, "b");
    })
    .compensate(async |_, cx| step(cx).await)
    .on_error(Retry::fixed(Duration::from_secs(60)).max_attempts(3));
    plain!(flow, "tail");
});

workflow!(Nested, |flow| {
    flow.saga("outer", |outer| {
        undoable!(outer, "a");
        outer.saga("inner", |inner| {
            undoable!(inner, "b");
            undoable!(inner, "c");
        });
        undoable!(outer, "d");
    })
    .on_error(NEVER().then_continue());
    plain!(flow, "tail");
});

workflow!(InnerUndone, |flow| {
    flow.saga("outer", |outer| {
        undoable!(outer, "a");
        outer
            .saga("inner", |inner| {
                undoable!(inner, "b");
                inner.delay("an hour", Duration::from_hours(1));
                undoable!(inner, "c");
            })
            .compensate(async |_, cx| step(cx).await);
        plain!(outer, "fails");
    })
    .on_error(NEVER().then_continue());
});

workflow!(InnerOpen, |flow| {
    flow.saga("outer", |outer| {
        outer.parallel("both", |both| {
            both.branch("inner", |b| {
                b.saga("inner", |inner| {
                    undoable!(inner, "a");
                    inner.wait_for("never", |_| "k".to_owned());
                })
                .compensate(async |_, cx| step(cx).await);
            });
            both.branch("fails", |b| _ = plain!(b, "fails"));
        });
    })
    .on_error(NEVER().then_continue());
});

workflow!(Beside, |flow| {
    flow.saga("saga", |saga| {
        saga.parallel("both", |both| {
            both.branch("left", |left| {
                undoable!(left, "l1");
                undoable!(left, "l2");
                left.wait_for("never", |_| "k".to_owned());
            });
            both.branch("right", |right| {
                undoable!(right, "r1");
                plain!(right, "fails");
            });
        });
    })
    .on_error(NEVER().then_continue());
});

workflow!(TwoBeside, |flow| {
    flow.saga("saga", |saga| {
        saga.parallel("both", |both| {
            both.branch("fails", |b| _ = plain!(b, "fails"));
            both.branch("runs", |b| _ = undoable!(b, "runs"));
        });
    })
    .on_error(NEVER().then_continue());
});

workflow!(Items, |flow| {
    flow.saga("saga", |saga| {
        saga.for_each(
            "items",
            |data| data.items.clone(),
            |each| {
                each.run("do", async |(_, _), cx| step(cx).await).compensate_sequence(|undo| {
                    undo.run("look", async |(_, item), cx| {
                        step(cx).await?;
                        Ok(*item)
                    })
                    .output_each(|seen, data, item| data.log.push(format!("{seen}={item}")));
                    undo.run("undo", async |(_, _), cx| step(cx).await);
                });
            },
        )
        .sequential();
        plain!(saga, "fails");
    })
    .on_error(NEVER().then_continue());
});

workflow!(Alone, |flow| {
    undoable!(flow, "a");
    plain!(flow, "tail");
});

workflow!(Within, |flow| {
    flow.saga("saga", |saga| {
        undoable!(saga, "a");
        saga.run("b", async |_, cx| step(cx).await)
            .on_error(Retry::fixed(Duration::from_secs(1)).max_attempts(3))
            .compensate(async |_, cx| step(cx).await);
    });
});

workflow!(Unsafe, |flow| {
    flow.saga("saga", |saga| {
        saga.run("a", async |_, cx| step(cx).await).compensate_sequence(|undo| {
            undo.run("undo a", async |_, cx| step(cx).await).on_error(Retry::fixed(Duration::from_secs(1)).max_attempts(2));
        });
        plain!(saga, "b");
    })
    .on_error(NEVER().then_continue());
    plain!(flow, "tail");
});

/// The steps that ran, in their order, with `compensate x` as `-x`.
fn path(world: &World) -> Vec<String> {
    world.probe.steps().into_iter().map(|step| step.replace("compensate ", "-")).collect()
}

on_each_store! {
    async fn k35_a_failed_saga_is_undone_in_reverse_order_the_failed_step_first_and_goes_on(world: World) {
        world.probe.fail("d", 1);
        let node = world.run(Three).await;
        let handle = node.begin::<Three>(Data::default()).await;
        world.soon(handle.completion()).await.expect("done");
        assert_eq!(path(&world), ["a", "b", "between", "c", "d", "-d", "-c", "-b", "-a", "tail"]);
        node.stop_clean().await;
    }

    async fn a_saga_that_succeeds_compensates_nothing(world: World) {
        let node = world.run(Three).await;
        let handle = node.begin::<Three>(Data::default()).await;
        world.soon(handle.completion()).await.expect("done");
        assert_eq!(path(&world), ["a", "b", "between", "c", "d", "tail"]);
        node.stop_clean().await;
    }

    async fn without_another_word_a_failed_saga_terminates_its_instance_after_it_is_undone(world: World) {
        world.probe.fail("b", 1);
        let node = world.run(Ends).await;
        let handle = node.begin::<Ends>(Data::default()).await;
        let ended = world.soon(handle.completion()).await.expect_err("terminated");
        assert!(matches!(&ended, HostError::Terminated { .. }), "{ended}");
        assert_eq!(path(&world), ["a", "b", "-b", "-a"]);
        let reason = handle.reason().await;
        assert!(reason.contains("saga `saga` failed and was compensated") && reason.contains("step `b`"), "{reason}");
        node.stop_clean().await;
    }

    async fn a_saga_is_tried_again_as_a_whole_with_compensations_for_each_try_and_keys_of_its_own(world: World) {
        world.probe.fail("b", 2);
        let node = world.run(Retried).await;
        let handle = node.begin::<Retried>(Data::default()).await;
        let began = world.now();
        world.fly(handle.completion()).await.expect("done");
        let once = ["a", "b", "-b", "-a", "-saga"];
        let all: Vec<_> = once.iter().chain(&once).chain(&["a", "b", "tail"]).map(ToString::to_string).collect();
        assert_eq!(path(&world), all);
        assert!(world.clock.since(began) >= Duration::from_secs(120));
        assert_eq!(world.probe.keys("a").len(), 3, "each attempt has a key of its own");
        assert_eq!(world.probe.keys("compensate a").len(), 2);
        node.stop_clean().await;
    }

    async fn k35_a_failing_outer_saga_undoes_what_an_inner_one_has_done(world: World) {
        world.probe.fail("d", 1);
        let node = world.run(Nested).await;
        let handle = node.begin::<Nested>(Data::default()).await;
        world.soon(handle.completion()).await.expect("done");
        assert_eq!(path(&world), ["a", "b", "c", "d", "-d", "-c", "-b", "-a", "tail"]);
        node.stop_clean().await;
    }

    async fn a_failing_inner_saga_is_undone_first_and_takes_the_outer_one_with_it(world: World) {
        world.probe.fail("c", 1);
        let node = world.run(Nested).await;
        let handle = node.begin::<Nested>(Data::default()).await;
        world.soon(handle.completion()).await.expect("done");
        assert_eq!(path(&world), ["a", "b", "c", "-c", "-b", "-a", "tail"]);
        node.stop_clean().await;
    }

    async fn the_compensation_of_an_inner_saga_comes_after_those_of_its_steps_however_long_they_took(world: World) {
        world.probe.fail("fails", 1);
        let node = world.run(InnerUndone).await;
        let handle = node.begin::<InnerUndone>(Data::default()).await;
        world.fly_by(Duration::from_secs(60), handle.completion()).await.expect("done");
        assert_eq!(path(&world), ["a", "b", "c", "fails", "-c", "-b", "-inner", "-a"]);
        node.stop_clean().await;
    }

    async fn an_inner_saga_that_is_open_when_the_outer_one_fails_is_undone_itself_after_its_steps(world: World) {
        world.probe.fail("fails", 1);
        let failing = world.probe.hold("fails");
        let node = world.run(InnerOpen).await;
        let handle = node.begin::<InnerOpen>(Data::default()).await;
        world.soon_until(async || world.probe.ended("a") == 1).await;
        world.rest().await;
        failing.open();
        world.soon(handle.completion()).await.expect("done");
        let undone: Vec<_> = path(&world).into_iter().filter(|step| step.starts_with('-')).collect();
        assert_eq!(undone, ["-a", "-inner"]);
        node.stop_clean().await;
    }

    async fn branches_beside_a_failed_step_come_to_rest_and_are_undone(world: World) {
        world.probe.fail("fails", 1);
        let (gate, failing) = (world.probe.hold("l2"), world.probe.hold("fails"));
        let node = world.run(Beside).await;
        let handle = node.begin::<Beside>(Data::default()).await;
        // The right branch fails while a body of the left one runs: that comes to its end first.
        world.soon(gate.reached(1)).await;
        failing.open();
        world.soon_until(async || world.probe.runs("fails") == 1).await;
        world.rest().await;
        assert_eq!(world.probe.steps().iter().filter(|step| step.starts_with("compensate")).count(), 0);
        gate.open();
        world.soon(handle.completion()).await.expect("done");
        let undone: Vec<_> = path(&world).into_iter().filter(|step| step.starts_with('-')).collect();
        assert_eq!(undone.len(), 3, "{undone:?}");
        assert_eq!(undone[0], "-l2", "what ended last is undone first");
        assert!(undone.iter().position(|step| step == "-l2") < undone.iter().position(|step| step == "-l1"));
        node.stop_clean().await;
    }

    async fn each_item_is_undone_with_its_own_value_in_reverse_order(world: World) {
        world.probe.fail("fails", 1);
        let node = world.run(Items).await;
        let handle = node.begin::<Items>(Data::items(1..=20)).await;
        let data = world.soon(handle.completion()).await.expect("done");
        assert_eq!(data.log, (1..=20).rev().map(|item| format!("{item}={item}")).collect::<Vec<_>>());
        assert_eq!(world.probe.keys("look").len(), 20);
        assert_eq!(world.probe.runs("undo"), 20);
        node.stop_clean().await;
    }

    async fn outside_of_sagas_a_failed_step_is_undone_and_the_workflow_goes_on(world: World) {
        world.probe.fail("a", 1);
        let node = world.run(Alone).await;
        let handle = node.begin::<Alone>(Data::default()).await;
        world.soon(handle.completion()).await.expect("done");
        assert_eq!(path(&world), ["a", "-a", "tail"]);
        node.stop_clean().await;
    }

    async fn a_step_in_a_saga_is_tried_again_by_itself_first(world: World) {
        world.probe.fail("b", 2);
        let node = world.run(Within).await;
        let handle = node.begin::<Within>(Data::default()).await;
        world.fly(handle.completion()).await.expect("done");
        assert_eq!(path(&world), ["a", "b", "b", "b"]);
        node.stop_clean().await;
    }

    async fn k36_a_compensation_that_fails_is_tried_again_and_then_suspends_visibly(world: World) {
        world.probe.fail("b", 1);
        world.probe.fail("undo a", 2);
        let node = world.run(Unsafe).await;
        let handle = node.begin::<Unsafe>(Data::default()).await;
        world.fly_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        let reason = handle.reason().await;
        assert!(reason.contains("step `undo a` failed for good after 2 tries"), "{reason}");
        handle.retry_step().await.expect("tried again");
        world.fly(handle.completion()).await.expect("done");
        assert_eq!(path(&world), ["a", "b", "undo a", "undo a", "undo a", "tail"]);
        node.stop_clean().await;
    }

    async fn k35_a_crash_in_the_middle_of_the_compensations_leaves_each_undone_once(world: World) {
        world.probe.fail("d", 1);
        let gate = world.probe.hold("compensate b");
        let first = world.run(Three).await;
        let id = first.begin::<Three>(Data::default()).await.id().clone();
        world.soon(gate.reached(1)).await;
        world.kill(first);
        let node = world.run(Three).await;
        let handle = node.workflow_instance::<Three>(id);
        gate.open();
        world.fly(handle.completion()).await.expect("done");
        // What was cut short ran again, with the same key; all else ran once.
        assert_eq!(path(&world), ["a", "b", "between", "c", "d", "-d", "-c", "-b", "-b", "-a", "tail"]);
        assert_eq!(world.probe.keys("compensate b").len(), 1);
        node.stop_clean().await;
    }

    async fn a_crash_between_the_failure_and_the_first_compensation_loses_nothing(world: World) {
        world.probe.fail("fails", 1);
        let (gate, failing) = (world.probe.hold("l2"), world.probe.hold("fails"));
        let first = world.run(Beside).await;
        let id = first.begin::<Beside>(Data::default()).await.id().clone();
        world.soon(gate.reached(1)).await;
        failing.open();
        world.soon_until(async || world.probe.runs("fails") == 1).await;
        world.rest().await;
        world.kill(first);
        gate.open();
        let node = world.run(Beside).await;
        world.fly(node.workflow_instance::<Beside>(id).completion()).await.expect("done");
        // The body that ran when its node died runs again before it is undone.
        assert_eq!((world.probe.runs("l2"), world.probe.runs("fails")), (2, 1));
        for step in ["compensate l1", "compensate l2", "compensate r1"] {
            assert_eq!(world.probe.runs(step), 1, "{step}");
        }
        node.stop_clean().await;
    }

    async fn a_body_that_ran_when_its_node_died_is_undone_also_when_the_saga_fails_before_it_gets_its_turn(world: World) {
        let failing = world.probe.hold("fails");
        world.probe.fail("fails", 10);
        let first = world.run(TwoBeside).await;
        let id = first.begin::<TwoBeside>(Data::default()).await.id().clone();
        world.soon(failing.reached(1)).await;
        world.soon_until(async || world.probe.runs("runs") == 1).await;
        world.kill(first);
        failing.open();
        let node = world.node().with(|b| b.workflow(TwoBeside).configure(|options| options.max_concurrent_steps = 1)).start().await;
        world.fly(node.workflow_instance::<TwoBeside>(id).completion()).await.expect("done");
        assert_eq!(world.probe.keys("runs").len(), 1);
        assert_eq!(world.probe.runs("compensate runs"), 1);
        node.stop_clean().await;
    }

    async fn a_crash_before_it_is_known_what_to_undo_is_found_by_the_next_node(world: World) {
        world.probe.fail("b", 1);
        let first = world.run(Ends).await;
        let gate = first.means.store.on(StoreCall::LoadScope).hold();
        let id = first.begin::<Ends>(Data::default()).await.id().clone();
        world.soon(gate.reached(1)).await;
        world.kill(first);
        let node = world.run(Ends).await;
        world.fly(node.workflow_instance::<Ends>(id).ended()).await.expect("ended");
        assert_eq!(path(&world), ["a", "b", "-b", "-a"]);
        node.stop_clean().await;
    }

    async fn what_is_undone_is_told_by_the_history(world: World) {
        world.probe.fail("b", 1);
        let node = world.run(Ends).await;
        let handle = node.begin::<Ends>(Data::default()).await;
        world.soon(handle.ended()).await.expect("ended");
        let status = |pointers: &[latchwork::core::store::PointerRecord], step: &str| {
            pointers.iter().find(|pointer| &*pointer.step == step).map(|pointer| pointer.status.to_string())
        };
        let pointers = handle.pointers().await;
        for step in ["a", "b"] {
            assert_eq!(status(&pointers, step).as_deref(), Some("compensated"), "{step}");
        }
        node.stop_clean().await;
    }
}

workflow!(SleepsInSaga, |flow| {
    flow.saga("saga", |saga| {
        saga.parallel("both", |both| {
            both.branch("sleeps", |b| {
                b.step::<Sleeps>("sleeps").compensate(async |_, cx| step(cx).await);
            });
            both.branch("fails", |b| _ = plain!(b, "fails"));
        });
    })
    .on_error(NEVER().then_continue());
});

#[derive(Default)]
struct Sleeps;

impl StepBody for Sleeps {
    async fn run(&mut self, cx: &StepContext) -> StepResult {
        step(cx).await?;
        Ok(ExecutionResult::sleep(Duration::from_hours(24)))
    }
}

on_each_store! {
    async fn a_body_that_has_begun_and_sleeps_when_its_saga_fails_is_undone(world: World) {
        world.probe.fail("fails", 1);
        let gate = world.probe.hold("fails");
        let node = world.run(SleepsInSaga).await;
        let handle = node.begin::<SleepsInSaga>(Data::default()).await;
        world.soon_until(async || world.probe.ended("sleeps") == 1).await;
        world.soon(gate.reached(1)).await;
        gate.open();
        world.soon(handle.completion()).await.expect("done");
        assert_eq!((world.probe.runs("sleeps"), world.probe.runs("compensate sleeps")), (1, 1));
        node.stop_clean().await;
    }
}
