//! How a host is configured, and how providers are wired into it.
//!
//! A provider crate adds one extension method to everything that can be configured:
//!
//! ```
//! use latchwork_core::options::Configure;
//! # use latchwork_core::{lock::*, name::Namespace, async_trait};
//! # #[derive(Debug)] struct MyLocks(Namespace);
//! # #[async_trait] impl DistributedLockProvider for MyLocks {
//! #   fn capabilities(&self) -> LockCapabilities { LockCapabilities::new(latchwork_core::Scope::Process, LossDetection::Process, "my") }
//! #   fn namespace(&self) -> &Namespace { &self.0 }
//! #   async fn acquire(&self, _: LockRequest) -> Result<Option<LockGuard>, LockError> { Ok(None) }
//! #   async fn check(&self) -> Result<(), LockError> { Ok(()) }
//! #   async fn stop(&self, _: std::time::Duration) -> Result<(), LockError> { Ok(()) }
//! # }
//! /// `use_my_locking` on a host's builder.
//! pub trait UseMyLocking: Configure {
//!     /// Takes locks from my service.
//!     fn use_my_locking(mut self) -> Self {
//!         self.options().use_distributed_lock_manager(async |context| Ok(MyLocks(context.namespace)));
//!         self
//!     }
//! }
//! impl<T: Configure> UseMyLocking for T {}
//! ```

use crate::{
    BoxError,
    clock::{Clock, SystemClock},
    hub::LifeCycleEventHub,
    lock::DistributedLockProvider,
    name::Namespace,
    queue::QueueProvider,
    retention::Retention,
    store::{PersistenceProvider, SchemaMode},
};
use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::OnceCell;

type Made<P> = Pin<Box<dyn Future<Output = Result<Arc<P>, BoxError>> + Send>>;
type Factory<P> = Box<dyn FnOnce(ProviderContext) -> Made<P> + Send + Sync>;

/// What a provider's factory is given when the host starts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderContext {
    /// The cluster's namespace.
    pub namespace: Namespace,
    /// The name of this node.
    pub node: Arc<str>,
    /// The host's clock.
    pub clock: Arc<dyn Clock>,
    /// Who makes schemas.
    pub schema: SchemaMode,
    /// What several providers of one host share.
    pub shared: SharedResources,
}

impl ProviderContext {
    /// A context with the system's clock and nothing shared yet; for providers used alone, and for tests.
    pub fn new(namespace: Namespace, node: impl Into<Arc<str>>) -> Self {
        Self {
            namespace,
            node: node.into(),
            clock: Arc::new(SystemClock::new()),
            schema: SchemaMode::default(),
            shared: SharedResources::default(),
        }
    }

    /// With this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// With this schema mode.
    #[must_use]
    pub fn with_schema(mut self, schema: SchemaMode) -> Self {
        self.schema = schema;
        self
    }
}

/// Things that several providers of one host share: a pool, a writer. Keyed by type and name, opened once.
#[derive(Clone, Default)]
pub struct SharedResources(Arc<Mutex<Cells>>);

/// By type and name: the `OnceCell` of the resource.
type Cells = HashMap<(TypeId, String), Arc<dyn Any + Send + Sync>>;

impl fmt::Debug for SharedResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedResources").finish_non_exhaustive()
    }
}

impl SharedResources {
    /// The resource of this type and name, opened by the first who asks; the others wait for it. After a failure the next one
    /// tries again.
    ///
    /// # Errors
    /// What `open` says.
    pub async fn get_or_open<T, E, F, Fut>(&self, name: &str, open: F) -> Result<Arc<T>, E>
    where
        T: Send + Sync + 'static,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let cell = {
            let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (TypeId::of::<T>(), name.to_owned());
            cells.entry(key).or_insert_with(|| Arc::new(OnceCell::<Arc<T>>::new())).clone()
        };
        match cell.downcast::<OnceCell<Arc<T>>>() {
            Ok(cell) => cell.get_or_try_init(|| async { open().await.map(Arc::new) }).await.cloned(),
            // The key holds the type, so the cell has it; without a panic the alternative is one more resource.
            Err(_) => open().await.map(Arc::new),
        }
    }
}

