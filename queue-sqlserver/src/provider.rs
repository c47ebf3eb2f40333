use crate::{
    SqlServerQueueOptions,
    error::{PROVIDER, failed, stopped},
    lanes::{self, Ask, Enqueue, Looking},
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
use latchwork_sqlserver_client::{ConnectionString, SqlServerError, SqlServerPool};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

/// One each for adding, looking, settling and renewing, and one for what is asked now and then.
const SESSIONS: usize = 5;
/// What is kept of a node's name in the table, in bytes.
const NODE_BYTES: usize = 60;
/// A wait beyond what the clock can count.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// A queue of hints in a table of a SQL Server database, for all processes that reach it.
///
/// Each value is a consumer of its own, with its own leases: one per host. Dropping it without
/// [`stop`](QueueProvider::stop) leaves its deliveries in hand until they are settled.
pub struct SqlServerQueue {
    table: Table,
    lease: Duration,
    domain: String,
    enqueues: mpsc::UnboundedSender<Enqueue>,
    asks: mpsc::UnboundedSender<Ask>,
    hand: Arc<Hand>,
    stopped: CancellationToken,
    /// The dequeues that are under way, and who looks for them.
    dequeues: TaskTracker,
}

impl fmt::Debug for SqlServerQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlServerQueue")
            .field("domain", &self.domain)
            .field("owner", &self.table.owner)
            .field("lease", &self.lease)
            .field("stopped", &self.stopped.is_cancelled())
            .finish_non_exhaustive()
    }
}

impl SqlServerQueue {
    /// Opens the queue in the database of this ADO.NET connection string, with the default options.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn connect(connection_string: impl Into<ConnectionString>, context: &ProviderContext) -> Result<Self, BoxError> {
        Self::open(SqlServerQueueOptions::new(connection_string), context).await
    }

    /// Opens the queue, and makes or checks its table as the context says.
    ///
    /// # Errors
    /// [`InvalidSetting`](latchwork_core::options::InvalidSetting) for options that cannot work; a [`QueueError`] when the server
    /// cannot be reached, or the schema is not the one this program needs.
    pub async fn open(options: SqlServerQueueOptions, context: &ProviderContext) -> Result<Self, BoxError> {
        options.validate()?;
        let opening = |error: SqlServerError| failed("open its table", error);
        let sessions = options.sessions(&context.node);
        let pool = SqlServerPool::new(sessions.clone(), SESSIONS).map_err(opening)?;
        let migrations = schema::migrations(&context.namespace);
        migrations.migrate(&sessions, schema::mode(context.schema)).await.map_err(opening)?;
        let domain = domain(&pool).await.map_err(opening)?;

        let owner = format!("{}/{}", limits::cut(&context.node, NODE_BYTES), Uuid::now_v7().simple());
        let schema = schema::schema(&context.namespace);
        let table = Table::new(pool, &schema, owner.into(), options.lease);
        let bell = leased::bell(&format!("{domain}/{schema}"));
        let leasing = Leasing::new(table.owner.clone(), table.clock.clone(), options.lease);
        let hand = Hand::start(table.clone(), leasing, bell.clone());
        let (enqueues, to_enqueue) = mpsc::unbounded_channel();
        let (asks, asked) = mpsc::unbounded_channel();
        let (stopped, dequeues) = (CancellationToken::new(), TaskTracker::new());
        let looking = Looking {
            table: table.clone(),
            back: hand.giver_back(),
            shortest: options.shortest_wait,
            longest: options.longest_wait,
        };
        // Both tasks end with the queue.
        tokio::spawn(lanes::enqueue(table.clone(), to_enqueue, bell.clone()));
        dequeues.spawn(lanes::look(looking, asked, bell, stopped.clone()));
        Ok(Self { table, lease: options.lease, domain, enqueues, asks, hand, stopped, dequeues })
    }

    fn check_open(&self) -> Result<(), QueueError> {
        if self.stopped.is_cancelled() { Err(stopped()) } else { Ok(()) }
    }
}

/// Names the database as all its users see it.
async fn domain(pool: &SqlServerPool) -> Result<String, SqlServerError> {
    let limit = pool.options().request_timeout;
    let ask = pool.retry(move |session| Box::pin(session.query("SELECT DB_NAME() AS [database];", &[], limit)));
    let results = ask.await?;
    let database: Option<&str> = results.iter().flatten().next().and_then(|row| row.get("database"));
    let server = pool.options().server();
    let server = server.strip_suffix(",1433").unwrap_or(&server);
    Ok(format!("{PROVIDER}:{server}/{}", database.unwrap_or_default()))
}

#[async_trait]
impl QueueProvider for SqlServerQueue {
    fn capabilities(&self) -> QueueCapabilities {
        let redelivery = Redelivery::Lease(self.lease);
        QueueCapabilities::new(Scope::Cluster, redelivery, self.domain.clone()).with_native_delay().with_durability()
    }

    async fn enqueue(&self, queue: QueueKind, items: &[WorkItem]) -> Result<(), QueueError> {
        self.check_open()?;
        for part in items.chunks(limits::STATEMENT_ROWS) {
            let (reply, answer) = oneshot::channel();
            self.enqueues.send(Enqueue { queue, items: part.to_vec(), reply }).map_err(|_| stopped())?;
            let added = answer.await.map_err(|_| stopped())?;
            added.map_err(|error| failed(format!("enqueue {} hints", items.len()), error))?;
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
        let until = Instant::now() + wait.min(FOREVER);
        let (reply, answer) = oneshot::channel();
        self.asks.send(Ask { queue, max, until, reply }).map_err(|_| stopped())?;
        let answer = tokio::select! {
            biased;
            () = self.stopped.cancelled() => return Err(stopped()),
            answer = answer => answer.map_err(|_| stopped())?,
        };
        let claimed = answer.map_err(|error| failed(format!("take up to {max} hints"), error))?;
        Ok(claimed.map_or_else(Vec::new, |claimed| claimed.into_deliveries(&self.hand)))
    }

    async fn depth(&self, queue: QueueKind) -> Result<QueueDepth, QueueError> {
        self.check_open()?;
        self.table.depth(queue).await.map_err(|error| failed("count its hints", error))
    }

    async fn stop(&self, grace: Duration) -> Result<(), QueueError> {
        self.stopped.cancel();
        self.dequeues.close();
        let end = Instant::now() + grace;
        // A claim under way may still be granted, and is then given back.
        let claimed = tokio::time::timeout_at(end, self.dequeues.wait()).await;
        let written = tokio::time::timeout_at(end, self.hand.close()).await;
        let closed = self.table.pool.close(end.saturating_duration_since(Instant::now())).await;
        match (claimed, written, closed) {
            (Ok(()), Ok(result), Ok(())) => result,
            _ => Err(QueueError::unavailable(
                PROVIDER,
                "give back what it had in hand",
                format!("the server did not answer for the whole grace of {grace:?}; the hints come again when their leases end"),
            )),
        }
    }
}
