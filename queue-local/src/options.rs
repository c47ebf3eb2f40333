use latchwork_core::{clock::Clock, options::InvalidSetting};
use std::sync::Arc;

/// How a [`LocalQueue`](crate::LocalQueue) is made.
///
/// ```
/// use latchwork_queue_local::{LocalQueue, LocalQueueOptions};
///
/// let queue = LocalQueue::with_options(LocalQueueOptions::default().with_capacity(10_000))?;
/// # Ok::<(), latchwork_core::options::InvalidSetting>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use = "options do nothing until a queue is made of them"]
pub struct LocalQueueOptions {
    /// The most hints that are kept, those in hand included. Default 100,000, which is about 30 MB when full.
    pub capacity: usize,
    /// Where delays take their time from. Default: the host's clock, or the system's for a queue used alone.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for LocalQueueOptions {
    fn default() -> Self {
        Self { capacity: 100_000, clock: None }
    }
}

impl LocalQueueOptions {
    /// Keeps at most so many hints, at least 1. A hint that finds the queue full is dropped.
    pub fn with_capacity(mut self, hints: usize) -> Self {
        self.capacity = hints;
        self
    }

    /// Takes the time of delays from this clock.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    pub(crate) fn validate(&self) -> Result<(), InvalidSetting> {
        if self.capacity == 0 {
            return Err(InvalidSetting::new(
                "capacity",
                "it must be at least 1, or every hint is dropped and the node only polls",
            ));
        }
        Ok(())
    }
}
