use super::{Skipped, StoreFixture, cases, tools::Nodes};
use latchwork_core::BoxError;
use std::{fmt, pin::Pin};

/// How a case ends for the suite's own code.
pub(super) type Checked = Result<(), Stop>;

/// Why a case stopped before its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// The store does not claim what the case is about.
    Skipped(&'static str),
    /// The store did something wrong.
    Failed(String),
}

impl<E: Into<BoxError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(format!("unexpected error: {}", chain(&*error.into())))
    }
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// One promise of the store contract, and the code that tries to break it.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    run: for<'a> fn(&'a Nodes) -> Pin<Box<dyn Future<Output = Checked> + Send + 'a>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

impl Case {
    /// All cases.
    #[must_use]
    pub fn all() -> Vec<Self> {
        crate::store_conformance!(@list cases)
    }

    /// The case of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|case| case.name == name)
    }

    /// Its name, which reads as the promise.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// A promise was broken, or the fixture could not be made.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("store conformance, case `{case}`: {reason}")]
#[non_exhaustive]
pub struct CaseFailed {
    /// The case.
    pub case: String,
    /// What was expected, and what happened.
    pub reason: String,
}

// Shown by `cargo test` for a test that returns it.
impl fmt::Debug for CaseFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What [`run_all`] found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
#[must_use = "a report says whether the store failed"]
pub struct Report {
    /// The cases that hold.
    pub passed: Vec<&'static str>,
    /// The cases that do not apply, each with what the store lacks.
    pub skipped: Vec<(&'static str, &'static str)>,
    /// The cases that fail.
    pub failed: Vec<CaseFailed>,
}

impl Report {
    fn note(&mut self, case: Case, result: Result<Option<&'static str>, CaseFailed>) {
        match result {
            Ok(None) => self.passed.push(case.name),
            Ok(Some(why)) => self.skipped.push((case.name, why)),
            Err(failed) => self.failed.push(failed),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} passed, {} skipped, {} failed", self.passed.len(), self.skipped.len(), self.failed.len())?;
        self.skipped.iter().try_for_each(|(case, why)| writeln!(f, "skipped `{case}`: {why}"))?;
        self.failed.iter().try_for_each(|failed| writeln!(f, "{failed}"))
    }
}

/// Runs one case on a fresh fixture, and stops its nodes after it. Needs a multi-threaded Tokio runtime with time.
///
/// # Errors
/// [`CaseFailed`] when the promise is broken, it does not end within the fixture's limit of time, or the factory fails.
pub async fn run<F, M, Fut>(case: Case, factory: M) -> Result<(), CaseFailed>
where
    F: StoreFixture,
    M: Fn() -> Fut,
    Fut: Future<Output = Result<F, BoxError>>,
{
    finding(case, &factory).await.map(drop)
}

/// Runs all cases, each on a fresh fixture, one after the other, to the end also when some fail.
pub async fn run_all<F, M, Fut>(factory: M) -> Report
where
    F: StoreFixture,
    M: Fn() -> Fut,
    Fut: Future<Output = Result<F, BoxError>>,
{
    let mut report = Report::default();
    for case in Case::all() {
        report.note(case, finding(case, &factory).await);
    }
    report
}

/// For [`store_conformance!`](crate::store_conformance): runs the case of this name on a runtime of its own.
///
/// # Errors
/// As [`run`]; also when there is no case of this name.
#[doc(hidden)]
pub fn block_on<F, M, Fut>(name: &str, factory: M) -> Result<(), CaseFailed>
where
    F: StoreFixture,
    M: Fn() -> Fut,
    Fut: Future<Output = Result<F, BoxError>>,
{
    let failed = |reason: String| CaseFailed { case: name.to_owned(), reason };
    let case = Case::named(name).ok_or_else(|| failed("there is no such case".to_owned()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| failed(format!("no Tokio runtime could be made: {error}")))?;
    if let Some(why) = runtime.block_on(finding(case, &factory))? {
        println!("skipped: {why}");
    }
    Ok(())
}

/// What a case finds: nothing, or why it does not apply.
async fn finding<F, M, Fut>(case: Case, factory: &M) -> Result<Option<&'static str>, CaseFailed>
where
    F: StoreFixture,
    M: Fn() -> Fut,
    Fut: Future<Output = Result<F, BoxError>>,
{
    let failed = |reason: String| CaseFailed { case: case.name.to_owned(), reason };
    let fixture = match factory().await {
        Ok(fixture) => fixture,
        Err(error) => match error.downcast_ref::<Skipped>() {
            Some(Skipped(why)) => return Ok(Some(why)),
            None => return Err(failed(format!("the fixture could not be made: {}", chain(&*error)))),
        },
    };
    let nodes = Nodes::open(Box::new(fixture)).await;
    let nodes = nodes.map_err(|error| failed(format!("two nodes could not be opened: {}", chain(&*error))))?;
    let limit = nodes.fixture.time_limit();
    let result = tokio::time::timeout(limit, (case.run)(&nodes)).await;
    nodes.stop().await;
    match result {
        Ok(Ok(())) => Ok(None),
        Ok(Err(Stop::Skipped(why))) => Ok(Some(why)),
        Ok(Err(Stop::Failed(reason))) => Err(failed(reason)),
        Err(_) => Err(failed(format!("it did not end within {limit:?}; something waits for ever"))),
    }
}
