use crate::{BoxError, name::InvalidName};

/// What can go wrong with a lock. Contention is not an error: it is `Ok(None)`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The key breaks a rule; see [`name`](crate::name).
    #[error(transparent)]
    InvalidKey(#[from] InvalidName),
    /// The lock service cannot be reached or did not answer. Worth another try.
    #[error("the {provider} lock service is unavailable while working on `{key}`")]
    #[non_exhaustive]
    Unavailable {
        /// The provider, for example `sqlserver`.
        provider: &'static str,
        /// The key that was asked for.
        key: String,
        /// What happened.
        #[source]
        source: BoxError,
    },
    /// The server chose this request as a deadlock's victim. Worth another try.
    #[error("the {provider} lock service ended the wait for `{key}` to break a deadlock")]
    #[non_exhaustive]
    Deadlock {
        /// The provider.
        provider: &'static str,
        /// The key that was asked for.
        key: String,
    },
    /// The server refused the request for another reason; the same request will be refused again.
    #[error("the {provider} lock service refused `{key}`: {reason}")]
    #[non_exhaustive]
    Refused {
        /// The provider.
        provider: &'static str,
        /// The key that was asked for.
        key: String,
        /// What the server said.
        reason: String,
    },
    /// The provider cannot do what was asked; its capabilities say so.
    #[error("{provider} locks have no {what}")]
    #[non_exhaustive]
    Unsupported {
        /// The provider.
        provider: &'static str,
        /// What is missing, for example `shared mode`.
        what: &'static str,
    },
    /// The provider was stopped.
    #[error("the {provider} lock provider was stopped")]
    #[non_exhaustive]
    Stopped {
        /// The provider.
        provider: &'static str,
    },
}

impl LockError {
    /// The service of `provider` could not be reached, or did not answer.
    pub fn unavailable(provider: &'static str, key: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::Unavailable { provider, key: key.into(), source: source.into() }
    }

    /// The server broke a deadlock at the cost of this request.
    pub fn deadlock(provider: &'static str, key: impl Into<String>) -> Self {
        Self::Deadlock { provider, key: key.into() }
    }

    /// The server refused this request, and would again.
    pub fn refused(provider: &'static str, key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Refused { provider, key: key.into(), reason: reason.into() }
    }

    /// The provider lacks a capability.
    #[must_use]
    pub fn unsupported(provider: &'static str, what: &'static str) -> Self {
        Self::Unsupported { provider, what }
    }

    /// The provider was stopped.
    #[must_use]
    pub fn stopped(provider: &'static str) -> Self {
        Self::Stopped { provider }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Deadlock { .. })
    }
}

/// For providers: what went wrong with a request on which several callers wait, for each of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct Failure {
    /// Whether the same request may succeed later.
    pub is_transient: bool,
    /// What happened; without secrets.
    pub text: String,
}

impl Failure {
    /// Worth another try.
    pub fn transient(text: &(impl ToString + ?Sized)) -> Self {
        Self { is_transient: true, text: text.to_string() }
    }

    /// The same request will be refused again.
    pub fn lasting(text: &(impl ToString + ?Sized)) -> Self {
        Self { is_transient: false, text: text.to_string() }
    }

    /// The error of one caller, who worked on this key.
    #[must_use]
    pub fn of(&self, provider: &'static str, key: &str) -> LockError {
        if self.is_transient {
            LockError::unavailable(provider, key, self.clone())
        } else {
            LockError::refused(provider, key, self.text.clone())
        }
    }
}
