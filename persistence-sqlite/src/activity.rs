//! Handing activities to workers. Written by a compare-and-set of its own, beside the checkpoints.

use crate::{
    error::unwritable,
    record::{encoded, instance_id, micros, parsed, timestamp, work_item},
    sql::Sql,
};
use latchwork_core::{
    clock::{Timestamp, add},
    store::{ActivityClaim, ActivityOutcome, ActivityToken, Control, SubmitOutcome},
};
use latchwork_sqlite_client::sqlx::{self, SqliteConnection};
use std::time::Duration;

/// The oldest activity of the names in `?1` that is free at `?2`. By `latchwork_activity_free`: those never claimed in the order of
/// their numbers, then the few whose claim has ended.
pub(crate) const OLDEST: &str = "
    SELECT min(number)
    FROM (
        SELECT (
            SELECT a.number
            FROM latchwork_activity AS a
            CROSS JOIN latchwork_instance AS i ON i.n = a.n
            WHERE a.name = r.value ->> 0 AND a.free_at = 0 AND i.status = 'runnable'
            ORDER BY a.number
            LIMIT 1
        ) AS number
        FROM jsonb_each(?1) AS r
        UNION ALL
        SELECT a.number
        FROM jsonb_each(?1) AS r
        CROSS JOIN latchwork_activity AS a ON a.name = r.value ->> 0 AND a.free_at > 0 AND a.free_at <= ?2
        CROSS JOIN latchwork_instance AS i ON i.n = a.n
        WHERE i.status = 'runnable'
    )";

/// Claims an activity. By the primary key.
pub(crate) const CLAIM: &str = "
    UPDATE latchwork_activity SET token = ?2, worker = ?3, free_at = ?4 WHERE number = ?1
    RETURNING (SELECT i.id FROM latchwork_instance AS i WHERE i.n = latchwork_activity.n), id, name, parameters";

/// Frees an activity. By `latchwork_activity_token`.
pub(crate) const RELEASE: &str = "
    UPDATE latchwork_activity SET token = NULL, worker = NULL, free_at = 0 WHERE token = ?1";

/// Ends the claim of a token that is good at `?2`, so that no other is given. By `latchwork_activity_token`.
pub(crate) const SUBMIT: &str = "
    UPDATE latchwork_activity SET token = NULL, free_at = 9223372036854775807 WHERE token = ?1 AND free_at > ?2
    RETURNING n, id";

/// Appends a result to the inbox of an open instance.
pub(crate) const RESULT: &str = "
    INSERT INTO latchwork_inbox (n, visible, control)
    SELECT i.n, ?2, ?3 FROM latchwork_instance AS i WHERE i.n = ?1 AND i.status IN ('runnable', 'suspended')";

/// By the primary key.
pub(crate) const INSTANCE: &str = "SELECT id, definition, version FROM latchwork_instance WHERE n = ?1";

pub(crate) async fn claim(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    names: &str,
    worker: &str,
    lease: Duration,
    token: &ActivityToken,
) -> Result<Option<ActivityClaim>, sqlx::Error> {
    let oldest: Option<i64> =
        sqlx::query_scalar(sql.get(OLDEST)).bind(names).bind(micros(now)).fetch_one(&mut *connection).await?;
    let Some(number) = oldest else { return Ok(None) };
    let expires = add(now, lease);
    let (instance, activity, name, parameters): (String, String, String, Option<String>) = sqlx::query_as(sql.get(CLAIM))
        .bind(number)
        .bind(token.as_str())
        .bind(worker)
        .bind(micros(expires))
        .fetch_one(connection)
        .await?;
    Ok(Some(ActivityClaim {
        token: token.clone(),
        instance: instance_id(&instance)?,
        activity: parsed("activity id", &activity)?,
        name: name.into(),
        parameters: encoded(parameters),
        // As it is stored.
        expires: timestamp(micros(expires))?,
    }))
}

pub(crate) async fn release(connection: &mut SqliteConnection, sql: &Sql, token: &ActivityToken) -> Result<bool, sqlx::Error> {
    let done = sqlx::query(sql.get(RELEASE)).bind(token.as_str()).execute(connection).await?;
    Ok(done.rows_affected() > 0)
}

pub(crate) async fn submit(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    token: &ActivityToken,
    outcome: &ActivityOutcome,
) -> Result<SubmitOutcome, sqlx::Error> {
    let row: Option<(i64, String)> =
        sqlx::query_as(sql.get(SUBMIT)).bind(token.as_str()).bind(micros(now)).fetch_optional(&mut *connection).await?;
    let Some((n, id)) = row else { return Ok(SubmitOutcome::Refused) };
    let control = Control::ActivityResult { activity: parsed("activity id", &id)?, outcome: outcome.clone() };
    let json = serde_json::to_string(&control).map_err(unwritable)?;
    let done = sqlx::query(sql.get(RESULT)).bind(n).bind(micros(now)).bind(json).execute(&mut *connection).await?;
    if done.rows_affected() == 0 {
        return Ok(SubmitOutcome::Refused);
    }
    let (id, definition, version): (String, String, i64) =
        sqlx::query_as(sql.get(INSTANCE)).bind(n).fetch_one(connection).await?;
    Ok(SubmitOutcome::Accepted(work_item(&id, definition, version)?))
}