/// A setting that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the setting `{setting}` is refused: {reason}")]
#[non_exhaustive]
pub struct InvalidSetting {
    /// The setting.
    pub setting: &'static str,
    /// Why, and what would do.
    pub reason: String,
}

impl InvalidSetting {
    /// A setting is refused for this reason.
    pub fn new(setting: &'static str, reason: impl Into<String>) -> Self {
        Self { setting, reason: reason.into() }
    }
}

/// The settings of a host. Provider factories are kept here and run when the host starts; nothing connects before.
#[non_exhaustive]
pub struct WorkflowOptions {
    /// How often the store is asked for what the queue may have lost, and for timers that come near. Default 10 s, at least 10 ms.
    pub poll_interval: Duration,
    /// How long one wait for the queue lasts. Default 100 ms where the queue cannot push; an upper bound of 1 s applies.
    pub idle_time: Duration,
    /// The first pause after a failed step without a retry policy of its own, and after a failed background round. Default 1 s.
    pub error_retry_interval: Duration,
    /// Bursts at the same time on this node. Default 1,024.
    pub max_concurrent_workflows: usize,
    /// Bodies of one instance at the same time. Default 16.
    pub max_concurrent_steps: usize,
    /// How long `stop` lets running bodies finish before it cancels them, and again before it reports them. Default 30 s.
    pub stop_grace: Duration,
    /// How long a burst may last before it goes back to the queue, when others wait. Default 1 s.
    pub burst_budget: Duration,
    /// The cluster's namespace. Default `wfc`.
    pub namespace: Namespace,
    /// The name of this node. Default: machine-independent, drawn at random.
    pub node_id: Arc<str>,
    /// Whether this node runs workflows. Default yes.
    pub run_workflows: bool,
    /// Whether this node may publish events. Default yes.
    pub publish_events: bool,
    /// Whether this node polls. Default yes; at least one node of a cluster must.
    pub run_poller: bool,
    /// Promises that no other host uses a server's store, so that a narrower lock will do. Default no.
    pub single_node: bool,
    /// Puts this host's namespace and lock service in the place of those that the store was used with. Default no.
    pub replace_identity: bool,
    /// Who makes schemas. Default: the host creates and migrates.
    pub schema: SchemaMode,
    /// How long the body of a transactional step may keep its transaction open. Default 5 s.
    pub transaction_limit: Duration,
    /// Largest data of an instance, in bytes of JSON. Default 1 MiB, at most 16 MiB.
    pub data_limit: usize,
    /// Largest data of an event, in bytes of JSON. Default 256 KiB, at most 1 MiB.
    pub event_limit: usize,
    /// Data of an instance with more bytes of JSON than this is stored compressed, and so are the collections and states of its steps. Default:
    /// none is. What is stored is readable either way, whatever this says; the data limit counts the JSON.
    pub compress_data_over: Option<usize>,
    /// How long what is over is kept, and who deletes it. Default: ended instances for ever, events for 90 days.
    pub retention: Retention,
    /// Where all time comes from.
    pub clock: Arc<dyn Clock>,
    lock: Option<Factory<dyn DistributedLockProvider>>,
    queue: Option<Factory<dyn QueueProvider>>,
    store: Option<Factory<dyn PersistenceProvider>>,
    hub: Option<Factory<dyn LifeCycleEventHub>>,
}

