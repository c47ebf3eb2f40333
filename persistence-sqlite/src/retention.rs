//! Removing what is old.

use crate::{
    record::{micros, number},
    rows::Rows,
    sql::Sql,
};
use latchwork_core::{
    clock::Timestamp,
    limits::TOMBSTONE_RESULT_BYTES,
    store::{PurgeReport, PurgeRequest, WorkflowStatus},
};
use latchwork_sqlite_client::sqlx::{self, SqliteConnection};
use std::time::Duration;

/// Instances with more pointers than this together are not deleted in one transaction: the writer is for others, too.
const POINTERS: i64 = 20_000;

/// The oldest tombstones from before `?1`, at most `?2`. By `latchwork_tombstone_deleted`.
pub(crate) const TOMBSTONES: &str = "
    DELETE FROM latchwork_tombstone
    WHERE id IN (SELECT id FROM latchwork_tombstone WHERE deleted < ?1 ORDER BY deleted LIMIT ?2)";

/// By `latchwork_tombstone_deleted`.
pub(crate) const MORE_TOMBSTONES: &str = "SELECT EXISTS (SELECT 1 FROM latchwork_tombstone WHERE deleted < ?1)";

/// The instances that ended first, before `?1`, in the status `?3`, at most `?2`. By `latchwork_instance_ended`, so that those of another status,
/// which may be kept for ever, cost nothing.
pub(crate) const ENDED: &str = "
    SELECT n, last_sequence
    FROM latchwork_instance
    WHERE status = ?3 AND ended IS NOT NULL AND ended < ?1
    ORDER BY ended, n
    LIMIT ?2";

/// Leaves tombstones of instances (`?1`: n) at `?2`. By the primary keys.
pub(crate) const BURY: &str = "
    INSERT INTO latchwork_tombstone (id, definition, business_key, status, ended, result, deleted)
    SELECT
        i.id, i.definition, i.business_key, i.status, i.ended,
        CASE WHEN octet_length(d.data) <= r.value ->> 1 THEN d.data END,
        ?2
    FROM jsonb_each(?1) AS r
    CROSS JOIN latchwork_instance AS i ON i.n = r.value ->> 0
    CROSS JOIN latchwork_data AS d ON d.n = i.n
    WHERE true
    ON CONFLICT (id) DO NOTHING";

/// All that belongs to instances (`?1`: n). By the primary keys, the unique index and the indexes on `n`.
pub(crate) const FORGET: [&str; 9] = [
    "DELETE FROM latchwork_data WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
    "DELETE FROM latchwork_pointer WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
    "DELETE FROM latchwork_subscription WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
    "DELETE FROM latchwork_consumed WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
    "DELETE FROM latchwork_inbox WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
    "DELETE FROM latchwork_activity WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
    "DELETE FROM latchwork_attribute WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
    "DELETE FROM latchwork_error WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
    "DELETE FROM latchwork_instance WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
];

/// The oldest events from before `?1` that stand in no inbox, at most `?2`. By `latchwork_event_time` and `latchwork_inbox_event`.
pub(crate) const EVENTS: &str = "
    DELETE FROM latchwork_event
    WHERE number IN (
        SELECT e.number
        FROM latchwork_event AS e
        WHERE e.time < ?1 AND NOT EXISTS (SELECT 1 FROM latchwork_inbox AS m WHERE m.event = e.number)
        ORDER BY e.time
        LIMIT ?2
    )";

/// As [`EVENTS`].
pub(crate) const MORE_EVENTS: &str = "
    SELECT EXISTS (
        SELECT 1
        FROM latchwork_event AS e
        WHERE e.time < ?1 AND NOT EXISTS (SELECT 1 FROM latchwork_inbox AS m WHERE m.event = e.number)
    )";

/// So long before; `None` when there is no such time, and so nothing older.
fn before(now: Timestamp, age: Option<Duration>) -> Option<i64> {
    micros(now).checked_sub(i64::try_from(age?.as_micros()).ok()?)
}

