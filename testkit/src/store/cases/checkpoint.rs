//! Checkpoints: what they write, and when they are refused.

use crate::store::{
    case::Checked,
    tools::{
        Nodes, Owner, check, check_eq, check_matches, commit, committed, idle, in_status, json, json_of, load, matches, order,
        pointer, pointer_id, together, wait, wait_id,
    },
};
use latchwork_core::{
    clock::add,
    limits::ERRORS_PER_INSTANCE,
    store::{
        Activity, AttributeValue, Checkpoint, CheckpointOutcome, Control, Due, ErrorRecord, HeaderUpdate, InstanceId,
        InstanceRecord, PersistenceProvider, Place, PointerStatus, Revision, WorkflowStatus,
    },
};
use std::{sync::Arc, time::Duration};

pub(in crate::store) async fn a_checkpoint_reads_back_with_every_field(nodes: &Nodes) -> Checked {
    let mut owner = Owner::of(&nodes.one, order().with_attribute("customer", AttributeValue::Text("ACME".into()))).await?;
    let now = nodes.one.now().await?;
    let mut full = pointer(1).with_parent(pointer_id("saga")).with_scope(pointer_id("saga")).with_state(json(r#"{"round":1}"#));
    full.status = PointerStatus::Sleeping;
    full.place = Place { branch: 2, item: Some(3), round: 4, attempt: 5 };
    full.attempts = 6;
    full.started = Some(now);
    full.ended = Some(add(now, Duration::from_micros(1)));
    full.due = Some(add(now, Duration::from_secs(1)));
    let mut checkpoint = owner.checkpoint();
    checkpoint.header =
        HeaderUpdate { status: WorkflowStatus::Suspended, reason: Some("by hand".into()), due: Due::At(now), fault_count: 7 };
    checkpoint.data = Some(json(r#"{"lines":3}"#));
    checkpoint.pointers = vec![pointer(2), full.clone()];
    checkpoint.subscriptions = vec![wait(("packed", "A-1"), "s", 2, now), wait(("packed", "A-1"), "s", 1, now)];
    checkpoint.activities = vec![
        Activity::new(wait_id("pick"), pointer_id("pick"), "pick", Some(json("[1]"))),
        Activity::new(wait_id("pack"), pointer_id("pack"), "pack", None),
    ];
    checkpoint.errors = vec![error(&owner.id, 1, now)];
    checkpoint.attributes =
        vec![("customer".into(), AttributeValue::Text("Umbrella".into())), ("weight".into(), AttributeValue::Number(-1.5))];
    let answer = owner.commit(&checkpoint).await?;
    check!(answer.now >= now, "the commit was at {}, before {now}", answer.now);
    check_eq!((answer.inbox.len(), answer.wake.len()), (0, 0), "inbox and wake");

    let found = load(&nodes.other, &owner.id).await?;
    let header = &found.header;
    check_eq!((header.status, header.reason.as_deref()), (WorkflowStatus::Suspended, Some("by hand")), "status and reason");
    check_eq!((header.due, header.fault_count, header.ended), (Some(now), 7, None), "due, faults, end");
    check_eq!((header.revision, header.writer), (Revision(2), Some(checkpoint.id)), "revision and writer");
    check_eq!(found.data.as_str(), r#"{"lines":3}"#, "data");
    check_eq!(found.pointers, [full, pointer(2)], "the pointers, by sequence");
    check_eq!(found.last_sequence, 2, "the last sequence");
    let mut subscriptions = found.subscriptions;
    subscriptions.sort_by_key(|subscription| subscription.sequence);
    check_eq!(subscriptions, [wait(("packed", "A-1"), "s", 1, now), wait(("packed", "A-1"), "s", 2, now)], "the waits");
    let mut activities = found.activities;
    activities.sort_by(|one, other| one.name.cmp(&other.name));
    checkpoint.activities.reverse();
    check_eq!(activities, checkpoint.activities, "the activities");
    check_eq!(nodes.other.errors(&owner.id).await?, checkpoint.errors, "the errors");
    check_eq!(attributes(nodes, &owner.id).await?, checkpoint.attributes, "the attributes, by name");
    Ok(())
}

async fn attributes(nodes: &Nodes, id: &InstanceId) -> Result<Vec<(String, AttributeValue)>, crate::store::case::Stop> {
    let record = nodes.other.get(id).await?;
    Ok(check_matches!(record, Some(InstanceRecord::Instance { attributes, .. }) => attributes, "the record"))
}

fn error(instance: &InstanceId, attempt: u32, time: latchwork_core::clock::Timestamp) -> ErrorRecord {
    let message = format!("no. {attempt}: \"zażółć\"\nagain");
    ErrorRecord { instance: instance.clone(), pointer: pointer_id("charge"), step: "charge".into(), attempt, time, message }
}

pub(in crate::store) async fn a_checkpoint_leaves_what_it_does_not_name(nodes: &Nodes) -> Checked {
    let mut owner = Owner::of(&nodes.one, order().with_attribute("customer", AttributeValue::Text("ACME".into()))).await?;
    let now = nodes.one.now().await?;
    let mut first = owner.checkpoint();
    first.header.reason = Some("first".into());
    first.header.fault_count = 3;
    first.pointers = vec![pointer(1), pointer(2)];
    first.subscriptions = vec![wait(("packed", "A-1"), "s", 1, now)];
    first.activities = vec![Activity::new(wait_id("pick"), pointer_id("pick"), "pick", None)];
    owner.commit(&first).await?;
    let before = owner.load().await?;
    let second = owner.checkpoint();
    owner.commit(&second).await?;
    let after = load(&nodes.other, &owner.id).await?;
    check_eq!((after.header.reason, after.header.fault_count), (None, 0), "what every checkpoint writes");
    check_eq!(after.header.writer, Some(second.id), "the writer");
    check_eq!(after.data, before.data, "the data");
    check_eq!(after.pointers, before.pointers, "the pointers");
    check_eq!(after.subscriptions, before.subscriptions, "the waits");
    check_eq!(after.activities, before.activities, "the activities");
    check_eq!(attributes(nodes, &owner.id).await?.len(), 1, "the number of attributes");
    Ok(())
}

pub(in crate::store) async fn waits_and_activities_end_by_their_ids(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let waits = ["a", "b", "c"].map(|slot| wait(("packed", "A-1"), slot, 1, now));
    let mut owner = Owner::waiting(&nodes.one, waits.to_vec()).await?;
    let activity = |name: &str| Activity::new(wait_id(name), pointer_id(name), name, None);
    owner.write(|checkpoint| checkpoint.activities = vec![activity("pick"), activity("pack")]).await?;
    owner
        .write(|checkpoint| {
            checkpoint.ended_subscriptions = vec![waits[1].id, wait_id("of nobody")];
            checkpoint.ended_activities = vec![wait_id("pick"), wait_id("of nobody")];
        })
        .await?;
    let found = load(&nodes.other, &owner.id).await?;
    let mut slots: Vec<_> = found.subscriptions.iter().map(|wait| wait.slot.to_string()).collect();
    slots.sort();
    check_eq!(slots, ["a", "c"], "the open waits");
    check_eq!(found.activities, [activity("pack")], "the open activities");
    Ok(())
}

pub(in crate::store) async fn a_due_time_is_kept_set_and_cleared(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    let created = owner.load().await?.header.due;
    let with = |due| HeaderUpdate { due, ..idle() };
    owner.set(with(Due::Keep)).await?;
    check_eq!(owner.load().await?.header.due, created, "a kept due time");

    let before = nodes.one.now().await?;
    let span = Duration::from_micros(3_600_000_001);
    owner.set(with(Due::In(span))).await?;
    let after = nodes.one.now().await?;
    let due = load(&nodes.other, &owner.id).await?.header.due;
    let fits = due.is_some_and(|due| due >= add(before, span) && due <= add(after, span));
    check!(fits, "due in {span:?}, set between {before} and {after}, is {due:?}");
    owner.set(with(Due::Keep)).await?;
    check_eq!(owner.load().await?.header.due, due, "a kept due time in the future");

    let time = add(before, Duration::from_micros(7));
    owner.set(with(Due::At(time))).await?;
    check_eq!(load(&nodes.other, &owner.id).await?.header.due, Some(time), "due at a time");
    owner.set(with(Due::Never)).await?;
    check_eq!(load(&nodes.other, &owner.id).await?.header.due, None, "due never");
    owner.set(with(Due::In(Duration::ZERO))).await?;
    let found = load(&nodes.other, &owner.id).await?;
    check!(found.header.due.is_some_and(|due| due <= found.now), "due at once is {:?} at {}", found.header.due, found.now);
    owner.set(HeaderUpdate { due: Due::In(span), ..in_status(WorkflowStatus::Complete) }).await?;
    check_eq!(load(&nodes.other, &owner.id).await?.header.due, None, "an ended instance is due never");
    Ok(())
}

/// A checkpoint that changes everything that one can, for an instance that has row `applied` in its inbox.
fn sweeping(mut checkpoint: Checkpoint, target: &InstanceId, now: latchwork_core::clock::Timestamp) -> Checkpoint {
    let id = checkpoint.instance.clone();
    checkpoint.header = HeaderUpdate { reason: Some("swept".into()), fault_count: 9, due: Due::At(now), ..idle() };
    checkpoint.data = Some(json(r#"{"swept":true}"#));
    checkpoint.pointers = vec![pointer(1), pointer(9)];
    checkpoint.subscriptions = vec![wait(("packed", "A-9"), "swept", 9, now)];
    checkpoint.ended_subscriptions = vec![wait(("packed", "A-1"), "s", 1, now).id];
    checkpoint.activities = vec![Activity::new(wait_id("swept"), pointer_id("swept"), "swept", None)];
    checkpoint.ended_activities = vec![wait_id("pick")];
    checkpoint.errors = vec![error(&id, 1, now)];
    checkpoint.attributes = vec![("swept".into(), AttributeValue::Number(1.0))];
    checkpoint.events = vec![crate::store::tools::event(("swept", "A-9"))];
    checkpoint.children = vec![order().with_business_key("swept")];
    checkpoint.messages = vec![(target.clone(), Control::Resume)];
    checkpoint
}

pub(in crate::store) async fn a_refused_checkpoint_leaves_no_trace(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let bystander = Owner::waiting(&nodes.one, vec![wait(("swept", "A-9"), "s", 1, now)]).await?;
    for ended in [false, true] {
        let mut owner = Owner::waiting(&nodes.one, vec![wait(("packed", "A-1"), "s", 1, now)]).await?;
        owner
            .write(|checkpoint| {
                checkpoint.pointers = vec![pointer(1).with_state(json("1"))];
                checkpoint.activities = vec![Activity::new(wait_id("pick"), pointer_id("pick"), "pick", None)];
            })
            .await?;
        let mut stale = sweeping(owner.checkpoint(), &bystander.id, now);
        if ended {
            owner.end(WorkflowStatus::Complete).await?;
            stale.expected = owner.revision;
        } else {
            nodes.other.append(&[(owner.id.clone(), Control::Resume)]).await?;
            stale.applied = owner.load().await?.inbox.iter().map(|row| row.id).collect();
            check_eq!(stale.applied.len(), 1, "the rows in the inbox");
            owner.write(|_| ()).await?;
        }
        let before = without_time(owner.load().await?);
        let answer = commit(&nodes.other, &stale).await?;
        let stored = check_matches!(answer, CheckpointOutcome::Refused { stored } => stored, "the answer, ended: {ended}");
        check_eq!(stored, Some(owner.revision), "the stored revision that a refusal tells");
        check_eq!(without_time(owner.load().await?), before, "the instance after a refusal");
        check_eq!(nodes.one.errors(&owner.id).await?, [], "its errors");
        check_eq!(attributes(nodes, &owner.id).await?, [], "its attributes");
        check!(nodes.one.load(&stale.children[0].id).await?.is_none(), "the child of a refused checkpoint is not there");
        check_eq!(nodes.one.find_by_key("order", "swept").await?, None, "the holder of the child's business key");
        check_eq!(bystander.load().await?.inbox, [], "the inbox of another instance");
        check_eq!(nodes.one.statistics().await?.events, 0, "the number of events");
    }
    Ok(())
}

/// All of a loaded instance but the moment of the load.
fn without_time(mut instance: latchwork_core::store::LoadedInstance) -> String {
    instance.now = latchwork_core::clock::Timestamp::UNIX_EPOCH;
    format!("{instance:?}")
}

pub(in crate::store) async fn a_checkpoint_for_nobody_is_refused(nodes: &Nodes) -> Checked {
    let mut nobody = Owner::existing(&nodes.one, InstanceId::new());
    let bystander = Owner::new(&nodes.one).await?;
    let checkpoint = sweeping(nobody.checkpoint(), &bystander.id, nodes.one.now().await?);
    let answer = commit(&nodes.one, &checkpoint).await?;
    check_matches!(answer, CheckpointOutcome::Refused { stored: None } => (), "the answer");
    check!(nodes.other.load(&nobody.id).await?.is_none(), "a checkpoint never makes an instance");
    check_eq!(bystander.load().await?.inbox, [], "the inbox of another instance");
    Ok(())
}

pub(in crate::store) async fn a_fence_tells_what_became_of_a_checkpoint(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    let fence = async || nodes.other.fence(&owner.id).await.map(|fence| fence.map(|fence| (fence.revision, fence.writer)));
    check_eq!(fence().await?, Some((Revision::FIRST, None)), "the fence of a new instance");
    let tells = async |checkpoint: &Checkpoint| {
        let fence = nodes.other.fence(&checkpoint.instance).await?;
        Ok::<_, crate::store::case::Stop>(fence.map(|fence| fence.tells_of(checkpoint)))
    };
    let first = owner.checkpoint();
    check_eq!(tells(&first).await?, Some(None), "before the commit: it can be tried again");
    owner.commit(&first).await?;
    check_eq!(tells(&first).await?, Some(Some(true)), "after the commit: it was written");
    let rival = owner.checkpoint();
    let second = owner.checkpoint();
    owner.commit(&second).await?;
    check_eq!(tells(&rival).await?, Some(Some(false)), "after another's commit: it was refused");
    check_eq!(tells(&second).await?, Some(Some(true)), "the other one was written");
    Ok(())
}

pub(in crate::store) async fn a_checkpoint_is_written_once_however_often_it_is_tried(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    let target = Owner::new(&nodes.one).await?;
    let checkpoint = sweeping(owner.checkpoint(), &target.id, nodes.one.now().await?);
    owner.commit(&checkpoint).await?;
    for node in [&nodes.one, &nodes.other] {
        // Its writer tells that it is the one; refused, its owner would do over what ran meanwhile.
        let answer = commit(node, &checkpoint).await?;
        let again =
            check_matches!(answer, CheckpointOutcome::Committed(committed) => committed, "the answer to a repeated commit");
        check_eq!(again.revision, owner.revision, "the revision in the answer");
    }
    check_eq!(owner.load().await?.header.revision, owner.revision, "the revision");
    // Once another one was written it is nobody's last word any more.
    owner.write(|_| ()).await?;
    for node in [&nodes.one, &nodes.other] {
        let answer = commit(node, &checkpoint).await?;
        let stored = check_matches!(answer, CheckpointOutcome::Refused { stored } => stored, "the answer after a later one");
        check_eq!(stored, Some(owner.revision), "the stored revision that it tells");
    }
    check_eq!(target.load().await?.inbox.len(), 1, "the messages that it sent");
    check_eq!(nodes.one.errors(&owner.id).await?.len(), 1, "the errors that it kept");
    Ok(())
}

pub(in crate::store) async fn a_batch_answers_each_member_in_order(nodes: &Nodes) -> Checked {
    let mut owners = Vec::new();
    for _ in 0..6 {
        owners.push(Owner::new(&nodes.one).await?);
    }
    owners[1].write(|_| ()).await?;
    let mut batch = Vec::new();
    for (number, owner) in owners.iter_mut().enumerate() {
        let mut checkpoint = owner.checkpoint();
        checkpoint.pointers = vec![pointer(1)];
        match number {
            1 => checkpoint.expected = Revision::FIRST,
            3 => checkpoint.data = Some(json_of(nodes.one.capabilities().largest_data + 1)),
            4 => checkpoint.instance = InstanceId::new(),
            _ => {}
        }
        batch.push(Arc::new(checkpoint));
    }
    let answers = nodes.one.commit(batch).await;
    let told: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            CheckpointOutcome::Committed(committed) => format!("committed {}", committed.revision),
            CheckpointOutcome::Refused { stored } => format!("refused {stored:?}"),
            CheckpointOutcome::Failed(error) => format!("failed, retryable: {}", error.is_retryable()),
        })
        .collect();
    let expected =
        ["committed 2", "refused Some(Revision(2))", "committed 2", "failed, retryable: false", "refused None", "committed 2"];
    check_eq!(told, expected, "the answers");
    for (owner, pointers) in owners.iter().zip([1, 0, 1, 0, 0, 1]) {
        let found = load(&nodes.other, &owner.id).await?;
        check_eq!(found.pointers.len(), pointers, "the pointers of {}", owner.id);
    }
    Ok(())
}

pub(in crate::store) async fn a_full_group_is_committed(nodes: &Nodes) -> Checked {
    let new: Vec<_> = (0..latchwork_core::limits::GROUP_CHECKPOINTS).map(|_| order()).collect();
    nodes.one.create(&new).await?;
    let now = nodes.one.now().await?;
    let batch = |round: i64| {
        let checkpoint = |new: &latchwork_core::store::NewInstance| {
            let mut owner = Owner::existing(&nodes.one, new.id.clone());
            owner.revision = Revision(round);
            let mut checkpoint = owner.checkpoint();
            checkpoint.data = Some(json(&format!("\"{} {round}\"", new.id)));
            checkpoint.pointers = (1..=10).map(|number| pointer(round * 10 + number)).collect();
            checkpoint.subscriptions = vec![wait(("packed", new.id.as_str()), "s", round, now)];
            Arc::new(checkpoint)
        };
        new.iter().map(checkpoint).collect::<Vec<_>>()
    };
    for round in 1..=2 {
        for answer in nodes.one.commit(batch(round)).await {
            check_eq!(committed(answer)?.revision, Revision(round + 1), "the revision of a member");
        }
    }
    for new in &new {
        let found = load(&nodes.other, &new.id).await?;
        check_eq!(found.data.as_str(), format!("\"{} 2\"", new.id), "the data of a member");
        check_eq!((found.pointers.len(), found.subscriptions.len()), (20, 2), "the pointers and waits of a member");
    }
    Ok(())
}

pub(in crate::store) async fn errors_are_kept_the_newest_hundred(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    let now = nodes.one.now().await?;
    let id = owner.id.clone();
    // All at one time, so that the order is that of the writing.
    let of = |numbers: std::ops::RangeInclusive<u32>| numbers.map(|number| error(&id, number, now)).collect::<Vec<_>>();
    owner.write(|checkpoint| checkpoint.errors = of(1..=60)).await?;
    check_eq!(nodes.other.errors(&owner.id).await?, of(1..=60), "the errors");
    owner.write(|checkpoint| checkpoint.errors = of(61..=130)).await?;
    let kept = 131 - u32::try_from(ERRORS_PER_INSTANCE)?;
    check_eq!(nodes.other.errors(&owner.id).await?, of(kept..=130), "the errors, oldest first");
    Ok(())
}

pub(in crate::store) async fn a_checkpoint_creates_children(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    let link = latchwork_core::store::ParentLink { instance: owner.id.clone(), pointer: pointer_id("call") };
    let child = order().with_parent(link.clone()).with_business_key("child").with_attribute("n", AttributeValue::Number(1.0));
    let known = Owner::new(&nodes.one).await?;
    let again = order().with_id(known.id.clone());
    let answer = owner.write(|checkpoint| checkpoint.children = vec![child.clone(), again]).await?;
    check!(answer.wake.contains(&child.work_item()), "the child must be in wake, it is {:?}", answer.wake);
    let found = load(&nodes.other, &child.id).await?;
    check_eq!((found.header.status, found.header.revision), (WorkflowStatus::Runnable, Revision::FIRST), "the child");
    check_eq!((found.header.parent, found.data), (Some(link), child.data), "the child's parent and data");
    check!(found.header.due.is_some_and(|due| due <= found.now), "a child is due at once, it is due {:?}", found.header.due);
    check_eq!(nodes.other.find_by_key("order", "child").await?, Some(child.id), "the holder of the child's key");
    check_eq!(known.load().await?.header.revision, known.revision, "an instance whose create was repeated");
    Ok(())
}

pub(in crate::store) async fn a_checkpoint_sends_messages(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    let open = Owner::new(&nodes.one).await?;
    let mut ended = Owner::new(&nodes.one).await?;
    ended.end(WorkflowStatus::Terminated).await?;
    let told = Control::ChildEnded {
        child: owner.id.clone(),
        pointer: pointer_id("call"),
        status: WorkflowStatus::Complete,
        result: 7.into(),
    };
    let to = |id: &InstanceId| (id.clone(), told.clone());
    let messages = vec![to(&open.id), to(&ended.id), to(&InstanceId::new()), (open.id.clone(), Control::Resume)];
    let answer = owner
        .write(|checkpoint| {
            checkpoint.header = in_status(WorkflowStatus::Complete);
            checkpoint.messages = messages;
        })
        .await?;
    check_eq!(crate::store::tools::instances(&answer.wake), [open.id.clone()], "the instances to be woken, each once");
    let found = load(&nodes.other, &open.id).await?;
    check_eq!(crate::store::tools::controls(&found.inbox), [told, Control::Resume], "the messages");
    check_eq!(nodes.other.statistics().await?.inbox, 2, "the inbox rows in the store");
    Ok(())
}

pub(in crate::store) async fn a_checkpoint_publishes_events(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let packed = ("packed", "A-1");
    let other = Owner::waiting(&nodes.one, vec![wait(packed, "s", 1, now)]).await?;
    let mut owner = Owner::new(&nodes.one).await?;
    let event = crate::store::tools::event(packed);
    let own = wait(packed, "s", 1, now);
    let answer = owner
        .write(|checkpoint| {
            checkpoint.events = vec![event.clone()];
            checkpoint.subscriptions = vec![own.clone()];
        })
        .await?;
    check_eq!(crate::store::tools::instances(&answer.wake), [other.id.clone()], "the other instances to be woken");
    check_eq!(matches(&answer.inbox), [(own.id, event.id.clone())], "the own inbox");
    check_eq!(matches(&load(&nodes.other, &other.id).await?.inbox), [(own.id, event.id)], "the other's inbox");
    Ok(())
}

pub(in crate::store) async fn k52_of_fifty_racing_checkpoints_one_wins(nodes: &Nodes) -> Checked {
    let owner = Owner::new(&nodes.one).await?;
    for round in 1..=5_i64 {
        let racers = (0..50_i64).map(|number| {
            let store = nodes.node(usize::try_from(number).unwrap_or_default()).clone();
            let mut racer = Owner::existing(&store, owner.id.clone());
            async move {
                racer.revision = Revision(round);
                let mut checkpoint = racer.checkpoint();
                checkpoint.data = Some(json(&number.to_string()));
                checkpoint.pointers = vec![pointer(round * 100 + number)];
                Ok((number, commit(&store, &checkpoint).await?))
            }
        });
        let mut winner = None;
        for (number, answer) in together(racers).await? {
            match answer {
                CheckpointOutcome::Committed(committed) => {
                    check_eq!(committed.revision, Revision(round + 1), "the winner's revision");
                    check_eq!(winner.replace(number), None, "an earlier winner of round {round}");
                }
                CheckpointOutcome::Refused { stored } => check_eq!(stored, Some(Revision(round + 1)), "what a loser is told"),
                CheckpointOutcome::Failed(error) => return Err(error.into()),
            }
        }
        let found = load(&nodes.other, &owner.id).await?;
        check_eq!(Some(found.data.as_str().to_owned()), winner.map(|winner| winner.to_string()), "the winner's data");
        check_eq!(found.last_sequence, round * 100 + winner.unwrap_or_default(), "the winner's pointer");
        check_eq!(found.pointers.len(), usize::try_from(round)?, "the pointers, one of each round");
    }
    Ok(())
}

pub(in crate::store) async fn a_dropped_commit_has_happened_or_not(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    for round in 1..=40_u64 {
        let mut checkpoint = owner.checkpoint();
        let sequence = i64::try_from(round)?;
        checkpoint.data = Some(json(&round.to_string()));
        checkpoint.pointers = vec![pointer(sequence)];
        checkpoint.events = vec![crate::store::tools::event(("swept", "A-1"))];
        let store: &Arc<dyn PersistenceProvider> = &nodes.one;
        let call = store.commit(vec![Arc::new(checkpoint.clone())]);
        // Real time: the call is to be dropped at some moment of its life.
        let _ = tokio::time::timeout(Duration::from_micros(50 * round), call).await;
        // What was handed over may still be written; the same checkpoint again settles it.
        let again = commit(&nodes.other, &checkpoint).await?;
        check!(!matches!(again, CheckpointOutcome::Failed(_)), "the same checkpoint again: {again:?}");
        let found = owner.load().await?;
        check_eq!(found.header.writer, Some(checkpoint.id), "the writer of round {round}");
        check_eq!(found.header.revision, owner.revision.next(), "the revision of round {round}");
        check_eq!(found.data.as_str(), round.to_string(), "the data of round {round}");
        check_eq!(found.last_sequence, sequence, "the pointer of round {round}");
        check_eq!(nodes.one.statistics().await?.events, round, "the events after round {round}");
        owner.revision = found.header.revision;
    }
    Ok(())
}
