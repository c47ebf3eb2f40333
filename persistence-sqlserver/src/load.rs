//! Reading one instance.

use crate::{
    error::Failure,
    record::{self, Inboxes, attribute, header, header_columns},
    sql::{Columns, Request, batch},
};
use latchwork_core::{
    limits::TOMBSTONE_RESULT_BYTES,
    store::{
        Activity, CheckpointId, Encoded, ErrorRecord, Fence, InstanceId, InstanceRecord, LoadedInstance, Page, PointerId,
        PointerRecord, Revision, Subscription, Tombstone,
    },
};
use std::collections::BTreeMap;

/// The open parts of instances, with what is visible of their inboxes.
pub(crate) const LOAD: &str = batch!("begin" "load");

/// The finished pointers of a scope. By `latchwork_pointer_scope`.
pub(crate) const SCOPE: &str = "
SELECT p.[sequence], p.[record], p.[scope], p.[state]
FROM [latchwork].[pointer] AS p
WHERE p.[instance] = CAST(@P1 AS char(36)) AND p.[scope] = CAST(@P2 AS char(32)) AND p.[open] = 0
ORDER BY p.[sequence];";

/// A page of pointers. By the primary key.
pub(crate) const HISTORY: &str = "
SELECT TOP (@P3) p.[sequence], p.[record], p.[scope], p.[state]
FROM [latchwork].[pointer] AS p
WHERE p.[instance] = CAST(@P1 AS char(36)) AND p.[sequence] > @P2
ORDER BY p.[sequence];";

/// Waits for a commit that is under way, which the outcome of is asked for. By the primary key.
pub(crate) const FENCE: &str = "SELECT i.[revision], i.[writer] FROM [latchwork].[instance] AS i WITH (READCOMMITTEDLOCK) WHERE i.[id] = CAST(@P1 AS char(36));";

/// An instance with its data and its attributes, or what is left of it. First the instance, then the tombstone: a purge that comes
/// between them has left one. By the primary keys.
pub(crate) const GET: &str = concat!(
    "SELECT 0 AS [kind], ",
    header_columns!(),
    ", d.[data]
FROM [latchwork].[instance] AS i
INNER JOIN [latchwork].[data] AS d ON d.[instance] = i.[id]
WHERE i.[id] = CAST(@P1 AS char(36));
SELECT 1 AS [kind], a.[name], a.[text], a.[number], a.[time]
FROM [latchwork].[attribute] AS a
WHERE a.[instance] = CAST(@P1 AS char(36))
ORDER BY a.[name];
SELECT 2 AS [kind], t.[definition], t.[business_key], t.[status], t.[ended], t.[result]
FROM [latchwork].[tombstone] AS t
WHERE t.[id] = CAST(@P1 AS char(36));"
);

/// Who has, or had, a business key. By the primary key.
pub(crate) const BY_KEY: &str =
    "SELECT b.[instance] FROM [latchwork].[business_key] AS b WHERE b.[definition] = @P1 AND b.[business_key] = @P2;";

/// By the primary key.
pub(crate) const ERRORS: &str = "
SELECT e.[pointer], e.[step], e.[attempt], e.[time], e.[message]
FROM [latchwork].[error] AS e
WHERE e.[instance] = CAST(@P1 AS char(36))
ORDER BY e.[id];";

pub(crate) fn load(instances: &[&InstanceId]) -> Result<Request, Failure> {
    let rows: Vec<(usize, &InstanceId)> = instances.iter().copied().enumerate().collect();
    Ok(Request::new(LOAD).with(serde_json::to_string(&rows)?))
}

/// What was read of an instance, and the revision after that.
pub(crate) type Loaded = (Option<LoadedInstance>, Option<Revision>);

/// What was read of each of so many instances. The revision at the end tells whether it is of one moment.
pub(crate) fn loaded(count: usize, rows: Vec<Columns>) -> Result<Vec<Loaded>, Failure> {
    let mut found: BTreeMap<usize, LoadedInstance> = BTreeMap::new();
    let mut activities: BTreeMap<usize, Vec<(i64, Activity)>> = BTreeMap::new();
    let mut inboxes = Inboxes::default();
    let mut revisions = BTreeMap::new();
    for mut columns in rows {
        let kind = columns.int()?;
        if kind == 4 {
            inboxes.add(&mut columns)?;
            continue;
        }
        let k = columns.number::<usize>()?;
        match (kind, found.get_mut(&k)) {
            (0, _) => {
                found.insert(k, whole(&mut columns)?);
            }
            (1, Some(instance)) => instance.pointers.push(record::pointer(&mut columns)?),
            (2, Some(instance)) => instance.subscriptions.push(subscription(&mut columns)?),
            (3, Some(_)) => {
                let number = columns.int()?;
                let (id, pointer) = (columns.parsed("activity id")?, columns.parsed("pointer id")?);
                let activity = Activity::new(id, pointer, columns.text()?, columns.encoded()?);
                activities.entry(k).or_default().push((number, activity));
            }
            (5, _) => {
                revisions.insert(k, Revision(columns.int()?));
            }
            // Came between two statements; the revisions tell.
            _ => {}
        }
    }
    let finish = |k| {
        let mut instance = found.remove(&k);
        if let Some(instance) = &mut instance {
            instance.pointers.sort_unstable_by_key(|pointer| pointer.sequence);
            instance.subscriptions.sort_unstable_by_key(|subscription| subscription.sequence);
            let mut open = activities.remove(&k).unwrap_or_default();
            open.sort_unstable_by_key(|(number, _)| *number);
            instance.activities = open.into_iter().map(|(_, activity)| activity).collect();
            instance.inbox = inboxes.take(k);
        }
        (instance, revisions.remove(&k))
    };
    Ok((0..count).map(finish).collect())
}

