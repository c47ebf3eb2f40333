//! B11: events published and matched, one wait for each event, and very many.

use crate::{
    report::{Report, Row},
    workflows::{Key, Waits},
};
use anyhow::Result;
use latchwork::prelude::*;
use std::time::{Duration, Instant};

/// Events of the run in which each has very many waits.
const BROADCASTS: usize = 10;

pub(crate) async fn run(report: &mut Report, divide: usize) -> Result<()> {
    let count = 20_000 / divide;
    let builder = || WorkflowHost::builder().use_local_locking().use_local_queue().workflow(Waits);
    let memory = builder().use_memory_persistence().start().await?;
    both(report, "memory", &memory, count).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("b11.db").to_string_lossy().into_owned();
    let sqlite = builder().use_sqlite_persistence(file).start().await?;
    both(report, "sqlite", &sqlite, count / 4).await
}

async fn both(report: &mut Report, backend: &'static str, host: &WorkflowHost, count: usize) -> Result<()> {
    let took = waits(host, "one", count, count).await?;
    report.add(Row::new("B11", backend, format!("events published and matched, {count} of 1 wait each")).rate(count, took));
    let waits_each = (count / BROADCASTS).min(1_000);
    let took = waits(host, "many", waits_each * BROADCASTS, BROADCASTS).await?;
    let what = format!("waits matched, {BROADCASTS} events of {waits_each} waits each");
    report.add(Row::new("B11", backend, what).rate(waits_each * BROADCASTS, took));
    host.stop().await?;
    Ok(())
}

/// Lets so many instances wait for so many keys, then publishes an event for each key; how long it takes until all have ended.
async fn waits(host: &WorkflowHost, name: &str, instances: usize, keys: usize) -> Result<Duration> {
    let mut handles = Vec::with_capacity(instances);
    for number in 0..instances {
        handles.push(host.start_workflow::<Waits>(Key { key: format!("{name} {}", number % keys) }).await?);
    }
    while host.health().active > 0 || host.queue().depth(latchwork::queue::QueueKind::Workflow).await?.waiting > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let start = Instant::now();
    let mut publishing = tokio::task::JoinSet::new();
    let publishers = 64.min(keys);
    for publisher in 0..publishers {
        let (host, name) = (host.clone(), name.to_owned());
        publishing.spawn(async move {
            for key in (publisher..keys).step_by(publishers) {
                host.publish_event("told", &format!("{name} {key}"), ()).await?;
            }
            Ok::<_, HostError>(())
        });
    }
    while let Some(published) = publishing.join_next().await {
        published??;
    }
    for handle in handles {
        handle.ended().await?;
    }
    Ok(start.elapsed())
}
