//! B13: queues, and the time from a start to its first step.

use crate::{
    raw,
    report::{Report, Row},
    workflows::{Empty, First, Ran},
};
use anyhow::{Context, Result};
use latchwork::{
    options::ProviderContext,
    prelude::*,
    queue::{QueueKind, QueueProvider, WorkItem},
    queue_local::{LocalQueue, LocalQueueOptions},
    queue_sqlite::SqliteQueue,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Hints enqueued at once, and taken at most.
const BATCH: usize = 64;

pub(crate) async fn run(report: &mut Report, divide: usize) -> Result<()> {
    let count = 500_000 / divide;
    // Room for all: what a full queue drops would never come.
    let local = LocalQueue::with_options(LocalQueueOptions::default().with_capacity(count))?;
    throughput(report, "local", Arc::new(local), count, None).await?;
    let folder = tempfile::tempdir()?;
    let rows = raw::sqlite_rows(&folder.path().join("raw.db")).await?;
    let context = ProviderContext::new(Namespace::default(), "bench");
    let queue = SqliteQueue::open(folder.path().join("queue.db"), &context).await.map_err(|error| anyhow::anyhow!(error))?;
    let queue: Arc<dyn QueueProvider> = Arc::new(queue);
    // A hint is a row inserted, claimed and deleted.
    throughput(report, "sqlite", queue, 50_000 / divide, Some(rows / 3.0)).await?;

    let builder = || WorkflowHost::builder().use_local_locking().workflow(First);
    first_step(report, "memory, local queue", builder().use_local_queue().use_memory_persistence(), 2_000 / divide, None).await?;
    let mut commits = raw::sqlite_commits(&folder.path().join("commits.db"), 1_000).await?;
    let commit = raw::median(&mut commits);
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let local = builder().use_local_queue().use_sqlite_persistence(file("local.db"));
    first_step(report, "sqlite, local queue", local, 1_000 / divide, Some(commit)).await?;
    let both = builder().use_sqlite_queue(file("both.db")).use_sqlite_persistence(file("both.db"));
    first_step(report, "sqlite, sqlite queue", both, 1_000 / divide, Some(commit)).await?;
    Ok(())
}

pub(crate) async fn throughput(
    report: &mut Report,
    backend: &str,
    queue: Arc<dyn QueueProvider>,
    count: usize,
    raw: Option<f64>,
) -> Result<()> {
    let items: Vec<WorkItem> = (0..count).map(|_| WorkItem::new(InstanceId::new(), "bench", 1)).collect();
    let start = Instant::now();
    let producer = {
        let queue = queue.clone();
        tokio::spawn(async move {
            for batch in items.chunks(BATCH) {
                queue.enqueue(QueueKind::Workflow, batch).await?;
            }
            anyhow::Ok(())
        })
    };
    let mut done = 0;
    while done < count {
        for delivery in queue.dequeue(QueueKind::Workflow, BATCH, Duration::from_secs(1)).await? {
            delivery.ack_later();
            done += 1;
        }
    }
    producer.await??;
    queue.stop(Duration::from_secs(5)).await?;
    let row = Row::new("B13", backend, "hints enqueued, taken and acknowledged").rate(count, start.elapsed());
    report.add(match raw {
        Some(raw) => row.against(raw, "row triples in batches"),
        None => row,
    });
    Ok(())
}

pub(crate) async fn first_step(
    report: &mut Report,
    backend: &str,
    builder: latchwork::WorkflowHostBuilder,
    count: usize,
    commit: Option<f64>,
) -> Result<()> {
    let (sender, mut ran) = tokio::sync::mpsc::unbounded_channel();
    let host = builder.service(Ran(sender)).start().await?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let handle = host.start_workflow::<First>(Empty {}).await?;
        let at = ran.recv().await.context("the step runs")?;
        times.push(at.saturating_duration_since(start));
        handle.ended().await?;
    }
    host.stop().await?;
    let row = Row::new("B13", backend, "from the start to the first step").times(&mut times);
    report.add(match commit {
        Some(commit) => row.median_against(commit, "us per single commit"),
        None => row,
    });
    Ok(())
}
