//! Writing checkpoints: a whole group in one round trip.

use crate::{
    create::{AttributeRow, Creates, InstanceRow, attribute_rows},
    error::Failure,
    event::EventRow,
    inbox::MessageRow,
    record::{Inboxes, as_json, micros, work_item},
    sql::{Columns, Request, batch},
};
use latchwork_core::{
    clock::whole_micros,
    limits::{ERROR_TEXT_BYTES, cut},
    queue::WorkItem,
    store::{Checkpoint, CheckpointOutcome, Committed, Due, EventId, InstanceId, PointerId, Revision, SubscriptionId, stored},
};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// Checkpoints that concern nobody else, wait for nothing, and have neither attributes nor errors.
pub(crate) const QUIET: &str = batch!("begin" "commit_declare" "begin_transaction" "commit_heads" "commit_rows" "commit_ended"
    "commit_answer" "commit");

/// Checkpoints that concern nobody else, and wait for nothing.
pub(crate) const OWN: &str = batch!("begin" "commit_declare" "commit_extras_declare" "begin_transaction" "commit_heads" "commit_rows"
    "commit_extras" "commit_ended" "commit_answer" "commit");

/// Any checkpoints.
pub(crate) const WHOLE: &str = batch!("begin" "commit_declare" "commit_extras_declare" "commit_more_declare" "events_declare"
    "create_declare" "messages_declare" "events_read" "create_read" "messages_read" "commit_stripes" "begin_transaction" "lock_stripes"
    "commit_touch" "lock_headers" "end" "commit_heads" "commit_rows" "commit_extras" "commit_ended" "commit_losers" "commit_waits"
    "commit_loose" "lock_stripes" "commit_loose_waits" "if_creates" "create_write" "end" "if_events" "events_insert" "events_waits"
    "end" "match" "messages_write" "commit_answer" "commit_wake" "events_wake" "commit");

/// The longest time that can be added to any time of the server's, in microseconds.
const LONGEST: i64 = 8_000_000_000_000_000_000;

/// Number, id, revision, writer, status, fault count, last sequence, reason, whether the due time stays, or is in, or is at.
type HeadRow<'a> = (usize, &'a InstanceId, i64, String, &'static str, u32, i64, Option<&'a str>, u8, Option<i64>, Option<i64>);
/// Place, number, sequence, open, scope, record, state.
type PointerRow<'a> = (usize, usize, i64, u8, Option<PointerId>, String, Option<&'a str>);
/// Place, number, pointer, step, attempt, time, message.
type ErrorRow<'a> = (usize, usize, PointerId, &'a str, u32, i64, &'a str);
/// Number, id, pointer, name, key, stripe, slot, as of, sequence.
type WaitRow<'a> = (usize, SubscriptionId, PointerId, &'a str, &'a str, u8, &'a str, i64, i64);
/// Place, number, id, pointer, name, parameters.
type ActivityRow<'a> = (usize, usize, SubscriptionId, PointerId, &'a str, Option<&'a str>);

/// The rows of a group, by table. The first number of most is the checkpoint's in the group.
#[derive(Debug, Default, Serialize)]
struct Group<'a> {
    // These are parameters of their own.
    #[serde(skip)]
    heads: Vec<HeadRow<'a>>,
    #[serde(skip)]
    data: Vec<(usize, &'a str)>,
    #[serde(skip)]
    pointers: Vec<PointerRow<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<AttributeRow<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ErrorRow<'a>>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    stripes: BTreeSet<(u8,)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    applied: Vec<(usize, i64)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    consumed: Vec<(usize, &'a str, &'a EventId)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overs: Vec<(usize, SubscriptionId)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits: Vec<WaitRow<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    activity_overs: Vec<(usize, SubscriptionId)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    activities: Vec<ActivityRow<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<EventRow<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    creates: Vec<InstanceRow<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    create_attributes: Vec<AttributeRow<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<MessageRow<'a>>,
}

