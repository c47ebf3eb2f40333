//! The tables, and how they came to be.

use crate::sql::Sql;
use latchwork_core::name::Namespace;
use latchwork_sqlite_client::{Migration, MigrationSet};

/// The first version.
///
/// Rows of an instance are found by its number `n`, which is shorter than its id and stays within the file. Times are
/// microseconds since 1970, UTC. What a checkpoint writes most often comes first in its table, and no column that changes with
/// each checkpoint stands in an index.
const TABLES: &str = include_str!("schema/001_tables.sql");

/// The history of this namespace's schema.
pub(crate) fn migrations(namespace: &Namespace) -> MigrationSet {
    let sql = Sql::new(namespace);
    let name = if *namespace == Namespace::default() { "store".to_owned() } else { format!("store of {namespace}") };
    MigrationSet::new(name, vec![Migration::new(1, "instances, events and definitions", sql.text(TABLES))])
}
