//! Transactions of steps, and the end of a node.

use crate::store::{
    case::{Checked, Stop},
    tools::{Nodes, Owner, Store, check, check_eq, check_matches, event, idle, order, runnable_orders, wait},
};
use latchwork_core::store::{
    ActivityOutcome, ActivityToken, CheckpointOutcome, Control, Due, HeaderUpdate, InstanceQuery, PurgeRequest, Revision,
    SchemaMode, StepTransaction, StoreError, StoreErrorKind,
};
use std::{sync::Arc, time::Duration};

async fn begin(nodes: &Nodes) -> Result<Box<dyn StepTransaction>, Stop> {
    if !nodes.one.capabilities().transactional_steps {
        check!(nodes.one.begin().await?.is_none(), "a store without the capability gives no transaction");
        return Err(Stop::Skipped("the store has no transactions for steps"));
    }
    nodes.one.begin().await?.ok_or_else(|| Stop::Failed("a store with the capability must give a transaction".to_owned()))
}

pub(in crate::store) async fn a_transaction_commits_the_step_and_its_checkpoint_together(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let mut owner = Owner::new(&nodes.other).await?;
    let waiting = Owner::waiting(&nodes.other, vec![wait(("packed", "A-1"), "s", 1, now)]).await?;
    // From here on the step may be the only writer there is.
    let mut transaction = begin(nodes).await?;
    let writes = nodes.fixture.write_own_row(&mut *transaction, "charged").await?;
    check!(!nodes.fixture.has_own_row("charged").await?, "a row of the step is not seen before the commit");
    let mut checkpoint = owner.checkpoint();
    checkpoint.pointers = vec![crate::store::tools::pointer(1)];
    checkpoint.events = vec![event(("packed", "A-1"))];
    let answer = transaction.commit(Arc::new(checkpoint.clone())).await;
    let committed = check_matches!(answer, CheckpointOutcome::Committed(committed) => committed, "the answer");
    check_eq!(committed.revision, Revision(2), "the revision");
    check_eq!(crate::store::tools::instances(&committed.wake), [waiting.id.clone()], "who is woken");
    let found = owner.load().await?;
    check_eq!((found.header.writer, found.pointers.len()), (Some(checkpoint.id), 1), "the writer and the pointers");
    check_eq!(waiting.load().await?.inbox.len(), 1, "the rows of who waits for its event");
    check_eq!(nodes.fixture.has_own_row("charged").await?, writes, "whether the row of the step is there");
    owner.revision = committed.revision;
    owner.write(|_| ()).await?;
    Ok(())
}

pub(in crate::store) async fn a_transaction_of_a_refused_checkpoint_is_rolled_back(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    let mut stale = owner.checkpoint();
    stale.pointers = vec![crate::store::tools::pointer(1)];
    owner.write(|_| ()).await?;
    let mut transaction = begin(nodes).await?;
    nodes.fixture.write_own_row(&mut *transaction, "charged").await?;
    let answer = transaction.commit(Arc::new(stale)).await;
    check_matches!(answer, CheckpointOutcome::Refused { stored: Some(Revision(2)) } => (), "the answer");
    check!(!nodes.fixture.has_own_row("charged").await?, "the row of the step is taken back");
    check_eq!(owner.load().await?.pointers, [], "the pointers");
    Ok(())
}

pub(in crate::store) async fn a_transaction_that_is_dropped_or_rolled_back_leaves_nothing(nodes: &Nodes) -> Checked {
    let mut owner = Owner::new(&nodes.one).await?;
    for by_drop in [true, false] {
        let mut transaction = begin(nodes).await?;
        nodes.fixture.write_own_row(&mut *transaction, "charged").await?;
        if by_drop {
            drop(transaction);
        } else {
            transaction.rollback().await?;
        }
        check!(!nodes.fixture.has_own_row("charged").await?, "the row of the step is taken back, by drop: {by_drop}");
        // The store goes on: whoever held it up would do so now.
        owner.write(|_| ()).await?;
    }
    Ok(())
}

