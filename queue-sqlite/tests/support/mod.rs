//! A node whose background work can be cut off, as the death of its process does.

use latchwork_core::{
    BoxError, async_trait,
    queue::{Delivery, QueueCapabilities, QueueDepth, QueueError, QueueKind, QueueProvider, WorkItem},
};
use latchwork_queue_sqlite::SqliteQueue;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A queue whose tasks run in a runtime of their own.
#[derive(Debug)]
pub(crate) struct Node {
    queue: SqliteQueue,
    runtime: Option<Runtime>,
}

impl Node {
    pub(crate) async fn start(
        open: impl Future<Output = Result<SqliteQueue, BoxError>> + Send + 'static,
    ) -> Result<Self, BoxError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
        let queue = runtime.spawn(open).await?;
        Ok(Self { queue: queue?, runtime: Some(runtime) })
    }

    /// Nothing is settled, renewed or given back from here on.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[async_trait]
impl QueueProvider for Node {
    fn capabilities(&self) -> QueueCapabilities {
        self.queue.capabilities()
    }

    async fn enqueue(&self, queue: QueueKind, items: &[WorkItem]) -> Result<(), QueueError> {
        self.queue.enqueue(queue, items).await
    }

    async fn dequeue(&self, queue: QueueKind, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        self.queue.dequeue(queue, max, wait).await
    }

    async fn depth(&self, queue: QueueKind) -> Result<QueueDepth, QueueError> {
        self.queue.depth(queue).await
    }

    async fn stop(&self, grace: Duration) -> Result<(), QueueError> {
        self.queue.stop(grace).await
    }
}
