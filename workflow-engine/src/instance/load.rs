use super::{
    Changes, Instance, Pointer, Rules,
    pointer::{COLLECTION, Collection, PointerState, Wait},
};
use crate::{
    compression::decompress,
    data::{DataType, Items},
    definition::{COMPENSATION, Definition, NodeKind},
};
use latchwork_core::{
    limits,
    store::{LoadedInstance, PointerRecord, PointerStatus},
};
use serde_json::Value;
use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    fmt::Display,
    sync::Arc,
};

/// What is stored cannot be read with the definition that is registered here. The instance is left for a node that can.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unreadable(String);

impl Instance {
    /// The instance as it was stored, with its inbox still to be applied.
    pub(crate) fn load(
        definition: Arc<Definition>,
        loaded: LoadedInstance,
        burst: u128,
        rules: Arc<Rules>,
    ) -> Result<Box<Self>, Unreadable> {
        let header = loaded.header;
        let stored = decompress(&loaded.data).map_err(|error| Unreadable(format!("its data cannot be read: {error}")))?;
        if !limits::json_depth_is_allowed(stored.as_str()) {
            return Err(Unreadable(format!("its data nests deeper than {} levels", limits::JSON_DEPTH)));
        }
        let data =
            (definition.data.decode)(stored.as_str()).map_err(|error| Unreadable(format!("its data cannot be read: {error}")))?;
        let fresh = loaded.pointers.is_empty() && loaded.last_sequence == 0;
        let mut instance = Box::new(Self {
            definition,
            id: header.id,
            reference: header.reference,
            business_key: header.business_key,
            status: header.status,
            reason: header.reason,
            parent: header.parent,
            created: header.created,
            revision: header.revision,
            fault_count: header.fault_count,
            held_for: 0,
            held_until: super::faults::held_until(header.fault_count, header.due, loaded.now),
            stored_due_has_come: header.due.is_some_and(|due| due <= loaded.now),
            rules,
            data,
            pointers: super::PointerMap::default(),
            last_sequence: loaded.last_sequence,
            ready: VecDeque::new(),
            blocked: Vec::new(),
            timers: BTreeSet::new(),
            waits: HashMap::new(),
            conditional: BTreeSet::new(),
            data_changed: false,
            cut: Vec::new(),
            undoing: BTreeSet::new(),
            running: 0,
            tasks: VecDeque::new(),
            leaves: 0,
            idle_jumps: 0,
            burst,
            next_number: 1,
            committed_number: 0,
            changes: Changes::default(),
            seen: HashSet::new(),
            happened: Vec::new(),
        });
        for record in loaded.pointers {
            instance.load_pointer(record)?;
        }
        instance.find_out_what_to_undo();
        for subscription in loaded.subscriptions {
            instance.waits.insert(subscription.id, subscription.pointer);
            if let Some(pointer) = instance.pointers.get_mut(&subscription.pointer) {
                pointer.wait = Some(Wait::Event(subscription.id));
            }
        }
        for activity in loaded.activities {
            instance.waits.insert(activity.id, activity.pointer);
            if let Some(pointer) = instance.pointers.get_mut(&activity.pointer) {
                pointer.wait = Some(Wait::Activity(activity.id));
            }
        }
        if fresh && !instance.status.is_terminal() {
            instance.start(loaded.now);
        }
        // That a body runs is not stored: whoever had the instance before may have died with it, also before the first checkpoint.
        for pointer in instance.pointers.values_mut() {
            pointer.may_have_run = pointer.record.status == PointerStatus::Ready;
        }
        Ok(instance)
    }

    /// Parents come before their children, and a collection right after its for-each, because records come by sequence.
    fn load_pointer(&mut self, mut record: PointerRecord) -> Result<(), Unreadable> {
        if record.place.branch == COLLECTION {
            return self.load_collection(record);
        }
        let Some(node) = self.definition.by_name.get(&record.step).copied() else {
            return Err(Unreadable(format!("its step `{}` is not in the definition", record.step)));
        };
        let state = match record.state.take() {
            Some(state) => {
                let unreadable =
                    |why: &dyn Display| Unreadable(format!("the state of its step `{}` cannot be read: {why}", record.step));
                let json = decompress(&state).map_err(|error| unreadable(&error))?;
                serde_json::from_str(json.as_str()).map_err(|error| unreadable(&error))?
            }
            None => PointerState::default(),
        };
        let items = match &state.items {
            Some(values) => self
                .items_of(node, values)
                .map_err(|error| Unreadable(format!("the items of its step `{}` cannot be read: {error}", record.step)))?,
            None => self.items_below(&record)?,
        };
        if let Some(parent) = record.parent.and_then(|parent| self.pointers.get_mut(&parent)) {
            parent.children += 1;
        }
        if let Some(due) = record.due.filter(|_| record.status.is_open()) {
            self.timers.insert((due, record.id));
        }
        if record.status == PointerStatus::Ready {
            self.ready.push_back(record.id);
        }
        let mut pointer = Pointer::new(record, node, items);
        pointer.state = state;
        let id = pointer.record.id;
        if pointer.state.child.is_some() && pointer.record.status == PointerStatus::WaitingForInstance {
            pointer.wait = Some(Wait::Child);
        }
        if self.definition.node(node).cancel.is_some() {
            self.conditional.insert(id);
        }
        self.pointers.insert(id, pointer);
        Ok(())
    }

    fn load_collection(&mut self, mut record: PointerRecord) -> Result<(), Unreadable> {
        let unreadable = |why: &str| Unreadable(format!("the collection of its step `{}` cannot be read: {why}", record.step));
        let owner =
            record.parent.and_then(|parent| self.pointers.get_mut(&parent)).ok_or_else(|| unreadable("it belongs to nothing"))?;
        let json = record.state.take().ok_or_else(|| unreadable("it is empty"))?;
        let json = decompress(&json).map_err(|error| unreadable(&error.to_string()))?;
        let item = match &self.definition.node(owner.node).kind {
            NodeKind::ForEach { item, .. } => *item,
            _ => DataType::of::<Value>(),
        };
        let items = super::guarded(|| Ok((item.decode_all)(json.as_str())?)).map_err(|error| unreadable(&error.to_string()))?;
        owner.collection = Some(Collection { record, items: items.into(), dirty: false });
        Ok(())
    }

    fn items_below(&self, record: &PointerRecord) -> Result<Items, Unreadable> {
        let Some(parent) = record.parent else { return Ok(Arc::new([])) };
        let missing = || Unreadable(format!("what is above its step `{}` is missing", record.step));
        let parent = self.pointers.get(&parent).ok_or_else(missing)?;
        let Some(item) = record.place.item.filter(|_| record.place.branch != COMPENSATION) else {
            return Ok(parent.items.clone());
        };
        let collection = parent.collection.as_ref().ok_or_else(missing)?;
        let item = usize::try_from(item).ok().and_then(|item| collection.items.get(item)).ok_or_else(missing)?;
        Ok(parent.items.iter().chain([item]).cloned().collect())
    }
}
