//! Raw limits: what the runtime and the device can do without us.

use anyhow::Result;
use sqlx::{Connection, Executor, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// Tasks that this runtime spawns, runs and joins per second.
pub(crate) async fn tasks() -> f64 {
    let count = 500_000;
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for number in 0..count {
        running.spawn(async move { std::hint::black_box(number) });
        // As many at once as bursts.
        if running.len() >= 1_024 {
            running.join_next().await;
        }
    }
    while running.join_next().await.is_some() {}
    f64::from(count) / start.elapsed().as_secs_f64()
}

/// A SQLite file with the settings that the store has.
pub(crate) async fn sqlite(file: &Path) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
        .synchronous(sqlx::sqlite::SqliteSynchronous::Full);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    connection
        .execute(
            "CREATE TABLE IF NOT EXISTS pair (id INTEGER PRIMARY KEY, key TEXT NOT NULL, value TEXT NOT NULL);
             CREATE UNIQUE INDEX IF NOT EXISTS pair_key ON pair (key);",
        )
        .await?;
    Ok(connection)
}

/// Rows that one connection writes per second in transactions of 768 rows (what 256 checkpoints are), one statement each.
pub(crate) async fn sqlite_rows(file: &Path) -> Result<f64> {
    let mut connection = sqlite(file).await?;
    let (groups, rows) = (100, 768);
    let start = Instant::now();
    for group in 0..groups {
        let values: Vec<(String, &str)> =
            (0..rows).map(|row| (format!("{group}-{row}-0123456789abcdef"), "a value of some length")).collect();
        let json = serde_json::to_string(&values)?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query("INSERT INTO pair (key, value) SELECT value ->> 0, value ->> 1 FROM json_each(?)")
            .bind(json)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
    }
    Ok(f64::from(groups * rows) / start.elapsed().as_secs_f64())
}

/// Times of commits of one row each: about one fsync.
pub(crate) async fn sqlite_commits(file: &Path, count: usize) -> Result<Vec<Duration>> {
    let mut connection = sqlite(file).await?;
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let start = Instant::now();
        sqlx::query("INSERT INTO pair (key, value) VALUES (?, 'a value of some length')")
            .bind(format!("single {number}"))
            .execute(&mut connection)
            .await?;
        times.push(start.elapsed());
    }
    Ok(times)
}

pub(crate) fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}
