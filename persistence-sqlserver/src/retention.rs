//! Removing what is old.

use crate::{
    error::Failure,
    sql::{Columns, Request, batch},
};
use latchwork_core::store::{PurgeReport, PurgeRequest, WorkflowStatus};
use std::time::Duration;

/// Tombstones, instances and events, each in a transaction of its own.
pub(crate) const PURGE: &str =
    batch!("begin" "purge" "begin_transaction" "lock_headers" "purge_instances" "lock_stripes" "purge_events");

/// The most rows of a kind that one call looks at.
const MOST: usize = 1_000_000;

pub(crate) fn purge(request: &PurgeRequest) -> Result<Request, Failure> {
    let limit = i64::try_from(request.limit.min(MOST)).unwrap_or(0);
    // Below zero: keep all. So old that no time is: nothing is older.
    let age =
        |age: Option<Duration>| age.map_or(-1, |age| i64::try_from(age.as_micros()).unwrap_or(i64::MAX / 2).min(i64::MAX / 2));
    let wanted =
        |status: &&WorkflowStatus| status.is_terminal() && (request.statuses.is_empty() || request.statuses.contains(status));
    let statuses: Vec<(&str,)> = WorkflowStatus::ALL.iter().filter(wanted).map(|status| (status.as_str(),)).collect();
    let text = Request::new(PURGE).with(limit).with(age(request.tombstones)).with(age(request.instances));
    Ok(text.with(age(request.events)).with(serde_json::to_string(&statuses)?))
}

pub(crate) fn purged(rows: Vec<Columns>) -> Result<PurgeReport, Failure> {
    let mut columns = rows.into_iter().next().ok_or_else(|| Failure::corrupt("the server does not tell what was purged"))?;
    columns.int()?;
    let (tombstones, instances, events) = (columns.number()?, columns.number()?, columns.number()?);
    Ok(PurgeReport::new(instances, events, tombstones, columns.int()? != 0))
}
