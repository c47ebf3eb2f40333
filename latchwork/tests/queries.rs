//! Instances are found by status, definition, reference, dates, attributes and text, page by page, alike on each store (A16, K42).

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
mod common;
use common::*;
use latchwork::{
    clock::Timestamp,
    store::{AttributeValue, Comparison, InstanceQuery, PurgeRequest},
};

workflow!(Order, |flow| {
    flow.run("one", async |_, cx| step(cx).await);
    flow.wait_for("go", |data| data.text.clone()).output(|n: i64, data| data.n = n);
});

workflow!(Order2: Data = 2 as "Order", |flow| {
    flow.run("one", async |_, cx| step(cx).await);
    flow.wait_for("go", |data| data.text.clone()).output(|n: i64, data| data.n = n);
});

workflow!(Invoice, |flow| { flow.run("bill", async |_, cx| step(cx).await) });

fn text(text: &str) -> AttributeValue {
    AttributeValue::Text(text.into())
}

fn key(key: &str) -> Data {
    Data { text: key.into(), ..Data::default() }
}

/// All pages of a query, one after the other.
async fn all(node: &TestNode, query: &InstanceQuery) -> Vec<InstanceId> {
    let (mut found, mut query) = (Vec::new(), query.clone());
    loop {
        let page = node.find(&query).await.expect("found");
        found.extend(page.items.into_iter().map(|item| item.header.id));
        match found.last() {
            Some(last) if page.more => query.after = Some(last.clone()),
            _ => return found,
        }
    }
}

/// Six instances, ten seconds apart: three open, one of them suspended; two complete, one terminated.
async fn sample(world: &World, node: &TestNode) -> (Vec<InstanceId>, Vec<Timestamp>) {
    let (mut ids, mut times) = (Vec::new(), Vec::new());
    let apart = async |id: &InstanceId| {
        times.push(world.now());
        ids.push(id.clone());
        world.pass(Duration::from_secs(10)).await;
    };
    let mut apart = apart;
    let first = node.start_workflow::<Order>(key("a")).reference("north 1").business_key("A-1");
    let first =
        first.attribute("customer", text("ACME")).attribute("amount", AttributeValue::Number(10.0)).await.expect("started");
    apart(first.id()).await;
    let second = node.start_workflow::<Order>(key("b")).reference("north 2").attribute("customer", text("Umbrella"));
    let second = second.attribute("amount", AttributeValue::Number(25.5)).await.expect("started");
    apart(second.id()).await;
    let third =
        node.start_workflow::<Order2>(key("c")).reference("north 1").attribute("amount", text("10")).await.expect("started");
    apart(third.id()).await;
    let fourth = node.start_workflow::<Invoice>(key("d")).business_key("A-1").await.expect("started");
    apart(fourth.id()).await;
    let fifth = node.start_workflow::<Order>(key("e")).attribute("customer", text("ACME")).await.expect("started");
    apart(fifth.id()).await;
    let due = AttributeValue::Time(world.now());
    let sixth = node.start_workflow::<Order>(key("f")).attribute("due", due).await.expect("started");
    apart(sixth.id()).await;

    first.suspend("a pause").await.expect("accepted");
    second.terminate("enough").await.expect("accepted");
    node.publish_event("go", "e", 7).await.expect("published");
    world.fly(fifth.completion()).await.expect("done");
    world.fly_until(async || first.is(WorkflowStatus::Suspended).await && second.is(WorkflowStatus::Terminated).await).await;
    (ids, times)
}

