//! Every example is run, so that none rots.
//!
//! An example is a binary or an example target of the package `latchwork-examples`. It is run without arguments, or with those that the
//! package's manifest gives it, and must end by itself with status 0:
//!
//! ```toml
//! [package.metadata.ci]
//! cluster = ["--limit", "60"]
//! ```
//!
//! The package's `default-run` is the main job of the readme, and is run as the readme says: in release, from the default members.
//! The others are built with the whole workspace, in the profile of the tests, which finds most of it built.

use std::collections::BTreeMap;
use std::env::consts::EXE_SUFFIX;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::CommandLine;
use crate::workspace::{Metadata, Package};

const PACKAGE: &str = "latchwork-examples";

/// An example that runs longer hangs.
const LIMIT: Duration = Duration::from_mins(5);

/// Builds and runs all of them.
pub(crate) fn run() -> Result<()> {
    let metadata = Metadata::read()?;
    let package = metadata.package(PACKAGE)?;
    let examples = examples(package)?;
    if examples.is_empty() {
        bail!("{PACKAGE} holds no example");
    }
    if examples.iter().any(|example| example.is_main_job) {
        CommandLine::cargo(["build", "--release"]).run()?;
    }
    CommandLine::cargo(["build", "--workspace", "--all-features", "--bins", "--examples"]).run()?;
    for example in examples {
        let command = if example.is_main_job {
            CommandLine::cargo(["run", "--release", "--"])
        } else {
            let folder = metadata.target_directory.join("debug").join(example.folder);
            CommandLine::program(&folder.join(format!("{}{EXE_SUFFIX}", example.name)))
        };
        command.arguments(example.arguments).run_within(LIMIT)?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Example {
    name: String,
    /// Where cargo puts it, below the folder of the profile.
    folder: &'static str,
    is_main_job: bool,
    arguments: Vec<String>,
}

fn examples(package: &Package) -> Result<Vec<Example>> {
    let mut arguments = arguments(package)?;
    let mut found = Vec::new();
    for target in &package.targets {
        let is = |kind: &str| target.kind.iter().any(|found| found == kind);
        if is("bin") || is("example") {
            found.push(Example {
                name: target.name.clone(),
                folder: if is("example") { "examples" } else { "" },
                is_main_job: package.default_run.as_ref() == Some(&target.name),
                arguments: arguments.remove(&target.name).unwrap_or_default(),
            });
        }
    }
    if let Some(name) = arguments.into_keys().next() {
        bail!("[package.metadata.ci] of {PACKAGE} names {name}, which is no example");
    }
    Ok(found)
}

fn arguments(package: &Package) -> Result<BTreeMap<String, Vec<String>>> {
    match package.metadata.get("ci") {
        None => Ok(BTreeMap::new()),
        Some(table) => serde_json::from_value(table.clone())
            .with_context(|| format!("[package.metadata.ci] of {PACKAGE} must map an example's name to a list of arguments")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn package(ci: &Value) -> Package {
        let description = json!({
            "name": PACKAGE,
            "keywords": [],
            "categories": [],
            "dependencies": [],
            "features": {},
            "manifest_path": "/house/examples/Cargo.toml",
            "publish": [],
            "default_run": "cluster",
            "targets": [
                { "name": "latchwork_examples", "kind": ["lib"] },
                { "name": "cluster", "kind": ["bin"] },
                { "name": "locks_alone", "kind": ["example"] },
            ],
            "metadata": { "ci": ci },
        });
        serde_json::from_value(description).unwrap()
    }

    #[test]
    fn every_binary_and_example_is_run_and_the_default_one_is_the_main_job() {
        let found = examples(&package(&json!({ "cluster": ["--limit", "60"] }))).unwrap();
        let cluster = Example {
            name: String::from("cluster"),
            folder: "",
            is_main_job: true,
            arguments: vec![String::from("--limit"), String::from("60")],
        };
        let locks = Example { name: String::from("locks_alone"), folder: "examples", is_main_job: false, arguments: Vec::new() };
        assert_eq!(found, [cluster, locks]);
    }

    #[test]
    fn arguments_for_an_unknown_example_are_refused() {
        let error = examples(&package(&json!({ "clutser": [] }))).unwrap_err();
        assert!(error.to_string().contains("names clutser, which is no example"), "{error}");
    }

    #[test]
    fn arguments_that_are_no_list_are_refused() {
        let error = examples(&package(&json!({ "cluster": 60 }))).unwrap_err();
        assert!(error.to_string().contains("must map an example's name to a list"), "{error}");
    }
}
