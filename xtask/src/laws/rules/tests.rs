//! Each law is kept by a sound house, and found broken when one violation is planted in it.

use super::super::house::{Dependency, Manifest, Trees};
use super::*;

fn manifest() -> Manifest {
    Manifest {
        description: Some(String::from("What it is.")),
        keywords: vec![String::from("workflow")],
        categories: vec![String::from("asynchronous")],
        license: Some(String::from("MIT OR Apache-2.0")),
        readme: true,
        repository: Some(String::from("https://example.org/latchwork")),
        rust_version: Some(String::from("1.94")),
        docs_rs: true,
    }
}

fn package(folder: &str, name: &str, on: &[&str]) -> Package {
    Package {
        name: name.to_owned(),
        folder: folder.to_owned(),
        published: !["examples", "benches", "xtask"].contains(&folder),
        dependencies: on.iter().map(|name| dependency(name)).collect(),
        manifest: manifest(),
        ..Package::default()
    }
}

fn dependency(name: &str) -> Dependency {
    Dependency { name: name.to_owned(), requirement: String::from("^0.1.0"), ..Dependency::default() }
}

fn tree(names: &[&str]) -> Tree {
    names.iter().map(ToString::to_string).collect()
}

/// A small house that keeps every law.
fn sound() -> House {
    let core = "latchwork-core";
    let providers = ["lock-local", "queue-local", "persistence-sqlite"];
    let mut facade = package("latchwork", "latchwork", &[core, "latchwork-engine"]);
    for folder in providers {
        let name = format!("latchwork-{folder}");
        let optional = Dependency { optional: true, ..dependency(&name) };
        facade.dependencies.push(optional);
        facade.features.insert(folder.to_owned(), vec![format!("dep:{name}")]);
    }
    let local = ["latchwork-lock-local", core, "tokio"];
    let queue = ["latchwork-queue-local", core, "tokio"];
    let sqlite = ["latchwork-persistence-sqlite", "latchwork-sqlite-client", core, "sqlx", "libsqlite3-sys"];
    let bare = ["latchwork", "latchwork-engine", core, "tokio"];
    let with = |more: &[&str]| tree(&[&bare, more].concat());
    House {
        packages: vec![
            package("workflow-core", core, &["tokio"]),
            package("workflow-engine", "latchwork-engine", &[core, "tokio"]),
            facade,
            package("lock-local", "latchwork-lock-local", &[core]),
            package("queue-local", "latchwork-queue-local", &[core]),
            package("persistence-sqlite", "latchwork-persistence-sqlite", &[core, "latchwork-sqlite-client"]),
            package("sqlite-client", "latchwork-sqlite-client", &[core, "sqlx"]),
            package("redis-client", "latchwork-redis-client", &[core, "latchwork-tls", "redis"]),
            package("tls", "latchwork-tls", &["rustls"]),
            package("testkit", "latchwork-testkit", &[core, "latchwork-engine"]),
            package("examples", "latchwork-examples", &["latchwork"]),
            package("xtask", "xtask", &["clap"]),
        ],
        trees: Trees {
            core: tree(&[core, "tokio"]),
            facade_bare: tree(&bare),
            facade_default: with(&[&local[..], &queue, &sqlite].concat()),
            facade_with: [("lock-local", with(&local)), ("queue-local", with(&queue)), ("persistence-sqlite", with(&sqlite))]
                .map(|(folder, tree)| (folder.to_owned(), tree))
                .into(),
            provider: [("lock-local", tree(&local)), ("queue-local", tree(&queue)), ("persistence-sqlite", tree(&sqlite))]
                .map(|(folder, tree)| (folder.to_owned(), tree))
                .into(),
        },
    }
}

/// What the laws say of the sound house after one change.
fn broken(law: fn(&House) -> Vec<String>, plant: impl FnOnce(&mut House)) -> Vec<String> {
    let mut house = sound();
    plant(&mut house);
    law(&house)
}

/// The sound house with one more dependency.
fn depends(from: &str, on: &str) -> Vec<String> {
    broken(roles_depend_downwards, |house| {
        named(house, from).dependencies.push(dependency(on));
    })
}

