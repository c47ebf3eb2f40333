//! How a host gets its locks, and under which names the server has them.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod support;

use futures_util::future::join_all;
use latchwork_core::{BoxError, lock::LockProviderExt, name::Namespace, options::WorkflowOptions};
use latchwork_lock_sqlserver::UseSqlServerLocking;
use latchwork_sqlserver_client::{Session, driver::ColumnData};
use latchwork_testkit::sqlserver::SimulatedSqlServer;
use support::{PATIENCE, Place, fresh, take};

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

#[tokio::test]
async fn names_of_all_kinds_reach_the_server_unchanged_in_one_batch() -> Result<(), BoxError> {
    for place in Place::all().await {
        let (locks, run) = (place.connect().await, fresh("kinds"));
        let names = ["", " a", "żółć", "a  b", "𐐷", "𐐷𐐷 𐐷", "|'\"]\\%", "e\u{301}", "long"]
            .map(|kind| format!("{run}{kind}\u{2009}{kind}."));
        // All but the first go together, of different lengths.
        let guards = join_all(names.iter().map(|name| take(&locks, name))).await;
        let mut other = place.session().await;
        for (guard, name) in guards.into_iter().zip(&names) {
            let resource = format!("wfc:{name}");
            assert!(!is_free(&mut other, &resource).await?, "{resource:?}");
            guard.release().await?;
            assert!(is_free(&mut other, &resource).await?, "{resource:?}");
        }
    }
    Ok(())
}

/// Whether a program that asks for this very name would get it.
async fn is_free(session: &mut Session, resource: &str) -> Result<bool, BoxError> {
    let test = "SELECT APPLOCK_TEST(N'public', @P1, N'Exclusive', N'Session')";
    let results = session.query(test, &[&resource], PATIENCE).await?;
    match results.iter().flatten().next().and_then(|row| row.cells().next().map(|(_, value)| value)) {
        Some(ColumnData::I16(Some(0)) | ColumnData::I32(Some(0)) | ColumnData::I64(Some(0))) => Ok(false),
        Some(ColumnData::I16(Some(1)) | ColumnData::I32(Some(1)) | ColumnData::I64(Some(1))) => Ok(true),
        other => Err(format!("{other:?} instead of 0 or 1").into()),
    }
}
