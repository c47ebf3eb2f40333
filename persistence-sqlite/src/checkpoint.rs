//! Writing checkpoints: any number in one transaction, one statement per table.

use crate::{
    create::{self, create},
    error::unwritable,
    event, inbox,
    matching::{self, Slot},
    record::{inboxes, micros, parsed},
    rows::{Bundle, Rows},
    sql::Sql,
};
use latchwork_core::{
    clock::{Timestamp, add, whole_micros},
    limits::{ERROR_TEXT_BYTES, ERRORS_PER_INSTANCE, cut},
    queue::WorkItem,
    store::{
        AppendOutcome, Checkpoint, CheckpointId, CheckpointOutcome, Committed, Due, Encoded, Fence, InboxRow, InstanceId,
        NewEvent, NewInstance, Revision, WorkflowStatus, stored,
    },
};
use latchwork_sqlite_client::sqlx::{self, SqliteConnection};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// The fences of instances (`?1`: id), and what else a checkpoint needs to know, as one JSON array: a row that crosses from the
/// driver's thread costs more than its text. By the unique index of the id.
pub(crate) const FENCES: &str = "
    SELECT json_group_array(json_array(r.key, i.n, i.revision, i.writer, i.status, i.due, i.last_sequence))
    FROM jsonb_each(?1) AS r
    CROSS JOIN latchwork_instance AS i ON i.id = r.value ->> 0";

/// Headers whose status and due time stay: n, writer, fault count, last sequence, reason. No index is touched.
pub(crate) const HEADERS: &str = "
    UPDATE latchwork_instance AS i
    SET revision = i.revision + 1,
        writer = r.value ->> 1,
        fault_count = r.value ->> 2,
        last_sequence = r.value ->> 3,
        reason = r.value ->> 4
    FROM jsonb_each(?1) AS r
    WHERE i.n = r.value ->> 0";

/// Headers: n, writer, fault count, last sequence, reason, status, due, ended.
pub(crate) const WHOLE_HEADERS: &str = "
    UPDATE latchwork_instance AS i
    SET revision = i.revision + 1,
        writer = r.value ->> 1,
        fault_count = r.value ->> 2,
        last_sequence = r.value ->> 3,
        reason = r.value ->> 4,
        status = r.value ->> 5,
        due = r.value ->> 6,
        ended = r.value ->> 7
    FROM jsonb_each(?1) AS r
    WHERE i.n = r.value ->> 0";

/// Pointers: n, sequence, open, scope, record, state. Written over what is there.
pub(crate) const POINTERS: &str = "
    INSERT INTO latchwork_pointer (n, sequence, open, scope, record, state)
    SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4, r.value ->> 5
    FROM jsonb_each(?1) AS r
    WHERE true
    ON CONFLICT (n, sequence) DO UPDATE SET
        open = excluded.open, scope = excluded.scope, record = excluded.record, state = excluded.state";

/// Takes rows out of inboxes (`?1`: id, n); gives the slots of those that held events. By the primary key.
pub(crate) const APPLIED: &str = "
    DELETE FROM latchwork_inbox
    WHERE id IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r) AND n IN (SELECT r.value ->> 1 FROM jsonb_each(?1) AS r)
    RETURNING n, slot";

/// Takes the matches of waits (`?1`: n, wait) back; gives their slots. By `latchwork_inbox_wait`.
pub(crate) const UNMATCH: &str = "
    DELETE FROM latchwork_inbox
    WHERE id IN (
        SELECT m.id
        FROM jsonb_each(?1) AS r
        CROSS JOIN latchwork_inbox AS m ON m.n = r.value ->> 0 AND m.subscription = r.value ->> 1
    )
    RETURNING n, slot";

/// Ends waits: n, wait. By the primary key.
pub(crate) const END_WAITS: &str = "
    DELETE FROM latchwork_subscription
    WHERE (n, id) IN (SELECT r.value ->> 0, r.value ->> 1 FROM jsonb_each(?1) AS r)";

/// New waits: n, id, pointer, name, key, slot, as of, sequence.
pub(crate) const WAITS: &str = "
    INSERT INTO latchwork_subscription (n, id, pointer, name, key, slot, as_of, sequence)
    SELECT
        r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4, r.value ->> 5, r.value ->> 6, r.value ->> 7
    FROM jsonb_each(?1) AS r
    WHERE true
    ON CONFLICT (n, id) DO NOTHING";

