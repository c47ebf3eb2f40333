use crate::{LocalQueue, LocalQueueOptions};
use latchwork_core::options::Configure;

/// Wires the local queue into a host.
pub trait UseLocalQueue: Configure {
    /// Takes hints from a queue within this process, of the default capacity.
    fn use_local_queue(self) -> Self {
        self.use_local_queue_with(LocalQueueOptions::default())
    }

    /// Takes hints from a queue within this process. Impossible options fail the start of the host.
    fn use_local_queue_with(mut self, options: LocalQueueOptions) -> Self {
        self.options().use_queue_provider(async move |context| {
            let clock = options.clock.clone().unwrap_or(context.clock);
            Ok(LocalQueue::with_options(options.clone().with_clock(clock))?)
        });
        self
    }

    /// Takes hints from `queue`, which other hosts of this process may use as well.
    fn use_shared_local_queue(mut self, queue: &LocalQueue) -> Self {
        let queue = queue.clone();
        self.options().use_queue_provider(async move |_| Ok(queue));
        self
    }
}

impl<T: Configure> UseLocalQueue for T {}
