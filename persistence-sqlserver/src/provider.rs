//! The store.

use crate::{
    SqlServerStoreOptions, activity, definition,
    error::Failure,
    inbox,
    lanes::{Appends, Checkpoints, Creates, Lane, Loads, Publishes},
    load, query, retention, schema,
    server::Server,
    sql::{Columns, Request},
    transaction::StepInSqlServer,
};
use latchwork_core::{
    Scope, async_trait,
    clock::Timestamp,
    name::Namespace,
    options::ProviderContext,
    store::{
        ActivityClaim, ActivityOutcome, ActivityToken, AppendOutcome, Checkpoint, CheckpointOutcome, ClusterIdentity, Control,
        CreateOutcome, DefineOutcome, DefinitionShape, Encoded, ErrorRecord, ExclusiveClaim, Fence, IdentityOutcome, InboxRow,
        InstanceId, InstanceQuery, InstanceRecord, InstanceSummary, LoadedInstance, NewEvent, NewInstance, Page,
        PersistenceProvider, PointerId, PointerRecord, PublishOutcome, PurgeReport, PurgeRequest, RunnablePage, RunnableQuery,
        SchemaMode, StepTransaction, StoreCapabilities, StoreClock, StoreError, StoreErrorKind, StoreStatistics, SubmitOutcome,
    },
};
use latchwork_sqlserver_client::{MigrationSet, SqlServerOptions, SqlServerPool};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// How many groups of checkpoints, and of instances to be read, are under way at a time: while the server writes one the next is made.
const WIDTH: usize = 2;

/// A store in a database of SQL Server, for any number of nodes.
pub struct SqlServerStore {
    /// For errors and capabilities.
    domain: Arc<str>,
    server: Server,
    schema: MigrationSet,
    largest_data: usize,
    /// `None` once it was stopped.
    open: Mutex<Option<Arc<Open>>>,
    tasks: TaskTracker,
}

/// What a store has while it is not stopped.
struct Open {
    checkpoints: Lane<Checkpoints>,
    loads: Lane<Loads>,
    creates: Lane<Creates>,
    publishes: Lane<Publishes>,
    appends: Lane<Appends>,
}

impl fmt::Debug for SqlServerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlServerStore")
            .field("domain", &self.domain)
            .field("schema", &self.server.schema)
            .finish_non_exhaustive()
    }
}

impl SqlServerStore {
    /// Opens the database of an ADO.NET connection string for use without a host: default namespace. Call
    /// [`prepare`](PersistenceProvider::prepare) next.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn connect(connection_string: impl Into<latchwork_sqlserver_client::ConnectionString>) -> Result<Self, StoreError> {
        let options = SqlServerStoreOptions::new(connection_string);
        Self::open(&options, &ProviderContext::new(Namespace::default(), "alone")).await
    }

    /// Opens a database as a host does: its tables are in the database schema of the context's namespace, and its first session is opened,
    /// to see that it works. Needs a Tokio runtime.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`] when the server cannot be reached now, [`StoreErrorKind::Denied`] when it refuses the log-in or the TLS
    /// handshake fails, [`StoreErrorKind::Invalid`] when the options or the connection string cannot work.
    pub async fn open(options: &SqlServerStoreOptions, context: &ProviderContext) -> Result<Self, StoreError> {
        options.check()?;
        let session = SqlServerOptions::new(options.connection_string.clone())
            .with_application_name(format!("Latchwork Store/{}", context.node))
            .with_connect_timeout(options.connect_timeout)
            .with_request_timeout(options.request_timeout);
        let named = session.server();
        let named = format!("sqlserver:{}", named.strip_suffix(",1433").unwrap_or(&named));
        let failed = |error: Failure| error.of(&named, "open the database");
        let pool = SqlServerPool::new(session, options.sessions).map_err(|error| failed(error.into()))?;
        let server = Server { pool, schema: schema::schema_name(&context.namespace) };
        let database = server.ask(Request::new("SELECT DB_NAME() AS [name];")).await;
        let database = database.and_then(|rows| rows.into_iter().next().map_or(Ok(String::new()), |mut columns| columns.text()));
        let domain: Arc<str> = format!("{named}/{}", database.map_err(failed)?).into();
        let tasks = TaskTracker::new();
        let open = Open {
            checkpoints: Lane::new(Checkpoints, &server, &tasks, WIDTH),
            loads: Lane::new(Loads, &server, &tasks, WIDTH),
            creates: Lane::new(Creates, &server, &tasks, 1),
            publishes: Lane::new(Publishes, &server, &tasks, 1),
            appends: Lane::new(Appends, &server, &tasks, 1),
        };
        tasks.close();
        let largest_data = StoreCapabilities::new(Scope::Cluster, StoreClock::Server, "").largest_data;
        let schema = schema::migrations(&context.namespace);
        Ok(Self { domain, server, schema, largest_data, open: Mutex::new(Some(Arc::new(open))), tasks })
    }

    fn opened(&self, action: &str) -> Result<Arc<Open>, StoreError> {
        // Nothing that can panic runs under this lock.
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or_else(|| self.stopped(action))
    }

    fn stopped(&self, action: &str) -> StoreError {
        self.failed(action)(latchwork_sqlserver_client::SqlServerError::Stopped.into())
    }

    fn failed(&self, action: &str) -> impl Fn(Failure) -> StoreError {
        move |error| error.of(&self.domain, action)
    }

    fn too_large(&self, action: &str) -> StoreError {
        StoreError::new(StoreErrorKind::TooLarge, &*self.domain, action)
            .with_advice(format!("keep the data below {} bytes of JSON", self.largest_data))
    }

    fn fits(&self, data: &Encoded) -> bool {
        data.as_str().len() <= self.largest_data
    }

    /// Sends a request and reads its answer.
    async fn ask<T>(
        &self,
        action: &str,
        request: Result<Request, Failure>,
        read: impl FnOnce(Vec<Columns>) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        self.opened(action)?;
        let asked = async { read(self.server.ask(request?).await?) };
        asked.await.map_err(self.failed(action))
    }
}

