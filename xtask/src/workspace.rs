//! What cargo knows of the workspace, as far as the tasks need it.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::command::CommandLine;

/// The root of the workspace: commands run there, from wherever the task was called.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable for what it runs; the other serves a binary that is called by itself.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// The answer of `cargo metadata` for the workspace's own packages.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    /// Where cargo puts what it builds.
    pub(crate) target_directory: PathBuf,
    workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) license: Option<String>,
    pub(crate) readme: Option<PathBuf>,
    pub(crate) repository: Option<String>,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) rust_version: Option<String>,
    pub(crate) default_run: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    pub(crate) targets: Vec<Target>,
    /// The free table `[package.metadata]`.
    #[serde(default)]
    pub(crate) metadata: Value,
    manifest_path: PathBuf,
    /// The registries it may be published to; none of them is `publish = false`.
    publish: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    pub(crate) req: String,
    pub(crate) optional: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Metadata {
    /// Asks cargo; the packages are those of the workspace only.
    pub(crate) fn read() -> Result<Self> {
        let answer = CommandLine::cargo(["metadata", "--format-version", "1", "--no-deps"]).read()?;
        serde_json::from_str(&answer).context("cannot read the answer of `cargo metadata`")
    }

    /// The package of a name.
    pub(crate) fn package(&self, name: &str) -> Result<&Package> {
        let found = self.packages.iter().find(|package| package.name == name);
        found.with_context(|| format!("the workspace has no package {name}"))
    }

    /// The package's folder, seen from the root of the workspace.
    pub(crate) fn folder(&self, package: &Package) -> String {
        let folder = package.folder();
        let folder = folder.strip_prefix(&self.workspace_root).unwrap_or(folder);
        folder.to_string_lossy().replace('\\', "/")
    }
}

impl Package {
    /// Whether it goes to a registry.
    pub(crate) fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    /// Whether it has a library, and so documentation tests.
    pub(crate) fn has_library(&self) -> bool {
        let is_library = |kind: &String| kind == "lib" || kind == "proc-macro";
        self.targets.iter().any(|target| target.kind.iter().any(is_library))
    }

    /// The folder that holds its manifest.
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }
}
