//! What the statements of one queue have in common: whose rows they write, and what the time is.

use latchwork_core::{
    clock::{Clock, Timestamp},
    name::Namespace,
    queue::leased::Positions,
};
use std::{sync::Arc, time::Duration};

/// One node's view of the table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) namespace: Namespace,
    /// Marks the rows that this queue has in hand; no other queue has the same.
    pub(crate) owner: Arc<str>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lease: Duration,
    positions: Arc<Positions>,
}

impl Table {
    pub(crate) fn new(namespace: Namespace, owner: Arc<str>, clock: Arc<dyn Clock>, lease: Duration) -> Self {
        Self { namespace, owner, clock, lease, positions: Arc::default() }
    }

    /// The time in microseconds, as the table keeps it.
    pub(crate) fn now(&self) -> i64 {
        self.clock.now().timestamp_micros()
    }

    /// `now` and a duration, at most the end of time.
    pub(crate) fn after(now: i64, span: Duration) -> i64 {
        now.saturating_add(micros(span)).min(Timestamp::MAX_UTC.timestamp_micros())
    }

    /// A place behind all that this queue gave before and, as far as clocks tell, behind those of other processes.
    pub(crate) fn position(&self, now: i64) -> i64 {
        self.positions.next(now)
    }
}

pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
