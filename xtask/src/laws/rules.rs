//! The laws, one pure function each.

use std::collections::BTreeSet;

use super::house::{House, Package, Role, Tree};

/// A law and how it is checked; each string is one place where it is broken.
pub(crate) struct Law {
    pub(crate) text: &'static str,
    pub(crate) check: fn(&House) -> Vec<String>,
}

/// All laws, in the order they are printed.
pub(crate) const ALL: &[Law] = &[
    Law { text: "a package is named after its folder, and the folder has a place in the house", check: names_follow_folders },
    Law { text: "a crate depends only on those of ours that its role allows", check: roles_depend_downwards },
    Law { text: "a provider shares at most one client crate", check: providers_share_one_client },
    Law {
        text: "dev-dependencies on our own crates are path-only, all others carry a version",
        check: own_dependencies_can_be_published,
    },
    Law { text: "core's dependency tree is short, and holds no database, broker, HTTP or TLS crate", check: core_is_light },
    Law {
        text: "every provider is an optional dependency of the facade, with a feature named like its folder",
        check: providers_are_features,
    },
    Law { text: "the facade without features holds no backend and no driver", check: bare_facade_holds_no_backend },
    Law { text: "the facade's default is the embedded set and nothing else", check: default_facade_is_embedded },
    Law {
        text: "a provider's feature compiles no other backend's crates or drivers",
        check: features_pull_their_own_backend_only,
    },
    Law { text: "every published crate says what a registry and its readers need to know", check: manifests_are_complete },
];

/// A page: core's tree stays readable at one look.
const CORE_TREE_LIMIT: usize = 60;

/// What the facade's default must hold.
const EMBEDDED_REQUIRED: &[&str] = &["lock-local", "queue-local", "persistence-sqlite"];

/// What it may hold beside that: all that needs no server.
const EMBEDDED_ALLOWED: &[&str] = &["lock-file", "queue-sqlite", "persistence-memory", "sqlite-client"];

/// The driver of the embedded set.
const EMBEDDED_DRIVER: &[&str] = &["sqlx", "sqlx-core", "sqlx-sqlite", "libsqlite3-sys"];

/// Crates that speak to a database, a broker, HTTP or TLS; a name that begins with one of them and a dash is meant too.
const DRIVERS: &[&str] = &[
    "amqprs",
    "aws-lc",
    "axum",
    "bb8",
    "deadpool",
    "diesel",
    "fred",
    "h2",
    "http",
    "hyper",
    "lapin",
    "libsqlite3-sys",
    "mysql",
    "mysql_async",
    "native-tls",
    "openssl",
    "postgres",
    "quinn",
    "rdkafka",
    "redis",
    "reqwest",
    "ring",
    "rusqlite",
    "rustls",
    "schannel",
    "sea-orm",
    "security-framework",
    "sqlx",
    "tiberius",
    "tokio-native-tls",
    "tokio-postgres",
    "tokio-rustls",
    "tonic",
    "tower-http",
    "ureq",
    "webpki",
];

