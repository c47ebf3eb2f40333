use super::{HostError, WorkflowHost};
use crate::{
    builder::{Workflow, define},
    compression::Compression,
    definition::{Definition, DefinitionError, NodeKind, shape_difference},
    hub::LocalEventHub,
    instance::Rules,
    middleware::{Middleware, StepMiddleware, WorkflowMiddleware},
    node::{Node, Settings},
    policy::Retry,
    services::Services,
};
use latchwork_core::{
    lock::DistributedLockProvider,
    name::Namespace,
    options::{Configure, WorkflowOptions},
    retention::Retention,
    store::{ClusterIdentity, DefineOutcome, DefinitionShape, ExclusiveClaim, IdentityOutcome, PersistenceProvider},
};
use std::{collections::HashSet, fmt, sync::Arc, time::Duration};

/// Describes a host: its providers, services and workflows. Nothing connects before [`start`](Self::start).
#[must_use = "a host does nothing until it is started"]
#[derive(Default)]
pub struct WorkflowHostBuilder {
    options: WorkflowOptions,
    services: Services,
    definitions: Vec<Result<Definition, DefinitionError>>,
    retry: Option<Retry>,
    step_middleware: Vec<Arc<dyn StepMiddleware>>,
    workflow_middleware: Vec<Arc<dyn WorkflowMiddleware>>,
}

impl fmt::Debug for WorkflowHostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowHostBuilder")
            .field("options", &self.options)
            .field("services", &self.services)
            .finish_non_exhaustive()
    }
}

impl Configure for WorkflowHostBuilder {
    fn options(&mut self) -> &mut WorkflowOptions {
        &mut self.options
    }
}

