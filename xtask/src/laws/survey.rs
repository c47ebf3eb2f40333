//! Asks cargo for what the laws look at.

use std::fs;

use anyhow::Result;

use super::house::{Dependency, House, Manifest, Package, Role, Tree, Trees};
use crate::command::CommandLine;
use crate::workspace::{self, Metadata};

/// The house as it stands.
pub(crate) fn house() -> Result<House> {
    let metadata = Metadata::read()?;
    let packages = metadata.packages.iter().map(|package| package_of(package, metadata.folder(package))).collect();
    let mut house = House { packages, trees: Trees::default() };
    house.trees = trees(&house)?;
    Ok(house)
}

fn package_of(package: &workspace::Package, folder: String) -> Package {
    Package {
        name: package.name.clone(),
        folder,
        published: package.is_published(),
        dependencies: package
            .dependencies
            .iter()
            .map(|dependency| Dependency {
                name: dependency.name.clone(),
                dev: dependency.kind.as_deref() == Some("dev"),
                optional: dependency.optional,
                requirement: dependency.req.clone(),
            })
            .collect(),
        features: package.features.clone(),
        manifest: Manifest {
            description: package.description.clone(),
            keywords: package.keywords.clone(),
            categories: package.categories.clone(),
            license: package.license.clone(),
            readme: package
                .readme
                .as_ref()
                .and_then(|readme| fs::read_to_string(package.folder().join(readme)).ok())
                .is_some_and(|text| !text.trim().is_empty()),
            repository: package.repository.clone(),
            rust_version: package.rust_version.clone(),
            docs_rs: package.metadata.pointer("/docs/rs").is_some(),
        },
    }
}

fn trees(house: &House) -> Result<Trees> {
    let mut trees = Trees {
        core: tree("latchwork-core", &["--all-features"])?,
        facade_bare: tree("latchwork", &["--no-default-features"])?,
        facade_default: tree("latchwork", &[])?,
        ..Trees::default()
    };
    for provider in house.of_role(Role::Provider) {
        trees.provider.insert(provider.folder.clone(), tree(&provider.name, &[])?);
        if house.package("latchwork").is_some_and(|facade| facade.features.contains_key(&provider.folder)) {
            let with = tree("latchwork", &["--no-default-features", "--features", &provider.folder])?;
            trees.facade_with.insert(provider.folder.clone(), with);
        }
    }
    Ok(trees)
}

/// The names in the normal tree of a package, on every platform.
fn tree(package: &str, features: &[&str]) -> Result<Tree> {
    let printed = CommandLine::cargo(["tree", "--package", package, "--edges", "normal", "--target", "all"])
        .arguments(["--prefix", "none", "--format", "{p}"])
        .arguments(features.iter().copied())
        .read()?;
    Ok(printed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}
