//! The cluster on combinations of backends: three nodes, one of them killed, and the audit finds nothing lost and nothing twice.
#![cfg(feature = "sqlserver")]
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests are tests")]

mod common;

use common::{COUNTS, Ended, cluster};
use latchwork_sqlserver_client::{Session, SqlServerOptions};
use std::time::Duration;

/// The URL of a backend; an error names the variable that is not set.
fn url(scheme: &str, folder: &std::path::Path) -> Result<String, &'static str> {
    let server = |variable| std::env::var(variable).map(|named| format!("{scheme}:{named}")).map_err(|_| variable);
    match scheme {
        "file" => Ok(format!("file:{}", folder.join("locks").display())),
        "sqlite" => Ok(format!("sqlite:{}", folder.join("orders.db").display())),
        _ => server("LATCHWORK_TEST_SQLSERVER"),
    }
}

/// Runs the cluster on this lock, queue and store.
fn nothing_is_lost_on(name: &str, [lock, queue, store]: [&str; 3]) {
    let folder = tempfile::tempdir().expect("a folder");
    let urls = [("LATCHWORK_CLUSTER_LOCK", lock), ("LATCHWORK_CLUSTER_QUEUE", queue), ("LATCHWORK_CLUSTER_STORE", store)];
    let namespace = format!("{name}-{}", std::process::id());
    let mut command = cluster(folder.path(), &["--limit", "60", "--json", "--namespace", &namespace]);
    for (variable, scheme) in urls {
        match url(scheme, folder.path()) {
            Ok(url) => command.env(variable, url),
            Err(missing) => return println!("skipped: {missing} is not set"),
        };
    }
    let ended = Ended::of(&mut command);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.numbers(COUNTS), [60, 58, 2, 0, 0], "{ended:?}");
    assert!(ended.err.contains("killed with SIGKILL, node-4 started"), "{ended:?}");
    clean_up(&namespace);
}

/// Removes the schema of a namespace.
fn clean_up(namespace: &str) {
    let Ok(server) = std::env::var("LATCHWORK_TEST_SQLSERVER") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let limit = Duration::from_secs(60);
        let mut session = Session::open(&SqlServerOptions::new(server)).await.expect("a session");
        let schema = format!("latchwork_{namespace}");
        let list =
            "SELECT TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = @P1 ORDER BY TABLE_TYPE DESC;";
        let found = session.query(list, &[&schema], limit).await.expect("a list");
        for row in found.into_iter().flatten() {
            let what = if row.get::<&str, _>(1).expect("a kind").trim() == "VIEW" { "VIEW" } else { "TABLE" };
            let drop = format!("DROP {what} [{schema}].[{}];", row.get::<&str, _>(0).expect("a name"));
            session.batch(&drop, limit).await.expect("dropped");
        }
        session.batch(&format!("DROP SCHEMA IF EXISTS [{schema}];"), limit).await.expect("dropped");
    });
}

#[test]
fn everything_on_sql_server() {
    nothing_is_lost_on("all", ["sqlserver", "sqlserver", "sqlserver"]);
}

#[test]
fn a_database_and_nothing_else_with_the_lease_lock() {
    nothing_is_lost_on("lease", ["sqlserver-lease", "sqlserver", "sqlserver"]);
}

#[test]
fn locks_of_sql_server_over_files() {
    nothing_is_lost_on("locks", ["sqlserver", "sqlite", "sqlite"]);
}
