//! Life-cycle events: what happens to instances, told to whoever listens.

use crate::{BoxError, clock::Timestamp, store::InstanceId};
use async_trait::async_trait;
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// Something that happened to an instance. Sent after the commit that made it so (that a step was started: when its body begins), at most
/// once, best effort.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LifeCycleEvent {
    /// The instance.
    pub instance: InstanceId,
    /// Its definition.
    pub definition: Arc<str>,
    /// The definition's version.
    pub version: u32,
    /// The user's reference.
    pub reference: Option<String>,
    /// When, by the store's clock.
    pub time: Timestamp,
    /// What.
    pub kind: LifeCycleKind,
}

impl LifeCycleEvent {
    /// That `kind` happened to this instance.
    #[must_use]
    pub fn new(instance: InstanceId, definition: Arc<str>, version: u32, time: Timestamp, kind: LifeCycleKind) -> Self {
        Self { instance, definition, version, reference: None, time, kind }
    }

    /// With the user's reference.
    #[must_use]
    pub fn with_reference(mut self, reference: Option<String>) -> Self {
        self.reference = reference;
        self
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LifeCycleKind {
    /// It was started.
    Started,
    /// A step's body begins.
    StepStarted {
        /// The step.
        step: Arc<str>,
    },
    /// A step was completed.
    StepCompleted {
        /// The step.
        step: Arc<str>,
    },
    /// A step failed.
    Error {
        /// The step.
        step: Arc<str>,
        /// What was wrong.
        message: String,
    },
    /// It was suspended.
    Suspended {
        /// Why.
        reason: Option<String>,
    },
    /// It was resumed.
    Resumed,
    /// It ended as its definition says.
    Completed,
    /// It was ended early.
    Terminated {
        /// Why.
        reason: Option<String>,
    },
}

/// A subscriber's end: receives events until it is dropped. A subscriber that does not keep up loses the newest events.
#[derive(Debug)]
pub struct LifeCycleSubscription {
    events: mpsc::Receiver<LifeCycleEvent>,
}

impl LifeCycleSubscription {
    /// For hubs: the receiving end of a channel whose sender the hub keeps.
    #[must_use]
    pub fn new(events: mpsc::Receiver<LifeCycleEvent>) -> Self {
        Self { events }
    }

    /// The next event; `None` when the hub was stopped. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<LifeCycleEvent> {
        self.events.recv().await
    }
}

/// Carries life-cycle events from the node where they happen to subscribers on any node. Best effort: nothing depends on it.
#[doc(alias = "ILifeCycleEventHub")]
#[async_trait]
pub trait LifeCycleEventHub: fmt::Debug + Send + Sync + 'static {
    /// Hands events over, in order. Must not wait for slow subscribers.
    ///
    /// # Errors
    /// What the transport says; the engine logs and counts it, and goes on.
    async fn publish(&self, events: &[LifeCycleEvent]) -> Result<(), BoxError>;

    /// Whether anybody may be listening. A host makes no events when nobody can be.
    fn has_subscribers(&self) -> bool;

    /// A new subscriber, which sees events published from now on.
    fn subscribe(&self) -> LifeCycleSubscription;

    /// Ends all subscriptions, within `grace`.
    ///
    /// # Errors
    /// What the transport says.
    async fn stop(&self, grace: Duration) -> Result<(), BoxError>;
}
