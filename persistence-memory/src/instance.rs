//! One instance as it is kept, and the matching of events to its waits.

use crate::{
    channel::{Channel, EventKey, StoredEvent},
    small_map::SmallMap,
};
use latchwork_core::{
    clock::Timestamp,
    limits::ERRORS_PER_INSTANCE,
    queue::WorkItem,
    store::{
        Activity, AttributeValue, Checkpoint, CheckpointId, Control, Due, Encoded, ErrorRecord, EventId, InboxId, InboxMessage,
        InboxRow, InstanceHeader, InstanceId, LoadedInstance, NewInstance, ParentLink, PointerRecord, Revision, Subscription,
        SubscriptionId, WorkflowStatus,
    },
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

/// A definition's version, numbered, so that an instance refers to it in one word.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) number: usize,
    pub(crate) definition: Arc<str>,
    pub(crate) version: u32,
}

/// An inbox row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: InboxId,
    /// From when on it is seen: its own time, for an event the later of that and the event's.
    pub(crate) visible: Timestamp,
    pub(crate) body: RowBody,
}

#[derive(Debug)]
pub(crate) enum RowBody {
    Event {
        subscription: SubscriptionId,
        slot: Arc<str>,
        /// Shared with the channel, which thereby sees that the event stands in an inbox.
        event: Arc<StoredEvent>,
    },
    Control(Control),
}

/// An open wait, with the row of the event that was matched to it.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) subscription: Subscription,
    pub(crate) matched: Option<InboxId>,
}

/// What a wait slot has had.
#[derive(Debug, Default)]
struct Slot {
    /// The events that are not to be matched to it again; `true` for consumed ones, `false` for those in the inbox.
    taken: BTreeMap<EventId, bool>,
    /// How far the search for the next event needs not look again.
    searched: Option<Searched>,
}

/// Of this channel, in this state, every event from `from` up to `upto` is consumed.
#[derive(Clone, Copy, Debug)]
struct Searched {
    channel: u64,
    disorder: u64,
    from: Timestamp,
    upto: EventKey,
}

/// What most instances do not have: a sleeping one should weigh little.
#[derive(Debug, Default)]
struct Rare {
    reference: Option<String>,
    parent: Option<ParentLink>,
    /// By name.
    attributes: Vec<(String, AttributeValue)>,
    slots: BTreeMap<Arc<str>, Slot>,
    errors: VecDeque<ErrorRecord>,
}

/// An instance with all that belongs to it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    pub(crate) kind: Arc<Kind>,
    pub(crate) fingerprint: Arc<str>,
    pub(crate) business_key: Option<Box<str>>,
    pub(crate) created: Timestamp,

    pub(crate) status: WorkflowStatus,
    reason: Option<Box<str>>,
    pub(crate) due: Option<Timestamp>,
    pub(crate) fault_count: u32,
    pub(crate) ended: Option<Timestamp>,
    pub(crate) revision: Revision,
    /// Means nothing before the first checkpoint.
    writer: CheckpointId,

    pub(crate) data: Encoded,
    /// By sequence.
    open: SmallMap<i64, PointerRecord>,
    /// By sequence.
    finished: SmallMap<i64, PointerRecord>,
    last_sequence: i64,
    pub(crate) waits: SmallMap<SubscriptionId, Wait>,
    pub(crate) activities: SmallMap<SubscriptionId, Activity>,
    /// In order of their ids.
    pub(crate) inbox: Vec<Row>,
    rare: Option<Box<Rare>>,

    /// Where the index of runnable instances has it.
    pub(crate) indexed: Option<Timestamp>,
}

