//! Faults on command: wrappers that are stores, locks and queues themselves, and fail, wait or forget when a test says so.
//!
//! | wrapper | over | beside failing and holding |
//! | --- | --- | --- |
//! | [`FaultyStore`] | any [`PersistenceProvider`](latchwork_core::store::PersistenceProvider) | loses answers after the write was done, shows other capabilities |
//! | [`FaultyLocks`] | any [`DistributedLockProvider`](latchwork_core::lock::DistributedLockProvider) | loses held locks, with or without telling the holder |
//! | [`FaultyQueue`] | any [`QueueProvider`](latchwork_core::queue::QueueProvider) | swallows, duplicates and reorders hints |
//!
//! Each has [`Faults`], a handle that can be cloned and kept when the wrapper is given away. A rule says which calls it is about,
//! which of them it lets pass first, how many it is for, and what becomes of those:
//!
//! ```
//! use latchwork_core::{lock::{LockProviderExt, *}, name::Namespace, async_trait, Scope};
//! use latchwork_testkit::faults::{FaultyLocks, LockCall, LockFault};
//! # use std::time::Duration;
//! # #[derive(Debug)] struct MyLocks(Namespace);
//! # struct Nothing; impl Release for Nothing {
//! #   fn release(self: Box<Self>, reply: Option<tokio::sync::oneshot::Sender<Result<(), LockError>>>) { if let Some(reply) = reply { let _ = reply.send(Ok(())); } }
//! # }
//! # #[async_trait] impl DistributedLockProvider for MyLocks {
//! #   fn capabilities(&self) -> LockCapabilities { LockCapabilities::new(Scope::Process, LossDetection::Process, "my") }
//! #   fn namespace(&self) -> &Namespace { &self.0 }
//! #   async fn acquire(&self, request: LockRequest) -> Result<Option<LockGuard>, LockError> { Ok(Some(LockGuard::new(request.key, None, LossSignal::new(), Nothing))) }
//! #   async fn check(&self) -> Result<(), LockError> { Ok(()) }
//! #   async fn stop(&self, _: Duration) -> Result<(), LockError> { Ok(()) }
//! # }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
//! let locks = FaultyLocks::new(MyLocks(Namespace::default()));
//! let faults = locks.faults().clone();
//!
//! // The second acquire fails, once.
//! faults.on(LockCall::Acquire).skip(1).once().fail(LockFault::Unavailable);
//! let guard = locks.try_lock("report").await?.expect("nobody holds it");
//! assert!(locks.try_lock("other").await.is_err());
//! assert_eq!(faults.count(LockCall::Acquire), 2);
//!
//! // The session dies: the holder is told, and the lock is free.
//! locks.lose("report");
//! assert!(guard.is_lost());
//!
//! // The third waits until the test lets it go.
//! let gate = faults.on(LockCall::Acquire).once().hold();
//! let third = tokio::spawn(async move { locks.try_lock("report").await });
//! gate.reached(1).await;
//! gate.open();
//! assert!(third.await.expect("no panic")?.is_some());
//! # Ok(()) }
//! ```

mod gate;
mod locks;
mod queue;
mod rule;
mod store;

pub use gate::Gate;
pub use locks::{FaultyLocks, LockCall, LockFault, Losses};
pub use queue::{Disorder, FaultyQueue, QueueCall, QueueFault};
pub use rule::{Faults, Recorded, Rule};
pub use store::{FaultyStore, StoreCall};
