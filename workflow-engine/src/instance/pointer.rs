use crate::{
    body::Kept,
    data::{AnyData, Items},
    definition::NodeIndex,
};
use latchwork_core::clock::Timestamp;
use latchwork_core::store::{
    ActivityOutcome, InstanceId, PointerId, PointerRecord, PointerStatus, SubscriptionId, WorkflowStatus,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

/// The branch number of the record that holds a for-each's collection.
pub(super) const COLLECTION: u32 = u32::MAX;

/// An open pointer.
#[derive(Debug)]
pub(crate) struct Pointer {
    pub(crate) record: PointerRecord,
    pub(crate) node: NodeIndex,
    /// The items of the for-each loops around it.
    pub(crate) items: Items,
    pub(super) state: PointerState,
    /// What is left to be undone of a saga that has failed.
    pub(super) undo: Option<Undo>,
    /// The collection of a for-each, with the id and sequence of the record that holds it.
    pub(super) collection: Option<Collection>,
    /// What it waits for.
    pub(super) wait: Option<Wait>,
    /// Open pointers right below it.
    pub(super) children: usize,
    /// The checkpoint that must be committed before its body starts.
    pub(super) after: u64,
    /// `Instance::leaves` when the round of a loop began: a round that opens none cannot change anything.
    pub(super) progress_at: u64,
    pub(super) dirty: bool,
    pub(super) running: bool,
    /// It was ready when the instance was loaded: its body may have run on a node that went away.
    pub(super) may_have_run: bool,
}

#[derive(Debug)]
pub(super) struct Collection {
    pub(super) record: PointerRecord,
    pub(super) items: Arc<[Arc<AnyData>]>,
    pub(super) dirty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Event(SubscriptionId),
    Activity(SubscriptionId),
    Child,
}

/// What a saga that has failed needs to undo.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// Scopes still to be read from the store.
    pub(super) wanted: Vec<PointerId>,
    /// What is left, the next one last.
    pub(super) left: Vec<PointerRecord>,
    /// The sagas inside, each with the one around it.
    pub(super) inner: HashMap<PointerId, PointerId>,
}

impl Undo {
    /// Puts what is left in the order of the ends. A saga inside counts from the first end in it: its own compensation comes after those of
    /// its steps.
    pub(super) fn sort(&mut self) {
        let mut first_ends = HashMap::new();
        for record in &self.left {
            let mut saga = record.scope;
            while let Some(id) = saga {
                let first = first_ends.entry(id).or_insert(record.ended);
                *first = record.ended.min(*first);
                saga = self.inner.get(&id).copied();
            }
        }
        self.left.sort_by_key(|record| (record.ended.min(*first_ends.get(&record.id).unwrap_or(&record.ended)), record.sequence));
    }
}

/// What the store keeps of a pointer as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PointerState {
    /// What the body asked to keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<Arc<Value>>,
    /// The event that the body waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<Arc<Value>>,
    /// The activity result that the body waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) activity: Option<Arc<ActivityOutcome>>,
    /// How often it has waited: the next wait's number.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) waits: u64,
    /// The next item of a for-each, or the round of a loop.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) next: u64,
    /// When something recurring last ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tick: Option<Timestamp>,
    /// The attempt of a saga, from 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) attempt: u64,
    /// Why what was done is being undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    /// The items around it, where they cannot be found by what is above it: of what is, or may be, compensated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) items: Option<Vec<Value>>,
    /// The workflow that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) child: Option<InstanceId>,
    /// How that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) child_end: Option<Arc<ChildEnd>>,
}

/// How a workflow ended that another one waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChildEnd {
    pub(crate) status: WorkflowStatus,
    /// Its data, or the reason of its end.
    pub(crate) result: Value,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Pointer {
    pub(super) fn new(record: PointerRecord, node: NodeIndex, items: Items) -> Self {
        Self {
            record,
            node,
            items,
            state: PointerState::default(),
            undo: None,
            collection: None,
            wait: None,
            children: 0,
            after: 0,
            progress_at: u64::MAX,
            dirty: false,
            running: false,
            may_have_run: false,
        }
    }

    pub(super) fn can_run(&self) -> bool {
        self.record.status == PointerStatus::Ready && !self.running
    }

    /// What its body is given of earlier runs.
    pub(crate) fn kept(&self) -> Kept {
        Kept {
            state: self.state.kept.clone(),
            event: self.state.event.clone(),
            activity: self.state.activity.clone(),
            child: self.state.child_end.clone(),
        }
    }
}

/// Open pointers by id. Ids are digests already, so hashing them again would be wasted.
pub(crate) type PointerMap = HashMap<PointerId, Pointer, BuildHasherDefault<TakesDigest>>;

#[derive(Debug, Default)]
pub(crate) struct TakesDigest(u64);

impl Hasher for TakesDigest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }
}
