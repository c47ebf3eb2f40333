#![doc = include_str!("../README.md")]
//! # Map of the crate
//!
//! [`LocalLocks`] is the provider, with blocking calls beside the trait's asynchronous ones; [`UseLocalLocking`] wires it
//! into a host.

mod parking;
mod provider;
mod table;

pub use provider::LocalLocks;

use latchwork_core::options::Configure;

/// `use_local_locking` on a host's builder.
pub trait UseLocalLocking: Configure {
    /// Takes locks from this process: all hosts in it that do so, in the same namespace, exclude each other.
    fn use_local_locking(self) -> Self {
        self.use_local_locking_with(&LocalLocks::process())
    }

    /// Takes locks from these: hosts that share them exclude each other, and whoever uses them directly. Each host stops
    /// by itself.
    fn use_local_locking_with(mut self, locks: &LocalLocks) -> Self {
        let locks = locks.peer();
        self.options().use_distributed_lock_manager(async move |context| Ok(locks.with_namespace(context.namespace)));
        self
    }
}

impl<T: Configure> UseLocalLocking for T {}
