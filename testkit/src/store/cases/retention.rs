//! What is removed, when, and what is left of it.

use crate::store::{
    case::Checked,
    tools::{Nodes, Owner, check, check_eq, check_matches, commit, event, json_of, matches, order, together, wait},
};
use latchwork_core::{
    limits::TOMBSTONE_RESULT_BYTES,
    store::{
        AppendOutcome, CheckpointOutcome, Control, CreateOutcome, InstanceQuery, InstanceRecord, PurgeReport, PurgeRequest,
        WorkflowStatus,
    },
};

pub(in crate::store) async fn a_purged_instance_leaves_a_tombstone(nodes: &Nodes) -> Checked {
    let mut owner = Owner::of(&nodes.one, order().with_business_key("A-1").with_reference("r-1")).await?;
    owner
        .write(|checkpoint| {
            checkpoint.data = Some(json_of(TOMBSTONE_RESULT_BYTES));
            checkpoint.pointers = vec![crate::store::tools::pointer(1)];
        })
        .await?;
    let mut late = owner.checkpoint();
    owner.end(WorkflowStatus::Terminated).await?;
    late.expected = owner.revision;
    let header = owner.load().await?.header;
    let mut large = Owner::new(&nodes.one).await?;
    large.write(|checkpoint| checkpoint.data = Some(json_of(TOMBSTONE_RESULT_BYTES + 1))).await?;
    large.end(WorkflowStatus::Complete).await?;
    nodes.pass(2).await;
    let report = nodes.other.purge(&PurgeRequest::new().with_instances(nodes.span())).await?;
    check_eq!(report, PurgeReport::new(2, 0, 0, false), "what was purged");

    let tombstone = check_matches!(
        nodes.one.get(&owner.id).await?, Some(InstanceRecord::Deleted(tombstone)) => tombstone, "what is left"
    );
    check_eq!((&tombstone.id, &tombstone.definition), (&owner.id, &header.definition), "whose tombstone it is");
    check_eq!(tombstone.business_key.as_deref(), Some("A-1"), "its business key");
    check_eq!((tombstone.status, Some(tombstone.ended)), (WorkflowStatus::Terminated, header.ended), "how and when it ended");
    check_eq!(tombstone.result, Some(json_of(TOMBSTONE_RESULT_BYTES)), "its result");
    let tombstone = check_matches!(
        nodes.one.get(&large.id).await?, Some(InstanceRecord::Deleted(tombstone)) => tombstone, "what is left of the large one"
    );
    check_eq!((tombstone.status, tombstone.result), (WorkflowStatus::Complete, None), "its status, and no result");

    check!(nodes.one.load(&owner.id).await?.is_none(), "it is not loaded");
    check!(nodes.one.fence(&owner.id).await?.is_none(), "it has no fence");
    check_eq!(nodes.one.history(&owner.id, 0, 10).await?.items, [], "its history");
    check_eq!(nodes.one.find(&InstanceQuery::new()).await?.items.len(), 0, "the instances in a list");
    check_eq!(nodes.one.statistics().await?.terminated, 0, "the terminated instances");
    let answer = commit(&nodes.one, &late).await?;
    check_matches!(answer, CheckpointOutcome::Refused { stored: None } => (), "a late checkpoint for it");
    let answers = nodes.one.append(&[(owner.id.clone(), Control::Resume)]).await?;
    let dropped = matches!(answers.as_slice(), [AppendOutcome::Unknown | AppendOutcome::Ended(WorkflowStatus::Terminated)]);
    check!(dropped, "a late message for it is not stored: {answers:?}");
    check_eq!(nodes.one.statistics().await?.inbox, 0, "the inbox rows in the store");
    Ok(())
}

pub(in crate::store) async fn a_tombstone_keeps_its_key_until_it_is_purged(nodes: &Nodes) -> Checked {
    let mut owner = Owner::of(&nodes.one, order().with_business_key("A-1")).await?;
    owner.end(WorkflowStatus::Complete).await?;
    nodes.pass(2).await;
    nodes.one.purge(&PurgeRequest::new().with_instances(nodes.span())).await?;
    let starts = (0..20_usize).map(|number| {
        let (store, key) = (nodes.node(number).clone(), if number % 2 == 0 { "A-1" } else { "a-1" });
        async move { Ok((key, store.create(&[order().with_business_key(key)]).await?)) }
    });
    let exists = CreateOutcome::Exists { instance: owner.id.clone(), status: WorkflowStatus::Complete };
    let mut created = 0;
    for (key, answers) in together(starts).await? {
        if key == "A-1" {
            check_eq!(answers, [exists.clone()], "a start by the key of a tombstone");
        } else if answers == [CreateOutcome::Created] {
            created += 1;
        }
    }
    check_eq!(created, 1, "the starts by a look-alike key that created");
    check_eq!(nodes.other.find_by_key("order", "A-1").await?, Some(owner.id.clone()), "the holder of the key");
    let repeated = nodes.one.create(&[order().with_id(owner.id.clone()).with_business_key("A-1")]).await?;
    check!(
        repeated == [CreateOutcome::Created] || repeated == [exists],
        "a late repetition of the create that made it is a no-op: {repeated:?}"
    );
    check!(nodes.one.load(&owner.id).await?.is_none(), "a late repetition does not bring it back");

    let report = nodes.one.purge(&PurgeRequest::new().with_tombstones(nodes.span() * 4)).await?;
    check_eq!(report.tombstones, 0, "the tombstones purged before their time");
    nodes.pass(6).await;
    let report = nodes.other.purge(&PurgeRequest::new().with_tombstones(nodes.span() * 4)).await?;
    check_eq!(report, PurgeReport::new(0, 0, 1, false), "what was purged after that time");
    check!(nodes.one.get(&owner.id).await?.is_none(), "nothing is left of it");
    check_eq!(nodes.one.find_by_key("order", "A-1").await?, None, "the holder of the key");
    let again = order().with_business_key("A-1");
    check_eq!(nodes.one.create(std::slice::from_ref(&again)).await?, [CreateOutcome::Created], "a start by the freed key");
    check_eq!(nodes.one.find_by_key("order", "A-1").await?, Some(again.id), "the new holder of the key");
    Ok(())
}

