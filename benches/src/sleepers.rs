//! B10: very many sleeping instances.

use crate::{
    measure,
    report::{Report, Row},
    workflows::{Nap, Naps, Sleeper},
};
use anyhow::Result;
use latchwork::prelude::*;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long the node is watched while all of them sleep.
const WATCHED: Duration = Duration::from_secs(5);
/// Over how long their ends are spread.
const SPREAD: Duration = Duration::from_secs(10);

pub(crate) async fn run(report: &mut Report, count: usize) -> Result<()> {
    let naps = Naps { start: Instant::now(), late: Arc::new(Mutex::new(Vec::with_capacity(count))) };
    let before = measure::resident();
    let host = WorkflowHost::builder()
        .use_local_locking()
        .use_local_queue()
        .use_memory_persistence()
        .service(naps.clone())
        .workflow(Sleeper)
        .start()
        .await?;
    // Long enough that all of them sleep before the first wakes.
    let first = naps.start.elapsed() + WATCHED + Duration::from_secs(10 + count as u64 / 20_000);
    for number in 0..count {
        let wake = first + SPREAD * number as u32 / count as u32;
        host.start_workflow::<Sleeper>(Nap { wake: wake.as_millis() as u64, left: 0 }).await?;
    }
    while host.health().active > 0 || host.queue().depth(latchwork::queue::QueueKind::Workflow).await?.waiting > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let bytes = measure::resident().saturating_sub(before) / count as u64;
    let (processor, watched) = (measure::processor_time(), Instant::now());
    tokio::time::sleep(WATCHED).await;
    let busy = (measure::processor_time() - processor).as_secs_f64() / watched.elapsed().as_secs_f64() * 100.0;
    let done = || naps.late.lock().unwrap_or_else(PoisonError::into_inner).len();
    while done() < count {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut late = naps.late.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let what = format!("lateness of {count} sleepers; {bytes} bytes each, store included; {busy:.2} % of a core while all sleep");
    report.add(Row::new("B10", "memory", what).times(&mut late));
    host.stop().await?;
    Ok(())
}