impl Default for WorkflowOptions {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(10),
            idle_time: Duration::from_millis(100),
            error_retry_interval: Duration::from_secs(1),
            max_concurrent_workflows: 1_024,
            max_concurrent_steps: 16,
            stop_grace: Duration::from_secs(30),
            burst_budget: Duration::from_secs(1),
            namespace: Namespace::default(),
            node_id: format!("node-{}", uuid::Uuid::now_v7().simple()).into(),
            run_workflows: true,
            publish_events: true,
            run_poller: true,
            single_node: false,
            replace_identity: false,
            schema: SchemaMode::default(),
            transaction_limit: Duration::from_secs(5),
            data_limit: crate::limits::DATA_BYTES,
            event_limit: crate::limits::EVENT_BYTES,
            compress_data_over: None,
            retention: Retention::default(),
            clock: Arc::new(SystemClock::new()),
            lock: None,
            queue: None,
            store: None,
            hub: None,
        }
    }
}

impl fmt::Debug for WorkflowOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowOptions")
            .field("namespace", &self.namespace.as_str())
            .field("node_id", &self.node_id)
            .field("poll_interval", &self.poll_interval)
            .field("max_concurrent_workflows", &self.max_concurrent_workflows)
            .field("lock", &self.lock.is_some())
            .field("queue", &self.queue.is_some())
            .field("store", &self.store.is_some())
            .field("hub", &self.hub.is_some())
            .finish_non_exhaustive()
    }
}