pub(in crate::store) async fn a_stopped_node_refuses_calls_and_others_go_on(nodes: &Nodes) -> Checked {
    let grace = Duration::from_secs(10);
    let mut owner = Owner::new(&nodes.one).await?;
    let id = owner.id.clone();
    let checkpoint = owner.checkpoint();
    nodes.one.stop(grace).await?;
    nodes.one.stop(grace).await?;
    let one: &Store = &nodes.one;
    let no = |name: &str, answer: Result<(), StoreError>| {
        let kind = answer.map_err(|error| error.kind);
        check_eq!(kind, Err(StoreErrorKind::Stopped), "the answer of a stopped node to {name}");
        Ok(())
    };
    no("prepare", one.prepare(SchemaMode::Migrate).await)?;
    no("create", one.create(&[order()]).await.map(drop))?;
    no("load", one.load(&id).await.map(drop))?;
    no("fence", one.fence(&id).await.map(drop))?;
    no("publish", one.publish(&[event(("packed", "A-1"))]).await.map(drop))?;
    no("append", one.append(&[(id.clone(), Control::Resume)]).await.map(drop))?;
    no("read_inbox", one.read_inbox(std::slice::from_ref(&id)).await.map(drop))?;
    no("runnable", one.runnable(&runnable_orders(1)).await.map(drop))?;
    no("claim_activity", one.claim_activity(&["pick".to_owned()], "worker", grace).await.map(drop))?;
    let submitted = one.submit_activity(&ActivityToken::new(), ActivityOutcome::Success(1.into())).await;
    no("submit_activity", submitted.map(drop))?;
    no("get", one.get(&id).await.map(drop))?;
    no("find", one.find(&InstanceQuery::new()).await.map(drop))?;
    no("history", one.history(&id, 0, 1).await.map(drop))?;
    no("statistics", one.statistics().await.map(drop))?;
    no("purge", one.purge(&PurgeRequest::new()).await.map(drop))?;
    no("now", one.now().await.map(drop))?;
    let answer = crate::store::tools::commit(one, &checkpoint).await?;
    let kind = check_matches!(answer, CheckpointOutcome::Failed(error) => error.kind, "the answer to a commit");
    check_eq!(kind, StoreErrorKind::Stopped, "the answer of a stopped node to commit");

    owner.store = nodes.other.clone();
    check_eq!(owner.load().await?.header.revision, Revision::FIRST, "the revision that the other node sees");
    owner.commit(&checkpoint).await?;
    Ok(())
}

pub(in crate::store) async fn what_a_node_wrote_is_there_for_a_later_one(nodes: &Nodes) -> Checked {
    let now = nodes.one.now().await?;
    let mut owner = Owner::of(&nodes.one, order().with_business_key("A-1")).await?;
    owner
        .write(|checkpoint| {
            checkpoint.header = HeaderUpdate { due: Due::At(now), ..idle() };
            checkpoint.subscriptions = vec![wait(("packed", "A-1"), "s", 1, now)];
        })
        .await?;
    nodes.one.publish(&[event(("packed", "A-1"))]).await?;
    let before = owner.load().await?;
    nodes.one.stop(Duration::from_secs(10)).await?;
    nodes.other.stop(Duration::from_secs(10)).await?;
    let later = nodes.fixture.open().await?;
    later.prepare(SchemaMode::Verify).await?;
    owner.store = later.clone();
    let after = owner.load().await?;
    let listed = crate::store::tools::is_runnable(&later, &owner.id).await?;
    let holder = later.find_by_key("order", "A-1").await?;
    later.stop(Duration::from_secs(10)).await?;
    check_eq!(after.header, before.header, "the header");
    check_eq!((after.data, after.subscriptions, after.inbox), (before.data, before.subscriptions, before.inbox), "the rest");
    check!(listed, "what was due before is due after");
    check_eq!(holder, Some(owner.id), "the holder of the business key");
    Ok(())
}
