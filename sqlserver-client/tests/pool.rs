//! Pools of sessions with the simulated server.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

use latchwork_sqlserver_client::{Session, SqlServerError, SqlServerOptions, SqlServerPool};
use latchwork_testkit::sqlserver::SimulatedSqlServer;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

async fn pool(sessions: usize) -> (SimulatedSqlServer, SqlServerPool) {
    let server = SimulatedSqlServer::start().await.expect("started");
    let options = SqlServerOptions::new(server.connection_string()).with_connect_timeout(LIMIT);
    let pool = SqlServerPool::new(options, sessions).expect("a pool");
    (server, pool)
}

async fn number(session: &mut Session) -> Result<i64, SqlServerError> {
    let results = session.query("SELECT @P1 AS n", &[&7_i64], LIMIT).await?;
    Ok(results[0][0].get("n").expect("a number"))
}

#[tokio::test]
async fn nothing_connects_before_use_and_sessions_are_used_again() {
    let (server, pool) = pool(2).await;
    assert_eq!(server.log_ins(), 0);
    for _ in 0..5 {
        assert_eq!(pool.run(|session| Box::pin(number(session))).await.expect("answered"), 7);
    }
    assert_eq!(server.log_ins(), 1);
    let many = (0..20).map(|_| pool.run(|session| Box::pin(number(session))));
    assert!(futures_util::future::join_all(many).await.iter().all(Result::is_ok));
    assert_eq!(server.log_ins(), 2);
}

#[tokio::test]
async fn a_session_that_ended_or_broke_is_replaced() {
    let (server, pool) = pool(1).await;
    pool.run(|session| Box::pin(number(session))).await.expect("answered");
    let ((), answer) = tokio::join!(server.restart(), pool.retry(|session| Box::pin(number(session))));
    assert_eq!(answer.expect("answered"), 7);
    server.be_silent(true);
    assert!(matches!(pool.run(|session| Box::pin(ask_briefly(session))).await, Err(SqlServerError::TimedOut { .. })));
    server.be_silent(false);
    assert_eq!(pool.run(|session| Box::pin(number(session))).await.expect("answered"), 7);
}

async fn ask_briefly(session: &mut Session) -> Result<(), SqlServerError> {
    session.query("SELECT 1", &[], Duration::from_millis(20)).await.map(|_| ())
}

#[tokio::test]
async fn a_request_is_tried_again_when_that_can_help_and_only_then() {
    let (server, pool) = pool(1).await;
    server.refuse_log_in(Some((40613, "Moving.")));
    let asked = pool.retry(|session| Box::pin(number(session)));
    let mended = async {
        while server.log_ins() < 2 {
            tokio::task::yield_now().await;
        }
        server.refuse_log_in(None);
    };
    let (answer, ()) = tokio::join!(asked, mended);
    assert_eq!(answer.expect("answered"), 7);
    server.refuse_log_in(Some((18456, "No.")));
    let before = server.log_ins();
    let ((), answer) = tokio::join!(server.restart(), pool.retry(|session| Box::pin(number(session))));
    assert!(matches!(answer, Err(SqlServerError::LogIn { number: 18456, .. })));
    assert_eq!(server.log_ins(), before + 1);
}

#[tokio::test]
async fn a_job_is_done_without_its_caller_and_before_the_pool_is_closed() {
    let (server, pool) = pool(1).await;
    pool.run(|session| Box::pin(number(session))).await.expect("answered");
    server.delay(Duration::from_millis(50));
    let (done, finished) = tokio::sync::oneshot::channel();
    let job = pool.run(move |session| {
        Box::pin(async move {
            let answer = number(session).await;
            done.send(()).ok();
            answer
        })
    });
    assert!(tokio::time::timeout(Duration::from_millis(1), job).await.is_err());
    pool.close(LIMIT).await.expect("closed");
    finished.await.expect("the job was done");
    assert!(matches!(pool.run(|session| Box::pin(number(session))).await, Err(SqlServerError::Stopped)));
}
