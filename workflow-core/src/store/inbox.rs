use super::{ActivityOutcome, Encoded, EventId, InboxId, InstanceId, PointerId, SubscriptionId, WorkflowStatus};
use crate::{clock::Timestamp, queue::WorkItem};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A message for the owner of an instance.
#[derive(Clone, Debug, PartialEq)]
pub enum InboxMessage {
    /// An event was matched to a wait. Written by the store's own matching only; makes a Runnable instance runnable.
    Event {
        /// The wait it was matched to.
        subscription: SubscriptionId,
        /// The wait's slot.
        slot: Arc<str>,
        /// The event.
        event: EventId,
        /// The event's time.
        time: Timestamp,
        /// The event's data.
        data: Option<Encoded>,
    },
    /// Anything else; makes an instance runnable in any open status.
    Control(Control),
}

/// What calls ask of an instance. Stores keep it as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Control {
    /// Start no further body until resumed.
    Suspend {
        /// Why.
        reason: Option<String>,
    },
    /// Go on.
    Resume,
    /// End now.
    Terminate {
        /// Why.
        reason: Option<String>,
    },
    /// Try failed steps again, and go on.
    RetryStep {
        /// One of them; all when `None`.
        pointer: Option<PointerId>,
    },
    /// The result of an activity.
    ActivityResult {
        /// The wait.
        activity: SubscriptionId,
        /// The result.
        outcome: ActivityOutcome,
    },
    /// A child instance ended.
    ChildEnded {
        /// The child.
        child: InstanceId,
        /// The pointer that waits for it.
        pointer: PointerId,
        /// How it ended.
        status: WorkflowStatus,
        /// Its data, or the reason of its end.
        result: serde_json::Value,
    },
}

/// A message in an inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxRow {
    /// By which a checkpoint takes it out.
    pub id: InboxId,
    /// The message.
    pub message: InboxMessage,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// It is stored, and will be applied.
    Appended(WorkItem),
    /// The instance has ended; the message was not stored.
    Ended(WorkflowStatus),
    /// No such instance.
    Unknown,
}

/// What became of a worker's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// It is stored, and will be applied.
    Accepted(WorkItem),
    /// The token is not, or no longer, the one of an open activity: expired, claimed again, submitted already, or cancelled.
    Refused,
}
