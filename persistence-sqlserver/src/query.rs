//! Lists of instances, and counts.

use crate::{
    error::Failure,
    record::{attribute, header, header_columns, micros, status, work_item},
    sql::{Columns, Request, Value, batch},
};
use latchwork_core::{
    clock::Timestamp,
    store::{
        AttributeFilter, AttributeValue, Comparison, InstanceHeader, InstanceId, InstanceQuery, InstanceSummary, Page,
        RunnableItem, RunnablePage, RunnableQuery, StoreStatistics, WorkflowStatus,
    },
};
use std::collections::BTreeMap;

/// What has something to do.
pub(crate) const RUNNABLE: &str = batch!("begin" "runnable");

/// The time of the server, in microseconds since 1970, UTC.
pub(crate) const NOW: &str = "SELECT DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME()) AS [now];";

/// How much there is.
pub(crate) const STATISTICS: &str = batch!("begin" "statistics");

/// The attributes of a page of instances, by its table. By the primary key.
const ATTRIBUTES: &str = "
SELECT 1 AS [kind], p.[id], a.[name], a.[text], a.[number], a.[time]
FROM @page AS p
INNER JOIN [latchwork].[attribute] AS a ON a.[instance] = p.[id]
ORDER BY p.[id], a.[name];";

/// A horizon beyond which nothing is looked for, in microseconds.
const FARTHEST: i64 = 8_000_000_000_000_000_000;

pub(crate) fn runnable(query: &RunnableQuery) -> Result<Request, Failure> {
    let known: Vec<(&str, u32)> = query.known.iter().map(|(definition, version)| (&**definition, *version)).collect();
    let horizon = i64::try_from(query.horizon.as_micros()).unwrap_or(FARTHEST).min(FARTHEST);
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let (due, id) = match &query.after {
        Some((due, id)) => (micros(*due), id.as_str()),
        None => (i64::MIN, ""),
    };
    let request = Request::new(RUNNABLE).with(serde_json::to_string(&known)?).with(horizon);
    Ok(request.with(due).with(id).with(limit))
}

pub(crate) fn runnable_page(rows: Vec<Columns>) -> Result<RunnablePage, Failure> {
    let (mut now, mut items) = (None, Vec::new());
    for mut columns in rows {
        if columns.int()? == 0 {
            now = Some(columns.time()?);
        } else {
            let item = work_item(&mut columns)?;
            items.push(RunnableItem { item, due: columns.time()? });
        }
    }
    let now = now.ok_or_else(|| Failure::corrupt("the server does not tell its time"))?;
    Ok(RunnablePage { items, now })
}

/// A statement that is put together from constants, with its values.
#[derive(Default)]
struct Conditions {
    text: String,
    values: Vec<Value>,
}

impl Conditions {
    fn and(&mut self, condition: &str) {
        self.text.push_str(if self.text.is_empty() { "\nWHERE " } else { "\n    AND " });
        self.text.push_str(condition);
    }

    /// The name of a new parameter.
    fn parameter(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("@P{}", self.values.len())
    }

    fn compare(&mut self, left: &str, value: impl Into<Value>) {
        let right = self.parameter(value);
        self.and(&format!("{left} {right}"));
    }

    /// Compares a column of ids: a parameter is of another type, and would be compared as that.
    fn compare_id(&mut self, left: &str, id: &InstanceId) {
        let right = self.parameter(id.as_str());
        self.and(&format!("{left} CAST({right} AS char(36))"));
    }

    fn attribute(&mut self, filter: &AttributeFilter) {
        let operator = match filter.comparison {
            Comparison::Equal => "=",
            Comparison::AtLeast => ">=",
            Comparison::AtMost => "<=",
        };
        let name = self.parameter(&*filter.name);
        let (column, value) = match &filter.value {
            AttributeValue::Text(text) => ("text", Value::Text(text.clone())),
            AttributeValue::Number(number) => ("number", Value::Float(*number)),
            AttributeValue::Time(time) => ("time", Value::Int(micros(*time))),
        };
        let value = self.parameter(value);
        self.and(&format!(
            "i.[id] IN (SELECT a.[instance] FROM [latchwork].[attribute] AS a WHERE a.[name] = {name} AND a.[{column}] {operator} {value})"
        ));
    }

    fn text(&mut self, text: &str) {
        let value = self.parameter(text);
        self.and(&format!(
            "(CHARINDEX({value}, i.[reference]) > 0 OR EXISTS (
        SELECT 1 FROM [latchwork].[attribute] AS a WHERE a.[instance] = i.[id] AND CHARINDEX({value}, a.[text]) > 0
    ))"
        ));
    }
}

