//! The simulator as the real driver sees it.
#![cfg(feature = "sqlserver")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

use futures_util::TryStreamExt;
use latchwork_testkit::sqlserver::SimulatedSqlServer;
use std::time::Duration;
use tiberius::{Client, Command, Config, EncryptionLevel};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};

type Raw = Client<Compat<TcpStream>>;

async fn try_connect(text: &str) -> tiberius::Result<Raw> {
    let mut config = Config::from_ado_string(text)?;
    config.encryption(EncryptionLevel::NotSupported);
    let stream = TcpStream::connect(config.get_addr()).await.expect("reached");
    Box::pin(Client::connect(config, stream.compat_write())).await
}

async fn connect(server: &SimulatedSqlServer) -> Raw {
    try_connect(&server.connection_string()).await.expect("logged in")
}

async fn number(client: &mut Raw, sql: &str) -> i64 {
    let row = client.simple_query(sql).await.expect("answered").into_row().await.expect("read").expect("a row");
    row.get::<i64, _>(0).expect("a number")
}

async fn text(client: &mut Raw, sql: &str) -> String {
    let row = client.simple_query(sql).await.expect("answered").into_row().await.expect("read").expect("a row");
    row.get::<&str, _>(0).expect("a text").to_owned()
}

async fn acquire(client: &mut Raw, name: &str, mode: &str, wait: i32) -> i64 {
    let sql = format!(
        "DECLARE @r int; EXEC @r = sp_getapplock @Resource = N'{name}', @LockMode = '{mode}', @LockOwner = 'Session', \
         @LockTimeout = {wait}; SELECT @r AS code"
    );
    number(client, &sql).await
}

async fn release(client: &mut Raw, name: &str) -> i64 {
    let sql = format!(
        "DECLARE @r int, @n int; BEGIN TRY EXEC @r = sp_releaseapplock @Resource = '{name}', @LockOwner = 'Session' END TRY \
         BEGIN CATCH SET @r = ERROR_NUMBER() END CATCH SELECT @r"
    );
    number(client, &sql).await
}

#[tokio::test]
async fn a_lock_excludes_other_sessions_and_is_counted_in_its_own() {
    let server = SimulatedSqlServer::start().await.expect("started");
    let (mut one, mut other) = (connect(&server).await, connect(&server).await);
    assert_eq!(acquire(&mut one, "x", "Exclusive", 0).await, 0);
    assert_eq!(acquire(&mut one, "x", "Exclusive", 0).await, 0);
    assert_eq!(acquire(&mut other, "x", "Exclusive", 0).await, -1);
    assert_eq!(acquire(&mut other, "x", "Shared", 20).await, -1);
    assert_eq!(server.held()[0].grants, 2);
    assert_eq!(number(&mut other, "SELECT APPLOCK_TEST('public', 'x', 'Exclusive', 'Session')").await, 0);
    assert_eq!(text(&mut one, "SELECT APPLOCK_MODE('public', 'x', 'Session')").await, "Exclusive");
    assert_eq!(text(&mut other, "SELECT APPLOCK_MODE('public', 'x', 'Session')").await, "NoLock");
    assert_eq!(release(&mut one, "x").await, 0);
    assert_eq!(acquire(&mut other, "x", "Exclusive", 0).await, -1);
    assert_eq!(release(&mut one, "x").await, 0);
    assert_eq!(acquire(&mut other, "x", "Exclusive", 0).await, 0);
    assert_eq!(release(&mut one, "x").await, 1223);
    assert_eq!(acquire(&mut one, "X", "Shared", 0).await, 0);
    assert_eq!(acquire(&mut other, "X", "Shared", 0).await, 0);
    assert_eq!(acquire(&mut other, "X ", "Exclusive", 0).await, 0);
}

#[tokio::test]
async fn a_wait_ends_with_the_release_or_the_session_of_the_holder() {
    let server = SimulatedSqlServer::start().await.expect("started");
    for kill in [false, true] {
        let (mut one, mut other) = (connect(&server).await, connect(&server).await);
        assert_eq!(acquire(&mut one, "x", "Exclusive", 0).await, 0);
        let waiting = tokio::spawn(async move { acquire(&mut other, "x", "Exclusive", -1).await });
        tokio::time::sleep(Duration::from_millis(5)).await;
        if kill {
            let session = server.held()[0].session;
            let ended = tokio::join!(server.kill(session), async move { one.simple_query("SELECT 1").await.map(drop) });
            assert!(ended.1.is_err());
        } else {
            assert_eq!(release(&mut one, "x").await, 0);
        }
        assert!(matches!(waiting.await.expect("joined"), 0 | 1));
    }
}

#[tokio::test]
async fn names_are_cut_at_255_units_and_belong_to_their_database() {
    let server = SimulatedSqlServer::start().await.expect("started");
    let (mut one, mut other) = (connect(&server).await, connect(&server).await);
    let mut elsewhere = try_connect(&server.connection_string_of("other")).await.expect("logged in");
    let long = "ż".repeat(255);
    assert_eq!(acquire(&mut one, &format!("{long}a"), "Exclusive", 0).await, 0);
    assert_eq!(acquire(&mut other, &format!("{long}b"), "Exclusive", 0).await, -1);
    assert_eq!(acquire(&mut elsewhere, &long, "Exclusive", 0).await, 0);
}

