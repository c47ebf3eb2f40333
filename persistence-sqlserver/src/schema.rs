//! The tables, and how they came to be.

use latchwork_core::{name::Namespace, store::SchemaMode};
use latchwork_sqlserver_client::{Migration, MigrationSet, SchemaName};

/// The history of the schema.
///
/// Rows are kept by the ids of their instances, which ascend with time, so that new ones stand together. Times are microseconds since 1970,
/// UTC. No column that changes with each checkpoint stands in an index.
const MIGRATIONS: &[Migration] =
    &[Migration { version: 1, name: "instances, events and definitions", sql: include_str!("schema/001_tables.sql") }];

/// The database schema of a namespace: `latchwork` for the default one, `latchwork_NAMESPACE` for others.
pub(crate) fn schema_name(namespace: &Namespace) -> SchemaName {
    let named = (*namespace != Namespace::default()).then(|| SchemaName::new(&format!("latchwork_{namespace}"))).flatten();
    // A namespace has letters that a schema may have.
    named.unwrap_or_default()
}

/// What may be done to it, in the words of the client.
pub(crate) fn mode(mode: SchemaMode) -> latchwork_sqlserver_client::SchemaMode {
    match mode {
        SchemaMode::Migrate => latchwork_sqlserver_client::SchemaMode::Migrate,
        SchemaMode::CreateIfMissing => latchwork_sqlserver_client::SchemaMode::CreateIfMissing,
        SchemaMode::Verify => latchwork_sqlserver_client::SchemaMode::Verify,
    }
}

/// The history of this namespace's schema.
pub(crate) fn migrations(namespace: &Namespace) -> MigrationSet {
    MigrationSet::new(schema_name(namespace), "store", MIGRATIONS)
}

/// The roles of least privilege.
const ROLES: &str = include_str!("schema/roles.sql");

/// The script for a DBA that makes, or brings up to date from `from`, the tables of a namespace: for `sqlcmd`, in one transaction. 0 is a
/// database that has none of it. Hosts then use [`SchemaMode::Verify`](latchwork_core::store::SchemaMode::Verify).
#[must_use]
pub fn schema_script(namespace: &Namespace, from: i32) -> String {
    migrations(namespace).script(from)
}

/// The script for a DBA that makes two roles for the schema of a namespace, to be run once after [`schema_script`]: `NAME_host`, which
/// can do what hosts do with [`SchemaMode::Verify`](latchwork_core::store::SchemaMode::Verify) and no more, and `NAME_reader`, which can
/// read the report only. `NAME` is the schema's.
#[must_use]
pub fn roles_script(namespace: &Namespace) -> String {
    let schema = schema_name(namespace);
    schema
        .apply(ROLES)
        .replace("[latchwork_host]", &format!("[{schema}_host]"))
        .replace("[latchwork_reader]", &format!("[{schema}_reader]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_has_a_schema_of_its_own() {
        assert_eq!(schema_name(&Namespace::default()).as_str(), "latchwork");
        let other = Namespace::new("orders-2").expect("valid");
        assert_eq!(schema_name(&other).as_str(), "latchwork_orders-2");
        let (tables, roles) = (schema_script(&other, 0), roles_script(&other));
        assert!(!tables.contains("[latchwork]") && tables.contains("CREATE TABLE [latchwork_orders-2].[instance]"));
        assert!(!roles.contains("[latchwork]") && roles.contains("CREATE ROLE [latchwork_orders-2_reader]"));
        assert!(!schema_script(&other, 1).contains("CREATE TABLE [latchwork_orders-2].[instance]"));
    }
}
