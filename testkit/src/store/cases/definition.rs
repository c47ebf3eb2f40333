//! Definitions, the store's identity, and its schema.

use crate::store::{
    case::{Checked, Stop},
    tools::{Nodes, Owner, check, check_eq, check_matches, order, together},
};
use latchwork_core::store::{
    ClusterIdentity, DefineOutcome, DefinitionShape, IdentityOutcome, SchemaMode, StoreClock, StoreErrorKind, WorkflowStatus,
};
use std::time::Duration;

fn shape(version: u32, fingerprint: &str) -> DefinitionShape {
    let shape = format!(r#"{{"steps":["zażółć","{fingerprint}"]}}"#);
    DefinitionShape { definition: "order".into(), version, fingerprint: fingerprint.into(), shape: shape.into() }
}

pub(in crate::store) async fn a_shape_is_replaced_only_when_no_open_instance_has_it(nodes: &Nodes) -> Checked {
    let (first, second, third) = (shape(1, "shape-1"), shape(1, "shape-2"), shape(1, "shape-3"));
    for node in [&nodes.one, &nodes.other] {
        check_eq!(node.define(&first).await?, DefineOutcome::Stored, "the first shape, and the same again");
    }
    check_eq!(nodes.one.define(&second).await?, DefineOutcome::Stored, "another shape that nothing stands against");
    check_eq!(nodes.other.define(&first).await?, DefineOutcome::Stored, "and back");
    let mut owner = Owner::of(&nodes.one, order()).await?;
    for status in [WorkflowStatus::Runnable, WorkflowStatus::Suspended] {
        owner.end(status).await?;
        let expected = DefineOutcome::Conflict { stored: first.clone() };
        check_eq!(nodes.other.define(&second).await?, expected, "another shape while an instance is {status}");
        check_eq!(nodes.one.define(&first).await?, DefineOutcome::Stored, "the same shape while an instance is {status}");
    }
    check_eq!(nodes.one.define(&shape(2, "shape-2")).await?, DefineOutcome::Stored, "another version");
    let mut elsewhere = shape(1, "shape-2");
    elsewhere.definition = "Order".into();
    check_eq!(nodes.one.define(&elsewhere).await?, DefineOutcome::Stored, "another definition");
    owner.end(WorkflowStatus::Complete).await?;
    check_eq!(nodes.other.define(&third).await?, DefineOutcome::Stored, "another shape once the instance has ended");
    let mut new = order();
    new.fingerprint = third.fingerprint.clone();
    Owner::of(&nodes.one, new).await?;
    let expected = DefineOutcome::Conflict { stored: third };
    check_eq!(nodes.other.define(&first).await?, expected, "the first shape while an instance has the third");
    Ok(())
}

pub(in crate::store) async fn a_store_belongs_to_one_namespace_and_lock_domain(nodes: &Nodes) -> Checked {
    let claims = (0..8_usize).map(|number| {
        let store = nodes.node(number).clone();
        async move { Ok(store.claim_identity("wfc", "locks-1", false).await?) }
    });
    let mut clusters = std::collections::BTreeSet::new();
    for outcome in together(claims).await? {
        let identity = check_matches!(outcome, IdentityOutcome::Accepted(identity) => identity, "a claim of the same");
        check_eq!((identity.namespace.as_str(), identity.lock_domain.as_str()), ("wfc", "locks-1"), "the identity");
        clusters.insert(identity.cluster);
    }
    check_eq!(clusters.len(), 1, "the clusters that eight claims at once were told");
    let cluster = clusters.pop_first().unwrap_or_default();
    check!(!cluster.is_empty(), "the cluster has an id");
    let is = |namespace: &str, lock_domain: &str| ClusterIdentity {
        cluster: cluster.clone(),
        namespace: namespace.into(),
        lock_domain: lock_domain.into(),
    };
    for (namespace, lock_domain) in [("other", "locks-1"), ("wfc", "locks-2"), ("wfc", "Locks-1")] {
        let answer = nodes.other.claim_identity(namespace, lock_domain, false).await?;
        check_eq!(answer, IdentityOutcome::Differs(is("wfc", "locks-1")), "a claim of {namespace} and {lock_domain}");
    }
    let answer = nodes.other.claim_identity("other", "locks-2", true).await?;
    check_eq!(answer, IdentityOutcome::Accepted(is("other", "locks-2")), "a claim that replaces");
    let answer = nodes.one.claim_identity("wfc", "locks-1", false).await?;
    check_eq!(answer, IdentityOutcome::Differs(is("other", "locks-2")), "the first claim after that");
    Ok(())
}

pub(in crate::store) async fn the_exclusive_claim_is_granted_or_unsupported(nodes: &Nodes) -> Checked {
    let answer = nodes.one.claim_exclusive("node-1").await;
    if nodes.one.capabilities().exclusive_claim {
        drop(answer?);
        drop(nodes.one.claim_exclusive("node-1 again").await?);
    } else {
        let kind = answer.map(drop).map_err(|error| error.kind);
        check_eq!(kind, Err(StoreErrorKind::Unsupported), "the answer of a store without the capability");
    }
    Ok(())
}

pub(in crate::store) async fn many_nodes_prepare_at_once(nodes: &Nodes) -> Checked {
    let mut opened = Vec::new();
    for _ in 0..8 {
        opened.push(nodes.fixture.open().await?);
    }
    let prepared = opened.iter().cloned().map(|store| async move { Ok(store.prepare(SchemaMode::Migrate).await?) });
    let result = together(prepared.collect::<Vec<_>>()).await;
    let verified = match opened.first() {
        Some(store) => store.prepare(SchemaMode::Verify).await.map_err(Stop::from),
        None => Ok(()),
    };
    let missing = match opened.last() {
        Some(store) => store.prepare(SchemaMode::CreateIfMissing).await.map_err(Stop::from),
        None => Ok(()),
    };
    for store in &opened {
        store.stop(Duration::from_secs(10)).await?;
    }
    result.and(verified).and(missing)
}

pub(in crate::store) async fn a_schema_of_a_later_version_is_refused(nodes: &Nodes) -> Checked {
    Owner::new(&nodes.one).await?;
    if !nodes.fixture.make_schema_newer().await? {
        return Err(Stop::Skipped("the fixture has no schema to mark as newer"));
    }
    for mode in [SchemaMode::Migrate, SchemaMode::CreateIfMissing, SchemaMode::Verify] {
        let store = nodes.fixture.open().await?;
        let answer = store.prepare(mode).await;
        store.stop(Duration::from_secs(10)).await?;
        let error = check_matches!(answer, Err(error) => error, "prepare in mode {mode:?}");
        check_eq!(error.kind, StoreErrorKind::Schema, "the kind of error in mode {mode:?}");
        check!(!error.is_retryable(), "it cannot be retried: {error}");
    }
    Ok(())
}

pub(in crate::store) async fn times_are_whole_microseconds_of_one_clock(nodes: &Nodes) -> Checked {
    let before = nodes.one.now().await?;
    nodes.pass(1).await;
    let after = nodes.other.now().await?;
    check!(after >= before + nodes.span(), "{:?} went by between {before} and {after}", nodes.span());
    let owner = Owner::new(&nodes.one).await?;
    let found = owner.load().await?;
    for time in [before, after, found.now, found.header.created] {
        check_eq!(time.timestamp_subsec_nanos() % 1_000, 0, "the nanoseconds of {time}");
    }
    if let Some(clock) = nodes.fixture.clock() {
        check_eq!(nodes.one.capabilities().clock, StoreClock::Injected, "whose clock it is");
        check_eq!(found.now, latchwork_core::clock::Clock::now(&clock), "the time of a load");
    }
    Ok(())
}

pub(in crate::store) async fn capabilities_are_constant_and_the_same_for_all_nodes(nodes: &Nodes) -> Checked {
    let told = format!("{:?}", nodes.one.capabilities());
    Owner::new(&nodes.one).await?;
    for node in [&nodes.one, &nodes.other] {
        check_eq!(format!("{:?}", node.capabilities()), told, "the capabilities");
        check!(!node.capabilities().domain.is_empty(), "the domain names the store");
    }
    check!(nodes.one.capabilities().largest_data >= latchwork_core::limits::DATA_BYTES, "a store takes data of a mebibyte");
    Ok(())
}
