//! Lists, histories and counts.

use crate::store::{
    case::{Checked, Stop},
    tools::{Nodes, Owner, check, check_eq, event, idle, in_status, json, order, pointer, pointer_id, wait, wait_id},
};
use latchwork_core::{
    clock::Timestamp,
    store::{
        Activity, AttributeFilter, AttributeValue, Comparison, Control, Due, HeaderUpdate, InstanceId, InstanceQuery,
        NewInstance, ParentLink, PointerStatus, StoreStatistics, WorkflowStatus,
    },
};
use std::time::Duration;

async fn found(nodes: &Nodes, query: &InstanceQuery) -> Result<Vec<InstanceId>, Stop> {
    let page = nodes.other.find(query).await?;
    check!(!page.more, "everything must fit on one page of {query:?}");
    Ok(page.items.into_iter().map(|found| found.header.id).collect())
}

/// Five instances that differ in everything that queries know.
async fn sample(nodes: &Nodes) -> Result<Vec<NewInstance>, Stop> {
    let parent = ParentLink { instance: InstanceId::new(), pointer: pointer_id("call") };
    let text = |text: &str| AttributeValue::Text(text.into());
    let mut new = vec![
        order().with_reference("r-1").with_business_key("k-1").with_attribute("customer", text("ACME")),
        order().with_reference("r-1").with_business_key("k-2").with_attribute("customer", text("Umbrella")),
        order().with_reference("r-2").with_parent(parent.clone()),
        order().with_parent(parent).with_attribute("amount", AttributeValue::Number(10.0)),
        order(),
    ];
    new[1].version = 2;
    new[4].definition = "invoice".into();
    new[4].business_key = Some("k-1".into());
    let statuses = [
        WorkflowStatus::Runnable,
        WorkflowStatus::Suspended,
        WorkflowStatus::Complete,
        WorkflowStatus::Terminated,
        WorkflowStatus::Runnable,
    ];
    for (new, status) in new.iter().zip(statuses) {
        let mut owner = Owner::of(&nodes.one, new.clone()).await?;
        owner.end(status).await?;
        nodes.pass(1).await;
    }
    Ok(new)
}

pub(in crate::store) async fn instances_whose_bursts_failed_are_found(nodes: &Nodes) -> Checked {
    let mut owners = Vec::new();
    for faults in [0, 1, 3, 4] {
        let mut owner = Owner::new(&nodes.one).await?;
        owner.set(HeaderUpdate { fault_count: faults, ..idle() }).await?;
        owners.push(owner);
    }
    let ids = |from: usize| owners[from..].iter().map(|owner| owner.id.clone()).collect::<Vec<_>>();
    check_eq!(found(nodes, &InstanceQuery::new().with_faults(1)).await?, ids(1), "at least one");
    check_eq!(found(nodes, &InstanceQuery::new().with_faults(3)).await?, ids(2), "at least three");
    check_eq!(found(nodes, &InstanceQuery::new().with_faults(0)).await?, ids(0), "none asked for is no condition");
    owners[3].set(idle()).await?;
    check_eq!(found(nodes, &InstanceQuery::new().with_faults(4)).await?, vec![], "it has got over it");
    Ok(())
}

