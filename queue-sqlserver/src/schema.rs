//! The table and its history.

use latchwork_core::{name::Namespace, store::SchemaMode};
use latchwork_sqlserver_client::{self as client, Migration, MigrationSet, SchemaName};

const MIGRATIONS: &[Migration] = &[Migration { version: 1, name: "hints", sql: include_str!("statements/schema_1.sql") }];

/// The queue's table and its history, for the schema of a namespace: `latchwork` for the default one, `latchwork_` and its name for
/// another. [`MigrationSet::script`] prints it for a DBA.
#[must_use]
pub fn migrations(namespace: &Namespace) -> MigrationSet {
    MigrationSet::new(schema(namespace), "queue", MIGRATIONS)
}

pub(crate) fn schema(namespace: &Namespace) -> SchemaName {
    if *namespace == Namespace::default() {
        return SchemaName::default();
    }
    // A namespace has no other letters than a schema may have, and is shorter.
    SchemaName::new(&format!("latchwork_{}", namespace.as_str())).unwrap_or_default()
}

pub(crate) fn mode(mode: SchemaMode) -> client::SchemaMode {
    match mode {
        SchemaMode::Migrate => client::SchemaMode::Migrate,
        SchemaMode::CreateIfMissing => client::SchemaMode::CreateIfMissing,
        SchemaMode::Verify => client::SchemaMode::Verify,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_has_a_schema_of_its_own() {
        let named = |name: &str| schema(&Namespace::new(name).expect("a name"));
        assert_eq!(schema(&Namespace::default()).as_str(), "latchwork");
        let longest = "a-b_".repeat(8);
        assert_eq!(named(&longest).as_str(), format!("latchwork_{longest}"));
        assert!(migrations(&Namespace::new("shop").expect("a name")).script(0).contains("CREATE TABLE [latchwork_shop].[queue]"));
    }
}
