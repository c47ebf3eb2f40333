//! The builder: a workflow as plain Rust, checked by the compiler and, as a whole, by [`define`].
//!
//! A workflow is a sequence of steps. Those that hold others (`when`, `for_each`, `parallel`, ...) take a closure with a builder of
//! their own; what such a closure returns is ignored, so that it may simply end with a builder call.
//!
//! ```
//! use latchwork_engine::{Workflow, WorkflowBuilder, define};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Clone, Serialize, Deserialize)]
//! struct Trip { seats: Vec<String>, booked: u32 }
//!
//! struct BookTrip;
//!
//! impl Workflow for BookTrip {
//!     type Data = Trip;
//!     const ID: &'static str = "book-trip";
//!
//!     fn build(&self, flow: &mut WorkflowBuilder<Trip>) {
//!         flow.for_each("seats", |trip| trip.seats.clone(), |each| {
//!             each.run("book seat", async |(_trip, seat), _cx| Ok(seat.len())).output(|_length, trip| trip.booked += 1);
//!         });
//!         flow.when("nothing to do?", |trip| trip.booked == 0, |then| then.end());
//!         flow.wait_for("paid", |trip| trip.seats.join(",")).output(|amount: u32, trip| trip.booked += amount);
//!     }
//! }
//!
//! let definition = define(&BookTrip)?;
//! assert_eq!((definition.id(), definition.version()), ("book-trip", 1));
//! # Ok::<_, latchwork_engine::DefinitionError>(())
//! ```

mod activity;
mod choice;
mod collection;
mod handle;
mod saga;
mod side;
mod step;
#[cfg(test)]
mod tests;
mod wait;

pub use activity::{ActivityBuilder, ActivityFailed, SubWorkflowBuilder, SubWorkflowFailed};
pub use choice::{DecideBuilder, WhenBuilder};
pub(crate) use collection::WINDOW;
pub use collection::{Branches, ForEachBuilder, GroupBuilder};
pub use saga::SagaBuilder;
pub use side::RecurBuilder;
pub use step::{RunBuilder, StepBuilder};
pub use wait::WaitBuilder;

use crate::{
    body::{StepBody, StepContext, StepFn},
    cron::Cron,
    data::{AnyData, DataType, Each, Items, Scope, WorkflowData, view},
    definition::{
        BlockIndex, Definition, DefinitionError, Draft, NodeIndex, NodeKind, ProblemKind, RecurNode, SagaNode, SharedDraft,
        SpanOf, Target, Ticks, finish,
    },
    error::StepResult,
    policy::{Durability, Retry},
    services::{ServiceMissing, Services},
};
use serde::Serialize;
use std::{fmt, marker::PhantomData, panic::Location, sync::Arc, time::Duration};

/// A workflow: its data, its identity, and the steps it is made of.
///
/// An instance stays with the version that started it. Change steps, their order or their names only together with the version, and keep
/// the old one registered while instances of it are open; a changed shape under an old version is refused when the host starts.
#[doc(alias = "IWorkflow")]
pub trait Workflow: Send + Sync + 'static {
    /// What an instance carries from step to step.
    type Data: WorkflowData;
    /// The definition's id: 1 to 200 bytes, the same on all nodes.
    const ID: &'static str;
    /// The definition's version, from 1.
    const VERSION: u32 = 1;
    /// Describes the steps. Called when the host starts; must describe the same each time.
    fn build(&self, flow: &mut WorkflowBuilder<Self::Data>);
}

/// Builds a workflow's definition and checks it.
///
/// # Errors
/// [`DefinitionError`] with everything that is wrong, each problem with its step, file and line.
pub fn define<W: Workflow>(workflow: &W) -> Result<Definition, DefinitionError> {
    let draft = Draft::with_root();
    workflow.build(&mut WorkflowBuilder { draft: draft.clone(), block: BlockIndex::ROOT, scope: PhantomData });
    finish(draft.take(), W::ID, W::VERSION, DataType::of::<W::Data>())
}

/// Describes the steps of a workflow, or of one of its branches, in their order.
///
/// `S` is what the closures of steps see: the workflow's data, or inside a for-each [`Each`], a pair of that and the item. Step names are
/// unique in a workflow: they are what a running instance is tied to. All calls are checked as a whole by [`define`].
#[doc(alias = "IWorkflowBuilder")]
pub struct WorkflowBuilder<S> {
    draft: SharedDraft,
    block: BlockIndex,
    scope: PhantomData<fn() -> S>,
}

