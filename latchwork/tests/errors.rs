//! Failing steps: retries, giving up, what is kept of errors, and code that panics.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::store::{Encoded, NewEvent};
use std::{
    error::Error as _,
    sync::atomic::{AtomicBool, Ordering},
};

const SECOND: Duration = Duration::from_secs(1);

fn exponential() -> Retry {
    Retry::exponential(SECOND).without_jitter()
}

workflow!(Flaky, |flow| {
    flow.run("flaky", async |_, cx| step(cx).await).on_error(exponential().max_attempts(6)).output(|(), data| data.n += 1);
    flow.run("after", async |_, cx| step(cx).await);
});

workflow!(Fixed, |flow| {
    flow.default_error_policy(Retry::fixed(SECOND * 7).max_attempts(3).then_terminate());
    flow.run("flaky", async |_, cx| step(cx).await);
});

workflow!(Capped, |flow| {
    flow.run("flaky", async |_, cx| step(cx).await).on_error(exponential().max_interval(SECOND * 3).for_ever());
});

workflow!(ByHost, |flow| { flow.run("flaky", async |_, cx| step(cx).await) });

workflow!(Kinds, |flow| {
    flow.run("fails", async |data, cx| {
        step(cx).await?;
        match (data.text.as_str(), cx.attempt()) {
            ("permanent", _) => Err(StepError::permanent("the card is unknown")),
            ("later", 1) => Err(StepError::from("busy").retry_after(SECOND * 100)),
            ("sourced", 1) => Ok(String::from_utf8(vec![0xff]).map(|_| ())?),
            ("panic", 1) => panic!("the roof is on fire"),
            ("long", 1) => Err("x".repeat(20_000).into()),
            _ => Ok(()),
        }
    })
    .on_error(Retry::fixed(SECOND));
});

#[derive(Default)]
struct Fragile {
    touched: bool,
}

impl StepBody for Fragile {
    async fn run(&mut self, cx: &StepContext) -> StepResult {
        step(cx).await?;
        self.touched = true;
        Ok(ExecutionResult::next())
    }
}

