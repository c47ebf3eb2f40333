use crate::{
    SqliteQueueOptions,
    error::{PROVIDER, failed, stopped},
    lanes::{Claim, Claims, Enqueues, Leases, Renewals, Settlements},
    schema,
    table::Table,
};
use latchwork_core::{
    BoxError, Scope, async_trait, limits,
    options::ProviderContext,
    queue::{
        Delivery, QueueCapabilities, QueueDepth, QueueError, QueueKind, QueueProvider, Redelivery, WorkItem,
        leased::{self, Hand, Leasing},
    },
};
use latchwork_sqlite_client::{Lane, SqliteClient, SqliteError, sqlx};
use std::{
    fmt,
    path::PathBuf,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

const NEXT_DUE: &str = include_str!("statements/next_due.sql");
const DEPTH: &str = include_str!("statements/depth.sql");

/// A queue of hints in a table of a SQLite file, for all processes of a machine that open the file.
///
/// Each value is a consumer of its own, with its own leases: one per host. Dropping it without
/// [`stop`](QueueProvider::stop) leaves its deliveries in hand until they are settled.
pub struct SqliteQueue {
    client: SqliteClient,
    options: SqliteQueueOptions,
    table: Table,
    enqueues: Lane<Enqueues>,
    claims: Lane<Claims>,
    hand: Arc<Hand>,
    /// Rung when hints of this process begin to wait.
    bell: Arc<Notify>,
    /// The last claim took all that it asked for, so that there is probably more.
    backlog: AtomicBool,
    stopped: CancellationToken,
    /// The dequeues that are under way.
    dequeues: TaskTracker,
}

impl fmt::Debug for SqliteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteQueue")
            .field("file", &self.client.path())
            .field("namespace", &self.table.namespace.as_str())
            .field("owner", &self.table.owner)
            .field("lease", &self.options.lease)
            .field("stopped", &self.stopped.is_cancelled())
            .finish_non_exhaustive()
    }
}

impl SqliteQueue {
    /// Opens the queue in the file at `path`, with the default options.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub async fn open(path: impl Into<PathBuf>, context: &ProviderContext) -> Result<Self, BoxError> {
        Self::open_with(SqliteQueueOptions::new(path), context).await
    }

    /// Opens the queue, and makes or checks its table as the context says. All that one process opens on one file shares one
    /// writer.
    ///
    /// # Errors
    /// [`InvalidSetting`](latchwork_core::options::InvalidSetting) for options that cannot work; a [`QueueError`] when the
    /// file cannot be opened, or its schema is not the one this program needs.
    pub async fn open_with(options: SqliteQueueOptions, context: &ProviderContext) -> Result<Self, BoxError> {
        options.validate()?;
        let opening = |error: SqliteError| failed("open its file", error);
        let client = SqliteClient::open(options.file.clone()).await.map_err(opening)?;
        client.migrate(&schema::migrations(), schema::mode(context.schema)).await.map_err(opening)?;

        let owner: Arc<str> = format!("{}/{}", context.node, Uuid::now_v7().simple()).into();
        let table = Table::new(context.namespace.clone(), owner, context.clock.clone(), options.lease);
        let bell = leased::bell(&format!("sqlite:{}:{}", context.namespace.as_str(), client.path().display()));
        let leases =
            Leases { settlements: client.lane(Settlements(table.clone())), renewals: client.lane(Renewals(table.clone())) };
        let leasing = Leasing::new(table.owner.clone(), table.clock.clone(), table.lease);
        let hand = Hand::start(leases, leasing, bell.clone());
        Ok(Self {
            enqueues: client.lane(Enqueues(table.clone())),
            claims: client.lane(Claims::new(table.clone(), hand.giver_back())),
            client,
            options,
            table,
            hand,
            bell,
            backlog: AtomicBool::new(false),
            stopped: CancellationToken::new(),
            dequeues: TaskTracker::new(),
        })
    }

    fn check_open(&self) -> Result<(), QueueError> {
        if self.stopped.is_cancelled() { Err(stopped()) } else { Ok(()) }
    }

    /// When the next hint may be taken. Reads, and takes no lock.
    async fn next_due(&self, queue: QueueKind) -> Result<Option<i64>, QueueError> {
        let looking = |error| failed("look for hints", error);
        let mut reader = self.client.reader().await.map_err(looking)?;
        sqlx::query_scalar(NEXT_DUE)
            .bind(self.table.namespace.as_str())
            .bind(queue.as_str())
            .fetch_optional(&mut *reader)
            .await
            .map_err(|error| looking(self.client.error(error)))
    }

    async fn claim(&self, queue: QueueKind, max: usize) -> Result<Vec<Delivery>, QueueError> {
        let claimed = self.claims.submit(Claim { queue, max }).await;
        let claimed = claimed.map_err(|error| failed(format!("take up to {max} hints"), error))?;
        // What was claimed for a stopped queue is given back by being dropped.
        self.check_open()?;
        self.backlog.store(claimed.len() == max, Ordering::Relaxed);
        Ok(claimed.into_deliveries(&self.hand))
    }
}

