//! The shapes of definitions, and the identity of the cluster.

use crate::{
    error::Failure,
    sql::{Columns, Request, batch},
};
use latchwork_core::store::{ClusterIdentity, DefineOutcome, DefinitionShape, IdentityOutcome};

pub(crate) const DEFINE: &str = batch!("begin" "define");

pub(crate) const IDENTIFY: &str = batch!("begin" "identify");

pub(crate) fn define(shape: &DefinitionShape) -> Request {
    let request = Request::new(DEFINE).with(&*shape.definition).with(i64::from(shape.version));
    request.with(&*shape.fingerprint).with(&*shape.shape)
}

pub(crate) fn defined(shape: &DefinitionShape, rows: Vec<Columns>) -> Result<DefineOutcome, Failure> {
    let Some(mut columns) = rows.into_iter().next() else { return Ok(DefineOutcome::Stored) };
    columns.int()?;
    let stored = DefinitionShape { fingerprint: columns.shared_text()?, shape: columns.shared_text()?, ..shape.clone() };
    Ok(DefineOutcome::Conflict { stored })
}

/// `wanted` carries the cluster id that is entered when there is none yet.
pub(crate) fn identify(wanted: &ClusterIdentity, replace: bool) -> Request {
    let request = Request::new(IDENTIFY).with(&*wanted.cluster).with(&*wanted.namespace);
    request.with(&*wanted.lock_domain).with(i64::from(replace))
}

pub(crate) fn identified(wanted: &ClusterIdentity, rows: Vec<Columns>) -> Result<IdentityOutcome, Failure> {
    let mut columns = rows.into_iter().next().ok_or_else(|| Failure::corrupt("the identity is not there"))?;
    columns.int()?;
    let stored = ClusterIdentity { cluster: columns.text()?, namespace: columns.text()?, lock_domain: columns.text()? };
    let fits = stored.namespace == wanted.namespace && stored.lock_domain == wanted.lock_domain;
    Ok(if fits { IdentityOutcome::Accepted(stored) } else { IdentityOutcome::Differs(stored) })
}
