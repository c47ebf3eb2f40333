//! Lists of instances, and counts.

use crate::{
    record::{self, attribute, header_columns, micros, timestamp, work_item},
    sql::Sql,
};
use latchwork_core::{
    clock::{Timestamp, add},
    store::{
        AttributeFilter, AttributeValue, Comparison, InstanceQuery, InstanceSummary, Page, RunnableItem, RunnablePage,
        RunnableQuery, StoreStatistics, WorkflowStatus,
    },
};
use latchwork_sqlite_client::sqlx::{self, Sqlite, SqliteConnection};
use std::collections::HashMap;

/// What has something to do by `?2`, of the kinds in `?1` (definition, version), after `?3` and `?4` (due, id).
///
/// Instances with a row in their inbox are few; they are found by `latchwork_inbox_visible`. The others are read from
/// `latchwork_instance_due` in order, so that a page costs what it holds.
pub(crate) const RUNNABLE: &str = "
    WITH known AS MATERIALIZED (
        SELECT r.value ->> 0 AS definition, r.value ->> 1 AS version FROM jsonb_each(?1) AS r
    ),
    waiting AS MATERIALIZED (
        SELECT
            i.n, i.id, i.definition, i.version,
            CASE WHEN i.status = 'runnable' AND i.due < min(m.visible) THEN i.due ELSE min(m.visible) END AS due
        FROM latchwork_inbox AS m INDEXED BY latchwork_inbox_visible
        CROSS JOIN latchwork_instance AS i ON i.n = m.n
        WHERE m.visible <= ?2 AND (i.status = 'runnable' OR (i.status = 'suspended' AND m.control IS NOT NULL))
        GROUP BY i.n
    )
    SELECT id, definition, version, due
    FROM (
        SELECT *
        FROM (
            SELECT i.id, i.definition, i.version, i.due
            FROM latchwork_instance AS i INDEXED BY latchwork_instance_due
            WHERE i.status = 'runnable' AND i.due IS NOT NULL AND i.due <= ?2 AND (i.due, i.id) > (?3, ?4)
                AND i.n NOT IN (SELECT n FROM waiting)
                AND (i.definition, i.version) IN (SELECT definition, version FROM known)
            ORDER BY i.due, i.id
            LIMIT ?5
        )
        UNION ALL
        SELECT id, definition, version, due
        FROM waiting
        WHERE (due, id) > (?3, ?4) AND (definition, version) IN (SELECT definition, version FROM known)
    )
    ORDER BY due, id
    LIMIT ?5";

/// Counts by status. By `latchwork_instance_status`, which holds all that is asked for.
pub(crate) const STATUSES: &str = "SELECT status, count(*) FROM latchwork_instance GROUP BY status";

/// The other counts at `?1`. By `latchwork_instance_due` and indexes that hold all that is counted.
pub(crate) const COUNTS: &str = "
    SELECT
        (SELECT min(due) FROM latchwork_instance WHERE status = 'runnable' AND due IS NOT NULL),
        (SELECT count(*) FROM latchwork_event),
        (SELECT count(*) FROM latchwork_inbox),
        (SELECT count(*) FROM latchwork_activity WHERE free_at <= ?1)";

/// The attributes of instances (`?1`: id). By the unique index of the id and the primary key.
pub(crate) const ATTRIBUTES: &str = "
    SELECT r.key, a.name, a.text, a.number, a.time
    FROM jsonb_each(?1) AS r
    CROSS JOIN latchwork_instance AS i ON i.id = r.value ->> 0
    CROSS JOIN latchwork_attribute AS a ON a.n = i.n
    ORDER BY r.key, a.name";

/// What [`ATTRIBUTES`] selects.
type AttributeColumns = (i64, String, Option<String>, Option<f64>, Option<i64>);

pub(crate) async fn runnable(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    query: &RunnableQuery,
) -> Result<RunnablePage, sqlx::Error> {
    let mut known = crate::rows::Rows::default();
    let mut batches = Vec::new();
    for (definition, version) in query.known.iter() {
        known.add(|row| {
            row.text(definition).int(i64::from(*version));
        });
    }
    batches.extend(known.into_batches());
    let mut items = Vec::new();
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let (after_due, after_id) = match &query.after {
        Some((due, id)) => (micros(*due), id.as_str()),
        None => (i64::MIN, ""),
    };
    for known in &batches {
        let rows: Vec<(String, String, i64, i64)> = sqlx::query_as(sql.get(RUNNABLE))
            .bind(known)
            .bind(micros(add(now, query.horizon)))
            .bind(after_due)
            .bind(after_id)
            .bind(limit)
            .fetch_all(&mut *connection)
            .await?;
        for (id, definition, version, due) in rows {
            items.push(RunnableItem { item: work_item(&id, definition, version)?, due: timestamp(due)? });
        }
    }
    if batches.len() > 1 {
        items.sort_by(|one, other| (one.due, &one.item.instance).cmp(&(other.due, &other.item.instance)));
        items.truncate(query.limit);
    }
    Ok(RunnablePage { items, now })
}

/// A statement that is put together from constants, with its values.
#[derive(Default)]
struct Conditions {
    text: String,
    values: Vec<Value>,
}

pub(crate) enum Value {
    Text(String),
    Int(i64),
    Float(f64),
}

impl Conditions {
    fn and(&mut self, condition: &str) {
        self.text.push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(condition);
    }

    fn compare(&mut self, left: &str, value: impl Into<Value>) {
        self.values.push(value.into());
        let condition = format!("{left} ?{}", self.values.len());
        self.and(&condition);
    }