#[async_trait]
impl QueueProvider for SqliteQueue {
    fn capabilities(&self) -> QueueCapabilities {
        let domain = format!("sqlite:{}", self.client.path().display());
        let redelivery = Redelivery::Lease(self.options.lease);
        QueueCapabilities::new(Scope::Host, redelivery, domain).with_native_delay().with_durability()
    }

    async fn enqueue(&self, queue: QueueKind, items: &[WorkItem]) -> Result<(), QueueError> {
        self.check_open()?;
        // A transaction of each part, so that a large batch does not keep the writer from others.
        for part in items.chunks(limits::STATEMENT_ROWS) {
            let added = self.enqueues.submit((queue, part.to_vec())).await;
            added.map_err(|error| failed(format!("enqueue {} hints", items.len()), error))?;
            self.bell.notify_waiters();
        }
        Ok(())
    }

    async fn dequeue(&self, queue: QueueKind, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let _under_way = self.dequeues.token();
        self.check_open()?;
        let max = max.min(limits::STATEMENT_ROWS);
        if max == 0 {
            return Ok(Vec::new());
        }
        // A consumer waits in real time, also under a virtual clock, which would otherwise have to stop at each pause.
        let mut end = pin!(tokio::time::sleep(wait));
        let mut pause = self.options.shortest_wait;
        loop {
            let mut rung = pin!(self.bell.notified());
            // From here on a ring is not missed, so that what arrives after the look is seen.
            rung.as_mut().enable();
            let due = if self.backlog.swap(false, Ordering::Relaxed) { Some(0) } else { self.next_due(queue).await? };
            let until_due = due.map(|due| Duration::from_micros(u64::try_from(due - self.table.now()).unwrap_or(0)));
            if until_due.is_some_and(|left| left.is_zero()) {
                let taken = self.claim(queue, max).await?;
                if !taken.is_empty() {
                    return Ok(taken);
                }
            }
            let look = Instant::now() + until_due.filter(|left| !left.is_zero()).map_or(pause, |left| left.min(pause));
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => return Err(stopped()),
                () = rung => pause = self.options.shortest_wait,
                () = &mut end => return Ok(Vec::new()),
                () = tokio::time::sleep_until(look) => pause = (pause * 2).min(self.options.longest_wait),
            }
        }
    }

    async fn depth(&self, queue: QueueKind) -> Result<QueueDepth, QueueError> {
        self.check_open()?;
        let counting = |error| failed("count its hints", error);
        let mut reader = self.client.reader().await.map_err(counting)?;
        let now = self.table.now();
        let (waiting, in_hand, oldest): (i64, i64, Option<i64>) = sqlx::query_as(DEPTH)
            .bind(self.table.namespace.as_str())
            .bind(queue.as_str())
            .bind(now)
            .fetch_one(&mut *reader)
            .await
            .map_err(|error| counting(self.client.error(error)))?;
        let count = |rows: i64| u64::try_from(rows).unwrap_or(0);
        let oldest = oldest.map(|due| Duration::from_micros(count(now.saturating_sub(due))));
        Ok(QueueDepth::new(count(waiting), count(in_hand), oldest))
    }

    async fn stop(&self, grace: Duration) -> Result<(), QueueError> {
        self.stopped.cancel();
        self.dequeues.close();
        let end = Instant::now() + grace;
        // A claim under way may still be granted, and is then given back.
        let claimed = tokio::time::timeout_at(end, self.dequeues.wait()).await;
        let written = tokio::time::timeout_at(end, self.hand.close()).await;
        match (claimed, written) {
            (Ok(()), Ok(result)) => result,
            _ => Err(QueueError::unavailable(
                PROVIDER,
                "give back what it had in hand",
                format!("the file was busy for the whole grace of {grace:?}; the hints come again when their leases end"),
            )),
        }
    }
}