pub(in crate::store) async fn k42_each_filter_selects_alone_and_with_others(nodes: &Nodes) -> Checked {
    use WorkflowStatus::{Complete, Runnable, Suspended, Terminated};
    let new = sample(nodes).await?;
    let parent = new[2].parent.as_ref().map(|parent| parent.instance.clone());
    let all = nodes.one.find(&InstanceQuery::new()).await?.items;
    let created: Vec<Timestamp> = all.iter().map(|found| found.header.created).collect();
    let ended: Vec<Timestamp> = all.iter().filter_map(|found| found.header.ended).collect();
    check_eq!(ended.len(), 2, "the instances that have ended");
    let query = InstanceQuery::new;
    let changed = |change: &dyn Fn(&mut InstanceQuery)| {
        let mut query = query();
        change(&mut query);
        query
    };
    let cases = [
        (query(), vec![0, 1, 2, 3, 4]),
        (query().with_status([Runnable]), vec![0, 4]),
        (query().with_status([Suspended, Terminated]), vec![1, 3]),
        (query().with_status([Complete]), vec![2]),
        (query().with_definition("order"), vec![0, 1, 2, 3]),
        (query().with_definition("Order"), vec![]),
        (changed(&|query| query.version = Some(2)), vec![1]),
        (query().with_reference("r-1"), vec![0, 1]),
        (query().with_reference("r"), vec![]),
        (query().with_business_key("k-1"), vec![0, 4]),
        (changed(&|query| query.parent = parent.clone()), vec![2, 3]),
        (changed(&|query| query.parent = Some(InstanceId::new())), vec![]),
        (changed(&|query| query.created_from = created.get(2).copied()), vec![2, 3, 4]),
        (changed(&|query| query.created_before = created.get(2).copied()), vec![0, 1]),
        (query().with_created(created.get(1).copied(), created.get(3).copied()), vec![1, 2]),
        // Instance 2 is complete, 3 terminated; the others are open.
        (query().with_ended(created.first().copied(), None), vec![2, 3]),
        (query().with_ended(ended.first().copied(), ended.get(1).copied()), vec![2]),
        (query().with_ended(ended.get(1).copied(), None), vec![3]),
        (query().with_ended(None, ended.first().copied()), vec![]),
        (query().with_ended(None, created.get(4).copied()).with_status([Terminated, Runnable]), vec![3]),
        (query().with_attribute("customer", Comparison::Equal, AttributeValue::Text("ACME".into())), vec![0]),
        (query().with_definition("order").with_business_key("k-1"), vec![0]),
        (query().with_definition("order").with_status([Runnable, Complete]).with_reference("r-1"), vec![0]),
        (query().with_reference("r-1").with_business_key("k-9"), vec![]),
        (
            changed(&|query| {
                query.parent = parent.clone();
                query.created_from = created.get(3).copied();
                query.statuses = vec![Terminated];
            }),
            vec![3],
        ),
    ];
    for (query, expected) in cases {
        let expected: Vec<_> = expected.into_iter().map(|number: usize| new[number].id.clone()).collect();
        check_eq!(found(nodes, &query).await?, expected, "what {query:?} finds");
    }
    let all = nodes.other.find(&query()).await?;
    for (found, new) in all.items.iter().zip(&new) {
        check_eq!(found.header, nodes.one.load(&new.id).await?.map(|found| found.header).ok_or("gone")?, "a header in a list");
        check_eq!(found.attributes, new.attributes, "the attributes in a list");
    }
    Ok(())
}

pub(in crate::store) async fn attributes_compare_within_their_type(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let later = now + Duration::from_micros(1);
    let text = |text: &str| AttributeValue::Text(text.into());
    let number = AttributeValue::Number;
    let time = AttributeValue::Time;
    let values = [
        text("10"),
        text("9"),
        text("b"),
        text("B"),
        text("\u{e9}"),
        number(9.0),
        number(10.0),
        number(-0.5),
        number(1e300),
        time(now),
        time(later),
    ];
    let mut ids = Vec::new();
    for value in &values {
        ids.push(Owner::of(&nodes.one, order().with_attribute("value", value.clone())).await?.id);
    }
    // Neither of these has the attribute.
    Owner::of(&nodes.one, order().with_attribute("Value", text("10"))).await?;
    Owner::new(&nodes.one).await?;
    let cases = [
        (Comparison::Equal, text("10"), vec![0]),
        (Comparison::Equal, text("e\u{301}"), vec![]),
        (Comparison::AtLeast, text("B"), vec![2, 3, 4]),
        (Comparison::AtMost, text("9"), vec![0, 1]),
        (Comparison::Equal, number(10.0), vec![6]),
        (Comparison::AtLeast, number(9.5), vec![6, 8]),
        (Comparison::AtMost, number(9.0), vec![5, 7]),
        (Comparison::Equal, time(now), vec![9]),
        (Comparison::AtLeast, time(later), vec![10]),
        (Comparison::AtMost, time(later), vec![9, 10]),
    ];
    for (comparison, value, expected) in cases {
        let query = InstanceQuery::new().with_attribute("value", comparison, value);
        let expected: Vec<_> = expected.into_iter().map(|number: usize| ids[number].clone()).collect();
        check_eq!(found(nodes, &query).await?, expected, "what {query:?} finds");
    }
    let mut owner = Owner::existing(&nodes.one, ids[0].clone());
    owner.write(|checkpoint| checkpoint.attributes = vec![("value".into(), number(1.0)), ("second".into(), text("x"))]).await?;
    let mut query = InstanceQuery::new().with_attribute("value", Comparison::AtMost, number(1.0));
    check_eq!(found(nodes, &query).await?, [ids[0].clone(), ids[7].clone()], "who has a number now");
    query.attributes.push(AttributeFilter { name: "second".into(), comparison: Comparison::Equal, value: text("x") });
    check_eq!(found(nodes, &query).await?, [ids[0].clone()], "who passes both filters");
    Ok(())
}

