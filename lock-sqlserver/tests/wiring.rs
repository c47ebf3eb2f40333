//! How a host gets its locks.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

use latchwork_core::{BoxError, lock::LockProviderExt, name::Namespace, options::WorkflowOptions};
use latchwork_lock_sqlserver::UseSqlServerLocking;
use latchwork_testkit::sqlserver::SimulatedSqlServer;

#[tokio::test]
async fn a_host_takes_namespace_and_node_from_its_options_and_connects_when_it_starts() -> Result<(), BoxError> {
    let server = SimulatedSqlServer::start().await?;
    let mut options = WorkflowOptions::default();
    options.namespace = Namespace::new("wiring")?;
    (&mut options).use_sqlserver_locking(server.connection_string());
    assert_eq!(server.log_ins(), 0);
    let context = options.provider_context();
    let locks = options.open_lock(&context).await.ok_or("no lock factory was set")??;
    let _guard = locks.try_lock("x").await?.expect("free");
    assert_eq!(server.held()[0].resource, "wiring:x");
    assert_eq!(server.sessions()[0].application, format!("Latchwork Lock Manager/{}", context.node));
    Ok(())
}

#[tokio::test]
async fn a_host_that_cannot_connect_says_why() -> Result<(), BoxError> {
    let server = SimulatedSqlServer::start().await?;
    server.refuse_log_in(Some((18456, "Login failed for user 'latchwork'.")));
    let mut options = WorkflowOptions::default();
    (&mut options).use_sqlserver_locking(server.connection_string());
    let context = options.provider_context();
    let error = options.open_lock(&context).await.ok_or("no lock factory was set")?.expect_err("refused");
    assert!(error.to_string().contains("Login failed"), "{error}");
    Ok(())
}
