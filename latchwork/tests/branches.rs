//! Races, cancel conditions, and branches that run beside the way: later, again and again, by the calendar.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;

use common::*;
use latchwork::{AfterCancel, Cron, MissedTicks};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

fn log(text: &'static str) -> impl Fn((), &mut Data) + Send + Sync + 'static {
    move |(), data| data.log.push(text.to_owned())
}

macro_rules! probed {
    ($flow:expr, $name:expr) => {
        $flow.run($name, async |_, cx| step(cx).await).output(log($name))
    };
}

workflow!(Race, |flow| {
    flow.first_of("answer", |race| {
        race.branch("yes", |b| {
            _ = b.wait_for("yes", |_| "k".to_owned()).output(|(), data: &mut Data| data.log.push("yes".into()));
        });
        race.branch("no", |b| _ = b.wait_for("no", |_| "k".to_owned()).output(|(), data: &mut Data| data.log.push("no".into())));
        race.branch("late", |b| {
            b.delay("a day", DAY);
            probed!(b, "expired");
        });
    });
    probed!(flow, "tail");
});

workflow!(RaceOfBodies, |flow| {
    flow.first_of("race", |race| {
        race.branch("slow", |b| {
            b.run("slow", async |_, cx| {
                tokio::select! {
                    ended = step(cx) => ended,
                    () = cx.cancellation().cancelled() => Ok(()),
                }
            })
            .output(log("slow"));
            probed!(b, "after slow");
        });
        race.branch("fast", |b| _ = probed!(b, "fast"));
    });
    probed!(flow, "tail");
});

workflow!(Cancelled, |flow| {
    flow.parallel("both", |both| {
        both.branch("waits", |b| {
            b.group("waiting", |group| {
                group.wait_for("never", |_| "k".to_owned());
                probed!(group, "not reached");
            })
            .cancel_when(|data| data.n == 1, AfterCancel::Proceed);
            probed!(b, "went on");
        });
        both.branch("sleeps", |b| {
            b.group("sleeping", |group| group.delay("a year", 365 * DAY)).cancel_when(|data| data.n == 1, AfterCancel::Stop);
            probed!(b, "not reached either");
        });
        both.branch("decides", |b| {
            b.wait_for("cancel", |_| "k".to_owned()).output(|(), data: &mut Data| data.n = 1);
        });
    });
    probed!(flow, "tail");
});

workflow!(CancelledStep, |flow| {
    flow.parallel("both", |both| {
        both.branch("runs", |b| {
            b.run("deaf", async |_, cx| step(cx).await).output(log("deaf")).cancel_when(|data| data.n == 1, AfterCancel::Proceed);
            probed!(b, "went on");
        });
        both.branch("decides", |b| {
            b.run("decide", async |_, cx| step(cx).await).output(|(), data| data.n = 1);
        });
    });
});

workflow!(NeverBegun, |flow| {
    flow.run("skipped", async |_, cx| step(cx).await).cancel_when(|data| data.n == 0, AfterCancel::Proceed);
    probed!(flow, "tail");
});

workflow!(Scheduled, |flow| {
    flow.schedule("later", HOUR, |later| _ = probed!(later, "scheduled"));
    probed!(flow, "main");
});

workflow!(ScheduledInLoop, |flow| {
    flow.repeat_while(
        "twice",
        |data| data.n < 2,
        |body| {
            body.schedule("later", HOUR, |later| _ = probed!(later, "scheduled"));
            body.run("main", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
        },
    );
});

workflow!(Recurring, |flow| {
    flow.recur("again", HOUR, |again| {
        again.run("round", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    })
    .until(|data| data.n == 3);
    probed!(flow, "main");
});

workflow!(RecurringUntilPaid, |flow| {
    flow.recur("reminders", DAY, |again| {
        again.run("remind", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    })
    .cancel_when(|data| data.text == "paid", AfterCancel::Stop);
    flow.wait_for("paid", |_| "k".to_owned()).output(|(), data: &mut Data| data.text = "paid".into());
});

workflow!(Mornings, |flow| {
    flow.recur_cron("mornings", Cron::new("0 9 * * *").in_zone("Europe/Berlin"), |each| {
        each.run("report", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    })
    .until(|data| data.n == 3);
});

workflow!(MorningsOrNot, |flow| {
    flow.recur_cron("mornings", Cron::new("0 9 * * *").missed(MissedTicks::Skip), |each| {
        each.run("report", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    })
    .until(|data| data.n == 2);
});

workflow!(Outcomes, |flow| {
    flow.step::<Score>("score")
        .input(|score, data| score.0 = data.n)
        .outcome(100, |full| _ = probed!(full, "full"))
        .outcome_if(|score: &i64| *score < 50, |low| _ = probed!(low, "low"))
        .outcome_if(|score: &i64| *score < 80, |middle| _ = probed!(middle, "middle"));
    probed!(flow, "tail");
});

#[derive(Default)]
struct Score(i64);

impl StepBody for Score {
    async fn run(&mut self, _: &StepContext) -> StepResult {
        ExecutionResult::outcome(self.0)
    }
}

async fn subscriptions(world: &World, id: &InstanceId) -> usize {
    world.store().load(id).await.expect("loaded").expect("there").subscriptions.len()
}

on_each_store! {
    async fn k20_the_first_of_several_waits_ends_the_others_and_their_timers(world: World) {
        let node = world.run(Race).await;
        let handle = node.begin::<Race>(Data::default()).await;
        world.soon_until(async || subscriptions(&world, handle.id()).await == 2).await;
        node.publish_event("no", "k", ()).await.expect("published");
        let data = world.soon(handle.completion()).await.expect("done");
        assert_eq!(data.log, ["no", "tail"]);
        let late = node.publish_event("yes", "k", ()).await;
        assert!(late.is_ok(), "an event that nobody waits for is kept");
        node.stop_clean().await;
    }

    async fn a_timer_wins_a_race_when_no_event_comes(world: World) {
        let node = world.run(Race).await;
        let handle = node.begin::<Race>(Data::default()).await;
        world.soon_until(async || subscriptions(&world, handle.id()).await == 2).await;
        let data = world.fly_by(HOUR, handle.completion()).await.expect("done");
        assert_eq!(data.log, ["expired", "tail"]);
        node.stop_clean().await;
    }

    async fn k19_the_losers_of_a_race_leave_no_subscription_behind(world: World) {
        let first = world.node().with(|b| b.workflow(Race).poll_interval(Duration::from_secs(10))).start().await;
        let gate = world.probe.hold("tail");
        let handle = first.begin::<Race>(Data::default()).await;
        world.soon_until(async || subscriptions(&world, handle.id()).await == 2).await;
        first.publish_event("yes", "k", ()).await.expect("published");
        world.soon(gate.reached(1)).await;
        assert_eq!(subscriptions(&world, handle.id()).await, 0);
        gate.open();
        world.soon(handle.completion()).await.expect("done");
        first.stop_clean().await;
    }

    async fn a_body_that_loses_a_race_is_told_and_what_it_returns_does_not_count(world: World) {
        let gate = world.probe.hold("slow");
        let fast = world.probe.hold("fast");
        let node = world.run(RaceOfBodies).await;
        let handle = node.begin::<RaceOfBodies>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        world.soon(fast.reached(1)).await;
        fast.open();
        let data = world.soon(handle.completion()).await.expect("done");
        assert_eq!(data.log, ["fast", "tail"]);
        assert_eq!((world.probe.ended("slow"), world.probe.runs("after slow")), (0, 0));
        node.stop_clean().await;
    }

    async fn a_condition_cancels_what_waits_and_what_sleeps_and_goes_on_or_not(world: World) {
        let node = world.run(Cancelled).await;
        let handle = node.begin::<Cancelled>(Data::default()).await;
        world.soon_until(async || subscriptions(&world, handle.id()).await == 2).await;
        node.publish_event("cancel", "k", ()).await.expect("published");
        let data = world.soon(handle.completion()).await.expect("done");
        assert_eq!(data.log, ["went on", "tail"]);
        node.stop_clean().await;
    }

    async fn a_body_that_does_not_hear_its_token_is_dropped_a_little_later(world: World) {
        let gate = world.probe.hold("deaf");
        let decide = world.probe.hold("decide");
        let node = world.run(CancelledStep).await;
        let handle = node.begin::<CancelledStep>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        world.soon(decide.reached(1)).await;
        decide.open();
        let data = world.fly(handle.completion()).await.expect("done");
        assert_eq!(data.log, ["went on"]);
        assert_eq!(world.probe.ended("deaf"), 0);
        node.stop_clean().await;
    }

    async fn a_step_whose_condition_holds_already_does_not_begin(world: World) {
        let node = world.run(NeverBegun).await;
        let handle = node.begin::<NeverBegun>(Data::default()).await;
        assert_eq!(world.soon(handle.completion()).await.expect("done").log, ["tail"]);
        assert_eq!(world.probe.runs("skipped"), 0);
        node.stop_clean().await;
    }

    async fn a_scheduled_branch_runs_later_beside_the_way_and_is_waited_for_at_the_end(world: World) {
        let node = world.run(Scheduled).await;
        let handle = node.begin::<Scheduled>(Data::default()).await;
        world.soon_until(async || world.probe.ended("main") == 1).await;
        world.rest().await;
        assert!(handle.is(WorkflowStatus::Runnable).await);
        let began = world.now();
        let data = world.fly_by(Duration::from_secs(60), handle.completion()).await.expect("done");
        assert_eq!(data.log, ["main", "scheduled"]);
        assert!(world.clock.since(began) >= HOUR);
        node.stop_clean().await;
    }

    async fn a_round_of_a_loop_is_over_when_its_scheduled_branch_is(world: World) {
        let node = world.run(ScheduledInLoop).await;
        let handle = node.begin::<ScheduledInLoop>(Data::default()).await;
        let began = world.now();
        let data = world.fly_by(Duration::from_secs(60), handle.completion()).await.expect("done");
        assert_eq!((data.log.len(), world.probe.keys("scheduled").len()), (2, 2));
        assert!(world.clock.since(began) >= 2 * HOUR);
        node.stop_clean().await;
    }

    async fn a_recurring_branch_runs_at_once_and_again_until_it_is_over_also_on_another_node(world: World) {
        let first = world.run(Recurring).await;
        let id = first.begin::<Recurring>(Data::default()).await.id().clone();
        world.soon_until(async || world.probe.ended("round") == 1 && world.probe.ended("main") == 1).await;
        world.rest().await;
        world.kill(first);
        let node = world.run(Recurring).await;
        let handle = node.workflow_instance::<Recurring>(id);
        let began = world.now();
        let data = world.fly_by(Duration::from_secs(60), handle.completion()).await.expect("done");
        assert_eq!((data.n, world.probe.keys("round").len()), (3, 3));
        assert!(world.clock.since(began) >= 2 * HOUR);
        node.stop_clean().await;
    }

    async fn a_condition_wakes_a_recurring_branch_from_its_sleep_to_end_it(world: World) {
        let node = world.run(RecurringUntilPaid).await;
        let handle = node.begin::<RecurringUntilPaid>(Data::default()).await;
        world.fly_by(HOUR, until(async || world.probe.ended("remind") == 3)).await;
        node.publish_event("paid", "k", ()).await.expect("published");
        assert_eq!(world.soon(handle.completion()).await.expect("done").n, 3);
        node.stop_clean().await;
    }

    async fn k43_a_calendar_ticks_in_its_time_zone(world: World) {
        // The clock goes by tens of minutes, so polls are further apart than that.
        let node = world.node().with(|b| b.workflow(Mornings).poll_interval(Duration::from_secs(1_800))).start().await;
        let handle = node.begin::<Mornings>(Data::default()).await;
        world.fly_by(Duration::from_secs(600), handle.completion()).await.expect("done");
        let reports = handle.pointers().await.into_iter().filter(|pointer| &*pointer.step == "report");
        let ticks: Vec<_> = reports.filter_map(|report| Some(report.started?.format("%H:%M").to_string())).collect();
        assert_eq!(ticks, ["08:00", "08:00", "08:00"], "nine in Berlin, in winter");
        node.stop_clean().await;
    }

    async fn ticks_that_nobody_was_there_for_run_once_or_not_at_all(world: World) {
        let first = world.node().with(|b| b.workflow(Mornings).workflow(MorningsOrNot)).start().await;
        let once = first.begin::<Mornings>(Data::default()).await.id().clone();
        let skip = first.begin::<MorningsOrNot>(Data::default()).await.id().clone();
        world.rest().await;
        world.kill(first);
        // Noon, ten days later: ten mornings were missed.
        world.clock.advance(10 * DAY + 12 * HOUR);
        let node = world.node().with(|b| b.workflow(Mornings).workflow(MorningsOrNot)).start().await;
        let (once, skip) = (node.workflow_instance::<Mornings>(once), node.workflow_instance::<MorningsOrNot>(skip));
        world.soon_until(async || once.data().await.expect("data").n == 1).await;
        world.rest().await;
        assert_eq!((once.data().await.expect("data").n, skip.data().await.expect("data").n), (1, 0));
        // Just before the next morning, so that polls are as near to it as they are in life.
        world.clock.advance(20 * HOUR + 59 * Duration::from_secs(60));
        world.fly_by(Duration::from_secs(5), until(async || skip.data().await.expect("data").n == 1)).await;
        assert_eq!(once.data().await.expect("data").n, 2);
        node.stop_clean().await;
    }

    async fn outcomes_choose_a_branch_by_value_or_by_test_the_first_that_fits(world: World) {
        let node = world.run(Outcomes).await;
        for (score, branch) in [(100, "full"), (10, "low"), (60, "middle"), (90, "")] {
            let handle = node.begin::<Outcomes>(Data::n(score)).await;
            let log = world.soon(handle.completion()).await.expect("done").log;
            assert_eq!(log, [branch, "tail"].into_iter().filter(|step| !step.is_empty()).collect::<Vec<_>>());
        }
        node.stop_clean().await;
    }
}

workflow!(BadCalendar, |flow| flow.recur_cron("nonsense", Cron::new("whenever"), |each| _ = probed!(each, "step")));

#[tokio::test]
async fn a_calendar_that_cannot_be_read_is_an_error_of_the_definition() {
    let world = World::memory();
    let error = world.node().with(|b| b.workflow(BadCalendar)).try_start().await.err().expect("refused").to_string();
    assert!(error.contains("step `nonsense`") && error.contains("`whenever`"), "{error}");
}

workflow!(FragileRecur, |flow| {
    flow.recur("again", HOUR, |again| {
        again.run("round", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    })
    .until(|data| {
        assert!(data.n != 1 || !data.log.is_empty(), "the test of the end fails in round 1");
        data.n >= 2
    });
    probed!(flow, "main");
});

workflow!(CancelledSaga, |flow| {
    flow.saga("saga", |saga| {
        saga.run("a", async |_, cx| step(cx).await).output(|(), data| data.n += 1).compensate_sequence(|undo| {
            undo.run("undo a", async |_, cx| step(cx).await).output(|(), data| data.n = 100);
            undo.run("undo more", async |_, cx| step(cx).await);
        });
        saga.run("b", async |_, cx| step(cx).await).on_error(Retry::never());
    })
    .on_error(Retry::never().then_continue())
    .cancel_when(|data| data.n == 100, AfterCancel::Stop);
    probed!(flow, "tail");
});

on_each_store! {
    async fn a_recurring_branch_whose_test_failed_goes_on_without_beginning_what_follows_again(world: World) {
        let gate = world.probe.hold("main");
        let node = world.run(FragileRecur).await;
        let handle = node.begin::<FragileRecur>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        world.soon_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        // The body that runs comes to its end also in a suspended instance, and what it leaves mends the test.
        gate.open();
        world.soon_until(async || !handle.data().await.expect("data").log.is_empty()).await;
        handle.resume().await.expect("resumed");
        let data = world.fly_by(HOUR, handle.completion()).await.expect("done");
        assert_eq!((world.probe.runs("main"), data.n), (1, 2));
        node.stop_clean().await;
    }

    async fn a_condition_does_not_cut_a_saga_off_in_the_middle_of_its_compensations(world: World) {
        world.probe.fail("b", 1);
        let node = world.run(CancelledSaga).await;
        let handle = node.begin::<CancelledSaga>(Data::default()).await;
        world.soon(handle.completion()).await.expect("done");
        assert_eq!(world.probe.steps(), ["a", "b", "undo a", "undo more", "tail"]);
        node.stop_clean().await;
    }
}
