//! What is stored, and what it stands for.

use crate::{error::Failure, sql::Columns};
use latchwork_core::{
    clock::Timestamp,
    queue::WorkItem,
    store::{
        AttributeValue, Encoded, InboxId, InboxMessage, InboxRow, InstanceHeader, ParentLink, PointerRecord, Revision,
        WorkflowStatus, stored,
    },
};
use std::collections::BTreeMap;

/// The columns of a header, for [`header`]. `i` is the instance.
macro_rules! header_columns {
    () => {
        "i.[id], i.[definition], i.[version], i.[fingerprint], i.[business_key], i.[reference], i.[parent], i.[parent_pointer], \
         i.[created], i.[status], i.[reason], i.[due], i.[fault_count], i.[ended], i.[revision], i.[writer]"
    };
}

pub(crate) use header_columns;

pub(crate) fn micros(time: Timestamp) -> i64 {
    time.timestamp_micros()
}

pub(crate) fn status(columns: &mut Columns) -> Result<WorkflowStatus, Failure> {
    let name = columns.text()?;
    WorkflowStatus::from_stored(&name).ok_or_else(|| Failure::corrupt(format!("{name:?} is no status")))
}

/// Instance, definition, version.
pub(crate) fn work_item(columns: &mut Columns) -> Result<WorkItem, Failure> {
    Ok(WorkItem::new(columns.instance()?, columns.text()?, columns.number()?))
}

/// Reads what [`header_columns`] selects.
pub(crate) fn header(columns: &mut Columns) -> Result<InstanceHeader, Failure> {
    let mut header = InstanceHeader {
        id: columns.instance()?,
        definition: columns.shared_text()?,
        version: columns.number()?,
        fingerprint: columns.shared_text()?,
        business_key: columns.opt_text()?,
        reference: columns.opt_text()?,
        parent: None,
        created: Timestamp::UNIX_EPOCH,
        status: WorkflowStatus::Runnable,
        reason: None,
        due: None,
        fault_count: 0,
        ended: None,
        revision: Revision::FIRST,
        writer: None,
    };
    if let (Some(instance), Some(pointer)) = (columns.opt_parsed("instance id")?, columns.opt_parsed("pointer id")?) {
        header.parent = Some(ParentLink { instance, pointer });
    }
    header.created = columns.time()?;
    header.status = status(columns)?;
    header.reason = columns.opt_text()?;
    header.due = columns.opt_time()?;
    header.fault_count = columns.number()?;
    header.ended = columns.opt_time()?;
    header.revision = Revision(columns.int()?);
    header.writer = columns.opt_parsed("checkpoint id")?;
    Ok(header)
}

/// Sequence, record, scope, state.
pub(crate) fn pointer(columns: &mut Columns) -> Result<PointerRecord, Failure> {
    let (sequence, record, scope, state) = (columns.int()?, columns.text()?, columns.opt_text()?, columns.opt_text()?);
    stored::pointer_from_json(sequence, &record, scope.as_deref(), state)
        .map_err(|error| Failure::corrupt(format!("a pointer cannot be read: {error}")))
}

/// Name, text, number, time of an attribute.
pub(crate) fn attribute(columns: &mut Columns) -> Result<(String, AttributeValue), Failure> {
    let (name, text, number, time) = (columns.text()?, columns.opt_text()?, columns.opt_float()?, columns.opt_time()?);
    let value = match (text, number, time) {
        (Some(text), ..) => AttributeValue::Text(text),
        (None, Some(number), _) => AttributeValue::Number(number),
        (None, None, Some(time)) => AttributeValue::Time(time),
        // A number that JSON has no word for.
        (None, None, None) => AttributeValue::Number(f64::NAN),
    };
    Ok((name, value))
}

/// The values of an attribute: text, number, time.
pub(crate) fn attribute_values(value: &AttributeValue) -> (Option<&str>, Option<f64>, Option<i64>) {
    match value {
        AttributeValue::Text(text) => (Some(text), None, None),
        AttributeValue::Number(number) => (None, Some(*number), None),
        AttributeValue::Time(time) => (None, None, Some(micros(*time))),
    }
}

/// The place of an event: its channel, its time and its number.
type Place = ((String, String), (i64, i64));

/// Inboxes by the numbers of their instances in a request.
#[derive(Debug, Default)]
pub(crate) struct Inboxes(BTreeMap<usize, Vec<(InboxRow, Option<Place>)>>);

impl Inboxes {
    /// Instance, id, control, wait, slot, and of the event: id, name, key, time, number, data.
    pub(crate) fn add(&mut self, columns: &mut Columns) -> Result<(), Failure> {
        let (instance, id) = (columns.number()?, columns.int()?);
        let (control, wait, slot) = (columns.opt_text()?, columns.opt_parsed("wait id")?, columns.opt_text()?);
        let (event, name, key) = (columns.opt_parsed("event id")?, columns.opt_text()?, columns.opt_text()?);
        let (time, number, data) = (columns.opt_time()?, columns.opt_int()?, columns.encoded()?);
        let (message, place) = match (control, wait, slot, event, time) {
            (Some(control), ..) => {
                let control = serde_json::from_str(&control)
                    .map_err(|error| Failure::corrupt(format!("the message of inbox row {id} cannot be read: {error}")))?;
                (InboxMessage::Control(control), None)
            }
            (None, Some(subscription), Some(slot), Some(event), Some(time)) => {
                let message = InboxMessage::Event { subscription, slot: slot.into(), event, time, data };
                let channel = (name.unwrap_or_default(), key.unwrap_or_default());
                (message, Some((channel, (micros(time), number.unwrap_or_default()))))
            }
            _ => return Err(Failure::corrupt(format!("inbox row {id} holds neither a message nor an event"))),
        };
        self.0.entry(instance).or_default().push((InboxRow { id: InboxId(id), message }, place));
        Ok(())
    }

    pub(crate) fn take(&mut self, instance: usize) -> Vec<InboxRow> {
        let mut rows = self.0.remove(&instance).unwrap_or_default();
        rows.sort_unstable_by_key(|(row, _)| row.id);
        stored::in_event_order(rows)
    }
}

pub(crate) fn as_json(data: Option<&Encoded>) -> Option<&str> {
    data.map(Encoded::as_str)
}
