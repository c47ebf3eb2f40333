//! The workspace as the laws see it.

use std::collections::{BTreeMap, BTreeSet};

/// The workspace's packages, and what each of a few builds compiles.
#[derive(Debug, Clone, Default)]
pub(crate) struct House {
    pub(crate) packages: Vec<Package>,
    pub(crate) trees: Trees,
}

/// The names of all packages in a normal dependency tree, build and dev dependencies left out, the root included.
pub(crate) type Tree = BTreeSet<String>;

/// The trees that the laws speak of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trees {
    /// Core with all its features.
    pub(crate) core: Tree,
    /// The facade without any feature.
    pub(crate) facade_bare: Tree,
    /// The facade as a user gets it who names no feature.
    pub(crate) facade_default: Tree,
    /// For each provider's folder that is a feature of the facade: the facade with that feature alone.
    pub(crate) facade_with: BTreeMap<String, Tree>,
    /// For each provider's folder: that provider alone.
    pub(crate) provider: BTreeMap<String, Tree>,
}

/// One package of the workspace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Seen from the root of the workspace.
    pub(crate) folder: String,
    pub(crate) published: bool,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    pub(crate) manifest: Manifest,
}

/// A dependency as the manifest names it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) dev: bool,
    pub(crate) optional: bool,
    /// The version requirement; `*` when none is given.
    pub(crate) requirement: String,
}

/// What a package says of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manifest {
    pub(crate) description: Option<String>,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) license: Option<String>,
    /// The manifest names a readme, and the file is there and not empty.
    pub(crate) readme: bool,
    pub(crate) repository: Option<String>,
    pub(crate) rust_version: Option<String>,
    /// `[package.metadata.docs.rs]` is there.
    pub(crate) docs_rs: bool,
}

/// What a package is in the house; its folder tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Core,
    Engine,
    Facade,
    /// A lock, a queue or a store.
    Provider,
    /// What the providers of one backend share.
    Client,
    Tls,
    Testkit,
    Examples,
    Benches,
    Tool,
}

impl Role {
    /// The role of what lives in a folder, `None` for a folder the house does not know.
    pub(crate) fn of_folder(folder: &str) -> Option<Self> {
        Some(match folder {
            "workflow-core" => Self::Core,
            "workflow-engine" => Self::Engine,
            "latchwork" => Self::Facade,
            "tls" => Self::Tls,
            "testkit" => Self::Testkit,
            "examples" => Self::Examples,
            "benches" => Self::Benches,
            "xtask" => Self::Tool,
            _ if ["lock-", "queue-", "persistence-"].iter().any(|role| folder.starts_with(role)) => Self::Provider,
            _ if folder.ends_with("-client") => Self::Client,
            _ => return None,
        })
    }

    /// Whether a package of this role may have a normal or build dependency on one of that role.
    pub(crate) fn may_depend_on(self, other: Self) -> bool {
        match self {
            Self::Core | Self::Tls | Self::Tool => false,
            Self::Engine => other == Self::Core,
            // TLS is the ground that every networked backend stands on; a backend with one crate has no client crate to hold it.
            Self::Provider => matches!(other, Self::Core | Self::Client | Self::Tls),
            Self::Client => matches!(other, Self::Core | Self::Tls),
            Self::Testkit => matches!(other, Self::Core | Self::Engine),
            Self::Facade => !matches!(other, Self::Facade | Self::Examples | Self::Benches | Self::Tool),
            Self::Examples | Self::Benches => matches!(other, Self::Facade | Self::Testkit),
        }
    }

    /// Whether packages of this role are for a registry.
    pub(crate) fn is_for_a_registry(self) -> bool {
        !matches!(self, Self::Examples | Self::Benches | Self::Tool)
    }

    /// Whether a package of this role belongs to one backend.
    pub(crate) fn is_backend(self) -> bool {
        matches!(self, Self::Provider | Self::Client)
    }
}

impl House {
    /// The package of a name, when it is one of the house.
    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// The packages of one role.
    pub(crate) fn of_role(&self, role: Role) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(move |package| package.role() == Some(role))
    }

    /// The packages of a tree that belong to a backend of the house.
    pub(crate) fn backends_in<'a>(&'a self, tree: &'a Tree) -> impl Iterator<Item = &'a Package> {
        tree.iter().filter_map(|name| self.package(name)).filter(|package| package.role().is_some_and(Role::is_backend))
    }
}

impl Package {
    pub(crate) fn role(&self) -> Option<Role> {
        Role::of_folder(&self.folder)
    }
}