pub(crate) async fn purge(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    request: &PurgeRequest,
) -> Result<PurgeReport, sqlx::Error> {
    let limit = i64::try_from(request.limit).unwrap_or(i64::MAX);
    let mut report = PurgeReport::default();
    if let Some(before) = before(now, request.tombstones) {
        let done = sqlx::query(sql.get(TOMBSTONES)).bind(before).bind(limit).execute(&mut *connection).await?;
        report.tombstones = done.rows_affected();
        report.more |= sqlx::query_scalar::<_, bool>(sql.get(MORE_TOMBSTONES)).bind(before).fetch_one(&mut *connection).await?;
    }
    if let Some(before) = before(now, request.instances) {
        let wanted =
            |status: &WorkflowStatus| status.is_terminal() && (request.statuses.is_empty() || request.statuses.contains(status));
        let mut found: Vec<(i64, i64)> = Vec::new();
        for status in WorkflowStatus::ALL.iter().filter(|status| wanted(status)) {
            // One more than allowed, to know whether there are more.
            let room = limit.saturating_add(1).saturating_sub(i64::try_from(found.len()).unwrap_or(i64::MAX));
            let of_status = sqlx::query_as::<_, (i64, i64)>(sql.get(ENDED)).bind(before).bind(room).bind(status.as_str());
            found.extend(of_status.fetch_all(&mut *connection).await?);
        }
        let ended = at_once(&found, request.limit);
        report.more |= found.len() > ended.len();
        report.instances = number("count", i64::try_from(ended.len()).unwrap_or(i64::MAX))?;
        delete(connection, sql, micros(now), &ended).await?;
    }
    if let Some(before) = before(now, request.events) {
        let done = sqlx::query(sql.get(EVENTS)).bind(before).bind(limit).execute(&mut *connection).await?;
        report.events = done.rows_affected();
        report.more |= sqlx::query_scalar::<_, bool>(sql.get(MORE_EVENTS)).bind(before).fetch_one(connection).await?;
    }
    Ok(report)
}

/// The first of these instances (n, pointers) that are deleted in one transaction: at most so many, and one at least.
fn at_once(found: &[(i64, i64)], limit: usize) -> Vec<i64> {
    let mut rows = 0_i64;
    let fits = |(_, pointers): &&(i64, i64)| {
        let is_first = rows == 0;
        rows = rows.saturating_add(1).saturating_add(*pointers);
        is_first || rows <= POINTERS
    };
    found.iter().take(limit).take_while(fits).map(|(n, _)| *n).collect()
}

async fn delete(connection: &mut SqliteConnection, sql: &Sql, now: i64, instances: &[i64]) -> Result<(), sqlx::Error> {
    let mut rows = Rows::default();
    let result_bytes = i64::try_from(TOMBSTONE_RESULT_BYTES).unwrap_or(i64::MAX);
    for n in instances {
        rows.add(|row| {
            row.int(*n).int(result_bytes);
        });
    }
    for batch in rows.into_batches() {
        sqlx::query(sql.get(BURY)).bind(&batch).bind(now).execute(&mut *connection).await?;
        for statement in FORGET {
            sqlx::query(sql.get(statement)).bind(&batch).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_with_a_long_past_are_deleted_few_at_a_time() {
        let of = |pointers: &[i64], limit| at_once(&(1..).zip(pointers.iter().copied()).collect::<Vec<_>>(), limit);
        assert_eq!(of(&[3, 0, 5], 10), [1, 2, 3]);
        assert_eq!(of(&[3, 0, 5], 2), [1, 2]);
        assert_eq!(of(&[POINTERS - 2, 0, 0], 10), [1, 2]);
        assert_eq!(of(&[POINTERS * 2, 1], 10), [1]);
        assert_eq!(of(&[1, POINTERS * 2, 1], 10), [1]);
        assert_eq!(of(&[i64::MAX, i64::MAX], 10), [1]);
        assert_eq!(of(&[], 10), [0; 0]);
    }
}