impl WorkflowHostBuilder {
    /// Registers a service for step bodies, by its type.
    pub fn service<T: Send + Sync + 'static>(mut self, service: T) -> Self {
        self.services.insert(service);
        self
    }

    /// Registers a workflow. Several versions of one workflow are registered side by side.
    #[doc(alias = "RegisterWorkflow")]
    #[allow(clippy::needless_pass_by_value, reason = "a workflow is a description, handed over once")]
    pub fn workflow<W: Workflow>(mut self, workflow: W) -> Self {
        self.definitions.push(define(&workflow));
        self
    }

    /// Stands around each run of a step's body; the first one that is registered is the outermost. See [`middleware`](crate::middleware).
    #[doc(alias = "AddWorkflowStepMiddleware")]
    pub fn step_middleware(mut self, middleware: impl StepMiddleware) -> Self {
        self.step_middleware.push(Arc::new(middleware));
        self
    }

    /// Stands at the beginning, at each burst and at the end of each instance; called in the order of registration. See
    /// [`middleware`](crate::middleware).
    #[doc(alias = "AddWorkflowMiddleware")]
    pub fn workflow_middleware(mut self, middleware: impl WorkflowMiddleware) -> Self {
        self.workflow_middleware.push(Arc::new(middleware));
        self
    }

    /// Changes the options in place, for those that have no method of their own here.
    pub fn configure(mut self, change: impl FnOnce(&mut WorkflowOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// The cluster's namespace. Default `wfc`.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.options.namespace = namespace;
        self
    }

    /// The name of this node. Default: drawn at random.
    pub fn node_id(mut self, node: impl Into<Arc<str>>) -> Self {
        self.options.node_id = node.into();
        self
    }

    /// How often the store is asked for what the queue may have lost. Default 10 s.
    #[doc(alias = "UsePollInterval")]
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.options.poll_interval = interval;
        self
    }

    /// How long `stop` lets running bodies finish before it cancels them. Default 30 s.
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.options.stop_grace = grace;
        self
    }

    /// Bursts at the same time on this node. Default 1,024.
    #[doc(alias = "UseMaxConcurrentWorkflows")]
    pub fn max_concurrent_workflows(mut self, bursts: usize) -> Self {
        self.options.max_concurrent_workflows = bursts;
        self
    }

    /// Stores data with more bytes of JSON than this compressed. Default: none. Readable either way, whatever this says, also by other nodes.
    pub fn compress_data_over(mut self, bytes: usize) -> Self {
        self.options.compress_data_over = Some(bytes);
        self
    }

    /// How long ended instances, events and tombstones are kept. Default: ended instances for ever, events for 90 days.
    #[doc(alias = "UseRetention")]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.options.retention = retention;
        self
    }

    /// What happens when a step fails, for steps and workflows without a policy of their own. Default: [`Retry::default`], whose
    /// first pause is the option `error_retry_interval`.
    #[doc(alias = "UseErrorRetryInterval")]
    pub fn default_error_policy(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Promises that no other host uses the store, so that locks of this process will do for a server's store.
    pub fn single_node(mut self) -> Self {
        self.options.single_node = true;
        self
    }

    /// Opens the providers, checks that all fits together, and starts the node.
    ///
    /// # Errors
    /// [`HostError`]: an unsound definition or setting, a missing provider or service, a provider that cannot be opened, locks that do
    /// not reach as far as the store, or a store that belongs to another cluster.
    pub async fn start(self) -> Result<WorkflowHost, HostError> {
        let Self { mut options, services, definitions, retry, step_middleware, workflow_middleware } = self;
        options.validate()?;
        let definitions = definitions.into_iter().collect::<Result<Vec<_>, _>>()?;
        check_definitions(&definitions, options.run_workflows.then_some(&services))?;

        let context = options.provider_context();
        let no = |role| HostError::NoProvider { role };
        let opened = |role| move |error| HostError::provider(role, error);
        let store = options.open_store(&context).await.ok_or(no("store"))?.map_err(opened("store"))?;
        let lock = options.open_lock(&context).await.ok_or(no("lock provider"))?.map_err(opened("lock provider"))?;
        let queue = options.open_queue(&context).await.ok_or(no("queue"))?.map_err(opened("queue"))?;
        let hub = match options.open_hub(&context).await {
            Some(hub) => hub.map_err(opened("event hub"))?,
            None => Arc::new(LocalEventHub::new()),
        };

        let claim = check_scopes(&options, &*lock, &*store).await?;
        if queue.capabilities().scope < store.capabilities().scope {
            tracing::warn!(
                queue = queue.capabilities().domain,
                store = store.capabilities().domain,
                "the queue does not reach as far as the store: other nodes' work arrives by their polls only"
            );
        }
        if !store.capabilities().transactional_steps {
            refuse_transactional(&definitions, &store.capabilities().domain)?;
        }
        store.prepare(options.schema).await?;
        let identity = claim_identity(&options, &*lock, &*store).await?;
        let mut registry = crate::node::Registry::default();
        for definition in definitions {
            let conflict = register(&*store, &definition).await?;
            registry.insert(Arc::new(definition), conflict);
        }

        let tasks = tokio_util::task::TaskTracker::new();
        let retry = retry.unwrap_or_else(|| Retry::exponential(options.error_retry_interval));
        let settings = Settings {
            poll_interval: options.poll_interval,
            idle_time: options.idle_time,
            error_retry_interval: options.error_retry_interval,
            max_concurrent_workflows: options.max_concurrent_workflows,
            max_concurrent_steps: options.max_concurrent_steps,
            stop_grace: options.stop_grace,
            burst_budget: options.burst_budget,
            transaction_limit: options.transaction_limit,
            event_limit: options.event_limit,
            data_limit: options.data_limit.min(store.capabilities().largest_data),
            run_workflows: options.run_workflows,
            publish_events: options.publish_events,
            run_poller: options.run_poller,
            retention: options.retention.clone(),
        };
        let compression = Compression { over: options.compress_data_over };
        let node = Arc::new(Node {
            name: options.node_id.clone(),
            namespace: options.namespace.clone(),
            cluster: identity.cluster,
            rules: Arc::new(Rules { retry, data_limit: settings.data_limit, compression }),
            permits: Arc::new(tokio::sync::Semaphore::new(settings.max_concurrent_workflows)),
            committer: crate::node::Committer::new(store.clone(), &tasks),
            settings,
            lock,
            queue,
            store,
            hub,
            clock: options.clock.clone(),
            registry: Arc::new(registry),
            services: Arc::new(services),
            middleware: Middleware { steps: step_middleware.into(), workflows: workflow_middleware.into() },
            health: Default::default(),
            completions: Default::default(),
            active: Default::default(),
            wheel: Default::default(),
            troubled: Default::default(),
            overflow: Default::default(),
            kept: Default::default(),
            stopping: Default::default(),
            grace_is_over: Default::default(),
            tasks,
        });
        node.start();
        Ok(WorkflowHost::new(node, claim))
    }
}