workflow!(Panics, |flow| {
    flow.default_error_policy(Retry::never());
    flow.step::<Fragile>("input").input(|_, data| assert!(data.text != "input", "the input broke"));
    flow.step::<Fragile>("output").output(|body, data| {
        data.n += i64::from(body.touched);
        assert!(data.text != "output", "the output broke");
        data.log.push("output".into());
    });
    flow.when(
        "condition",
        |data| {
            assert!(data.text != "condition", "the condition broke");
            true
        },
        |_| {},
    );
    flow.for_each(
        "items",
        |data| {
            assert!(data.text != "items", "the items broke");
            data.items.clone()
        },
        |each| {
            each.run("each", async |_, cx| step(cx).await);
        },
    );
    flow.repeat_while(
        "loop",
        |data| {
            assert!(!(data.text == "loop" && data.n == 2), "the loop broke");
            data.n < 3
        },
        |round| {
            round.run("round", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
        },
    );
    flow.delay_by("pause", |data| {
        assert!(data.text != "pause", "the pause broke");
        SECOND
    });
    flow.wait_for("event", |data| {
        assert!(data.text != "key", "the key broke");
        "k".into()
    })
    .output(|n: i64, data| {
        assert!(n != 13, "the event broke");
        data.n += n;
    });
});

/// A loop whose condition breaks in the second round while it is told to.
struct Breaks(Arc<AtomicBool>);

impl Workflow for Breaks {
    type Data = Data;
    const ID: &'static str = "Breaks";

    fn build(&self, flow: &mut WorkflowBuilder<Data>) {
        let breaks = self.0.clone();
        let test = move |data: &Data| {
            assert!(!(data.n == 2 && breaks.load(Ordering::Relaxed)), "the loop broke");
            data.n < 4
        };
        flow.default_error_policy(Retry::never());
        flow.repeat_while("loop", test, |round| {
            round.run("round", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
        });
    }
}

/// Cannot be written as JSON while it is odd.
#[derive(Clone, Debug, Deserialize)]
struct Odd {
    n: i64,
    text: String,
}

impl Serialize for Odd {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::{Error, SerializeStruct};
        if self.n % 2 == 1 {
            return Err(S::Error::custom("odd numbers cannot be stored"));
        }
        let mut fields = serializer.serialize_struct("Odd", 2)?;
        fields.serialize_field("n", &self.n)?;
        fields.serialize_field("text", &self.text)?;
        fields.end()
    }
}

workflow!(Grows: Odd, |flow| {
    flow.run("grow", async |data: &Odd, cx| step(cx).await.map(|()| data.text.clone())).output(|text, data| match text.as_str() {
        "odd" => data.n = 1,
        "deep" => data.text = "deep".into(),
        _ => data.text = "x".repeat(2 << 20),
    });
    flow.run("after", async |_, cx| step(cx).await);
});

async fn suspended<W>(world: &World, handle: &WorkflowHandle<W>) {
    world.fly_until(async || handle.is(WorkflowStatus::Suspended).await).await;
}

fn text(text: &str) -> Data {
    Data { text: text.into(), items: vec![1], ..Data::default() }
}

on_each_store! {
    async fn k34_a_failing_step_is_tried_again_with_growing_pauses(world: World) {
        let node = world.run(Flaky).await;
        world.probe.fail("flaky", 4);
        let handle = node.begin::<Flaky>(Data::default()).await;
        for (tries, pause) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
            world.soon_until(async || handle.all_errors().await.len() == tries).await;
            world.quiet().await;
            world.clock.advance(SECOND * pause - Duration::from_millis(1));
            world.rest().await;
            assert_eq!(world.probe.runs("flaky"), tries);
            world.clock.advance(Duration::from_millis(1));
        }
        assert_eq!(world.soon(handle.completion()).await.expect("done").n, 1);
        let errors = handle.all_errors().await;
        assert_eq!(errors.iter().map(|e| e.attempt).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(errors.iter().all(|e| e.message == "flaky was told to fail" && &*e.step == "flaky" && e.pointer == errors[0].pointer));
        assert_eq!((errors[3].time - errors[0].time).num_seconds(), 7);
        assert_eq!(world.probe.all().iter().filter(|run| run.step == "flaky").map(|run| run.attempt).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(world.probe.keys("flaky").len(), 1);
        node.stop_clean().await;
    }

    async fn k34_tries_are_counted_over_restarts(world: World) {
        let node = world.run(Flaky).await;
        world.probe.fail("flaky", 100);
        let handle = node.begin::<Flaky>(Data::default()).await;
        world.fly_until(async || handle.all_errors().await.len() == 3).await;
        let id = handle.id().clone();
        drop(handle);
        world.kill(node);
        let node = world.run(Flaky).await;
        let handle = node.instance(id);
        world.fly_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        assert_eq!(handle.all_errors().await.iter().map(|e| e.attempt).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(handle.reason().await, "step `flaky` failed for good after 6 tries: flaky was told to fail");
        // `retry_step` gives all its tries again.
        world.probe.fail("flaky", 5);
        handle.retry_step().await.expect("stored");
        world.fly(handle.ended()).await.expect("done");
        assert_eq!((world.probe.runs("flaky"), world.probe.runs("after")), (12, 1));
        node.stop_clean().await;
    }

    async fn when_tries_are_exhausted_the_instance_ends_if_it_is_told_to(world: World) {
        let node = world.run(Fixed).await;
        world.probe.fail("flaky", 100);
        let handle = node.begin::<Fixed>(Data::default()).await;
        let began = world.now();
        let error = world.fly(handle.completion()).await.expect_err("terminated");
        let reason = "step `flaky` failed for good after 3 tries: flaky was told to fail";
        assert_eq!(error.to_string(), format!("instance {} was terminated: {reason}", handle.id()));
        assert!((14..25).contains(&world.clock.since(began).as_secs()), "{:?}", world.clock.since(began));
        assert_eq!((handle.is(WorkflowStatus::Terminated).await, handle.reason().await), (true, reason.to_owned()));
        assert_eq!(handle.all_errors().await.len(), 3);
        node.stop_clean().await;
    }

    async fn pauses_have_a_maximum_and_tries_need_not(world: World) {
        let node = world.run(Capped).await;
        world.probe.fail("flaky", 30);
        let handle = node.begin::<Capped>(Data::default()).await;
        let began = world.now();
        world.fly(handle.completion()).await.expect("done");
        assert_eq!(world.probe.runs("flaky"), 31);
        assert!((87..140).contains(&world.clock.since(began).as_secs()), "{:?}", world.clock.since(began));
        node.stop_clean().await;
    }

    async fn the_host_has_a_policy_for_steps_without(world: World) {
        let node = world.node().with(|b| b.workflow(ByHost).default_error_policy(Retry::fixed(SECOND).max_attempts(2))).start().await;
        world.probe.fail("flaky", 2);
        let handle = node.begin::<ByHost>(Data::default()).await;
        suspended(&world, &handle).await;
        assert_eq!(world.probe.runs("flaky"), 2);
        node.stop_clean().await;
    }

    async fn a_permanent_error_is_not_tried_again(world: World) {
        let node = world.run(Kinds).await;
        let handle = node.begin::<Kinds>(text("permanent")).await;
        world.soon_until(async || handle.is(WorkflowStatus::Suspended).await).await;
        assert_eq!(handle.reason().await, "step `fails` failed for good after 1 try: the card is unknown");
        assert_eq!(world.probe.runs("fails"), 1);
        node.stop_clean().await;
    }

    async fn an_error_can_ask_for_a_later_try(world: World) {
        let node = world.run(Kinds).await;
        let handle = node.begin::<Kinds>(text("later")).await;
        let began = world.now();
        world.fly(handle.completion()).await.expect("done");
        assert!((100..130).contains(&world.clock.since(began).as_secs()), "{:?}", world.clock.since(began));
        node.stop_clean().await;
    }

    async fn errors_are_kept_with_their_causes_and_cut(world: World) {
        let node = world.run(Kinds).await;
        for (how, begins, length) in [("sourced", "invalid utf-8", 0..200), ("panic", "the step's code panicked: the roof is on fire", 0..200), ("long", "xxx", 8_000..8_193)] {
            let handle = node.begin::<Kinds>(text(how)).await;
            world.fly(handle.completion()).await.expect("done");
            let errors = handle.all_errors().await;
            assert_eq!((errors.len(), errors[0].attempt), (1, 1));
            assert!(errors[0].message.starts_with(begins) && length.contains(&errors[0].message.len()), "{}", errors[0].message);
        }
        node.stop_clean().await;
    }

    async fn user_code_that_panics_is_an_error_of_its_step(world: World) {
        let node = world.run(Panics).await;
        for (what, where_) in [("input", "input"), ("output", "output"), ("condition", "condition"), ("items", "items"), ("loop", "loop"), ("pause", "pause"), ("key", "wait for event")] {
            let handle = node.begin::<Panics>(text(what)).await;
            suspended(&world, &handle).await;
            assert_eq!(handle.reason().await, format!("step `{where_}` failed for good after 1 try: the step's code panicked: the {what} broke"));
            let errors = handle.all_errors().await;
            assert_eq!((errors.len(), &*errors[0].step, errors[0].attempt), (1, where_, 1), "{what}");
        }
        node.stop_clean().await;
    }

    async fn an_output_that_breaks_half_way_leaves_nothing_half(world: World) {
        let node = world.run(Panics).await;
        let handle = node.begin::<Panics>(text("output")).await;
        suspended(&world, &handle).await;
        let data = handle.data().await.expect("data");
        assert_eq!((data.n, data.log.len()), (0, 0));
        node.stop_clean().await;
    }

    async fn an_event_output_that_panics_is_an_error_and_the_wait_can_be_tried_again(world: World) {
        let node = world.run(Panics).await;
        let handle = node.begin::<Panics>(text("fine")).await;
        node.publish_event("event", "k", 13).await.expect("published");
        suspended(&world, &handle).await;
        assert!(handle.reason().await.ends_with("the step's code panicked: the event broke"), "{}", handle.reason().await);
        handle.retry_step().await.expect("stored");
        node.publish_event("event", "k", 1).await.expect("published");
        assert_eq!(world.fly(handle.completion()).await.expect("done").n, 4);
        node.stop_clean().await;
    }

    /// A loop whose condition broke goes on at its round: each round has keys of its own, or effects would be taken for repeated.
    async fn a_loop_that_broke_goes_on_where_it_was(world: World) {
        let breaks = Arc::new(AtomicBool::new(true));
        let node = world.run(Breaks(breaks.clone())).await;
        let handle = node.begin::<Breaks>(Data::default()).await;
        suspended(&world, &handle).await;
        assert_eq!(handle.data().await.expect("data").n, 2);
        breaks.store(false, Ordering::Relaxed);
        handle.retry_step().await.expect("stored");
        assert_eq!(world.soon(handle.completion()).await.expect("done").n, 4);
        assert_eq!((world.probe.runs("round"), world.probe.keys("round").len()), (4, 4));
        node.stop_clean().await;
    }

    async fn data_that_is_too_large_is_a_failure_for_good_and_the_body_is_not_run_again(world: World) {
        let node = world.run(Grows).await;
        let handle = node.begin::<Grows>(Odd { n: 0, text: "large".into() }).await;
        suspended(&world, &handle).await;
        for _ in 0..60 { world.clock.advance(SECOND * 10); settle().await; }
        assert_eq!((world.probe.runs("grow"), world.probe.runs("after")), (1, 0));
        assert!(handle.reason().await.contains("the limit is 1048576 (option `data_limit`)"), "{}", handle.reason().await);
        assert_eq!(handle.data().await.expect("data").text, "large");
        let errors = handle.all_errors().await;
        assert_eq!((errors.len(), &*errors[0].step, errors[0].attempt), (1, "grow", 1));
        handle.retry_step().await.expect("stored");
        world.soon_until(async || world.probe.runs("grow") == 2).await;
        suspended(&world, &handle).await;
        node.stop_clean().await;
    }

    async fn data_that_cannot_be_written_is_a_failure_for_good(world: World) {
        let node = world.run(Grows).await;
        let handle = node.begin::<Grows>(Odd { n: 0, text: "odd".into() }).await;
        suspended(&world, &handle).await;
        assert!(handle.reason().await.contains("odd numbers cannot be stored"), "{}", handle.reason().await);
        assert_eq!(world.probe.runs("grow"), 1);
        node.stop_clean().await;
    }

    async fn data_that_is_too_large_is_refused_at_the_start(world: World) {
        let node = world.run(Grows).await;
        let error = node.start_workflow::<Grows>(Odd { n: 0, text: "x".repeat(2 << 20) }).await.expect_err("refused");
        assert_eq!(error.to_string(), "the data of the instance has 2097169 bytes of JSON, the limit is 1048576");
        let error = node.publish_event("e", "k", "x".repeat(300_000)).await.expect_err("refused");
        assert_eq!(error.to_string(), "the data of event `e` has 300002 bytes of JSON, the limit is 262144");
        // An event that was made by hand is held to the same.
        let by_hand = |json: String| NewEvent::new("e", "k").with_data(Encoded::from_json(json));
        let error = node.publish(by_hand(format!("\"{}\"", "x".repeat(300_000)))).await.expect_err("refused");
        assert_eq!(error.to_string(), "the data of event `e` has 300002 bytes of JSON, the limit is 262144");
        let error = node.publish(by_hand("[".repeat(65) + &"]".repeat(65))).await.expect_err("refused");
        let said = format!("{error}: {}", error.source().expect("a reason"));
        assert!(said.contains("data of event `e`") && said.contains("it nests deeper than 64 levels"), "{said}");
        node.stop_clean().await;
    }
}
