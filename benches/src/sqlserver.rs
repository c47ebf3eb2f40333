//! B7, B12 and B13 on the SQL Server that `LATCHWORK_TEST_SQLSERVER` names, each with what that server does by itself.

use crate::{
    engine, locks, queues,
    report::{Report, Row},
    workflows::Five,
};
use anyhow::{Context, Result};
use latchwork::{
    lock_sqlserver::{SqlServerLockOptions, SqlServerLocks},
    options::ProviderContext,
    persistence_sqlserver::SqlServerStoreOptions,
    prelude::*,
    queue_sqlserver::{SqlServerQueue, SqlServerQueueOptions},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tiberius::{Client, Config, Row as ServerRow, ToSql};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};

const LIMIT: Duration = Duration::from_secs(120);
/// Pairs of acquire and release in one request, which is what a connection of the locks sends at most.
const BATCH: usize = 25;
/// Rows in one statement: those of 256 checkpoints.
const ROWS: usize = 768;

/// The connection string, or a note that there is none.
fn server() -> Option<String> {
    let named = std::env::var("LATCHWORK_TEST_SQLSERVER").ok();
    if named.is_none() {
        eprintln!("skipped: SQL Server, since LATCHWORK_TEST_SQLSERVER is not set");
    }
    named
}

/// A connection of the driver's, for the raw limits.
struct Session(Client<Compat<TcpStream>>);

impl Session {
    async fn query(&mut self, sql: &str, parameters: &[&dyn ToSql]) -> Result<Vec<Vec<ServerRow>>> {
        Ok(Box::pin(async { self.0.query(sql, parameters).await?.into_results().await }).await?)
    }

    async fn batch(&mut self, sql: &str) -> Result<()> {
        Box::pin(async { self.0.simple_query(sql).await?.into_results().await }).await?;
        Ok(())
    }
}

async fn session(server: &str) -> Result<Session> {
    let config = Config::from_ado_string(server)?;
    let stream = TcpStream::connect(config.get_addr()).await?;
    stream.set_nodelay(true)?;
    Ok(Session(Box::pin(Client::connect(config, stream.compat_write())).await?))
}

/// A namespace that no other run has, so that tables begin empty.
fn namespace() -> Result<Namespace> {
    Ok(Namespace::new(&format!("bench_{}", std::process::id()))?)
}

/// B7: workflows of five steps.
pub(crate) async fn workflows(report: &mut Report, count: usize) -> Result<()> {
    let Some(server) = server() else { return Ok(()) };
    let (rows, commit) = (raw_rows(&server).await?, raw_commit(&server).await?);
    let host = WorkflowHost::builder()
        .namespace(namespace()?)
        .use_sqlserver_locking(server.as_str())
        .use_sqlserver_queue(server.as_str())
        .use_sqlserver_persistence_with(SqlServerStoreOptions::new(server.as_str()))
        .workflow(Five)
        .start()
        .await?;
    engine::run_many::<Five>(&host, count / 10 + 1, 64).await?;
    let took = engine::run_many::<Five>(&host, count, 64).await?;
    let row = Row::new("B7", "sqlserver, all roles", format!("workflows of 5 steps, {count}")).rate(count, took);
    report.add(row.against(rows, "rows of the server in batches"));
    let mut times = Vec::new();
    for _ in 0..count.min(100) {
        let start = Instant::now();
        host.start_workflow::<Five>(crate::workflows::Empty {}).await?.ended().await?;
        times.push(start.elapsed());
    }
    let row = Row::new("B7", "sqlserver, all roles", "one workflow of 5 steps, alone").times(&mut times);
    report.add(row.median_against(commit, "us per single insert"));
    host.stop().await?;
    remove(&server).await
}

/// B12: locks.
pub(crate) async fn lock_pairs(report: &mut Report, count: usize) -> Result<()> {
    let Some(server) = server() else { return Ok(()) };
    let raw = raw_pairs(&server, count).await?;
    let options = SqlServerLockOptions::new(server.as_str()).with_connections(1);
    let ours: Arc<dyn DistributedLockProvider> = Arc::new(SqlServerLocks::connect(&options).await?);
    locks::pairs(report, "sqlserver, 1 connection", &ours, count, (raw, "pairs in batches of the server")).await?;
    locks::hand_over(report, "sqlserver, 1 connection", &ours, count / 10).await?;
    ours.stop(LIMIT).await?;
    let options = SqlServerLockOptions::new(server.as_str());
    let ours: Arc<dyn DistributedLockProvider> = Arc::new(SqlServerLocks::connect(&options).await?);
    locks::pairs(report, "sqlserver, 2 connections", &ours, count, (raw, "pairs in batches of the server")).await?;
    ours.stop(LIMIT).await?;
    let single = raw_single_pairs(&server, count / 10).await?;
    report.add(
        Row::new("B12", "sqlserver, the server", "acquire + release, a request each, 1 connection").rate(single.0, single.1),
    );
    let each = raw_connection_each(&server, 20).await?;
    report.add(Row::new("B12", "sqlserver, the server", "acquire + release, a connection each").rate(each.0, each.1));
    Ok(())
}

/// B13: the queue.
pub(crate) async fn queue(report: &mut Report, count: usize) -> Result<()> {
    let Some(server) = server() else { return Ok(()) };
    let rows = raw_triples(&server).await?;
    let context = ProviderContext::new(namespace()?, "bench");
    let queue = SqlServerQueue::open(SqlServerQueueOptions::new(server.as_str()), &context).await;
    let queue = queue.map_err(|error| anyhow::anyhow!(error))?;
    queues::throughput(report, "sqlserver", Arc::new(queue), count, Some(rows)).await?;
    remove(&server).await?;
    let commit = raw_commit(&server).await?;
    let host = WorkflowHost::builder()
        .namespace(namespace()?)
        .use_sqlserver_locking(server.as_str())
        .use_sqlserver_queue(server.as_str())
        .use_sqlserver_persistence(server.as_str());
    queues::first_step(report, "sqlserver, all roles", host.workflow(crate::workflows::First), count / 50, Some(commit)).await?;
    remove(&server).await
}

