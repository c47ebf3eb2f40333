//! The store.

use crate::{
    activity, definition,
    error::store_error,
    lanes::{Appends, Checkpoints, Creates, Publishes, Setting},
    load, query,
    record::{InboxColumns, inboxes, micros},
    retention,
    rows::Rows,
    schema,
    sql::Sql,
    transaction::StepInSqlite,
};
use latchwork_core::{
    Scope, async_trait,
    clock::Timestamp,
    options::ProviderContext,
    store::{
        ActivityClaim, ActivityOutcome, ActivityToken, AppendOutcome, Checkpoint, CheckpointOutcome, ClusterIdentity, Control,
        CreateOutcome, DefineOutcome, DefinitionShape, ErrorRecord, ExclusiveClaim, Fence, IdentityOutcome, InboxRow, InstanceId,
        InstanceQuery, InstanceRecord, InstanceSummary, LoadedInstance, NewEvent, NewInstance, Page, PersistenceProvider,
        PointerId, PointerRecord, PublishOutcome, PurgeReport, PurgeRequest, RunnablePage, RunnableQuery, SchemaMode,
        StepTransaction, StoreCapabilities, StoreClock, StoreError, StoreErrorKind, StoreStatistics, SubmitOutcome,
    },
};
use latchwork_sqlite_client::{
    Lane, Migration, Outcome, SqliteClaim, SqliteClient, SqliteError, SqliteOptions,
    sqlx::{self, SqliteConnection},
};
use std::{
    collections::HashMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A store in a SQLite file.
///
/// All stores and queues of a process on one file share its writer. Several processes can use a file at the same time.
pub struct SqliteStore {
    /// For errors and capabilities.
    domain: String,
    path: PathBuf,
    setting: Setting,
    schema: latchwork_sqlite_client::MigrationSet,
    largest_data: usize,
    /// `None` once it was stopped.
    open: Mutex<Option<Arc<Open>>>,
}

/// What a store has while it is not stopped.
pub(crate) struct Open {
    pub(crate) client: SqliteClient,
    checkpoints: Lane<Checkpoints>,
    creates: Lane<Creates>,
    publishes: Lane<Publishes>,
    appends: Lane<Appends>,
    /// Keeps others from claiming the file alone.
    _claim: SqliteClaim,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file at a path or URL (`orders.db`, `sqlite:orders.db?mode=rw`) for use without a host: default namespace, the
    /// system's clock. Call [`prepare`](PersistenceProvider::prepare) next.
    ///
    /// # Errors
    /// As [`open`](Self::open); also for a URL that names no file.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let options = SqliteOptions::parse(url).map_err(|error| store_error(url, "read the URL", error))?;
        Self::open(options, &ProviderContext::new(latchwork_core::name::Namespace::default(), "alone")).await
    }

    /// Opens a file as a host does. Its tables are those of the context's namespace, its times come from the context's clock.
    ///
    /// # Errors
    /// [`StoreErrorKind::Denied`] when the file cannot be opened, or another process, which is named, has claimed it alone;
    /// [`StoreErrorKind::Corrupt`] when it is no database; [`StoreErrorKind::Unavailable`] when it is busy for longer than the
    /// time-out.
    pub async fn open(options: SqliteOptions, context: &ProviderContext) -> Result<Self, StoreError> {
        let named = format!("sqlite:{}", options.path().display());
        let failed = |error| store_error(&named, "open the file", error);
        let client = SqliteClient::open(options).await.map_err(failed)?;
        let claim = match client.claim_shared(&context.node).await {
            Ok(claim) => claim,
            Err(error) => {
                client.close().await;
                return Err(failed(error));
            }
        };
        let setting = Setting { sql: Sql::new(&context.namespace), clock: context.clock.clone() };
        let path = client.path().to_owned();
        let domain = format!("sqlite:{}", path.display());
        let open = Open {
            checkpoints: client.lane(Checkpoints(setting.clone())),
            creates: client.lane(Creates(setting.clone())),
            publishes: client.lane(Publishes(setting.clone())),
            appends: client.lane(Appends(setting.clone())),
            client,
            _claim: claim,
        };
        let largest_data = StoreCapabilities::new(Scope::Host, StoreClock::Injected, "").largest_data;
        let schema = schema::migrations(&context.namespace);
        Ok(Self { domain, path, setting, schema, largest_data, open: Mutex::new(Some(Arc::new(open))) })
    }

    /// The history of the schema, for those who let their DBA apply it: the statements of each version.
    #[must_use]
    pub fn migrations(&self) -> &[Migration] {
        self.schema.migrations()
    }

    /// The database file.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    fn opened(&self, action: &str) -> Result<Arc<Open>, StoreError> {
        // Nothing that can panic runs under this lock.
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or_else(|| {
            StoreError::new(StoreErrorKind::Stopped, &self.domain, action).with_advice("the store was stopped; open it again")
        })
    }

    fn failed(&self, action: &str) -> impl Fn(SqliteError) -> StoreError {
        move |error| store_error(&self.domain, action, error)
    }

    fn too_large(&self, action: &str) -> StoreError {
        StoreError::new(StoreErrorKind::TooLarge, &self.domain, action)
            .with_advice(format!("keep the data below {} bytes of JSON", self.largest_data))
    }

    fn now(&self) -> Timestamp {
        self.setting.clock.now()
    }

    /// Reads on a connection of the readers.
    async fn read<T>(
        &self,
        action: &str,
        read: impl AsyncFnOnce(&mut SqliteConnection, &Sql) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let open = self.opened(action)?;
        let mut reader = open.client.reader().await.map_err(self.failed(action))?;
        read(&mut reader, &self.setting.sql).await.map_err(|error| self.failed(action)(open.client.error(error)))
    }

    /// What became of a checkpoint whose group failed.
    async fn tell(&self, checkpoint: &Checkpoint, error: SqliteError) -> CheckpointOutcome {
        const ACTION: &str = "commit a checkpoint";
        if error.outcome() == Outcome::NotCommitted {
            return CheckpointOutcome::Failed(self.failed(ACTION)(error));
        }
        let instance = &checkpoint.instance;
        match self.read("read a fence", async |connection, sql| load::load(connection, sql, self.now(), instance).await).await {
            Ok(None) => CheckpointOutcome::Refused { stored: None },
            Ok(Some(found)) => {
                let fence = Fence { revision: found.header.revision, writer: found.header.writer };
                match fence.tells_of(checkpoint) {
                    Some(true) => CheckpointOutcome::Committed(latchwork_core::store::Committed {
                        revision: fence.revision,
                        now: found.now,
                        inbox: found.inbox,
                        wake: Vec::new(),
                    }),
                    Some(false) => CheckpointOutcome::Refused { stored: Some(fence.revision) },
                    None => CheckpointOutcome::Failed(self.failed(ACTION)(error)),
                }
            }
            Err(_) => CheckpointOutcome::Failed(self.failed(ACTION)(error)),
        }
    }
}

