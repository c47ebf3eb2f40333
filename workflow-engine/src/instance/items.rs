//! Collections: a branch for each item, so many at a time.

use super::{
    Instance,
    flow::pointer_id,
    pointer::{COLLECTION, Collection},
};
use crate::{
    data::AnyData,
    definition::NodeKind,
    error::{StepError, StepResult},
};
use latchwork_core::{
    clock::Timestamp,
    store::{Encoded, Place, PointerId, PointerRecord, PointerStatus},
};
use serde_json::Value;
use std::sync::Arc;

impl Instance {
    /// Begins to run a branch for each item.
    pub(super) fn begin_items(&mut self, id: PointerId, items: Vec<Arc<AnyData>>, encoded: Encoded, after: u64, now: Timestamp) {
        let Some(pointer) = self.pointers.get_mut(&id) else { return };
        if items.is_empty() {
            return self.finish(id, after, now);
        }
        let limit = self.rules.data_limit;
        if encoded.as_str().len() > limit {
            let error = format!(
                "the collection has {} bytes of JSON, the limit is {limit} (option `data_limit`)",
                encoded.as_str().len()
            );
            return self.give_up(id, &StepError::permanent(error), now);
        }
        self.last_sequence += 1;
        let mut record =
            PointerRecord::new(pointer_id(Some(id), "items", Place::default()), self.last_sequence, pointer.record.step.clone());
        record.status = PointerStatus::WaitingForChildren;
        record.parent = Some(id);
        record.place.branch = COLLECTION;
        record.state = Some(encoded);
        pointer.collection = Some(Collection { record, items: items.into(), dirty: true });
        pointer.state.next = 0;
        self.touch(id);
        self.open_items(id, after);
    }

    /// Opens branches for items up to the window.
    pub(super) fn open_items(&mut self, id: PointerId, after: u64) {
        let Some(node) = self.pointers.get(&id).map(|pointer| pointer.node) else { return };
        let (block, branch, window) = match &self.definition.node(node).kind {
            NodeKind::ForEach { body, window, .. } => (*body, 0, *window),
            NodeKind::Step(step) => match step.each {
                Some(each) => (each, u32::try_from(step.outcomes.len()).unwrap_or(COLLECTION - 1), crate::builder::WINDOW),
                None => return,
            },
            _ => return,
        };
        // Counted here: branches that are empty end later, and must not be opened all at once.
        let mut open = self.pointers.get(&id).map_or(0, |pointer| pointer.children);
        while open < window {
            let Some(pointer) = self.pointers.get_mut(&id) else { return };
            let total = pointer.collection.as_ref().map_or(0, |collection| collection.items.len() as u64);
            let next = pointer.state.next;
            if next >= total {
                return;
            }
            pointer.state.next += 1;
            self.touch(id);
            self.open_branch(id, block, branch, 0, Some(next), after);
            open += 1;
        }
    }
}

/// Values of `ExecutionResult::Branch` as items.
pub(super) fn values_as_items(values: Vec<Value>) -> StepResult<(Vec<Arc<AnyData>>, Encoded)> {
    let encoded = Encoded::of(&values)?;
    Ok((values.into_iter().map(|value| Arc::new(value) as Arc<AnyData>).collect(), encoded))
}