fn whole(columns: &mut Columns) -> Result<LoadedInstance, Failure> {
    let header = header(columns)?;
    let (last_sequence, data, now) = (columns.int()?, columns.text()?, columns.time()?);
    Ok(LoadedInstance {
        header,
        data: Encoded::from_json(data),
        pointers: Vec::new(),
        last_sequence,
        subscriptions: Vec::new(),
        activities: Vec::new(),
        inbox: Vec::new(),
        now,
    })
}

fn subscription(columns: &mut Columns) -> Result<Subscription, Failure> {
    let (id, pointer) = (columns.parsed("wait id")?, columns.parsed("pointer id")?);
    let (name, key, slot) = (columns.text()?, columns.text()?, columns.text()?);
    Ok(Subscription::new(id, pointer, name, key, slot, columns.time()?, columns.int()?))
}

pub(crate) fn scope(instance: &InstanceId, scope: PointerId) -> Request {
    Request::new(SCOPE).with(instance.as_str()).with(scope.to_string())
}

pub(crate) fn history(instance: &InstanceId, after: i64, limit: usize) -> Request {
    let one_more = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    Request::new(HISTORY).with(instance.as_str()).with(after).with(one_more)
}

pub(crate) fn pointers(rows: Vec<Columns>) -> Result<Vec<PointerRecord>, Failure> {
    rows.into_iter().map(|mut columns| record::pointer(&mut columns)).collect()
}

pub(crate) fn page(limit: usize, rows: Vec<Columns>) -> Result<Page<PointerRecord>, Failure> {
    let mut items = pointers(rows)?;
    let more = items.len() > limit;
    items.truncate(limit);
    Ok(Page { items, more })
}

pub(crate) fn fence_of(instance: &InstanceId) -> Request {
    Request::new(FENCE).with(instance.as_str())
}

pub(crate) fn fence(rows: Vec<Columns>) -> Result<Option<Fence>, Failure> {
    let Some(mut columns) = rows.into_iter().next() else { return Ok(None) };
    let (revision, writer) = (Revision(columns.int()?), columns.opt_parsed::<CheckpointId>("checkpoint id")?);
    Ok(Some(Fence { revision, writer }))
}

pub(crate) fn record(instance: &InstanceId, rows: Vec<Columns>) -> Result<Option<InstanceRecord>, Failure> {
    let (mut found, mut attributes, mut tombstone) = (None, Vec::new(), None);
    for mut columns in rows {
        match columns.int()? {
            0 => found = Some((header(&mut columns)?, Encoded::from_json(columns.text()?))),
            1 => attributes.push(attribute(&mut columns)?),
            _ => {
                let (definition, business_key) = (columns.shared_text()?, columns.opt_text()?);
                let (status, ended) = (record::status(&mut columns)?, columns.time()?);
                // The server counts in units of UTF-16.
                let result = columns.opt_text()?.filter(|result| result.len() <= TOMBSTONE_RESULT_BYTES);
                let result = result.map(Encoded::from_json);
                tombstone = Some(Tombstone { id: instance.clone(), definition, business_key, status, ended, result });
            }
        }
    }
    let instance = found.map(|(header, data)| InstanceRecord::Instance { header, data, attributes });
    Ok(instance.or(tombstone.map(InstanceRecord::Deleted)))
}

pub(crate) fn errors(instance: &InstanceId, rows: Vec<Columns>) -> Result<Vec<ErrorRecord>, Failure> {
    let error = |mut columns: Columns| {
        Ok(ErrorRecord {
            instance: instance.clone(),
            pointer: columns.parsed("pointer id")?,
            step: columns.shared_text()?,
            attempt: columns.number()?,
            time: columns.time()?,
            message: columns.text()?,
        })
    };
    rows.into_iter().map(error).collect()
}
