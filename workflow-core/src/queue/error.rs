use crate::BoxError;

/// What can go wrong with a queue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The broker or database cannot be reached, or did not answer. Worth another try. What was sent may have arrived.
    #[error("the {provider} queue is unavailable while it should {action}")]
    #[non_exhaustive]
    Unavailable {
        /// The provider, for example `rabbitmq`.
        provider: &'static str,
        /// What was tried, for example `enqueue 3 items`.
        action: String,
        /// What happened.
        #[source]
        source: BoxError,
    },
    /// The queue's own set-up is wrong, or the request cannot ever succeed.
    #[error("the {provider} queue refused to {action}")]
    #[non_exhaustive]
    Refused {
        /// The provider.
        provider: &'static str,
        /// What was tried.
        action: String,
        /// What happened.
        #[source]
        source: BoxError,
    },
    /// The provider was stopped.
    #[error("the {provider} queue was stopped")]
    #[non_exhaustive]
    Stopped {
        /// The provider.
        provider: &'static str,
    },
}

impl QueueError {
    /// The queue could not be reached or did not answer.
    pub fn unavailable(provider: &'static str, action: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::Unavailable { provider, action: action.into(), source: source.into() }
    }

    /// The request cannot succeed.
    pub fn refused(provider: &'static str, action: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::Refused { provider, action: action.into(), source: source.into() }
    }

    /// The provider was stopped.
    #[must_use]
    pub fn stopped(provider: &'static str) -> Self {
        Self::Stopped { provider }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}
