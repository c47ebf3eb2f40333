//! The conformance suite, with the handles of one queue as its nodes.

use latchwork_queue_local::LocalQueue;
use latchwork_testkit::queue::{BoxError, QueueFixture, async_trait};

#[derive(Default)]
struct OneProcess(LocalQueue);

#[async_trait]
impl QueueFixture for OneProcess {
    type Queue = LocalQueue;

    async fn node(&self) -> Result<LocalQueue, BoxError> {
        Ok(self.0.clone())
    }
}

latchwork_testkit::queue_conformance!(async || OneProcess::default());
