use async_trait::async_trait;
use latchwork_core::{BoxError, queue::QueueProvider};
use std::time::Duration;

/// What the suite needs to know of a provider: how to reach one service from several nodes, and how to kill one of them.
///
/// A fixture stands for one service whose queue is empty, for example a fresh file, schema or virtual host. Its nodes all
/// reach that service, as the nodes of a cluster do, each through a connection of its own. Where the provider has a lease,
/// set a short one (some hundred milliseconds): several cases wait until it runs out.
#[async_trait]
pub trait QueueFixture: Send + Sync + 'static {
    /// The provider.
    type Queue: QueueProvider;

    /// One more node of the service.
    ///
    /// # Errors
    /// What keeps it from connecting; the case fails with it.
    async fn node(&self) -> Result<Self::Queue, BoxError>;

    /// A node of the same service in another namespace, `None` (the default) where there is no such thing.
    ///
    /// # Errors
    /// What keeps it from connecting; the case fails with it.
    async fn node_elsewhere(&self) -> Result<Option<Self::Queue>, BoxError> {
        Ok(None)
    }

    /// Ends a node as the death of its process does: nothing that it has in hand is settled or given back, no lease is
    /// renewed, its connections are cut. `false` (the default) where the fixture cannot do that; cases that need it are
    /// then skipped. The deliveries of the dead node are dropped later, which must harm nothing.
    ///
    /// # Errors
    /// What went wrong with the killing; the case fails with it.
    async fn kill(&self, node: Self::Queue) -> Result<bool, BoxError> {
        drop(node);
        Ok(false)
    }

    /// The longest time until the hints of a dead consumer come again. Default 10 s.
    fn redelivery_within(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// The longest time until a waiting consumer has a hint that another node queued: the idle wait of a provider without
    /// push, and some for a busy machine. Default 5 s.
    fn arrival_within(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// Why this case is not asked of the service, when that is so: what a stand-in for the real one cannot do, which is no fault of
    /// the provider. Default: all are asked.
    fn excused(&self, case: &str) -> Option<&'static str> {
        let _ = case;
        None
    }

    /// How many copies of one hint may wait at most, however often it is queued. Default 1; a broker that cannot look into
    /// its queue has another bound.
    fn most_copies(&self) -> u64 {
        1
    }
}

/// What [`queue_conformance!`](crate::queue_conformance) takes: a fixture, or an `Option` of one.
pub trait MaybeFixture {
    /// The fixture.
    type Fixture: QueueFixture;

    /// The fixture, if there is one.
    fn into_fixture(self) -> Option<Self::Fixture>;
}

impl<F: QueueFixture> MaybeFixture for F {
    type Fixture = F;

    fn into_fixture(self) -> Option<F> {
        Some(self)
    }
}

impl<F: QueueFixture> MaybeFixture for Option<F> {
    type Fixture = F;

    fn into_fixture(self) -> Option<F> {
        self
    }
}