impl ExclusiveClaim for FileClaim {}

/// The file's claim, under the name that core knows.
#[derive(Debug)]
struct FileClaim(#[allow(dead_code, reason = "held until it is dropped")] SqliteClaim);

#[async_trait]
impl PersistenceProvider for SqliteStore {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities::new(Scope::Host, StoreClock::Injected, &self.domain)
            .with_group_commit()
            .with_transactional_steps()
            .with_exclusive_claim()
            .with_text_query()
            .with_lease_lock()
    }

    async fn prepare(&self, mode: SchemaMode) -> Result<(), StoreError> {
        const ACTION: &str = "prepare the schema";
        let migrated = self.opened(ACTION)?.client.migrate(&self.schema, schema::mode(mode)).await;
        migrated.map(drop).map_err(self.failed(ACTION))
    }

    async fn claim_identity(&self, namespace: &str, lock_domain: &str, replace: bool) -> Result<IdentityOutcome, StoreError> {
        const ACTION: &str = "claim the identity";
        let wanted = ClusterIdentity {
            cluster: InstanceId::new().to_string(),
            namespace: namespace.to_owned(),
            lock_domain: lock_domain.to_owned(),
        };
        let (sql, open) = (self.setting.sql.clone(), self.opened(ACTION)?);
        let job = open.client.write(move |connection| {
            let (sql, wanted) = (sql.clone(), wanted.clone());
            Box::pin(async move { definition::identify(connection, &sql, &wanted, replace).await })
        });
        job.await.map_err(self.failed(ACTION))
    }

    async fn claim_exclusive(&self, node: &str) -> Result<Box<dyn ExclusiveClaim>, StoreError> {
        const ACTION: &str = "claim the file";
        let claim = self.opened(ACTION)?.client.claim_exclusive(node).await.map_err(self.failed(ACTION))?;
        Ok(Box::new(FileClaim(claim)))
    }

    async fn define(&self, shape: &DefinitionShape) -> Result<DefineOutcome, StoreError> {
        const ACTION: &str = "define a workflow";
        let (sql, shape, open) = (self.setting.sql.clone(), shape.clone(), self.opened(ACTION)?);
        let job = open.client.write(move |connection| {
            let (sql, shape) = (sql.clone(), shape.clone());
            Box::pin(async move { definition::define(connection, &sql, &shape).await })
        });
        job.await.map_err(self.failed(ACTION))
    }

    async fn create(&self, instances: &[NewInstance]) -> Result<Vec<CreateOutcome>, StoreError> {
        const ACTION: &str = "create instances";
        let open = self.opened(ACTION)?;
        if instances.iter().any(|instance| instance.data.as_str().len() > self.largest_data) {
            return Err(self.too_large(ACTION));
        }
        if instances.is_empty() {
            return Ok(Vec::new());
        }
        open.creates.submit(instances.to_vec()).await.map_err(self.failed(ACTION))
    }

    async fn load(&self, instance: &InstanceId) -> Result<Option<LoadedInstance>, StoreError> {
        self.read("load an instance", async |connection, sql| load::load(connection, sql, self.now(), instance).await).await
    }

    async fn load_scope(&self, instance: &InstanceId, scope: PointerId) -> Result<Vec<PointerRecord>, StoreError> {
        self.read("load a scope", async |connection, sql| load::scope(connection, sql, instance, scope).await).await
    }

    async fn commit(&self, batch: Vec<Arc<Checkpoint>>) -> Vec<CheckpointOutcome> {
        const ACTION: &str = "commit a checkpoint";
        let open = match self.opened(ACTION) {
            Ok(open) => open,
            Err(_) => {
                let stopped = |_| match self.opened(ACTION) {
                    Err(error) => CheckpointOutcome::Failed(error),
                    Ok(_) => CheckpointOutcome::Refused { stored: None },
                };
                return batch.into_iter().map(stopped).collect();
            }
        };
        let too_large = |data: &latchwork_core::store::Encoded| data.as_str().len() > self.largest_data;
        let submit = |checkpoint: &Arc<Checkpoint>| {
            let fits = !checkpoint.data.as_ref().is_some_and(too_large)
                && !checkpoint.children.iter().any(|child| too_large(&child.data));
            fits.then(|| open.checkpoints.enqueue(checkpoint.clone()))
        };
        // All are queued before the first is awaited, so that they are written together.
        let tickets: Vec<_> = batch.iter().map(submit).collect();
        let mut answers = Vec::with_capacity(batch.len());
        for (checkpoint, ticket) in batch.iter().zip(tickets) {
            answers.push(match ticket {
                None => CheckpointOutcome::Failed(self.too_large(ACTION)),
                Some(ticket) => match ticket.await {
                    Ok(outcome) => outcome,
                    Err(error) => self.tell(checkpoint, error).await,
                },
            });
        }
        answers
    }

    async fn fence(&self, instance: &InstanceId) -> Result<Option<Fence>, StoreError> {
        self.read("read a fence", async |connection, sql| load::fence(connection, sql, instance).await).await
    }

    async fn begin(&self) -> Result<Option<Box<dyn StepTransaction>>, StoreError> {
        const ACTION: &str = "begin a transaction";
        let transaction = self.opened(ACTION)?.client.begin().await.map_err(self.failed(ACTION))?;
        Ok(Some(Box::new(StepInSqlite::new(transaction, self.setting.clone(), self.domain.clone()))))
    }

    async fn publish(&self, events: &[NewEvent]) -> Result<PublishOutcome, StoreError> {
        const ACTION: &str = "publish events";
        let open = self.opened(ACTION)?;
        if events.is_empty() {
            return Ok(PublishOutcome::default());
        }
        let wake = open.publishes.submit(events.to_vec()).await.map_err(self.failed(ACTION))?;
        Ok(PublishOutcome { wake })
    }

    async fn append(&self, messages: &[(InstanceId, Control)]) -> Result<Vec<AppendOutcome>, StoreError> {
        const ACTION: &str = "append messages";
        let open = self.opened(ACTION)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        open.appends.submit(messages.to_vec()).await.map_err(self.failed(ACTION))
    }

    async fn read_inbox(&self, instances: &[InstanceId]) -> Result<Vec<(InstanceId, Vec<InboxRow>)>, StoreError> {
        let now = micros(self.now());
        self.read("read inboxes", async |connection, sql| {
            let mut ids = Rows::default();
            for id in instances {
                ids.add(|row| {
                    row.id(id);
                });
            }
            let found: Vec<InboxColumns> = ids.fetch(&mut *connection, sql, crate::inbox::READ_BY_ID, now).await?;
            let mut numbers = Rows::default();
            for id in instances {
                numbers.add(|row| {
                    row.id(id);
                });
            }
            let numbered: Vec<(String, i64)> = numbers.fetch(connection, sql, crate::inbox::NUMBERS, 0).await?;
            let numbers: HashMap<String, i64> = numbered.into_iter().collect();
            let mut inboxes = inboxes(found)?;
            let inbox = |id: &InstanceId| Some((id.clone(), inboxes.remove(numbers.get(id.as_str())?)?));
            Ok(instances.iter().filter_map(inbox).collect())
        })
        .await
    }

    async fn runnable(&self, query: &RunnableQuery) -> Result<RunnablePage, StoreError> {
        self.read("look for runnable instances", async |connection, sql| {
            query::runnable(connection, sql, self.now(), query).await
        })
        .await
    }

    async fn claim_activity(&self, names: &[String], worker: &str, lease: Duration) -> Result<Option<ActivityClaim>, StoreError> {
        const ACTION: &str = "claim an activity";
        let mut wanted = Rows::default();
        for name in names {
            wanted.add(|row| {
                row.text(name);
            });
        }
        let Some(names) = wanted.into_batches().into_iter().next() else { return Ok(None) };
        let (setting, open) = (self.setting.clone(), self.opened(ACTION)?);
        let (worker, token) = (worker.to_owned(), ActivityToken::new());
        let job = open.client.write(move |connection| {
            let (setting, names, worker, token) = (setting.clone(), names.clone(), worker.clone(), token.clone());
            Box::pin(async move {
                activity::claim(connection, &setting.sql, setting.clock.now(), &names, &worker, lease, &token).await
            })
        });
        job.await.map_err(self.failed(ACTION))
    }

    async fn release_activity(&self, token: &ActivityToken) -> Result<bool, StoreError> {
        const ACTION: &str = "release an activity";
        let (sql, token, open) = (self.setting.sql.clone(), token.clone(), self.opened(ACTION)?);
        let job = open.client.write(move |connection| {
            let (sql, token) = (sql.clone(), token.clone());
            Box::pin(async move { activity::release(connection, &sql, &token).await })
        });
        job.await.map_err(self.failed(ACTION))
    }

    async fn submit_activity(&self, token: &ActivityToken, outcome: ActivityOutcome) -> Result<SubmitOutcome, StoreError> {
        const ACTION: &str = "submit an activity";
        let (setting, token, open) = (self.setting.clone(), token.clone(), self.opened(ACTION)?);
        let job = open.client.write(move |connection| {
            let (setting, token, outcome) = (setting.clone(), token.clone(), outcome.clone());
            Box::pin(async move { activity::submit(connection, &setting.sql, setting.clock.now(), &token, &outcome).await })
        });
        job.await.map_err(self.failed(ACTION))
    }

    async fn get(&self, instance: &InstanceId) -> Result<Option<InstanceRecord>, StoreError> {
        self.read("get an instance", async |connection, sql| load::get(connection, sql, instance).await).await
    }

    async fn find_by_key(&self, definition: &str, business_key: &str) -> Result<Option<InstanceId>, StoreError> {
        self.read("find a business key", async |connection, sql| load::by_key(connection, sql, definition, business_key).await)
            .await
    }

    async fn find(&self, query: &InstanceQuery) -> Result<Page<InstanceSummary>, StoreError> {
        self.read("find instances", async |connection, sql| query::find(connection, sql, query).await).await
    }

    async fn history(&self, instance: &InstanceId, after: i64, limit: usize) -> Result<Page<PointerRecord>, StoreError> {
        self.read("read a history", async |connection, sql| load::history(connection, sql, instance, after, limit).await).await
    }

    async fn errors(&self, instance: &InstanceId) -> Result<Vec<ErrorRecord>, StoreError> {
        self.read("read errors", async |connection, sql| load::errors(connection, sql, instance).await).await
    }

    async fn statistics(&self) -> Result<StoreStatistics, StoreError> {
        self.read("count", async |connection, sql| query::statistics(connection, sql, self.now()).await).await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<PurgeReport, StoreError> {
        const ACTION: &str = "purge";
        let (setting, request, open) = (self.setting.clone(), request.clone(), self.opened(ACTION)?);
        let job = open.client.write(move |connection| {
            let (setting, request) = (setting.clone(), request.clone());
            Box::pin(async move { retention::purge(connection, &setting.sql, setting.clock.now(), &request).await })
        });
        job.await.map_err(self.failed(ACTION))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.read("tell the time", async |connection, _| sqlx::query("SELECT 1").execute(connection).await.map(|_| self.now()))
            .await
    }

    async fn stop(&self, grace: Duration) -> Result<(), StoreError> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(open) = open else { return Ok(()) };
        let finish = async {
            open.checkpoints.flush().await;
            open.creates.flush().await;
            open.publishes.flush().await;
            open.appends.flush().await;
            let client = open.client.clone();
            drop(open);
            client.close().await;
        };
        tokio::time::timeout(grace, finish).await.map_err(|_| {
            StoreError::new(StoreErrorKind::Unavailable, &self.domain, "stop within its grace")
                .with_advice("the writer goes on in the background; nothing half-written stays")
        })
    }
}
