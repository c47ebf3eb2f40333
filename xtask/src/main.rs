//! The tasks of the Latchwork repository that are more than one command: `cargo xtask <task>`.
//!
//! | task | what it does |
//! | --- | --- |
//! | `test` | runs every test and documentation test, says what was skipped and why |
//! | `ci` | everything a change must pass, stage by stage, stops at the first failure |
//! | `laws` | who may depend on whom, what a crate must say of itself |
//! | `services` | the servers that tests use: `up`, `down`, `status` |
//! | `bench` | the benchmark workloads, in release |

mod ci;
mod command;
mod examples;
mod laws;
mod packaging;
mod services;
mod suite;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::ci::Stage;
use crate::command::CommandLine;
use crate::services::ServiceAction;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The tasks of the Latchwork repository.", version)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every test and documentation test.
    Test {
        /// Passed on to the test runner, such as `-p latchwork-core` or part of a test's name.
        #[arg(last = true, value_name = "ARGS")]
        arguments: Vec<String>,
    },
    /// Run everything that a change must pass, and stop at the first failure.
    Ci {
        /// Only these stages, in their usual order; all of them when none is named.
        #[arg(value_enum, value_name = "STAGE")]
        stages: Vec<Stage>,
    },
    /// Start, stop or show the servers that tests use.
    Services {
        #[command(subcommand)]
        action: ServiceAction,
    },
    /// Run the benchmark workloads in release.
    Bench {
        /// Passed on to the benchmark command, such as the name of a workload.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        arguments: Vec<String>,
    },
    /// Check who depends on whom, and what each crate says of itself.
    Laws,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test { arguments } => suite::run(&arguments),
        Task::Ci { stages } => ci::run(&stages),
        Task::Services { action } => services::run(&action, &services::all()),
        Task::Bench { arguments } => {
            CommandLine::cargo(["run", "--release", "--package", "latchwork-benches", "--"]).arguments(arguments).run()
        }
        Task::Laws => laws::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