/// Ends activities: n, id. By the unique index.
pub(crate) const END_ACTIVITIES: &str = "
    DELETE FROM latchwork_activity
    WHERE (n, id) IN (SELECT r.value ->> 0, r.value ->> 1 FROM jsonb_each(?1) AS r)";

/// New activities: n, id, pointer, name, parameters.
pub(crate) const ACTIVITIES: &str = "
    INSERT INTO latchwork_activity (n, id, pointer, name, parameters, free_at)
    SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4, 0
    FROM jsonb_each(?1) AS r
    WHERE true
    ON CONFLICT (n, id) DO NOTHING";

/// Events that slots have had: n, slot, event.
pub(crate) const CONSUMED: &str = "
    INSERT INTO latchwork_consumed (n, slot, event)
    SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2
    FROM jsonb_each(?1) AS r
    WHERE true
    ON CONFLICT (n, slot, event) DO NOTHING";

/// Errors: n, pointer, step, attempt, time, message.
pub(crate) const ERRORS: &str = "
    INSERT INTO latchwork_error (n, pointer, step, attempt, time, message)
    SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4, r.value ->> 5
    FROM jsonb_each(?1) AS r";

/// Forgets the oldest errors of instances (`?1`: n) but the newest `?2`. By `latchwork_error_instance`.
pub(crate) const TRIM_ERRORS: &str = "
    DELETE FROM latchwork_error
    WHERE id IN (
        SELECT e.id
        FROM jsonb_each(?1) AS r
        CROSS JOIN latchwork_error AS e ON e.n = r.value ->> 0
        WHERE e.id <= (
            SELECT x.id
            FROM latchwork_error AS x
            WHERE x.n = r.value ->> 0
            ORDER BY x.id DESC
            LIMIT 1 OFFSET ?2
        )
    )";

/// What an instance (`?1`: n) has no more when it has ended. By the primary keys, the unique index and `latchwork_inbox_wait`.
pub(crate) const END: [&str; 4] = [
    "DELETE FROM latchwork_subscription WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
    "DELETE FROM latchwork_activity WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
    "DELETE FROM latchwork_inbox WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
    "DELETE FROM latchwork_consumed WHERE n IN (SELECT r.value ->> 0 FROM jsonb_each(?1) AS r)",
];

/// What is stored of an instance that a checkpoint is for.
struct Stored {
    n: i64,
    fence: Fence,
    status: WorkflowStatus,
    due: Option<i64>,
    last_sequence: i64,
}

/// What [`FENCES`] selects.
type FenceColumns<'a> = (usize, i64, i64, Option<&'a str>, WorkflowStatus, Option<i64>, i64);

/// A checkpoint that will be written.
struct Winner<'a> {
    /// Its place in the batch.
    at: usize,
    checkpoint: &'a Checkpoint,
    stored: Stored,
}

/// Writes checkpoints, each with its own answer.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    checkpoints: &[Arc<Checkpoint>],
) -> Result<Vec<CheckpointOutcome>, sqlx::Error> {
    // Checkpoints of different calls meet here, so that one instance can have several: each goes into a round of its own.
    let mut rounds: Vec<Vec<(usize, &Checkpoint)>> = Vec::new();
    let mut seen: HashMap<&InstanceId, usize> = HashMap::new();
    for (at, checkpoint) in checkpoints.iter().enumerate() {
        let round = seen.entry(&checkpoint.instance).and_modify(|round| *round += 1).or_default();
        if rounds.len() <= *round {
            rounds.push(Vec::new());
        }
        if let Some(round) = rounds.get_mut(*round) {
            round.push((at, checkpoint));
        }
    }
    let mut answers = BTreeMap::new();
    for members in rounds {
        write_round(connection, sql, now, members, &mut answers).await?;
    }
    Ok(answers.into_values().collect())
}