impl Instance {
    pub(crate) fn new(new: NewInstance, kind: Arc<Kind>, now: Timestamp) -> Self {
        let mut instance = Self {
            id: new.id,
            kind,
            fingerprint: new.fingerprint,
            business_key: new.business_key.map(String::into_boxed_str),
            created: now,
            status: WorkflowStatus::Runnable,
            reason: None,
            due: Some(now),
            fault_count: 0,
            ended: None,
            revision: Revision::FIRST,
            writer: CheckpointId { burst: 0, number: 0 },
            data: new.data,
            open: SmallMap::default(),
            finished: SmallMap::default(),
            last_sequence: 0,
            waits: SmallMap::default(),
            activities: SmallMap::default(),
            inbox: Vec::new(),
            rare: None,
            indexed: None,
        };
        instance.set_attributes(new.attributes);
        if new.reference.is_some() || new.parent.is_some() {
            let rare = instance.rare.get_or_insert_default();
            rare.reference = new.reference;
            rare.parent = new.parent;
        }
        instance
    }

    /// The user's reference.
    pub(crate) fn reference(&self) -> Option<&str> {
        self.rare.as_ref()?.reference.as_deref()
    }

    /// The pointer that waits for the end.
    pub(crate) fn parent(&self) -> Option<&ParentLink> {
        self.rare.as_ref()?.parent.as_ref()
    }

    /// The attributes, by name.
    pub(crate) fn attributes(&self) -> &[(String, AttributeValue)] {
        self.rare.as_ref().map(|rare| rare.attributes.as_slice()).unwrap_or_default()
    }

    /// The last checkpoint's id.
    pub(crate) fn writer(&self) -> Option<CheckpointId> {
        (self.revision != Revision::FIRST).then_some(self.writer)
    }

    pub(crate) fn work_item(&self) -> WorkItem {
        WorkItem::new(self.id.clone(), self.kind.definition.clone(), self.kind.version)
    }

    pub(crate) fn header(&self) -> InstanceHeader {
        InstanceHeader {
            id: self.id.clone(),
            definition: self.kind.definition.clone(),
            version: self.kind.version,
            fingerprint: self.fingerprint.clone(),
            business_key: self.business_key.as_deref().map(str::to_owned),
            reference: self.reference().map(str::to_owned),
            parent: self.parent().cloned(),
            created: self.created,
            status: self.status,
            reason: self.reason.as_deref().map(str::to_owned),
            due: self.due,
            fault_count: self.fault_count,
            ended: self.ended,
            revision: self.revision,
            writer: self.writer(),
        }
    }

    pub(crate) fn load(&self, now: Timestamp) -> LoadedInstance {
        let mut subscriptions: Vec<_> = self.waits.values().map(|wait| wait.subscription.clone()).collect();
        subscriptions.sort_by_key(|subscription| subscription.sequence);
        LoadedInstance {
            header: self.header(),
            data: self.data.clone(),
            pointers: self.open.values().cloned().collect(),
            last_sequence: self.last_sequence,
            subscriptions,
            activities: self.activities.values().cloned().collect(),
            inbox: self.visible_inbox(now),
            now,
        }
    }

    /// The errors kept, oldest first.
    pub(crate) fn errors(&self) -> Vec<ErrorRecord> {
        self.rare.iter().flat_map(|rare| rare.errors.iter().cloned()).collect()
    }

    /// The finished pointers of a scope, by sequence.
    pub(crate) fn scope(&self, scope: latchwork_core::store::PointerId) -> Vec<PointerRecord> {
        self.finished.values().filter(|pointer| pointer.scope == Some(scope)).cloned().collect()
    }

    /// Up to `limit` pointers after this sequence number, open and finished.
    pub(crate) fn history(&self, after: i64, limit: usize) -> Vec<PointerRecord> {
        let Some(first) = after.checked_add(1) else { return Vec::new() };
        let mut open = self.open.from(&first).peekable();
        let mut finished = self.finished.from(&first).peekable();
        let mut page = Vec::new();
        while page.len() < limit {
            let open_is_next = match (open.peek(), finished.peek()) {
                (Some((open, _)), Some((finished, _))) => open < finished,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => break,
            };
            let next = if open_is_next { open.next() } else { finished.next() };
            page.extend(next.map(|(_, pointer)| pointer.clone()));
        }
        page
    }

