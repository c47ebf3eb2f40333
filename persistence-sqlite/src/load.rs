//! Reading one instance.

use crate::{
    error::corrupt,
    record::{self, InboxColumns, attribute, encoded, header_columns, inboxes, parsed, timestamp},
    sql::Sql,
};
use latchwork_core::{
    clock::Timestamp,
    store::{
        Activity, AttributeValue, CheckpointId, Encoded, ErrorRecord, Fence, InstanceId, InstanceRecord, LoadedInstance, Page,
        PointerId, PointerRecord, Revision, Subscription, Tombstone,
    },
};
use latchwork_sqlite_client::sqlx::{self, SqliteConnection};

/// The open part of an instance (`?1`: id), with the inbox that is visible at `?2`. One statement, so that it is of one moment; the
/// first column says what a row is. By the unique index of the id, the primary keys, `latchwork_pointer_open` and
/// `latchwork_inbox_wait`.
pub(crate) const LOAD: &str = concat!(
    "SELECT 0 AS kind, i.last_sequence AS a, NULL AS b, NULL AS c, ",
    header_columns!(),
    " AS s, d.data AS t, NULL AS u, NULL AS v, NULL AS w, NULL AS x, NULL AS y
    FROM latchwork_instance AS i CROSS JOIN latchwork_data AS d ON d.n = i.n
    WHERE i.id = ?1
    UNION ALL
    SELECT 1, p.sequence, NULL, NULL, p.record, p.scope, p.state, NULL, NULL, NULL, NULL
    FROM latchwork_instance AS i CROSS JOIN latchwork_pointer AS p ON p.n = i.n AND p.open = 1
    WHERE i.id = ?1
    UNION ALL
    SELECT 2, s.as_of, s.sequence, NULL, s.id, s.pointer, s.name, s.key, s.slot, NULL, NULL
    FROM latchwork_instance AS i CROSS JOIN latchwork_subscription AS s ON s.n = i.n
    WHERE i.id = ?1
    UNION ALL
    SELECT 3, a.number, NULL, NULL, a.id, a.pointer, a.name, a.parameters, NULL, NULL, NULL
    FROM latchwork_instance AS i CROSS JOIN latchwork_activity AS a ON a.n = i.n
    WHERE i.id = ?1
    UNION ALL
    SELECT 4, m.id, e.time, e.number, m.control, m.subscription, m.slot, e.id, e.name, e.key, e.data
    FROM latchwork_instance AS i
    CROSS JOIN latchwork_inbox AS m ON m.n = i.n
    LEFT JOIN latchwork_event AS e ON e.number = m.event
    WHERE i.id = ?1 AND m.visible <= ?2"
);

/// The finished pointers of a scope. By `latchwork_pointer_scope`.
pub(crate) const SCOPE: &str = "
    SELECT p.sequence, p.record, p.scope, p.state
    FROM latchwork_instance AS i CROSS JOIN latchwork_pointer AS p ON p.n = i.n AND p.scope = ?2
    WHERE i.id = ?1 AND p.open = 0
    ORDER BY p.sequence";

/// A page of pointers. By the primary key.
pub(crate) const HISTORY: &str = "
    SELECT p.sequence, p.record, p.scope, p.state
    FROM latchwork_instance AS i CROSS JOIN latchwork_pointer AS p ON p.n = i.n
    WHERE i.id = ?1 AND p.sequence > ?2
    ORDER BY p.sequence
    LIMIT ?3";

/// By the unique index of the id.
pub(crate) const FENCE: &str = "SELECT revision, writer FROM latchwork_instance WHERE id = ?1";

/// An instance with its data and attributes. By the unique index of the id and the primary keys.
pub(crate) const GET: &str = concat!(
    "SELECT ",
    header_columns!(),
    ", d.data, a.name, a.text, a.number, a.time
    FROM latchwork_instance AS i
    CROSS JOIN latchwork_data AS d ON d.n = i.n
    LEFT JOIN latchwork_attribute AS a ON a.n = i.n
    WHERE i.id = ?1
    ORDER BY a.name"
);

