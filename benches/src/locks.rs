//! B12: locks.

use crate::report::{Report, Row};
use anyhow::{Context, Result};
use latchwork::{lock_file::FileLocks, lock_local::LocalLocks, prelude::*};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub(crate) async fn run(report: &mut Report, divide: usize) -> Result<()> {
    let local: Arc<dyn DistributedLockProvider> = Arc::new(LocalLocks::new());
    pairs(report, "local", &local, 400_000 / divide, raw_local(400_000 / divide)).await?;
    hand_over(report, "local", &local, 20_000 / divide).await?;

    let folder = tempfile::tempdir()?;
    let files: Arc<dyn DistributedLockProvider> = Arc::new(FileLocks::open(folder.path().join("locks")).await?);
    let raw = raw_files(folder.path(), 20_000 / divide)?;
    pairs(report, "file", &files, 20_000 / divide, raw).await?;
    hand_over(report, "file", &files, 2_000 / divide).await?;
    Ok(())
}

/// Acquire and release without contention, by one task and by 64.
pub(crate) async fn pairs(
    report: &mut Report,
    backend: &str,
    locks: &Arc<dyn DistributedLockProvider>,
    count: usize,
    raw: (f64, &str),
) -> Result<()> {
    for tasks in [1, 64] {
        let start = Instant::now();
        let mut running = tokio::task::JoinSet::new();
        for task in 0..tasks {
            let locks = locks.clone();
            running.spawn(async move {
                let name = format!("lock {task}");
                for _ in 0..count / tasks {
                    let guard = locks.try_lock(&name).await?.context("nobody else has it")?;
                    guard.release().await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        let row =
            Row::new("B12", backend, format!("acquire + release, {tasks} tasks")).rate(count / tasks * tasks, start.elapsed());
        report.add(row.against(raw.0, raw.1));
    }
    Ok(())
}

/// Two tasks hand one lock to and fro.
pub(crate) async fn hand_over(
    report: &mut Report,
    backend: &str,
    locks: &Arc<dyn DistributedLockProvider>,
    count: usize,
) -> Result<()> {
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let locks = locks.clone();
        running.spawn(async move {
            for _ in 0..count / 2 {
                let guard = locks.lock("contended", Duration::from_secs(60)).await?.context("it is handed over in time")?;
                tokio::task::yield_now().await;
                guard.release().await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    report.add(Row::new("B12", backend, "hand-overs of a contended lock").rate(count, start.elapsed()));
    Ok(())
}

/// The same table work with a standard mutex and map.
fn raw_local(count: usize) -> (f64, &'static str) {
    let table = std::sync::Mutex::new(std::collections::HashMap::new());
    let start = Instant::now();
    for number in 0..count {
        let key = String::from("wfc:lock 0");
        if let Ok(mut table) = table.lock() {
            table.insert(key.clone(), number);
        }
        if let Ok(mut table) = table.lock() {
            table.remove(&key);
        }
    }
    (count as f64 / start.elapsed().as_secs_f64(), "insert + remove in a map under a mutex")
}

/// The same system calls: make, lock, remove.
fn raw_files(folder: &std::path::Path, count: usize) -> Result<(f64, &'static str)> {
    let path = folder.join("raw.lock");
    let start = Instant::now();
    for _ in 0..count {
        let file = std::fs::File::options().create(true).truncate(false).write(true).open(&path)?;
        file.try_lock()?;
        std::fs::remove_file(&path)?;
        drop(file);
    }
    Ok((count as f64 / start.elapsed().as_secs_f64(), "create + flock + remove of a file"))
}
