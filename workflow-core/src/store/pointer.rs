use super::{Encoded, InstanceId, PointerId};
use crate::clock::Timestamp;
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// Where a pointer stands. Stored by its [`as_str`](Self::as_str).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointerStatus {
    /// Its body can run, or runs.
    Ready,
    /// Waits for its due time: a delay, a sleep, a retry.
    Sleeping,
    /// Waits for an event.
    WaitingForEvent,
    /// Waits for an external worker.
    WaitingForActivity,
    /// Waits for the pointers below it.
    WaitingForChildren,
    /// Waits for the end of another instance.
    WaitingForInstance,
    /// Gave up; waits for `retry_step`.
    Failed,
    /// Done.
    Complete,
    /// Ended without being done: its branch, or the instance, ended first.
    Cancelled,
    /// Done, and undone by its compensation.
    Compensated,
}

impl PointerStatus {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Ready,
        Self::Sleeping,
        Self::WaitingForEvent,
        Self::WaitingForActivity,
        Self::WaitingForChildren,
        Self::WaitingForInstance,
        Self::Failed,
        Self::Complete,
        Self::Cancelled,
        Self::Compensated,
    ];

    /// Whether the pointer belongs to the open part of its instance.
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Ready
            | Self::Sleeping
            | Self::WaitingForEvent
            | Self::WaitingForActivity
            | Self::WaitingForChildren
            | Self::WaitingForInstance
            | Self::Failed => true,
            Self::Complete | Self::Cancelled | Self::Compensated => false,
        }
    }

    /// The name that stores keep.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Sleeping => "sleeping",
            Self::WaitingForEvent => "waiting-for-event",
            Self::WaitingForActivity => "waiting-for-activity",
            Self::WaitingForChildren => "waiting-for-children",
            Self::WaitingForInstance => "waiting-for-instance",
            Self::Failed => "failed",
            Self::Complete => "complete",
            Self::Cancelled => "cancelled",
            Self::Compensated => "compensated",
        }
    }

    /// The status of this stored name.
    #[must_use]
    pub fn from_stored(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

impl fmt::Display for PointerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where below its parent a pointer stands: the parts of its id beside parent and step name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The branch of a parent that has several.
    pub branch: u32,
    /// The item of a for-each.
    pub item: Option<u64>,
    /// The round of a loop, or the number of jumps back.
    pub round: u32,
    /// The attempt of the saga around it.
    pub attempt: u32,
}

/// An execution pointer as it is stored. A checkpoint writes it whole, by its id; what stands in it beside
/// [`status`](Self::status) and [`scope`](Self::scope) means nothing to the store.
#[doc(alias = "ExecutionPointer")]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PointerRecord {
    /// The pointer.
    pub id: PointerId,
    /// The order of creation, unique within the instance, from 1.
    pub sequence: i64,
    /// The name of its step.
    pub step: Arc<str>,
    /// Where it stands; says whether it is open.
    pub status: PointerStatus,
    /// The pointer above it.
    pub parent: Option<PointerId>,
    /// Where below its parent it stands.
    pub place: Place,
    /// The innermost saga around it, whose finished pointers are loaded together.
    pub scope: Option<PointerId>,
    /// How often its body was tried.
    pub attempts: u32,
    /// When it was last started.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// When it wakes.
    pub due: Option<Timestamp>,
    /// What the engine keeps of it beside: items, counters, what the body asked to keep.
    pub state: Option<Encoded>,
}

impl PointerRecord {
    /// A pointer of this step, ready to run.
    pub fn new(id: PointerId, sequence: i64, step: impl Into<Arc<str>>) -> Self {
        Self {
            id,
            sequence,
            step: step.into(),
            status: PointerStatus::Ready,
            parent: None,
            place: Place::default(),
            scope: None,
            attempts: 0,
            started: None,
            ended: None,
            due: None,
            state: None,
        }
    }

    /// With this status.
    #[must_use]
    pub fn with_status(mut self, status: PointerStatus) -> Self {
        self.status = status;
        self
    }

    /// With this scope.
    #[must_use]
    pub fn with_scope(mut self, scope: PointerId) -> Self {
        self.scope = Some(scope);
        self
    }

    /// With this parent.
    #[must_use]
    pub fn with_parent(mut self, parent: PointerId) -> Self {
        self.parent = Some(parent);
        self
    }

    /// With this state.
    #[must_use]
    pub fn with_state(mut self, state: Encoded) -> Self {
        self.state = Some(state);
        self
    }
}

/// An error of a step, as it is stored. Of an instance the newest [`ERRORS_PER_INSTANCE`](crate::limits::ERRORS_PER_INSTANCE)
/// are kept.
#[doc(alias = "ExecutionError")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// The instance.
    pub instance: InstanceId,
    /// The pointer whose step failed.
    pub pointer: PointerId,
    /// The step's name.
    pub step: Arc<str>,
    /// Which try it was, from 1.
    pub attempt: u32,
    /// When.
    pub time: Timestamp,
    /// What was wrong, its causes included, cut to [`ERROR_TEXT_BYTES`](crate::limits::ERROR_TEXT_BYTES).
    pub message: String,
}
