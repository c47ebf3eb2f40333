//! What the closures of a workflow become: called by hand here, as the executor calls them.

use crate::{
    AnyData, Each, ExecutionResult, Services, StepBody, StepContext, StepResult, Workflow, WorkflowBuilder,
    data::Items,
    define,
    definition::{Definition, NodeKind, StepNode, WaitNode},
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{any::Any, pin::pin, sync::Arc, task, time::Duration};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Order {
    id: String,
    lines: Vec<String>,
    size: u32,
    notes: Vec<String>,
}

fn order() -> Order {
    Order { id: "A-1".into(), lines: vec!["tea".into(), "milk".into()], size: 7, notes: Vec::new() }
}

struct Flow<F>(F);

impl<F: Fn(&mut WorkflowBuilder<Order>) + Send + Sync + 'static> Workflow for Flow<F> {
    type Data = Order;
    const ID: &'static str = "order";

    fn build(&self, flow: &mut WorkflowBuilder<Order>) {
        (self.0)(flow);
    }
}

fn built(describe: impl Fn(&mut WorkflowBuilder<Order>) + Send + Sync + 'static) -> Definition {
    define(&Flow(describe)).expect("a sound definition")
}

fn kind<'a>(definition: &'a Definition, name: &str) -> &'a NodeKind {
    &definition.node(definition.by_name[name]).kind
}

fn step<'a>(definition: &'a Definition, name: &str) -> &'a StepNode {
    match kind(definition, name) {
        NodeKind::Step(step) => step,
        other => panic!("{other:?}"),
    }
}

fn wait<'a>(definition: &'a Definition, name: &str) -> &'a WaitNode {
    match kind(definition, name) {
        NodeKind::Wait(wait) => wait,
        other => panic!("{other:?}"),
    }
}

fn no_items() -> Items {
    Arc::new([])
}

fn item<I: Send + Sync + 'static>(item: I) -> Items {
    Arc::new([Arc::new(item) as Arc<AnyData>])
}

/// Polls a future that never has to wait.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut task::Context::from_waker(task::Waker::noop())) {
        task::Poll::Ready(value) => value,
        task::Poll::Pending => panic!("the future waits"),
    }
}

fn context(services: Services) -> StepContext {
    let burst = crate::body::BurstContext {
        services: Arc::new(services),
        instance: latchwork_core::store::InstanceId::new(),
        fencing: None,
        known: Arc::default(),
        middleware: Arc::new([]),
        event_limit: 1_000,
        data_limit: 1_000,
        cancellation: tokio_util::sync::CancellationToken::new(),
    };
    StepContext {
        burst: Arc::new(burst),
        step: "step".into(),
        pointer: latchwork_core::store::PointerId::from_u128(1),
        key: std::sync::OnceLock::new(),
        attempt: 1,
        kept: crate::body::Kept::default(),
        own_cancellation: None,
        outbox: Arc::default(),
        transaction: None,
    }
}

/// Runs a step as the executor does: inputs, the body, then outputs on data that nobody else holds.
fn execute(step: &StepNode, data: Order, items: &Items, services: Services) -> StepResult<(ExecutionResult, Order)> {
    let mut body = (step.make)(&services)?;
    let mut data: Arc<AnyData> = Arc::new(data);
    for input in &step.inputs {
        input(&mut *body as &mut dyn Any, &data, items)?;
    }
    let cx = context(services);
    let result = ready(body.run(&cx))?;
    let unshared = Arc::get_mut(&mut data).expect("the body holds the data no more");
    for output in &step.outputs {
        output(&mut *body as &mut dyn Any, unshared, items)?;
    }
    Ok((result, unshared.downcast_ref::<Order>().expect("an order").clone()))
}

fn selected(definition: &Definition, name: &str, data: &Order) -> Option<usize> {
    match kind(definition, name) {
        NodeKind::Choose { select, .. } => select(data, &no_items()).expect("a choice"),
        other => panic!("{other:?}"),
    }
}

#[derive(Default)]
struct Count {
    text: String,
    length: usize,
}

impl StepBody for Count {
    async fn run(&mut self, _cx: &StepContext) -> StepResult {
        self.length = self.text.len();
        ExecutionResult::outcome(self.length)
    }
}

#[test]
fn inputs_fill_a_body_and_outputs_change_the_data_in_their_order() {
    let definition = built(|flow| {
        flow.step::<Count>("count")
            .input(|step, order| step.text.clone_from(&order.id))
            .input(|step, order| step.text.push_str(&order.lines[0]))
            .output(|step, order| order.notes.push(step.text.clone()))
            .output(|step, order| order.size = step.length as u32);
    });
    let (result, order) = execute(step(&definition, "count"), order(), &no_items(), Services::default()).expect("done");
    assert_eq!(result, ExecutionResult::Outcome(json!(6)));
    assert_eq!((order.notes, order.size), (vec!["A-1tea".to_owned()], 6));
}

