//! `cargo xtask ci`: everything that a change must pass, the cheap and telling stages first.
//!
//! The stages build in the same profiles, with all features of the whole workspace where that is possible, so that each finds what an
//! earlier one compiled.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::command::CommandLine;
use crate::workspace::Metadata;
use crate::{examples, laws, packaging, suite};

/// One stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// The formatting.
    Format,
    /// The laws of the house.
    Laws,
    /// Licences, sources and version requirements of all dependencies.
    Licences,
    /// Whether every published crate packs, with its readme and licences.
    Packaging,
    /// Clippy on every target, a warning is an error.
    Clippy,
    /// The documentation, a warning is an error.
    Docs,
    /// Every crate alone, without features and with each feature alone.
    Features,
    /// Every example is built and run, the main job as the readme says.
    Examples,
    /// The tests.
    Test,
}

impl Stage {
    fn run(self) -> Result<()> {
        match self {
            Self::Format => CommandLine::cargo(["fmt", "--all", "--check"]).run(),
            Self::Laws => laws::run(),
            Self::Licences => licences(),
            Self::Packaging => packaging::run(),
            Self::Clippy => CommandLine::cargo(["clippy", "--workspace", "--all-targets", "--all-features"])
                .arguments(["--", "-D", "warnings"])
                .run(),
            Self::Docs => CommandLine::cargo(["doc", "--workspace", "--all-features", "--no-deps"])
                .environment("RUSTDOCFLAGS", "-D warnings")
                .run(),
            Self::Features => features(),
            Self::Examples => examples::run(),
            Self::Test => suite::run(&[]),
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Runs the stages in their order; `chosen` limits them.
pub(crate) fn run(chosen: &[Stage]) -> Result<()> {
    let started = Instant::now();
    let mut times = Vec::new();
    let stages = Stage::value_variants().iter();
    for stage in stages.filter(|stage| chosen.is_empty() || chosen.contains(stage)) {
        let name = stage.name();
        println!("\n== {name}");
        let begun = Instant::now();
        stage.run().with_context(|| {
            let took = seconds(begun.elapsed());
            format!("the stage `{name}` failed after {took}")
        })?;
        println!("== {name}: passed in {}", seconds(begun.elapsed()));
        times.push((name, begun.elapsed()));
    }
    println!("\nall stages passed:");
    for (name, time) in times {
        println!("{name:>10} {:>9}", seconds(time));
    }
    println!("{:>10} {:>9}", "together", seconds(started.elapsed()));
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn licences() -> Result<()> {
    if !CommandLine::cargo(["deny", "--version"]).succeeds() {
        bail!("cargo-deny is not installed: `cargo install --locked cargo-deny` installs it");
    }
    CommandLine::cargo(["deny", "check", "bans", "licenses", "sources"]).run()
}

/// A feature that only compiles beside another one, or a crate that only compiles because a neighbour asked for more of a dependency, is
/// found here.
fn features() -> Result<()> {
    for package in Metadata::read()?.packages {
        let alone = CommandLine::cargo(["check", "--quiet", "--package", &package.name, "--no-default-features"]);
        alone.run()?;
        for feature in package.features.keys() {
            alone.clone().arguments(["--features", feature]).run()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_come_last_so_that_their_closing_lines_do() {
        assert_eq!(Stage::value_variants().last(), Some(&Stage::Test));
    }

    #[test]
    fn a_stage_is_called_by_its_name() {
        assert_eq!(Stage::from_str("licences", false), Ok(Stage::Licences));
        assert_eq!(Stage::Licences.name(), "licences");
    }
}
