//! The conformance suite, with queues on one file as its nodes.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

use latchwork_core::{name::Namespace, options::ProviderContext};
use latchwork_queue_sqlite::{SqliteQueue, SqliteQueueOptions};
use latchwork_testkit::queue::{BoxError, MortalNode, QueueFixture, async_trait};
use std::time::Duration;
use tempfile::TempDir;

type Node = MortalNode<SqliteQueue>;

struct OneFile(TempDir);

impl OneFile {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    async fn open(&self, namespace: &str) -> Result<Node, BoxError> {
        let options = SqliteQueueOptions::new(self.0.path().join("queue.db")).with_lease(Duration::from_millis(900));
        let context = ProviderContext::new(Namespace::new(namespace)?, "node");
        Node::start(async move { SqliteQueue::open_with(options, &context).await }).await
    }
}

#[async_trait]
impl QueueFixture for OneFile {
    type Queue = Node;

    async fn node(&self) -> Result<Node, BoxError> {
        self.open("here").await
    }

    async fn node_elsewhere(&self) -> Result<Option<Node>, BoxError> {
        self.open("elsewhere").await.map(Some)
    }

    async fn kill(&self, node: Node) -> Result<bool, BoxError> {
        node.kill();
        Ok(true)
    }
}

latchwork_testkit::queue_conformance!(async || OneFile::new());
