use super::{Fixture, cases};
use latchwork_core::{BoxError, lock::LockError, name::InvalidName};
use std::{fmt, pin::Pin, time::Duration};

/// Longest a case may last; a provider that hangs fails with its case's name.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Longest the providers may take to stop after a case.
const STOP: Duration = Duration::from_secs(10);

/// How a case ends for the suite's own code.
pub(super) type Checked = Result<Verdict, Failed>;

/// What a case found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// The provider does not claim what the case is about.
    Skipped(&'static str),
}

/// Why a case failed.
#[derive(Debug)]
pub(super) struct Failed(pub(super) String);

impl From<LockError> for Failed {
    fn from(error: LockError) -> Self {
        Self(format!("the provider answered with an error: {}", chain(&error)))
    }
}

impl From<InvalidName> for Failed {
    fn from(error: InvalidName) -> Self {
        Self(format!("the suite made a bad name: {error}"))
    }
}

impl From<tokio::task::JoinError> for Failed {
    fn from(error: tokio::task::JoinError) -> Self {
        Self(format!("a task of the case ended early: {error}"))
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

/// One promise of the lock contract, and the code that tries to break it.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    run: for<'a> fn(&'a Fixture) -> Pin<Box<dyn Future<Output = Checked> + Send + 'a>>,
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
        crate::lock_conformance!(@list cases)
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
#[error("lock conformance, case `{case}`: {reason}")]
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
pub struct Report {
    /// The cases that hold.
    pub passed: Vec<&'static str>,
    /// The cases that do not apply, each with what the provider lacks.
    pub skipped: Vec<(&'static str, &'static str)>,
    /// The cases that fail.
    pub failed: Vec<CaseFailed>,
}

/// Runs one case on a fresh fixture, and stops both providers after it. Needs a multi-threaded Tokio runtime with time.
///
/// # Errors
/// [`CaseFailed`] when the promise is broken, nothing happens for two minutes, or the factory fails.
pub async fn run<F, Fut>(case: Case, factory: F) -> Result<(), CaseFailed>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<Fixture, BoxError>>,
{
    verdict(case, &factory).await.map(drop)
}

/// Runs all cases, each on a fresh fixture, one after the other.
pub async fn run_all<F, Fut>(factory: F) -> Report
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<Fixture, BoxError>>,
{
    run_all_but(&[], factory).await
}

/// As [`run_all`], without these cases, each named with the reason, which the report lists: for a service that is known not to bear them. A
/// name that no case has is a failure.
pub async fn run_all_but<F, Fut>(exceptions: &[(&'static str, &'static str)], factory: F) -> Report
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<Fixture, BoxError>>,
{
    let mut report = Report::default();
    for (name, reason) in exceptions {
        match Case::named(name) {
            Some(_) => report.skipped.push((name, reason)),
            None => report.failed.push(CaseFailed { case: (*name).to_owned(), reason: "there is no such case".to_owned() }),
        }
    }
    for case in Case::all() {
        if exceptions.iter().any(|(name, _)| *name == case.name) {
            continue;
        }
        match verdict(case, &factory).await {
            Ok(Verdict::Passed) => report.passed.push(case.name),
            Ok(Verdict::Skipped(why)) => report.skipped.push((case.name, why)),
            Err(failed) => report.failed.push(failed),
        }
    }
    report
}

/// For [`lock_conformance!`](crate::lock_conformance): runs the case of this name on a runtime of its own.
///
/// # Errors
/// As [`run`]; also when there is no case of this name.
#[doc(hidden)]
pub fn block_on<F, Fut>(name: &str, factory: F) -> Result<(), CaseFailed>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<Fixture, BoxError>>,
{
    let failed = |reason: String| CaseFailed { case: name.to_owned(), reason };
    let case = Case::named(name).ok_or_else(|| failed("there is no such case".to_owned()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| failed(format!("no Tokio runtime could be made: {error}")))?;
    match runtime.block_on(verdict(case, &factory))? {
        Verdict::Passed => {}
        Verdict::Skipped(why) => println!("skipped: {why}"),
    }
    Ok(())
}

async fn verdict<F, Fut>(case: Case, factory: &F) -> Result<Verdict, CaseFailed>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<Fixture, BoxError>>,
{
    let failed = |reason: String| CaseFailed { case: case.name.to_owned(), reason };
    let fixture = factory().await.map_err(|error| failed(format!("the fixture could not be made: {}", chain(&*error))))?;
    let result = tokio::time::timeout(TIME_LIMIT, cases::PATIENCE.scope(fixture.patience, (case.run)(&fixture))).await;
    for provider in [&fixture.one, &fixture.other] {
        // The case's own finding says more than a failed clean-up.
        let _ = tokio::time::timeout(STOP, provider.stop(STOP)).await;
    }
    match result {
        Ok(Ok(verdict)) => Ok(verdict),
        Ok(Err(Failed(reason))) => Err(failed(reason)),
        Err(_) => Err(failed(format!("it did not end within {TIME_LIMIT:?}; something waits for ever"))),
    }
}

/// Makes one `#[test]` per case of the lock suite, in the place where it stands.
///
/// Takes an async function or closure without arguments that makes a fresh
/// `Result<`[`Fixture`](crate::lock::Fixture)`, `[`BoxError`](latchwork_core::BoxError)`>`, after any attributes for the tests:
///
/// ```ignore
/// latchwork_testkit::lock_conformance!(two_nodes);
/// latchwork_testkit::lock_conformance!(#[ignore = "needs the server of MY_SERVER"] two_nodes);
/// ```
#[macro_export]
macro_rules! lock_conformance {
    (@with $then:ident $attributes:tt $factory:tt) => {
        $crate::lock_conformance! { @$then $attributes $factory
            a_free_lock_is_granted_and_a_held_one_is_none
            k51_a_dropped_guard_frees_the_lock
            a_guard_may_be_dropped_on_a_plain_thread
            a_release_frees_before_it_returns
            a_release_goes_on_when_its_future_is_dropped
            k08_a_stale_release_never_frees_a_newer_grant
            a_lock_is_held_twice_by_reenter_only
            a_held_lock_is_not_signalled_as_lost
            a_hold_limit_frees_and_signals
            fencing_tokens_grow_over_hand_overs
            the_pair_of_workflow_core_holds_and_frees
            a_wait_ends_with_none_at_its_time_out
            a_wait_is_granted_when_the_holder_frees
            a_wait_for_ever_ends_with_the_grant
            waiters_of_one_process_are_served_in_order
            k06_a_release_does_not_wait_behind_waiters
            a_cancelled_try_leaves_nothing_held
            k07_a_cancelled_wait_leaves_nothing_held
            k07_a_wait_cancelled_as_its_grant_arrives_leaves_nothing_held
            stop_frees_all_signals_the_loss_and_ends_waits
            a_stopped_provider_refuses_later_requests
            k50_a_broken_session_is_signalled_and_replaced
            a_service_describes_itself_and_answers
            bad_names_are_refused
            look_alike_and_long_names_are_different_locks
            internal_keys_are_apart_from_names
            several_locks_are_taken_together_or_not_at_all
            several_locks_taken_crosswise_never_wait_in_a_circle
            the_loss_of_one_of_several_locks_is_linked
            shared_holders_exclude_only_exclusive_ones
            a_waiting_writer_is_not_starved_by_readers
            a_cancelled_writer_lets_the_readers_behind_it_in
            a_thousand_tasks_on_twenty_names_exclude_each_other
            k06_many_locks_are_held_at_once
        }
    };
    (@list $cases:ident) => { $crate::lock_conformance!(@with cases [] $cases) };
    (@cases [] $cases:ident $($case:ident)*) => {
        vec![$(Case { name: stringify!($case), run: |fixture| Box::pin($cases::$case(fixture)) }),*]
    };
    (@tests $attributes:tt $factory:tt $($case:ident)*) => {
        $($crate::lock_conformance! { @test $attributes $factory $case })*
    };
    (@test [$($attribute:tt)*] [$factory:expr] $case:ident) => {
        $($attribute)*
        #[test]
        fn $case() -> ::std::result::Result<(), $crate::lock::CaseFailed> {
            $crate::lock::block_on(stringify!($case), $factory)
        }
    };
    ($(#[$attribute:meta])* $factory:expr) => {
        $crate::lock_conformance! { @with tests [$(#[$attribute])*] [$factory] }
    };
}
