//! One node's view of the table: its statements, and the sessions that they go through.

use crate::error::{PROVIDER, failed};
use latchwork_core::{
    clock::{Clock, SystemClock},
    limits,
    queue::{
        QueueDepth, QueueError, QueueKind, WorkItem,
        leased::{Claimed, ClaimedHint, GiveBack, Held, LeaseTable, Positions, Settled},
    },
};
use latchwork_sqlserver_client::{
    SchemaName, Session, SqlServerError, SqlServerPool,
    driver::{FromSql, Row, ToSql},
};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

pub(crate) const ENQUEUE: &str = include_str!("statements/enqueue.sql");
pub(crate) const CLAIM: &str = include_str!("statements/claim.sql");
pub(crate) const ACKNOWLEDGE: &str = include_str!("statements/acknowledge.sql");
pub(crate) const SETTLE: &str = include_str!("statements/settle.sql");
pub(crate) const RENEW: &str = include_str!("statements/renew.sql");
pub(crate) const DEPTH: &str = include_str!("statements/depth.sql");

/// A row of that key was added by another connection in the middle of an enqueue.
const DUPLICATE_KEY: [u32; 2] = [2601, 2627];
/// How often an enqueue is said again for that: each time another connection must have added one of its hints.
const TRIES: usize = 20;

/// A statement's parameters, which it shares with those who try it again.
type Parameters = Arc<[Box<dyn ToSql + Send + Sync>]>;
/// The rows of each result.
type Answer = Vec<Vec<Row>>;

/// The statements, for the schema of the namespace.
#[derive(Clone, Debug)]
struct Statements {
    enqueue: Arc<str>,
    claim: Arc<str>,
    acknowledge: Arc<str>,
    settle: Arc<str>,
    renew: Arc<str>,
    depth: Arc<str>,
}

/// One node's view of the table.
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) pool: SqlServerPool,
    /// Marks the rows that this queue has in hand; no other queue has the same.
    pub(crate) owner: Arc<str>,
    /// Counts the pauses between renewals, in real time: the server decides which leases are valid, by its own clock.
    pub(crate) clock: Arc<dyn Clock>,
    lease: i64,
    statements: Statements,
    /// Numbers the claims. One that is tried again is another one.
    claims: Arc<AtomicI64>,
    positions: Arc<Positions>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("pool", &self.pool).field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// What a look at the queue found.
pub(crate) struct Found {
    pub(crate) claimed: Claimed,
    /// How long until the next hint is due; zero when one was due and went to somebody else. `None` also when there were as many as
    /// were asked for.
    pub(crate) next: Option<Duration>,
}

impl Table {
    pub(crate) fn new(pool: SqlServerPool, schema: &SchemaName, owner: Arc<str>, lease: Duration) -> Self {
        let here = |sql| Arc::from(schema.apply(sql));
        let statements = Statements {
            enqueue: here(ENQUEUE),
            claim: here(CLAIM),
            acknowledge: here(ACKNOWLEDGE),
            settle: here(SETTLE),
            renew: here(RENEW),
            depth: here(DEPTH),
        };
        Self {
            pool,
            owner,
            clock: Arc::new(SystemClock::new()),
            lease: micros(lease),
            statements,
            claims: Arc::default(),
            positions: Arc::default(),
        }
    }

