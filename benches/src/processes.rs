//! B3 from three processes on one file.

use crate::{
    raw,
    report::{Report, Row},
    workflows::{Empty, Ten},
};
use anyhow::{Context, Result, bail};
use latchwork::prelude::*;
use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

const PROCESSES: usize = 3;

async fn host(folder: &Path, run: bool) -> Result<WorkflowHost, HostError> {
    let file = folder.join("b3.db").to_string_lossy().into_owned();
    WorkflowHost::builder()
        .use_file_locking(folder.join("locks"))
        .use_sqlite_queue(&file)
        .use_sqlite_persistence(&file)
        .configure(|options| options.run_workflows = run)
        .poll_interval(Duration::from_secs(2))
        .workflow(Ten)
        .start()
        .await
}

/// Three processes work through what this one started.
pub(crate) async fn sqlite(report: &mut Report, count: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let starter = host(folder.path(), false).await?;
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..count {
        let starter = starter.clone();
        starting.spawn(async move { starter.start_workflow::<Ten>(Empty {}).await.map(drop) });
    }
    while let Some(started) = starting.join_next().await {
        started??;
    }
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        let mut child = tokio::process::Command::new(std::env::current_exe()?)
            .args(["--child", &folder.path().to_string_lossy()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().context("a child has an output")?;
        let mut lines = BufReader::new(output).lines();
        if lines.next_line().await?.as_deref() != Some("ready") {
            bail!("a process of the workload did not start");
        }
        children.push((child, lines));
    }
    let (start, before) = (Instant::now(), starter.statistics().await?.complete);
    while starter.statistics().await?.complete < count as u64 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (took, done) = (start.elapsed(), count - before as usize);
    for (mut child, _) in children {
        drop(child.stdin.take());
        child.wait().await?;
    }
    starter.stop().await?;
    let rows = raw::sqlite_rows(&folder.path().join("raw.db")).await?;
    let row = Row::new("B3", "sqlite, file locks, sqlite queue", format!("steps, {count} x 10, {PROCESSES} processes"));
    report.add(row.rate(done * 10, took).against(rows, "rows in batches, one process"));
    Ok(())
}

/// A process of the workload: a node until its input ends.
pub(crate) async fn child(folder: &str) -> Result<()> {
    let node = host(Path::new(folder), true).await?;
    println!("ready");
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await?;
    node.stop().await?;
    Ok(())
}
