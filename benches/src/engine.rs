//! The engine on the memory store and on SQLite.

use crate::{
    measure, raw,
    report::{Report, Row},
    workflows::{Count, Empty, Items, Replayable, Rounds, Sequence, Ten},
};
use anyhow::Result;
use latchwork::prelude::*;
use std::time::{Duration, Instant};

async fn in_memory<W: Workflow>(workflow: W) -> Result<WorkflowHost, HostError> {
    WorkflowHost::builder().use_local_locking().use_local_queue().use_memory_persistence().workflow(workflow).start().await
}

async fn in_file<W: Workflow>(file: &std::path::Path, workflow: W) -> Result<WorkflowHost, HostError> {
    let file = file.to_string_lossy().into_owned();
    WorkflowHost::builder().use_local_locking().use_local_queue().use_sqlite_persistence(file).workflow(workflow).start().await
}

/// Starts so many instances, so many at a time, and waits for all of them.
pub(crate) async fn run_many<W: Workflow<Data = Empty>>(host: &WorkflowHost, count: usize, at_once: usize) -> Result<Duration> {
    let start = Instant::now();
    let mut starting = tokio::task::JoinSet::new();
    for starter in 0..at_once {
        let host = host.clone();
        let share = count / at_once + usize::from(starter < count % at_once);
        starting.spawn(async move {
            let mut handles = Vec::with_capacity(share);
            for _ in 0..share {
                handles.push(host.start_workflow::<W>(Empty {}).await?);
            }
            for handle in handles {
                handle.ended().await?;
            }
            Ok::<_, HostError>(())
        });
    }
    while let Some(started) = starting.join_next().await {
        started??;
    }
    Ok(start.elapsed())
}

/// Who start instances at the same time, as the requests of a server do.
const STARTERS: usize = 256;

/// B1: many small instances in memory.
pub(crate) async fn memory(report: &mut Report, count: usize) -> Result<()> {
    let host = in_memory(Ten).await?;
    run_many::<Ten>(&host, count / 10 + 1, STARTERS).await?;
    let took = run_many::<Ten>(&host, count, STARTERS).await?;
    let row = Row::new("B1", "memory", format!("steps, {count} x 10")).rate(count * 10, took);
    report.add(row.against(raw::tasks().await, "tasks of the runtime"));
    host.stop().await?;
    Ok(())
}

/// B2: one long instance in memory, against the cost per step of many small ones.
pub(crate) async fn sequence(report: &mut Report, divide: usize) -> Result<()> {
    let (short, long) = (1_000 / divide.min(10), 10_000 / divide.min(10));
    let mut rates = Vec::new();
    for steps in [short, long] {
        let host = in_memory(Sequence(steps)).await?;
        let mut took = Duration::MAX;
        for _ in 0..(2 * long / steps) {
            let start = Instant::now();
            host.start_workflow::<Sequence>(Empty {}).await?.completion().await?;
            took = took.min(start.elapsed());
        }
        rates.push((steps, took));
        host.stop().await?;
    }
    rounds(report, 100_000 / divide).await?;
    let [(short, short_took), (long, long_took)] = rates[..] else { return Ok(()) };
    let row = Row::new("B2", "memory", format!("steps, 1 x {long}")).rate(long, long_took);
    report.add(row.against(short as f64 / short_took.as_secs_f64(), format!("steps, 1 x {short}")));
    Ok(())
}

/// B2: an instance of very many pointers, against one of few.
async fn rounds(report: &mut Report, many: usize) -> Result<()> {
    let mut rates = Vec::new();
    for rounds in [1_000, many] {
        let host = in_memory(Rounds(u32::try_from(rounds)?)).await?;
        let mut took = Duration::MAX;
        for _ in 0..if rounds > 1_000 { 2 } else { 20 } {
            let start = Instant::now();
            host.start_workflow::<Rounds>(Count { items: 0 }).await?.completion().await?;
            took = took.min(start.elapsed());
        }
        rates.push(rounds as f64 / took.as_secs_f64());
        if rounds > 1_000 {
            let row = Row::new("B2", "memory", format!("steps of an instance of {rounds} pointers and as many rounds"))
                .rate(rounds, took);
            report.add(row.against(rates[0], "the same with 1000"));
        }
        host.stop().await?;
    }
    Ok(())
}

