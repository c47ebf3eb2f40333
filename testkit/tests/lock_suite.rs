//! The lock suite itself: it passes what is right, and each planted fault fails the case that is about it.

#![cfg(feature = "lock")]

use latchwork_core::{
    BoxError, async_trait,
    lock::{
        DistributedLockProvider, LockCapabilities, LockError, LockGuard, LockKey, LockMode, LockRequest, Loss, LossDetection,
        LossSignal, Release, Wait,
    },
    name::Namespace,
};
use latchwork_lock_local::LocalLocks;
use latchwork_testkit::lock::{Case, Fixture, run, run_all, run_all_but};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Semaphore, oneshot};

/// What is wrong with a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    ContentionIsAnError,
    EachNodeHasItsOwnLocks,
    AProviderMayHoldTwice,
    DropLeaks,
    ReleaseAnswersBeforeItFrees,
    ReleaseFreesByName,
    TokenStaysTheSame,
    TokenIsMissing,
    HealthyGrantIsLost,
    WaitEndsEarly,
    WaitForEverEnds,
    WaitersRace,
    ReleaseNeedsAConnectionOfThePool,
    CancelledWaitLeaks,
    StopIsSilent,
    StopTakesTheOtherWithIt,
    StopIsForgotten,
    BreakIsSilent,
    BreakIsForGood,
    DomainsDiffer,
    CapitalsAreFolded,
    NamesAreCut,
    ExclamationIsDropped,
    SharedIsExclusive,
    ReadersOvertakeWriters,
    FewLocksAtOnce,
}

/// A provider with sessions, over local locks: right without a fault.
#[derive(Debug)]
struct Toy {
    session: Mutex<LocalLocks>,
    shared: Arc<Shared>,
    fault: Fault,
    domain: &'static str,
}

/// What outlives a session.
#[derive(Debug, Default)]
struct Shared {
    stopped: Mutex<bool>,
    losses: Mutex<Vec<LossSignal>>,
    /// For releases by name.
    by_name: Mutex<HashMap<LockKey, LockGuard>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pool of connections of which each waiter needs one, and each release.
static POOL: Semaphore = Semaphore::const_new(100);

struct Back {
    guard: Option<LockGuard>,
    key: LockKey,
    shared: Arc<Shared>,
    fault: Fault,
}

impl Release for Back {
    fn release(self: Box<Self>, reply: Option<oneshot::Sender<Result<(), LockError>>>) {
        let answer = move || {
            if let Some(reply) = reply {
                let _ = reply.send(Ok(()));
            }
        };
        match self.fault {
            Fault::DropLeaks => std::mem::forget(self.guard),
            Fault::ReleaseFreesByName => {
                let guard = locked(&self.shared.by_name).remove(&self.key);
                drop(guard);
                answer();
            }
            Fault::ReleaseAnswersBeforeItFrees => {
                answer();
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(5));
                    drop(self.guard);
                });
            }
            Fault::ReleaseNeedsAConnectionOfThePool => {
                tokio::spawn(async move {
                    let _connection = POOL.acquire().await;
                    drop(self.guard);
                    answer();
                });
            }
            _ => {
                drop(self.guard);
                answer();
            }
        }
    }
}

impl Toy {
    fn new(locks: &LocalLocks, fault: Fault, domain: &'static str) -> Self {
        Self { session: Mutex::new(locks.peer()), shared: Arc::default(), fault, domain }
    }

