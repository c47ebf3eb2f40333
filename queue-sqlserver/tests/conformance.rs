//! The conformance suite on the server that `LATCHWORK_TEST_SQLSERVER` names; each case in a schema of its own.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod place;

use latchwork_core::{name::Namespace, options::ProviderContext};
use latchwork_queue_sqlserver::SqlServerQueue;
use latchwork_testkit::queue::{BoxError, MortalNode, QueueFixture, async_trait};
use place::{LONG, Place};
use std::time::Duration;

type Node = MortalNode<SqlServerQueue>;

struct OneDatabase {
    here: Place,
    elsewhere: Place,
    stand_in: bool,
}

impl OneDatabase {
    async fn new() -> Option<Self> {
        let (here, elsewhere) = (Place::new()?, Place::new()?);
        let stand_in = here.is_a_stand_in().await;
        Some(Self { here, elsewhere, stand_in })
    }

    async fn open(place: &Place) -> Result<Node, BoxError> {
        // Renewed after a second, which a busy machine may be late with by two more.
        let options = place.options().with_lease(Duration::from_secs(3));
        let context = ProviderContext::new(Namespace::new(place.namespace.as_str())?, "node");
        Node::start(async move { SqlServerQueue::open(options, &context).await }).await
    }
}

#[async_trait]
impl QueueFixture for OneDatabase {
    type Queue = Node;

    async fn node(&self) -> Result<Node, BoxError> {
        Self::open(&self.here).await
    }

    async fn node_elsewhere(&self) -> Result<Option<Node>, BoxError> {
        Self::open(&self.elsewhere).await.map(Some)
    }

    fn redelivery_within(&self) -> Duration {
        LONG
    }

    fn arrival_within(&self) -> Duration {
        LONG / 2
    }

    fn excused(&self, case: &str) -> Option<&'static str> {
        let excused = self.stand_in && case == "a_hint_goes_round";
        excused.then_some("OPENJSON of this server leaves the escapes of quotation marks and backslashes in texts")
    }

    async fn kill(&self, node: Node) -> Result<bool, BoxError> {
        node.kill();
        Ok(true)
    }
}

latchwork_testkit::queue_conformance!(OneDatabase::new);