async fn write_round(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    mut members: Vec<(usize, &Checkpoint)>,
    answers: &mut BTreeMap<usize, CheckpointOutcome>,
) -> Result<(), sqlx::Error> {
    members.sort_unstable_by(|(_, one), (_, other)| one.instance.cmp(&other.instance));
    let mut stored = fences(connection, sql, &members).await?;
    let (mut winners, mut written) = (Vec::new(), Vec::new());
    for (place, (at, checkpoint)) in members.into_iter().enumerate() {
        let Some(stored) = stored.remove(&place) else {
            answers.insert(at, CheckpointOutcome::Refused { stored: None });
            continue;
        };
        match stored.fence.tells_of(checkpoint) {
            // An earlier try of the same checkpoint.
            Some(true) => written.push((at, stored.n, stored.fence.revision)),
            None if !stored.status.is_terminal() => winners.push(Winner { at, checkpoint, stored }),
            _ => {
                answers.insert(at, CheckpointOutcome::Refused { stored: Some(stored.fence.revision) });
            }
        }
    }
    let mut bundle = Bundle::new(micros(now));
    headers(&mut bundle, now, &winners);
    children(&mut bundle, &winners)?;
    written.extend(winners.iter().map(|winner| (winner.at, winner.stored.n, winner.stored.fence.revision.next())));
    let mut inbox = Rows::default();
    for (_, n, _) in &written {
        inbox.add(|row| {
            row.int(*n);
        });
    }
    let mut wake = HashMap::new();
    // Most checkpoints concern nobody else, and are then written and answered in one go.
    if !winners.iter().all(|winner| is_quiet(winner.checkpoint)) {
        bundle.execute(connection, sql).await?;
        trim_errors(connection, sql, &winners).await?;
        wake = reach_out(connection, sql, now, &winners).await?;
        bundle = Bundle::new(micros(now));
    }
    bundle.add(inbox::READ, inbox);
    let mut inboxes = inboxes(bundle.fetch(connection, sql).await?)?;
    for (at, n, revision) in written {
        let inbox: Vec<InboxRow> = inboxes.remove(&n).unwrap_or_default();
        let wake = wake.remove(&at).unwrap_or_default();
        answers.insert(at, CheckpointOutcome::Committed(Committed { revision, now, inbox, wake }));
    }
    Ok(())
}

/// Whether a checkpoint writes rows of its instance only, none of which can be matched or has to be counted.
fn is_quiet(checkpoint: &Checkpoint) -> bool {
    !checkpoint.header.status.is_terminal()
        && checkpoint.subscriptions.is_empty()
        && checkpoint.ended_subscriptions.is_empty()
        && checkpoint.activities.is_empty()
        && checkpoint.ended_activities.is_empty()
        && checkpoint.applied.is_empty()
        && checkpoint.consumed.is_empty()
        && checkpoint.errors.is_empty()
        && checkpoint.events.is_empty()
        && checkpoint.children.is_empty()
        && checkpoint.messages.is_empty()
}

async fn fences(
    connection: &mut SqliteConnection,
    sql: &Sql,
    members: &[(usize, &Checkpoint)],
) -> Result<HashMap<usize, Stored>, sqlx::Error> {
    let mut stored = HashMap::with_capacity(members.len());
    for (batch, members) in members.chunks(latchwork_core::limits::STATEMENT_ROWS).enumerate() {
        let offset = batch * latchwork_core::limits::STATEMENT_ROWS;
        let mut rows = Rows::default();
        for (_, checkpoint) in members {
            rows.add(|row| {
                row.id(&checkpoint.instance);
            });
        }
        let found: Vec<(String,)> = rows.fetch(connection, sql, FENCES, 0).await?;
        for (json,) in found {
            let fences: Vec<FenceColumns<'_>> = serde_json::from_str(&json).map_err(|error| sqlx::Error::Decode(error.into()))?;
            for (at, n, revision, writer, status, due, last_sequence) in fences {
                let writer = writer.map(|writer| parsed::<CheckpointId>("checkpoint id", writer)).transpose()?;
                let fence = Fence { revision: Revision(revision), writer };
                stored.insert(offset + at, Stored { n, fence, status, due, last_sequence });
            }
        }
    }
    Ok(stored)
}

