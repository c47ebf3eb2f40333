use latchwork_core::BoxError;
use std::{error::Error, fmt};

/// How a case ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The provider does as it should.
    Passed,
    /// The case does not apply.
    Skipped {
        /// Why not.
        reason: &'static str,
    },
}

impl Verdict {
    pub(super) const fn skipped(reason: &'static str) -> Self {
        Self::Skipped { reason }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Skipped { reason } => write!(f, "skipped: {reason}"),
        }
    }
}

/// What a provider did wrong. Made from any error, and therefore none itself.
#[derive(Debug)]
pub struct Fault(String);

impl Fault {
    /// A fault described by this text.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl<E: Into<BoxError>> From<E> for Fault {
    fn from(error: E) -> Self {
        let error = error.into();
        let mut text = format!("unexpected error: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Self(text)
    }
}

/// A case that failed.
#[derive(Clone, Debug)]
pub struct CaseFailed {
    case: &'static str,
    what: String,
}

impl CaseFailed {
    pub(super) fn new(case: &'static str, fault: Fault) -> Self {
        Self { case, what: fault.0 }
    }

    /// The case's name.
    #[must_use]
    pub fn case(&self) -> &'static str {
        self.case
    }
}

impl fmt::Display for CaseFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue conformance, case `{}`: {}", self.case, self.what)
    }
}

impl Error for CaseFailed {}

/// What became of each case.
#[derive(Clone, Debug, Default)]
#[must_use = "a report says whether the provider failed"]
pub struct Report {
    results: Vec<(&'static str, Result<Verdict, CaseFailed>)>,
}

impl Report {
    pub(super) fn note(&mut self, case: &'static str, result: Result<Verdict, CaseFailed>) {
        self.results.push((case, result));
    }

    /// Every case with its result, in the order in which they ran.
    pub fn results(&self) -> &[(&'static str, Result<Verdict, CaseFailed>)] {
        &self.results
    }

    /// The cases that failed.
    pub fn failures(&self) -> impl Iterator<Item = &CaseFailed> {
        self.results.iter().filter_map(|(_, result)| result.as_ref().err())
    }

    /// The first failure, if there is one.
    ///
    /// # Errors
    /// The first failure.
    pub fn into_result(self) -> Result<(), CaseFailed> {
        self.results.into_iter().try_for_each(|(_, result)| result.map(drop))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (case, result) in &self.results {
            match result {
                Ok(verdict) => writeln!(f, "{case}: {verdict}")?,
                Err(failed) => writeln!(f, "{case}: FAILED: {}", failed.what)?,
            }
        }
        Ok(())
    }
}
