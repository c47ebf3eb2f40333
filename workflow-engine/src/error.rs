//! Errors of step bodies.

use latchwork_core::BoxError;
use std::{fmt, time::Duration};

/// What a step body ends with.
pub type StepResult<T = crate::ExecutionResult> = Result<T, StepError>;

/// Why a body failed. Takes any error by `?`, also a string's: `Err("no stock".into())`.
///
/// Not an [`std::error::Error`] itself, or it could not take them all. What is stored and shown is the error with its causes.
pub struct StepError {
    source: BoxError,
    permanent: bool,
    retry_after: Option<Duration>,
}

impl<E: Into<BoxError>> From<E> for StepError {
    fn from(error: E) -> Self {
        Self { source: error.into(), permanent: false, retry_after: None }
    }
}

impl StepError {
    /// An error that another try cannot mend: the step is not retried.
    #[must_use]
    pub fn permanent(error: impl Into<BoxError>) -> Self {
        Self { permanent: true, ..Self::from(error.into()) }
    }

    /// Asks for the next try no sooner than after this time, for example because a service said so.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Whether another try cannot mend it.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// The shortest time to the next try that was asked for.
    #[must_use]
    pub fn retry_after_hint(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The error itself.
    #[must_use]
    pub fn source(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.source
    }
}

impl fmt::Debug for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepError").field("source", &self.source).field("permanent", &self.permanent).finish_non_exhaustive()
    }
}

impl fmt::Display for StepError {
    /// The error and its causes, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        let mut cause = self.source.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_a_step_error_and_shows_its_causes() {
        fn fails() -> StepResult<()> {
            "twelve".parse::<u32>()?;
            Ok(())
        }
        assert!(fails().is_err_and(|error| error.to_string().contains("invalid digit")));
        let error = StepError::from("no stock").retry_after(Duration::from_secs(3));
        assert_eq!((error.to_string().as_str(), error.is_permanent()), ("no stock", false));
        assert_eq!(error.retry_after_hint(), Some(Duration::from_secs(3)));
        assert!(StepError::permanent("bad card").is_permanent());
    }
}