fn named<'a>(house: &'a mut House, name: &str) -> &'a mut Package {
    house.packages.iter_mut().find(|package| package.name == name).unwrap()
}

#[test]
fn a_sound_house_keeps_every_law() {
    for law in ALL {
        assert_eq!((law.check)(&sound()), Vec::<String>::new(), "{}", law.text);
    }
}

#[test]
fn a_package_with_another_name_than_its_folder_is_found() {
    let found = broken(names_follow_folders, |house| {
        named(house, "latchwork-lock-local").name = String::from("latchwork-local-lock");
    });
    assert_eq!(found, ["latchwork-local-lock: the package in `lock-local` must be named `latchwork-lock-local`"]);
}

#[test]
fn a_folder_without_a_place_is_found() {
    let found = broken(names_follow_folders, |house| {
        house.packages.push(package("helpers", "latchwork-helpers", &[]));
    });
    assert_eq!(found, ["latchwork-helpers: the folder `helpers` has no place in the house"]);
}

#[test]
fn a_crate_that_is_published_or_held_back_by_mistake_is_found() {
    let found = broken(names_follow_folders, |house| {
        named(house, "xtask").published = true;
        named(house, "latchwork-core").published = false;
    });
    assert_eq!(found, ["latchwork-core: must be published", "xtask: must not be published"]);
}

#[test]
fn a_provider_on_the_engine_or_on_another_provider_is_found() {
    assert_eq!(
        depends("latchwork-lock-local", "latchwork-engine"),
        ["latchwork-lock-local: must not depend on latchwork-engine (a Provider on a Engine)"]
    );
    assert_eq!(
        depends("latchwork-queue-local", "latchwork-lock-local"),
        ["latchwork-queue-local: must not depend on latchwork-lock-local (a Provider on a Provider)"]
    );
}

#[test]
fn an_engine_core_client_or_testkit_on_a_provider_is_found() {
    for name in ["latchwork-engine", "latchwork-core", "latchwork-sqlite-client", "latchwork-testkit"] {
        assert_eq!(depends(name, "latchwork-lock-local").len(), 1, "{name}");
    }
}

#[test]
fn a_client_on_another_client_or_on_the_engine_is_found() {
    assert_eq!(depends("latchwork-sqlite-client", "latchwork-redis-client").len(), 1);
    assert_eq!(depends("latchwork-sqlite-client", "latchwork-engine").len(), 1);
}

#[test]
fn an_example_that_goes_round_the_facade_is_found() {
    assert_eq!(depends("latchwork-examples", "latchwork-engine").len(), 1);
}

