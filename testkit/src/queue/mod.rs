//! The conformance suite for queue providers.
//!
//! Implement [`QueueFixture`] for your provider, and let [`queue_conformance!`](crate::queue_conformance) make one test of
//! each case:
//!
//! ```
//! # use latchwork_core::{Scope, queue::*};
//! # use std::time::Duration;
//! # #[derive(Debug)] pub struct MyQueue;
//! # impl MyQueue { async fn open(_: &str) -> Result<Self, QueueError> { Ok(Self) } }
//! # #[latchwork_core::async_trait] impl QueueProvider for MyQueue {
//! #   fn capabilities(&self) -> QueueCapabilities { QueueCapabilities::new(Scope::Cluster, Redelivery::Connection, "my") }
//! #   async fn enqueue(&self, _: QueueKind, _: &[WorkItem]) -> Result<(), QueueError> { Ok(()) }
//! #   async fn dequeue(&self, _: QueueKind, _: usize, _: Duration) -> Result<Vec<Delivery>, QueueError> { Ok(vec![]) }
//! #   async fn depth(&self, _: QueueKind) -> Result<QueueDepth, QueueError> { Ok(QueueDepth::default()) }
//! #   async fn stop(&self, _: Duration) -> Result<(), QueueError> { Ok(()) }
//! # }
//! use latchwork_testkit::queue::{BoxError, QueueFixture, async_trait};
//!
//! struct MyService;
//!
//! #[async_trait]
//! impl QueueFixture for MyService {
//!     type Queue = MyQueue;
//!     async fn node(&self) -> Result<MyQueue, BoxError> {
//!         Ok(MyQueue::open("queue of this test").await?)
//!     }
//! }
//!
//! latchwork_testkit::queue_conformance!(async || MyService);
//! ```
//!
//! The expression is called once per test and gives a fixture whose queue is empty, or an `Option` of one: with `None`, where a
//! service is not at hand, the test says that it is skipped. The tests need `tokio` with `macros` and
//! `rt-multi-thread` among the dev-dependencies. Cases choose themselves by the provider's
//! [capabilities](latchwork_core::queue::QueueCapabilities) and by what the fixture can do; [`run_all`] runs them in a row
//! and says which were skipped and why.

pub mod cases;
mod fixture;
mod node;
pub mod process;
mod report;
mod tools;

pub use fixture::{MaybeFixture, QueueFixture};
pub use latchwork_core::{BoxError, async_trait};
pub use node::MortalNode;
pub use report::{CaseFailed, Fault, Report, Verdict};

use std::time::Duration;

/// A case that has not ended by then hangs.
const LONGEST_CASE: Duration = Duration::from_secs(120);

/// Calls `$then!` with the names of all cases, so that there is one list of them.
#[doc(hidden)]
#[macro_export]
macro_rules! __for_each_queue_case {
    ($then:ident! $arguments:tt) => {
        $crate::$then! { $arguments
            a_hint_goes_round
            hints_come_in_order
            no_more_than_asked_for_comes
            an_empty_dequeue_returns_after_its_wait
            a_waiting_dequeue_is_woken
            a_nacked_hint_comes_again_after_its_delay
            a_fresh_hint_does_not_wait_for_a_delayed_one
            attempts_count_failures_only
            a_dropped_delivery_comes_again
            a_dead_consumers_hints_go_to_another
            a_hint_that_arrives_in_hand_is_kept
            a_hint_that_arrives_in_hand_does_not_wait_for_a_delay
            k12_copies_of_a_waiting_hint_are_bounded
            a_stale_settlement_harms_nothing
            a_settlement_after_death_harms_nothing
            a_dropped_dequeue_loses_nothing
            consumers_share_the_work
            namespaces_do_not_see_each_other
            long_work_outlasts_the_lease
            a_stopped_queue_gives_back_and_refuses
            a_stop_ends_a_waiting_dequeue
            hints_outlive_the_node_that_queued_them
            depth_counts
        }
    };
}

/// Makes one `#[tokio::test]` of each case of the conformance suite for queue providers.
///
/// The argument is called without arguments, once per test, and gives a future of a [`QueueFixture`](crate::queue::QueueFixture):
/// `queue_conformance!(async || MyService::fresh())`. Put two uses in two modules.
#[macro_export]
macro_rules! queue_conformance {
    ($fixture:expr) => {
        $crate::__for_each_queue_case! { __queue_tests! [$fixture] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __queue_tests {
    ([$fixture:expr] $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let Some(fixture) = $crate::queue::MaybeFixture::into_fixture(($fixture)().await) else {
                    return println!("{}: skipped: the service is not at hand", stringify!($case));
                };
                match $crate::queue::run_case(&fixture, stringify!($case), $crate::queue::cases::$case(&fixture)).await {
                    Ok(verdict) => println!("{}: {verdict}", stringify!($case)),
                    Err(failed) => panic!("{failed}"),
                }
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __queue_run_all {
    ([$make:ident $report:ident] $($case:ident)*) => {
        $(
            let fixture = $make().await;
            let ended = $crate::queue::run_case(&fixture, stringify!($case), $crate::queue::cases::$case(&fixture)).await;
            $report.note(stringify!($case), ended);
        )*
    };
}

/// Runs every case in a row, each with a fixture of its own, to the end also when some fail.
pub async fn run_all<F, M, Fut>(make: M) -> Report
where
    F: QueueFixture,
    M: Fn() -> Fut,
    Fut: Future<Output = F>,
{
    let mut report = Report::default();
    __for_each_queue_case! { __queue_run_all! [make report] }
    report
}

/// As [`run`], unless the fixture [excuses](QueueFixture::excused) the case.
#[doc(hidden)]
pub async fn run_case(
    fixture: &impl QueueFixture,
    case: &'static str,
    body: impl Future<Output = Result<Verdict, Fault>>,
) -> Result<Verdict, CaseFailed> {
    match fixture.excused(case) {
        Some(reason) => Ok(Verdict::skipped(reason)),
        None => run(case, body).await,
    }
}

/// Runs one case: gives its failure the case's name, and ends it when it hangs.
///
/// # Errors
/// [`CaseFailed`] with what the provider did wrong.
pub async fn run(case: &'static str, body: impl Future<Output = Result<Verdict, Fault>>) -> Result<Verdict, CaseFailed> {
    // Boxed: the future of a case holds much, and this one is held by every test.
    match tokio::time::timeout(LONGEST_CASE, Box::pin(body)).await {
        Ok(result) => result.map_err(|fault| CaseFailed::new(case, fault)),
        Err(_) => Err(CaseFailed::new(case, Fault::new(format!("it hangs: no end after {LONGEST_CASE:?}")))),
    }
}