/// By the primary key.
pub(crate) const TOMBSTONE: &str =
    "SELECT definition, business_key, status, ended, result FROM latchwork_tombstone WHERE id = ?1";

/// Who has a business key. By `latchwork_instance_key` and `latchwork_tombstone_key`.
pub(crate) const BY_KEY: &str = "
    SELECT id FROM latchwork_instance WHERE definition = ?1 AND business_key = ?2
    UNION ALL
    SELECT id FROM latchwork_tombstone WHERE definition = ?1 AND business_key = ?2";

/// By `latchwork_error_instance`.
pub(crate) const ERRORS: &str = "
    SELECT e.pointer, e.step, e.attempt, e.time, e.message
    FROM latchwork_instance AS i CROSS JOIN latchwork_error AS e ON e.n = i.n
    WHERE i.id = ?1
    ORDER BY e.id";

type LoadColumns = (
    i64,
    i64,
    Option<i64>,
    Option<i64>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
);

/// A column that the row cannot be without.
fn have<T>(what: &str, column: Option<T>) -> Result<T, sqlx::Error> {
    column.ok_or_else(|| corrupt(format!("a row without its {what}")))
}

pub(crate) async fn load(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    id: &InstanceId,
) -> Result<Option<LoadedInstance>, sqlx::Error> {
    let rows: Vec<LoadColumns> =
        sqlx::query_as(sql.get(LOAD)).bind(id.as_str()).bind(record::micros(now)).fetch_all(connection).await?;
    let mut head = None;
    let mut pointers = Vec::new();
    let mut subscriptions = Vec::new();
    let mut activities = Vec::new();
    let mut inbox: Vec<InboxColumns> = Vec::new();
    for (kind, a, b, c, s, t, u, v, w, x, y) in rows {
        match kind {
            0 => head = Some((a, record::header(&have("header", s)?)?, Encoded::from_json(have("data", t)?))),
            1 => pointers.push(record::pointer(a, &have("record", s)?, t.as_deref(), u)?),
            2 => subscriptions.push(Subscription::new(
                parsed("wait id", &have("id", s)?)?,
                parsed("pointer id", &have("pointer", t)?)?,
                have("name", u)?,
                have("key", v)?,
                have("slot", w)?,
                timestamp(a)?,
                have("sequence", b)?,
            )),
            3 => {
                let activity = Activity::new(
                    parsed("activity id", &have("id", s)?)?,
                    parsed("pointer id", &have("pointer", t)?)?,
                    have("name", u)?,
                    encoded(v),
                );
                activities.push((a, activity));
            }
            _ => inbox.push((0, a, s, t, u, v, w, x, b, c, y)),
        }
    }
    let Some((last_sequence, header, data)) = head else { return Ok(None) };
    pointers.sort_unstable_by_key(|pointer: &PointerRecord| pointer.sequence);
    subscriptions.sort_unstable_by_key(|subscription: &Subscription| subscription.sequence);
    activities.sort_unstable_by_key(|(number, _)| *number);
    inbox.sort_unstable_by_key(|row| row.1);
    Ok(Some(LoadedInstance {
        header,
        data,
        pointers,
        last_sequence,
        subscriptions,
        activities: activities.into_iter().map(|(_, activity)| activity).collect(),
        inbox: inboxes(inbox)?.remove(&0).unwrap_or_default(),
        now,
    }))
}

type PointerColumns = (i64, String, Option<String>, Option<String>);

fn pointers(rows: Vec<PointerColumns>) -> Result<Vec<PointerRecord>, sqlx::Error> {
    rows.into_iter().map(|(sequence, json, scope, state)| record::pointer(sequence, &json, scope.as_deref(), state)).collect()
}

pub(crate) async fn scope(
    connection: &mut SqliteConnection,
    sql: &Sql,
    id: &InstanceId,
    scope: PointerId,
) -> Result<Vec<PointerRecord>, sqlx::Error> {
    let rows = sqlx::query_as(sql.get(SCOPE)).bind(id.as_str()).bind(scope.to_string()).fetch_all(connection).await?;
    pointers(rows)
}