    /// The rows that can be seen, in order of their ids, those of one channel in the order of their events.
    pub(crate) fn visible_inbox(&self, now: Timestamp) -> Vec<InboxRow> {
        if self.inbox.is_empty() {
            return Vec::new();
        }
        let mut rows: Vec<&Row> = self.inbox.iter().filter(|row| row.visible <= now).collect();
        let mut channels: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (place, row) in rows.iter().enumerate() {
            if let RowBody::Event { event, .. } = &row.body {
                channels.entry(event.channel).or_default().push(place);
            }
        }
        for places in channels.into_values().filter(|places| places.len() > 1) {
            let mut of_channel: Vec<&Row> = places.iter().filter_map(|place| rows.get(*place).copied()).collect();
            of_channel.sort_by_key(|row| match &row.body {
                RowBody::Event { event, .. } => (Some(event.key()), row.id),
                RowBody::Control(_) => (None, row.id),
            });
            for (place, row) in places.into_iter().zip(of_channel) {
                if let Some(to) = rows.get_mut(place) {
                    *to = row;
                }
            }
        }
        rows.into_iter().map(Row::to_core).collect()
    }

    /// Whether such an event stands in the inbox, visible.
    pub(crate) fn holds_visible(&self, now: Timestamp, mut which: impl FnMut(&EventId) -> bool) -> bool {
        let visible = self.inbox.iter().filter(|row| row.visible <= now);
        visible.into_iter().any(|row| matches!(&row.body, RowBody::Event { event, .. } if which(&event.id)))
    }

    /// The earliest moment from which the instance has something to do.
    pub(crate) fn runnable_from(&self) -> Option<Timestamp> {
        if self.status.is_terminal() {
            return None;
        }
        let runnable = self.status == WorkflowStatus::Runnable;
        let rows = self.inbox.iter().filter(|row| runnable || matches!(row.body, RowBody::Control(_))).map(|row| row.visible);
        rows.chain(self.due.filter(|_| runnable)).min()
    }

    /// Whether the checkpoint can be written without the channels: it neither ends nor begins a wait or an activity.
    pub(crate) fn is_alone(&self, checkpoint: &Checkpoint) -> bool {
        let ends = checkpoint.header.status.is_terminal() && !(self.waits.is_empty() && self.activities.is_empty());
        let is_event = |id: &InboxId| {
            let row = self.inbox.binary_search_by_key(id, |row| row.id).ok().and_then(|at| self.inbox.get(at));
            row.is_some_and(|row| matches!(row.body, RowBody::Event { .. }))
        };
        !ends && !checkpoint.applied.iter().any(is_event)
    }

    /// Writes header, data, pointers, errors and attributes, and takes the applied rows out. `rest` is the rest of the
    /// checkpoint. Gives back the waits that lost their row by it, each with the event when that was not consumed.
    pub(crate) fn write(&mut self, checkpoint: &mut Checkpoint, now: Timestamp) -> Vec<(Subscription, Option<Arc<StoredEvent>>)> {
        let header = &mut checkpoint.header;
        self.status = header.status;
        self.reason = header.reason.take().map(String::into_boxed_str);
        self.fault_count = header.fault_count;
        self.due = match header.due {
            _ if header.status.is_terminal() => None,
            Due::Keep => self.due,
            Due::In(span) => Some(latchwork_core::clock::add(now, span)),
            Due::At(time) => Some(latchwork_core::clock::whole_micros(time)),
            Due::Never => None,
        };
        self.revision = self.revision.next();
        self.writer = checkpoint.id;
        if let Some(data) = checkpoint.data.take() {
            self.data = data;
        }
        for pointer in checkpoint.pointers.drain(..) {
            self.write_pointer(pointer);
        }
        for error in checkpoint.errors.drain(..) {
            let errors = &mut self.rare.get_or_insert_default().errors;
            if errors.len() == ERRORS_PER_INSTANCE {
                errors.pop_front();
            }
            errors.push_back(error);
        }
        self.set_attributes(std::mem::take(&mut checkpoint.attributes));
        let mut bare = Vec::new();
        for row in checkpoint.applied.drain(..) {
            let Some((wait, event)) = self.take_row(row).and_then(|row| self.forget_match(&row)) else { continue };
            bare.extend(self.waits.get(&wait).map(|wait| (wait.subscription.clone(), Some(event))));
        }
        for consumed in checkpoint.consumed.drain(..) {
            self.rare.get_or_insert_default().slots.entry(consumed.slot).or_default().taken.insert(consumed.event, true);
        }
        for (subscription, event) in &mut bare {
            let slot = self.slot(&subscription.slot);
            *event = event.take().filter(|event| slot.is_none_or(|slot| !slot.taken.contains_key(&event.id)));
        }
        if self.status.is_terminal() {
            self.ended = Some(now);
            self.inbox = Vec::new();
            if let Some(rare) = &mut self.rare {
                rare.slots.clear();
            }
        }
        bare
    }

