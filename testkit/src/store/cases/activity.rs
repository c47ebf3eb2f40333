//! Activities: work for external workers.

use crate::store::{
    case::Checked,
    tools::{
        Nodes, Owner, Store, check, check_eq, check_matches, controls, idle, in_status, is_runnable, json, pointer_id, together,
        wait_id,
    },
};
use latchwork_core::{
    clock::add,
    store::{Activity, ActivityClaim, ActivityOutcome, ActivityToken, Control, SubmitOutcome, WorkflowStatus},
};
use std::{collections::BTreeSet, time::Duration};

const LONG: Duration = Duration::from_secs(3_600);

fn activity(name: &str, number: u32) -> Activity {
    let id = format!("{name} {number}");
    Activity::new(wait_id(&id), pointer_id(&id), name, Some(json(&format!("[{number}]"))))
}

async fn claim(
    store: &Store,
    names: &[&str],
    lease: Duration,
) -> Result<Option<ActivityClaim>, latchwork_core::store::StoreError> {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    store.claim_activity(&names, "worker", lease).await
}

fn done() -> ActivityOutcome {
    ActivityOutcome::Success(serde_json::json!({"boxes": 2}))
}

pub(in crate::store) async fn an_activity_goes_to_a_worker_and_back(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    check!(claim(&nodes.other, &["pick"], LONG).await?.is_none(), "there is no activity yet");
    let open = activity("pick", 1);
    owner.write(|checkpoint| checkpoint.activities = vec![open.clone()]).await?;
    check_eq!(nodes.one.statistics().await?.open_activities, 1, "the activities without a live token");
    check!(claim(&nodes.other, &["Pick", "pack"], LONG).await?.is_none(), "there is no activity of another name");
    let before = nodes.one.now().await?;
    let claimed = check_matches!(claim(&nodes.other, &["pick"], LONG).await?, Some(claimed) => claimed, "the claim");
    let after = nodes.one.now().await?;
    check_eq!((&claimed.instance, claimed.activity), (&owner.id, open.id), "which activity it is");
    check_eq!((&claimed.name, &claimed.parameters), (&open.name, &open.parameters), "what the worker is given");
    check!(
        claimed.expires >= add(before, LONG) && claimed.expires <= add(after, LONG),
        "claimed at {before} for an hour, it expires at {}",
        claimed.expires
    );
    check_eq!(nodes.one.statistics().await?.open_activities, 0, "the activities without a live token, now");
    check!(claim(&nodes.one, &["pick"], LONG).await?.is_none(), "a claimed activity is not handed out again");

    let answer = nodes.other.submit_activity(&claimed.token, done()).await?;
    check_eq!(answer, SubmitOutcome::Accepted(owner.load().await?.header.work_item()), "the answer to the result");
    let found = owner.load().await?;
    let expected = [Control::ActivityResult { activity: open.id, outcome: done() }];
    check_eq!(controls(&found.inbox), expected, "the inbox");
    check!(is_runnable(&nodes.one, &owner.id).await?, "a result makes its instance runnable");
    check_eq!(nodes.one.submit_activity(&claimed.token, done()).await?, SubmitOutcome::Refused, "the same result again");
    check!(claim(&nodes.one, &["pick"], LONG).await?.is_none(), "an activity with a result is not handed out again");
    owner
        .write(|checkpoint| {
            checkpoint.ended_activities = vec![open.id];
            checkpoint.applied = found.inbox.iter().map(|row| row.id).collect();
        })
        .await?;
    let found = owner.load().await?;
    check_eq!((found.activities.len(), found.inbox.len()), (0, 0), "the activities and rows that are left");
    Ok(())
}

pub(in crate::store) async fn a_failure_goes_back_too(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    owner.write(|checkpoint| checkpoint.activities = vec![activity("pick", 1)]).await?;
    let claimed = check_matches!(claim(&nodes.one, &["pick"], LONG).await?, Some(claimed) => claimed, "the claim");
    let outcome = ActivityOutcome::Failure("out of stock".into());
    check_matches!(
        nodes.one.submit_activity(&claimed.token, outcome.clone()).await?, SubmitOutcome::Accepted(_) => (), "the answer"
    );
    let expected = [Control::ActivityResult { activity: claimed.activity, outcome }];
    check_eq!(controls(&owner.load().await?.inbox), expected, "the inbox");
    Ok(())
}

