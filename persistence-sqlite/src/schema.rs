//! The tables, and how they came to be.

use crate::sql::Sql;
use latchwork_core::{name::Namespace, store::SchemaMode};
use latchwork_sqlite_client::{self as client, Migration, MigrationSet};

/// The first version.
///
/// Rows of an instance are found by its number `n`, which is shorter than its id and stays within the file. Times are
/// microseconds since 1970, UTC. What a checkpoint writes most often comes first in its table, and no column that changes with
/// each checkpoint stands in an index.
const TABLES: &str = include_str!("schema/001_tables.sql");

/// The first version of the tables of leases.
const LEASES: &str = include_str!("schema/lease_001.sql");

/// The history of this namespace's schema.
pub(crate) fn migrations(namespace: &Namespace) -> MigrationSet {
    history(namespace, "store", "instances, events and definitions", TABLES)
}

/// The history of this namespace's tables of leases, apart from the store's.
pub(crate) fn lease_migrations(namespace: &Namespace) -> MigrationSet {
    history(namespace, "lease", "leases", LEASES)
}

fn history(namespace: &Namespace, set: &str, what: &'static str, tables: &str) -> MigrationSet {
    let name = if *namespace == Namespace::default() { set.to_owned() } else { format!("{set} of {namespace}") };
    MigrationSet::new(name, vec![Migration::new(1, what, Sql::new(namespace).text(tables))])
}

/// What the client calls this mode.
pub(crate) fn mode(mode: SchemaMode) -> client::SchemaMode {
    match mode {
        SchemaMode::Migrate => client::SchemaMode::Migrate,
        SchemaMode::CreateIfMissing => client::SchemaMode::CreateIfMissing,
        SchemaMode::Verify => client::SchemaMode::Verify,
    }
}
