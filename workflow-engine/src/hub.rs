//! The life-cycle hub of one process.

use latchwork_core::{
    BoxError, async_trait,
    hub::{LifeCycleEvent, LifeCycleEventHub, LifeCycleSubscription},
};
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;

/// Events a subscriber can be behind before it loses some.
const BEHIND: usize = 4_096;

/// Carries life-cycle events within one process. The default of a host.
#[derive(Debug, Default)]
pub struct LocalEventHub {
    subscribers: Mutex<Vec<mpsc::Sender<LifeCycleEvent>>>,
    any: AtomicBool,
}

impl LocalEventHub {
    /// A hub without subscribers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl LifeCycleEventHub for LocalEventHub {
    async fn publish(&self, events: &[LifeCycleEvent]) -> Result<(), BoxError> {
        let mut subscribers = self.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            // One that does not keep up loses events; one that is gone is forgotten.
            subscribers
                .retain(|subscriber| !matches!(subscriber.try_send(event.clone()), Err(mpsc::error::TrySendError::Closed(_))));
        }
        self.any.store(!subscribers.is_empty(), Ordering::Relaxed);
        Ok(())
    }

    fn has_subscribers(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn subscribe(&self) -> LifeCycleSubscription {
        let (sender, events) = mpsc::channel(BEHIND);
        let mut subscribers = self.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.push(sender);
        self.any.store(true, Ordering::Relaxed);
        LifeCycleSubscription::new(events)
    }

    async fn stop(&self, _: Duration) -> Result<(), BoxError> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.any.store(false, Ordering::Relaxed);
        Ok(())
    }
}
