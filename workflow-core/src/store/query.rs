use super::{AttributeValue, Encoded, InstanceHeader, InstanceId, Revision, WorkflowStatus};
use crate::{clock::Timestamp, queue::WorkItem};
use std::{sync::Arc, time::Duration};

/// Which instances have something to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunnableQuery {
    /// The (definition, version) pairs that the caller knows; others are left.
    pub known: Arc<[(Arc<str>, u32)]>,
    /// What falls due within this time from now counts too.
    pub horizon: Duration,
    /// Start after this one, which was the last of the page before.
    pub after: Option<(Timestamp, InstanceId)>,
    /// At most so many.
    pub limit: usize,
}

impl RunnableQuery {
    /// The first page of what is due now.
    pub fn new(known: impl Into<Arc<[(Arc<str>, u32)]>>, limit: usize) -> Self {
        Self { known: known.into(), horizon: Duration::ZERO, after: None, limit }
    }

    /// With what falls due within this time.
    #[must_use]
    pub fn with_horizon(mut self, horizon: Duration) -> Self {
        self.horizon = horizon;
        self
    }

    /// The page after this item.
    #[must_use]
    pub fn after(mut self, due: Timestamp, instance: InstanceId) -> Self {
        self.after = Some((due, instance));
        self
    }
}

/// An instance that has, or will soon have, something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnableItem {
    /// The hint for it.
    pub item: WorkItem,
    /// Since when, or when; the earliest of its due time and the visible times of its unread inbox rows that count.
    pub due: Timestamp,
}

/// A page of [`RunnableItem`]s, ordered by (due, instance id).
#[derive(Clone, Debug)]
pub struct RunnablePage {
    /// The items. Fewer than the limit: there are no more.
    pub items: Vec<RunnableItem>,
    /// The store's time.
    pub now: Timestamp,
}

/// How the value of an attribute is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Equal.
    Equal,
    /// At least.
    AtLeast,
    /// At most.
    AtMost,
}

/// A condition on a declared attribute. Values of another type than the stored one never match.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeFilter {
    /// The attribute.
    pub name: String,
    /// How.
    pub comparison: Comparison,
    /// With what.
    pub value: AttributeValue,
}

/// Which instances to list. All conditions hold together; the empty query lists all.
///
/// The order is that of the ids, which is that of creation as far as the clocks of those who drew them agree. The cursor is an id, so it stays
/// good while instances come and go, its own included: none is listed twice, and each that is there from the first page to the last is
/// listed once. One that comes meanwhile is on a later page, unless its id was drawn before that of the cursor.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct InstanceQuery {
    /// In one of these statuses; any when empty.
    pub statuses: Vec<WorkflowStatus>,
    /// Of this definition.
    pub definition: Option<String>,
    /// Of this version.
    pub version: Option<u32>,
    /// With this reference.
    pub reference: Option<String>,
    /// With this business key.
    pub business_key: Option<String>,
    /// Children of this instance.
    pub parent: Option<InstanceId>,
    /// Created at or after.
    pub created_from: Option<Timestamp>,
    /// Created before.
    pub created_before: Option<Timestamp>,
    /// Ended at or after. Open instances never match.
    pub ended_from: Option<Timestamp>,
    /// Ended before. Open instances never match.
    pub ended_before: Option<Timestamp>,
    /// With at least so many [bursts in a row that failed](InstanceHeader::fault_count); 0 as `None`.
    pub faults: Option<u32>,
    /// Conditions on attributes.
    pub attributes: Vec<AttributeFilter>,
    /// This text stands in the reference or in a text attribute, compared byte by byte.
    pub text: Option<String>,
    /// Newest first instead of oldest first.
    pub newest_first: bool,
    /// Start after this instance, which was the last of the page before.
    pub after: Option<InstanceId>,
    /// At most so many, 1 to 1,000; 0 means 100.
    pub limit: usize,
}

impl InstanceQuery {
    /// All instances.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only in one of these statuses.
    #[must_use]
    pub fn with_status(mut self, statuses: impl IntoIterator<Item = WorkflowStatus>) -> Self {
        self.statuses = statuses.into_iter().collect();
        self
    }

    /// Only of this definition.
    #[must_use]
    pub fn with_definition(mut self, definition: impl Into<String>) -> Self {
        self.definition = Some(definition.into());
        self
    }

    /// Only with this reference.
    #[must_use]
    pub fn with_reference(mut self, reference: impl Into<String>) -> Self {
        self.reference = Some(reference.into());
        self
    }

    /// Only with this business key.
    #[must_use]
    pub fn with_business_key(mut self, key: impl Into<String>) -> Self {
        self.business_key = Some(key.into());
        self
    }