/// The request for a list. Each condition is a constant; what the query says goes into the values only.
pub(crate) fn find(query: &InstanceQuery) -> Request {
    let mut conditions = Conditions::default();
    if !query.statuses.is_empty() {
        let names: Vec<String> = query.statuses.iter().map(|status| format!("'{status}'")).collect();
        conditions.and(&format!("i.[status] IN ({})", names.join(", ")));
    }
    let texts = [
        ("i.[definition] =", &query.definition),
        ("i.[reference] =", &query.reference),
        ("i.[business_key] =", &query.business_key),
    ];
    for (left, text) in texts {
        if let Some(text) = text {
            conditions.compare(left, &**text);
        }
    }
    if let Some(parent) = &query.parent {
        conditions.compare_id("i.[parent] =", parent);
    }
    if let Some(after) = &query.after {
        conditions.compare_id(if query.newest_first { "i.[id] <" } else { "i.[id] >" }, after);
    }
    if let Some(version) = query.version {
        conditions.compare("i.[version] =", i64::from(version));
    }
    let times: [(&str, Option<Timestamp>); 4] = [
        ("i.[created] >=", query.created_from),
        ("i.[created] <", query.created_before),
        ("i.[ended] >=", query.ended_from),
        ("i.[ended] <", query.ended_before),
    ];
    for (left, time) in times {
        if let Some(time) = time {
            conditions.compare(left, micros(time));
        }
    }
    if let Some(faults) = query.faults.filter(|faults| *faults > 0) {
        // The first half lets `latchwork_instance_faults` be used.
        conditions.and("i.[fault_count] > 0");
        conditions.compare("i.[fault_count] >=", i64::from(faults));
    }
    for filter in &query.attributes {
        conditions.attribute(filter);
    }
    if let Some(text) = &query.text {
        conditions.text(text);
    }
    let direction = if query.newest_first { "DESC" } else { "ASC" };
    // One more than asked for, to know whether there are more.
    let limit = query.effective_limit() + 1;
    let (columns, filter) = (header_columns!(), &conditions.text);
    let text = format!(
        "SET NOCOUNT ON;
DECLARE @page TABLE ([id] char(36) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @page ([id])
SELECT TOP ({limit}) i.[id]
FROM [latchwork].[instance] AS i{filter}
ORDER BY i.[id] {direction};
SELECT 0 AS [kind], {columns}
FROM @page AS p
INNER JOIN [latchwork].[instance] AS i ON i.[id] = p.[id]
ORDER BY i.[id] {direction};{ATTRIBUTES}"
    );
    Request { text: text.into(), values: conditions.values }
}

pub(crate) fn found(query: &InstanceQuery, rows: Vec<Columns>) -> Result<Page<InstanceSummary>, Failure> {
    let mut headers: Vec<InstanceHeader> = Vec::new();
    let mut attributes: BTreeMap<InstanceId, Vec<(String, AttributeValue)>> = BTreeMap::new();
    for mut columns in rows {
        if columns.int()? == 0 {
            headers.push(header(&mut columns)?);
        } else {
            let id = columns.instance()?;
            attributes.entry(id).or_default().push(attribute(&mut columns)?);
        }
    }
    let more = headers.len() > query.effective_limit();
    headers.truncate(query.effective_limit());
    let summary = |header: InstanceHeader| {
        let attributes = attributes.remove(&header.id).unwrap_or_default();
        InstanceSummary { header, attributes }
    };
    Ok(Page { items: headers.into_iter().map(summary).collect(), more })
}

pub(crate) fn statistics(rows: Vec<Columns>) -> Result<StoreStatistics, Failure> {
    let mut statistics = StoreStatistics::default();
    for mut columns in rows {
        if columns.int()? == 0 {
            let (status, count) = (status(&mut columns)?, columns.number()?);
            match status {
                WorkflowStatus::Runnable => statistics.runnable = count,
                WorkflowStatus::Suspended => statistics.suspended = count,
                WorkflowStatus::Complete => statistics.complete = count,
                WorkflowStatus::Terminated => statistics.terminated = count,
            }
        } else {
            statistics.next_due = columns.opt_time()?;
            statistics.events = columns.number()?;
            statistics.inbox = columns.number()?;
            statistics.open_activities = columns.number()?;
        }
    }
    Ok(statistics)
}