pub(crate) async fn history(
    connection: &mut SqliteConnection,
    sql: &Sql,
    id: &InstanceId,
    after: i64,
    limit: usize,
) -> Result<Page<PointerRecord>, sqlx::Error> {
    let one_more = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let rows = sqlx::query_as(sql.get(HISTORY)).bind(id.as_str()).bind(after).bind(one_more).fetch_all(connection).await?;
    let mut items = pointers(rows)?;
    let more = items.len() > limit;
    items.truncate(limit);
    Ok(Page { items, more })
}

pub(crate) async fn fence(connection: &mut SqliteConnection, sql: &Sql, id: &InstanceId) -> Result<Option<Fence>, sqlx::Error> {
    let row: Option<(i64, Option<String>)> = sqlx::query_as(sql.get(FENCE)).bind(id.as_str()).fetch_optional(connection).await?;
    let Some((revision, writer)) = row else { return Ok(None) };
    let writer = writer.as_deref().map(|writer| parsed::<CheckpointId>("checkpoint id", writer)).transpose()?;
    Ok(Some(Fence { revision: Revision(revision), writer }))
}

type TombstoneColumns = (String, Option<String>, String, i64, Option<String>);

type GetColumns = (String, String, Option<String>, Option<String>, Option<f64>, Option<i64>);

pub(crate) async fn get(
    connection: &mut SqliteConnection,
    sql: &Sql,
    id: &InstanceId,
) -> Result<Option<InstanceRecord>, sqlx::Error> {
    let rows: Vec<GetColumns> = sqlx::query_as(sql.get(GET)).bind(id.as_str()).fetch_all(&mut *connection).await?;
    let mut found = None;
    let mut attributes: Vec<(String, AttributeValue)> = Vec::new();
    for (head, data, name, text, number, time) in rows {
        if let Some(name) = name {
            let value = attribute(&name, text, number, time)?;
            attributes.push((name, value));
        }
        if found.is_none() {
            found = Some((record::header(&head)?, Encoded::from_json(data)));
        }
    }
    if let Some((header, data)) = found {
        return Ok(Some(InstanceRecord::Instance { header, data, attributes }));
    }
    let row: Option<TombstoneColumns> = sqlx::query_as(sql.get(TOMBSTONE)).bind(id.as_str()).fetch_optional(connection).await?;
    let Some((definition, business_key, status, ended, result)) = row else { return Ok(None) };
    Ok(Some(InstanceRecord::Deleted(Tombstone {
        id: id.clone(),
        definition: definition.into(),
        business_key,
        status: record::status(&status)?,
        ended: timestamp(ended)?,
        result: encoded(result),
    })))
}

pub(crate) async fn by_key(
    connection: &mut SqliteConnection,
    sql: &Sql,
    definition: &str,
    business_key: &str,
) -> Result<Option<InstanceId>, sqlx::Error> {
    let id: Option<String> =
        sqlx::query_scalar(sql.get(BY_KEY)).bind(definition).bind(business_key).fetch_optional(connection).await?;
    id.as_deref().map(record::instance_id).transpose()
}

pub(crate) async fn errors(
    connection: &mut SqliteConnection,
    sql: &Sql,
    id: &InstanceId,
) -> Result<Vec<ErrorRecord>, sqlx::Error> {
    let rows: Vec<(String, String, i64, i64, String)> =
        sqlx::query_as(sql.get(ERRORS)).bind(id.as_str()).fetch_all(connection).await?;
    rows.into_iter()
        .map(|(pointer, step, attempt, time, message)| {
            Ok(ErrorRecord {
                instance: id.clone(),
                pointer: parsed("pointer id", &pointer)?,
                step: step.into(),
                attempt: record::number("attempt", attempt)?,
                time: timestamp(time)?,
                message,
            })
        })
        .collect()
}
