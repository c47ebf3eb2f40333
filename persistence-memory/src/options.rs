use crate::MemoryStore;
use latchwork_core::options::Configure;

/// `use_memory_persistence` and `use_memory_store` on everything that can be configured.
pub trait UseMemoryPersistence: Configure {
    /// Keeps everything in a new store in memory, with the host's clock. It ends with the host.
    fn use_memory_persistence(mut self) -> Self {
        self.options().use_persistence(async |context| Ok(MemoryStore::with_clock(context.clock)));
        self
    }

    /// Keeps everything in this store, which other handles can read during and after the host's life. Times come from the
    /// store's clock.
    fn use_memory_store(mut self, store: &MemoryStore) -> Self {
        let store = store.clone();
        self.options().use_persistence(async move |_| Ok(store));
        self
    }
}

impl<T: Configure> UseMemoryPersistence for T {}