impl<S> fmt::Debug for WorkflowBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowBuilder").field("block", &self.block).finish_non_exhaustive()
    }
}

/// Lets user code describe a new block.
fn nest<S: Scope, R>(draft: &SharedDraft, describe: impl FnOnce(&mut WorkflowBuilder<S>) -> R) -> BlockIndex {
    let block = draft.borrow_mut().add_block();
    describe(&mut WorkflowBuilder { draft: draft.clone(), block, scope: PhantomData });
    block
}

impl<S: Scope> WorkflowBuilder<S> {
    #[track_caller]
    fn add(&mut self, name: Option<&str>, kind: NodeKind) -> NodeIndex {
        self.draft.borrow_mut().add(self.block, name, Location::caller(), kind)
    }

    /// A step with a body of this type, made by its `Default`.
    #[track_caller]
    #[doc(alias = "StartWith")]
    #[doc(alias = "Then")]
    pub fn step<B: StepBody + Default>(&mut self, name: &str) -> StepBuilder<S, B> {
        self.step_with(name, |_| Ok(B::default()))
    }

    /// A step with a body that is made from the host's services. It is made once when the host starts, to find out whether the services
    /// are there, and then for each run.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # #[derive(Clone)] struct Carrier;
    /// # struct Ship { carrier: Carrier }
    /// # impl StepBody for Ship { async fn run(&mut self, _: &StepContext) -> StepResult { Ok(ExecutionResult::next()) } }
    /// # fn steps(flow: &mut WorkflowBuilder<u32>) {
    /// flow.step_with("ship", |services| Ok(Ship { carrier: services.get::<Carrier>()?.clone() }));
    /// # }
    /// ```
    #[track_caller]
    pub fn step_with<B: StepBody>(
        &mut self,
        name: &str,
        make: impl Fn(&Services) -> Result<B, ServiceMissing> + Send + Sync + 'static,
    ) -> StepBuilder<S, B> {
        let node = self.add(Some(name), step::made_by(make));
        StepBuilder::new(self.draft.clone(), node)
    }