    fn write_pointer(&mut self, pointer: PointerRecord) {
        let sequence = pointer.sequence;
        let known = sequence <= self.last_sequence;
        self.last_sequence = self.last_sequence.max(sequence);
        if pointer.status.is_open() {
            if known {
                self.finished.remove(&sequence);
            }
            self.open.insert(sequence, pointer);
        } else {
            if known {
                self.open.remove(&sequence);
            }
            self.finished.insert(sequence, pointer);
        }
    }

    fn set_attributes(&mut self, attributes: Vec<(String, AttributeValue)>) {
        for (name, value) in attributes {
            let known = &mut self.rare.get_or_insert_default().attributes;
            match known.binary_search_by(|(known, _)| known.cmp(&name)) {
                Ok(at) => {
                    if let Some(attribute) = known.get_mut(at) {
                        attribute.1 = value;
                    }
                }
                Err(at) => known.insert(at, (name, value)),
            }
        }
    }

    /// Appends a control message.
    pub(crate) fn append(&mut self, control: Control, now: Timestamp, ids: &RowIds) {
        self.inbox.push(Row { id: ids.next(), visible: now, body: RowBody::Control(control) });
    }

    fn take_row(&mut self, id: InboxId) -> Option<Row> {
        let at = self.inbox.binary_search_by_key(&id, |row| row.id).ok()?;
        Some(self.inbox.remove(at))
    }

    /// After a row was taken out: frees its event for the slot, unless it was consumed, and its wait.
    fn forget_match(&mut self, row: &Row) -> Option<(SubscriptionId, Arc<StoredEvent>)> {
        let RowBody::Event { subscription, slot, event } = &row.body else { return None };
        if let Some(slot) = self.slot_mut(slot)
            && slot.taken.get(&event.id) == Some(&false)
        {
            slot.taken.remove(&event.id);
        }
        let wait = self.waits.get_mut(subscription)?;
        if wait.matched == Some(row.id) {
            wait.matched = None;
        }
        Some((*subscription, event.clone()))
    }

    /// Takes the match of a wait back; gives the event that it had.
    pub(crate) fn unmatch(&mut self, wait: SubscriptionId) -> Option<Arc<StoredEvent>> {
        let row = self.waits.get(&wait)?.matched?;
        let row = self.take_row(row)?;
        self.forget_match(&row).map(|(_, event)| event)
    }

    fn match_to(&mut self, wait: SubscriptionId, event: &Arc<StoredEvent>, now: Timestamp, ids: &RowIds) {
        let Some(wait) = self.waits.get_mut(&wait) else { return };
        let (subscription, slot) = (wait.subscription.id, wait.subscription.slot.clone());
        let id = ids.next();
        wait.matched = Some(id);
        self.rare.get_or_insert_default().slots.entry(slot.clone()).or_default().taken.insert(event.id.clone(), false);
        let body = RowBody::Event { subscription, slot, event: event.clone() };
        self.inbox.push(Row { id, visible: now.max(event.time), body });
    }

    fn slot(&self, name: &str) -> Option<&Slot> {
        self.rare.as_ref()?.slots.get(name)
    }

    fn slot_mut(&mut self, name: &str) -> Option<&mut Slot> {
        self.rare.as_mut()?.slots.get_mut(name)
    }

    fn event_of(&self, wait: &Wait) -> Option<&Arc<StoredEvent>> {
        let at = self.inbox.binary_search_by_key(&wait.matched?, |row| row.id).ok()?;
        match &self.inbox.get(at)?.body {
            RowBody::Event { event, .. } => Some(event),
            RowBody::Control(_) => None,
        }
    }

