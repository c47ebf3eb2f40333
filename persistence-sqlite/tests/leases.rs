//! The locks as leases keep the promises of the contract.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

use latchwork_core::{
    BoxError, Scope,
    lock::{DistributedLockProvider, LockCapabilities, LockError, LockProviderExt, Loss, LossDetection, lease::LeaseOptions},
    name::Namespace,
    options::ProviderContext,
    store::{IdentityOutcome, PersistenceProvider, SchemaMode},
};
use latchwork_persistence_sqlite::{SqliteLeaseLocks, SqliteLeaseOptions, SqliteOptions, SqliteStore};
use latchwork_sqlite_client::sqlx::{self, Connection, SqliteConnection};
use latchwork_testkit::lock::Fixture;
use std::{path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(60);

fn options(folder: &Path, node: &str) -> SqliteLeaseOptions {
    let lease = LeaseOptions::default().with_renewal_period(SECOND).with_margin(5 * SECOND);
    SqliteLeaseOptions::new(SqliteOptions::new(folder.join("orders.db"))).with_lease(lease.with_node(node))
}

async fn locks(folder: &Path, node: &str) -> Result<SqliteLeaseLocks, LockError> {
    SqliteLeaseLocks::open(options(folder, node)).await
}

async fn connection(folder: &Path) -> Result<SqliteConnection, BoxError> {
    Ok(SqliteConnection::connect(&format!("sqlite:{}", folder.join("orders.db").display())).await?)
}

async fn count(folder: &Path, sql: &'static str) -> Result<i64, BoxError> {
    Ok(sqlx::query_scalar(sql).fetch_one(&mut connection(folder).await?).await?)
}

/// Ends the leases of a node, as an administrator could; its next renewal learns of it.
async fn end(folder: &Path, node: &str) -> Result<(), BoxError> {
    let sql = "UPDATE latchwork_lease_host SET owned_until = 0 WHERE node = ?1";
    sqlx::query(sql).bind(node).execute(&mut connection(folder).await?).await?;
    Ok(())
}

/// No renewal of the lease that the node has now succeeds; its next lease is a sound one.
async fn refuse_renewals(folder: &Path, node: &str) -> Result<(), BoxError> {
    let mut connection = connection(folder).await?;
    let live = "SELECT host FROM latchwork_lease_host WHERE node = ?1 ORDER BY owned_until DESC";
    let host: String = sqlx::query_scalar(live).bind(node).fetch_one(&mut connection).await?;
    let refuse = format!(
        "CREATE TRIGGER refuse_{host} BEFORE UPDATE OF owned_until ON latchwork_lease_host
         WHEN old.host = '{host}' AND new.owned_until > old.owned_until BEGIN SELECT RAISE(ABORT, 'planted'); END"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(refuse)).execute(&mut connection).await?;
    Ok(())
}

async fn suite() -> Result<Fixture, BoxError> {
    let folder = Arc::new(tempfile::tempdir()?);
    let (one, other) = (locks(folder.path(), "one").await?, locks(folder.path(), "other").await?);
    Ok(Fixture::new(one, other).with_patience(SOON).with_break(move || {
        let folder = folder.clone();
        async move { refuse_renewals(folder.path(), "one").await.expect("refused") }
    }))
}

mod in_a_file {
    latchwork_testkit::lock_conformance!(super::suite);
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[tokio::test]
async fn locks_in_files_and_leases_name_different_domains_and_a_store_refuses_the_other_kind() -> Result<(), BoxError> {
    let folder = folder();
    let leases = locks(folder.path(), "one").await?;
    let LockCapabilities { domain, loss, fencing, shared, scope, .. } = leases.capabilities();
    assert_eq!((loss, fencing, shared, scope), (LossDetection::Lease(6 * SECOND), true, false, Scope::Host));
    assert!(domain.starts_with("sqlite-lease:") && domain.ends_with("orders.db"), "{domain}");
    let context = ProviderContext::new(Namespace::default(), "one");
    let store = SqliteStore::open(SqliteOptions::new(folder.path().join("orders.db")), &context).await?;
    store.prepare(SchemaMode::Migrate).await?;
    assert!(store.capabilities().lease_lock);
    let claimed = store.claim_identity(context.namespace.as_str(), &domain, false).await?;
    assert!(matches!(claimed, IdentityOutcome::Accepted(_)), "{claimed:?}");
    let other = store.claim_identity(context.namespace.as_str(), "file:locks", false).await?;
    assert!(!matches!(other, IdentityOutcome::Accepted(_)), "{other:?}");
    leases.stop(SOON).await?;
    Ok(store.stop(SOON).await?)
}

#[tokio::test]
async fn namespaces_in_one_file_have_leases_of_their_own() -> Result<(), BoxError> {
    let folder = folder();
    let in_namespace = async |name: &str| {
        let mut options = options(folder.path(), "one");
        options.lease = options.lease.with_namespace(Namespace::new(name)?);
        Ok::<_, BoxError>(SqliteLeaseLocks::open(options).await?)
    };
    let (one, other) = (in_namespace("one-shop").await?, in_namespace("other").await?);
    let held = (one.try_lock("x").await?.ok_or("not free")?, other.try_lock("x").await?.ok_or("not free")?);
    assert!(!held.0.is_lost() && !held.1.is_lost());
    assert_eq!(count(folder.path(), "SELECT count(*) FROM latchwork_one$shop__lease_lock").await?, 1);
    Ok(())
}

#[tokio::test]
async fn k54_what_ended_leases_left_is_removed_and_tokens_go_on_ascending() -> Result<(), BoxError> {
    const LOCKS: &str = "SELECT count(*) FROM latchwork_lease_lock";
    const HOSTS: &str = "SELECT count(*) FROM latchwork_lease_host";
    let folder = folder();
    let until = async |most: i64, sql: &'static str| {
        let counted = async {
            while count(folder.path(), sql).await? > most {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok::<_, BoxError>(())
        };
        tokio::time::timeout(SOON, counted).await.map_err(|_| format!("it stays above {most}: {sql}"))?
    };
    let (one, other) = (locks(folder.path(), "one").await?, locks(folder.path(), "other").await?);
    let mut held = Vec::new();
    for number in 0..50 {
        held.push(one.try_lock(&format!("left-{number}")).await?.ok_or("not free")?);
    }
    let released = other.try_lock("released").await?.ok_or("not free")?;
    let first = released.fencing_token();
    released.release().await?;
    assert_eq!(count(folder.path(), LOCKS).await?, 50, "a released name leaves no row");
    one.stop(SOON).await?;
    let taken = other.try_lock("left-7").await?.ok_or("a stopped node frees at once")?;
    assert!(taken.fencing_token() > held[7].fencing_token() && taken.fencing_token() > first);
    assert_eq!(held[7].lost().await, Loss::Stopped);
    // The clean-up comes with the renewals of whoever lives.
    until(1, LOCKS).await?;
    let again = other.try_lock("left-8").await?.ok_or("not free")?;
    assert!(again.fencing_token() > taken.fencing_token(), "removed rows take no token with them");
    // The host's row goes an hour later.
    assert_eq!(count(folder.path(), HOSTS).await?, 2);
    end(folder.path(), "one").await?;
    until(1, HOSTS).await?;
    assert!(!taken.is_lost() && !again.is_lost());
    Ok(other.stop(SOON).await?)
}

#[tokio::test]
async fn k52_a_stale_release_never_touches_the_grant_of_another() -> Result<(), BoxError> {
    let folder = folder();
    let (one, other) = (locks(folder.path(), "one").await?, locks(folder.path(), "other").await?);
    let stale = one.try_lock("x").await?.ok_or("not free")?;
    end(folder.path(), "one").await?;
    let newer = other.lock("x", SOON).await?.ok_or("not granted")?;
    stale.release().await?;
    assert!(one.try_lock("x").await?.is_none(), "it is still held");
    let theirs = "SELECT count(*) FROM latchwork_lease_lock AS l INNER JOIN latchwork_lease_host AS h ON h.host = l.host
                  WHERE h.node = 'other' AND l.name LIKE '%x'";
    assert_eq!(count(folder.path(), theirs).await?, 1);
    assert!(!newer.is_lost());
    one.stop(SOON).await?;
    Ok(other.stop(SOON).await?)
}

#[tokio::test]
async fn k53_a_lease_that_protects_nothing_is_refused_before_a_file_is_made() {
    let folder = folder();
    let refused = SqliteLeaseLocks::open(options(folder.path(), "one").with_renewal_period(Duration::ZERO)).await;
    let refused = refused.expect_err("refused");
    assert!(matches!(refused, LockError::Refused { .. }) && refused.to_string().contains("too short"), "{refused}");
    assert!(!folder.path().join("orders.db").exists());
}

#[tokio::test]
async fn verify_mode_makes_no_tables() {
    let folder = folder();
    let refused = SqliteLeaseLocks::open(options(folder.path(), "one").with_schema(SchemaMode::Verify)).await;
    let refused = refused.expect_err("refused");
    assert!(refused.to_string().contains("the file has none of it"), "{refused}");
}