    fn wrap(&self, guard: LockGuard) -> LockGuard {
        let loss = LossSignal::new();
        locked(&self.shared.losses).push(loss.clone());
        if self.fault == Fault::HealthyGrantIsLost {
            let loss = loss.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                loss.fire(Loss::LeaseExpired);
            });
        }
        let token = match self.fault {
            Fault::TokenStaysTheSame => Some(1),
            Fault::TokenIsMissing => None,
            _ => guard.fencing_token(),
        };
        let key = guard.key().clone();
        let mut back = Back { guard: Some(guard), key: key.clone(), shared: self.shared.clone(), fault: self.fault };
        if self.fault == Fault::ReleaseFreesByName
            && let Some(guard) = back.guard.take()
        {
            locked(&self.shared.by_name).insert(key.clone(), guard);
        }
        LockGuard::new(key, token, loss, back)
    }

    /// Another grant of what is held.
    fn counterfeit(&self, key: LockKey) -> LockGuard {
        let back = Back { guard: None, key: key.clone(), shared: self.shared.clone(), fault: Fault::None };
        LockGuard::new(key, None, LossSignal::new(), back)
    }

    fn fold(&self, key: &LockKey) -> Result<LockKey, BoxError> {
        let namespace = Namespace::default();
        let name = key.as_str().strip_prefix("wfc:").unwrap_or_default();
        Ok(match self.fault {
            Fault::CapitalsAreFolded => LockKey::new(&namespace, &name.to_lowercase())?,
            Fault::NamesAreCut => LockKey::new(&namespace, latchwork_core::limits::cut(name, 250).trim_end())?,
            Fault::ExclamationIsDropped => LockKey::new(&namespace, name.trim_start_matches('!'))?,
            _ => key.clone(),
        })
    }

    fn fire(&self, why: Loss) {
        locked(&self.shared.losses).drain(..).for_each(|loss| loss.fire(why));
    }

    /// The session ends as by a failure; the next call has a new one.
    async fn break_session(&self) {
        let session = locked(&self.session).clone();
        if self.fault != Fault::BreakIsSilent {
            self.fire(Loss::SessionClosed);
        }
        if self.fault != Fault::BreakIsForGood {
            *locked(&self.session) = session.peer();
        }
        let _ = session.stop(Duration::ZERO).await;
    }

    async fn ask(&self, mut request: LockRequest) -> Result<Option<LockGuard>, LockError> {
        let session = locked(&self.session).clone();
        if self.fault == Fault::FewLocksAtOnce && session.held_names() >= 200 {
            return Err(LockError::unavailable("toy", request.key.as_str(), "too many connections"));
        }
        let asked = request.key.clone();
        request.key = self.fold(&asked).map_err(|error| LockError::refused("toy", asked.as_str(), error.to_string()))?;
        match (self.fault, request.wait) {
            (Fault::SharedIsExclusive, _) => request.mode = LockMode::Exclusive,
            (Fault::WaitEndsEarly, Wait::UpTo(wait)) => request.wait = Wait::UpTo(wait / 3),
            (Fault::WaitForEverEnds, Wait::Forever) => request.wait = Wait::UpTo(Duration::from_millis(50)),
            (Fault::WaitersRace, Wait::Forever) => {
                // Each tries for itself, at random times.
                loop {
                    if let Some(guard) = session.acquire(request.clone().with_wait(Wait::No)).await? {
                        return Ok(Some(guard));
                    }
                    let pause = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0) % 5_000;
                    tokio::time::sleep(Duration::from_micros(pause)).await;
                }
            }
            _ => {}
        }
        let _connection = match (self.fault, request.wait) {
            (Fault::ReleaseNeedsAConnectionOfThePool, Wait::Forever) => POOL.acquire().await.ok(),
            _ => None,
        };
        if self.fault == Fault::CancelledWaitLeaks {
            let (sender, receiver) = oneshot::channel();
            tokio::spawn(async move {
                let acquired = session.acquire(request).await;
                // A pooled connection keeps its lock.
                if let Err(Ok(Some(guard))) = sender.send(acquired) {
                    std::mem::forget(guard);
                }
            });
            return receiver.await.unwrap_or(Ok(None));
        }
        session.acquire(request).await
    }
}

#[async_trait]
impl DistributedLockProvider for Toy {
    fn capabilities(&self) -> LockCapabilities {
        let local = locked(&self.session).capabilities();
        LockCapabilities::new(local.scope, LossDetection::Session, self.domain).with_fencing().with_shared()
    }

    fn namespace(&self) -> &Namespace {
        static NAMESPACE: std::sync::LazyLock<Namespace> = std::sync::LazyLock::new(Namespace::default);
        &NAMESPACE
    }

    async fn acquire(&self, request: LockRequest) -> Result<Option<LockGuard>, LockError> {
        let (key, mode) = (request.key.clone(), request.mode);
        let acquired = match self.ask(request).await {
            // A broken session is not a stopped provider.
            Err(LockError::Stopped { .. }) if !*locked(&self.shared.stopped) => {
                return Err(LockError::unavailable("toy", key.as_str(), "the session was closed"));
            }
            acquired => acquired?,
        };
        match acquired {
            Some(guard) => Ok(Some(self.wrap(guard))),
            None => match self.fault {
                Fault::ContentionIsAnError => Err(LockError::unavailable("toy", key.as_str(), "it is held")),
                Fault::AProviderMayHoldTwice => Ok(Some(self.counterfeit(key))),
                Fault::ReadersOvertakeWriters if mode == LockMode::Shared => Ok(Some(self.counterfeit(key))),
                _ => Ok(None),
            },
        }
    }

