//! The benchmark workloads: each with the raw limit of the same device or runtime, measured in the same run.
//!
//! `cargo xtask bench` runs all of them, `cargo xtask bench B1 B3` some, `--json` prints one line of JSON for each row. What a row
//! means, and the ratios that were seen, stand in `docs/performance.md`. Numbers of one machine mean little; ratios of one run do.

mod engine;
mod events;
mod instructions;
mod locks;
mod measure;
mod processes;
mod queues;
mod raw;
mod report;
mod sleepers;
mod sqlserver;
mod workflows;

use anyhow::{Result, bail};
use clap::Parser;
use report::Report;

/// As a server would: the system's allocator makes threads wait that free what another one allocated. The raw limits have it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs benchmark workloads.
#[derive(Debug, Parser)]
struct Arguments {
    /// The workloads, by name: B1 B2 B3 B4 B7 B9 B10 B11 B12 B13 B16 MEMORY, or `instructions`. All but the last when none is named.
    workloads: Vec<String>,
    /// One line of JSON for each row instead of a table.
    #[arg(long)]
    json: bool,
    /// Divides the sizes of all workloads, for a quick look.
    #[arg(long, default_value_t = 1)]
    divide: usize,
    /// One of several processes of a workload.
    #[arg(long, hide = true)]
    child: Option<String>,
}

const ALL: [&str; 12] = ["B1", "B2", "B3", "B4", "B7", "B9", "B10", "B11", "B12", "B13", "B16", "MEMORY"];

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(task) = &arguments.child {
        return processes::child(task).await;
    }
    let names: Vec<String> = if arguments.workloads.is_empty() {
        ALL.map(str::to_owned).into()
    } else {
        arguments.workloads.iter().map(|name| name.to_uppercase()).collect()
    };
    let mut report = Report::new(arguments.json);
    let divide = arguments.divide.max(1);
    for name in &names {
        match name.as_str() {
            "B1" => engine::memory(&mut report, 10_000 / divide).await?,
            "B2" => engine::sequence(&mut report, divide).await?,
            "B3" => {
                engine::sqlite(&mut report, 1_000 / divide).await?;
                processes::sqlite(&mut report, 1_000 / divide).await?;
            }
            "B4" => engine::latency(&mut report, 2_000 / divide).await?,
            "B9" => engine::for_each(&mut report, divide).await?,
            "B10" => sleepers::run(&mut report, 100_000 / divide).await?,
            "B11" => events::run(&mut report, divide).await?,
            "MEMORY" => engine::memory_in_use(&mut report, 1_000_000 / divide).await?,
            "B7" => sqlserver::workflows(&mut report, 1_000 / divide).await?,
            "B12" => {
                locks::run(&mut report, divide).await?;
                sqlserver::lock_pairs(&mut report, 10_000 / divide).await?;
            }
            "B13" => {
                queues::run(&mut report, divide).await?;
                sqlserver::queue(&mut report, 10_000 / divide).await?;
            }
            "B16" => engine::many_starts(&mut report, 50_000 / divide).await?,
            "INSTRUCTIONS" => instructions::run(&mut report)?,
            other => bail!("there is no workload `{other}`; there are {}, and `instructions`", ALL.join(", ")),
        }
    }
    report.print();
    Ok(())
}
