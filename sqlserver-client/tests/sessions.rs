//! Sessions with the simulated server.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

use latchwork_sqlserver_client::{Session, SqlServerError, SqlServerOptions};
use latchwork_testkit::sqlserver::SimulatedSqlServer;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

async fn open(server: &SimulatedSqlServer) -> Session {
    Session::open(&SqlServerOptions::new(server.connection_string())).await.expect("opened")
}

async fn number(session: &mut Session) -> Result<i64, SqlServerError> {
    let results = session.query("SELECT @P1 AS n", &[&7_i64], LIMIT).await?;
    Ok(results[0][0].get("n").expect("a number"))
}

#[tokio::test]
async fn a_session_answers_and_goes_on_after_an_error() {
    let server = SimulatedSqlServer::start().await.expect("started");
    let options = SqlServerOptions::new(server.connection_string()).with_application_name("x".repeat(200));
    let mut session = Session::open(&options).await.expect("opened");
    assert_eq!(server.sessions()[0].application, "x".repeat(128));
    assert_eq!(options.server(), format!("127.0.0.1,{}", server.address().port()));
    assert_eq!(number(&mut session).await.expect("answered"), 7);
    let error = session.query("EXEC sp_missing", &[], LIMIT).await.expect_err("refused");
    assert_eq!((error.number(), error.is_transient(), session.is_broken()), (Some(2812), false, false));
    assert_eq!(number(&mut session).await.expect("answered"), 7);
}

#[tokio::test]
async fn a_server_without_tls_is_refused_unless_the_connection_string_does_without() {
    let server = SimulatedSqlServer::start().await.expect("started");
    let text = server.connection_string().replace("Encrypt=false", "Encrypt=true");
    let error = Session::open(&SqlServerOptions::new(text)).await.expect_err("refused");
    assert!(matches!(error, SqlServerError::NoTls { .. }), "{error}");
    assert!(error.to_string().contains("Encrypt=false"));
    let by_default = server.connection_string().replace(";Encrypt=false", "");
    let error = Session::open(&SqlServerOptions::new(by_default)).await.expect_err("refused");
    assert!(matches!(error, SqlServerError::NoTls { .. }), "{error}");
}

#[tokio::test]
async fn errors_say_whether_another_try_can_help_and_show_no_secret() {
    let server = SimulatedSqlServer::start().await.expect("started");
    let options = SqlServerOptions::new(server.connection_string());
    assert!(!format!("{options:?}").contains("Str0ng"));
    for (number, transient) in [(18456, false), (4060, true), (40613, true)] {
        server.refuse_log_in(Some((number, "No.")));
        let error = Session::open(&options).await.expect_err("refused");
        assert!(matches!(error, SqlServerError::LogIn { .. }), "{error}");
        assert_eq!(error.is_transient(), transient);
        assert!(!format!("{error} {error:?}").contains("Str0ng"));
    }
    server.refuse_connections(true);
    let error = Session::open(&options).await.expect_err("refused");
    assert!(matches!(error, SqlServerError::Unreachable { .. }) && error.is_transient(), "{error}");
    let error = Session::open(&SqlServerOptions::new("Server=x,y,z;Password=Str0ng")).await.expect_err("refused");
    assert!(matches!(error, SqlServerError::ConnectionString { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("Str0ng"));
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let server = SimulatedSqlServer::start().await.expect("started");
    let mut session = open(&server).await;
    server.be_silent(true);
    let error = session.query("SELECT 1", &[], Duration::from_millis(20)).await.expect_err("silent");
    assert!(matches!(error, SqlServerError::TimedOut { .. }) && error.is_transient());
    assert!(session.is_broken());
    assert!(matches!(number(&mut session).await, Err(SqlServerError::Closed { .. })));
    let options = SqlServerOptions::new(server.connection_string()).with_connect_timeout(Duration::from_millis(50));
    assert!(Session::open(&options).await.expect_err("silent").is_transient());
}

#[tokio::test]
async fn the_end_of_an_idle_session_is_seen_at_once() {
    let server = SimulatedSqlServer::start().await.expect("started");
    let session = open(&server).await;
    let watch = async move { session.stirs().await };
    let (closed, ()) = tokio::join!(watch, server.restart());
    assert!(closed);
}