    /// Offers an event to the waits of one slot and channel, which are given oldest first: the first that is free takes it, or
    /// changes a later, still future one for it, which is then offered in its turn.
    pub(crate) fn offer(&mut self, waits: &[SubscriptionId], event: &Arc<StoredEvent>, now: Timestamp, ids: &RowIds) {
        let mut candidate = event.clone();
        loop {
            let mut taker = None;
            for id in waits {
                let Some(wait) = self.waits.get(id) else { continue };
                if candidate.time < wait.subscription.as_of {
                    continue;
                }
                if self.slot(&wait.subscription.slot).is_some_and(|slot| slot.taken.contains_key(&candidate.id)) {
                    return;
                }
                let gives_way = |matched: &Arc<StoredEvent>| matched.time > now && candidate.key() < matched.key();
                if wait.matched.is_none() || self.event_of(wait).is_some_and(gives_way) {
                    taker = Some(*id);
                    break;
                }
            }
            let Some(taker) = taker else { return };
            let displaced = self.unmatch(taker);
            self.match_to(taker, &candidate, now, ids);
            match displaced {
                Some(event) => candidate = event,
                None => return,
            }
        }
    }

    /// Gives a free wait the earliest event of the channel that its slot has not had.
    pub(crate) fn seek(&mut self, wait: SubscriptionId, channel: &Channel, now: Timestamp, ids: &RowIds) {
        let Some(open) = self.waits.get(&wait).filter(|wait| wait.matched.is_none()) else { return };
        let (slot_name, as_of) = (open.subscription.slot.clone(), open.subscription.as_of);
        let slot = self.slot(&slot_name);
        let known = slot.and_then(|slot| slot.searched).filter(|searched| {
            let same = searched.channel == channel.number && searched.disorder == channel.disorder;
            same && searched.from <= as_of && as_of <= searched.upto.0
        });
        let first = known.map_or((as_of, 0), |searched| (searched.upto.0, searched.upto.1.saturating_add(1)));
        let (mut upto, mut unbroken, mut found) = (known.map(|searched| searched.upto), true, None);
        for (key, event) in channel.events.range(first..) {
            match slot.and_then(|slot| slot.taken.get(&event.id)) {
                Some(true) if unbroken => upto = Some(*key),
                Some(_) => unbroken = false,
                None => {
                    found = Some(event.clone());
                    break;
                }
            }
        }
        if let Some(upto) = upto
            && let Some(slot) = self.slot_mut(&slot_name)
        {
            let from = known.map_or(as_of, |searched| searched.from);
            slot.searched = Some(Searched { channel: channel.number, disorder: channel.disorder, from, upto });
        }
        if let Some(event) = found {
            self.match_to(wait, &event, now, ids);
        }
    }

    /// The waits of the same channel and slot as this subscription, oldest first.
    pub(crate) fn waits_like(&self, like: &Subscription) -> Vec<SubscriptionId> {
        let same = |other: &&Subscription| other.slot == like.slot && other.name == like.name && other.key == like.key;
        let mut waits: Vec<_> =
            self.waits.values().map(|wait| &wait.subscription).filter(same).map(|other| (other.sequence, other.id)).collect();
        waits.sort_unstable();
        waits.into_iter().map(|(_, id)| id).collect()
    }
}

impl Row {
    fn to_core(&self) -> InboxRow {
        let message = match &self.body {
            RowBody::Event { subscription, slot, event } => InboxMessage::Event {
                subscription: *subscription,
                slot: slot.clone(),
                event: event.id.clone(),
                time: event.time,
                data: event.data.clone(),
            },
            RowBody::Control(control) => InboxMessage::Control(control.clone()),
        };
        InboxRow { id: self.id, message }
    }
}

/// Draws the ids of inbox rows. Those of one instance are drawn under its lock, so they ascend in its inbox.
#[derive(Debug, Default)]
pub(crate) struct RowIds(AtomicI64);

impl RowIds {
    pub(crate) fn next(&self) -> InboxId {
        InboxId(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
