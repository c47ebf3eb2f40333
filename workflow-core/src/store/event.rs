use super::{ActivityToken, Encoded, EventId, InstanceId, PointerId, SubscriptionId};
use crate::{clock::Timestamp, queue::WorkItem};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A wait for an event.
#[doc(alias = "EventSubscription")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subscription {
    /// The wait.
    pub id: SubscriptionId,
    /// The pointer that waits.
    pub pointer: PointerId,
    /// The event's name.
    pub name: Arc<str>,
    /// The event's key.
    pub key: Arc<str>,
    /// The wait slot: the step and the for-each indices around it. An event satisfies each slot of an instance once.
    pub slot: Arc<str>,
    /// Events before this time do not count. Inclusive.
    pub as_of: Timestamp,
    /// The order of the waits of one instance: the oldest open wait of a slot is satisfied first.
    pub sequence: i64,
}

impl Subscription {
    /// A wait of `pointer` for the event `name` with `key`, as of this time.
    pub fn new(
        id: SubscriptionId,
        pointer: PointerId,
        name: impl Into<Arc<str>>,
        key: impl Into<Arc<str>>,
        slot: impl Into<Arc<str>>,
        as_of: Timestamp,
        sequence: i64,
    ) -> Self {
        Self { id, pointer, name: name.into(), key: key.into(), slot: slot.into(), as_of, sequence }
    }
}

/// An event to be published.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NewEvent {
    /// Drawn before the first try, so that a repeated publish is a no-op.
    pub id: EventId,
    /// Its name.
    pub name: Arc<str>,
    /// Its key.
    pub key: Arc<str>,
    /// Its data.
    pub data: Option<Encoded>,
    /// Its time; `None` is the store's time at the commit. In the future: it becomes visible then.
    pub time: Option<Timestamp>,
}

impl NewEvent {
    /// An event of this name and key, now, without data.
    pub fn new(name: impl Into<Arc<str>>, key: impl Into<Arc<str>>) -> Self {
        Self { id: EventId::new(), name: name.into(), key: key.into(), data: None, time: None }
    }

    /// With data.
    #[must_use]
    pub fn with_data(mut self, data: Encoded) -> Self {
        self.data = Some(data);
        self
    }

    /// At this time.
    #[must_use]
    pub fn at(mut self, time: Timestamp) -> Self {
        self.time = Some(time);
        self
    }

    /// With this id.
    #[must_use]
    pub fn with_id(mut self, id: EventId) -> Self {
        self.id = id;
        self
    }
}

/// What a publish did.
#[derive(Clone, Debug, Default)]
pub struct PublishOutcome {
    /// The instances that have an event waiting in their inbox because of it, visible now.
    pub wake: Vec<WorkItem>,
}

/// That a wait slot of an instance has been satisfied by an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumedEvent {
    /// The slot.
    pub slot: Arc<str>,
    /// The event.
    pub event: EventId,
}

/// A piece of work for external workers, open until a result was applied or its pointer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Activity {
    /// The wait.
    pub id: SubscriptionId,
    /// The pointer that waits.
    pub pointer: PointerId,
    /// The activity's name, by which workers ask for it.
    pub name: Arc<str>,
    /// What the worker is given.
    pub parameters: Option<Encoded>,
}

impl Activity {
    /// An activity for which `pointer` waits.
    pub fn new(id: SubscriptionId, pointer: PointerId, name: impl Into<Arc<str>>, parameters: Option<Encoded>) -> Self {
        Self { id, pointer, name: name.into(), parameters }
    }
}

/// An activity in the hands of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivityClaim {
    /// The token with which the result is submitted.
    pub token: ActivityToken,
    /// The instance.
    pub instance: InstanceId,
    /// The wait.
    pub activity: SubscriptionId,
    /// The activity's name.
    pub name: Arc<str>,
    /// What the worker is given.
    pub parameters: Option<Encoded>,
    /// When the token expires, by the store's clock.
    pub expires: Timestamp,
}

/// What a worker made of an activity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivityOutcome {
    /// Done, with this result.
    Success(serde_json::Value),
    /// Failed, with this data.
    Failure(serde_json::Value),
}
