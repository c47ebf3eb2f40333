//! Locks: one trait, guards that free what they hold, and conveniences over any provider.
//!
//! ```
//! use latchwork_core::lock::{DistributedLockProvider, LockProviderExt, LockError};
//! use std::time::Duration;
//!
//! async fn transfer(locks: &dyn DistributedLockProvider) -> Result<(), LockError> {
//!     // Both or neither, in a fixed order, so that two transfers never wait for each other in a circle.
//!     let Some(both) = locks.lock_all(["account-1", "account-2"], Duration::from_secs(5)).await? else {
//!         return Ok(()); // somebody else holds one of them
//!     };
//!     // ... work ...
//!     both.release().await
//! }
//! ```

mod adapter;
mod error;
mod ext;
mod guard;
mod key;
pub mod lease;
mod names;
mod provider;

pub use adapter::NamedLocks;
pub use error::{Failure, LockError};
pub use ext::{LockProviderExt, LockSet};
pub use guard::{LockGuard, Loss, LossSignal, Release};
pub use key::{KeyLimit, LockKey};
pub use names::{Attempt, Freed, HeldNames, Turn};
pub use provider::{DistributedLockProvider, LockCapabilities, LockMode, LockRequest, LossDetection, Wait};