#[tokio::test]
async fn procedures_and_parameters_are_understood() {
    let server = SimulatedSqlServer::start().await.expect("started");
    let mut client = connect(&server).await;
    let mut command = Command::new("sp_getapplock");
    command.bind_param("@Resource", "wfc:x");
    command.bind_param("@LockMode", "Exclusive");
    command.bind_param("@LockOwner", "Session");
    command.bind_param("@LockTimeout", 0);
    let result = command.exec(&mut client).await.expect("answered");
    result.try_collect::<Vec<_>>().await.expect("read");
    assert_eq!(server.held()[0].resource, "wfc:x");
    let sql =
        "DECLARE @r int; EXEC @r = sp_releaseapplock @Resource = @P1, @LockOwner = 'Session'; SELECT @r AS code, @P2 AS given";
    let row = client.query(sql, &[&"wfc:x", &-7_i32]).await.expect("answered").into_row().await.expect("read").expect("a row");
    assert_eq!((row.get::<i64, _>("code"), row.get::<i64, _>("given")), (Some(0), Some(-7)));
    assert!(server.held().is_empty());
    server.create_sequence("dbo.fence");
    assert_eq!(number(&mut client, "SELECT NEXT VALUE FOR [dbo].[fence] AS n").await, 1);
    assert_eq!(number(&mut client, "SELECT NEXT VALUE FOR dbo.fence").await, 2);
}

#[tokio::test]
async fn a_loop_goes_through_the_pieces_of_a_text_and_goes_on_after_what_it_catches() {
    let server = SimulatedSqlServer::start().await.expect("started");
    let mut client = connect(&server).await;
    let sql = "DECLARE @i int = 0, @r int, @n nvarchar(255); \
               WHILE @i < LEN(@P1) BEGIN \
               BEGIN TRY \
               SET @n = RTRIM(SUBSTRING(@P1, @i + 1, 3)); SELECT @i = @i + 3 * 1, @r = 7; \
               EXEC @r = sp_getapplock @Resource = @n, @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0; \
               IF @r <> 0 SELECT @i AS item, @r AS code; \
               END TRY BEGIN CATCH SELECT @i AS item, @r AS code, ERROR_NUMBER() AS error; END CATCH; \
               END; \
               SELECT @i AS done, @n AS last";
    server.answer_next_acquire(1, None);
    server.answer_next_acquire(-999, Some("An invalid parameter was specified."));
    let results = client.query(sql, &[&"a  b  c 𐐷dd"]).await.expect("answered").into_results().await.expect("read");
    let rows: Vec<_> = results.iter().flatten().collect();
    let number = |row: usize, column: &str| rows[row].get::<i64, _>(column);
    assert_eq!((number(0, "item"), number(0, "code")), (Some(3), Some(1)));
    assert_eq!((number(1, "item"), number(1, "code"), number(1, "error")), (Some(6), Some(7), Some(15600)));
    assert_eq!(number(2, "done"), Some(12));
    assert_eq!(rows.len(), 3);
    // The character beyond the first 65,536 is two units, which are cut apart.
    let names: std::collections::BTreeSet<String> = server.held().into_iter().map(|held| held.resource).collect();
    assert_eq!(names, std::collections::BTreeSet::from(["c \u{fffd}".to_owned(), "\u{fffd}dd".to_owned()]));
}

#[tokio::test]
async fn it_misbehaves_on_command() {
    let server = SimulatedSqlServer::start().await.expect("started");
    server.refuse_log_in(Some((4060, "Cannot open database.")));
    assert_eq!(try_connect(&server.connection_string()).await.expect_err("refused").code(), Some(4060));
    server.refuse_log_in(None);
    let wrong = server.connection_string().replace("Str0ng", "Weak");
    assert_eq!(try_connect(&wrong).await.expect_err("refused").code(), Some(18456));
    let mut client = connect(&server).await;
    server.answer_next_acquire(-3, None);
    assert_eq!(acquire(&mut client, "x", "Exclusive", 0).await, -3);
    server.answer_next_acquire(-999, None);
    assert_eq!(acquire(&mut client, "x", "Exclusive", 0).await, -999);
    assert_eq!(acquire(&mut client, "x", "Exclusive", 0).await, 0);
    server.be_silent(true);
    let answer = tokio::time::timeout(Duration::from_millis(50), client.simple_query("SELECT 1")).await;
    assert!(answer.is_err());
    drop(answer);
    server.be_silent(false);
    let restarted = tokio::join!(server.restart(), async move { drop(client) });
    assert_eq!(restarted, ((), ()));
    assert!(server.held().is_empty() && server.sessions().is_empty());
    let _ = connect(&server).await;
    server.refuse_connections(true);
    assert!(try_connect(&server.connection_string()).await.is_err());
}
