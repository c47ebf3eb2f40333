//! A durable cluster on one machine, and the proof that it is one.
//!
//! `cargo run --release` starts three node processes on one SQLite file, feeds them the orders of a CSV file, and kills one node with
//! SIGKILL half-way. In the end it compares the [ledger], into which the steps have written what they did, with what the store says,
//! and ends with status 1 when anything was lost or done twice. The workflow itself is in [`fulfilment`].
//!
//! The one program is both the [parent] and, by a hidden subcommand, each [node]. They share nothing but the [backends](backend) and the
//! folder of the ledger, so nodes on several machines would be written in the same way.

mod arguments;
mod audit;
mod backend;
mod display;
mod fleet;
mod folder;
mod fulfilment;
mod ledger;
mod node;
mod orders;
mod parent;
mod patience;
mod progress;
mod report;
mod shop;
mod warehouse;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;

use arguments::{Arguments, Process, RunArguments};
use ledger::Ledger;
use parent::{Conclusion, Plan};

fn main() -> ExitCode {
    let Arguments { process, run } = Arguments::parse();
    if std::env::var_os(EnvFilter::DEFAULT_ENV).is_some() {
        tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(io::stderr).init();
    }
    let ended = match process {
        Some(Process::Node(arguments)) => run_node(arguments),
        None => run_cluster(&run),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn runtime() -> Result<Runtime> {
    Runtime::new().context("no asynchronous runtime could be started")
}

fn run_node(arguments: node::NodeArguments) -> Result<ExitCode> {
    let ledger = Ledger::create(&arguments.ledger, &arguments.name)?;
    runtime()?.block_on(node::run(arguments, ledger))?;
    Ok(ExitCode::SUCCESS)
}

fn run_cluster(arguments: &RunArguments) -> Result<ExitCode> {
    let plan = Plan::make(arguments)?;
    let report = match runtime()?.block_on(parent::run(plan))? {
        Conclusion::Finished(report) => report,
        Conclusion::Interrupted => {
            eprintln!("stopped cleanly; the same command goes on where this run stopped");
            return Ok(ExitCode::from(130));
        }
    };
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", report.json()?)?;
    } else {
        writeln!(out, "{}", report.tables())?;
        report.details().iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    report.faults().iter().for_each(|line| eprintln!("{line}"));
    Ok(if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