impl<'a> Group<'a> {
    fn of(members: &'a [Arc<Checkpoint>]) -> Result<Self, Failure> {
        let mut group = Self::default();
        let mut creates = Creates::default();
        for (k, checkpoint) in members.iter().enumerate() {
            group.add_own(k, checkpoint)?;
            if !checkpoint.header.status.is_terminal() {
                group.add_waits(k, checkpoint);
            }
            for event in &checkpoint.events {
                let row = EventRow::new(group.events.len(), k, event);
                group.stripes.insert((row.stripe(),));
                group.events.push(row);
            }
            for child in &checkpoint.children {
                creates.add(k, child);
            }
            for (to, control) in &checkpoint.messages {
                group.messages.push((group.messages.len(), k, to, serde_json::to_string(control)?));
            }
        }
        (group.creates, group.create_attributes) = (creates.creates, creates.attributes);
        Ok(group)
    }

    /// What a checkpoint writes of its instance.
    fn add_own(&mut self, k: usize, checkpoint: &'a Checkpoint) -> Result<(), Failure> {
        let header = &checkpoint.header;
        let (keeps, due_in, due_at) = match header.due {
            Due::Keep => (1, None, None),
            Due::In(span) => (0, Some(span_micros(span)), None),
            Due::At(time) => (0, None, Some(micros(whole_micros(time)))),
            Due::Never => (0, None, None),
        };
        let last = checkpoint.pointers.iter().map(|pointer| pointer.sequence).max().unwrap_or(0);
        self.heads.push((
            k,
            &checkpoint.instance,
            checkpoint.expected.0,
            checkpoint.id.to_string(),
            header.status.as_str(),
            header.fault_count,
            last,
            header.reason.as_deref(),
            keeps,
            due_in,
            due_at,
        ));
        self.data.extend(checkpoint.data.as_ref().map(|data| (k, data.as_str())));
        for pointer in &checkpoint.pointers {
            let (at, record) = (self.pointers.len(), stored::pointer_to_json(pointer)?);
            let open = u8::from(pointer.status.is_open());
            self.pointers.push((at, k, pointer.sequence, open, pointer.scope, record, as_json(pointer.state.as_ref())));
        }
        self.attributes.extend(attribute_rows(k, &checkpoint.attributes));
        for error in &checkpoint.errors {
            let message = cut(&error.message, ERROR_TEXT_BYTES);
            let time = micros(whole_micros(error.time));
            self.errors.push((self.errors.len(), k, error.pointer, &error.step, error.attempt, time, message));
        }
        Ok(())
    }

    /// What its instance waits for, or no more. One that has ended waits for nothing.
    fn add_waits(&mut self, k: usize, checkpoint: &'a Checkpoint) {
        self.applied.extend(checkpoint.applied.iter().map(|id| (k, id.0)));
        self.consumed.extend(checkpoint.consumed.iter().map(|consumed| (k, &*consumed.slot, &consumed.event)));
        self.overs.extend(checkpoint.ended_subscriptions.iter().map(|id| (k, *id)));
        for wait in &checkpoint.subscriptions {
            let stripe = stored::stripe(&wait.name, &wait.key);
            self.stripes.insert((stripe,));
            let as_of = micros(whole_micros(wait.as_of));
            self.waits.push((k, wait.id, wait.pointer, &wait.name, &wait.key, stripe, &wait.slot, as_of, wait.sequence));
        }
        self.activity_overs.extend(checkpoint.ended_activities.iter().map(|id| (k, *id)));
        for activity in &checkpoint.activities {
            let parameters = as_json(activity.parameters.as_ref());
            self.activities.push((self.activities.len(), k, activity.id, activity.pointer, &activity.name, parameters));
        }
    }

