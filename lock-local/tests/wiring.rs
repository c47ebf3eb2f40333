//! How a host gets its locks.

use latchwork_core::{
    BoxError,
    lock::{DistributedLockProvider, LockProviderExt},
    name::Namespace,
    options::WorkflowOptions,
};
use latchwork_lock_local::{LocalLocks, UseLocalLocking};
use std::{sync::Arc, time::Duration};

async fn host(namespace: &str, wire: impl FnOnce(&mut WorkflowOptions)) -> Result<Arc<dyn DistributedLockProvider>, BoxError> {
    let mut options = WorkflowOptions::default();
    options.namespace = Namespace::new(namespace)?;
    wire(&mut options);
    let context = options.provider_context();
    options.open_lock(&context).await.ok_or("no lock factory was set")?
}

#[tokio::test]
async fn hosts_of_one_process_exclude_each_other_per_namespace() {
    let [a, b, c] = [
        host("wiring", |options| {
            options.use_local_locking();
        })
        .await
        .expect("opened"),
        host("wiring", |options| {
            options.use_local_locking();
        })
        .await
        .expect("opened"),
        host("elsewhere", |options| {
            options.use_local_locking();
        })
        .await
        .expect("opened"),
    ];
    let guard = a.try_lock("x").await.expect("answered").expect("free");
    assert_eq!(guard.key().as_str(), "wiring:x");
    assert!(b.try_lock("x").await.expect("answered").is_none());
    assert!(c.try_lock("x").await.expect("answered").is_some());
    assert_eq!(a.capabilities().domain, "local");
}

#[tokio::test]
async fn a_host_shares_locks_with_its_application_and_stops_alone() {
    let locks = LocalLocks::new();
    let host = host("wfc", |options| {
        options.use_local_locking_with(&locks);
    })
    .await
    .expect("opened");
    let guard = locks.try_lock("x").await.expect("answered").expect("free");
    assert!(host.try_lock("x").await.expect("answered").is_none());
    host.stop(Duration::from_secs(1)).await.expect("stopped");
    assert!(!guard.is_lost());
    assert!(locks.try_lock("y").await.expect("answered").is_some());
}