#[test]
fn a_dev_dependency_may_point_anywhere() {
    let found = broken(roles_depend_downwards, |house| {
        named(house, "latchwork-engine").dependencies.push(Dependency { dev: true, ..dependency("latchwork-lock-local") });
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_provider_with_two_clients_is_found() {
    let found = broken(providers_share_one_client, |house| {
        let store = named(house, "latchwork-persistence-sqlite");
        store.dependencies.push(dependency("latchwork-redis-client"));
    });
    assert_eq!(found, ["latchwork-persistence-sqlite: depends on latchwork-redis-client and latchwork-sqlite-client"]);
}

#[test]
fn a_dev_dependency_with_a_version_is_found() {
    let found = broken(own_dependencies_can_be_published, |house| {
        named(house, "latchwork-lock-local").dependencies.push(Dependency { dev: true, ..dependency("latchwork-testkit") });
    });
    assert_eq!(
        found,
        ["latchwork-lock-local: the dev-dependency on latchwork-testkit must be path-only, else publishing meets a cycle"]
    );
}

#[test]
fn a_dependency_of_ours_without_a_version_is_found() {
    let found = broken(own_dependencies_can_be_published, |house| {
        named(house, "latchwork-lock-local").dependencies[0].requirement = String::from("*");
    });
    assert_eq!(found, ["latchwork-lock-local: the dependency on latchwork-core needs a version"]);
}

#[test]
fn a_driver_below_core_is_found_also_by_its_family() {
    for name in ["rusqlite", "sqlx-core", "hyper-util", "ring", "rustls", "aws-lc-sys"] {
        let found = broken(core_is_light, |house| {
            house.trees.core.insert(name.to_owned());
        });
        assert_eq!(found, [format!("latchwork-core: its tree holds {name}")]);
    }
}

#[test]
fn a_name_that_only_resembles_a_driver_is_none() {
    for name in ["ringbuffer", "httparse", "redistribute", "h2o"] {
        assert!(!is_driver(name), "{name}");
    }
}

#[test]
fn a_core_tree_longer_than_a_page_is_found() {
    let found = broken(core_is_light, |house| {
        house.trees.core = (0..=CORE_TREE_LIMIT).map(|number| format!("small-{number}")).collect();
    });
    assert_eq!(found, ["latchwork-core: its tree holds 61 packages, more than 60"]);
}

#[test]
fn a_provider_without_its_feature_is_found() {
    let found = broken(providers_are_features, |house| {
        named(house, "latchwork").features.remove("queue-local");
    });
    assert_eq!(found, ["latchwork: has no feature `queue-local`"]);
}

#[test]
fn a_feature_that_switches_on_something_else_is_found() {
    let found = broken(providers_are_features, |house| {
        let other = vec![String::from("dep:latchwork-lock-local")];
        named(house, "latchwork").features.insert(String::from("queue-local"), other);
    });
    assert_eq!(found, ["latchwork: the feature `queue-local` must switch on `dep:latchwork-queue-local`"]);
}

#[test]
fn a_backend_that_the_facade_always_compiles_is_found() {
    let found = broken(providers_are_features, |house| {
        named(house, "latchwork").dependencies.push(dependency("latchwork-sqlite-client"));
    });
    assert_eq!(found, ["latchwork: the dependency on latchwork-sqlite-client must be optional"]);
}

#[test]
fn a_backend_or_driver_in_the_bare_facade_is_found() {
    let found = broken(bare_facade_holds_no_backend, |house| {
        house.trees.facade_bare.extend(tree(&["latchwork-sqlite-client", "tiberius"]));
    });
    assert_eq!(found, ["latchwork without features holds latchwork-sqlite-client", "latchwork without features holds tiberius",]);
}

#[test]
fn a_default_facade_without_its_store_is_found() {
    let found = broken(default_facade_is_embedded, |house| {
        house.trees.facade_default.remove("latchwork-persistence-sqlite");
    });
    assert_eq!(found, ["latchwork's default lacks persistence-sqlite"]);
}

#[test]
fn a_server_or_tls_in_the_default_facade_is_found() {
    let found = broken(default_facade_is_embedded, |house| {
        house.trees.facade_default.extend(tree(&["latchwork-redis-client", "redis", "rustls"]));
    });
    assert_eq!(
        found,
        ["latchwork's default holds redis-client", "latchwork's default holds redis", "latchwork's default holds rustls",]
    );
}

#[test]
fn a_feature_that_pulls_a_sibling_or_its_driver_is_found() {
    let found = broken(features_pull_their_own_backend_only, |house| {
        let with = house.trees.facade_with.get_mut("lock-local").unwrap();
        with.extend(tree(&["latchwork-sqlite-client", "sqlx"]));
    });
    assert_eq!(
        found,
        [
            "latchwork with the feature `lock-local` holds latchwork-sqlite-client",
            "latchwork with the feature `lock-local` holds sqlx",
        ]
    );
}

#[test]
fn each_gap_in_a_published_manifest_is_found() {
    let found = broken(manifests_are_complete, |house| {
        named(house, "latchwork-core").manifest = Manifest { keywords: vec![String::from("word"); 6], ..Manifest::default() };
        named(house, "xtask").manifest = Manifest::default();
    });
    assert_eq!(
        found,
        [
            "latchwork-core: needs a description",
            "latchwork-core: needs one to five keywords of at most twenty characters",
            "latchwork-core: needs one to five categories",
            "latchwork-core: needs a licence",
            "latchwork-core: needs a readme that is there and not empty",
            "latchwork-core: needs a repository",
            "latchwork-core: needs a rust-version",
            "latchwork-core: needs a table [package.metadata.docs.rs]",
        ]
    );
}