    /// A step that is an asynchronous closure or function of the data and the [`StepContext`].
    ///
    /// It sees the data as they were when it started, and changes them by [`output`](RunBuilder::output). What it captures must be `Clone`.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// async fn greet(name: &String, _cx: &StepContext) -> StepResult<()> {
    ///     println!("hello, {name}");
    ///     Ok(())
    /// }
    ///
    /// # fn steps(flow: &mut WorkflowBuilder<String>) {
    /// flow.run("greet", greet);
    /// flow.run("shout", async |name, _cx| Ok(name.to_uppercase())).output(|shout, name| *name = shout);
    /// # }
    /// ```
    #[track_caller]
    pub fn run<F, R>(&mut self, name: &str, body: F) -> RunBuilder<S, R>
    where
        R: Send + 'static,
        F: AsyncFn(S::View<'_>, &StepContext) -> StepResult<R> + for<'a> StepFn<'a, S, R> + Clone + Send + Sync + 'static,
    {
        let (kind, take) = step::run::<S, F, R>(body);
        let node = self.add(Some(name), kind);
        RunBuilder::new(self.draft.clone(), node, take)
    }

    /// Runs `then` when the test holds. The test is a pure function of the data: it may be asked again after a crash.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # async fn ship(_: &u32, _: &StepContext) -> StepResult<()> { Ok(()) }
    /// # async fn remind(_: &u32, _: &StepContext) -> StepResult<()> { Ok(()) }
    /// # fn steps(flow: &mut WorkflowBuilder<u32>) {
    /// flow.when("paid?", |balance| *balance == 0, |then| then.run("ship", ship))
    ///     .otherwise(|other| other.run("remind", remind));
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "If")]
    pub fn when<R>(
        &mut self,
        name: &str,
        test: impl Fn(S::View<'_>) -> bool + Send + Sync + 'static,
        then: impl FnOnce(&mut WorkflowBuilder<S>) -> R,
    ) -> WhenBuilder<S> {
        let select = Box::new(move |data: &AnyData, items: &Items| Ok(test(view::<S>(data, items)?).then_some(0)));
        let node = self.add(Some(name), NodeKind::Choose { select, branches: Vec::new() });
        choice::add_branch(&self.draft, node, then);
        WhenBuilder::new(self.draft.clone(), node)
    }

    /// Runs the first branch whose case fits the value, or none. (Workflow Core runs all that fit.)
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # async fn step(_: &u32, _: &StepContext) -> StepResult<()> { Ok(()) }
    /// # fn steps(flow: &mut WorkflowBuilder<u32>) {
    /// flow.decide("how many?", |count| *count)
    ///     .case(0, |none| none.end())
    ///     .case_if(|count| *count > 100, |many| many.run("ask", step))
    ///     .otherwise(|some| some.run("send", step));
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "Decide")]
    #[doc(alias = "Switch")]
    pub fn decide<V: Send + Sync + 'static>(
        &mut self,
        name: &str,
        value: impl Fn(S::View<'_>) -> V + Send + Sync + 'static,
    ) -> DecideBuilder<S, V> {
        let node = self.add(Some(name), NodeKind::Choose { select: Box::new(|_, _| Ok(None)), branches: Vec::new() });
        DecideBuilder::new(self.draft.clone(), node, move |data, items| Ok(value(view::<S>(data, items)?)))
    }

    /// Repeats the body while the test holds; asked before each round.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # fn steps(flow: &mut WorkflowBuilder<Vec<String>>) {
    /// flow.repeat_while("names left?", |names| !names.is_empty(), |body| {
    ///     body.run("greet", async |names, _cx| Ok(format!("hello, {}", names[0]))).output(|_greeting, names| { names.remove(0); });
    /// });
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "While")]
    pub fn repeat_while<R>(
        &mut self,
        name: &str,
        test: impl Fn(S::View<'_>) -> bool + Send + Sync + 'static,
        body: impl FnOnce(&mut WorkflowBuilder<S>) -> R,
    ) {
        let test = Box::new(move |data: &AnyData, items: &Items| Ok(test(view::<S>(data, items)?)));
        let body = nest(&self.draft, body);
        self.add(Some(name), NodeKind::While { test, body });
    }

    /// Runs the body for each item, by default for up to 16 at a time. The loop keeps the collection that it began with; the items are
    /// stored with the instance.
    ///
    /// Inside, closures see a pair of the data and the item; see [`StepBuilder::output_each`] for outputs that need the item.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # fn steps(flow: &mut WorkflowBuilder<Vec<String>>) {
    /// flow.for_each("names", |names| names.clone(), |each| {
    ///     each.run("greet", async |(_names, name), _cx| { println!("hello, {name}"); Ok(()) });
    /// })
    /// .sequential();
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "ForEach")]
    pub fn for_each<I: WorkflowData, R>(
        &mut self,
        name: &str,
        items: impl Fn(S::View<'_>) -> Vec<I> + Send + Sync + 'static,
        body: impl FnOnce(&mut WorkflowBuilder<Each<S, I>>) -> R,
    ) -> ForEachBuilder<S> {
        let items = Box::new(move |data: &AnyData, around: &Items| {
            Ok(items(view::<S>(data, around)?).into_iter().map(|item| Arc::new(item) as Arc<AnyData>).collect())
        });
        let body = nest(&self.draft, body);
        let node = self.add(Some(name), NodeKind::ForEach { items, item: DataType::of::<I>(), window: WINDOW, body });
        ForEachBuilder::new(self.draft.clone(), node)
    }

    /// Runs branches at the same time, and goes on when all have ended.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # async fn step(_: &u32, _: &StepContext) -> StepResult<()> { Ok(()) }
    /// # fn steps(flow: &mut WorkflowBuilder<u32>) {
    /// flow.parallel("prepare", |all| {
    ///     all.branch("pick", |b| b.run("pick the goods", step));
    ///     all.branch("tell", |b| b.run("tell the customer", step));
    /// });
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "Parallel")]
    pub fn parallel<R>(&mut self, name: &str, branches: impl FnOnce(&mut Branches<S>) -> R) -> GroupBuilder<S> {
        let node = self.add(Some(name), NodeKind::Parallel { branches: Vec::new() });
        branches(&mut Branches::new(self.draft.clone(), node));
        GroupBuilder::new(self.draft.clone(), node)
    }

    /// Runs branches at the same time until the first of them ends; the others are given up: what waits or sleeps in them is cancelled, and
    /// bodies that run are [told](StepContext::cancellation) to end, and dropped a little later. What they have done stays.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # use std::time::Duration;
    /// # #[derive(Clone, serde::Serialize, serde::Deserialize)] struct Offer { id: String, accepted: bool, reminded: u32 }
    /// # fn steps(flow: &mut WorkflowBuilder<Offer>) {
    /// flow.first_of("answer", |race| {
    ///     race.branch("accepted", |b| b.wait_for("accepted", |offer| offer.id.clone()).output(|(), offer| offer.accepted = true));
    ///     race.branch("declined", |b| b.wait_for("declined", |offer| offer.id.clone()));
    ///     race.branch("expired", |b| b.delay("a week", Duration::from_hours(7 * 24)));
    /// });
    /// # }
    /// ```
    #[track_caller]
    pub fn first_of<R>(&mut self, name: &str, branches: impl FnOnce(&mut Branches<S>) -> R) -> GroupBuilder<S> {
        let node = self.add(Some(name), NodeKind::First { branches: Vec::new() });
        branches(&mut Branches::new(self.draft.clone(), node));
        GroupBuilder::new(self.draft.clone(), node)
    }

    /// Steps that belong together, for example to be [cancelled](GroupBuilder::cancel_when) together.
    #[track_caller]
    pub fn group<R>(&mut self, name: &str, steps: impl FnOnce(&mut WorkflowBuilder<S>) -> R) -> GroupBuilder<S> {
        let body = nest(&self.draft, steps);
        let node = self.add(Some(name), NodeKind::Group { body });
        GroupBuilder::new(self.draft.clone(), node)
    }

    /// Steps that are undone when one of them fails for good: the compensations of those that have run, the failed one's too, run in reverse
    /// order, one after the other, each once, also over crashes. Then the saga is tried again, or has failed for good; see
    /// [`SagaBuilder`].
    ///
    /// Steps that have no [compensation](StepBuilder::compensate_with) are left as they are. What else runs in the saga at the time comes
    /// to its end first; what waits or sleeps is cancelled. Sagas can be nested: what an inner one has done is undone with the outer one.
    /// The [compensation of a saga](SagaBuilder::compensate) itself comes after those of its steps, also when it is undone with the outer one.
    /// A compensation has tries of its own; when they are used up the instance is suspended, with the reason, and
    /// [`retry_step`](crate::InstanceHandle::retry_step) goes on.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # use std::time::Duration;
    /// # #[derive(Clone, serde::Serialize, serde::Deserialize)] struct Order { reserved: bool, paid: bool }
    /// # async fn step(_: &Order, _: &StepContext) -> StepResult<()> { Ok(()) }
    /// # #[derive(Default)] struct ReserveStock; #[derive(Default)] struct ReleaseStock { reserved: bool }
    /// # impl StepBody for ReserveStock { async fn run(&mut self, _: &StepContext) -> StepResult { Ok(ExecutionResult::next()) } }
    /// # impl StepBody for ReleaseStock { async fn run(&mut self, _: &StepContext) -> StepResult { Ok(ExecutionResult::next()) } }
    /// # fn steps(flow: &mut WorkflowBuilder<Order>) {
    /// flow.saga("fulfil", |saga| {
    ///     saga.step::<ReserveStock>("reserve stock")
    ///         .output(|_step, order| order.reserved = true)
    ///         .compensate_with::<ReleaseStock>(|step, order| step.reserved = order.reserved);
    ///     saga.run("charge", step)
    ///         .on_error(Retry::exponential(Duration::from_secs(1)).max_attempts(5))
    ///         .compensate(step);
    /// });
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "Saga")]
    pub fn saga<R>(&mut self, name: &str, steps: impl FnOnce(&mut WorkflowBuilder<S>) -> R) -> SagaBuilder<S> {
        let body = nest(&self.draft, steps);
        let node = self.add(Some(name), NodeKind::Saga(SagaNode { body, retry: None }));
        SagaBuilder::new(self.draft.clone(), node)
    }

    /// Runs a branch after this time, while the workflow goes on. The workflow, or the branch around, ends when both have.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # use std::time::Duration;
    /// # async fn step(_: &u32, _: &StepContext) -> StepResult<()> { Ok(()) }
    /// # fn steps(flow: &mut WorkflowBuilder<u32>) {
    /// flow.schedule("reminder", Duration::from_hours(24), |later| later.run("remind", step));
    /// flow.run("ask", step);
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "Schedule")]
    pub fn schedule<R>(
        &mut self,
        name: &str,
        span: Duration,
        branch: impl FnOnce(&mut WorkflowBuilder<S>) -> R,
    ) -> GroupBuilder<S> {
        let body = nest(&self.draft, branch);
        let node = self.add(Some(name), NodeKind::Schedule { span: Box::new(move |_, _| Ok(span)), body });
        GroupBuilder::new(self.draft.clone(), node)
    }

    /// Runs a branch now and again, so long after the end of each round, while the workflow goes on; until [it is
    /// over](RecurBuilder::until). The workflow, or the branch around, ends when both have.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # use std::time::Duration;
    /// # #[derive(Clone, serde::Serialize, serde::Deserialize)] struct Order { id: String, paid: bool }
    /// # async fn remind(_: &Order, _: &StepContext) -> StepResult<()> { Ok(()) }
    /// # fn steps(flow: &mut WorkflowBuilder<Order>) {
    /// flow.recur("reminders", Duration::from_hours(24), |again| again.run("remind", remind)).until(|order| order.paid);
    /// flow.wait_for("paid", |order| order.id.clone()).output(|(), order| order.paid = true);
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "Recur")]
    pub fn recur<R>(
        &mut self,
        name: &str,
        every: Duration,
        branch: impl FnOnce(&mut WorkflowBuilder<S>) -> R,
    ) -> RecurBuilder<S> {
        self.add_recur(name, Ticks::Every(Box::new(move |_, _| Ok(every))), branch)
    }

    /// Runs a branch at times of a calendar, while the workflow goes on; until [it is over](RecurBuilder::until). The workflow, or the branch
    /// around, ends when both have.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # async fn report(_: &bool, _: &StepContext) -> StepResult<()> { Ok(()) }
    /// # fn steps(flow: &mut WorkflowBuilder<bool>) {
    /// flow.recur_cron("mornings", Cron::new("0 9 * * MON-FRI").in_zone("Europe/Berlin"), |each| each.run("report", report))
    ///     .until(|is_closed| *is_closed);
    /// # }
    /// ```
    #[track_caller]
    pub fn recur_cron<R>(
        &mut self,
        name: &str,
        times: Cron,
        branch: impl FnOnce(&mut WorkflowBuilder<S>) -> R,
    ) -> RecurBuilder<S> {
        let problem = times.problem().map(str::to_owned);
        let recur = self.add_recur(name, Ticks::Cron(Box::new(times)), branch);
        if let Some(reason) = problem {
            recur.found(ProblemKind::BadCron { reason });
        }
        recur
    }

    #[track_caller]
    fn add_recur<R>(&mut self, name: &str, ticks: Ticks, branch: impl FnOnce(&mut WorkflowBuilder<S>) -> R) -> RecurBuilder<S> {
        let body = nest(&self.draft, branch);
        let node = self.add(Some(name), NodeKind::Recur(RecurNode { ticks, until: None, body }));
        RecurBuilder::new(self.draft.clone(), node)
    }

    /// Has an external worker do something, and waits for the result. Workers ask for it [by its
    /// name](crate::WorkflowHost::claim_activity), with these parameters. The step is named `activity {name}`, unless it is
    /// [named](ActivityBuilder::named).
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # #[derive(Clone, serde::Serialize, serde::Deserialize)] struct Loan { amount: u32, approved: bool }
    /// # fn steps(flow: &mut WorkflowBuilder<Loan>) {
    /// flow.activity("approve loan", |loan| loan.amount).output(|approved: bool, loan| loan.approved = approved);
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "Activity")]
    pub fn activity<P: Serialize>(
        &mut self,
        activity: &str,
        parameters: impl Fn(S::View<'_>) -> P + Send + Sync + 'static,
    ) -> ActivityBuilder<S> {
        let node = self.add(Some(&format!("activity {activity}")), activity::step::<S, P>(activity, parameters));
        ActivityBuilder::new(self.draft.clone(), node)
    }

    /// Starts another workflow, and waits for its end. It is started together with the checkpoint that says so, once; when this step ends
    /// first, because it is cancelled or the instance ends, it is terminated. The workflow must be registered on each host
    /// that runs this one.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # async fn step(_: &u32, _: &StepContext) -> StepResult<u32> { Ok(1) }
    /// struct Deliver;
    ///
    /// impl Workflow for Deliver {
    ///     type Data = u32;
    ///     const ID: &'static str = "deliver";
    ///     fn build(&self, flow: &mut WorkflowBuilder<u32>) {
    ///         flow.run("count parcels", step).output(|parcels, data| *data = parcels);
    ///     }
    /// }
    ///
    /// # #[derive(Clone, serde::Serialize, serde::Deserialize)] struct Order { lines: u32, parcels: u32 }
    /// # fn steps(flow: &mut WorkflowBuilder<Order>) {
    /// flow.sub_workflow::<Deliver>("deliver", |order| order.lines).output(|parcels, order| order.parcels = parcels);
    /// # }
    /// ```
    #[track_caller]
    pub fn sub_workflow<W: Workflow>(
        &mut self,
        name: &str,
        data: impl Fn(S::View<'_>) -> W::Data + Send + Sync + 'static,
    ) -> SubWorkflowBuilder<S, W> {
        let node = self.add(Some(name), activity::sub_workflow::<S, W>(data));
        SubWorkflowBuilder::new(self.draft.clone(), node)
    }

    /// Does nothing for this time.
    #[track_caller]
    #[doc(alias = "Delay")]
    pub fn delay(&mut self, name: &str, span: Duration) {
        self.add_delay(name, Box::new(move |_, _| Ok(span)));
    }

    /// Does nothing for a time that depends on the data.
    #[track_caller]
    pub fn delay_by(&mut self, name: &str, span: impl Fn(S::View<'_>) -> Duration + Send + Sync + 'static) {
        self.add_delay(name, Box::new(move |data, items| Ok(span(view::<S>(data, items)?))));
    }

    #[track_caller]
    fn add_delay(&mut self, name: &str, span: SpanOf) {
        self.add(Some(name), NodeKind::Delay { span });
    }

    /// Waits for an event of this name and key. The step is named after the event, `wait for {event}`, unless it is
    /// [named](WaitBuilder::named).
    ///
    /// Events since the instance's creation count, also those published before the wait began; each event is taken once by each wait.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # use std::time::Duration;
    /// # #[derive(Clone, serde::Serialize, serde::Deserialize)] struct Order { id: String, parcels: u32 }
    /// # async fn escalate(_: &Order, _: &StepContext) -> StepResult<()> { Ok(()) }
    /// # #[derive(serde::Deserialize)] struct Packed { parcels: u32 }
    /// # fn steps(flow: &mut WorkflowBuilder<Order>) {
    /// flow.wait_for("packed", |order| order.id.clone())
    ///     .output(|packed: Packed, order| order.parcels = packed.parcels)
    ///     .timeout(Duration::from_hours(72))
    ///     .on_timeout(|late| late.run("escalate", escalate));
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "WaitFor")]
    pub fn wait_for(&mut self, event: &str, key: impl Fn(S::View<'_>) -> String + Send + Sync + 'static) -> WaitBuilder<S> {
        let key = Box::new(move |data: &AnyData, items: &Items| Ok(key(view::<S>(data, items)?)));
        let node = self.add(None, wait::on(event, key));
        self.draft.borrow_mut().check_name(node, None, "event name", event);
        WaitBuilder::new(self.draft.clone(), node, event)
    }

    /// Goes on at the step of this name: one of the same block or of a block around it. A jump cannot leave a branch of a parallel, the body
    /// of a for-each, or the branch that a step runs for its [values](StepBuilder::branches), as others run beside it and are to be joined.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # use std::time::Duration;
    /// # async fn ask(_: &Option<String>, _: &StepContext) -> StepResult<String> { Ok(String::new()) }
    /// # fn steps(flow: &mut WorkflowBuilder<Option<String>>) {
    /// flow.run("ask", ask).output(|answer, data| *data = Some(answer));
    /// flow.when("no answer?", |answer| answer.is_none(), |then| {
    ///     then.delay("a day", Duration::from_hours(24));
    ///     then.go_to("ask");
    /// });
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "Attach")]
    pub fn go_to(&mut self, step: &str) {
        self.add(None, NodeKind::GoTo { target: Target::Name(step.to_owned()) });
    }

    /// Ends the workflow: the instance is complete, whatever else runs in it.
    #[track_caller]
    #[doc(alias = "EndWorkflow")]
    pub fn end(&mut self) {
        self.add(None, NodeKind::End);
    }

    /// Which work the completion of a step is worth that says [nothing else](StepBuilder::replayable). Stands for the whole workflow, wherever
    /// it is called; the last call counts. Default: a checkpoint after each step.
    pub fn default_durability(&mut self, durability: Durability) {
        self.draft.borrow_mut().durability = durability;
    }

    /// What the workflow is for, in words. No part of its shape.
    pub fn description(&mut self, text: impl Into<String>) {
        self.draft.borrow_mut().description = Some(text.into());
    }

    /// What happens when a step fails that has no [policy of its own](StepBuilder::on_error). Stands for the whole workflow, wherever it is
    /// called; the last call counts. Without it, the host's default stands.
    #[doc(alias = "UseDefaultErrorBehavior")]
    pub fn default_error_policy(&mut self, retry: Retry) {
        self.draft.borrow_mut().retry = Some(retry);
    }
}
