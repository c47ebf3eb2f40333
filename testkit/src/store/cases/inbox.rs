//! Messages for an instance, and what makes it runnable.

use crate::store::{
    case::Checked,
    tools::{
        Nodes, ORDER, Owner, check, check_eq, controls, event, idle, in_status, is_runnable, json, order, pointer_id, read_inbox,
        runnable, runnable_orders, wait, wait_id,
    },
};
use latchwork_core::store::{
    ActivityOutcome, AppendOutcome, Control, Due, HeaderUpdate, InstanceId, RunnableItem, RunnableQuery, WorkflowStatus,
};
use std::time::Duration;

fn every_control() -> Vec<Control> {
    vec![
        Control::Suspend { reason: Some("zażółć \"x\"".into()) },
        Control::Suspend { reason: None },
        Control::Resume,
        Control::Terminate { reason: Some("enough".into()) },
        Control::RetryStep { pointer: None },
        Control::RetryStep { pointer: Some(pointer_id("charge")) },
        Control::ActivityResult { activity: wait_id("pick"), outcome: ActivityOutcome::Success(serde_json::json!({"n": 1.5})) },
        Control::ActivityResult { activity: wait_id("pick"), outcome: ActivityOutcome::Failure(serde_json::Value::Null) },
        Control::ChildEnded {
            child: InstanceId::new(),
            pointer: pointer_id("call"),
            status: WorkflowStatus::Terminated,
            result: serde_json::json!(["zażółć", null]),
        },
    ]
}

pub(in crate::store) async fn every_message_goes_round_in_order(nodes: &Nodes) -> Checked {
    let owner = Owner::new(&nodes.one).await?;
    let before = owner.load().await?;
    let expected = every_control();
    let messages: Vec<_> = expected.iter().map(|control| (owner.id.clone(), control.clone())).collect();
    let answers = nodes.other.append(&messages).await?;
    let item = before.header.work_item();
    check!(answers.iter().all(|answer| *answer == AppendOutcome::Appended(item.clone())), "the answers are {answers:?}");
    check_eq!(answers.len(), messages.len(), "the number of answers");
    let after = owner.load().await?;
    check_eq!(controls(&after.inbox), expected, "the inbox");
    check_eq!(after.inbox, read_inbox(&nodes.other, &owner.id).await?, "the inbox as it is loaded and as it is read");
    check_eq!(owner.load().await?.inbox, after.inbox, "the inbox after it was read");
    check_eq!(after.header, before.header, "messages touch nothing of the header");
    Ok(())
}

pub(in crate::store) async fn append_tells_appended_ended_and_unknown_apart(nodes: &Nodes) -> Checked {
    let open = Owner::new(&nodes.one).await?;
    let mut complete = Owner::new(&nodes.one).await?;
    complete.end(WorkflowStatus::Complete).await?;
    let mut terminated = Owner::new(&nodes.one).await?;
    terminated.end(WorkflowStatus::Terminated).await?;
    let to = |id: &InstanceId| (id.clone(), Control::Resume);
    let messages = [to(&complete.id), to(&open.id), to(&InstanceId::new()), to(&terminated.id), to(&open.id)];
    let item = open.load().await?.header.work_item();
    let expected = [
        AppendOutcome::Ended(WorkflowStatus::Complete),
        AppendOutcome::Appended(item.clone()),
        AppendOutcome::Unknown,
        AppendOutcome::Ended(WorkflowStatus::Terminated),
        AppendOutcome::Appended(item),
    ];
    check_eq!(nodes.other.append(&messages).await?, expected, "the answers");
    check_eq!(open.load().await?.inbox.len(), 2, "the rows of the open instance");
    check_eq!(complete.load().await?.inbox, [], "the rows of an ended instance");
    check_eq!(nodes.one.statistics().await?.inbox, 2, "the rows in the store");
    Ok(())
}

pub(in crate::store) async fn a_row_leaves_the_inbox_only_by_being_applied(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    let other = Owner::new(&nodes.one).await?;
    let suspend = |number: u32| Control::Suspend { reason: Some(number.to_string()) };
    let messages: Vec<_> = (1..=4).map(|number| (owner.id.clone(), suspend(number))).collect();
    nodes.other.append(&messages).await?;
    nodes.other.append(&[(other.id.clone(), suspend(5))]).await?;
    let rows = owner.load().await?.inbox;
    let others = other.load().await?.inbox;
    check_eq!(owner.write(|_| ()).await?.inbox, rows, "the inbox after a checkpoint that applied nothing");
    let answer = owner.write(|checkpoint| checkpoint.applied = vec![rows[2].id, rows[0].id]).await?;
    check_eq!(controls(&answer.inbox), [suspend(2), suspend(4)], "the inbox after two were applied");
    check_eq!(answer.inbox, read_inbox(&nodes.other, &owner.id).await?, "the inbox as another node reads it");
    // Rows that are gone, and those of others, are nobody's to apply.
    owner.write(|checkpoint| checkpoint.applied = vec![rows[0].id, others[0].id]).await?;
    check_eq!(other.load().await?.inbox, others, "the inbox of another instance");
    nodes.other.append(&[(owner.id.clone(), suspend(6))]).await?;
    let answer = owner.write(|checkpoint| checkpoint.applied = vec![rows[1].id, rows[3].id]).await?;
    check_eq!(controls(&answer.inbox), [suspend(6)], "a row that came after the load stays");
    check!(answer.inbox.iter().all(|row| !rows.contains(row)), "an id is not used again");
    Ok(())
}

