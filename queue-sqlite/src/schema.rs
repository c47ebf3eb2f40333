//! The table and its history.

use latchwork_core::store::SchemaMode;
use latchwork_sqlite_client::{self as client, Migration, MigrationSet};

/// The queue's own migrations, apart from those of a store in the same file.
pub(crate) fn migrations() -> MigrationSet {
    MigrationSet::new("latchwork_queue", vec![Migration::new(1, "hints", include_str!("statements/schema_1.sql"))])
}

pub(crate) fn mode(mode: SchemaMode) -> client::SchemaMode {
    match mode {
        SchemaMode::Migrate => client::SchemaMode::Migrate,
        SchemaMode::CreateIfMissing => client::SchemaMode::CreateIfMissing,
        SchemaMode::Verify => client::SchemaMode::Verify,
    }
}