/// Pairs of acquire and release per second, in batches on one connection.
async fn raw_pairs(server: &str, count: usize) -> Result<f64> {
    let mut session = session(server).await?;
    let mut batch = String::from("DECLARE @r int;");
    let call = |procedure: &str, name: usize, rest: &str| {
        format!("EXEC @r = {procedure} @Resource = 'bench {name}', @LockOwner = 'Session'{rest};")
    };
    for name in 0..BATCH {
        batch.push_str(&call("sp_getapplock", name, ", @LockMode = 'Exclusive', @LockTimeout = 0"));
    }
    for name in 0..BATCH {
        batch.push_str(&call("sp_releaseapplock", name, ""));
    }
    let start = Instant::now();
    for _ in 0..count / BATCH {
        session.query(&batch, &[]).await?;
    }
    Ok((count / BATCH * BATCH) as f64 / start.elapsed().as_secs_f64())
}

const GET: &str = "DECLARE @r int; EXEC @r = sp_getapplock @Resource = 'bench', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0; SELECT @r;";
const RELEASE: &str = "DECLARE @r int; EXEC @r = sp_releaseapplock @Resource = 'bench', @LockOwner = 'Session'; SELECT @r;";

/// As one connection does it that sends one call at a time.
async fn raw_single_pairs(server: &str, count: usize) -> Result<(usize, Duration)> {
    let mut session = session(server).await?;
    let start = Instant::now();
    for _ in 0..count {
        session.query(GET, &[]).await?;
        session.query(RELEASE, &[]).await?;
    }
    Ok((count, start.elapsed()))
}

/// As a client does it that opens a connection for each lock.
async fn raw_connection_each(server: &str, count: usize) -> Result<(usize, Duration)> {
    let start = Instant::now();
    for _ in 0..count {
        let mut session = session(server).await?;
        session.query(GET, &[]).await?;
        session.query(RELEASE, &[]).await?;
    }
    Ok((count, start.elapsed()))
}

const TABLE: &str = "IF OBJECT_ID(N'dbo.latchwork_bench', N'U') IS NOT NULL DROP TABLE dbo.latchwork_bench; \
    CREATE TABLE dbo.latchwork_bench (id bigint IDENTITY PRIMARY KEY, [key] varchar(50) NOT NULL UNIQUE, value varchar(50) NOT NULL);";
const INSERT: &str = "INSERT INTO dbo.latchwork_bench ([key], value) \
    SELECT [key], value FROM OPENJSON(@P1) WITH ([key] varchar(50) '$.k', value varchar(50) '$.v');";
const DROP: &str = "DROP TABLE dbo.latchwork_bench;";

fn rows(group: usize, count: usize) -> String {
    let one = |row| format!(r#"{{"k":"{group}-{row}-0123456789abcdef","v":"a value of some length"}}"#);
    format!("[{}]", (0..count).map(one).collect::<Vec<_>>().join(","))
}

/// Rows that one connection writes per second in statements of 768, each a transaction.
async fn raw_rows(server: &str) -> Result<f64> {
    let mut session = session(server).await?;
    session.batch(TABLE).await?;
    let groups = 20;
    let start = Instant::now();
    for group in 0..groups {
        session.query(INSERT, &[&rows(group, ROWS)]).await?;
    }
    let rate = (groups * ROWS) as f64 / start.elapsed().as_secs_f64();
    session.batch(DROP).await?;
    Ok(rate)
}

/// Rows that one connection inserts, updates and deletes per second in statements of 64.
async fn raw_triples(server: &str) -> Result<f64> {
    let mut session = session(server).await?;
    session.batch(TABLE).await?;
    let (groups, count) = (50, 64);
    let start = Instant::now();
    for group in 0..groups {
        session.query(INSERT, &[&rows(group, count)]).await?;
        session.batch("UPDATE TOP (64) dbo.latchwork_bench SET value = 'claimed';").await?;
        session.batch("DELETE FROM dbo.latchwork_bench WHERE value = 'claimed';").await?;
    }
    let rate = (groups * count) as f64 / start.elapsed().as_secs_f64();
    session.batch(DROP).await?;
    Ok(rate)
}

/// The median time of a statement that inserts one row, in microseconds.
async fn raw_commit(server: &str) -> Result<f64> {
    let mut session = session(server).await?;
    session.batch(TABLE).await?;
    let mut times = Vec::new();
    for group in 0..200 {
        let start = Instant::now();
        session.query(INSERT, &[&rows(group, 1)]).await?;
        times.push(start.elapsed());
    }
    session.batch(DROP).await?;
    Ok(crate::raw::median(&mut times))
}

/// Removes the schema of this run.
async fn remove(server: &str) -> Result<()> {
    let mut session = session(server).await?;
    let schema = format!("latchwork_{}", namespace()?);
    let found = session
        .query(
            "SELECT TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = @P1 ORDER BY TABLE_TYPE DESC;",
            &[&schema],
        )
        .await?;
    for row in found.into_iter().flatten() {
        let (name, kind): (Option<&str>, Option<&str>) = (row.get(0), row.get(1));
        let what = if kind.is_some_and(|kind| kind.trim() == "VIEW") { "VIEW" } else { "TABLE" };
        session.batch(&format!("DROP {what} [{schema}].[{}];", name.context("a name")?)).await?;
    }
    session.batch(&format!("DROP SCHEMA [{schema}];")).await?;
    Ok(())
}