pub(in crate::store) async fn of_twenty_workers_one_gets_an_activity(nodes: &Nodes) -> Checked {
    for count in [1_u32, 5] {
        let mut owner = Owner::new(&nodes.one).await?;
        let name = format!("pick {count}");
        owner.write(|checkpoint| checkpoint.activities = (0..count).map(|number| activity(&name, number)).collect()).await?;
        let workers = (0..20_usize).map(|number| {
            let (store, name) = (nodes.node(number).clone(), name.clone());
            async move { Ok(store.claim_activity(&[name], &format!("worker {number}"), LONG).await?) }
        });
        let claims: Vec<_> = together(workers).await?.into_iter().flatten().collect();
        check_eq!(claims.len(), usize::try_from(count)?, "the number of claims");
        let activities: BTreeSet<_> = claims.iter().map(|claim| claim.activity).collect();
        let tokens: BTreeSet<_> = claims.iter().map(|claim| claim.token.clone()).collect();
        check_eq!((activities.len(), tokens.len()), (claims.len(), claims.len()), "different activities and tokens");
    }
    Ok(())
}

pub(in crate::store) async fn a_claim_expires_by_the_stores_time(nodes: &Nodes) -> Checked {
    let span = nodes.span();
    let mut owner = Owner::new(&nodes.one).await?;
    owner.write(|checkpoint| checkpoint.activities = vec![activity("pick", 1)]).await?;
    let first = check_matches!(claim(&nodes.one, &["pick"], span * 2).await?, Some(claimed) => claimed, "the first claim");
    check!(claim(&nodes.other, &["pick"], LONG).await?.is_none(), "a live claim keeps others out");
    nodes.pass(3).await;
    check_eq!(nodes.one.submit_activity(&first.token, done()).await?, SubmitOutcome::Refused, "a result after its time");
    check_eq!(nodes.one.statistics().await?.open_activities, 1, "the activities without a live token");
    let second = check_matches!(claim(&nodes.other, &["pick"], LONG).await?, Some(claimed) => claimed, "the second claim");
    check!(second.token != first.token, "each claim has a token of its own");
    check_eq!(nodes.one.submit_activity(&first.token, done()).await?, SubmitOutcome::Refused, "a result by the first token");
    check_eq!(nodes.one.release_activity(&first.token).await?, false, "whether the first token gives it back");
    check_eq!(owner.load().await?.inbox, [], "the inbox so far");
    check_matches!(nodes.one.submit_activity(&second.token, done()).await?, SubmitOutcome::Accepted(_) => (), "the second token");
    check_eq!(owner.load().await?.inbox.len(), 1, "the rows in the inbox");
    Ok(())
}

pub(in crate::store) async fn a_released_activity_is_free_at_once(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    owner.write(|checkpoint| checkpoint.activities = vec![activity("pick", 1)]).await?;
    check_eq!(nodes.one.release_activity(&ActivityToken::new()).await?, false, "whether an unknown token gives something back");
    let first = check_matches!(claim(&nodes.one, &["pick"], LONG).await?, Some(claimed) => claimed, "the first claim");
    check_eq!(nodes.other.release_activity(&first.token).await?, true, "whether the token gives it back");
    check_eq!(nodes.one.submit_activity(&first.token, done()).await?, SubmitOutcome::Refused, "a result by that token");
    let second = check_matches!(claim(&nodes.other, &["pick"], LONG).await?, Some(claimed) => claimed, "the second claim");
    check_eq!(second.activity, first.activity, "the activity");
    Ok(())
}

pub(in crate::store) async fn activities_of_a_suspended_instance_are_not_handed_out(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    owner
        .write(|checkpoint| {
            checkpoint.header = in_status(WorkflowStatus::Suspended);
            checkpoint.activities = vec![activity("pick", 1), activity("pick", 2)];
        })
        .await?;
    check!(claim(&nodes.other, &["pick"], LONG).await?.is_none(), "its activities wait");
    owner.set(idle()).await?;
    let claimed =
        check_matches!(claim(&nodes.other, &["pick"], LONG).await?, Some(claimed) => claimed, "the claim after it goes on");
    owner.set(in_status(WorkflowStatus::Suspended)).await?;
    check!(claim(&nodes.other, &["pick"], LONG).await?.is_none(), "the other one waits again");
    // What is in a worker's hands may come back.
    check_matches!(nodes.one.submit_activity(&claimed.token, done()).await?, SubmitOutcome::Accepted(_) => (), "its result");
    let mut other = Owner::new(&nodes.one).await?;
    other.write(|checkpoint| checkpoint.activities = vec![activity("pick", 3)]).await?;
    let claimed = check_matches!(claim(&nodes.one, &["pick"], LONG).await?, Some(claimed) => claimed, "the claim of another's");
    check_eq!(claimed.instance, other.id, "an instance that runs is not held up by one that does not");
    Ok(())
}

