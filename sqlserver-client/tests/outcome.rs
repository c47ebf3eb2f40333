//! Commits whose answer is lost, on the server that `LATCHWORK_TEST_SQLSERVER` names, through a proxy.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

use latchwork_sqlserver_client::{Session, SqlServerOptions, SqlServerPool};
use latchwork_testkit::proxy::{Cut, Proxy, Way};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// How many rows the table has.
async fn count(session: &mut Session, table: &str) -> i32 {
    let rows = session.batch(&format!("SELECT CAST(COUNT(*) AS int) AS n FROM {table};"), LIMIT).await.expect("counted");
    rows[0][0].get("n").expect("a number")
}

#[tokio::test]
async fn a_commit_without_an_answer_says_that_it_may_have_been_done() {
    let Ok(text) = std::env::var("LATCHWORK_TEST_SQLSERVER") else {
        println!("skipped: LATCHWORK_TEST_SQLSERVER is not set");
        return;
    };
    let server = SqlServerOptions::new(text.as_str()).server();
    let (host, port) = server.split_once(',').unwrap_or((&server, "1433"));
    let proxy = Proxy::start(format!("{host}:{port}")).await.expect("started");
    // The last server counts.
    let through = format!("{text};Server=tcp:127.0.0.1,{}", proxy.address().port());
    let pool = SqlServerPool::new(SqlServerOptions::new(through), 2).expect("a pool");
    let mut direct = Session::open(&SqlServerOptions::new(text)).await.expect("opened");
    let table = format!("[dbo].[latchwork_outcome_{}]", std::process::id());
    direct.batch(&format!("CREATE TABLE {table} ([n] int NOT NULL PRIMARY KEY);"), LIMIT).await.expect("created");

    // The server has committed when its answer is lost; it has not when the request is.
    for (way, n, rows) in [(Way::Answers, 1, 1), (Way::Requests, 2, 1)] {
        let mut transaction = pool.begin().await.expect("begun");
        transaction.query(&format!("INSERT INTO {table} ([n]) VALUES (@P1);"), &[&n]).await.expect("inserted");
        proxy.hold(way);
        let cut = async {
            proxy.until_held(way).await;
            proxy.cut(Cut::Reset).await;
            proxy.carry_on();
        };
        let (committed, ()) = tokio::join!(transaction.commit(), cut);
        let error = committed.expect_err("nobody knows what became of it");
        assert!(error.leaves_the_outcome_open() && error.is_transient(), "{way:?}: {error}");
        // The pool has thrown the session away, and the next one works.
        let sql = format!("SELECT CAST(COUNT(*) AS int) AS n FROM {table};");
        let seen = pool.run(|session| Box::pin(async move { session.batch(&sql, LIMIT).await })).await.expect("counted");
        assert_eq!(seen[0][0].get::<i32, _>("n"), Some(rows), "{way:?}");
        assert_eq!(count(&mut direct, &table).await, rows, "{way:?}");
    }
    direct.batch(&format!("DROP TABLE {table};"), LIMIT).await.expect("dropped");
}