on_each_store! {
    /// Plant the fault: in the store's `find`, leave out one of the conditions.
    async fn k42_instances_are_found_by_each_condition_and_by_several(world: World) {
        use WorkflowStatus::{Complete, Runnable, Suspended, Terminated};
        let node = world.node().with(|b| b.workflow(Order).workflow(Order2).workflow(Invoice)).start().await;
        let (ids, times) = sample(&world, &node).await;
        let end = world.now() + Duration::from_secs(1);
        let query = InstanceQuery::new;
        let number = AttributeValue::Number;
        let cases = [
            (query(), vec![0, 1, 2, 3, 4, 5]),
            (query().newest_first(), vec![5, 4, 3, 2, 1, 0]),
            (query().with_status([Runnable]), vec![2, 5]),
            (query().with_status([Suspended]), vec![0]),
            (query().with_status([Complete, Terminated]), vec![1, 3, 4]),
            (query().with_definition("Order"), vec![0, 1, 2, 4, 5]),
            (query().with_definition("Order").with_version(2), vec![2]),
            (query().with_definition("order"), vec![]),
            (query().with_reference("north 1"), vec![0, 2]),
            (query().with_business_key("A-1"), vec![0, 3]),
            (query().with_parent(ids[0].clone()), vec![]),
            (query().with_created(times[1], times[3]), vec![1, 2]),
            (query().with_created(times[4], None), vec![4, 5]),
            (query().with_created(None, times[1]), vec![0]),
            // The fourth one ended as it was started, the others later.
            (query().with_ended(times[0], times[4]), vec![3]),
            (query().with_ended(times[4], end), vec![1, 4]),
            (query().with_ended(end, None), vec![]),
            (query().with_attribute("customer", Comparison::Equal, text("ACME")), vec![0, 4]),
            (query().with_attribute("amount", Comparison::AtLeast, number(10.0)), vec![0, 1]),
            (query().with_attribute("amount", Comparison::AtMost, number(25.0)), vec![0]),
            (query().with_attribute("amount", Comparison::Equal, text("10")), vec![2]),
            (query().with_attribute("due", Comparison::AtMost, AttributeValue::Time(times[5])), vec![5]),
            (query().with_text("ACME"), vec![0, 4]),
            (query().with_text("orth"), vec![0, 1, 2]),
            (query().with_text("acme"), vec![]),
            (query().with_text("ACME").with_status([Complete]).with_definition("Order").with_created(times[1], None), vec![4]),
            (query().with_faults(1), vec![]),
        ];
        for (query, expected) in cases {
            let expected: Vec<_> = expected.into_iter().map(|number: usize| ids[number].clone()).collect();
            assert_eq!(all(&node, &query).await, expected, "{query:?}");
            // Page by page it is the same.
            assert_eq!(all(&node, &query.clone().with_limit(1)).await, expected, "{query:?}, one by one");
            assert_eq!(all(&node, &query.clone().with_limit(2)).await, expected, "{query:?}, two by two");
        }
        let found = node.find(&query().with_business_key("A-1").with_definition("Order")).await.expect("found").items.pop().expect("one");
        assert_eq!(found.header.reason.as_deref(), Some("a pause"));
        assert_eq!(found.attributes, [("amount".to_owned(), number(10.0)), ("customer".to_owned(), text("ACME"))]);
        node.stop_clean().await;
    }

    /// Between two pages instances start, end and are deleted, the one the cursor names among them.
    async fn a_cursor_stays_good_while_instances_come_and_go(world: World) {
        let node = world.node().with(|b| b.workflow(Invoice).workflow(Order)).start().await;
        let mut kept = Vec::new();
        for n in 0..40 {
            if n % 4 == 0 {
                let gone = node.begin::<Invoice>(key(&n.to_string())).await;
                world.fly(gone.completion()).await.expect("done");
            } else {
                kept.push(node.begin::<Order>(key(&n.to_string())).await.id().clone());
            }
            world.clock.advance(Duration::from_millis(1));
        }
        for newest_first in [false, true] {
            let mut query = InstanceQuery::new().with_limit(7);
            query.newest_first = newest_first;
            let (mut seen, mut pages) = (Vec::new(), 0);
            loop {
                let page = node.find(&query).await.expect("found");
                pages += 1;
                seen.extend(page.items.iter().map(|item| item.header.id.clone()));
                // What has ended is deleted, and others come and end.
                world.pass(Duration::from_secs(1)).await;
                while node.purge(&PurgeRequest::new().with_instances(Duration::ZERO)).await.expect("purged").more {}
                let new = node.begin::<Invoice>(key("new")).await;
                world.fly(new.completion()).await.expect("done");
                match page.items.last() {
                    Some(last) if page.more => query.after = Some(last.header.id.clone()),
                    _ => break,
                }
                assert!(pages < 100, "it comes to an end");
            }
            let mut once = seen.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), seen.len(), "none is listed twice");
            let mut stayed: Vec<_> = seen.into_iter().filter(|id| kept.contains(id)).collect();
            if newest_first { stayed.reverse(); }
            assert_eq!(stayed, kept, "each that stayed is listed once, in order");
        }
        node.stop_clean().await;
    }
}