pub(in crate::store) async fn workers_get_the_oldest_of_their_names(nodes: &Nodes) -> Checked {
    let mut owners = [Owner::new(&nodes.one).await?, Owner::new(&nodes.one).await?];
    for (number, name) in (1..).zip(["pick", "pack", "pick", "ship", "pack"]) {
        let owner = &mut owners[usize::try_from(number % 2)?];
        owner.write(|checkpoint| checkpoint.activities = vec![activity(name, number)]).await?;
        // Stores may order by time.
        nodes.pass(1).await;
    }
    let mut found = Vec::new();
    for names in [&["pack", "pick"][..], &["pick", "pack", "pick"], &["ship"], &["pick", "pack"], &["pack", "nail"], &["pack"]] {
        let claimed = claim(&nodes.other, names, LONG).await?;
        found.push(claimed.and_then(|claimed| claimed.parameters).map(|parameters| parameters.as_str().to_owned()));
    }
    let expected = ["[1]", "[2]", "[4]", "[3]", "[5]"].map(|text| Some(text.to_owned())).into_iter().chain([None]);
    check_eq!(found, expected.collect::<Vec<_>>(), "the activities in the order of the claims");
    check!(claim(&nodes.one, &[], LONG).await?.is_none(), "who asks for no name gets nothing");
    Ok(())
}

pub(in crate::store) async fn an_ended_activity_takes_no_result(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    let (first, second) = (activity("pick", 1), activity("pack", 2));
    owner.write(|checkpoint| checkpoint.activities = vec![first.clone(), second.clone()]).await?;
    let claimed = check_matches!(claim(&nodes.one, &["pick"], LONG).await?, Some(claimed) => claimed, "the claim");
    owner.write(|checkpoint| checkpoint.ended_activities = vec![first.id, second.id]).await?;
    check_eq!(nodes.other.submit_activity(&claimed.token, done()).await?, SubmitOutcome::Refused, "a result for it");
    check_eq!(nodes.other.release_activity(&claimed.token).await?, false, "whether it can be given back");
    check!(claim(&nodes.one, &["pick", "pack"], LONG).await?.is_none(), "it is not handed out");
    check_eq!(owner.load().await?.inbox, [], "the inbox");
    check_eq!(nodes.one.statistics().await?.open_activities, 0, "the activities without a live token");
    Ok(())
}

pub(in crate::store) async fn a_terminal_checkpoint_ends_all_waiting(nodes: &Nodes) -> Checked {
    for status in [WorkflowStatus::Complete, WorkflowStatus::Terminated] {
        let now = nodes.one.now().await?;
        let packed = ("packed", status.as_str());
        let mut owner = Owner::new(&nodes.one).await?;
        owner
            .write(|checkpoint| {
                checkpoint.subscriptions =
                    vec![crate::store::tools::wait(packed, "a", 1, now), crate::store::tools::wait(packed, "a", 2, now)];
                checkpoint.activities = vec![activity("pick", 1), activity("pick", 2)];
            })
            .await?;
        let claimed = check_matches!(claim(&nodes.one, &["pick"], LONG).await?, Some(claimed) => claimed, "the claim");
        nodes.other.publish(&[crate::store::tools::event(packed)]).await?;
        nodes.other.append(&[(owner.id.clone(), Control::Resume)]).await?;
        check_eq!(owner.load().await?.inbox.len(), 2, "the rows before the end");
        let answer = owner.end(status).await?;
        check_eq!((answer.inbox.len(), answer.wake.len()), (0, 0), "inbox and wake of the end");
        let found = crate::store::tools::load(&nodes.other, &owner.id).await?;
        let left = (found.subscriptions.len(), found.activities.len(), found.inbox.len());
        check_eq!(left, (0, 0, 0), "the waits, activities and rows that are left");
        check_eq!(found.header.status, status, "the status");
        let answer = nodes.other.publish(&[crate::store::tools::event(packed)]).await?;
        check_eq!(answer.wake, [], "who is woken by an event for it");
        check!(claim(&nodes.one, &["pick"], LONG).await?.is_none(), "its activities are not handed out");
        check_eq!(nodes.one.submit_activity(&claimed.token, done()).await?, SubmitOutcome::Refused, "a result for it");
        check!(!is_runnable(&nodes.other, &owner.id).await?, "it is not runnable");
        let statistics = nodes.other.statistics().await?;
        check_eq!((statistics.inbox, statistics.open_activities), (0, 0), "the rows and activities in the store");
    }
    Ok(())
}
