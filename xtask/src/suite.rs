//! `cargo xtask test`: the whole test suite, by nextest where it is installed, else by cargo itself.

use anyhow::Result;

use crate::command::CommandLine;
use crate::services::{self, TestServices};
use crate::workspace::{Metadata, Package};

/// Runs the tests; `arguments` choose among them.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let all = services::all();
    let services = TestServices::up(&all)?;
    for note in &services.notes {
        println!("{note}");
    }
    let choice = Choice::of(arguments);
    let nextest = CommandLine::cargo(["nextest", "--version"]).succeeds();
    if !nextest {
        println!("cargo-nextest is not installed; `cargo test` runs the tests, which takes longer.");
    }
    let libraries = libraries(&Metadata::read()?);
    let commands = commands(&choice, nextest, &libraries);
    if commands.len() == 1 && nextest {
        println!("skipped: documentation tests (not among what the arguments choose)");
    }
    // Both runs go to their end, so that one look shows all failures.
    let mut outcomes: Vec<Result<()>> = commands.into_iter().map(|command| with(command, &services).run()).collect();
    outcomes.push(services.down());
    outcomes.into_iter().collect()
}

fn with(mut command: CommandLine, services: &TestServices<'_>) -> CommandLine {
    for (name, value) in &services.environment {
        command = command.environment(name, value);
    }
    command
}

/// The packages that have documentation tests to run.
fn libraries(metadata: &Metadata) -> Vec<String> {
    let packages = metadata.packages.iter();
    let libraries = packages.filter(|package| package.has_library());
    libraries.map(|package: &Package| package.name.clone()).collect()
}

/// What the caller's arguments choose: packages, which every command understands, and tests, which only the runner does.
#[derive(Debug, Default)]
struct Choice {
    /// The names of the packages; all packages when there is none.
    packages: Vec<String>,
    /// Everything else.
    rest: Vec<String>,
}

impl Choice {
    fn of(arguments: &[String]) -> Self {
        let mut choice = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == "-p" || argument == "--package" {
                choice.packages.extend(arguments.next().cloned());
            } else if let Some(name) = argument.strip_prefix("--package=") {
                choice.packages.push(name.to_owned());
            } else {
                choice.rest.push(argument.clone());
            }
        }
        choice
    }
}

/// A command on the packages named, or on all.
fn on<'a>(command: &[&str], packages: impl IntoIterator<Item = &'a String>) -> CommandLine {
    let mut packages = packages.into_iter().peekable();
    let command = CommandLine::cargo(command.iter().copied());
    if packages.peek().is_none() {
        return command.arguments(["--workspace"]);
    }
    packages.fold(command, |command, name| command.arguments(["--package", name]))
}

/// The commands to run, in order. Nextest runs no documentation tests, so these follow it; `cargo test` runs both.
fn commands(choice: &Choice, nextest: bool, libraries: &[String]) -> Vec<CommandLine> {
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
    let common = ["--all-features", "--no-fail-fast"];
    let tests = on(&[runner, &common].concat(), &choice.packages).arguments(choice.rest.clone());
    let mut commands = vec![tests];
    let documented: Vec<&String> = choice.packages.iter().filter(|name| libraries.contains(name)).collect();
    let some = choice.packages.is_empty() || !documented.is_empty();
    if nextest && choice.rest.is_empty() && some {
        commands.push(on(&[&["test", "--doc"][..], &common].concat(), documented));
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(arguments: &[&str], nextest: bool) -> Vec<String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let libraries = [String::from("latchwork-core")];
        let commands = commands(&Choice::of(&arguments), nextest, &libraries);
        commands.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nextest_is_followed_by_the_documentation_tests() {
        assert_eq!(
            lines(&[], true),
            [
                "cargo nextest run --all-features --no-fail-fast --workspace",
                "cargo test --doc --all-features --no-fail-fast --workspace",
            ]
        );
    }

    #[test]
    fn without_nextest_cargo_runs_everything() {
        assert_eq!(lines(&[], false), ["cargo test --all-features --no-fail-fast --workspace"]);
    }

    #[test]
    fn named_packages_replace_the_workspace_in_both_runs() {
        for arguments in [&["-p", "latchwork-core"][..], &["--package=latchwork-core"]] {
            assert_eq!(
                lines(arguments, true),
                [
                    "cargo nextest run --all-features --no-fail-fast --package latchwork-core",
                    "cargo test --doc --all-features --no-fail-fast --package latchwork-core",
                ]
            );
        }
    }

    #[test]
    fn a_package_without_a_library_has_no_documentation_tests() {
        assert_eq!(lines(&["-p", "xtask"], true), ["cargo nextest run --all-features --no-fail-fast --package xtask"]);
    }

    #[test]
    fn a_filter_goes_to_the_runner_alone() {
        assert_eq!(
            lines(&["-p", "latchwork-core", "a guard"], true),
            ["cargo nextest run --all-features --no-fail-fast --package latchwork-core 'a guard'"]
        );
        assert_eq!(lines(&["burst"], false), ["cargo test --all-features --no-fail-fast --workspace burst"]);
    }
}