    /// The rows of an enqueue: at most as many as a statement may write, and one for all hints of an instance.
    pub(crate) fn rows<'a>(&self, hints: impl Iterator<Item = (QueueKind, &'a WorkItem)>) -> String {
        let now = self.clock.now().timestamp_micros();
        let mut seen = HashSet::new();
        let hints = hints.filter(|(queue, item)| seen.insert((*queue, &item.instance)));
        text(hints.map(|(queue, item)| {
            json!([queue.as_str(), item.instance.as_str(), &*item.definition, item.version, self.positions.next(now)])
        }))
    }

    /// Adds hints.
    pub(crate) async fn enqueue(&self, rows: String) -> Result<(), SqlServerError> {
        let parameters: Parameters = Arc::new([Box::new(rows), Box::new(self.lease)]);
        let mut tries = 1;
        loop {
            match self.retried(&self.statements.enqueue, &parameters).await {
                Err(error) if error.number().is_some_and(|number| DUPLICATE_KEY.contains(&number)) && tries < TRIES => tries += 1,
                result => return result.map(drop),
            }
        }
    }

    /// Takes up to `max` hints, and says when the next is due.
    pub(crate) async fn claim(&self, queue: QueueKind, max: usize, back: &GiveBack) -> Result<Found, SqlServerError> {
        let result = self.claim_once(queue, max, back).await;
        match result {
            // A session that had been closed, or a deadlock; what the first try may have taken comes again when its lease ends.
            Err(error) if error.is_transient() => self.claim_once(queue, max, back).await,
            result => result,
        }
    }

    async fn claim_once(&self, queue: QueueKind, max: usize, back: &GiveBack) -> Result<Found, SqlServerError> {
        let claim = self.claims.fetch_add(1, Ordering::Relaxed) + 1;
        let since = self.clock.monotonic();
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let parameters: Parameters = Arc::new([
            Box::new(queue.as_str()),
            Box::new(max),
            Box::new(self.lease),
            Box::new(self.owner.to_string()),
            Box::new(claim),
        ]);
        let results = self.once(&self.statements.claim, &parameters).await?;
        let mut hints = Vec::new();
        let mut next = None;
        for row in results.iter().flatten() {
            if row.columns().len() == 1 {
                next = row.try_get::<i64, _>(0).map_err(unreadable)?;
            } else {
                hints.push(hint(row)?);
            }
        }
        let next = next.map(|left| Duration::from_micros(u64::try_from(left).unwrap_or(0)));
        Ok(Found { claimed: Claimed::new(queue, claim, since, hints, back.clone()), next })
    }

    pub(crate) async fn depth(&self, queue: QueueKind) -> Result<QueueDepth, SqlServerError> {
        let parameters: Parameters = Arc::new([Box::new(queue.as_str())]);
        let results = self.retried(&self.statements.depth, &parameters).await?;
        let row = results.iter().flatten().next().ok_or_else(|| SqlServerError::protocol("the depth has no row"))?;
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let (hints, in_hand) = (count(get(row, "hints")?), count(get(row, "in_hand")?));
        let oldest: Option<i64> = row.try_get("oldest").map_err(unreadable)?;
        Ok(QueueDepth::new(hints.saturating_sub(in_hand), in_hand, oldest.map(|age| Duration::from_micros(count(age)))))
    }

    /// Asks once.
    async fn once(&self, sql: &Arc<str>, parameters: &Parameters) -> Result<Answer, SqlServerError> {
        self.pool.run(self.request(sql, parameters)).await
    }

    /// Asks, and again after errors that are worth it: what may be done twice.
    async fn retried(&self, sql: &Arc<str>, parameters: &Parameters) -> Result<Answer, SqlServerError> {
        self.pool.retry(self.request(sql, parameters)).await
    }

    fn request(
        &self,
        sql: &Arc<str>,
        parameters: &Parameters,
    ) -> impl for<'a> Fn(&'a mut Session) -> Pin<Box<dyn Future<Output = Result<Answer, SqlServerError>> + Send + 'a>>
    + Clone
    + Send
    + 'static {
        let (sql, parameters, limit) = (sql.clone(), parameters.clone(), self.pool.options().request_timeout);
        move |session| {
            let (sql, parameters) = (sql.clone(), parameters.clone());
            Box::pin(async move {
                let parameters: Vec<&dyn ToSql> = parameters.iter().map(|value| &**value as &dyn ToSql).collect();
                session.query(&sql, &parameters, limit).await
            })
        }
    }
}

impl LeaseTable for Table {
    type Error = SqlServerError;

    const PROVIDER: &'static str = PROVIDER;

