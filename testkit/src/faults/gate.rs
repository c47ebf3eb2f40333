use std::sync::Arc;
use tokio::sync::watch;

/// A gate at which calls are held until a test lets them go. Clones are the same gate. It stays closed when all clones of the
/// test's are dropped; [`Faults::clear`](super::Faults::clear) opens it.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    open: watch::Sender<bool>,
    arrived: watch::Sender<usize>,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn closed() -> Self {
        Self(Arc::new(Inner { open: watch::Sender::new(false), arrived: watch::Sender::new(0) }))
    }

    /// Lets all go who wait here, and all who come.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }

    /// How many have come here so far, gone on or not.
    #[must_use]
    pub fn arrived(&self) -> usize {
        *self.0.arrived.borrow()
    }

    /// Resolves when at least so many have come here in all.
    pub async fn reached(&self, count: usize) {
        // The sender lives as long as `self`, so this ends by the count only.
        let _ = self.0.arrived.subscribe().wait_for(|arrived| *arrived >= count).await;
    }

    /// Comes here, and waits until the gate is open. For bodies of a test's own.
    pub async fn pass(&self) {
        self.0.arrived.send_modify(|arrived| *arrived += 1);
        let _ = self.0.open.subscribe().wait_for(|open| *open).await;
    }
}