/// Finds what steps lack before anything runs. A host that runs no workflows needs neither services nor sub-workflows for
/// their steps.
fn check_definitions(definitions: &[Definition], services: Option<&Services>) -> Result<(), HostError> {
    let mut seen = HashSet::new();
    for definition in definitions {
        let (id, version) = (definition.id.to_string(), definition.version);
        if !seen.insert((definition.id.clone(), version)) {
            return Err(HostError::RegisteredTwice { definition: id, version });
        }
        let Some(services) = services else { continue };
        for node in &definition.nodes {
            if let NodeKind::Step(step) = &node.kind
                && let Some((workflow, called)) = step.calls
                && !definitions.iter().any(|other| *other.id == *workflow && other.version == called)
            {
                let (step, workflow) = (node.name.to_string(), workflow.to_owned());
                return Err(HostError::SubWorkflow { definition: id, version, step, workflow, called });
            }
        }
        let missing = |step: &str, source| HostError::Service { definition: id.clone(), version, step: step.to_owned(), source };
        for (step, service, name) in &definition.needs {
            if !services.has(*service) {
                return Err(missing(step, crate::ServiceMissing(name)));
            }
        }
        for node in &definition.nodes {
            if let NodeKind::Step(step) = &node.kind {
                // Made once to find out; the user's code may panic here as anywhere.
                let made = crate::instance::guarded(|| Ok((step.make)(services)));
                if let Ok(Err(source)) = made {
                    return Err(missing(&node.name, source));
                }
            }
        }
    }
    Ok(())
}

/// A store without transactions for steps cannot run those that ask for one.
fn refuse_transactional(definitions: &[Definition], store: &str) -> Result<(), HostError> {
    for definition in definitions {
        let steps = definition.nodes.iter().filter(|node| matches!(&node.kind, NodeKind::Step(step) if step.transactional));
        if let Some(node) = steps.into_iter().next() {
            let (definition, version) = (definition.id.to_string(), definition.version);
            return Err(HostError::NoTransactions { definition, version, step: node.name.to_string(), store: store.to_owned() });
        }
    }
    Ok(())
}

/// Locks must reach as far as the store, unless no other process can use it.
async fn check_scopes(
    options: &WorkflowOptions,
    lock: &dyn DistributedLockProvider,
    store: &dyn PersistenceProvider,
) -> Result<Option<Box<dyn ExclusiveClaim>>, HostError> {
    let (lock, capabilities) = (lock.capabilities(), store.capabilities());
    if lock.scope >= capabilities.scope || options.single_node {
        return Ok(None);
    }
    if capabilities.exclusive_claim {
        return Ok(Some(store.claim_exclusive(&options.node_id).await?));
    }
    Err(HostError::LockScope {
        lock: lock.domain,
        lock_scope: lock.scope,
        store: capabilities.domain,
        store_scope: capabilities.scope,
        advice: ", or promise with `single_node()` that this is the only host",
    })
}

async fn claim_identity(
    options: &WorkflowOptions,
    lock: &dyn DistributedLockProvider,
    store: &dyn PersistenceProvider,
) -> Result<ClusterIdentity, HostError> {
    let (namespace, domain) = (options.namespace.as_str(), lock.capabilities().domain);
    match store.claim_identity(namespace, &domain, options.replace_identity).await? {
        IdentityOutcome::Accepted(identity) => Ok(identity),
        IdentityOutcome::Differs(stored) => Err(HostError::Identity {
            stored_namespace: stored.namespace,
            stored_lock: stored.lock_domain,
            namespace: namespace.to_owned(),
            lock: domain,
        }),
    }
}

/// Enters a definition's shape. A conflict keeps its version from being started here; the host runs on.
async fn register(store: &dyn PersistenceProvider, definition: &Definition) -> Result<Option<String>, HostError> {
    let shape = DefinitionShape {
        definition: definition.id.clone(),
        version: definition.version,
        fingerprint: definition.fingerprint.clone(),
        shape: definition.shape.clone(),
    };
    match store.define(&shape).await? {
        DefineOutcome::Stored => Ok(None),
        DefineOutcome::Conflict { stored } => {
            let difference = shape_difference(&stored.shape, &definition.shape);
            tracing::error!(
                definition = %definition.id, version = definition.version, difference,
                "this version has changed while instances of it are open; they are left, and none is started here"
            );
            Ok(Some(difference))
        }
    }
}