pub(in crate::store) async fn many_inboxes_are_read_at_once(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let empty = Owner::new(&nodes.one).await?;
    let told = Owner::new(&nodes.one).await?;
    let waiting = Owner::waiting(&nodes.one, vec![wait(("packed", "A-1"), "s", 1, now)]).await?;
    nodes.one.append(&[(told.id.clone(), Control::Resume), (told.id.clone(), Control::Resume)]).await?;
    nodes.one.publish(&[event(("packed", "A-1"))]).await?;
    let ids = [empty.id.clone(), waiting.id.clone(), InstanceId::new(), told.id.clone()];
    let mut read: Vec<_> = nodes.other.read_inbox(&ids).await?.into_iter().map(|(id, rows)| (id, rows.len())).collect();
    read.sort();
    let mut expected = [(told.id.clone(), 2), (waiting.id.clone(), 1)];
    expected.sort();
    check_eq!(read, expected, "the instances with rows");
    check_eq!(nodes.other.read_inbox(&[]).await?, [], "the inboxes of nobody");
    Ok(())
}

pub(in crate::store) async fn fifty_writers_append_beside_the_owner(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    let id = owner.id.clone();
    let writers = (0..50_usize).map(|number| {
        let (store, id) = (nodes.node(number).clone(), id.clone());
        async move {
            let message = (id, Control::Suspend { reason: Some(number.to_string()) });
            Ok(matches!(store.append(&[message]).await?.as_slice(), [AppendOutcome::Appended(_)]))
        }
    });
    let writers = tokio::spawn(crate::store::tools::together(writers.collect::<Vec<_>>()));
    let mut applied = Vec::new();
    let mut inbox = Vec::new();
    while applied.len() < 50 {
        let rows = std::mem::take(&mut inbox);
        applied.extend(controls(&rows));
        inbox = owner.write(|checkpoint| checkpoint.applied = rows.iter().map(|row| row.id).collect()).await?.inbox;
        tokio::task::yield_now().await;
    }
    let answers = writers.await??;
    check!(answers.into_iter().all(|appended| appended), "every message must be stored");
    let mut reasons: Vec<usize> = Vec::new();
    for control in applied {
        if let Control::Suspend { reason: Some(reason) } = control {
            reasons.push(reason.parse()?);
        }
    }
    reasons.sort_unstable();
    check!(reasons.into_iter().eq(0..50), "each message must be applied once");
    check_eq!(owner.load().await?.inbox, [], "what is left in the inbox");
    Ok(())
}

pub(in crate::store) async fn runnable_is_who_has_something_to_do(nodes: &Nodes) -> Checked {
    use WorkflowStatus::{Complete, Runnable, Suspended, Terminated};
    let now = nodes.one.now().await?;
    let hour = Due::In(Duration::from_secs(3_600));
    for status in [Runnable, Suspended, Complete, Terminated] {
        for (due, is_due) in [(Due::In(Duration::ZERO), true), (Due::At(now), true), (hour, false), (Due::Never, false)] {
            for row in ["none", "event", "control"] {
                let key = format!("{status} {due:?} {row}");
                let waits = vec![wait(("packed", &key), "s", 1, now)];
                let mut owner = Owner::waiting(&nodes.one, waits).await?;
                owner.set(HeaderUpdate { due, ..in_status(status) }).await?;
                match row {
                    "event" => drop(nodes.one.publish(&[event(("packed", &key))]).await?),
                    "control" => drop(nodes.one.append(&[(owner.id.clone(), Control::Resume)]).await?),
                    _ => {}
                }
                let expected = match status {
                    Runnable => is_due || row != "none",
                    Suspended => row == "control",
                    Complete | Terminated => false,
                };
                let found = is_runnable(&nodes.other, &owner.id).await?;
                check_eq!(found, expected, "whether an instance is runnable that is {status}, due {due:?}, with row: {row}");
            }
        }
    }
    Ok(())
}

