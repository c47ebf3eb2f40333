use crate::BoxError;

/// What kind of thing went wrong in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// It cannot be reached, is busy, or did not answer. Nothing was written, or the write can be repeated.
    Unavailable,
    /// The disk or a quota is full. Nothing was written.
    Full,
    /// The write is larger than the store takes. It will never be written.
    TooLarge,
    /// The store refused the values. It will never be written.
    Invalid,
    /// The schema is missing, older or newer than this version knows.
    Schema,
    /// The store does not let us: read-only, or a permission is missing.
    Denied,
    /// What is stored cannot be read.
    Corrupt,
    /// The store cannot do what was asked; its capabilities say so.
    Unsupported,
    /// The provider was stopped.
    Stopped,
}

/// What went wrong in a store, with what, and why.
#[derive(Debug, thiserror::Error)]
#[error("the {store} store failed to {action}{}{advice}", if .advice.is_empty() { "" } else { ": " })]
#[non_exhaustive]
pub struct StoreError {
    /// What kind of failure it is.
    pub kind: StoreErrorKind,
    /// The store, for example `sqlite orders.db`, without secrets.
    pub store: String,
    /// What was tried, for example `commit 12 checkpoints`.
    pub action: String,
    /// What to do about it, where there is something; may be empty.
    pub advice: String,
    /// What happened.
    #[source]
    pub source: Option<BoxError>,
}

impl StoreError {
    /// A failure of `store` to do `action`.
    pub fn new(kind: StoreErrorKind, store: impl Into<String>, action: impl Into<String>) -> Self {
        Self { kind, store: store.into(), action: action.into(), advice: String::new(), source: None }
    }

    /// With its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// With what to do about it.
    #[must_use]
    pub fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    /// Whether the same call may succeed later without a change to it.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable | StoreErrorKind::Full | StoreErrorKind::Denied)
    }
}
