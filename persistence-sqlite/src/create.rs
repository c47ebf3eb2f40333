//! Creating instances.

use crate::{
    record::{instance_id, micros, status},
    rows::Rows,
    sql::Sql,
};
use latchwork_core::{
    clock::Timestamp,
    store::{AttributeValue, CreateOutcome, InstanceId, NewInstance, WorkflowStatus},
};
use latchwork_sqlite_client::sqlx::{self, SqliteConnection};
use std::collections::HashMap;

/// Which of these ids (`?1`) are, or were, in use. By the unique index of the id, and the primary key of the tombstones.
pub(crate) const KNOWN: &str = "
    SELECT r.key
    FROM jsonb_each(?1) AS r
    WHERE EXISTS (SELECT 1 FROM latchwork_instance AS i WHERE i.id = r.value ->> 0)
        OR EXISTS (SELECT 1 FROM latchwork_tombstone AS t WHERE t.id = r.value ->> 0)";

/// Who has these business keys (`?1`: definition, key). By `latchwork_instance_key` and `latchwork_tombstone_key`.
pub(crate) const HOLDERS: &str = "
    SELECT r.key, i.id, i.status
    FROM jsonb_each(?1) AS r
    CROSS JOIN latchwork_instance AS i ON i.definition = r.value ->> 0 AND i.business_key = r.value ->> 1
    UNION ALL
    SELECT r.key, t.id, t.status
    FROM jsonb_each(?1) AS r
    CROSS JOIN latchwork_tombstone AS t ON t.definition = r.value ->> 0 AND t.business_key = r.value ->> 1";

/// The highest number in use; 0 at first.
pub(crate) const LAST_NUMBER: &str = "SELECT coalesce(max(n), 0) FROM latchwork_instance";

/// New instances: n, id, definition, version, fingerprint, business key, reference, parent, its pointer.
pub(crate) const INSERT: &str = "
    INSERT INTO latchwork_instance (
        n, id, definition, version, fingerprint, business_key, reference, parent, parent_pointer,
        revision, status, due, fault_count, last_sequence, created
    )
    SELECT
        r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4, r.value ->> 5, r.value ->> 6, r.value ->> 7,
        r.value ->> 8, 1, 'runnable', ?2, 0, 0, ?2
    FROM jsonb_each(?1) AS r";

/// Data of instances: n, data. Written over what is there.
pub(crate) const DATA: &str = "
    INSERT INTO latchwork_data (n, data)
    SELECT r.value ->> 0, r.value ->> 1
    FROM jsonb_each(?1) AS r
    WHERE true
    ON CONFLICT (n) DO UPDATE SET data = excluded.data";

/// Attributes of instances: n, name, text, number, time. Written over what is there.
pub(crate) const ATTRIBUTES: &str = "
    INSERT INTO latchwork_attribute (n, name, text, number, time)
    SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4
    FROM jsonb_each(?1) AS r
    WHERE true
    ON CONFLICT (n, name) DO UPDATE SET text = excluded.text, number = excluded.number, time = excluded.time";

/// What became of one instance.
pub(crate) struct Created {
    pub(crate) outcome: CreateOutcome,
    /// Whether it is there by this call, and not by an earlier one.
    pub(crate) new: bool,
}

