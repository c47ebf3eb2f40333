//! The locks as leases keep the promises of the contract, on the server that `LATCHWORK_TEST_SQLSERVER` names.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

mod support;

use latchwork_core::{
    BoxError,
    lock::{DistributedLockProvider, LockCapabilities, LockError, LockProviderExt, Loss, LossDetection, lease::LeaseOptions},
    store::{IdentityOutcome, PersistenceProvider, SchemaMode},
};
use latchwork_persistence_sqlserver::{SqlServerLeaseLocks, SqlServerLeaseOptions};
use latchwork_testkit::lock::{Fixture, run_all};
use std::time::Duration;
use support::Database;

const SECOND: Duration = Duration::from_secs(1);
/// Generous: test machines are slow.
const SOON: Duration = Duration::from_secs(60);

/// Leases of 21 s: a busy machine may take seconds for an answer.
fn options(database: &Database, node: &str) -> SqlServerLeaseOptions {
    let lease = LeaseOptions::default().with_renewal_period(SECOND).with_margin(20 * SECOND);
    SqlServerLeaseOptions::new(database.connection_string.as_str())
        .with_lease(lease.with_namespace(database.namespace.clone()).with_node(node))
        .with_answer_within(SOON)
}

async fn locks(database: &Database, node: &str) -> Result<SqlServerLeaseLocks, LockError> {
    SqlServerLeaseLocks::connect(&options(database, node)).await
}

/// The schema of a test; without a server the test is skipped.
async fn schema() -> Option<Database> {
    let named = Database::named().await;
    if let Err(why) = &named {
        println!("skipped: {why}");
    }
    named.ok()
}

