use latchwork_core::{
    BoxError, async_trait,
    queue::{Delivery, QueueCapabilities, QueueDepth, QueueError, QueueKind, QueueProvider, WorkItem},
};
use std::time::Duration;
use tokio::runtime::Runtime;

/// A queue whose tasks run in a runtime of their own, so that they can be cut off, as the death of its process does.
#[derive(Debug)]
pub struct MortalNode<Q> {
    queue: Q,
    runtime: Option<Runtime>,
}

impl<Q: QueueProvider> MortalNode<Q> {
    /// Opens the queue in a runtime of its own.
    ///
    /// # Errors
    /// Those of the runtime and of `open`.
    pub async fn start(open: impl Future<Output = Result<Q, BoxError>> + Send + 'static) -> Result<Self, BoxError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let queue = runtime.spawn(open).await?;
        Ok(Self { queue: queue?, runtime: Some(runtime) })
    }

    /// Nothing is settled, renewed or given back from here on.
    pub fn kill(self) {
        drop(self);
    }
}

impl<Q> Drop for MortalNode<Q> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[async_trait]
impl<Q: QueueProvider> QueueProvider for MortalNode<Q> {
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