/// Creates instances, each with its own answer.
pub(crate) async fn create(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    instances: &[&NewInstance],
) -> Result<Vec<Created>, sqlx::Error> {
    let now = micros(now);
    let known = known(connection, sql, now, instances).await?;
    let mut holders = holders(connection, sql, now, instances).await?;
    let mut ids: HashMap<&InstanceId, ()> = HashMap::new();
    let mut answers = Vec::with_capacity(instances.len());
    let mut last: i64 = sqlx::query_scalar(sql.get(LAST_NUMBER)).fetch_one(&mut *connection).await?;
    let (mut heads, mut data, mut attributes) = (Rows::default(), Rows::default(), Rows::default());
    for (at, instance) in instances.iter().enumerate() {
        let repeated = known.contains_key(&at) || ids.contains_key(&instance.id);
        let key = instance.business_key.as_deref().map(|key| (instance.definition.as_ref(), key));
        let holder = key.and_then(|key| holders.get(&key)).filter(|(holder, _)| *holder != instance.id);
        if let Some((holder, status)) = holder.filter(|_| !repeated) {
            let outcome = CreateOutcome::Exists { instance: holder.clone(), status: *status };
            answers.push(Created { outcome, new: false });
            continue;
        }
        answers.push(Created { outcome: CreateOutcome::Created, new: !repeated });
        if repeated {
            continue;
        }
        ids.insert(&instance.id, ());
        if let Some(key) = key {
            holders.insert(key, (instance.id.clone(), WorkflowStatus::Runnable));
        }
        last += 1;
        heads.add(|row| {
            row.int(last)
                .id(&instance.id)
                .text(&instance.definition)
                .int(i64::from(instance.version))
                .text(&instance.fingerprint)
                .opt_text(instance.business_key.as_deref())
                .opt_text(instance.reference.as_deref())
                .opt_id(instance.parent.as_ref().map(|parent| &parent.instance))
                .opt_id(instance.parent.as_ref().map(|parent| &parent.pointer));
        });
        data.add(|row| {
            row.int(last).text(instance.data.as_str());
        });
        add_attributes(&mut attributes, last, &instance.attributes);
    }
    heads.execute(connection, sql, INSERT, now).await?;
    data.execute(connection, sql, DATA, now).await?;
    attributes.execute(connection, sql, ATTRIBUTES, now).await?;
    Ok(answers)
}

/// Adds rows for [`ATTRIBUTES`].
pub(crate) fn add_attributes(rows: &mut Rows, n: i64, attributes: &[(String, AttributeValue)]) {
    for (name, value) in attributes {
        rows.add(|row| {
            row.int(n).text(name);
            match value {
                AttributeValue::Text(text) => row.text(text).null().null(),
                AttributeValue::Number(number) => row.null().float(*number).null(),
                AttributeValue::Time(time) => row.null().null().int(micros(*time)),
            };
        });
    }
}

/// The places of those whose id is in use.
async fn known(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: i64,
    instances: &[&NewInstance],
) -> Result<HashMap<usize, ()>, sqlx::Error> {
    let mut known = HashMap::new();
    let mut rows = Rows::default();
    for instance in instances {
        rows.add(|row| {
            row.id(&instance.id);
        });
    }
    let mut offset = 0;
    for batch in rows.into_batches() {
        let found: Vec<i64> = sqlx::query_scalar(sql.get(KNOWN)).bind(batch).bind(now).fetch_all(&mut *connection).await?;
        known.extend(found.into_iter().filter_map(|at| Some((offset + usize::try_from(at).ok()?, ()))));
        offset += latchwork_core::limits::STATEMENT_ROWS;
    }
    Ok(known)
}

/// The holders of the instances' business keys.
async fn holders<'a>(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: i64,
    instances: &[&'a NewInstance],
) -> Result<HashMap<(&'a str, &'a str), (InstanceId, WorkflowStatus)>, sqlx::Error> {
    let keys: Vec<(&str, &str)> = instances
        .iter()
        .filter_map(|instance| instance.business_key.as_deref().map(|key| (instance.definition.as_ref(), key)))
        .collect();
    let mut holders = HashMap::new();
    for keys in keys.chunks(latchwork_core::limits::STATEMENT_ROWS) {
        let mut rows = Rows::default();
        for (definition, key) in keys {
            rows.add(|row| {
                row.text(definition).text(key);
            });
        }
        let found: Vec<(i64, String, String)> = rows.fetch(connection, sql, HOLDERS, now).await?;
        for (at, id, name) in found {
            if let Some(key) = usize::try_from(at).ok().and_then(|at| keys.get(at)) {
                holders.insert(*key, (instance_id(&id)?, status(&name)?));
            }
        }
    }
    Ok(holders)
}
