//! The suite of all lock providers.

use latchwork_core::BoxError;
use latchwork_lock_local::LocalLocks;
use latchwork_testkit::lock::Fixture;

async fn two_nodes() -> Result<Fixture, BoxError> {
    let locks = LocalLocks::new();
    Ok(Fixture::new(locks.peer(), locks))
}

latchwork_testkit::lock_conformance!(two_nodes);