#[test]
fn a_function_sees_the_data_lets_go_of_them_and_its_result_changes_them() {
    async fn measure(order: &Order, cx: &StepContext) -> StepResult<usize> {
        Ok(order.lines.len() + cx.step().len())
    }
    let prefix = Arc::new("captured ".to_owned());
    let definition = built(move |flow| {
        let prefix = prefix.clone();
        flow.run("measure", measure).output(|length, order| order.size = length as u32);
        flow.run("note", async move |order, _cx| Ok(format!("{prefix}{}", order.id)))
            .output(|note, order| order.notes.push(note));
        flow.run("fail", async |order, _cx| if order.size > 0 { Err("no stock".into()) } else { Ok(()) });
    });
    let run = |name| execute(step(&definition, name), order(), &no_items(), Services::default());
    assert_eq!(run("measure").expect("done"), (ExecutionResult::Next, Order { size: 6, ..order() }));
    assert_eq!(run("note").expect("done").1.notes, ["captured A-1"]);
    assert_eq!(run("note").expect("done again").1.notes, ["captured A-1"]);
    assert_eq!(run("fail").expect_err("an error").to_string(), "no stock");
}

#[test]
fn a_body_is_made_from_services_or_the_missing_one_is_named() {
    let definition = built(|flow| {
        flow.step_with("count", |services| Ok(Count { text: services.get::<String>()?.clone(), length: 0 }))
            .output(|step, order| order.size = step.length as u32);
    });
    let mut services = Services::default();
    let missing = (step(&definition, "count").make)(&services).err().expect("nothing there");
    assert!(missing.to_string().contains("`alloc::string::String`"), "{missing}");
    services.insert("four".to_owned());
    assert_eq!(execute(step(&definition, "count"), order(), &no_items(), services).expect("done").1.size, 4);
}

#[test]
fn when_takes_its_branch_the_other_or_none() {
    let definition = built(|flow| {
        flow.when("small?", |order| order.size < 5, |then| then.end());
        flow.when("big?", |order| order.size > 5, |then| then.end()).otherwise(|_| ());
    });
    let of = |name, size| selected(&definition, name, &Order { size, ..order() });
    assert_eq!([of("small?", 1), of("small?", 5), of("big?", 6), of("big?", 5)], [Some(0), None, Some(0), Some(1)]);
}

#[derive(PartialEq)]
enum Class {
    Empty,
    Full,
}

#[test]
fn decide_takes_the_first_case_that_fits() {
    let definition = built(|flow| {
        flow.decide("number", |order| order.size)
            .case(0, |_| ())
            .case_if(|size| *size > 10, |_| ())
            .case_if(|size| *size > 5, |_| ())
            .case(11, |_| ());
        flow.decide("text", |order| order.id.clone()).case("A-1", |_| ()).case(String::from("A-2"), |_| ()).otherwise(|_| ());
        flow.decide("enum", |order| if order.lines.is_empty() { Class::Empty } else { Class::Full })
            .case(Class::Empty, |_| ())
            .case(Class::Full, |_| ());
        flow.decide("only other", |order| order.size).otherwise(|_| ());
    });
    let number = |size| selected(&definition, "number", &Order { size, ..order() });
    assert_eq!([number(0), number(11), number(6), number(5)], [Some(0), Some(1), Some(2), None]);
    let text = |id: &str| selected(&definition, "text", &Order { id: id.into(), ..order() });
    assert_eq!([text("A-1"), text("A-2"), text("A-3")], [Some(0), Some(1), Some(2)]);
    assert_eq!(selected(&definition, "enum", &order()), Some(1));
    assert_eq!(selected(&definition, "enum", &Order::default()), Some(0));
    assert_eq!(selected(&definition, "only other", &order()), Some(0));
}

#[test]
fn a_loop_asks_its_test_and_a_delay_its_span() {
    let definition = built(|flow| {
        flow.repeat_while("fill", |order| order.lines.len() < 2, |body| body.delay("a second", Duration::from_secs(1)));
        flow.delay_by("by size", |order| Duration::from_secs(order.size.into()));
    });
    let NodeKind::While { test, .. } = kind(&definition, "fill") else { panic!("a loop") };
    assert!(!test(&order(), &no_items()).expect("an answer"));
    assert!(test(&Order::default(), &no_items()).expect("an answer"));
    let span = |name| match kind(&definition, name) {
        NodeKind::Delay { span } => span(&order(), &no_items()).expect("a span"),
        other => panic!("{other:?}"),
    };
    assert_eq!((span("a second"), span("by size")), (Duration::from_secs(1), Duration::from_secs(7)));
}