    /// The shortest text that will do. One of three, so that the server keeps few plans.
    fn text(&self) -> &'static str {
        let is_own = self.stripes.is_empty()
            && self.applied.is_empty()
            && self.consumed.is_empty()
            && self.overs.is_empty()
            && self.activity_overs.is_empty()
            && self.activities.is_empty()
            && self.creates.is_empty()
            && self.messages.is_empty();
        match (is_own, self.attributes.is_empty() && self.errors.is_empty()) {
            (true, true) => QUIET,
            (true, false) => OWN,
            (false, _) => WHOLE,
        }
    }
}

fn span_micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(LONGEST).min(LONGEST)
}

/// The request for a group, which has an instance once, in ascending order: their rows are locked in that order.
pub(crate) fn write(members: &[Arc<Checkpoint>]) -> Result<Request, Failure> {
    let group = Group::of(members)?;
    let (text, pointers) = (group.text(), i64::try_from(group.pointers.len()).unwrap_or(i64::MAX));
    let request = Request::new(text)
        .with(serde_json::to_string(&group.heads)?)
        .with(serde_json::to_string(&group.data)?)
        .with(serde_json::to_string(&group.pointers)?)
        .with(pointers);
    Ok(if text == QUIET { request } else { request.with(serde_json::to_string(&group)?) })
}

/// What became of each member.
pub(crate) fn written(members: &[Arc<Checkpoint>], rows: Vec<Columns>) -> Result<Vec<CheckpointOutcome>, Failure> {
    let mut fences = BTreeMap::new();
    let mut inboxes = Inboxes::default();
    let mut wake: HashMap<usize, Vec<WorkItem>> = HashMap::new();
    for mut columns in rows {
        match columns.int()? {
            0 => {
                let (k, revision, written) = (columns.number::<usize>()?, columns.opt_int()?, columns.int()? != 0);
                fences.insert(k, (revision.map(Revision), written, columns.time()?));
            }
            1 => inboxes.add(&mut columns)?,
            _ => {
                let k = columns.number()?;
                wake.entry(k).or_default().push(work_item(&mut columns)?);
            }
        }
    }
    let outcome = |(k, checkpoint): (usize, &Arc<Checkpoint>)| match fences.remove(&k) {
        Some((Some(revision), true, now)) => {
            let mut seen = BTreeSet::from([checkpoint.instance.clone()]);
            let mut items = wake.remove(&k).unwrap_or_default();
            items.retain(|item| seen.insert(item.instance.clone()));
            Ok(CheckpointOutcome::Committed(Committed { revision, now, inbox: inboxes.take(k), wake: items }))
        }
        Some((stored, ..)) => Ok(CheckpointOutcome::Refused { stored }),
        None => Err(Failure::corrupt("the server does not tell what became of a checkpoint")),
    };
    members.iter().enumerate().map(outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork_core::store::{AttributeValue, CheckpointId, HeaderUpdate, NewEvent, WorkflowStatus};

    fn checkpoint() -> Checkpoint {
        let header = HeaderUpdate { status: WorkflowStatus::Runnable, reason: None, due: Due::Never, fault_count: 0 };
        Checkpoint::new(InstanceId::new(), CheckpointId { burst: 1, number: 1 }, Revision::FIRST, header)
    }

    #[test]
    fn a_group_has_the_shortest_text_that_will_do() {
        let text = |checkpoint: Checkpoint| write(&[Arc::new(checkpoint)]).expect("a request").text;
        let mut due_late = checkpoint();
        due_late.header.due = Due::In(Duration::MAX);
        assert_eq!(text(due_late), QUIET);
        let mut with_attribute = checkpoint();
        with_attribute.attributes = vec![("weight".to_owned(), AttributeValue::Number(1.5))];
        assert_eq!(text(with_attribute), OWN);
        let mut with_event = checkpoint();
        with_event.events = vec![NewEvent::new("packed", "A-1")];
        assert_eq!(text(with_event), WHOLE);
        let mut ended = checkpoint();
        ended.header.status = WorkflowStatus::Complete;
        ended.applied = vec![latchwork_core::store::InboxId(1)];
        assert_eq!(text(ended), QUIET);
    }
}
