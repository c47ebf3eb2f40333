//! Every statement is served by an index: none reads a whole table, however many rows it has.

use crate::{activity, checkpoint, create, definition, event, inbox, load, matching, query, retention, schema};
use latchwork_core::{name::Namespace, store::InstanceQuery};
use latchwork_sqlite_client::{
    SchemaMode, SqliteClient, SqliteOptions,
    sqlx::{self, AssertSqlSafe, Row, SqliteConnection},
};

const STATEMENTS: &[&str] = &[
    activity::OLDEST,
    activity::CLAIM,
    activity::RELEASE,
    activity::SUBMIT,
    activity::RESULT,
    activity::INSTANCE,
    checkpoint::FENCES,
    checkpoint::HEADERS,
    checkpoint::WHOLE_HEADERS,
    checkpoint::POINTERS,
    checkpoint::APPLIED,
    checkpoint::UNMATCH,
    checkpoint::END_WAITS,
    checkpoint::WAITS,
    checkpoint::END_ACTIVITIES,
    checkpoint::ACTIVITIES,
    checkpoint::CONSUMED,
    checkpoint::ERRORS,
    checkpoint::TRIM_ERRORS,
    create::KNOWN,
    create::HOLDERS,
    create::LAST_NUMBER,
    create::INSERT,
    create::DATA,
    create::ATTRIBUTES,
    definition::SHAPE,
    definition::IS_USED,
    definition::DEFINE,
    event::INSERT,
    event::WAKE,
    inbox::TARGETS,
    inbox::APPEND,
    inbox::READ,
    inbox::READ_BY_ID,
    inbox::NUMBERS,
    load::LOAD,
    load::SCOPE,
    load::HISTORY,
    load::FENCE,
    load::GET,
    load::TOMBSTONE,
    load::BY_KEY,
    load::ERRORS,
    matching::OF_SLOTS,
    matching::OF_EVENTS,
    matching::GIVE_WAY_TO_EVENTS,
    matching::GIVE_WAY_IN_SLOTS,
    matching::MATCH,
    query::RUNNABLE,
    query::ATTRIBUTES,
    retention::TOMBSTONES,
    retention::MORE_TOMBSTONES,
    retention::ENDED,
    retention::BURY,
    retention::EVENTS,
    retention::MORE_EVENTS,
];

/// The steps of a plan that read a table from end to end.
async fn scans(connection: &mut SqliteConnection, statement: &str) -> Vec<String> {
    let plan = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")))
        .fetch_all(connection)
        .await
        .unwrap_or_else(|error| panic!("{error} in {statement}"));
    let steps = plan.iter().map(|row| row.get::<String, _>("detail"));
    // The rows of the call, and what was made of them before.
    let is_small = |step: &String| {
        let name = step.trim_start_matches("SCAN ").split(' ').next().unwrap_or_default();
        step.contains("VIRTUAL TABLE") || ["known", "waiting", "wanted", "w", "CONSTANT"].contains(&name) || name.starts_with('(')
    };
    steps.filter(|step| step.starts_with("SCAN") && !is_small(step)).collect()
}

async fn with_schema() -> (tempfile::TempDir, SqliteClient) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let client = SqliteClient::open(SqliteOptions::new(folder.path().join("a.db"))).await.expect("opened");
    client.migrate(&schema::migrations(&Namespace::default()), SchemaMode::Migrate).await.expect("migrated");
    (folder, client)
}

#[tokio::test]
async fn k24_no_statement_reads_a_whole_table() {
    let (_folder, client) = with_schema().await;
    let mut reader = client.reader().await.expect("a reader");
    for statement in STATEMENTS.iter().chain(&checkpoint::END).chain(&retention::FORGET) {
        assert_eq!(scans(&mut reader, statement).await, [""; 0], "{statement}");
    }
    drop(reader);
    client.close().await;
}

#[tokio::test]
async fn counts_read_indexes_only() {
    let (_folder, client) = with_schema().await;
    let mut reader = client.reader().await.expect("a reader");
    for statement in [query::STATUSES, query::COUNTS] {
        let scans = scans(&mut reader, statement).await;
        assert!(scans.iter().all(|step| step.contains("USING COVERING INDEX")), "{scans:?} in {statement}");
    }
    drop(reader);
    client.close().await;
}

/// Those of another status, which may be kept for ever, are not looked at.
#[tokio::test]
async fn what_can_be_purged_is_read_by_status_in_order_of_its_end() {
    let (_folder, client) = with_schema().await;
    let mut reader = client.reader().await.expect("a reader");
    let plan = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", retention::ENDED))).fetch_all(&mut *reader).await;
    let plan: Vec<String> = plan.expect("a plan").iter().map(|row| row.get("detail")).collect();
    let by_index = "SEARCH latchwork_instance USING INDEX latchwork_instance_ended (status=? AND ended>? AND ended<?)";
    assert_eq!(plan, [by_index]);
    drop(reader);
    client.close().await;
}

#[tokio::test]
async fn a_list_is_read_in_the_order_of_an_index() {
    let (_folder, client) = with_schema().await;
    let mut reader = client.reader().await.expect("a reader");
    let mut queries = vec![InstanceQuery::new()];
    queries.push(InstanceQuery::new().with_definition("order"));
    queries.push(InstanceQuery::new().with_reference("A-1"));
    queries.push(InstanceQuery::new().with_faults(3));
    queries.push(InstanceQuery::new().with_business_key("A-1").with_definition("order"));
    for query in queries {
        let statement = query::statement(&query).0;
        let plan: Vec<String> = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")))
            .fetch_all(&mut *reader)
            .await
            .expect("a plan")
            .iter()
            .map(|row| row.get("detail"))
            .collect();
        assert!(plan.iter().all(|step| !step.contains("TEMP B-TREE")), "{plan:?} for {query:?}");
    }
    drop(reader);
    client.close().await;
}