macro_rules! provider_option {
    ($(#[$doc:meta])* $use:ident, $(#[$open_doc:meta])* $open:ident, $field:ident, $provider:ident) => {
        $(#[$doc])*
        pub fn $use<P, F, Fut>(&mut self, factory: F) -> &mut Self
        where
            P: $provider,
            F: FnOnce(ProviderContext) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<P, BoxError>> + Send + 'static,
        {
            self.$field = Some(Box::new(move |context| {
                Box::pin(async move { factory(context).await.map(|provider| Arc::new(provider) as Arc<dyn $provider>) })
            }));
            self
        }

        $(#[$open_doc])*
        pub async fn $open(&mut self, context: &ProviderContext) -> Option<Result<Arc<dyn $provider>, BoxError>> {
            let factory = self.$field.take()?;
            Some(factory(context.clone()).await)
        }
    };
}

impl WorkflowOptions {
    provider_option! {
        /// Takes locks from what this factory makes.
        #[doc(alias = "UseDistributedLockManager")]
        use_distributed_lock_manager,
        /// For engines: runs the lock factory, once; `None` when there is none (left).
        open_lock, lock, DistributedLockProvider
    }
    provider_option! {
        /// Takes the queue from what this factory makes.
        #[doc(alias = "UseQueueProvider")]
        use_queue_provider,
        /// For engines: runs the queue factory, once; `None` when there is none (left).
        open_queue, queue, QueueProvider
    }
    provider_option! {
        /// Takes the store from what this factory makes.
        #[doc(alias = "UsePersistence")]
        use_persistence,
        /// For engines: runs the store factory, once; `None` when there is none (left).
        open_store, store, PersistenceProvider
    }
    provider_option! {
        /// Takes the life-cycle hub from what this factory makes.
        #[doc(alias = "UseEventHub")]
        use_event_hub,
        /// For engines: runs the hub factory, once; `None` when there is none (left).
        open_hub, hub, LifeCycleEventHub
    }

    /// What the factories are given.
    #[must_use]
    pub fn provider_context(&self) -> ProviderContext {
        ProviderContext {
            namespace: self.namespace.clone(),
            node: self.node_id.clone(),
            clock: self.clock.clone(),
            schema: self.schema,
            shared: SharedResources::default(),
        }
    }

    /// Refuses settings that cannot work, each with its reason.
    ///
    /// # Errors
    /// The first [`InvalidSetting`].
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        let refuse = |setting, reason: &str| Err(InvalidSetting::new(setting, reason));
        if self.poll_interval < Duration::from_millis(10) {
            return refuse("poll_interval", "it must be at least 10 ms, or the node does nothing but poll");
        }
        if self.poll_interval > Duration::from_hours(1) {
            return refuse("poll_interval", "it must be at most 1 h, because lost hints wait for up to two polls");
        }
        if self.idle_time.is_zero() || self.idle_time > Duration::from_secs(1) {
            return refuse("idle_time", "it must be above zero, or the node spins, and at most 1 s");
        }
        if self.error_retry_interval.is_zero() {
            return refuse("error_retry_interval", "it must be above zero, or failures spin");
        }
        if self.max_concurrent_workflows == 0 {
            return refuse("max_concurrent_workflows", "it must be at least 1; to run none, switch `run_workflows` off");
        }
        if self.max_concurrent_steps == 0 {
            return refuse("max_concurrent_steps", "it must be at least 1");
        }
        if self.burst_budget.is_zero() {
            return refuse("burst_budget", "it must be above zero, or no instance gets anywhere");
        }
        if self.transaction_limit.is_zero() {
            return refuse("transaction_limit", "it must be above zero, or no transactional step ends in time");
        }
        if self.data_limit == 0 || self.data_limit > crate::limits::DATA_BYTES_MAX {
            return refuse("data_limit", "it must be 1 byte to 16 MiB");
        }
        if self.event_limit == 0 || self.event_limit > crate::limits::EVENT_BYTES_MAX {
            return refuse("event_limit", "it must be 1 byte to 1 MiB");
        }
        self.retention.validate(self.poll_interval)?;
        crate::name::check("node id", &self.node_id).map_err(|error| InvalidSetting::new("node_id", error.to_string()))
    }
}

/// Everything that carries [`WorkflowOptions`]: the options themselves, and a host's builder. Extension traits of providers
/// are implemented for all of them.
pub trait Configure: Sized {
    /// The options.
    fn options(&mut self) -> &mut WorkflowOptions;
}

impl Configure for WorkflowOptions {
    fn options(&mut self) -> &mut WorkflowOptions {
        self
    }
}

impl Configure for &mut WorkflowOptions {
    fn options(&mut self) -> &mut WorkflowOptions {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_shared_resource_is_opened_once_per_type_and_name() {
        let shared = SharedResources::default();
        let failed = shared.get_or_open::<String, _, _, _>("db", || async { Err(BoxError::from("down")) }).await;
        assert_eq!(failed.map_err(|error| error.to_string()), Err("down".to_owned()));
        let first = shared.get_or_open("db", || async { Ok::<_, BoxError>(String::from("x")) }).await.expect("opened");
        let again = shared.get_or_open("db", || async { Err::<String, _>(BoxError::from("twice")) }).await.expect("shared");
        assert!(Arc::ptr_eq(&first, &again));
        let other = shared.get_or_open("db", || async { Ok::<u8, BoxError>(1) }).await.expect("another type");
        assert_eq!(*other, 1);
    }

    #[test]
    fn k53_impossible_settings_are_refused_by_name() {
        let refused = |change: fn(&mut WorkflowOptions)| {
            let mut options = WorkflowOptions::default();
            change(&mut options);
            options.validate().map_err(|error| error.setting)
        };
        assert_eq!(refused(|_| {}), Ok(()));
        assert_eq!(refused(|o| o.poll_interval = Duration::ZERO), Err("poll_interval"));
        assert_eq!(refused(|o| o.idle_time = Duration::ZERO), Err("idle_time"));
        assert_eq!(refused(|o| o.max_concurrent_workflows = 0), Err("max_concurrent_workflows"));
        assert_eq!(refused(|o| o.max_concurrent_steps = 0), Err("max_concurrent_steps"));
        assert_eq!(refused(|o| o.error_retry_interval = Duration::ZERO), Err("error_retry_interval"));
        assert_eq!(refused(|o| o.burst_budget = Duration::ZERO), Err("burst_budget"));
        assert_eq!(refused(|o| o.data_limit = 17 << 20), Err("data_limit"));
        assert_eq!(refused(|o| o.event_limit = 0), Err("event_limit"));
        assert_eq!(refused(|o| o.node_id = "".into()), Err("node_id"));
    }
}