#[async_trait]
impl PersistenceProvider for SqlServerStore {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities::new(Scope::Cluster, StoreClock::Server, &*self.domain)
            .with_group_commit()
            .with_transactional_steps()
            .with_text_query()
            .with_lease_lock()
    }

    async fn prepare(&self, mode: SchemaMode) -> Result<(), StoreError> {
        const ACTION: &str = "prepare the schema";
        self.opened(ACTION)?;
        let migrated = self.schema.migrate(self.server.pool.options(), schema::mode(mode)).await;
        migrated.map(drop).map_err(|error| self.failed(ACTION)(error.into()))
    }

    async fn claim_identity(&self, namespace: &str, lock_domain: &str, replace: bool) -> Result<IdentityOutcome, StoreError> {
        let wanted = ClusterIdentity {
            cluster: InstanceId::new().to_string(),
            namespace: namespace.to_owned(),
            lock_domain: lock_domain.to_owned(),
        };
        let request = definition::identify(&wanted, replace);
        self.ask("claim the identity", Ok(request), |rows| definition::identified(&wanted, rows)).await
    }

    async fn claim_exclusive(&self, _: &str) -> Result<Box<dyn ExclusiveClaim>, StoreError> {
        Err(StoreError::new(StoreErrorKind::Unsupported, &*self.domain, "claim the database")
            .with_advice("any program can reach a server; use a lock of the cluster, or promise a single node"))
    }

    async fn define(&self, shape: &DefinitionShape) -> Result<DefineOutcome, StoreError> {
        self.ask("define a workflow", Ok(definition::define(shape)), |rows| definition::defined(shape, rows)).await
    }

    async fn create(&self, instances: &[NewInstance]) -> Result<Vec<CreateOutcome>, StoreError> {
        const ACTION: &str = "create instances";
        let open = self.opened(ACTION)?;
        if !instances.iter().all(|instance| self.fits(&instance.data)) {
            return Err(self.too_large(ACTION));
        }
        if instances.is_empty() {
            return Ok(Vec::new());
        }
        open.creates.submit(instances.into()).await.map_err(self.failed(ACTION))
    }

    async fn load(&self, instance: &InstanceId) -> Result<Option<LoadedInstance>, StoreError> {
        const ACTION: &str = "load an instance";
        self.opened(ACTION)?.loads.submit(instance.clone()).await.map_err(self.failed(ACTION))
    }

    async fn load_scope(&self, instance: &InstanceId, scope: PointerId) -> Result<Vec<PointerRecord>, StoreError> {
        self.ask("load a scope", Ok(load::scope(instance, scope)), load::pointers).await
    }

    async fn commit(&self, batch: Vec<Arc<Checkpoint>>) -> Vec<CheckpointOutcome> {
        const ACTION: &str = "commit a checkpoint";
        let Ok(open) = self.opened(ACTION) else {
            return batch.iter().map(|_| CheckpointOutcome::Failed(self.stopped(ACTION))).collect();
        };
        let submit = |checkpoint: &Arc<Checkpoint>| {
            let fits = checkpoint.data.as_ref().is_none_or(|data| self.fits(data))
                && checkpoint.children.iter().all(|child| self.fits(&child.data));
            fits.then(|| open.checkpoints.enqueue(checkpoint.clone()))
        };
        // All are queued before the first is awaited, so that they are written together.
        let tickets: Vec<_> = batch.iter().map(submit).collect();
        let mut answers = Vec::with_capacity(batch.len());
        for ticket in tickets {
            answers.push(match ticket {
                None => CheckpointOutcome::Failed(self.too_large(ACTION)),
                Some(ticket) => {
                    ticket.answer().await.unwrap_or_else(|error| CheckpointOutcome::Failed(self.failed(ACTION)(error)))
                }
            });
        }
        answers
    }

    async fn fence(&self, instance: &InstanceId) -> Result<Option<Fence>, StoreError> {
        self.ask("read a fence", Ok(load::fence_of(instance)), load::fence).await
    }

    async fn begin(&self) -> Result<Option<Box<dyn StepTransaction>>, StoreError> {
        const ACTION: &str = "begin a transaction";
        self.opened(ACTION)?;
        let transaction = self.server.pool.begin().await.map_err(|error| self.failed(ACTION)(error.into()))?;
        Ok(Some(Box::new(StepInSqlServer::new(transaction, self.server.clone(), self.domain.clone()))))
    }

    async fn publish(&self, events: &[NewEvent]) -> Result<PublishOutcome, StoreError> {
        const ACTION: &str = "publish events";
        let open = self.opened(ACTION)?;
        if events.is_empty() {
            return Ok(PublishOutcome::default());
        }
        let wake = open.publishes.submit(events.into()).await.map_err(self.failed(ACTION))?;
        Ok(PublishOutcome { wake })
    }

    async fn append(&self, messages: &[(InstanceId, Control)]) -> Result<Vec<AppendOutcome>, StoreError> {
        const ACTION: &str = "append messages";
        let open = self.opened(ACTION)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        open.appends.submit(messages.into()).await.map_err(self.failed(ACTION))
    }

    async fn read_inbox(&self, instances: &[InstanceId]) -> Result<Vec<(InstanceId, Vec<InboxRow>)>, StoreError> {
        self.ask("read inboxes", inbox::read(instances), |rows| inbox::inboxes(instances, rows)).await
    }

    async fn runnable(&self, wanted: &RunnableQuery) -> Result<RunnablePage, StoreError> {
        self.ask("look for runnable instances", query::runnable(wanted), query::runnable_page).await
    }

    async fn claim_activity(&self, names: &[String], worker: &str, lease: Duration) -> Result<Option<ActivityClaim>, StoreError> {
        let token = ActivityToken::new();
        let request = activity::claim(names, worker, lease, &token);
        self.ask("claim an activity", request, |rows| activity::claimed(&token, rows)).await
    }

    async fn release_activity(&self, token: &ActivityToken) -> Result<bool, StoreError> {
        let read = |rows: Vec<Columns>| rows.into_iter().next().map_or(Ok(false), |mut columns| Ok(columns.int()? > 0));
        self.ask("release an activity", Ok(Request::new(activity::RELEASE).with(token.as_str())), read).await
    }

    async fn submit_activity(&self, token: &ActivityToken, outcome: ActivityOutcome) -> Result<SubmitOutcome, StoreError> {
        self.ask("submit an activity", activity::submit(token, outcome), activity::submitted).await
    }

    async fn get(&self, instance: &InstanceId) -> Result<Option<InstanceRecord>, StoreError> {
        let request = Request::new(load::GET).with(instance.as_str());
        self.ask("get an instance", Ok(request), |rows| load::record(instance, rows)).await
    }

    async fn find_by_key(&self, definition: &str, business_key: &str) -> Result<Option<InstanceId>, StoreError> {
        let request = Request::new(load::BY_KEY).with(definition).with(business_key);
        let read = |rows: Vec<Columns>| rows.into_iter().next().map(|mut columns| columns.instance()).transpose();
        self.ask("find a business key", Ok(request), read).await
    }

    async fn find(&self, wanted: &InstanceQuery) -> Result<Page<InstanceSummary>, StoreError> {
        self.ask("find instances", Ok(query::find(wanted)), |rows| query::found(wanted, rows)).await
    }

    async fn history(&self, instance: &InstanceId, after: i64, limit: usize) -> Result<Page<PointerRecord>, StoreError> {
        self.ask("read a history", Ok(load::history(instance, after, limit)), |rows| load::page(limit, rows)).await
    }

    async fn errors(&self, instance: &InstanceId) -> Result<Vec<ErrorRecord>, StoreError> {
        let request = Request::new(load::ERRORS).with(instance.as_str());
        self.ask("read errors", Ok(request), |rows| load::errors(instance, rows)).await
    }

    async fn statistics(&self) -> Result<StoreStatistics, StoreError> {
        self.ask("count", Ok(Request::new(query::STATISTICS)), query::statistics).await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<PurgeReport, StoreError> {
        self.ask("purge", retention::purge(request), retention::purged).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let read = |rows: Vec<Columns>| {
            let columns = rows.into_iter().next();
            columns.map_or_else(|| Err(Failure::corrupt("the server does not tell its time")), |mut columns| columns.time())
        };
        self.ask("tell the time", Ok(Request::new(query::NOW)), read).await
    }

    async fn stop(&self, grace: Duration) -> Result<(), StoreError> {
        const ACTION: &str = "stop within its grace";
        let until = Instant::now() + grace;
        // The lanes end with what was given to them.
        drop(self.open.lock().unwrap_or_else(PoisonError::into_inner).take());
        let finished = tokio::time::timeout(grace, self.tasks.wait()).await;
        let closed = self.server.pool.close(until.saturating_duration_since(Instant::now())).await;
        match (finished, closed) {
            (Ok(()), Ok(())) => Ok(()),
            (_, Err(error)) => Err(self.failed(ACTION)(error.into())),
            (Err(_), Ok(())) => Err(StoreError::new(StoreErrorKind::Unavailable, &*self.domain, ACTION)
                .with_advice("what was under way ends with its sessions; nothing half-written stays")),
        }
    }
}