    async fn settle(&self, settled: Vec<Settled>) -> Result<bool, SqlServerError> {
        let now = self.clock.now().timestamp_micros();
        let mut released = false;
        for part in settled.chunks(limits::STATEMENT_ROWS) {
            let rows = part.iter().map(|settled| {
                let (outcome, delay) = settled.code();
                // So that the sum in the statement is none beyond what a number can be.
                let delay = micros(delay).min(i64::MAX / 4);
                json!([
                    settled.queue.as_str(),
                    settled.instance.as_str(),
                    settled.claim,
                    outcome,
                    delay,
                    self.positions.next(now)
                ])
            });
            let parameters: Parameters = Arc::new([Box::new(text(rows)), Box::new(self.owner.to_string())]);
            // The usual case has a text of its own, which is a third as long.
            if part.iter().all(|settled| settled.code().0 == 0) {
                let results = self.retried(&self.statements.acknowledge, &parameters).await?;
                let row =
                    results.iter().flatten().next().ok_or_else(|| SqlServerError::protocol("an acknowledgement has no row"))?;
                if usize::try_from(get::<i32>(row, "removed")?) == Ok(part.len()) {
                    continue;
                }
            }
            let results = self.retried(&self.statements.settle, &parameters).await?;
            let row = results.iter().flatten().next().ok_or_else(|| SqlServerError::protocol("a settlement has no row"))?;
            released |= get::<i32>(row, "released")? > 0;
        }
        Ok(released)
    }

    async fn renew(&self, held: Vec<Held>) -> Result<HashSet<u64>, SqlServerError> {
        let mut kept = HashSet::new();
        for part in held.chunks(limits::STATEMENT_ROWS) {
            let rows = part.iter().map(|held| json!([held.queue.as_str(), held.instance.as_str(), held.claim, held.key]));
            let parameters: Parameters = Arc::new([Box::new(text(rows)), Box::new(self.lease), Box::new(self.owner.to_string())]);
            let results = self.retried(&self.statements.renew, &parameters).await?;
            for row in results.iter().flatten() {
                kept.insert(u64::try_from(get::<i64>(row, "key")?).map_err(unreadable)?);
            }
        }
        Ok(kept)
    }

    fn failed(action: String, error: SqlServerError) -> QueueError {
        failed(action, error)
    }
}

fn hint(row: &Row) -> Result<ClaimedHint, SqlServerError> {
    let instance = get::<&str>(row, "instance")?.parse().map_err(unreadable)?;
    let version = u32::try_from(get::<i64>(row, "version")?).map_err(unreadable)?;
    let failures = u32::try_from(get::<i64>(row, "failures")?).unwrap_or(u32::MAX);
    let item = WorkItem::new(instance, get::<&str>(row, "definition")?, version);
    Ok(ClaimedHint::new(item, failures, get(row, "position")?))
}

fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &'static str) -> Result<T, SqlServerError> {
    row.try_get(column).map_err(unreadable)?.ok_or_else(|| SqlServerError::protocol(format!("there is no `{column}`")))
}

/// What cannot be made sense of in the queue's own table.
fn unreadable(error: impl fmt::Display) -> SqlServerError {
    SqlServerError::protocol(format!("a row of the queue cannot be read: {error}"))
}

/// The rows of a statement.
fn text(rows: impl Iterator<Item = Value>) -> String {
    Value::from_iter(rows).to_string()
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork_testkit::sqlserver::grammar::{self, Exception};

    #[test]
    fn all_that_is_sent_is_transact_sql() {
        let statements = [
            ("enqueue", ENQUEUE),
            ("claim", CLAIM),
            ("acknowledge", ACKNOWLEDGE),
            ("settle", SETTLE),
            ("renew", RENEW),
            ("depth", DEPTH),
        ];
        let script = crate::migrations(&latchwork_core::name::Namespace::default()).script(0);
        let scripted = script.split("\nGO\n").filter(|batch| !batch.trim().is_empty()).map(|batch| ("script", batch));
        let exceptions =
            [Exception::new("OPTION (LOOP JOIN, FORCE ORDER)", "", "the parser knows hints of a query for SELECT only")];
        assert_eq!(grammar::check(statements.into_iter().chain(scripted), &exceptions), Ok(()));
    }
}