fn is_driver(name: &str) -> bool {
    DRIVERS.iter().any(|driver| name.strip_prefix(driver).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
}

fn drivers_in(tree: &Tree) -> impl Iterator<Item = &String> {
    tree.iter().filter(|name| is_driver(name))
}

fn names_follow_folders(house: &House) -> Vec<String> {
    let mut broken = Vec::new();
    for package in &house.packages {
        let Package { name, folder, .. } = package;
        let Some(role) = package.role() else {
            broken.push(format!("{name}: the folder `{folder}` has no place in the house"));
            continue;
        };
        let expected = match role {
            Role::Core => String::from("latchwork-core"),
            Role::Engine => String::from("latchwork-engine"),
            Role::Facade | Role::Tool => folder.clone(),
            _ => format!("latchwork-{folder}"),
        };
        if *name != expected {
            broken.push(format!("{name}: the package in `{folder}` must be named `{expected}`"));
        }
        if package.published != role.is_for_a_registry() {
            let must = if role.is_for_a_registry() { "must be" } else { "must not be" };
            broken.push(format!("{name}: {must} published"));
        }
    }
    broken
}

fn roles_depend_downwards(house: &House) -> Vec<String> {
    let mut broken = Vec::new();
    for package in &house.packages {
        for dependency in package.dependencies.iter().filter(|dependency| !dependency.dev) {
            let Some(other) = house.package(&dependency.name) else {
                continue;
            };
            if let (Some(from), Some(to)) = (package.role(), other.role())
                && !from.may_depend_on(to)
            {
                broken.push(format!("{}: must not depend on {} (a {from:?} on a {to:?})", package.name, other.name));
            }
        }
    }
    broken
}

fn providers_share_one_client(house: &House) -> Vec<String> {
    let mut broken = Vec::new();
    for provider in house.of_role(Role::Provider) {
        let clients: BTreeSet<&str> = provider
            .dependencies
            .iter()
            .filter(|dependency| !dependency.dev)
            .filter_map(|dependency| house.package(&dependency.name))
            .filter(|other| other.role() == Some(Role::Client))
            .map(|client| client.name.as_str())
            .collect();
        if clients.len() > 1 {
            let clients: Vec<&str> = clients.into_iter().collect();
            broken.push(format!("{}: depends on {}", provider.name, clients.join(" and ")));
        }
    }
    broken
}

fn own_dependencies_can_be_published(house: &House) -> Vec<String> {
    let mut broken = Vec::new();
    for package in house.packages.iter().filter(|package| package.published) {
        for dependency in &package.dependencies {
            if house.package(&dependency.name).is_none() {
                continue;
            }
            let name = &dependency.name;
            match (dependency.dev, dependency.requirement == "*") {
                (true, false) => broken.push(format!(
                    "{}: the dev-dependency on {name} must be path-only, else publishing meets a cycle",
                    package.name
                )),
                (false, true) => broken.push(format!("{}: the dependency on {name} needs a version", package.name)),
                (true, true) | (false, false) => {}
            }
        }
    }
    broken
}

fn core_is_light(house: &House) -> Vec<String> {
    let tree = &house.trees.core;
    let mut broken: Vec<String> = drivers_in(tree).map(|driver| format!("latchwork-core: its tree holds {driver}")).collect();
    if tree.len() > CORE_TREE_LIMIT {
        broken.push(format!("latchwork-core: its tree holds {} packages, more than {CORE_TREE_LIMIT}", tree.len()));
    }
    broken
}

fn providers_are_features(house: &House) -> Vec<String> {
    let Some(facade) = house.of_role(Role::Facade).next() else {
        return vec![String::from("there is no facade")];
    };
    let mut broken = Vec::new();
    for provider in house.of_role(Role::Provider) {
        let Package { name, folder, .. } = provider;
        let switch = format!("dep:{name}");
        match facade.features.get(folder) {
            None => broken.push(format!("{}: has no feature `{folder}`", facade.name)),
            Some(enables) if !enables.contains(&switch) => {
                broken.push(format!("{}: the feature `{folder}` must switch on `{switch}`", facade.name));
            }
            Some(_) => {}
        }
    }
    for dependency in facade.dependencies.iter().filter(|dependency| !dependency.dev) {
        let backend = house.package(&dependency.name).and_then(Package::role).is_some_and(Role::is_backend);
        if backend && !dependency.optional {
            broken.push(format!("{}: the dependency on {} must be optional", facade.name, dependency.name));
        }
    }
    broken
}

fn bare_facade_holds_no_backend(house: &House) -> Vec<String> {
    let tree = &house.trees.facade_bare;
    let backends = house.backends_in(tree).map(|package| &package.name);
    backends.chain(drivers_in(tree)).map(|name| format!("latchwork without features holds {name}")).collect()
}

fn default_facade_is_embedded(house: &House) -> Vec<String> {
    let tree = &house.trees.facade_default;
    let folders: BTreeSet<&str> = house.backends_in(tree).map(|package| package.folder.as_str()).collect();
    let missing = EMBEDDED_REQUIRED.iter().filter(|folder| !folders.contains(**folder));
    let mut broken: Vec<String> = missing.map(|folder| format!("latchwork's default lacks {folder}")).collect();
    let allowed = |folder: &str| EMBEDDED_REQUIRED.contains(&folder) || EMBEDDED_ALLOWED.contains(&folder);
    let others = folders.into_iter().filter(|folder| !allowed(folder));
    let drivers = drivers_in(tree).map(String::as_str).filter(|driver| !EMBEDDED_DRIVER.contains(driver));
    broken.extend(others.chain(drivers).map(|name| format!("latchwork's default holds {name}")));
    broken
}

fn features_pull_their_own_backend_only(house: &House) -> Vec<String> {
    let mut broken = Vec::new();
    for (folder, with) in &house.trees.facade_with {
        let Some(alone) = house.trees.provider.get(folder) else {
            continue;
        };
        let pulled = house.backends_in(with).map(|package| &package.name).chain(drivers_in(with));
        for name in pulled.filter(|name| !alone.contains(*name)) {
            broken.push(format!("latchwork with the feature `{folder}` holds {name}"));
        }
    }
    broken
}

/// Limits of the registry: at most five keywords of at most twenty characters, at most five categories.
fn manifests_are_complete(house: &House) -> Vec<String> {
    let mut broken = Vec::new();
    for package in house.packages.iter().filter(|package| package.published) {
        let manifest = &package.manifest;
        let given = |field: &Option<String>| field.as_ref().is_some_and(|text| !text.trim().is_empty());
        let keyword = |word: &String| !word.is_empty() && word.chars().count() <= 20;
        let wants = [
            (given(&manifest.description), "a description"),
            (
                (1..=5).contains(&manifest.keywords.len()) && manifest.keywords.iter().all(keyword),
                "one to five keywords of at most twenty characters",
            ),
            ((1..=5).contains(&manifest.categories.len()), "one to five categories"),
            (given(&manifest.license), "a licence"),
            (manifest.readme, "a readme that is there and not empty"),
            (given(&manifest.repository), "a repository"),
            (given(&manifest.rust_version), "a rust-version"),
            (manifest.docs_rs, "a table [package.metadata.docs.rs]"),
        ];
        let missing = wants.iter().filter(|(there, _)| !there);
        broken.extend(missing.map(|(_, what)| format!("{}: needs {what}", package.name)));
    }
    broken
}

#[cfg(test)]
mod tests;