/// What a node holds while very many workflows run whose instances are deleted when they end. Their tombstones stay for a minute, so what it
/// holds grows for that long; then it must not.
pub(crate) async fn memory_in_use(report: &mut Report, count: usize) -> Result<()> {
    const PARTS: u32 = 10;
    const PART: Duration = Duration::from_secs(12);
    let builder = WorkflowHost::builder().use_local_locking().use_local_queue().use_memory_persistence().workflow(Ten);
    let minute = Some(Duration::from_mins(1));
    let retention = Retention::delete_at_end().with_tombstones(minute).with_interval(Duration::from_secs(5));
    let host = builder.retention(retention).start().await?;
    let (start, mut held) = (Instant::now(), Vec::new());
    for part in 1..=PARTS {
        run_many::<Ten>(&host, count / PARTS as usize, STARTERS).await?;
        tokio::time::sleep((PART * part).saturating_sub(start.elapsed())).await;
        held.push(measure::resident() >> 20);
    }
    let took = start.elapsed();
    let what = format!("steps of {count} workflows, deleted at their end; MiB in use after each tenth: {held:?}");
    report.add(Row::new("memory", "memory", what).rate(count * 10, took));
    host.stop().await?;
    Ok(())
}

/// B3: many small instances in a file, every checkpoint on the disk.
pub(crate) async fn sqlite(report: &mut Report, count: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let host = in_file(&folder.path().join("b3.db"), Ten).await?;
    run_many::<Ten>(&host, count / 10 + 1, 64).await?;
    let took = run_many::<Ten>(&host, count, STARTERS).await?;
    host.stop().await?;
    let rows = raw::sqlite_rows(&folder.path().join("raw.db")).await?;
    let row = Row::new("B3", "sqlite", format!("steps, {count} x 10, 1 process")).rate(count * 10, took);
    report.add(row.against(rows, "rows in batches"));
    Ok(())
}

/// B4: one instance in a file, against single commits on the same disk.
pub(crate) async fn latency(report: &mut Report, steps: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut commits = raw::sqlite_commits(&folder.path().join("raw.db"), steps).await?;
    let host = in_file(&folder.path().join("b4.db"), Sequence(steps)).await?;
    let handle = host.start_workflow::<Sequence>(Empty {}).await?;
    handle.completion().await?;
    let page = handle.history(0, steps + 1).await?;
    let ends: Vec<_> = page.items.iter().filter_map(|pointer| pointer.ended).collect();
    let mut times: Vec<_> = ends.windows(2).filter_map(|pair| (pair[1] - pair[0]).to_std().ok()).collect();
    host.stop().await?;
    let took = times.iter().sum::<Duration>();
    let row = Row::new("B4", "sqlite", format!("time per step, 1 x {steps}")).times(&mut times);
    report.add(row.median_against(raw::median(&mut commits), "us per single commit"));

    // The same steps without a checkpoint of their own.
    let host = in_file(&folder.path().join("b4-replayable.db"), Replayable(steps)).await?;
    let start = Instant::now();
    host.start_workflow::<Replayable>(Empty {}).await?.completion().await?;
    let row = Row::new("B4", "sqlite", format!("replayable steps, 1 x {steps}")).rate(steps, start.elapsed());
    host.stop().await?;
    report.add(row.against(steps as f64 / took.as_secs_f64(), "the same with a checkpoint each"));
    Ok(())
}

/// B9: a for-each with a join, over few and over many items.
pub(crate) async fn for_each(report: &mut Report, divide: usize) -> Result<()> {
    let host = in_memory(Items).await?;
    let mut rate_of_few = None;
    for items in [1_000, 100_000 / divide] {
        let mut took = Duration::MAX;
        for _ in 0..if items > 1_000 { 2 } else { 20 } {
            let start = Instant::now();
            host.start_workflow::<Items>(Count { items: items as u32 }).await?.completion().await?;
            took = took.min(start.elapsed());
        }
        let mut row = Row::new("B9", "memory", format!("items of a for-each over {items}")).rate(items, took).times(&mut [took]);
        match rate_of_few {
            None => rate_of_few = row.rate,
            Some(few) => row = row.against(few, "items of a for-each over 1000"),
        }
        report.add(row);
    }
    host.stop().await?;
    Ok(())
}

/// B16: very many starts at once.
pub(crate) async fn many_starts(report: &mut Report, count: usize) -> Result<()> {
    let before = measure::resident();
    let host = in_memory(Ten).await?;
    let took = run_many::<Ten>(&host, count, STARTERS).await?;
    let bytes = measure::resident().saturating_sub(before) / count as u64;
    let row = Row::new("B16", "memory", format!("steps of {count} starts at once; {bytes} bytes left of each finished instance"));
    report.add(row.rate(count * 10, took));
    host.stop().await?;

    let folder = tempfile::tempdir()?;
    let before = measure::resident();
    let host = in_file(&folder.path().join("b16.db"), Ten).await?;
    let took = run_many::<Ten>(&host, count, STARTERS).await?;
    let mib = measure::resident().saturating_sub(before) >> 20;
    report
        .add(Row::new("B16", "sqlite", format!("steps of {count} starts at once; {mib} MiB more in use")).rate(count * 10, took));
    host.stop().await?;
    Ok(())
}
