//! The conformance suite for lock providers: what [`DistributedLockProvider`](latchwork_core::lock::DistributedLockProvider)
//! promises, as cases that any crate can run.
//!
//! A factory makes a fresh [`Fixture`] for each case: two providers over one lock service, as two nodes have them. The
//! cases choose themselves by what the providers' capabilities say.
//!
//! ```
//! # mod mine {
//! # use latchwork_core::{lock::*, name::Namespace, async_trait};
//! # #[derive(Clone, Debug, Default)] pub struct MyLocks(Namespace);
//! # impl MyLocks { pub async fn connect(_: &str) -> Result<Self, LockError> { Ok(Self::default()) } }
//! # #[async_trait] impl DistributedLockProvider for MyLocks {
//! #   fn capabilities(&self) -> LockCapabilities { LockCapabilities::new(latchwork_core::Scope::Process, LossDetection::Process, "my") }
//! #   fn namespace(&self) -> &Namespace { &self.0 }
//! #   async fn acquire(&self, _: LockRequest) -> Result<Option<LockGuard>, LockError> { Ok(None) }
//! #   async fn check(&self) -> Result<(), LockError> { Ok(()) }
//! #   async fn stop(&self, _: std::time::Duration) -> Result<(), LockError> { Ok(()) }
//! # } }
//! # use mine::MyLocks;
//! // tests/conformance.rs of the crate with `MyLocks`
//! use latchwork_core::BoxError;
//! use latchwork_testkit::lock::Fixture;
//!
//! async fn two_nodes() -> Result<Fixture, BoxError> {
//!     Ok(Fixture::new(MyLocks::connect("my://server").await?, MyLocks::connect("my://server").await?))
//! }
//!
//! latchwork_testkit::lock_conformance!(two_nodes);
//! ```
//!
//! The macro makes one `#[test]` per case. [`run_all`] runs them one after the other and reports, for a command-line tool
//! or a smoke test, [`run_all_but`] leaves some out; [`run`] runs a single [`Case`].

mod case;
mod cases;
mod fixture;

pub use case::{Case, CaseFailed, Report, block_on, run, run_all, run_all_but};
pub use fixture::Fixture;
