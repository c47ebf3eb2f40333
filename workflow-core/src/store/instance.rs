use super::{Activity, CheckpointId, InboxRow, InstanceId, PointerId, PointerRecord, Revision, Subscription};
use crate::{clock::Timestamp, queue::WorkItem};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// JSON text, encoded once and shared without a copy. Data that an engine stores compressed is another text, which begins with `gz:` as no
/// JSON does; to a store both are opaque text.
#[derive(Clone, PartialEq, Eq)]
pub struct Encoded(Arc<str>);

impl Encoded {
    /// Wraps JSON text. That it is JSON is the caller's promise.
    pub fn from_json(json: impl Into<Arc<str>>) -> Self {
        Self(json.into())
    }

    /// Encodes a value.
    ///
    /// # Errors
    /// What its `Serialize` says.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|json| Self(json.into()))
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Encoded {
    /// Shows the length only: data may be confidential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoded({} bytes)", self.0.len())
    }
}

/// Where an instance stands. Stored by its [`as_str`](Self::as_str).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkflowStatus {
    /// Has, or waits for, something to do.
    Runnable,
    /// Does nothing until it is resumed.
    Suspended,
    /// Ended as its definition says. Final.
    Complete,
    /// Ended early, by a call or an error; the reason says which. Final.
    Terminated,
}

impl WorkflowStatus {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Runnable, Self::Suspended, Self::Complete, Self::Terminated];

    /// Whether it is final.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Complete | Self::Terminated)
    }

    /// The name that stores keep.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runnable => "runnable",
            Self::Suspended => "suspended",
            Self::Complete => "complete",
            Self::Terminated => "terminated",
        }
    }

    /// The status of this stored name.
    #[must_use]
    pub fn from_stored(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

impl fmt::Display for WorkflowStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A value of a declared attribute, which queries can filter on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttributeValue {
    /// Text, compared byte by byte.
    Text(String),
    /// A number.
    Number(f64),
    /// A point in time.
    Time(Timestamp),
}

/// The pointer of another instance that waits for this one to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentLink {
    /// The parent instance.
    pub instance: InstanceId,
    /// Its pointer that waits.
    pub pointer: PointerId,
}

/// An instance to be created.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewInstance {
    /// Drawn by the engine before the first try, so that a repeated create is a no-op.
    pub id: InstanceId,
    /// Its definition.
    pub definition: Arc<str>,
    /// The definition's version, to which it is pinned.
    pub version: u32,
    /// The fingerprint of the definition's shape.
    pub fingerprint: Arc<str>,
    /// At most one instance per definition id has it, over all versions and states.
    pub business_key: Option<String>,
    /// A text of the user's to search by; need not be unique.
    pub reference: Option<String>,
    /// The pointer that waits for its end.
    pub parent: Option<ParentLink>,
    /// Its data.
    pub data: Encoded,
    /// Its declared attributes.
    pub attributes: Vec<(String, AttributeValue)>,
}

impl NewInstance {
    /// An instance of this definition with this data.
    pub fn new(definition: impl Into<Arc<str>>, version: u32, fingerprint: impl Into<Arc<str>>, data: Encoded) -> Self {
        Self {
            id: InstanceId::new(),
            definition: definition.into(),
            version,
            fingerprint: fingerprint.into(),
            business_key: None,
            reference: None,
            parent: None,
            data,
            attributes: Vec::new(),
        }
    }

    /// With this id.
    #[must_use]
    pub fn with_id(mut self, id: InstanceId) -> Self {
        self.id = id;
        self
    }

    /// With a business key.
    #[must_use]
    pub fn with_business_key(mut self, key: impl Into<String>) -> Self {
        self.business_key = Some(key.into());
        self
    }

    /// With a reference.
    #[must_use]
    pub fn with_reference(mut self, reference: impl Into<String>) -> Self {
        self.reference = Some(reference.into());
        self
    }

    /// With a parent that waits for its end.
    #[must_use]
    pub fn with_parent(mut self, parent: ParentLink) -> Self {
        self.parent = Some(parent);
        self
    }

    /// With a declared attribute.
    #[must_use]
    pub fn with_attribute(mut self, name: impl Into<String>, value: AttributeValue) -> Self {
        self.attributes.push((name.into(), value));
        self
    }

    /// The hint for it.
    #[must_use]
    pub fn work_item(&self) -> WorkItem {
        WorkItem::new(self.id.clone(), self.definition.clone(), self.version)
    }
}

/// What became of a create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateOutcome {
    /// It is there, by this call or by an earlier try of the same id.
    Created,
    /// Another instance has its business key, or had it and left a tombstone.
    Exists {
        /// That instance.
        instance: InstanceId,
        /// Where it stands.
        status: WorkflowStatus,
    },
}

/// What is known of an instance beside its data. The first part never changes; the second is written by checkpoints only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceHeader {
    /// The instance.
    pub id: InstanceId,
    /// Its definition.
    pub definition: Arc<str>,
    /// The definition's version.
    pub version: u32,
    /// The fingerprint of the definition's shape.
    pub fingerprint: Arc<str>,
    /// Its business key.
    pub business_key: Option<String>,
    /// The user's reference.
    pub reference: Option<String>,
    /// The pointer that waits for its end.
    pub parent: Option<ParentLink>,
    /// When it was created, by the store's clock.
    pub created: Timestamp,

    /// Where it stands.
    pub status: WorkflowStatus,
    /// Why, where the status was not reached in the ordinary way.
    pub reason: Option<String>,
    /// When it next has something to do by itself; `None` while it waits for others.
    pub due: Option<Timestamp>,
    /// Bursts in a row that failed for reasons of the instance's own.
    pub fault_count: u32,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// The number of checkpoints.
    pub revision: Revision,
    /// The last checkpoint's id; `None` before the first.
    pub writer: Option<CheckpointId>,
}

impl InstanceHeader {
    /// The hint for it.
    #[must_use]
    pub fn work_item(&self) -> WorkItem {
        WorkItem::new(self.id.clone(), self.definition.clone(), self.version)
    }
}

/// The open part of an instance: what a burst needs.
#[derive(Clone, Debug)]
pub struct LoadedInstance {
    /// The header.
    pub header: InstanceHeader,
    /// The data.
    pub data: Encoded,
    /// The open pointers, in order of their sequence. None at all for an instance that never ran.
    pub pointers: Vec<PointerRecord>,
    /// The highest sequence of any pointer, open or not; 0 when there was none yet.
    pub last_sequence: i64,
    /// The open waits for events.
    pub subscriptions: Vec<Subscription>,
    /// The open activities.
    pub activities: Vec<Activity>,
    /// The visible inbox rows, in order of their ids; events of one name and key in order of (event time, number).
    pub inbox: Vec<InboxRow>,
    /// The store's time at the load.
    pub now: Timestamp,
}