pub(in crate::store) async fn a_list_is_paged_by_a_cursor_that_stays_good(nodes: &Nodes) -> Checked {
    let first: Vec<_> = (0..10).map(|_| order()).collect();
    nodes.one.create(&first).await?;
    let mut all: Vec<_> = first.iter().map(|new| new.id.clone()).collect();
    let page = async |query: &InstanceQuery| {
        let page = nodes.other.find(query).await?;
        Ok::<_, Stop>((page.items.into_iter().map(|found| found.header.id).collect::<Vec<_>>(), page.more))
    };
    let query = InstanceQuery::new().with_limit(4);
    check_eq!(page(&query).await?, (all[0..4].to_vec(), true), "the first page");
    // Instances come while the reader is between two pages.
    let second: Vec<_> = (0..2).map(|_| order()).collect();
    nodes.one.create(&second).await?;
    all.extend(second.iter().map(|new| new.id.clone()));
    check_eq!(page(&query.clone().after(all[3].clone())).await?, (all[4..8].to_vec(), true), "the second page");
    check_eq!(page(&query.clone().after(all[7].clone())).await?, (all[8..12].to_vec(), false), "the third page, exactly full");
    check_eq!(page(&query.clone().after(all[11].clone())).await?, (vec![], false), "the page after the last");

    let mut newest = query.clone();
    newest.newest_first = true;
    let reversed: Vec<_> = all.iter().rev().cloned().collect();
    check_eq!(page(&newest).await?, (reversed[0..4].to_vec(), true), "the first page, newest first");
    check_eq!(page(&newest.after(reversed[3].clone())).await?, (reversed[4..8].to_vec(), true), "the second one");

    nodes.one.create(&(0..93).map(|_| order()).collect::<Vec<_>>()).await?;
    let (items, more) = page(&InstanceQuery::new()).await?;
    check_eq!((items.len(), more), (100, true), "a page without a limit, of 105 instances");
    let (items, more) = page(&InstanceQuery::new().with_limit(105)).await?;
    check_eq!((items.len(), more), (105, false), "a page of 105");
    Ok(())
}

