//! All that is sent is Transact-SQL.

use crate::{activity, checkpoint, create, definition, event, inbox, load, query, retention, schema};
use latchwork_core::{
    name::Namespace,
    store::{AttributeValue, Comparison, InstanceId, InstanceQuery},
};
use latchwork_testkit::sqlserver::grammar::{self, Exception};
use std::collections::BTreeSet;

const STATEMENTS: &[(&str, &str)] = &[
    ("activity::CLAIM", activity::CLAIM),
    ("activity::RELEASE", activity::RELEASE),
    ("activity::SUBMIT", activity::SUBMIT),
    ("checkpoint::QUIET", checkpoint::QUIET),
    ("checkpoint::OWN", checkpoint::OWN),
    ("checkpoint::WHOLE", checkpoint::WHOLE),
    ("create::CREATE", create::CREATE),
    ("definition::DEFINE", definition::DEFINE),
    ("definition::IDENTIFY", definition::IDENTIFY),
    ("event::PUBLISH", event::PUBLISH),
    ("inbox::APPEND", inbox::APPEND),
    ("inbox::READ", inbox::READ),
    ("load::LOAD", load::LOAD),
    ("load::SCOPE", load::SCOPE),
    ("load::HISTORY", load::HISTORY),
    ("load::FENCE", load::FENCE),
    ("load::GET", load::GET),
    ("load::BY_KEY", load::BY_KEY),
    ("load::ERRORS", load::ERRORS),
    ("query::RUNNABLE", query::RUNNABLE),
    ("query::STATISTICS", query::STATISTICS),
    ("query::NOW", query::NOW),
    ("retention::PURGE", retention::PURGE),
];

const DELETED: &str = "the parser knows no OUTPUT of a DELETE with a join";

#[test]
fn all_that_is_sent_is_transact_sql() {
    let query = InstanceQuery::new()
        .with_status(latchwork_core::store::WorkflowStatus::ALL)
        .with_definition("a")
        .with_parent(InstanceId::new())
        .with_faults(3)
        .with_attribute("a", Comparison::AtLeast, AttributeValue::Number(1.0))
        .with_text("x")
        .after(InstanceId::new());
    let find = query::find(&query).text.into_owned();
    let namespace = Namespace::default();
    let scripts = format!("{}\nGO\n{}", schema::schema_script(&namespace, 0), schema::roles_script(&namespace));
    let batches = scripts.split("\nGO\n").map(str::trim).filter(|batch| !batch.is_empty());
    let batches = batches.map(|batch| ("script", batch.to_owned()));
    let constants = STATEMENTS.iter().map(|(name, text)| (*name, (*text).to_owned()));
    let exceptions = [
        Exception::new("BREAK;", "SELECT 1;", "the parser knows no end of a loop"),
        Exception::new("OPTION (FORCE ORDER, LOOP JOIN)", "", "the parser knows no hints of queries"),
        Exception::new("OUTPUT deleted.[instance], deleted.[subscription] INTO @taken ([instance], [subscription])", "", DELETED),
        Exception::new("OUTPUT deleted.[instance], deleted.[subscription] INTO @freed ([instance], [subscription])", "", DELETED),
        Exception::new("SCHEMA::", "SCHEMA ", "the parser knows no class of what a right is on"),
    ];
    assert_eq!(grammar::check(constants.chain([("query::find", find)]).chain(batches), &exceptions), Ok(()));
}

/// A statement says which index serves it; the schema has it.
#[test]
fn k24_each_index_that_a_statement_names_is_there() {
    let tables = include_str!("schema/001_tables.sql");
    let words = |text: &str| -> BTreeSet<String> {
        let letter = |letter: char| !(letter.is_ascii_alphanumeric() || letter == '_');
        text.split(letter).filter(|word| word.starts_with("latchwork_")).map(str::to_owned).collect()
    };
    let made: BTreeSet<String> = words(tables);
    // Of constants that name theirs beside them, and of lists, which choose by their conditions.
    let beside = ["latchwork_pointer_scope"];
    let named: BTreeSet<String> = STATEMENTS.iter().flat_map(|(_, text)| words(text)).collect();
    let missing: Vec<_> = named.difference(&made).collect();
    assert_eq!(missing, Vec::<&String>::new(), "named, but not in the schema");
    assert!(beside.iter().all(|index| made.contains(*index)));
    assert!(named.len() >= 8, "{named:?}");
}