pub(in crate::store) async fn only_what_is_old_and_ended_is_purged(nodes: &Nodes) -> Checked {
    use WorkflowStatus::{Complete, Runnable, Suspended, Terminated};
    let mut owners = Vec::new();
    for status in [Runnable, Suspended, Complete, Terminated] {
        let mut owner = Owner::new(&nodes.one).await?;
        owner.end(status).await?;
        owners.push(owner.id);
    }
    nodes.pass(3).await;
    let mut young = Owner::new(&nodes.one).await?;
    young.end(Complete).await?;
    check_eq!(nodes.one.purge(&PurgeRequest::new()).await?, PurgeReport::default(), "what a purge of nothing removes");
    let mut request = PurgeRequest::new().with_instances(nodes.span() * 2);
    request.statuses = vec![Terminated];
    check_eq!(nodes.one.purge(&request).await?, PurgeReport::new(1, 0, 0, false), "the old that were terminated");
    request.statuses.clear();
    check_eq!(nodes.one.purge(&request).await?, PurgeReport::new(1, 0, 0, false), "the other old ones that have ended");
    let left: Vec<_> = nodes.other.find(&InstanceQuery::new()).await?.items.into_iter().map(|found| found.header.id).collect();
    check_eq!(left, [owners[0].clone(), owners[1].clone(), young.id], "what is left: open ones, and the young one");
    Ok(())
}

pub(in crate::store) async fn k26_a_purge_is_bounded_and_tells_whether_there_is_more(nodes: &Nodes) -> Checked {
    for _ in 0..5 {
        Owner::new(&nodes.one).await?.end(WorkflowStatus::Complete).await?;
    }
    nodes.one.publish(&(0..5).map(|_| event(("packed", "A-1"))).collect::<Vec<_>>()).await?;
    nodes.pass(2).await;
    let age = nodes.span();
    let instances = PurgeRequest::new().with_instances(age).with_limit(2);
    for expected in [PurgeReport::new(2, 0, 0, true), PurgeReport::new(2, 0, 0, true), PurgeReport::new(1, 0, 0, false)] {
        check_eq!(nodes.one.purge(&instances).await?, expected, "a purge of at most two instances");
    }
    let events = PurgeRequest::new().with_events(age).with_limit(3);
    for expected in [PurgeReport::new(0, 3, 0, true), PurgeReport::new(0, 2, 0, false)] {
        check_eq!(nodes.one.purge(&events).await?, expected, "a purge of at most three events");
    }
    nodes.pass(2).await;
    let tombstones = PurgeRequest::new().with_tombstones(age).with_limit(4);
    for expected in [PurgeReport::new(0, 0, 4, true), PurgeReport::new(0, 0, 1, false), PurgeReport::default()] {
        check_eq!(nodes.one.purge(&tombstones).await?, expected, "a purge of at most four tombstones");
    }
    Ok(())
}

pub(in crate::store) async fn an_event_in_an_inbox_is_never_purged(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let (kept, loose) = (event(("packed", "A-1")).at(now), event(("packed", "A-2")).at(now));
    let mut owner = Owner::waiting(&nodes.one, vec![wait(("packed", "A-1"), "a", 1, now)]).await?;
    nodes.one.publish(&[kept.clone(), loose.clone()]).await?;
    nodes.pass(2).await;
    let request = PurgeRequest::new().with_events(nodes.span());
    check_eq!(nodes.other.purge(&request).await?, PurgeReport::new(0, 1, 0, false), "what is purged: the one that nobody has");
    let inbox = owner.load().await?.inbox;
    check_eq!(matches(&inbox), [(wait(("packed", "A-1"), "a", 1, now).id, kept.id.clone())], "the inbox after the purge");
    let late =
        Owner::waiting(&nodes.one, vec![wait(("packed", "A-2"), "a", 1, now), wait(("packed", "A-1"), "a", 2, now)]).await?;
    let found: Vec<_> = matches(&late.load().await?.inbox).into_iter().map(|(_, event)| event).collect();
    check_eq!(found, [kept.id.clone()], "what a late wait has: the event that is still there");
    owner.consume(&inbox[0]).await?;
    check_eq!(nodes.other.purge(&request).await?.events, 0, "what is purged while another still has it");
    let mut late = late;
    late.end(WorkflowStatus::Complete).await?;
    check_eq!(nodes.other.purge(&request).await?, PurgeReport::new(0, 1, 0, false), "what is purged once nobody has it");
    check_eq!(nodes.one.statistics().await?.events, 0, "the events that are left");
    Ok(())
}
