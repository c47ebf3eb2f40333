//! Messages for the owners of instances.

use crate::{
    error::Failure,
    record::Inboxes,
    sql::{Columns, Request, batch},
};
use latchwork_core::{
    queue::WorkItem,
    store::{AppendOutcome, Control, InboxRow, InstanceId, WorkflowStatus},
};
use std::collections::BTreeMap;

/// Locks the headers, and appends to those that are open.
pub(crate) const APPEND: &str = batch!("begin" "append" "messages_declare" "messages_read" "append_touch" "lock_headers" "append_now" "messages_write"
    "append_answer" "commit");

/// The visible rows of instances.
pub(crate) const READ: &str = batch!("begin" "read_inbox");

/// A message on its way: place, number of its sender, receiver, JSON.
pub(crate) type MessageRow<'a> = (usize, usize, &'a InstanceId, String);

pub(crate) fn append<'a>(messages: impl Iterator<Item = &'a (InstanceId, Control)>) -> Result<Request, Failure> {
    let row = |(at, (id, control)): (usize, &'a (InstanceId, Control))| -> Result<MessageRow<'a>, Failure> {
        Ok((at, 0, id, serde_json::to_string(control)?))
    };
    let rows: Vec<_> = messages.enumerate().map(row).collect::<Result<_, _>>()?;
    Ok(Request::new(APPEND).with(serde_json::to_string(&rows)?))
}

/// What became of each of so many messages.
pub(crate) fn appended(count: usize, rows: Vec<Columns>) -> Result<Vec<AppendOutcome>, Failure> {
    let mut answers = BTreeMap::new();
    for mut columns in rows {
        let (_, at) = (columns.int()?, columns.number::<usize>()?);
        let (definition, version, status, id) =
            (columns.opt_text()?, columns.number()?, columns.opt_text()?, columns.instance()?);
        let status = status
            .as_deref()
            .map(|name| WorkflowStatus::from_stored(name).ok_or_else(|| Failure::corrupt(format!("{name:?} is no status"))));
        let answer = match (status.transpose()?, definition) {
            (None, _) => AppendOutcome::Unknown,
            (Some(status), Some(definition)) if !status.is_terminal() => {
                AppendOutcome::Appended(WorkItem::new(id, definition, version))
            }
            (Some(status), _) => AppendOutcome::Ended(status),
        };
        answers.insert(at, answer);
    }
    if answers.len() == count {
        Ok(answers.into_values().collect())
    } else {
        Err(Failure::corrupt(format!("{count} messages were to be appended, the server tells of {}", answers.len())))
    }
}

pub(crate) fn read(instances: &[InstanceId]) -> Result<Request, Failure> {
    let rows: Vec<(usize, &InstanceId)> = instances.iter().enumerate().collect();
    Ok(Request::new(READ).with(serde_json::to_string(&rows)?))
}

pub(crate) fn inboxes(instances: &[InstanceId], rows: Vec<Columns>) -> Result<Vec<(InstanceId, Vec<InboxRow>)>, Failure> {
    let mut inboxes = Inboxes::default();
    for mut columns in rows {
        columns.int()?;
        inboxes.add(&mut columns)?;
    }
    let inbox = |(k, id): (usize, &InstanceId)| Some((id.clone(), inboxes.take(k))).filter(|(_, rows)| !rows.is_empty());
    Ok(instances.iter().enumerate().filter_map(inbox).collect())
}
