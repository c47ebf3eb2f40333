//! The store in memory keeps the promises of the contract.

use latchwork_core::store::PersistenceProvider;
use latchwork_persistence_memory::MemoryStore;
use latchwork_testkit::{
    clock::VirtualClock,
    store::{BoxError, StoreFixture, async_trait},
};
use std::sync::Arc;

struct OneProcess {
    store: MemoryStore,
    clock: VirtualClock,
}

#[async_trait]
impl StoreFixture for OneProcess {
    async fn open(&self) -> Result<Arc<dyn PersistenceProvider>, BoxError> {
        Ok(Arc::new(self.store.clone()))
    }

    fn clock(&self) -> Option<VirtualClock> {
        Some(self.clock.clone())
    }
}

async fn one_process() -> Result<OneProcess, BoxError> {
    let clock = VirtualClock::new();
    Ok(OneProcess { store: MemoryStore::with_clock(Arc::new(clock.clone())), clock })
}

latchwork_testkit::store_conformance!(one_process);