    fn attribute(&mut self, filter: &AttributeFilter) {
        let operator = match filter.comparison {
            Comparison::Equal => "=",
            Comparison::AtLeast => ">=",
            Comparison::AtMost => "<=",
        };
        self.values.push(Value::Text(filter.name.clone()));
        let name = self.values.len();
        let (column, value) = match &filter.value {
            AttributeValue::Text(text) => ("text", Value::Text(text.clone())),
            AttributeValue::Number(number) => ("number", Value::Float(*number)),
            AttributeValue::Time(time) => ("time", Value::Int(micros(*time))),
        };
        self.values.push(value);
        let value = self.values.len();
        self.and(&format!(
            "i.n IN (SELECT a.n FROM latchwork_attribute AS a WHERE a.name = ?{name} AND a.{column} {operator} ?{value})"
        ));
    }

    fn text(&mut self, text: &str) {
        self.values.push(Value::Text(text.to_owned()));
        let value = self.values.len();
        self.and(&format!(
            "(instr(i.reference, ?{value}) > 0
                OR EXISTS (SELECT 1 FROM latchwork_attribute AS a WHERE a.n = i.n AND instr(a.text, ?{value}) > 0))"
        ));
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

/// The statement for a list, with its values. Each condition is a constant; what the query says goes into the values only.
pub(crate) fn statement(query: &InstanceQuery) -> (String, Vec<Value>) {
    let mut conditions = Conditions::default();
    if !query.statuses.is_empty() {
        let names: Vec<String> = query.statuses.iter().map(|status| format!("'{status}'")).collect();
        conditions.and(&format!("i.status IN ({})", names.join(", ")));
    }
    let texts = [
        ("i.definition =", query.definition.as_deref()),
        ("i.reference =", query.reference.as_deref()),
        ("i.business_key =", query.business_key.as_deref()),
        ("i.parent =", query.parent.as_ref().map(latchwork_core::store::InstanceId::as_str)),
        (
            if query.newest_first { "i.id <" } else { "i.id >" },
            query.after.as_ref().map(latchwork_core::store::InstanceId::as_str),
        ),
    ];
    for (left, text) in texts {
        if let Some(text) = text {
            conditions.compare(left, text);
        }
    }
    if let Some(version) = query.version {
        conditions.compare("i.version =", i64::from(version));
    }
    let times = [
        ("i.created >=", query.created_from),
        ("i.created <", query.created_before),
        ("i.ended >=", query.ended_from),
        ("i.ended <", query.ended_before),
    ];
    for (left, time) in times {
        if let Some(time) = time {
            conditions.compare(left, micros(time));
        }
    }
    if let Some(faults) = query.faults.filter(|faults| *faults > 0) {
        // The first half lets `latchwork_instance_faults` be used.
        conditions.and("i.fault_count > 0");
        conditions.compare("i.fault_count >=", i64::from(faults));
    }
    for filter in &query.attributes {
        conditions.attribute(filter);
    }
    if let Some(text) = &query.text {
        conditions.text(text);
    }
    let direction = if query.newest_first { "DESC" } else { "ASC" };
    // One more than asked for, to know whether there are more.
    let statement = format!(
        "SELECT {} FROM latchwork_instance AS i{} ORDER BY i.id {direction} LIMIT {}",
        header_columns!(),
        conditions.text,
        query.effective_limit() + 1
    );
    (statement, conditions.values)
}

pub(crate) async fn find(
    connection: &mut SqliteConnection,
    sql: &Sql,
    query: &InstanceQuery,
) -> Result<Page<InstanceSummary>, sqlx::Error> {
    let limit = query.effective_limit();
    let (statement, values) = statement(query);
    let mut select = sqlx::query_scalar::<Sqlite, String>(sql.made(&statement));
    for value in values {
        select = match value {
            Value::Text(text) => select.bind(text),
            Value::Int(number) => select.bind(number),
            Value::Float(number) => select.bind(number),
        };
    }
    let mut rows = select.fetch_all(&mut *connection).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let headers: Vec<_> = rows.iter().map(|json| record::header(json)).collect::<Result<_, _>>()?;

    let mut ids = crate::rows::Rows::default();
    for header in &headers {
        ids.add(|row| {
            row.id(&header.id);
        });
    }
    let found: Vec<AttributeColumns> = ids.fetch(connection, sql, ATTRIBUTES, 0).await?;
    let mut attributes: HashMap<i64, Vec<(String, AttributeValue)>> = HashMap::new();
    for (at, name, text, number, time) in found {
        let value = attribute(&name, text, number, time)?;
        attributes.entry(at).or_default().push((name, value));
    }
    let items = (0..).zip(headers).map(|(at, header)| {
        let attributes = attributes.remove(&at).unwrap_or_default();
        InstanceSummary { header, attributes }
    });
    Ok(Page { items: items.collect(), more })
}

pub(crate) async fn statistics(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
) -> Result<StoreStatistics, sqlx::Error> {
    let mut statistics = StoreStatistics::default();
    let statuses: Vec<(String, i64)> = sqlx::query_as(sql.get(STATUSES)).fetch_all(&mut *connection).await?;
    for (name, count) in statuses {
        let count = record::number("count", count)?;
        match record::status(&name)? {
            WorkflowStatus::Runnable => statistics.runnable = count,
            WorkflowStatus::Suspended => statistics.suspended = count,
            WorkflowStatus::Complete => statistics.complete = count,
            WorkflowStatus::Terminated => statistics.terminated = count,
        }
    }
    let (next_due, events, inbox, activities): (Option<i64>, i64, i64, i64) =
        sqlx::query_as(sql.get(COUNTS)).bind(micros(now)).fetch_one(connection).await?;
    statistics.next_due = next_due.map(timestamp).transpose()?;
    statistics.events = record::number("count", events)?;
    statistics.inbox = record::number("count", inbox)?;
    statistics.open_activities = record::number("count", activities)?;
    Ok(statistics)
}
