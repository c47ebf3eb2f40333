//! What is stored, and what it stands for.

use crate::error::corrupt;
use latchwork_core::{
    clock::Timestamp,
    queue::WorkItem,
    store::{
        AttributeValue, CheckpointId, Encoded, InboxId, InboxMessage, InboxRow, InstanceHeader, InstanceId, ParentLink,
        PointerId, PointerRecord, Revision, WorkflowStatus, stored,
    },
};
use latchwork_sqlite_client::sqlx;
use serde::Deserialize;
use std::{collections::BTreeMap, str::FromStr};

/// The columns of a header as one JSON object, for [`header`]. `i` is the instance.
macro_rules! header_columns {
    () => {
        "json_object('id', i.id, 'definition', i.definition, 'version', i.version, 'fingerprint', i.fingerprint,
            'business_key', i.business_key, 'reference', i.reference, 'parent', i.parent, 'parent_pointer', i.parent_pointer,
            'created', i.created, 'status', i.status, 'reason', i.reason, 'due', i.due, 'fault_count', i.fault_count,
            'ended', i.ended, 'revision', i.revision, 'writer', i.writer)"
    };
}

/// The columns of an inbox row, for [`StoredInbox`]. `m` is the row, `e` its event.
macro_rules! inbox_columns {
    () => {
        "m.n, m.id, m.control, m.subscription, m.slot, e.id, e.name, e.key, e.time, e.number, e.data"
    };
}

pub(crate) use {header_columns, inbox_columns};

/// A text that must read as something.
pub(crate) fn parsed<T: FromStr>(what: &str, text: &str) -> Result<T, sqlx::Error> {
    text.parse().map_err(|_| corrupt(format!("{text:?} is no {what}")))
}

pub(crate) fn timestamp(micros: i64) -> Result<Timestamp, sqlx::Error> {
    Timestamp::from_timestamp_micros(micros).ok_or_else(|| corrupt(format!("{micros} is no time")))
}

pub(crate) fn micros(time: Timestamp) -> i64 {
    time.timestamp_micros()
}

pub(crate) fn status(name: &str) -> Result<WorkflowStatus, sqlx::Error> {
    WorkflowStatus::from_stored(name).ok_or_else(|| corrupt(format!("{name:?} is no status")))
}

pub(crate) fn work_item(id: &str, definition: String, version: i64) -> Result<WorkItem, sqlx::Error> {
    Ok(WorkItem::new(parsed("instance id", id)?, definition, number("version", version)?))
}

pub(crate) fn number<T: TryFrom<i64>>(what: &str, stored: i64) -> Result<T, sqlx::Error> {
    T::try_from(stored).map_err(|_| corrupt(format!("{stored} is no {what}")))
}

pub(crate) fn encoded(json: Option<String>) -> Option<Encoded> {
    json.map(Encoded::from_json)
}

#[derive(Deserialize)]
struct StoredHeader {
    id: String,
    definition: String,
    version: u32,
    fingerprint: String,
    business_key: Option<String>,
    reference: Option<String>,
    parent: Option<String>,
    parent_pointer: Option<PointerId>,
    created: i64,
    status: WorkflowStatus,
    reason: Option<String>,
    due: Option<i64>,
    fault_count: u32,
    ended: Option<i64>,
    revision: i64,
    writer: Option<String>,
}

/// Reads what [`header_columns`] selects.
pub(crate) fn header(json: &str) -> Result<InstanceHeader, sqlx::Error> {
    let stored: StoredHeader = serde_json::from_str(json).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let parent = match (stored.parent, stored.parent_pointer) {
        (Some(instance), Some(pointer)) => Some(ParentLink { instance: parsed("instance id", &instance)?, pointer }),
        _ => None,
    };
    Ok(InstanceHeader {
        id: parsed("instance id", &stored.id)?,
        definition: stored.definition.into(),
        version: stored.version,
        fingerprint: stored.fingerprint.into(),
        business_key: stored.business_key,
        reference: stored.reference,
        parent,
        created: timestamp(stored.created)?,
        status: stored.status,
        reason: stored.reason,
        due: stored.due.map(timestamp).transpose()?,
        fault_count: stored.fault_count,
        ended: stored.ended.map(timestamp).transpose()?,
        revision: Revision(stored.revision),
        writer: stored.writer.as_deref().map(|writer| parsed::<CheckpointId>("checkpoint id", writer)).transpose()?,
    })
}

/// Reads a pointer's row.
pub(crate) fn pointer(
    sequence: i64,
    record: &str,
    scope: Option<&str>,
    state: Option<String>,
) -> Result<PointerRecord, sqlx::Error> {
    stored::pointer_from_json(sequence, record, scope, state).map_err(sqlx::Error::Decode)
}

/// What [`inbox_columns`] selects.
pub(crate) type InboxColumns = (
    i64,
    i64,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<i64>,
    Option<i64>,
    Option<String>,
);

/// The inboxes of instances, by their numbers. The rows come in order of their ids.
pub(crate) fn inboxes(rows: Vec<InboxColumns>) -> Result<BTreeMap<i64, Vec<InboxRow>>, sqlx::Error> {
    /// A row and the place of its event: channel, time, number.
    type Placed = (InboxRow, Option<((String, String), (i64, i64))>);
    let mut inboxes: BTreeMap<i64, Vec<Placed>> = BTreeMap::new();
    for (n, id, control, subscription, slot, event, name, key, time, number, data) in rows {
        let (message, place) = match (control, subscription, slot, event, time) {
            (Some(control), ..) => {
                let control = serde_json::from_str(&control).map_err(|error| sqlx::Error::Decode(error.into()))?;
                (InboxMessage::Control(control), None)
            }
            (None, Some(subscription), Some(slot), Some(event), Some(time)) => {
                let message = InboxMessage::Event {
                    subscription: parsed("wait id", &subscription)?,
                    slot: slot.into(),
                    event: parsed("event id", &event)?,
                    time: timestamp(time)?,
                    data: encoded(data),
                };
                let channel = (name.unwrap_or_default(), key.unwrap_or_default());
                (message, Some((channel, (time, number.unwrap_or_default()))))
            }
            _ => return Err(corrupt(format!("inbox row {id} holds neither a message nor an event"))),
        };
        inboxes.entry(n).or_default().push((InboxRow { id: InboxId(id), message }, place));
    }
    Ok(inboxes.into_iter().map(|(n, rows)| (n, stored::in_event_order(rows))).collect())
}

/// The three columns of an attribute's value.
pub(crate) fn attribute(
    name: &str,
    text: Option<String>,
    number: Option<f64>,
    time: Option<i64>,
) -> Result<AttributeValue, sqlx::Error> {
    match (text, number, time) {
        (Some(text), ..) => Ok(AttributeValue::Text(text)),
        (None, Some(number), _) => Ok(AttributeValue::Number(number)),
        (None, None, Some(time)) => Ok(AttributeValue::Time(timestamp(time)?)),
        // Numbers that JSON has no word for.
        (None, None, None) => {
            tracing::debug!(name, "an attribute is not a number");
            Ok(AttributeValue::Number(f64::NAN))
        }
    }
}

pub(crate) fn instance_id(text: &str) -> Result<InstanceId, sqlx::Error> {
    parsed("instance id", text)
}
