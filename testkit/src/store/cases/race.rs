//! Purges that race with all that goes on beside them.
//!
//! Several lanes go through their rounds at the same time. In a round the calls that race are made at once, each in a task of its
//! own, and what is asserted holds in whatever order the store took them.

use crate::store::{
    case::{Checked, Stop},
    tools::{
        Nodes, ORDER, Owner, Store, check, check_eq, check_matches, commit, event, idle, json, load, matches, order, pointer,
        read_inbox, together, wait,
    },
};
use latchwork_core::store::{
    AppendOutcome, CheckpointOutcome, Control, CreateOutcome, InstanceId, InstanceRecord, PurgeRequest, WorkflowStatus,
};
use std::time::Duration;

const LANES: usize = 8;
const ROUNDS: usize = 40;

/// What is older is purged where a round asks for that; what a round made is younger by far.
const OLD: Duration = Duration::from_hours(24);

/// A call that races, in a task of its own.
fn at_once<T, F>(call: F) -> tokio::task::JoinHandle<Result<T, Stop>>
where
    F: Future<Output = Result<T, Stop>> + Send + 'static,
    T: Send + 'static,
{
    tokio::spawn(call)
}

/// Purges as the request says, a few times.
async fn purge(store: Store, request: PurgeRequest, tick: impl Fn() + Send + 'static) -> Checked {
    for _ in 0..3 {
        tick();
        store.purge(&request).await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// All that have ended, and all tombstones, or only the ended.
fn all_ended(tombstones: bool) -> PurgeRequest {
    let request = PurgeRequest::new().with_instances(Duration::ZERO);
    if tombstones { request.with_tombstones(Duration::ZERO) } else { request }
}

pub(in crate::store) async fn a_purge_racing_with_waits_and_publishers_takes_no_event_of_an_inbox(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let lanes = (0..LANES).map(|lane| {
        let (store, other, tick) = (nodes.node(lane).clone(), nodes.node(lane + 1).clone(), nodes.ticker());
        async move {
            for round in 0..ROUNDS {
                let key = format!("{lane} {round}");
                // In every other round the event is old as soon as it is there.
                let is_old = round % 2 == 0;
                let mut published = event(("race", &key));
                if is_old {
                    published = published.at(now - OLD * 2);
                }
                let as_of = now - OLD * 3;
                let mut owner = Owner::new(&store).await?;
                let mut subscribing = owner.checkpoint();
                subscribing.subscriptions = vec![wait(("race", &key), "s", 1, as_of)];
                let publish = at_once({
                    let (other, published) = (other.clone(), published.clone());
                    async move { Ok(other.publish(&[published]).await?) }
                });
                let purges = at_once(purge(other.clone(), PurgeRequest::new().with_events(OLD), tick.clone()));
                owner.commit(&subscribing).await?;
                publish.await??;
                purges.await??;

                let inbox = owner.load().await?.inbox;
                let has_it = !inbox.is_empty();
                check!(has_it || is_old, "a young event must reach its wait, it did not in round {key}");
                let expected: Vec<_> =
                    has_it.then(|| (wait(("race", &key), "s", 1, as_of).id, published.id.clone())).into_iter().collect();
                check_eq!(matches(&inbox), expected, "the inbox in round {key}");
                // What no inbox has is gone by now, if it is old; what one has is there for others too.
                store.purge(&PurgeRequest::new().with_events(OLD)).await?;
                let mut late = Owner::waiting(&other, vec![wait(("race", &key), "late", 1, as_of)]).await?;
                let found: Vec<_> = matches(&late.load().await?.inbox).into_iter().map(|(_, event)| event).collect();
                let expected: Vec<_> = has_it.then(|| published.id.clone()).into_iter().collect();
                check_eq!(found, expected, "what a late wait finds in round {key}");

                // The last inbox that has it gives it up, while it is purged.
                let purges = at_once(purge(other.clone(), PurgeRequest::new().with_events(OLD), tick.clone()));
                if let Some(row) = inbox.first() {
                    owner.consume(row).await?;
                }
                owner.end(WorkflowStatus::Complete).await?;
                late.end(WorkflowStatus::Complete).await?;
                purges.await??;
            }
            Ok(())
        }
    });
    together(lanes).await?;
    nodes.one.purge(&PurgeRequest::new().with_events(OLD)).await?;
    let young = u64::try_from(LANES * ROUNDS / 2)?;
    let left = nodes.one.statistics().await?;
    check_eq!((left.events, left.inbox), (young, 0), "the events that are left, the young ones, and the inbox rows");
    Ok(())
}

pub(in crate::store) async fn a_purge_racing_with_checkpoints_takes_no_open_instance(nodes: &Nodes) -> Checked {
    let lanes = (0..LANES).map(|lane| {
        let (store, other, tick) = (nodes.node(lane).clone(), nodes.node(lane + 1).clone(), nodes.ticker());
        async move {
            for round in 0..ROUNDS {
                let case = format!("round {lane} {round}");
                let mut owner = Owner::new(&store).await?;
                let purges = at_once(purge(other.clone(), all_ended(false), tick.clone()));
                // Whatever is written of it while it is open is written, in each status that is open.
                for (number, status) in [(1, WorkflowStatus::Runnable), (2, WorkflowStatus::Suspended)] {
                    owner
                        .write(|checkpoint| {
                            checkpoint.header.status = status;
                            checkpoint.data = Some(json(&number.to_string()));
                            checkpoint.pointers = vec![pointer(number)];
                        })
                        .await?;
                }
                check_eq!(load(&other, &owner.id).await?.header.revision, owner.revision, "the revision in {case}");

                // Its end, and what comes too late for it, race with the purge.
                let mut late = owner.checkpoint();
                owner.end(WorkflowStatus::Complete).await?;
                late.expected = owner.revision;
                late.header = idle();
                late.pointers = vec![pointer(3)];
                let too_late = at_once({
                    let (other, late) = (other.clone(), late.clone());
                    async move { commit(&other, &late).await }
                });
                let told = at_once({
                    let (store, id) = (store.clone(), owner.id.clone());
                    async move { Ok(store.append(&[(id, Control::Resume)]).await?) }
                });
                let more_purges = at_once(purge(store.clone(), all_ended(false), tick.clone()));
                let stored = check_matches!(
                    too_late.await??, CheckpointOutcome::Refused { stored } => stored, "a checkpoint after the end in {case}"
                );
                check!(stored.is_none_or(|stored| stored == owner.revision), "a refusal in {case} tells {stored:?}");
                let told = told.await??;
                let dropped =
                    matches!(told.as_slice(), [AppendOutcome::Ended(WorkflowStatus::Complete) | AppendOutcome::Unknown]);
                check!(dropped, "a message after the end is not stored, in {case}: {told:?}");
                purges.await??;
                more_purges.await??;

                let answer = commit(&store, &late).await?;
                check_matches!(answer, CheckpointOutcome::Refused { stored: None } => (), "a checkpoint after the purge in {case}");
                let tombstone = check_matches!(
                    other.get(&owner.id).await?, Some(InstanceRecord::Deleted(tombstone)) => tombstone, "what is left in {case}"
                );
                check_eq!((tombstone.status, tombstone.result), (WorkflowStatus::Complete, Some(json("2"))), "the end in {case}");
                check!(other.load(&owner.id).await?.is_none(), "it is not loaded after the purge in {case}");
                check_eq!(other.history(&owner.id, 0, 10).await?.items, [], "its history after the purge in {case}");
                check_eq!(read_inbox(&other, &owner.id).await?, [], "its inbox after the purge in {case}");
            }
            Ok(())
        }
    });
    together(lanes).await?;
    let left = nodes.one.statistics().await?;
    check_eq!((left.runnable, left.suspended, left.complete, left.inbox), (0, 0, 0, 0), "what is left");
    Ok(())
}

pub(in crate::store) async fn a_purge_racing_with_starts_gives_a_key_to_one(nodes: &Nodes) -> Checked {
    // First the tombstones stay; then they go too, which frees the keys, those of all lanes.
    for is_freed in [false, true] {
        let lanes = (0..LANES).map(|lane| {
            let tick = nodes.ticker();
            let nodes = [nodes.node(lane).clone(), nodes.node(lane + 1).clone()];
            async move {
                let [store, other] = &nodes;
                for round in 0..ROUNDS / 2 {
                    let key = format!("{lane} {round} {is_freed}");
                    let mut first = Owner::of(store, order().with_business_key(key.as_str())).await?;
                    first.end(WorkflowStatus::Complete).await?;
                    let purges = at_once(purge(other.clone(), all_ended(is_freed), tick.clone()));
                    let starts: Vec<_> = (0..4_usize)
                        .map(|number| {
                            let (store, new) = (nodes[number % 2].clone(), order().with_business_key(key.as_str()));
                            at_once(async move { Ok((new.id.clone(), store.create(&[new]).await?)) })
                        })
                        .collect();
                    let (mut created, mut told): (Vec<InstanceId>, Vec<InstanceId>) = Default::default();
                    for start in starts {
                        match start.await?? {
                            (id, answers) if answers == [CreateOutcome::Created] => created.push(id),
                            (_, answers) => match answers.as_slice() {
                                [CreateOutcome::Exists { instance, status }] => {
                                    let expected =
                                        if *instance == first.id { WorkflowStatus::Complete } else { WorkflowStatus::Runnable };
                                    check_eq!(*status, expected, "where the holder of the key {key} stands");
                                    told.push(instance.clone());
                                }
                                _ => return Err(Stop::Failed(format!("one start must have one answer: {answers:?}"))),
                            },
                        }
                    }
                    purges.await??;
                    check!(created.len() <= usize::from(is_freed), "the key {key}, freed: {is_freed}, was given to {created:?}");
                    let wrong: Vec<_> = told.iter().filter(|told| **told != first.id && !created.contains(told)).collect();
                    check_eq!(wrong, Vec::<&InstanceId>::new(), "holders of the key {key} that never were");
                    let holder = other.find_by_key(ORDER, &key).await?;
                    match created.pop() {
                        Some(created) => check_eq!(holder, Some(created), "the holder of the freed key {key}"),
                        None if is_freed => {
                            check!(holder.is_none_or(|holder| holder == first.id), "the key {key} has a holder that never was");
                        }
                        None => check_eq!(holder, Some(first.id), "the holder of the key {key}"),
                    }
                }
                Ok(())
            }
        });
        together(lanes).await?;
    }
    let open = nodes.one.statistics().await?.runnable;
    check!(open <= u64::try_from(LANES * ROUNDS / 2)?, "the instances that are open: {open}");
    Ok(())
}
