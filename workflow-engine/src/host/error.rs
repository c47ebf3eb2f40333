use crate::{DefinitionError, ServiceMissing};
use latchwork_core::{
    BoxError, Scope,
    clock::Timestamp,
    name::InvalidName,
    options::InvalidSetting,
    store::{InstanceId, StoreError, WorkflowStatus},
};

/// What can go wrong with a host and its calls.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A workflow's definition is not sound.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A setting cannot work.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// A name or key breaks a rule.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The same definition and version was registered twice.
    #[error("workflow `{definition}` version {version} is registered twice; give the changed one a new version")]
    #[non_exhaustive]
    RegisteredTwice {
        /// The definition.
        definition: String,
        /// The version.
        version: u32,
    },
    /// A step starts a workflow that the host does not have.
    #[error(
        "workflow `{definition}` version {version}, step `{step}` starts workflow `{workflow}` version {called}, which is not registered; \
         add it with `.workflow(..)` on the host's builder"
    )]
    #[non_exhaustive]
    SubWorkflow {
        /// The definition.
        definition: String,
        /// The version.
        version: u32,
        /// The step.
        step: String,
        /// The workflow that it starts.
        workflow: String,
        /// That workflow's version.
        called: u32,
    },
    /// A step is transactional, and the store has no transactions for steps.
    #[error(
        "workflow `{definition}` version {version}, step `{step}` is transactional, and the store `{store}` has no transactions for steps"
    )]
    #[non_exhaustive]
    NoTransactions {
        /// The definition.
        definition: String,
        /// The version.
        version: u32,
        /// The step.
        step: String,
        /// The store.
        store: String,
    },
    /// A middleware refused the start of an instance.
    #[error("a middleware refused to start workflow `{definition}`: {reason}")]
    #[non_exhaustive]
    Middleware {
        /// The definition.
        definition: String,
        /// What it said.
        reason: String,
    },
    /// A step needs a service that the host does not have.
    #[error("workflow `{definition}` version {version}, step `{step}`: {source}")]
    #[non_exhaustive]
    Service {
        /// The definition.
        definition: String,
        /// The version.
        version: u32,
        /// The step.
        step: String,
        /// Which service.
        source: ServiceMissing,
    },
    /// A provider could not be made.
    #[error("the {role} could not be opened")]
    #[non_exhaustive]
    Provider {
        /// `lock provider`, `queue`, `store` or `event hub`.
        role: &'static str,
        /// What happened.
        #[source]
        source: BoxError,
    },
    /// The host has no provider for this role.
    #[error("the host has no {role}; choose one with a `use_...` call on its builder")]
    #[non_exhaustive]
    NoProvider {
        /// `lock provider`, `queue` or `store`.
        role: &'static str,
    },
    /// The locks do not reach as far as the store, so two nodes could run one instance.
    #[error(
        "the store `{store}` can be reached by every process of its {store_scope}, the locks `{lock}` exclude only those of one \
         {lock_scope}: two nodes could run the same instance. Use locks of scope {store_scope} or wider{advice}"
    )]
    #[non_exhaustive]
    LockScope {
        /// The lock service.
        lock: String,
        /// How far it reaches.
        lock_scope: Scope,
        /// The store.
        store: String,
        /// How far it reaches.
        store_scope: Scope,
        /// What else would do.
        advice: &'static str,
    },
    /// The store belongs to hosts with another namespace or lock service, which do not exclude this one.
    #[error(
        "the store is used by hosts of namespace `{stored_namespace}` with locks of `{stored_lock}`; this host has namespace \
         `{namespace}` and locks of `{lock}`, so they would not exclude each other. Use theirs, or, when they are all gone, start once \
         with `replace_identity`"
    )]
    #[non_exhaustive]
    Identity {
        /// The namespace in the store.
        stored_namespace: String,
        /// The lock service in the store.
        stored_lock: String,
        /// This host's namespace.
        namespace: String,
        /// This host's lock service.
        lock: String,
    },
    /// No such workflow is registered on this host.
    #[error("no workflow `{definition}`{} is registered on this host", .version.map(|v| format!(" version {v}")).unwrap_or_default())]
    #[non_exhaustive]
    UnknownWorkflow {
        /// The definition.
        definition: String,
        /// The version that was asked for.
        version: Option<u32>,
    },
    /// Open instances of this version have another shape.
    #[error(
        "workflow `{definition}` version {version} has changed while instances of it are open, so no instance is started here: \
         {difference}. Give the changed workflow a new version"
    )]
    #[non_exhaustive]
    ShapeChanged {
        /// The definition.
        definition: String,
        /// The version.
        version: u32,
        /// What changed.
        difference: String,
    },
    /// The data cannot be written as JSON, or read from it.
    #[error("the {what} cannot be converted")]
    #[non_exhaustive]
    Data {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// Something is larger than the limit.
    #[error("the {what} has {bytes} bytes of JSON, the limit is {limit}")]
    #[non_exhaustive]
    TooLarge {
        /// What.
        what: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No such instance.
    #[error("there is no instance {instance}")]
    #[non_exhaustive]
    NotFound {
        /// What was asked for.
        instance: String,
    },
    /// The instance has ended already.
    #[error("instance {instance} has ended already: it is {status}")]
    #[non_exhaustive]
    AlreadyEnded {
        /// The instance.
        instance: InstanceId,
        /// How.
        status: WorkflowStatus,
    },
    /// The instance was terminated, so there is no result.
    #[error("instance {instance} was terminated{}", .reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default())]
    #[non_exhaustive]
    Terminated {
        /// The instance.
        instance: InstanceId,
        /// Why.
        reason: Option<String>,
    },
    /// The instance has not ended in time. It goes on.
    #[error("instance {instance} has not ended in time; it is {status}{}", .reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default())]
    #[non_exhaustive]
    TimedOut {
        /// The instance.
        instance: InstanceId,
        /// Where it stands.
        status: WorkflowStatus,
        /// Why it stands there.
        reason: Option<String>,
    },
    /// The instance was deleted, and its data with it, which was too large to be kept (8 KiB).
    #[error("instance {instance} ended as {status} at {ended}, and its data was deleted since")]
    #[non_exhaustive]
    Deleted {
        /// The instance.
        instance: InstanceId,
        /// How it ended.
        status: WorkflowStatus,
        /// When.
        ended: Timestamp,
    },
    /// The host does not do this, by its settings.
    #[error("this host may not {action}: its setting `{setting}` is off")]
    #[non_exhaustive]
    SwitchedOff {
        /// What was asked.
        action: &'static str,
        /// The setting.
        setting: &'static str,
    },
    /// A provider did not stop cleanly.
    #[error("the {role} did not stop cleanly")]
    #[non_exhaustive]
    Stop {
        /// `lock provider`, `queue`, `store` or `event hub`.
        role: &'static str,
        /// What happened.
        #[source]
        source: BoxError,
    },
}

impl HostError {
    pub(super) fn provider(role: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Provider { role, source: source.into() }
    }

    pub(super) fn refused(definition: &str, error: &crate::StepError) -> Self {
        Self::Middleware { definition: definition.to_owned(), reason: error.to_string() }
    }

    pub(super) fn data(what: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::Data { what: what.into(), source: source.into() }
    }

    pub(super) fn not_found(instance: impl std::fmt::Display) -> Self {
        Self::NotFound { instance: instance.to_string() }
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::TimedOut { .. } => true,
            _ => false,
        }
    }
}
