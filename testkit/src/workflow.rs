//! Tests of workflows: a host on a virtual clock, whose steps can be watched, failed and replaced.
//!
//! ```
//! use latchwork_engine::{StepContext, StepResult, Workflow, WorkflowBuilder, WorkflowHost};
//! # use latchwork_lock_local::UseLocalLocking; use latchwork_queue_local::UseLocalQueue;
//! # use latchwork_persistence_memory::UseMemoryPersistence;
//! use latchwork_testkit::workflow::WorkflowTest;
//! use std::time::Duration;
//!
//! /// Reminds every day until it is paid.
//! struct Invoice;
//!
//! impl Workflow for Invoice {
//!     type Data = u32;
//!     const ID: &'static str = "invoice";
//!
//!     fn build(&self, flow: &mut WorkflowBuilder<u32>) {
//!         flow.recur("reminders", Duration::from_hours(24), |each| {
//!             each.run("remind", async |_, _| Err::<(), _>("there is no mail server in a test".into())).output(|(), sent| *sent += 1);
//!         })
//!         .until(|sent| *sent == 30);
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let backends = WorkflowHost::builder().use_local_locking().use_local_queue().use_memory_persistence();
//! let test = WorkflowTest::start(backends.workflow(Invoice)).await?;
//! test.answer("remind", || ());
//! let invoice = test.begin::<Invoice>(0).await?;
//! test.advance(Duration::from_hours(10 * 24)).await;
//! assert_eq!((test.calls("remind").len(), invoice.data().await?), (11, 11));
//! test.advance(Duration::from_hours(20 * 24)).await;
//! assert_eq!(invoice.completion().await?, 30);
//! test.stop().await?;
//! # Ok(())
//! # }
//! ```

use crate::clock::VirtualClock;
use latchwork_core::{
    async_trait,
    clock::{Clock, between},
    queue::QueueKind,
    store::RunnableQuery,
};
use latchwork_engine::{
    ExecutionResult, HostError, Next, StepBody, StepContext, StepError, StepMiddleware, StepResult, Workflow, WorkflowHandle,
    WorkflowHost, WorkflowHostBuilder,
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Turns that other tasks get before it is believed that they have nothing to do.
const TURNS: usize = 20;
/// Hints that are given to the host at once.
const PAGE: usize = 1_000;

/// One run of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The step.
    pub step: String,
    /// Which try it was, from 1.
    pub attempt: u32,
    /// Its idempotency key.
    pub key: String,
    /// What was wrong; `None` when it succeeded, or has not ended.
    pub error: Option<String>,
}

type InPlace = Arc<dyn for<'a> Fn(&StepContext, Next<'a>) -> StepResult + Send + Sync>;

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    failures: HashMap<String, usize>,
    in_place: HashMap<String, InPlace>,
}

/// Sees all runs of steps, and steers them.
#[derive(Clone, Default)]
struct Watch(Arc<Mutex<State>>);

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StepMiddleware for Watch {
    async fn run(&self, cx: &StepContext, next: Next<'_>) -> StepResult {
        let step = cx.step().to_owned();
        let (number, fails, in_place) = {
            let mut state = self.state();
            let key = cx.idempotency_key().to_owned();
            state.calls.push(Call { step: step.clone(), attempt: cx.attempt(), key, error: None });
            let left = state.failures.get_mut(&step).filter(|left| **left > 0);
            let fails = left.map(|left| *left -= 1).is_some();
            (state.calls.len() - 1, fails, state.in_place.get(&step).cloned())
        };
        let answer = match in_place {
            _ if fails => Err(StepError::from(format!("step `{step}` was told to fail"))),
            Some(in_place) => in_place(cx, next),
            None => next.run().await,
        };
        if let Err(error) = &answer
            && let Some(call) = self.state().calls.get_mut(number)
        {
            call.error = Some(error.to_string());
        }
        answer
    }
}

/// A host on a virtual clock. Time stands still but for [`advance`](Self::advance); what is due then happens at its time, so that a month
/// goes by in milliseconds. The host does not poll: the test finds what is due by itself.
pub struct WorkflowTest {
    host: WorkflowHost,
    clock: VirtualClock,
    watch: Watch,
}

