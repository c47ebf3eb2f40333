//! Queues: hints that an instance may have something to do.
//!
//! A queue is never the truth (I5): every hint may be lost, doubled or late, and the store's own record of what is due
//! makes up for it within two polls. What a queue gives is speed, and the spreading of work over nodes.

mod delivery;
mod error;
pub mod leased;
mod provider;

pub use delivery::{Delivery, Settle, Settlement};
pub use error::QueueError;
pub use provider::{QueueCapabilities, QueueDepth, QueueProvider, Redelivery};

use crate::store::InstanceId;
use std::sync::Arc;

/// Which queue of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueKind {
    /// Hints that an instance may have something to do.
    Workflow,
}

impl QueueKind {
    /// The name by which backends know it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
        }
    }
}

/// A hint: this instance may have something to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct WorkItem {
    /// The instance.
    pub instance: InstanceId,
    /// Its definition, so that a node can tell at once whether it knows it.
    pub definition: Arc<str>,
    /// The definition's version.
    pub version: u32,
}

impl WorkItem {
    /// A hint for this instance.
    pub fn new(instance: InstanceId, definition: impl Into<Arc<str>>, version: u32) -> Self {
        Self { instance, definition: definition.into(), version }
    }
}