pub(in crate::store) async fn a_timer_is_never_early(nodes: &Nodes) -> Checked {
    let span = nodes.span();
    let mut owner = Owner::new(&nodes.one).await?;
    owner.set(HeaderUpdate { due: Due::In(span * 4), ..idle() }).await?;
    let due = owner.load().await?.header.due;
    let listed = async |horizon| {
        let items = runnable(&nodes.other, horizon).await?;
        Ok::<_, crate::store::case::Stop>(items.into_iter().find(|item| item.item.instance == owner.id).map(|item| item.due))
    };
    check_eq!(listed(Duration::ZERO).await?, None, "whether it is listed before its time");
    check_eq!(listed(span).await?, None, "whether it is listed far beyond the horizon");
    check_eq!(listed(span * 100).await?, due, "when it is due, as the horizon tells");
    check_eq!(nodes.other.statistics().await?.next_due, due, "the next due time in the store");
    nodes.pass(1).await;
    check_eq!(listed(Duration::ZERO).await?, None, "whether it is listed a little before its time");
    nodes.pass(4).await;
    check_eq!(listed(Duration::ZERO).await?, due, "when it is due, after its time");
    let page = nodes.other.runnable(&runnable_orders(10)).await?;
    check!(page.items.iter().all(|item| item.due <= page.now), "nothing is listed before its time: {page:?}");
    owner.set(idle()).await?;
    check!(!is_runnable(&nodes.other, &owner.id).await?, "a timer that was cleared makes nothing runnable");
    Ok(())
}

pub(in crate::store) async fn runnable_tells_the_earliest_reason(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    owner.set(HeaderUpdate { due: Due::In(Duration::from_secs(3_600)), ..idle() }).await?;
    let far = owner.load().await?.header.due;
    nodes.one.append(&[(owner.id.clone(), Control::Resume)]).await?;
    nodes.pass(1).await;
    let query = runnable_orders(10).with_horizon(Duration::from_secs(7_200));
    let page = nodes.other.runnable(&query).await?;
    let [item] = page.items.as_slice() else {
        return Err(crate::store::case::Stop::Failed(format!("one instance must be listed, and once: {page:?}")));
    };
    check!(item.due <= page.now && Some(item.due) < far, "its message makes it runnable since {}, not from {far:?}", item.due);
    let inbox = owner.load().await?.inbox;
    owner
        .write(|checkpoint| {
            checkpoint.header.due = Due::Keep;
            checkpoint.applied = inbox.iter().map(|row| row.id).collect();
        })
        .await?;
    let due: Vec<_> = nodes.other.runnable(&query).await?.items.into_iter().map(|item| Some(item.due)).collect();
    check_eq!(due, [far], "when it is due once the message was applied");
    Ok(())
}

pub(in crate::store) async fn runnable_is_paged_over_equal_times(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let mut expected = Vec::new();
    for number in 0..25_u64 {
        let mut owner = Owner::new(nodes.node(usize::try_from(number)?)).await?;
        // Five times, with five instances each.
        let due = now - Duration::from_secs(number % 5);
        owner.set(HeaderUpdate { due: Due::At(due), ..idle() }).await?;
        expected.push((due, owner.id));
    }
    expected.sort();
    let mut found: Vec<(latchwork_core::clock::Timestamp, InstanceId)> = Vec::new();
    loop {
        let mut query = runnable_orders(7);
        if let Some((due, id)) = found.last() {
            query = query.after(*due, id.clone());
        }
        let page = nodes.other.runnable(&query).await?;
        check!(page.items.len() <= 7, "a page of at most 7 has {}", page.items.len());
        let full = page.items.len() == 7;
        found.extend(page.items.into_iter().map(|RunnableItem { item, due, .. }| (due, item.instance)));
        if !full {
            break;
        }
    }
    check_eq!(found, expected, "all pages, by time and id");
    Ok(())
}

pub(in crate::store) async fn runnable_leaves_unknown_definitions(nodes: &Nodes) -> Checked {
    let of = |definition: &str, version: u32| {
        let mut new = order();
        new.definition = definition.into();
        new.version = version;
        new.data = json("null");
        new
    };
    let new = [of(ORDER, 1), of(ORDER, 2), of("invoice", 1), of("Order", 1), of("invoice", 3)];
    nodes.one.create(&new).await?;
    let listed = async |known: &[(&str, u32)]| {
        let known: Vec<_> = known.iter().map(|(definition, version)| ((*definition).into(), *version)).collect();
        let items = nodes.other.runnable(&RunnableQuery::new(known, 100)).await?.items;
        Ok::<_, crate::store::case::Stop>(items)
    };
    for (known, expected) in [
        (vec![], vec![]),
        (vec![("unheard of", 1)], vec![]),
        (vec![(ORDER, 1)], vec![0]),
        (vec![(ORDER, 2), ("invoice", 1), ("invoice", 2)], vec![1, 2]),
        (vec![("invoice", 3), ("Order", 1)], vec![3, 4]),
    ] {
        let mut items: Vec<_> = listed(&known).await?.into_iter().map(|item| item.item).collect();
        items.sort_by(|one, other| one.instance.cmp(&other.instance));
        let mut wanted: Vec<_> = expected.iter().map(|number: &usize| new[*number].work_item()).collect();
        wanted.sort_by(|one, other| one.instance.cmp(&other.instance));
        check_eq!(items, wanted, "what is listed to a node that knows {known:?}");
    }
    Ok(())
}