impl fmt::Debug for WorkflowTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowTest").field("host", &self.host).field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl WorkflowTest {
    /// Starts a host with these backends, workflows and services. The store must take its times from the host's clock, as those in memory
    /// and on SQLite do.
    ///
    /// # Errors
    /// [`HostError`] of the start.
    pub async fn start(host: WorkflowHostBuilder) -> Result<Self, HostError> {
        let (clock, watch) = (VirtualClock::new(), Watch::default());
        let options_clock = Arc::new(clock.clone());
        let host = host
            .step_middleware(watch.clone())
            .poll_interval(Duration::from_hours(1))
            .configure(|options| {
                options.clock = options_clock;
                options.run_poller = false;
            })
            .start()
            .await?;
        Ok(Self { host, clock, watch })
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &WorkflowHost {
        &self.host
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// Starts an instance, and lets it do what it can do at once.
    ///
    /// # Errors
    /// [`HostError`] of the start.
    pub async fn begin<W: Workflow>(&self, data: W::Data) -> Result<WorkflowHandle<W>, HostError> {
        let handle = self.host.start_workflow::<W>(data).await?;
        self.settle().await;
        Ok(handle)
    }

    /// Publishes an event, and lets everything happen that follows from it at once.
    ///
    /// # Errors
    /// [`HostError`] of the call.
    pub async fn publish(&self, event: &str, key: &str, data: impl serde::Serialize + Send) -> Result<(), HostError> {
        self.host.publish_event(event, key, data).await?;
        self.settle().await;
        Ok(())
    }

    /// The next so many runs of this step fail, in place of its body.
    pub fn fail(&self, step: &str, times: usize) {
        self.watch.state().failures.insert(step.to_owned(), times);
    }

    /// From now on this step, which is a function, is not run: its result is made by `answer`.
    pub fn answer<R: Send + 'static>(&self, step: &str, answer: impl Fn() -> R + Send + Sync + 'static) {
        self.put(step, Arc::new(move |_, next| next.answer(answer())));
    }

    /// From now on the body of this step, which is a `B`, is not run: `run` gets it with its inputs applied, and can fill what its outputs
    /// read.
    pub fn replace<B: StepBody>(&self, step: &str, run: impl Fn(&mut B) -> StepResult + Send + Sync + 'static) {
        self.put(
            step,
            Arc::new(move |cx, mut next| match next.body::<B>() {
                Some(body) => run(body),
                None => {
                    let wanted = std::any::type_name::<B>();
                    Err(StepError::permanent(format!("the body of step `{}` is no `{wanted}`", cx.step())))
                }
            }),
        );
    }

    /// From now on the body of this step is not run: it has succeeded, and its outputs read what its inputs left.
    pub fn skip<B: StepBody>(&self, step: &str) {
        self.replace(step, |_: &mut B| Ok(ExecutionResult::next()));
    }

    fn put(&self, step: &str, in_place: InPlace) {
        self.watch.state().in_place.insert(step.to_owned(), in_place);
    }

    /// The step runs its own body again.
    pub fn restore(&self, step: &str) {
        let mut state = self.watch.state();
        state.in_place.remove(step);
        state.failures.remove(step);
    }

    /// The runs of this step so far, in their order.
    #[must_use]
    pub fn calls(&self, step: &str) -> Vec<Call> {
        self.watch.state().calls.iter().filter(|call| call.step == step).cloned().collect()
    }

    /// The names of the steps that were run so far, in their order.
    #[must_use]
    pub fn path(&self) -> Vec<String> {
        self.watch.state().calls.iter().map(|call| call.step.clone()).collect()
    }

    /// Lets time go by. What falls due meanwhile happens at its time, with all that follows from it.
    pub async fn advance(&self, span: Duration) {
        let target = self.clock.monotonic().saturating_add(span);
        loop {
            self.settle().await;
            let due = self.host.statistics().await.ok().and_then(|statistics| statistics.next_due);
            let wait = due.map(|due| between(self.clock.now(), due));
            let now = self.clock.monotonic();
            match wait.map(|wait| now.saturating_add(wait)).filter(|at| *at > now && *at <= target) {
                Some(at) => self.clock.advance_to(at),
                None => break,
            }
        }
        self.clock.advance_to(target);
        self.settle().await;
    }

    /// Lets everything happen that can happen without time going by. Bodies that wait for something outside the host are not waited for
    /// longer than about a second of real time.
    pub async fn settle(&self) {
        for round in 0..1_000_u32 {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            if self.is_idle().await {
                return;
            }
            // Stores may be at work in threads of their own.
            if round > 10 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// Whether nothing is under way or due. What is due and has no hint is given one.
    async fn is_idle(&self) -> bool {
        let depth = self.host.queue().depth(QueueKind::Workflow).await.unwrap_or_default();
        if self.host.health().active > 0 || depth.in_hand > 0 {
            return false;
        }
        let query = RunnableQuery::new(self.host.workflows(), PAGE);
        let due = self.host.store().runnable(&query).await.map(|page| page.items).unwrap_or_default();
        if due.is_empty() {
            return true;
        }
        if depth.waiting == 0 {
            let items: Vec<_> = due.into_iter().map(|due| due.item).collect();
            // A queue that does not take them is asked again in the next round.
            self.host.queue().enqueue(QueueKind::Workflow, &items).await.ok();
        }
        false
    }

    /// Stops the host.
    ///
    /// # Errors
    /// [`HostError`] of the stop.
    pub async fn stop(self) -> Result<(), HostError> {
        self.host.stop().await.map(|_| ())
    }
}
