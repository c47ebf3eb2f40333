//! Parity with the scenarios of Workflow Core's own integration tests, part 2 of 3: events, activities, delays, the stop, and search.
//! See `parity_flow.rs`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::{
    AfterCancel,
    clock::{Timestamp, add},
    store::{ActivityOutcome, AttributeValue, Comparison, InstanceQuery},
};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ActivityInput {
    value1: String,
    value2: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ActivityData {
    input: ActivityInput,
    output: ActivityInput,
}

workflow!(Activity: ActivityData, |flow| {
    flow.activity("act-1", |data: &ActivityData| data.input.clone()).output(|result: ActivityInput, data| data.output = result);
});

workflow!(Activity2: ActivityData, |flow| {
    flow.activity("act", |data: &ActivityData| data.input.clone())
        .name_by(|data: &ActivityData| format!("act-{}", data.input.value2))
        .output(|result: ActivityInput, data| data.output = result);
});

workflow!(CancelledEvent, |flow| {
    flow.parallel("both", |both| {
        both.branch("1", |b| {
            b.wait_for("Event1", |data| data.text.clone()).output(|text: String, data| {
                data.n = 1;
                data.log.push(text);
            });
        });
        both.branch("2", |b| {
            b.wait_for("Event2", |data| data.text.clone())
                .cancel_when(|data| data.n == 1, AfterCancel::Stop)
                .output(|text: String, data| data.log.push(text));
            b.run("after event 2", async |_, cx| step(cx).await);
        });
    });
    flow.wait_for("Event3", |data| data.text.clone()).output(|text: String, data| data.log.push(text));
});

workflow!(Delay, |flow| {
    flow.run("before", async |_, cx| step(cx).await);
    flow.delay("pause", MINUTE * 5);
    flow.run("after", async |_, cx| step(cx).await);
});

/// The time of an event, so many minutes after the beginning of 2000.
fn at(minutes: u64) -> Timestamp {
    add(Timestamp::from_timestamp(946_684_800, 0).expect("a time"), MINUTE * u32::try_from(minutes).expect("few"))
}

workflow!(EventOrder, |flow| {
    for minutes in 1..=5 {
        flow.wait_for("OrderedEvent", |_| "k".into())
            .named(&format!("event {minutes}"))
            .as_of(move |_| at(minutes))
            .output(|n: i64, data| data.items.push(n));
    }
});

workflow!(Event, |flow| {
    flow.run("begin", async |_, cx| step(cx).await);
    flow.wait_for("MyEvent", |data| data.text.clone()).output(|text: String, data| data.log.push(text));
    flow.wait_for("MyEvent2", |data| data.text.clone()).output(|text: String, data| data.log.push(text));
});

workflow!(ParallelEvents, |flow| {
    flow.parallel("all", |all| {
        for n in 0..5 {
            all.branch(&n.to_string(), |b| {
                b.wait_for("Event", move |data| format!("{}-{n}", data.text))
                    .named(&format!("wait {n}"))
                    .output(|n: i64, data| data.items.push(n));
                b.run(&format!("long {n}"), async |_, cx| step(cx).await).output(|(), data| data.n += 1);
            });
        }
    });
});

workflow!(StopAsync, |flow| {
    flow.run("five seconds", async |_, cx| step(cx).await).output(|(), data| data.n += 1);
    flow.run("next", async |_, cx| step(cx).await);
});

workflow!(Searched, |flow| flow.wait_for("go", |data| data.text.clone()));
workflow!(SearchedToo, |flow| flow.wait_for("go", |data| data.text.clone()));

fn keyed(text: &str) -> Data {
    Data { text: text.into(), ..Data::default() }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::Text(text.into())
}

/// Three instances that differ in all that can be searched for; the first two a day before the third.
async fn searched(world: &World) -> (TestNode, [InstanceId; 3]) {
    let node = world.node().with(|b| b.workflow(Searched).workflow(SearchedToo)).start().await;
    let one = node
        .start_workflow::<Searched>(keyed("1"))
        .reference("ref one")
        .attribute("Value", text("quick brown fox"))
        .attribute("Amount", AttributeValue::Number(7.0));
    let one = one.await.expect("started").id().clone();
    let two = node.start_workflow::<SearchedToo>(keyed("2")).reference("ref two").attribute("Amount", text("seven"));
    let two = two.await.expect("started").id().clone();
    world.quiet().await;
    world.pass(MINUTE * 60 * 24).await;
    let three = node.start_workflow::<Searched>(keyed("3")).attribute("Amount", AttributeValue::Number(12.0));
    let three = three.await.expect("started");
    node.publish_event("go", "3", ()).await.expect("published");
    world.soon(three.completion()).await.expect("done");
    (node, [one, two, three.id().clone()])
}

async fn found(node: &TestNode, query: InstanceQuery) -> Vec<InstanceId> {
    node.find(&query).await.expect("found").items.into_iter().map(|row| row.header.id).collect()
}

on_each_store! {
    /// Activity. A failed activity is asked for again, where there the stored failure comes back for ever.
    async fn activity_gives_an_object_and_takes_an_object(world: World) {
        let node = world.run(Activity).await;
        let data = ActivityData { input: ActivityInput { value1: "a".into(), value2: 1 }, ..ActivityData::default() };
        let handle = node.begin::<Activity>(data.clone()).await;
        world.quiet().await;
        let claim = node.claim_activity(&["act-1"], "worker", MINUTE).await.expect("asked").expect("there");
        assert_eq!(claim.parameters.as_ref().map(|json| serde_json::from_str(json.as_str()).expect("an input")), Some(data.input.clone()));
        let output = ActivityInput { value1: "b".into(), value2: 2 };
        let result = serde_json::to_value(&output).expect("JSON");
        node.submit_activity(&claim.token, ActivityOutcome::Success(result)).await.expect("submitted");
        assert_eq!(world.soon(handle.completion()).await.expect("done"), ActivityData { output, ..data });
        node.stop_clean().await;
    }

    /// Activity2 (switched off there).
    async fn activity_2_is_named_by_the_data(world: World) {
        let node = world.run(Activity2).await;
        let data = ActivityData { input: ActivityInput { value1: "a".into(), value2: 77 }, ..ActivityData::default() };
        let handle = node.begin::<Activity2>(data).await;
        world.quiet().await;
        let claim = node.claim_activity(&["act-77"], "worker", MINUTE).await.expect("asked").expect("there");
        let result = serde_json::json!({"value1": "c", "value2": 3});
        node.submit_activity(&claim.token, ActivityOutcome::Success(result)).await.expect("submitted");
        assert_eq!(world.soon(handle.completion()).await.expect("done").output.value2, 3);
        node.stop_clean().await;
    }

    /// CancelledEvent.
    async fn cancelled_event_is_not_waited_for_any_more(world: World) {
        let node = world.run(CancelledEvent).await;
        let handle = node.begin::<CancelledEvent>(keyed("K")).await;
        world.quiet().await;
        for event in ["Event1", "Event2", "Event3"] {
            node.publish_event(event, "K", event).await.expect("published");
            world.quiet().await;
        }
        assert_eq!(world.soon(handle.completion()).await.expect("done").log, ["Event1", "Event3"]);
        assert_eq!(world.probe.runs("after event 2"), 0);
        node.stop_clean().await;
    }

    /// Delay.
    async fn delay_beyond_a_poll_goes_on_once(world: World) {
        let node = world.run(Delay).await;
        let handle = node.begin::<Delay>(Data::default()).await;
        let began = world.now();
        world.fly(handle.completion()).await.expect("done");
        assert!(world.now() >= add(began, MINUTE * 5));
        world.pass(MINUTE * 10).await;
        assert_eq!((world.probe.runs("before"), world.probe.runs("after")), (1, 1));
        node.stop_clean().await;
    }

    /// EventOrder. There the dates must be given, or the first event ends all waits; here a wait without one takes what came since the
    /// start of its instance.
    async fn event_order_is_that_of_the_times(world: World) {
        let node = world.run(EventOrder).await;
        for minutes in [3, 1, 5, 2, 4] {
            let event = node.new_event("OrderedEvent", "k", &minutes).expect("an event").at(at(minutes));
            node.publish(event).await.expect("published");
        }
        let handle = node.begin::<EventOrder>(Data::default()).await;
        assert_eq!(world.soon(handle.completion()).await.expect("done").items, [1, 2, 3, 4, 5]);
        node.stop_clean().await;
    }

    /// Event. There a wait without a date takes events of all time; here those since the creation of its instance.
    async fn event_by_event_brings_its_data(world: World) {
        let node = world.run(Event).await;
        let handle = node.begin::<Event>(keyed("K")).await;
        world.quiet().await;
        node.publish_event("MyEvent", "K", "Pass1").await.expect("published");
        world.quiet().await;
        node.publish_event("MyEvent2", "K", "Pass2").await.expect("published");
        assert_eq!(world.soon(handle.completion()).await.expect("done").log, ["Pass1", "Pass2"]);
        node.stop_clean().await;
    }

    /// ParallelEvents. There each event may wait for the poller while the long steps run; here the branch goes on beside them.
    async fn parallel_events_are_each_taken_while_long_steps_run(world: World) {
        let node = world.node().with(|b| b.workflow(ParallelEvents).poll_interval(Duration::from_secs(1))).start().await;
        let gates: Vec<_> = (0..5).map(|n| world.probe.hold(&format!("long {n}"))).collect();
        let handle = node.begin::<ParallelEvents>(keyed("K")).await;
        world.quiet().await;
        for n in 0..5_i64 {
            node.publish_event("Event", &format!("K-{n}"), n).await.expect("published");
        }
        // All five are at work before the first of them has ended.
        for gate in &gates { world.fly(gate.reached(1)).await; }
        for gate in &gates { gate.open(); }
        let mut done = world.fly(handle.completion()).await.expect("done");
        done.items.sort_unstable();
        assert_eq!((done.items, done.n), ((0..5).collect(), 5));
        node.stop_clean().await;
    }

    /// StopAsync. There it holds for the queue in memory only; here the stop waits for running bodies whatever the queue, up to a grace.
    async fn stop_async_waits_for_a_running_step(world: World) {
        let node = world.run(StopAsync).await;
        let gate = world.probe.hold("five seconds");
        let handle = node.begin::<StopAsync>(Data::default()).await;
        world.soon(gate.reached(1)).await;
        let stop = tokio::spawn({ let host = node.host.clone(); async move { host.stop().await } });
        world.pass(Duration::from_secs(5)).await;
        assert!(!stop.is_finished());
        gate.open();
        assert_eq!(world.soon(stop).await.expect("no panic").expect("stopped").unfinished, []);
        let loaded = world.store().load(handle.id()).await.expect("loads").expect("there");
        assert_eq!(serde_json::from_str::<Data>(loaded.data.as_str()).expect("data").n, 1);
        assert_eq!((world.probe.ended("five seconds"), world.probe.runs("next")), (1, 0));
    }

    /// SearchIndex 1, search on the reference. There and in the following an index of its own is asked, which lags behind; here the store.
    async fn search_index_finds_a_text_in_the_reference(world: World) {
        let (node, [one, two, _]) = searched(&world).await;
        assert_eq!(found(&node, InstanceQuery::new().with_text("one")).await, std::slice::from_ref(&one));
        assert_eq!(found(&node, InstanceQuery::new().with_text("ref")).await, [one, two]);
        node.stop_clean().await;
    }

    /// SearchIndex 2, search on data. There the data gives tokens; here what is searched for is a declared attribute.
    async fn search_index_finds_a_text_in_an_attribute(world: World) {
        let (node, [one, two, _]) = searched(&world).await;
        assert_eq!(found(&node, InstanceQuery::new().with_text("brown")).await, [one]);
        assert_eq!(found(&node, InstanceQuery::new().with_text("seven")).await, [two]);
        assert_eq!(found(&node, InstanceQuery::new().with_text("grey")).await, []);
        node.stop_clean().await;
    }

    /// SearchIndex 3, filter on data.
    async fn search_index_filters_on_an_attribute(world: World) {
        let (node, [one, _, three]) = searched(&world).await;
        let number = |comparison, n| InstanceQuery::new().with_attribute("Amount", comparison, AttributeValue::Number(n));
        assert_eq!(found(&node, number(Comparison::Equal, 7.0)).await, std::slice::from_ref(&one));
        assert_eq!(found(&node, number(Comparison::AtLeast, 7.0)).await, [one, three]);
        node.stop_clean().await;
    }

    /// SearchIndex 4, filter on data whose name means something else in another workflow.
    async fn search_index_tells_attributes_of_the_same_name_apart_by_their_types(world: World) {
        let (node, [one, two, three]) = searched(&world).await;
        let query = InstanceQuery::new().with_attribute("Amount", Comparison::Equal, text("seven"));
        assert_eq!(found(&node, query.clone()).await, [two]);
        assert_eq!(found(&node, query.with_definition("Searched")).await, []);
        assert_eq!(found(&node, InstanceQuery::new().with_definition("Searched")).await, [one, three]);
        node.stop_clean().await;
    }

    /// SearchIndex 5, filter on the reference.
    async fn search_index_filters_on_the_reference(world: World) {
        let (node, [one, ..]) = searched(&world).await;
        assert_eq!(found(&node, InstanceQuery::new().with_reference("ref one")).await, [one]);
        assert_eq!(found(&node, InstanceQuery::new().with_reference("ref")).await, []);
        node.stop_clean().await;
    }

    /// SearchIndex 6, filter on the status.
    async fn search_index_filters_on_the_status(world: World) {
        let (node, [one, two, three]) = searched(&world).await;
        assert_eq!(found(&node, InstanceQuery::new().with_status([WorkflowStatus::Complete])).await, [three]);
        assert_eq!(found(&node, InstanceQuery::new().with_status([WorkflowStatus::Runnable])).await, [one, two]);
        node.stop_clean().await;
    }

    /// SearchIndex 7, filter on dates.
    async fn search_index_filters_on_dates(world: World) {
        let (node, [one, two, three]) = searched(&world).await;
        let mut query = InstanceQuery::new();
        let rows = node.find(&query).await.expect("found").items;
        query.created_from = rows.last().map(|row| row.header.created);
        assert_eq!(found(&node, query.clone()).await, [three]);
        query.created_before = query.created_from.take();
        assert_eq!(found(&node, query).await, [one, two]);
        node.stop_clean().await;
    }
}
