//! The conformance suite on the simulated server, and on the one that `LATCHWORK_TEST_SQLSERVER` names.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod support;

use latchwork_core::BoxError;
use latchwork_lock_sqlserver::{SqlServerLockOptions, SqlServerLocks};
use latchwork_testkit::{
    lock::{self, Case, Fixture},
    proxy::Cut,
    sqlserver::SimulatedSqlServer,
};
use std::sync::Arc;
use support::Place;

const FALLS: &str = "Babelfish falls over when a session has tried in vain five times";
/// What Babelfish is not asked: cases in which nodes contend for long.
const BABELFISH: &[(&str, &str)] = &[
    ("a_cancelled_try_leaves_nothing_held", FALLS),
    ("a_thousand_tasks_on_twenty_names_exclude_each_other", FALLS),
    ("a_wait_ends_with_none_at_its_time_out", FALLS),
    ("a_wait_for_ever_ends_with_the_grant", FALLS),
    ("a_wait_is_granted_when_the_holder_frees", FALLS),
    ("k06_a_release_does_not_wait_behind_waiters", FALLS),
    ("k06_many_locks_are_held_at_once", FALLS),
    ("k07_a_cancelled_wait_leaves_nothing_held", FALLS),
    ("k07_a_wait_cancelled_as_its_grant_arrives_leaves_nothing_held", FALLS),
    ("k08_a_stale_release_never_frees_a_newer_grant", FALLS),
    ("look_alike_and_long_names_are_different_locks", FALLS),
    ("several_locks_are_taken_together_or_not_at_all", FALLS),
    ("several_locks_taken_crosswise_never_wait_in_a_circle", FALLS),
    ("shared_holders_exclude_only_exclusive_ones", FALLS),
    ("stop_frees_all_signals_the_loss_and_ends_waits", FALLS),
    ("waiters_of_one_process_are_served_in_order", FALLS),
];
/// Its two nodes have different ways to the server, and so different names for it; the case is run without the proxy.
const DESCRIBES: (&str, &str) = ("a_service_describes_itself_and_answers", "run apart from the others, without a proxy");

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

/// On a real server, each case on sessions of its own.
mod on_the_named_server {
    use super::*;

    async fn two_nodes() -> Result<Fixture, BoxError> {
        let place = Arc::new(Place::named().await.ok_or("no server is named")?);
        let (one, other) = (SqlServerLocks::connect(&place.options().with_connections(2)).await?, place.rival().await);
        let cutting = place.clone();
        let fixture = Fixture::new(one, other).with_break(move || {
            let place = cutting.clone();
            async move { place.proxy.cut(Cut::Reset).await }
        });
        Ok(fixture.with_kept(place))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_case_of_the_suite_holds() -> Result<(), BoxError> {
        let Some(place) = Place::named().await else { return Ok(()) };
        let mut exceptions = if place.is_babelfish { BABELFISH.to_vec() } else { Vec::new() };
        exceptions.push(DESCRIBES);
        let report = lock::run_all_but(&exceptions, two_nodes).await;
        for (case, why) in &report.skipped {
            println!("skipped: {case}: {why}");
        }
        assert!(report.failed.is_empty(), "{:#?}", report.failed);
        let describes = Case::named(DESCRIBES.0).ok_or("there is no such case")?;
        lock::run(describes, async || Ok(Fixture::new(place.rival().await, place.rival().await))).await?;
        Ok(())
    }
}