/// Holds the row of a node's lease until it has expired, so that no renewal gets through.
async fn hold_up_renewals(database: &Database, node: &str) -> Result<(), BoxError> {
    let mut session = database.session().await?;
    let live = "FROM [latchwork].[lease_host] WHERE [node] = @P1 AND [owned_until] > SYSUTCDATETIME();";
    session.batch("BEGIN TRANSACTION;", SOON).await?;
    let hold = "UPDATE [latchwork].[lease_host] SET [node] = [node] WHERE [node] = @P1 AND [owned_until] > SYSUTCDATETIME();";
    session.query(&database.schema.apply(hold), &[&node], SOON).await?;
    loop {
        let left = session.query(&database.schema.apply(&format!("SELECT COUNT_BIG(*) {live}")), &[&node], SOON).await?;
        let left: i64 = left.first().and_then(|rows| rows.first()).and_then(|row| row.get(0)).ok_or("no number")?;
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    session.batch("ROLLBACK TRANSACTION;", SOON).await?;
    Ok(())
}

/// Waits until a query gives so many at most.
async fn until_at_most(database: &Database, most: i64, sql: &str) -> Result<(), BoxError> {
    let counted = async {
        while database.count(sql).await? > most {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    tokio::time::timeout(SOON, counted).await.map_err(|_| format!("it stays above {most}: {sql}"))?
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_of_the_suite_holds() -> Result<(), BoxError> {
    let Some(database) = schema().await else { return Ok(()) };
    let (made, number) = (database.clone(), std::sync::atomic::AtomicU32::new(0));
    let report = run_all(async || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (node, database) = (format!("one-{number}"), made.clone());
        let (one, other) = (locks(&database, &node).await?, locks(&database, &format!("other-{number}")).await?);
        let fixture = Fixture::new(one, other).with_patience(SOON).with_break(move || {
            let (database, node) = (database.clone(), node.clone());
            async move { hold_up_renewals(&database, &node).await.expect("held up") }
        });
        Ok(fixture)
    })
    .await;
    for (case, why) in &report.skipped {
        println!("skipped: {case}: {why}");
    }
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    let shared = ["shared_holders_exclude_only_exclusive_ones", "a_waiting_writer_is_not_starved_by_readers"];
    assert!(report.skipped.iter().all(|(_, why)| *why == "no shared mode"), "{:?}", report.skipped);
    assert!(shared.iter().all(|case| report.skipped.iter().any(|(skipped, _)| skipped == case)));
    database.remove().await
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_application_locks_and_nodes_with_leases_refuse_to_start_together() -> Result<(), BoxError> {
    let Some(database) = schema().await else { return Ok(()) };
    let leases = locks(&database, "one").await?;
    let LockCapabilities { domain, loss, fencing, shared, .. } = leases.capabilities();
    assert_eq!((loss, fencing, shared), (LossDetection::Lease(21 * SECOND), true, false));
    assert!(domain.starts_with("sqlserver-lease:") && domain.contains(&format!("/latchwork_{}", database.namespace)), "{domain}");
    let store = database.store("one").await?;
    store.prepare(SchemaMode::Migrate).await?;
    assert!(store.capabilities().lease_lock);
    let claimed = store.claim_identity(database.namespace.as_str(), &domain, false).await?;
    assert!(matches!(claimed, IdentityOutcome::Accepted(_)), "{claimed:?}");
    // What application locks of the same database name.
    let other = store.claim_identity(database.namespace.as_str(), &store.capabilities().domain, false).await?;
    assert!(!matches!(other, IdentityOutcome::Accepted(_)), "{other:?}");
    leases.stop(SOON).await?;
    store.stop(SOON).await?;
    database.remove().await
}

#[tokio::test(flavor = "multi_thread")]
async fn k54_what_ended_leases_left_is_removed_and_tokens_go_on_ascending() -> Result<(), BoxError> {
    let Some(database) = schema().await else { return Ok(()) };
    let (one, other) = (locks(&database, "one").await?, locks(&database, "other").await?);
    let mut held = Vec::new();
    for number in 0..50 {
        held.push(one.try_lock(&format!("left-{number}")).await?.ok_or("not free")?);
    }
    let released = other.try_lock("released").await?.ok_or("not free")?;
    let first = released.fencing_token();
    released.release().await?;
    assert_eq!(database.count("SELECT COUNT_BIG(*) FROM [latchwork].[lease_lock];").await?, 50, "a released name leaves no row");
    one.stop(SOON).await?;
    let taken = other.try_lock("left-7").await?.ok_or("a stopped node frees at once")?;
    assert!(taken.fencing_token() > held[7].fencing_token() && taken.fencing_token() > first);
    assert_eq!(held[7].lost().await, Loss::Stopped);
    // The clean-up comes with the renewals of whoever lives.
    until_at_most(&database, 1, "SELECT COUNT_BIG(*) FROM [latchwork].[lease_lock];").await?;
    // Removed rows take no token with them.
    let again = other.try_lock("left-8").await?.ok_or("not free")?;
    assert!(again.fencing_token() > taken.fencing_token());
    // The host's row goes an hour later.
    let old = "UPDATE [latchwork].[lease_host] SET [owned_until] = DATEADD(hour, -2, SYSUTCDATETIME()) WHERE [node] = 'one';";
    database.run(old).await?;
    let rows =
        "SELECT (SELECT COUNT_BIG(*) FROM [latchwork].[lease_host]) + (SELECT COUNT_BIG(*) FROM [latchwork].[lease_request]);";
    until_at_most(&database, 2, rows).await?;
    assert!(!taken.is_lost() && !again.is_lost());
    other.stop(SOON).await?;
    database.remove().await
}

#[tokio::test(flavor = "multi_thread")]
async fn k52_a_stale_release_or_renewal_never_touches_the_grant_of_another() -> Result<(), BoxError> {
    let Some(database) = schema().await else { return Ok(()) };
    let (one, other) = (locks(&database, "one").await?, locks(&database, "other").await?);
    let stale = one.try_lock("x").await?.ok_or("not free")?;
    hold_up_renewals(&database, "one").await?;
    let newer = other.lock("x", SOON).await?.ok_or("not granted")?;
    assert!(stale.is_lost());
    stale.release().await?;
    assert!(one.try_lock("x").await?.is_none(), "it is still held");
    let theirs = "SELECT COUNT_BIG(*) FROM [latchwork].[lease_lock] AS l INNER JOIN [latchwork].[lease_host] AS h ON h.[host] = l.[host] \
                  WHERE h.[node] = 'other' AND h.[owned_until] > SYSUTCDATETIME();";
    assert_eq!(database.count(theirs).await?, 1);
    // The lease that expired stays expired, and the node has a new one.
    let hosts = "SELECT COUNT_BIG(*) FROM [latchwork].[lease_host] WHERE [node] = 'one'";
    assert_eq!(database.count(&format!("{hosts} AND [owned_until] <= SYSUTCDATETIME();")).await?, 1);
    assert_eq!(database.count(&format!("{hosts} AND [owned_until] > SYSUTCDATETIME();")).await?, 1);
    assert!(!newer.is_lost());
    one.stop(SOON).await?;
    other.stop(SOON).await?;
    database.remove().await
}

#[tokio::test(flavor = "multi_thread")]
async fn k53_a_lease_that_protects_nothing_is_refused_before_anything_connects() {
    let options = SqlServerLeaseOptions::new("Server=nowhere.invalid;Password=secret").with_renewal_period(Duration::ZERO);
    let refused = SqlServerLeaseLocks::connect(&options).await.expect_err("refused");
    assert!(matches!(refused, LockError::Refused { .. }) && refused.to_string().contains("too short"), "{refused}");
}