    /// Only of this version of the definition.
    #[must_use]
    pub fn with_version(mut self, version: u32) -> Self {
        self.version = Some(version);
        self
    }

    /// Only children of this instance.
    #[must_use]
    pub fn with_parent(mut self, parent: InstanceId) -> Self {
        self.parent = Some(parent);
        self
    }

    /// Only created in this time, its end not included; a `None` leaves that side open.
    #[must_use]
    pub fn with_created(mut self, from: impl Into<Option<Timestamp>>, before: impl Into<Option<Timestamp>>) -> Self {
        (self.created_from, self.created_before) = (from.into(), before.into());
        self
    }

    /// Only ended in this time, its end not included; a `None` leaves that side open.
    #[must_use]
    pub fn with_ended(mut self, from: impl Into<Option<Timestamp>>, before: impl Into<Option<Timestamp>>) -> Self {
        (self.ended_from, self.ended_before) = (from.into(), before.into());
        self
    }

    /// Only those with at least so many [bursts in a row that failed](InstanceHeader::fault_count): the stuck ones.
    #[must_use]
    pub fn with_faults(mut self, at_least: u32) -> Self {
        self.faults = Some(at_least);
        self
    }

    /// Only those whose attribute compares so.
    #[must_use]
    pub fn with_attribute(mut self, name: impl Into<String>, comparison: Comparison, value: AttributeValue) -> Self {
        self.attributes.push(AttributeFilter { name: name.into(), comparison, value });
        self
    }

    /// Only those with this text in the reference or in a text attribute.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// The newest first.
    #[must_use]
    pub fn newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    /// At most so many.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// After this instance.
    #[must_use]
    pub fn after(mut self, instance: InstanceId) -> Self {
        self.after = Some(instance);
        self
    }

    /// The limit as stores apply it.
    #[must_use]
    pub fn effective_limit(&self) -> usize {
        if self.limit == 0 { 100 } else { self.limit.min(1_000) }
    }
}

/// One row of a list of instances.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceSummary {
    /// Its header.
    pub header: InstanceHeader,
    /// Its declared attributes, by name.
    pub attributes: Vec<(String, AttributeValue)>,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Whether there are more after the last of them.
    pub more: bool,
}

/// What is left of a deleted instance, for the key retention.
#[derive(Clone, Debug, PartialEq)]
pub struct Tombstone {
    /// The instance.
    pub id: InstanceId,
    /// Its definition.
    pub definition: Arc<str>,
    /// Its business key.
    pub business_key: Option<String>,
    /// How it ended.
    pub status: WorkflowStatus,
    /// When it ended.
    pub ended: Timestamp,
    /// Its data at the end, when it had no more than [`TOMBSTONE_RESULT_BYTES`](crate::limits::TOMBSTONE_RESULT_BYTES).
    pub result: Option<Encoded>,
}

/// What a store knows under an id.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "an instance is the usual answer, and lives for one call")]
pub enum InstanceRecord {
    /// The instance.
    Instance {
        /// Its header.
        header: InstanceHeader,
        /// Its data.
        data: Encoded,
        /// Its declared attributes, by name.
        attributes: Vec<(String, AttributeValue)>,
    },
    /// It was deleted.
    Deleted(Tombstone),
}

impl InstanceRecord {
    /// Where it stands, or stood.
    #[must_use]
    pub fn status(&self) -> WorkflowStatus {
        match self {
            Self::Instance { header, .. } => header.status,
            Self::Deleted(tombstone) => tombstone.status,
        }
    }
}

/// How much is in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStatistics {
    /// Instances with status Runnable.
    pub runnable: u64,
    /// Instances with status Suspended.
    pub suspended: u64,
    /// Instances with status Complete.
    pub complete: u64,
    /// Instances with status Terminated.
    pub terminated: u64,
    /// The earliest due time of a Runnable instance.
    pub next_due: Option<Timestamp>,
    /// Events kept.
    pub events: u64,
    /// Inbox rows not yet applied.
    pub inbox: u64,
    /// Activities without a live token.
    pub open_activities: u64,
}

/// The fence of an instance: its revision, and the writer of it. What a store reads after an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The stored revision.
    pub revision: Revision,
    /// The stored writer.
    pub writer: Option<super::CheckpointId>,
}

impl Fence {
    /// What the stored fence says of a checkpoint whose outcome is unknown: `Some(true)` it was written, `Some(false)` it was
    /// refused, `None` it can be tried again.
    #[must_use]
    pub fn tells_of(&self, checkpoint: &super::Checkpoint) -> Option<bool> {
        if self.writer == Some(checkpoint.id) {
            Some(true)
        } else if self.revision == checkpoint.expected {
            None
        } else {
            Some(false)
        }
    }
}