#[test]
fn closures_inside_a_for_each_see_the_data_and_the_items_around_them() {
    let definition = built(|flow| {
        flow.for_each(
            "lines",
            |order| order.lines.clone(),
            |each: &mut WorkflowBuilder<Each<Order, String>>| {
                each.step::<Count>("count")
                    .input(|step, (order, line)| step.text = format!("{}{line}", order.id))
                    .output_each(|step, order, line| order.notes.push(format!("{line}: {}", step.length)));
                each.run("note", async |(order, line), _cx| Ok(order.lines.len() + line.len()))
                    .output_each(|length, order, line| order.notes.push(format!("{line} {length}")));
                each.for_each(
                    "bytes",
                    |(_order, line)| line.bytes().collect(),
                    |inner| {
                        inner
                            .run("byte", async |((order, line), byte), _cx| Ok(format!("{} {line} {byte}", order.id)))
                            .output(|text, order| order.notes.push(text));
                        inner.when(
                            "any?",
                            |((order, line), byte)| order.id.is_empty() || line.is_empty() || *byte == 0,
                            |then| then.end(),
                        );
                    },
                );
            },
        );
    });
    let items = |name, around: &Items| match kind(&definition, name) {
        NodeKind::ForEach { items, item, window, .. } => {
            let items = items(&order(), around).expect("items");
            (item.encode_all)(&items).map(|json| (json.as_str().to_owned(), *window)).expect("JSON")
        }
        other => panic!("{other:?}"),
    };
    let tea = item("tea".to_owned());
    assert_eq!(items("lines", &no_items()), (r#"["tea","milk"]"#.to_owned(), 16));
    assert_eq!(items("bytes", &tea).0, "[116,101,97]");
    let notes = |name, items| execute(step(&definition, name), order(), items, Services::default()).expect("done").1.notes;
    assert_eq!(notes("count", &tea), ["tea: 6"]);
    assert_eq!(notes("note", &tea), ["tea 5"]);
    let byte: Items = Arc::new([Arc::new("tea".to_owned()) as Arc<AnyData>, Arc::new(101_u8)]);
    assert_eq!(notes("byte", &byte), ["A-1 tea 101"]);
}

#[test]
fn the_branch_for_a_steps_values_sees_each_value() {
    let definition = built(|flow| {
        flow.step::<Count>("split").outcome("none", |none| none.end()).branches(|each| {
            each.run("part", async |(order, value), _cx| Ok(format!("{}{value}", order.id))).output(|t, o| o.id = t)
        });
    });
    let split = step(&definition, "split");
    assert!(split.outcomes.len() == 1 && split.outcomes[0].0.fits(&json!("none")) && !split.outcomes[0].0.fits(&json!("some")));
    assert_eq!(definition.block(split.each.expect("a branch")).owner.map(|(_, number)| number), Some(1));
    let (_, order) = execute(step(&definition, "part"), order(), &item(json!([1])), Services::default()).expect("done");
    assert_eq!(order.id, "A-1[1]");
}

#[derive(Deserialize)]
struct Packed {
    parcels: u32,
}

#[test]
fn a_wait_has_its_key_time_limit_and_outputs() {
    let time = DateTime::<Utc>::UNIX_EPOCH;
    let definition = built(move |flow| {
        flow.wait_for("packed", |order| order.id.clone())
            .output(|packed: Packed, order| order.size = packed.parcels)
            .output(|all: Value, order| order.notes.push(all.to_string()))
            .as_of(move |order| time + Duration::from_secs(order.size.into()))
            .timeout(Duration::from_secs(3))
            .on_timeout(|late| late.end());
        flow.for_each(
            "lines",
            |order| order.lines.clone(),
            |each| {
                each.wait_for("picked", |(order, line)| format!("{}/{line}", order.id))
                    .output_each(|by: String, order, line| order.notes.push(format!("{line} by {by}")))
                    .output(|by: String, order| order.id = by);
            },
        );
    });
    let packed = wait(&definition, "wait for packed");
    assert_eq!((&*packed.event, (packed.key)(&order(), &no_items()).expect("a key").as_str()), ("packed", "A-1"));
    let as_of = packed.as_of.as_ref().expect("a time")(&order(), &no_items()).expect("a time");
    assert_eq!(as_of, time + Duration::from_secs(7));
    assert_eq!(packed.timeout.as_ref().expect("a span")(&order(), &no_items()).expect("a span"), Duration::from_secs(3));
    let output = packed.output.as_ref().expect("an output");
    let mut data = order();
    output(&json!({"parcels": 2}), &mut data, &no_items()).expect("read");
    assert_eq!((data.size, data.notes), (2, vec![r#"{"parcels":2}"#.to_owned()]));
    let error = output(&json!({}), &mut order(), &no_items()).expect_err("no parcels");
    assert_eq!(error.to_string(), "the data of event `packed` cannot be read: missing field `parcels`");
    assert!(error.is_permanent());

    let picked = wait(&definition, "wait for picked in lines/1");
    let tea = item("tea".to_owned());
    assert_eq!((picked.key)(&order(), &tea).expect("a key"), "A-1/tea");
    let mut data = order();
    picked.output.as_ref().expect("outputs")(&json!("Ann"), &mut data, &tea).expect("read");
    assert_eq!((data.notes, data.id), (vec!["tea by Ann".to_owned()], "Ann".to_owned()));
}
