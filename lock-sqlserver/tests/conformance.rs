//! The conformance suite on the simulated server, and on the one that `LATCHWORK_TEST_SQLSERVER` names.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

use latchwork_core::BoxError;
use latchwork_lock_sqlserver::{SqlServerLockOptions, SqlServerLocks};
use latchwork_testkit::{lock::Fixture, sqlserver::SimulatedSqlServer};
use std::sync::Arc;

async fn simulated(fencing: bool) -> Result<Fixture, BoxError> {
    let server = Arc::new(SimulatedSqlServer::start().await?);
    server.create_sequence("dbo.fence");
    let options = |node: &str| {
        let options = SqlServerLockOptions::new(server.connection_string()).with_node(node);
        if fencing { options.with_fencing_sequence("dbo.fence") } else { options }
    };
    let (one, other) = (SqlServerLocks::connect(&options("one")).await?, SqlServerLocks::connect(&options("other")).await?);
    let killing = server.clone();
    let fixture = Fixture::new(one, other).with_break(move || {
        let server = killing.clone();
        async move { server.kill_application("Latchwork Lock Manager/one").await }
    });
    Ok(fixture.with_kept(server))
}

mod on_the_simulator {
    latchwork_testkit::lock_conformance!(async || super::simulated(false).await);
}

mod on_the_simulator_with_fencing {
    latchwork_testkit::lock_conformance!(async || super::simulated(true).await);
}

/// On a real server. Its contention cases are kept small by fresh sessions per case; a stand-in that falls over after a few failed tries in
/// one session is not asked for them.
mod on_the_named_server {
    use super::*;

    async fn named() -> Result<Option<Fixture>, BoxError> {
        let Ok(connection_string) = std::env::var("LATCHWORK_TEST_SQLSERVER") else { return Ok(None) };
        let options = |node: &str| SqlServerLockOptions::new(connection_string.as_str()).with_node(node);
        let (one, other) = (SqlServerLocks::connect(&options("one")).await?, SqlServerLocks::connect(&options("other")).await?);
        Ok(Some(Fixture::new(one, other)))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_case_of_the_suite_holds() -> Result<(), BoxError> {
        if named().await?.is_none() {
            println!("skipped: LATCHWORK_TEST_SQLSERVER is not set");
            return Ok(());
        }
        let report = latchwork_testkit::lock::run_all(async || named().await?.ok_or_else(|| "no server is named".into())).await;
        for (case, why) in &report.skipped {
            println!("skipped: {case}: {why}");
        }
        assert!(report.failed.is_empty(), "{:#?}", report.failed);
        Ok(())
    }
}