fn headers(bundle: &mut Bundle, now: Timestamp, winners: &[Winner<'_>]) {
    let (mut steady, mut whole) = (Rows::default(), Rows::default());
    for Winner { checkpoint, stored, .. } in winners {
        let header = &checkpoint.header;
        let due = match header.due {
            _ if header.status.is_terminal() => None,
            Due::Keep => stored.due,
            Due::In(span) => Some(micros(add(now, span))),
            Due::At(time) => Some(micros(whole_micros(time))),
            Due::Never => None,
        };
        let last = checkpoint.pointers.iter().map(|pointer| pointer.sequence).max().unwrap_or(0).max(stored.last_sequence);
        let common = |row: &mut crate::rows::Row<'_>| {
            let reason = header.reason.as_deref();
            row.int(stored.n).id(&checkpoint.id).int(i64::from(header.fault_count)).int(last).opt_text(reason);
        };
        if due == stored.due && header.status == stored.status {
            steady.add(common);
        } else {
            whole.add(|row| {
                common(row);
                row.text(header.status.as_str()).opt_int(due).opt_int(header.status.is_terminal().then(|| micros(now)));
            });
        }
    }
    bundle.add(HEADERS, steady);
    bundle.add(WHOLE_HEADERS, whole);
}

/// The rows of the instances themselves.
fn children(bundle: &mut Bundle, winners: &[Winner<'_>]) -> Result<(), sqlx::Error> {
    let mut data = Rows::default();
    let mut pointers = Rows::default();
    let mut attributes = Rows::default();
    let mut errors = Rows::default();
    for Winner { checkpoint, stored, .. } in winners {
        let n = stored.n;
        if let Some(encoded) = &checkpoint.data {
            data.add(|row| {
                row.int(n).text(encoded.as_str());
            });
        }
        for pointer in &checkpoint.pointers {
            let record = stored::pointer_to_json(pointer).map_err(unwritable)?;
            pointers.add(|row| {
                row.int(n)
                    .int(pointer.sequence)
                    .int(i64::from(pointer.status.is_open()))
                    .opt_id(pointer.scope.as_ref())
                    .text(&record)
                    .opt_text(pointer.state.as_ref().map(Encoded::as_str));
            });
        }
        create::add_attributes(&mut attributes, n, &checkpoint.attributes);
        for error in &checkpoint.errors {
            errors.add(|row| {
                row.int(n)
                    .id(&error.pointer)
                    .text(&error.step)
                    .int(i64::from(error.attempt))
                    .int(micros(error.time))
                    .text(cut(&error.message, ERROR_TEXT_BYTES));
            });
        }
    }
    bundle.add(create::DATA, data);
    bundle.add(POINTERS, pointers);
    bundle.add(create::ATTRIBUTES, attributes);
    bundle.add(ERRORS, errors);
    Ok(())
}

async fn trim_errors(connection: &mut SqliteConnection, sql: &Sql, winners: &[Winner<'_>]) -> Result<(), sqlx::Error> {
    let mut grown = Rows::default();
    for winner in winners.iter().filter(|winner| !winner.checkpoint.errors.is_empty()) {
        grown.add(|row| {
            row.int(winner.stored.n);
        });
    }
    grown.execute(connection, sql, TRIM_ERRORS, i64::try_from(ERRORS_PER_INSTANCE).unwrap_or(i64::MAX)).await
}

/// Waits, activities, events, and what concerns other instances. Gives by place whom each checkpoint wakes.
async fn reach_out(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    winners: &[Winner<'_>],
) -> Result<HashMap<usize, Vec<WorkItem>>, sqlx::Error> {
    let (slots, freed) = waits(connection, sql, now, winners).await?;
    activities(connection, sql, now, winners).await?;

    let mut wake: HashMap<usize, Vec<WorkItem>> = HashMap::new();
    let all = |winner: &Winner<'_>, count: usize| std::iter::repeat_n(winner.at, count);
    let offspring: Vec<&NewInstance> = winners.iter().flat_map(|winner| &winner.checkpoint.children).collect();
    if !offspring.is_empty() {
        let parents = winners.iter().flat_map(|winner| all(winner, winner.checkpoint.children.len()));
        let created = create(connection, sql, now, &offspring).await?;
        for ((at, child), created) in parents.zip(&offspring).zip(created) {
            if created.new {
                wake.entry(at).or_default().push(child.work_item());
            }
        }
    }
    let events: Vec<&NewEvent> = winners.iter().flat_map(|winner| &winner.checkpoint.events).collect();
    let numbers = event::insert(connection, sql, now, events.iter().copied()).await?;
    matching::run(connection, sql, micros(now), &slots, &freed, &numbers).await?;
    if !events.is_empty() {
        let publishers = winners.iter().flat_map(|winner| all(winner, winner.checkpoint.events.len()));
        for (at, items) in publishers.zip(event::wake(connection, sql, now, &events).await?) {
            wake.entry(at).or_default().extend(items);
        }
    }
    let messages: Vec<_> =
        winners.iter().flat_map(|winner| &winner.checkpoint.messages).map(|(to, control)| (to, control)).collect();
    if !messages.is_empty() {
        let senders = winners.iter().flat_map(|winner| all(winner, winner.checkpoint.messages.len()));
        for (at, answer) in senders.zip(inbox::append(connection, sql, now, &messages).await?) {
            if let AppendOutcome::Appended(item) = answer {
                wake.entry(at).or_default().push(item);
            }
        }
    }
    for winner in winners {
        if let Some(items) = wake.get_mut(&winner.at) {
            let mut seen = BTreeSet::from([winner.checkpoint.instance.clone()]);
            items.retain(|item| seen.insert(item.instance.clone()));
        }
    }
    Ok(wake)
}

/// Gives the slots in which a wait is new or lost its row, and those that got an event back.
async fn waits(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    winners: &[Winner<'_>],
) -> Result<(BTreeSet<Slot>, BTreeSet<Slot>), sqlx::Error> {
    let (mut applied, mut consumed) = (Rows::default(), Rows::default());
    let (mut unmatched, mut over, mut new, mut ended) = (Rows::default(), Rows::default(), Rows::default(), Rows::default());
    let mut slots = BTreeSet::new();
    for Winner { checkpoint, stored, .. } in winners {
        let n = stored.n;
        if checkpoint.header.status.is_terminal() {
            ended.add(|row| {
                row.int(n);
            });
            continue;
        }
        for id in &checkpoint.applied {
            applied.add(|row| {
                row.int(id.0).int(n);
            });
        }
        for event in &checkpoint.consumed {
            consumed.add(|row| {
                row.int(n).text(&event.slot).id(&event.event);
            });
        }
        for wait in &checkpoint.ended_subscriptions {
            for rows in [&mut unmatched, &mut over] {
                rows.add(|row| {
                    row.int(n).id(wait);
                });
            }
        }
        for wait in &checkpoint.subscriptions {
            slots.insert((n, wait.slot.to_string()));
            new.add(|row| {
                row.int(n)
                    .id(&wait.id)
                    .id(&wait.pointer)
                    .text(&wait.name)
                    .text(&wait.key)
                    .text(&wait.slot)
                    .int(micros(wait.as_of))
                    .int(wait.sequence);
            });
        }
    }
    let now = micros(now);
    if !ended.is_empty() {
        let batches = ended.into_batches();
        for statement in END {
            for batch in &batches {
                sqlx::query(sql.get(statement)).bind(batch).execute(&mut *connection).await?;
            }
        }
    }
    // A wait whose row is taken out and which stays open looks for an event again.
    let bare: Vec<(i64, Option<String>)> = applied.fetch(connection, sql, APPLIED, now).await?;
    slots.extend(bare.into_iter().filter_map(|(n, slot)| Some((n, slot?))));
    consumed.execute(connection, sql, CONSUMED, now).await?;
    let freed: Vec<(i64, Option<String>)> = unmatched.fetch(connection, sql, UNMATCH, now).await?;
    let freed = freed.into_iter().filter_map(|(n, slot)| Some((n, slot?))).collect();
    over.execute(connection, sql, END_WAITS, now).await?;
    new.execute(connection, sql, WAITS, now).await?;
    Ok((slots, freed))
}

async fn activities(
    connection: &mut SqliteConnection,
    sql: &Sql,
    now: Timestamp,
    winners: &[Winner<'_>],
) -> Result<(), sqlx::Error> {
    let (mut over, mut new) = (Rows::default(), Rows::default());
    for Winner { checkpoint, stored, .. } in winners.iter().filter(|winner| !winner.checkpoint.header.status.is_terminal()) {
        for activity in &checkpoint.ended_activities {
            over.add(|row| {
                row.int(stored.n).id(activity);
            });
        }
        for activity in &checkpoint.activities {
            new.add(|row| {
                row.int(stored.n)
                    .id(&activity.id)
                    .id(&activity.pointer)
                    .text(&activity.name)
                    .opt_text(activity.parameters.as_ref().map(Encoded::as_str));
            });
        }
    }
    over.execute(connection, sql, END_ACTIVITIES, micros(now)).await?;
    new.execute(connection, sql, ACTIVITIES, micros(now)).await
}
