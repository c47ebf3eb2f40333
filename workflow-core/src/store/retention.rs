use super::WorkflowStatus;
use std::time::Duration;

/// What to purge. Ages are counted by the store's clock; a `None` keeps all of that kind.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PurgeRequest {
    /// Instances that ended longer ago than this. Each leaves a tombstone.
    pub instances: Option<Duration>,
    /// Only instances that ended so; any end when empty.
    pub statuses: Vec<WorkflowStatus>,
    /// Events whose time is longer ago than this. One that stands in an inbox is never purged.
    pub events: Option<Duration>,
    /// Tombstones of instances deleted longer ago than this.
    pub tombstones: Option<Duration>,
    /// At most so many rows of each kind in one call.
    pub limit: usize,
}

impl PurgeRequest {
    /// Purges nothing yet; 1,000 rows of each kind at most.
    #[must_use]
    pub fn new() -> Self {
        Self { instances: None, statuses: Vec::new(), events: None, tombstones: None, limit: 1_000 }
    }

    /// Instances that ended longer ago than `age`.
    #[must_use]
    pub fn with_instances(mut self, age: Duration) -> Self {
        self.instances = Some(age);
        self
    }

    /// Only instances that ended so.
    #[must_use]
    pub fn with_status(mut self, statuses: impl IntoIterator<Item = WorkflowStatus>) -> Self {
        self.statuses = statuses.into_iter().collect();
        self
    }

    /// Events older than `age`.
    #[must_use]
    pub fn with_events(mut self, age: Duration) -> Self {
        self.events = Some(age);
        self
    }

    /// Tombstones older than `age`.
    #[must_use]
    pub fn with_tombstones(mut self, age: Duration) -> Self {
        self.tombstones = Some(age);
        self
    }

    /// At most so many rows of each kind.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

impl Default for PurgeRequest {
    fn default() -> Self {
        Self::new()
    }
}

/// What a purge removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeReport {
    /// Instances.
    pub instances: u64,
    /// Events.
    pub events: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Whether another call would find more.
    pub more: bool,
}

impl PurgeReport {
    /// What was removed, and whether there is more.
    #[must_use]
    pub fn new(instances: u64, events: u64, tombstones: u64, more: bool) -> Self {
        Self { instances, events, tombstones, more }
    }
}
