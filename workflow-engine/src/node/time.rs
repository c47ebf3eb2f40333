use latchwork_core::clock::{self, Clock, Timestamp};
use std::{sync::Arc, time::Duration};

/// The store's time, as far as this node knows: what the store said last, and what has passed since by a clock that never jumps.
#[derive(Clone, Debug)]
pub(super) struct StoreTime {
    clock: Arc<dyn Clock>,
    said: Timestamp,
    at: Duration,
}

impl StoreTime {
    pub(super) fn new(clock: Arc<dyn Clock>, said: Timestamp) -> Self {
        let at = clock.monotonic();
        Self { clock, said, at }
    }

    pub(super) fn update(&mut self, said: Timestamp) {
        self.said = said;
        self.at = self.clock.monotonic();
    }

    pub(super) fn now(&self) -> Timestamp {
        clock::add(self.said, self.clock.monotonic().saturating_sub(self.at))
    }

    /// The monotonic time at which the store's clock will show `due`.
    pub(super) fn deadline(&self, due: Timestamp) -> Duration {
        self.at.saturating_add(clock::between(self.said, due))
    }
}
