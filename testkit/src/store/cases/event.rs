//! Events and waits, in either order and at the same moment.

use crate::store::{
    case::{Checked, Stop},
    tools::{
        Nodes, Owner, check, check_eq, check_matches, committed, event, idle, in_status, instances, is_runnable, load, matches,
        order, read_inbox, runnable, together, wait,
    },
};
use latchwork_core::{
    clock::{Timestamp, add},
    store::{EventId, InboxMessage, NewEvent, Revision, WorkflowStatus},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const PACKED: (&str, &str) = ("packed", "A-1");

fn earlier(time: Timestamp, seconds: u64) -> Timestamp {
    time - Duration::from_secs(seconds)
}

pub(in crate::store) async fn an_event_waits_for_its_wait(nodes: &Nodes) -> Checked {
    let published = event(PACKED);
    let answer = nodes.one.publish(std::slice::from_ref(&published)).await?;
    check_eq!(instances(&answer.wake), [], "who is woken by an event that nobody waits for");
    let now = nodes.one.now().await?;
    nodes.pass(1).await;
    let mut owner = Owner::new(&nodes.other).await?;
    let waiting = wait(PACKED, "s", 1, earlier(now, 3_600));
    let answer = owner.write(|checkpoint| checkpoint.subscriptions = vec![waiting.clone()]).await?;
    check_eq!(answer.inbox.len(), 1, "the rows in the answer to the wait");
    let message = answer.inbox.into_iter().map(|row| row.message).next();
    let (subscription, slot, id, time, data) = check_matches!(
        message,
        Some(InboxMessage::Event { subscription, slot, event, time, data }) => (subscription, slot, event, time, data),
        "the row"
    );
    check_eq!((subscription, slot), (waiting.id, waiting.slot), "the wait and the slot in the row");
    check_eq!((id, data), (published.id, published.data), "the event in the row");
    check!(time <= now && time > earlier(now, 60), "an event without a time has the store's: {time} at {now}");
    Ok(())
}

pub(in crate::store) async fn a_wait_waits_for_its_event(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let owner = Owner::waiting(&nodes.one, vec![wait(PACKED, "s", 1, now)]).await?;
    for other in [("packed", "A-2"), ("packet", "A-1"), ("Packed", "A-1"), ("packed", "a-1"), ("packedA", "-1")] {
        let answer = nodes.other.publish(&[event(other)]).await?;
        check_eq!(instances(&answer.wake), [], "who is woken by {other:?}");
    }
    check!(!is_runnable(&nodes.one, &owner.id).await?, "an instance that waits is not runnable");
    let published = NewEvent::new(PACKED.0, PACKED.1).at(add(now, Duration::from_micros(3)));
    nodes.pass(1).await;
    let answer = nodes.other.publish(std::slice::from_ref(&published)).await?;
    let header = owner.load().await?.header;
    check_eq!(answer.wake, [header.work_item()], "who is woken");
    check_eq!((header.revision, header.due), (owner.revision, None), "an event touches neither revision nor due time");
    check!(is_runnable(&nodes.one, &owner.id).await?, "an instance that has an event is runnable");
    for inbox in [read_inbox(&nodes.one, &owner.id).await?, owner.load().await?.inbox] {
        let message = inbox.into_iter().map(|row| row.message).next();
        let (id, time, data) = check_matches!(
            message, Some(InboxMessage::Event { event, time, data, .. }) => (event, time, data), "the row"
        );
        check_eq!((id, Some(time), data), (published.id.clone(), published.time, None), "the event in the row");
    }
    Ok(())
}

pub(in crate::store) async fn a_wait_sees_events_from_its_time_on_inclusively(nodes: &Nodes) -> Checked {
    nodes.pass(1).await;
    let now = nodes.one.now().await?;
    let as_of = earlier(now, 10);
    let too_early = event(PACKED).at(as_of - Duration::from_micros(1));
    nodes.one.publish(std::slice::from_ref(&too_early)).await?;
    let owner = Owner::waiting(&nodes.one, vec![wait(PACKED, "s", 1, as_of)]).await?;
    check_eq!(owner.load().await?.inbox, [], "the inbox beside an event from before");
    nodes.one.publish(&[event(PACKED).at(as_of - Duration::from_micros(1))]).await?;
    check_eq!(owner.load().await?.inbox, [], "the inbox after an event from before");
    let just_in_time = event(PACKED).at(as_of);
    nodes.one.publish(std::slice::from_ref(&just_in_time)).await?;
    check_eq!(matches(&owner.load().await?.inbox).len(), 1, "the rows after an event of that very time");
    let second = Owner::waiting(&nodes.one, vec![wait(PACKED, "s", 1, as_of)]).await?;
    let found = matches(&second.load().await?.inbox).into_iter().map(|(_, event)| event).next();
    check_eq!(found, Some(just_in_time.id), "what a later wait of that time has");
    Ok(())
}

pub(in crate::store) async fn a_repeated_publish_changes_nothing(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let mut owner = Owner::waiting(&nodes.one, vec![wait(PACKED, "s", 1, now)]).await?;
    let published = event(PACKED);
    for node in [&nodes.one, &nodes.other, &nodes.one] {
        let answer = node.publish(std::slice::from_ref(&published)).await?;
        check_eq!(instances(&answer.wake), [owner.id.clone()], "who still has the event in the inbox");
    }
    check_eq!(nodes.one.statistics().await?.events, 1, "the events in the store");
    let inbox = owner.load().await?.inbox;
    check_eq!(inbox.len(), 1, "the rows in the inbox");
    owner.consume(&inbox[0]).await?;
    owner.write(|checkpoint| checkpoint.subscriptions = vec![wait(PACKED, "s", 2, now)]).await?;
    let answer = nodes.other.publish(&[published.clone(), published]).await?;
    check_eq!(instances(&answer.wake), [], "who is woken once the event was consumed");
    check_eq!(owner.load().await?.inbox, [], "the inbox after that");
    Ok(())
}

pub(in crate::store) async fn events_come_in_the_order_of_time_then_number(nodes: &Nodes) -> Checked {
    nodes.pass(1).await;
    let now = nodes.one.now().await?;
    let at = |seconds| event(PACKED).at(earlier(now, seconds));
    let events = [at(10), at(30), at(20), at(30), at(10)];
    for event in &events {
        nodes.one.publish(std::slice::from_ref(event)).await?;
    }
    let expected = [1, 3, 2, 0, 4].map(|number: usize| events[number].id.clone());
    let mut owner = Owner::new(&nodes.other).await?;
    let mut found = Vec::new();
    for round in 1..=6 {
        let waiting = wait(PACKED, "s", round, earlier(now, 3_600));
        let inbox = owner.write(|checkpoint| checkpoint.subscriptions = vec![waiting]).await?.inbox;
        let Some(row) = inbox.first() else { break };
        found.extend(matches(&inbox).into_iter().map(|(_, event)| event));
        owner.consume(row).await?;
    }
    check_eq!(found, expected, "the events in the order in which they came");
    Ok(())
}

pub(in crate::store) async fn an_inbox_has_the_events_of_one_key_in_their_order(nodes: &Nodes) -> Checked {
    nodes.pass(1).await;
    let now = nodes.one.now().await?;
    let as_of = earlier(now, 3_600);
    let waits = vec![wait(PACKED, "s", 1, as_of), wait(PACKED, "s", 2, as_of), wait(("other", "A-1"), "o", 3, as_of)];
    let owner = Owner::waiting(&nodes.one, waits).await?;
    let (late, early, other) =
        (event(PACKED).at(earlier(now, 10)), event(PACKED).at(earlier(now, 20)), event(("other", "A-1")).at(earlier(now, 30)));
    // Each is matched when it comes, so that the later one has the earlier row.
    for event in [&late, &early, &other] {
        nodes.other.publish(std::slice::from_ref(event)).await?;
    }
    for inbox in [owner.load().await?.inbox, read_inbox(&nodes.one, &owner.id).await?] {
        let of_key: Vec<_> = matches(&inbox).into_iter().map(|(_, event)| event).filter(|event| *event != other.id).collect();
        check_eq!(of_key, [early.id.clone(), late.id.clone()], "the events of one key");
        check_eq!(inbox.len(), 3, "the rows");
    }
    Ok(())
}

pub(in crate::store) async fn a_future_event_becomes_visible_at_its_time(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let time = nodes.ahead(2).await?;
    let published = event(PACKED).at(time);
    let first = Owner::waiting(&nodes.one, vec![wait(PACKED, "s", 1, now)]).await?;
    let answer = nodes.one.publish(std::slice::from_ref(&published)).await?;
    let second = Owner::waiting(&nodes.one, vec![wait(PACKED, "s", 1, now)]).await?;
    check_eq!(instances(&answer.wake), [], "who is woken by a future event");
    for owner in [&first, &second] {
        check_eq!(owner.load().await?.inbox, [], "the inbox before its time");
        check_eq!(read_inbox(&nodes.other, &owner.id).await?, [], "the inbox before its time, as it is read");
        check!(!is_runnable(&nodes.other, &owner.id).await?, "a future event makes nothing runnable before its time");
        let soon = runnable(&nodes.other, nodes.span() * 10).await?;
        let due = soon.iter().find(|item| item.item.instance == owner.id).map(|item| item.due);
        check_eq!(due, Some(time), "when it becomes runnable, as the horizon tells");
    }
    nodes.pass(3).await;
    for owner in [&first, &second] {
        check_eq!(matches(&read_inbox(&nodes.other, &owner.id).await?).len(), 1, "the rows after its time");
        check_eq!(matches(&owner.load().await?.inbox).len(), 1, "the rows after its time, at a load");
        check!(is_runnable(&nodes.other, &owner.id).await?, "an event makes its instance runnable at its time");
    }
    Ok(())
}

pub(in crate::store) async fn a_future_event_gives_way_to_an_earlier_one(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let (soon, later, latest) = (
        event(PACKED).at(nodes.ahead(4).await?),
        event(PACKED).at(nodes.ahead(6).await?),
        event(PACKED).at(nodes.ahead(8).await?),
    );
    let mut owner = Owner::waiting(&nodes.one, vec![wait(PACKED, "s", 1, now), wait(PACKED, "s", 2, now)]).await?;
    nodes.one.publish(std::slice::from_ref(&latest)).await?;
    nodes.other.publish(std::slice::from_ref(&later)).await?;
    // Both waits have a future event now; this one moves both on.
    nodes.one.publish(std::slice::from_ref(&soon)).await?;
    let present = event(PACKED);
    let answer = nodes.other.publish(std::slice::from_ref(&present)).await?;
    check_eq!(instances(&answer.wake), [owner.id.clone()], "who is woken by a present event");
    let inbox = owner.load().await?.inbox;
    check_eq!(matches(&inbox), [(wait(PACKED, "s", 1, now).id, present.id)], "the oldest wait has the present event");
    let answer = owner.consume(&inbox[0]).await?;
    check_eq!(answer.inbox, [], "the second wait's event is in the future");
    nodes.pass(5).await;
    let inbox = owner.load().await?.inbox;
    check_eq!(matches(&inbox), [(wait(PACKED, "s", 2, now).id, soon.id)], "the second wait has the next event");
    owner.consume(&inbox[0]).await?;
    nodes.pass(4).await;
    for (number, expected) in [(3, later.id), (4, latest.id)] {
        let answer = owner.write(|checkpoint| checkpoint.subscriptions = vec![wait(PACKED, "s", number, now)]).await?;
        let found = matches(&answer.inbox);
        check_eq!(found, [(wait(PACKED, "s", number, now).id, expected)], "the event of wait {number}");
        owner.consume(&answer.inbox[0]).await?;
    }
    Ok(())
}

pub(in crate::store) async fn an_event_satisfies_a_slot_once_and_slots_are_independent(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let waits = vec![wait(PACKED, "a", 1, now), wait(PACKED, "a", 2, now), wait(PACKED, "b", 3, now)];
    let mut owner = Owner::waiting(&nodes.one, waits).await?;
    let first = event(PACKED);
    nodes.other.publish(std::slice::from_ref(&first)).await?;
    let inbox = owner.load().await?.inbox;
    let mut found = matches(&inbox);
    found.sort();
    let mut expected = [(wait(PACKED, "a", 1, now).id, first.id.clone()), (wait(PACKED, "b", 3, now).id, first.id.clone())];
    expected.sort();
    check_eq!(found, expected, "the oldest wait of each slot has the event");
    for row in &inbox {
        owner.consume(row).await?;
    }
    // The slots have had it: neither the wait that was left nor a new one gets it again.
    let answer = owner.write(|checkpoint| checkpoint.subscriptions = vec![wait(PACKED, "b", 4, now)]).await?;
    check_eq!(answer.inbox, [], "the inbox when both slots have had the event");
    let answer = owner.write(|checkpoint| checkpoint.subscriptions = vec![wait(PACKED, "c", 5, now)]).await?;
    check_eq!(matches(&answer.inbox), [(wait(PACKED, "c", 5, now).id, first.id)], "a slot that has not had it");
    let second = event(PACKED);
    nodes.other.publish(std::slice::from_ref(&second)).await?;
    let mut found: Vec<_> = matches(&owner.load().await?.inbox).into_iter().filter(|(_, event)| *event == second.id).collect();
    found.sort();
    let mut expected = [(wait(PACKED, "a", 2, now).id, second.id.clone()), (wait(PACKED, "b", 4, now).id, second.id)];
    expected.sort();
    check_eq!(found, expected, "the next event goes to the waits that are left");
    Ok(())
}

pub(in crate::store) async fn the_oldest_wait_of_a_slot_goes_first(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let sequences = [5, 2, 9, 3];
    for event_first in [true, false] {
        let key = ("packed", if event_first { "first" } else { "last" });
        let events = [event(key), event(key)];
        if event_first {
            nodes.one.publish(&events).await?;
        }
        let waits = sequences.map(|sequence| wait(key, "s", sequence, earlier(now, 60)));
        let owner = Owner::waiting(&nodes.one, waits.to_vec()).await?;
        if !event_first {
            nodes.one.publish(&events).await?;
        }
        let expected = [(wait(key, "s", 2, now).id, events[0].id.clone()), (wait(key, "s", 3, now).id, events[1].id.clone())];
        check_eq!(matches(&owner.load().await?.inbox), expected, "who has the events, events first: {event_first}");
    }
    Ok(())
}

pub(in crate::store) async fn a_match_of_an_ended_wait_is_offered_to_the_next(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let waits: Vec<_> = (1..=3).map(|sequence| wait(PACKED, "s", sequence, now)).collect();
    let mut owner = Owner::waiting(&nodes.one, waits.clone()).await?;
    let published = event(PACKED);
    nodes.other.publish(std::slice::from_ref(&published)).await?;
    check_eq!(matches(&owner.load().await?.inbox), [(waits[0].id, published.id.clone())], "the first wait has the event");
    let answer = owner.write(|checkpoint| checkpoint.ended_subscriptions = vec![waits[0].id]).await?;
    check_eq!(matches(&answer.inbox), [(waits[1].id, published.id.clone())], "the second wait has it");
    let answer = owner.write(|checkpoint| checkpoint.ended_subscriptions = vec![waits[1].id, waits[2].id]).await?;
    check_eq!(answer.inbox, [], "the inbox when no wait is left");
    check!(!is_runnable(&nodes.one, &owner.id).await?, "a match that was taken back makes nothing runnable");
    let next = wait(PACKED, "s", 4, now);
    let answer = owner
        .write(|checkpoint| {
            checkpoint.subscriptions = vec![next.clone()];
        })
        .await?;
    check_eq!(matches(&answer.inbox), [(next.id, published.id.clone())], "a later wait of the slot has it");
    // The next wait can come with the checkpoint that ends the one before: a time-out in a loop.
    let last = wait(PACKED, "s", 5, now);
    let answer = owner
        .write(|checkpoint| {
            checkpoint.ended_subscriptions = vec![next.id];
            checkpoint.subscriptions = vec![last.clone()];
        })
        .await?;
    check_eq!(matches(&answer.inbox), [(last.id, published.id)], "a wait that begins where another ends has it");
    check_eq!(nodes.one.statistics().await?.inbox, 1, "the inbox rows in the store");
    Ok(())
}

pub(in crate::store) async fn a_wait_that_ends_with_its_event_consumes_it(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let mut owner = Owner::waiting(&nodes.one, vec![wait(PACKED, "s", 1, now), wait(PACKED, "s", 2, now)]).await?;
    nodes.other.publish(&[event(PACKED)]).await?;
    let inbox = owner.load().await?.inbox;
    check_eq!(inbox.len(), 1, "the rows in the inbox");
    let answer = owner.consume(&inbox[0]).await?;
    check_eq!(answer.inbox, [], "the inbox after that");
    check_eq!(owner.load().await?.subscriptions, [wait(PACKED, "s", 2, now)], "the waits after that");
    check!(!is_runnable(&nodes.one, &owner.id).await?, "the second wait has nothing");
    check_eq!(read_inbox(&nodes.other, &owner.id).await?, [], "the inbox as another node reads it");
    Ok(())
}

pub(in crate::store) async fn an_event_waits_while_its_instance_is_suspended(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let mut owner = Owner::waiting(&nodes.one, vec![wait(PACKED, "s", 1, now)]).await?;
    owner.set(in_status(WorkflowStatus::Suspended)).await?;
    let published = event(PACKED);
    nodes.other.publish(std::slice::from_ref(&published)).await?;
    check!(!is_runnable(&nodes.one, &owner.id).await?, "an event does not wake a suspended instance");
    let expected = [(wait(PACKED, "s", 1, now).id, published.id)];
    check_eq!(matches(&owner.load().await?.inbox), expected, "the event stands in the inbox");
    let answer = owner.set(idle()).await?;
    check_eq!(matches(&answer.inbox), expected, "the event still stands there when the instance goes on");
    check!(is_runnable(&nodes.one, &owner.id).await?, "the event makes the instance runnable then");
    Ok(())
}

pub(in crate::store) async fn many_events_are_published_together(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let keys = ["A-1", "A-2", "A-3"];
    let mut owners = Vec::new();
    for key in keys {
        let waits = vec![wait(("packed", key), "a", 1, now), wait(("packed", key), "a", 2, now)];
        owners.push(Owner::waiting(&nodes.one, waits).await?);
    }
    let events: Vec<_> = (0..9).map(|number| event(("packed", keys[number % 3]))).collect();
    let answer = nodes.other.publish(&events).await?;
    let mut expected: Vec<_> = owners.iter().map(|owner| owner.id.clone()).collect();
    expected.sort();
    check_eq!(instances(&answer.wake), expected, "who is woken, each once");
    for (number, owner) in owners.iter().enumerate() {
        let found: Vec<_> = matches(&owner.load().await?.inbox).into_iter().map(|(_, event)| event).collect();
        check_eq!(found, [events[number].id.clone(), events[number + 3].id.clone()], "the events of owner {number}");
    }
    Ok(())
}

pub(in crate::store) async fn one_event_reaches_a_thousand_waits(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let new: Vec<_> = (0..1_000).map(|_| order()).collect();
    nodes.one.create(&new).await?;
    for group in new.chunks(latchwork_core::limits::GROUP_CHECKPOINTS) {
        let checkpoint = |id: &latchwork_core::store::InstanceId| {
            let mut checkpoint = Owner::existing(&nodes.one, id.clone()).checkpoint();
            checkpoint.subscriptions = vec![wait(PACKED, "s", 1, now)];
            Arc::new(checkpoint)
        };
        for answer in nodes.one.commit(group.iter().map(|new| checkpoint(&new.id)).collect()).await {
            committed(answer)?;
        }
    }
    let published = event(PACKED);
    let answer = nodes.other.publish(std::slice::from_ref(&published)).await?;
    let mut expected: Vec<_> = new.iter().map(|new| new.id.clone()).collect();
    expected.sort();
    check!(instances(&answer.wake) == expected, "all 1,000 are woken, each once; it was {}", answer.wake.len());
    let ids: Vec<_> = new.iter().map(|new| new.id.clone()).collect();
    let read = nodes.one.read_inbox(&ids).await?;
    check_eq!(read.len(), 1_000, "the inboxes with rows");
    for (id, rows) in read {
        check_eq!(matches(&rows), [(wait(PACKED, "s", 1, now).id, published.id.clone())], "the inbox of {id}");
    }
    Ok(())
}

/// Waits for every event of its channel in turn, and gives what it got.
async fn collect(mut owner: Owner, key: (&'static str, String), as_of: Timestamp, count: usize) -> Result<Vec<EventId>, Stop> {
    let mut got = Vec::new();
    let mut sequence = 0;
    let mut inbox = Vec::new();
    while got.len() < count {
        if inbox.is_empty() && owner.load().await?.subscriptions.is_empty() {
            sequence += 1;
            let waiting = wait((key.0, &key.1), "s", sequence, as_of);
            inbox = owner.write(|checkpoint| checkpoint.subscriptions = vec![waiting]).await?.inbox;
        }
        if let Some(row) = inbox.first().cloned() {
            got.extend(matches(std::slice::from_ref(&row)).into_iter().map(|(_, event)| event));
            inbox = owner.consume(&row).await?.inbox;
        } else {
            // Publishers and owners run at the same time; the runner's time limit ends a wait for a lost event.
            tokio::time::sleep(Duration::from_millis(2)).await;
            inbox = read_inbox(&owner.store, &owner.id).await?;
        }
    }
    Ok(got)
}

pub(in crate::store) async fn events_and_waits_of_the_same_moment_all_meet(nodes: &Nodes) -> Checked {
    const CHANNELS: usize = 8;
    const TASKS: usize = 64;
    // A little before, so that events and waits of the first moments count.
    let as_of = earlier(nodes.one.now().await?, 60);
    let key = |number: usize| ("meet", format!("channel {}", number % CHANNELS));
    let events: Vec<_> = (0..TASKS)
        .map(|number| {
            let (name, key) = key(number);
            event((name, key.as_str()))
        })
        .collect();
    let mut owners = Vec::new();
    for number in 0..TASKS {
        owners.push(Owner::new(nodes.node(number)).await?);
    }
    let start = Arc::new(tokio::sync::Barrier::new(2 * TASKS));
    let publishers = events.iter().cloned().enumerate().map(|(number, event)| {
        let (store, start) = (nodes.node(number + 1).clone(), start.clone());
        async move {
            start.wait().await;
            store.publish(&[event]).await?;
            Ok(())
        }
    });
    let collectors = owners.into_iter().enumerate().map(|(number, owner)| {
        let (start, key) = (start.clone(), key(number));
        async move {
            start.wait().await;
            collect(owner, key, as_of, TASKS / CHANNELS).await
        }
    });
    let (published, collected) = tokio::join!(together(publishers), together(collectors));
    published?;
    let mut expected: BTreeMap<usize, Vec<EventId>> = BTreeMap::new();
    for (number, event) in events.into_iter().enumerate() {
        expected.entry(number % CHANNELS).or_default().push(event.id);
    }
    expected.values_mut().for_each(|events| events.sort());
    for (number, mut got) in collected?.into_iter().enumerate() {
        got.sort();
        check_eq!(Some(&got), expected.get(&(number % CHANNELS)), "what owner {number} got: each event of its channel once");
    }
    check_eq!(nodes.one.statistics().await?.inbox, 0, "the inbox rows that are left");
    Ok(())
}

pub(in crate::store) async fn an_event_at_the_moment_of_the_last_checkpoint_is_seen(nodes: &Nodes) -> Checked {
    let as_of = earlier(nodes.one.now().await?, 60);
    for round in 0..40 {
        let key = ("race", format!("round {round}"));
        let mut owner = Owner::new(&nodes.one).await?;
        let published = event((key.0, &key.1));
        let publisher = {
            let (store, published) = (nodes.other.clone(), published.clone());
            tokio::spawn(async move { store.publish(&[published]).await })
        };
        let waiting = wait((key.0, &key.1), "s", 1, as_of);
        let seen = owner.write(|checkpoint| checkpoint.subscriptions = vec![waiting]).await?.inbox;
        let woken = publisher.await??.wake;
        check!(!seen.is_empty() || !woken.is_empty(), "the later of the two must tell of the event, round {round}");
        let found = load(&nodes.other, &owner.id).await?;
        check_eq!(matches(&found.inbox).len(), 1, "the rows of round {round}");
        check_eq!(found.header.revision, Revision(2), "the revision of round {round}");
    }
    Ok(())
}