    async fn check(&self) -> Result<(), LockError> {
        Ok(())
    }

    async fn stop(&self, grace: Duration) -> Result<(), LockError> {
        *locked(&self.shared.stopped) = true;
        if self.fault != Fault::StopIsSilent {
            self.fire(Loss::Stopped);
        }
        locked(&self.shared.by_name).clear();
        let session = locked(&self.session).clone();
        if self.fault == Fault::StopIsForgotten {
            *locked(&self.session) = session.peer();
        }
        session.stop(grace).await
    }
}

/// A shared handle, so that the fixture can break what it also hands out.
#[derive(Clone, Debug)]
struct Handle(Arc<Toy>);

#[async_trait]
impl DistributedLockProvider for Handle {
    fn capabilities(&self) -> LockCapabilities {
        self.0.capabilities()
    }
    fn namespace(&self) -> &Namespace {
        self.0.namespace()
    }
    async fn acquire(&self, request: LockRequest) -> Result<Option<LockGuard>, LockError> {
        self.0.acquire(request).await
    }
    async fn check(&self) -> Result<(), LockError> {
        self.0.check().await
    }
    async fn stop(&self, grace: Duration) -> Result<(), LockError> {
        self.0.stop(grace).await
    }
}

async fn two_nodes(fault: Fault) -> Result<Fixture, BoxError> {
    let locks = LocalLocks::new();
    let one = Handle(Arc::new(Toy::new(&locks, fault, "toy")));
    let breaks = one.clone();
    let with_break = move |fixture: Fixture| {
        fixture.with_many(500).with_patience(Duration::from_secs(3)).with_break(move || {
            let breaks = breaks.clone();
            async move { breaks.0.break_session().await }
        })
    };
    Ok(with_break(match fault {
        Fault::EachNodeHasItsOwnLocks => Fixture::new(one, Toy::new(&LocalLocks::new(), fault, "toy")),
        Fault::DomainsDiffer => Fixture::new(one, Toy::new(&locks, fault, "toy-2")),
        Fault::StopTakesTheOtherWithIt => Fixture::new(one.clone(), one),
        _ => Fixture::new(one, Toy::new(&locks, fault, "toy")),
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn cases_can_be_left_out_by_name_with_a_reason() {
    let all: Vec<_> = Case::all().iter().map(|case| (case.name(), "as a test")).collect();
    let (spared, rest) = all.split_first().expect("cases");
    let report = run_all_but(rest, || two_nodes(Fault::None)).await;
    assert_eq!((report.passed, report.skipped, report.failed), (vec![spared.0], rest.to_vec(), vec![]));
    let with_another: Vec<_> = all.iter().copied().chain([("no_such_case", "as a test")]).collect();
    let report = run_all_but(&with_another, || two_nodes(Fault::None)).await;
    assert!(report.passed.is_empty());
    assert_eq!(report.failed.iter().map(|failed| &*failed.case).collect::<Vec<_>>(), ["no_such_case"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_right_passes_every_case() {
    let report = run_all(|| two_nodes(Fault::None)).await;
    assert_eq!(report.failed, []);
    assert_eq!(report.skipped, []);
    assert_eq!(report.passed.len(), Case::all().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_fails_the_case_that_is_about_it() {
    use Fault::*;
    let faults = [
        (ContentionIsAnError, "a_free_lock_is_granted_and_a_held_one_is_none", "contention must be `Ok(None)`"),
        (EachNodeHasItsOwnLocks, "a_free_lock_is_granted_and_a_held_one_is_none", "was granted, although it is held"),
        (EachNodeHasItsOwnLocks, "a_thousand_tasks_on_twenty_names_exclude_each_other", "two tasks were inside one lock"),
        (EachNodeHasItsOwnLocks, "k06_many_locks_are_held_at_once", "it is one of many that are held"),
        (EachNodeHasItsOwnLocks, "several_locks_are_taken_together_or_not_at_all", "it is part of a held set"),
        (EachNodeHasItsOwnLocks, "a_hold_limit_frees_and_signals", "before the holder was told"),
        (AProviderMayHoldTwice, "a_lock_is_held_twice_by_reenter_only", "not re-entrant by themselves"),
        (DropLeaks, "k51_a_dropped_guard_frees_the_lock", "its guard was dropped"),
        (DropLeaks, "a_guard_may_be_dropped_on_a_plain_thread", "outside a runtime"),
        (DropLeaks, "a_release_goes_on_when_its_future_is_dropped", "its future dropped"),
        (ReleaseAnswersBeforeItFrees, "a_release_frees_before_it_returns", "`release` returned, and the lock was still held"),
        (ReleaseFreesByName, "k50_a_broken_session_is_signalled_and_replaced", "only a guard from before its session broke"),
        (TokenStaysTheSame, "fencing_tokens_grow_over_hand_overs", "follows Some(1)"),
        (TokenIsMissing, "fencing_tokens_grow_over_hand_overs", "a guard has no token"),
        (HealthyGrantIsLost, "a_held_lock_is_not_signalled_as_lost", "a healthy grant was signalled as lost"),
        (WaitEndsEarly, "a_wait_ends_with_none_at_its_time_out", "gave up after"),
        (WaitForEverEnds, "a_wait_for_ever_ends_with_the_grant", "ended while the lock was held"),
        (WaitersRace, "waiters_of_one_process_are_served_in_order", "were served in the order"),
        (ReleaseNeedsAConnectionOfThePool, "k06_a_release_does_not_wait_behind_waiters", "while 150 others wait"),
        (CancelledWaitLeaks, "k07_a_cancelled_wait_leaves_nothing_held", "its waiter was dropped after"),
        (CancelledWaitLeaks, "k07_a_wait_cancelled_as_its_grant_arrives_leaves_nothing_held", "at the moment of the grant"),
        (CancelledWaitLeaks, "a_cancelled_try_leaves_nothing_held", "its acquire was dropped after"),
        (StopIsSilent, "stop_frees_all_signals_the_loss_and_ends_waits", "does not know that it is lost"),
        (StopTakesTheOtherWithIt, "stop_frees_all_signals_the_loss_and_ends_waits", ""),
        (StopIsForgotten, "a_stopped_provider_refuses_later_requests", "a stopped provider answered"),
        (BreakIsSilent, "k50_a_broken_session_is_signalled_and_replaced", "before its holder was told"),
        (BreakIsForGood, "k50_a_broken_session_is_signalled_and_replaced", "a grant after a broken session"),
        (DomainsDiffer, "a_service_describes_itself_and_answers", "two nodes name one service"),
        (CapitalsAreFolded, "look_alike_and_long_names_are_different_locks", "is taken for another one"),
        (NamesAreCut, "look_alike_and_long_names_are_different_locks", "is taken for another one"),
        (ExclamationIsDropped, "internal_keys_are_apart_from_names", "was not granted"),
        (SharedIsExclusive, "shared_holders_exclude_only_exclusive_ones", "a shared try was not granted"),
        (ReadersOvertakeWriters, "a_waiting_writer_is_not_starved_by_readers", "a reader overtook a writer"),
        (FewLocksAtOnce, "k06_many_locks_are_held_at_once", "too many connections"),
    ];
    let mut running = Vec::new();
    for (fault, name, reason) in faults {
        running.push(tokio::spawn(async move {
            let case = Case::named(name).ok_or_else(|| format!("there is no case `{name}`"))?;
            // Some cases race, and need not meet the fault at once on a machine that is busy.
            for _ in 0..5 {
                match run(case, || two_nodes(fault)).await {
                    Ok(()) => {}
                    Err(failed) if failed.case == name && failed.reason.contains(reason) => return Ok(()),
                    Err(failed) => return Err(format!("{fault:?} should fail with `{reason}`, and did with: {failed}")),
                }
            }
            Err(format!("{fault:?} passed `{name}`"))
        }));
    }
    let mut wrong = Vec::new();
    for run in running {
        wrong.extend(run.await.expect("no panic").err());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_case_can_be_found_by_its_name_and_names_are_unique() {
    let mut names: Vec<_> = Case::all().iter().map(Case::name).collect();
    assert!(Case::named("k51_a_dropped_guard_frees_the_lock").is_some());
    assert!(Case::named("nothing").is_none());
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Case::all().len());
}

#[tokio::test]
async fn a_fixture_that_cannot_be_made_is_a_failure_that_says_why() {
    let case = Case::all()[0];
    let failed = run(case, async || Err("the server is down".into())).await.expect_err("failed");
    assert!(failed.to_string().contains("the fixture could not be made: the server is down"), "{failed}");
    assert_eq!(format!("{failed:?}"), failed.to_string());
}