pub(in crate::store) async fn a_text_is_found_in_references_and_text_attributes(nodes: &Nodes) -> Checked {
    if !nodes.one.capabilities().text_query {
        return Err(Stop::Skipped("the store has no queries by text"));
    }
    let text = |text: &str| AttributeValue::Text(text.into());
    let new = [
        order().with_reference("Order of ACME, 100%"),
        order().with_attribute("customer", text("The ACME_Company")),
        order().with_attribute("ACME", text("the name of an attribute does not count")),
        order().with_reference("acme"),
        order().with_business_key("ACME").with_attribute("amount", AttributeValue::Number(100.0)),
        order().with_reference("\\path\\zażółć"),
    ];
    nodes.one.create(&new).await?;
    let mut data = order();
    data.data = json("\"ACME\"");
    nodes.one.create(&[data]).await?;
    let cases = [
        ("ACME", vec![0, 1]),
        ("acme", vec![3]),
        ("0%", vec![0]),
        ("E_C", vec![1]),
        ("A_ME", vec![]),
        ("%", vec![0]),
        ("h\\z", vec![5]),
        ("ażó", vec![5]),
        ("nowhere", vec![]),
    ];
    for (text, expected) in cases {
        let expected: Vec<_> = expected.into_iter().map(|number: usize| new[number].id.clone()).collect();
        check_eq!(found(nodes, &InstanceQuery::new().with_text(text)).await?, expected, "where {text:?} is found");
    }
    let both = InstanceQuery::new().with_text("ACME").with_reference("Order of ACME, 100%");
    check_eq!(found(nodes, &both).await?, [new[0].id.clone()], "where text and reference fit");
    Ok(())
}

pub(in crate::store) async fn a_history_is_paged_by_sequence(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    let of = |sequence: i64| {
        let status = if sequence % 3 == 0 { PointerStatus::Ready } else { PointerStatus::Complete };
        pointer(sequence).with_status(status)
    };
    for sequences in [11..=20, 1..=10] {
        owner.write(|checkpoint| checkpoint.pointers = sequences.rev().map(of).collect()).await?;
    }
    for (after, limit, expected, more) in
        [(0, 7, 1..=7, true), (7, 7, 8..=14, true), (14, 6, 15..=20, false), (14, 7, 15..=20, false), (5, 1, 6..=6, true)]
    {
        let page = nodes.other.history(&owner.id, after, limit).await?;
        check_eq!(page.items, expected.map(of).collect::<Vec<_>>(), "{limit} after {after}");
        check_eq!(page.more, more, "whether there is more than {limit} after {after}");
    }
    let page = nodes.other.history(&owner.id, 20, 5).await?;
    check_eq!((page.items.len(), page.more), (0, false), "what comes after the last");
    Ok(())
}

pub(in crate::store) async fn statistics_count_what_is_there(nodes: &Nodes) -> Checked {
    check_eq!(nodes.one.statistics().await?, StoreStatistics::default(), "the counts of an empty store");
    let now = nodes.one.now().await?;
    let mut next = Owner::new(&nodes.one).await?;
    next.set(HeaderUpdate { due: Due::In(Duration::from_secs(3_600)), ..idle() }).await?;
    let mut far = Owner::new(&nodes.one).await?;
    far.set(HeaderUpdate { due: Due::In(Duration::from_secs(7_200)), ..idle() }).await?;
    let mut suspended = Owner::new(&nodes.one).await?;
    suspended.set(HeaderUpdate { due: Due::At(now), ..in_status(WorkflowStatus::Suspended) }).await?;
    for (count, status) in [(2, WorkflowStatus::Complete), (3, WorkflowStatus::Terminated)] {
        for _ in 0..count {
            Owner::new(&nodes.one).await?.end(status).await?;
        }
    }
    nodes.one.publish(&[event(("packed", "A-1")), event(("packed", "A-2"))]).await?;
    next.write(|checkpoint| {
        checkpoint.header.due = Due::Keep;
        checkpoint.subscriptions = vec![wait(("packed", "A-1"), "s", 1, now)];
        checkpoint.activities = ["pick", "pack"].map(|name| Activity::new(wait_id(name), pointer_id(name), name, None)).to_vec();
    })
    .await?;
    nodes.one.append(&[(suspended.id.clone(), Control::Resume)]).await?;
    nodes.other.claim_activity(&["pick".to_owned()], "worker", Duration::from_secs(3_600)).await?;

    let found = nodes.other.statistics().await?;
    check_eq!((found.runnable, found.suspended, found.complete, found.terminated), (2, 1, 2, 3), "the instances");
    check_eq!(found.next_due, next.load().await?.header.due, "the next due time, of a Runnable instance");
    check_eq!((found.events, found.inbox, found.open_activities), (2, 2, 1), "events, inbox rows, activities without a token");
    Ok(())
}
