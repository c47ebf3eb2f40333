use latchwork_core::store::InstanceId;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::Notify;

/// Those on this node who wait for an instance to end.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    waiting: Mutex<HashMap<InstanceId, Arc<Notify>>>,
    any: Notify,
}

impl Completions {
    /// Registers interest. Keep the value, and take the `notified` future before looking at the store.
    pub(crate) fn watch(self: &Completions, instance: &InstanceId) -> Arc<Notify> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).entry(instance.clone()).or_default().clone()
    }

    /// Gives up interest.
    pub(crate) fn unwatch(&self, instance: &InstanceId, watch: Arc<Notify>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        drop(watch);
        if waiting.get(instance).is_some_and(|notify| Arc::strong_count(notify) == 1) {
            waiting.remove(instance);
        }
    }

    /// The instance ended, on this node.
    pub(crate) fn ended(&self, instance: &InstanceId) {
        let watch = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).get(instance).cloned();
        if let Some(watch) = watch {
            watch.notify_waiters();
        }
        self.any.notify_one();
    }

    /// Resolves when an instance ended on this node since the last call. For one task.
    pub(super) async fn any_ended(&self) {
        self.any.notified().await;
    }
}
