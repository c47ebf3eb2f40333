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
