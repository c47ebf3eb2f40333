use super::{
    WorkflowBuilder,
    handle::{Handle, cancel_method, compensation_methods, durability_methods, policy_methods},
    nest,
};
use crate::{
    body::{ExecutionResult, StepBody, StepContext, StepFn},
    data::{AnyData, Each, Items, Scope, WorkflowData, view, wrong_type},
    definition::{BoxFuture, ErasedBody, Input, NodeIndex, NodeKind, OutcomeTest, Output, ProblemKind, SharedDraft, StepNode},
    error::StepResult,
    policy::Durability,
    services::{ServiceMissing, Services},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{any::Any, fmt, marker::PhantomData, panic::Location, sync::Arc};

/// A user's body.
struct Body<B>(B);

impl<B: StepBody> ErasedBody for Body<B> {
    fn run<'a>(&'a mut self, cx: &'a StepContext) -> BoxFuture<'a, StepResult> {
        Box::pin(self.0.run(cx))
    }

    fn body_mut(&mut self) -> &mut dyn Any {
        &mut self.0
    }
}

/// A function as a body. It holds the data that it sees until it has run: who changes data must find them unshared.
struct RunBody<S, F, R> {
    call: F,
    seen: Option<(Arc<AnyData>, Items)>,
    result: Option<R>,
    scope: PhantomData<fn() -> S>,
}

impl<S: Scope, F, R: Send + 'static> ErasedBody for RunBody<S, F, R>
where
    F: for<'a> StepFn<'a, S, R> + Clone + Send + 'static,
{
    fn run<'a>(&'a mut self, cx: &'a StepContext) -> BoxFuture<'a, StepResult> {
        let call = self.call.clone();
        Box::pin(async move {
            let (data, items) = self.seen.take().ok_or_else(wrong_type)?;
            // A view need not be `Send`, so it must not live across the await.
            let result = match S::view(&*data, &items) {
                Some(view) => call.call(view, cx),
                None => return Err(wrong_type()),
            };
            self.result = Some(result.await?);
            Ok(ExecutionResult::Next)
        })
    }

    fn body_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn put_result(&mut self, result: &mut dyn Any) -> bool {
        let Some(result) = result.downcast_mut::<Option<R>>() else { return false };
        self.seen = None;
        self.result = result.take();
        true
    }
}

pub(super) fn plain(
    make: impl Fn(&Services) -> Result<Box<dyn ErasedBody>, ServiceMissing> + Send + Sync + 'static,
    inputs: Vec<Input>,
) -> NodeKind {
    NodeKind::Step(StepNode {
        make: Box::new(make),
        inputs,
        outputs: Vec::new(),
        retry: None,
        durability: None,
        outcomes: Vec::new(),
        each: None,
        calls: None,
        transactional: false,
    })
}

/// A step with a body that is made from services.
pub(super) fn made_by<B: StepBody>(make: impl Fn(&Services) -> Result<B, ServiceMissing> + Send + Sync + 'static) -> NodeKind {
    plain(move |services| Ok(Box::new(Body(make(services)?))), Vec::new())
}

/// Takes the result out of a body.
type Take<R> = fn(&mut dyn Any) -> Option<R>;

/// A step that is a function, and how to come by its result.
pub(super) fn run<S, F, R>(call: F) -> (NodeKind, Take<R>)
where
    S: Scope,
    R: Send + 'static,
    F: for<'a> StepFn<'a, S, R> + Clone + Send + Sync + 'static,
{
    let make = move |_: &Services| {
        let body = RunBody::<S, F, R> { call: call.clone(), seen: None, result: None, scope: PhantomData };
        Ok(Box::new(body) as Box<dyn ErasedBody>)
    };
    let see: Input = Box::new(|body, data, items| {
        let body: &mut RunBody<S, F, R> = body.downcast_mut().ok_or_else(wrong_type)?;
        body.seen = Some((data.clone(), items.clone()));
        Ok(())
    });
    (plain(make, vec![see]), |body| body.downcast_mut::<RunBody<S, F, R>>()?.result.take())
}

pub(super) fn innermost<I: 'static>(items: &Items) -> StepResult<&I> {
    items.last().and_then(|item| item.downcast_ref()).ok_or_else(wrong_type)
}

/// A [step](WorkflowBuilder::step) with a body of type `B`: what goes in, what comes out, what happens when it fails.
///
/// ```
/// # use latchwork_engine::*;
/// # use std::time::Duration;
/// # #[derive(Clone, serde::Serialize, serde::Deserialize)] struct Order { sku: String, reservation: Option<String> }
/// # #[derive(Default)] struct ReserveStock { sku: String, reservation: String }
/// # impl StepBody for ReserveStock { async fn run(&mut self, _: &StepContext) -> StepResult { Ok(ExecutionResult::next()) } }
/// # fn steps(flow: &mut WorkflowBuilder<Order>) {
/// flow.step::<ReserveStock>("reserve stock")
///     .input(|step, order| step.sku = order.sku.clone())
///     .output(|step, order| order.reservation = Some(step.reservation.clone()))
///     .on_error(Retry::exponential(Duration::from_secs(1)).max_attempts(5));
/// # }
/// ```
#[doc(alias = "IStepBuilder")]
pub struct StepBuilder<S, B> {
    step: Handle,
    types: PhantomData<fn() -> (S, B)>,
}

impl<S, B> fmt::Debug for StepBuilder<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepBuilder").field("node", &self.step.node).finish_non_exhaustive()
    }
}

impl<S: Scope, B: StepBody> StepBuilder<S, B> {
    pub(super) fn new(draft: SharedDraft, node: NodeIndex) -> Self {
        Self { step: Handle { draft, node }, types: PhantomData }
    }

    /// Fills the body before it runs, from what the step sees. Several are applied in their order.
    pub fn input(self, input: impl Fn(&mut B, S::View<'_>) + Send + Sync + 'static) -> Self {
        let input: Input = Box::new(move |body, data, items| {
            input(&mut body.downcast_mut::<Body<B>>().ok_or_else(wrong_type)?.0, view::<S>(&**data, items)?);
            Ok(())
        });
        self.step.change(|step| step.inputs.push(input));
        self
    }

    /// Changes the data by what the body holds after it has run. Several are applied in their order.
    pub fn output(self, output: impl Fn(&mut B, &mut S::Data) + Send + Sync + 'static) -> Self {
        self.step.add_output(Box::new(move |body, data, _| {
            let body: &mut Body<B> = body.downcast_mut().ok_or_else(wrong_type)?;
            output(&mut body.0, data.downcast_mut().ok_or_else(wrong_type)?);
            Ok(())
        }));
        self
    }

    cancel_method!();
    policy_methods!();
    compensation_methods!();
    durability_methods!();

    /// The branch to run when the body answers with [this outcome](ExecutionResult::outcome). With another outcome, or none, the workflow
    /// goes on after the step.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # #[derive(Default)] struct CheckCredit;
    /// # impl StepBody for CheckCredit { async fn run(&mut self, _: &StepContext) -> StepResult { ExecutionResult::outcome("bad") } }
    /// # fn steps(flow: &mut WorkflowBuilder<u32>) {
    /// flow.step::<CheckCredit>("check credit").outcome("bad", |bad| bad.end());
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "When")]
    pub fn outcome<R>(self, value: impl Serialize, branch: impl FnOnce(&mut WorkflowBuilder<S>) -> R) -> Self {
        let at = Some(Location::caller());
        let block = nest(&self.step.draft, branch);
        let found = match serde_json::to_value(value) {
            Err(error) => Some(ProblemKind::BadOutcome { reason: error.to_string() }),
            Ok(value) => {
                let mut twice = None;
                self.step.change(|step| {
                    if step.outcomes.iter().any(|(other, _)| matches!(other, OutcomeTest::Value(other) if *other == value)) {
                        twice = Some(ProblemKind::OutcomeTwice { value: value.to_string() });
                    }
                    step.outcomes.push((OutcomeTest::Value(value), block));
                });
                twice
            }
        };
        if let Some(kind) = found {
            self.step.draft.borrow_mut().found(self.step.node, at, kind);
        }
        self
    }

    /// The branch to run when the outcome, read as a `T`, passes this test. Branches are asked in the order in which they were added; the
    /// first that fits runs. An outcome that is no `T` does not fit.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # #[derive(Default)] struct Score;
    /// # impl StepBody for Score { async fn run(&mut self, _: &StepContext) -> StepResult { ExecutionResult::outcome(72) } }
    /// # fn steps(flow: &mut WorkflowBuilder<u32>) {
    /// flow.step::<Score>("score").outcome_if(|score: &u32| *score < 50, |low| low.end());
    /// # }
    /// ```
    pub fn outcome_if<T: DeserializeOwned, R>(
        self,
        test: impl Fn(&T) -> bool + Send + Sync + 'static,
        branch: impl FnOnce(&mut WorkflowBuilder<S>) -> R,
    ) -> Self {
        let block = nest(&self.step.draft, branch);
        let test = move |outcome: &Value| T::deserialize(outcome).is_ok_and(|outcome| test(&outcome));
        self.step.change(|step| step.outcomes.push((OutcomeTest::Test(Box::new(test)), block)));
        self
    }

    /// The branch to run for each value when the body answers with [`ExecutionResult::Branch`]; all values run at the same time, then the
    /// workflow goes on. Inside, closures see a pair of the data and the value.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// #[derive(Default)]
    /// struct FindSuppliers;
    ///
    /// impl StepBody for FindSuppliers {
    ///     async fn run(&mut self, _cx: &StepContext) -> StepResult {
    ///         ExecutionResult::branch(["north", "south"])
    ///     }
    /// }
    ///
    /// # fn steps(flow: &mut WorkflowBuilder<Vec<String>>) {
    /// flow.step::<FindSuppliers>("find suppliers").branches(|each| {
    ///     each.run("ask", async |(_offers, supplier), _cx| Ok(format!("{supplier}: 7 euros")))
    ///         .output(|offer, offers| offers.push(offer))
    /// });
    /// # }
    /// ```
    #[track_caller]
    pub fn branches<R>(self, branch: impl FnOnce(&mut WorkflowBuilder<Each<S, Value>>) -> R) -> Self {
        let at = Some(Location::caller());
        let block = nest(&self.step.draft, branch);
        let mut before = None;
        self.step.change(|step| before = step.each.replace(block));
        if before.is_some() {
            self.step.draft.borrow_mut().found(self.step.node, at, ProblemKind::Twice { call: "branches" });
        }
        self
    }
}

impl<S: Scope, I: WorkflowData, B: StepBody> StepBuilder<Each<S, I>, B> {
    /// As [`output`](Self::output), with the item of the innermost for-each.
    ///
    /// ```
    /// # use latchwork_engine::*;
    /// # use std::collections::BTreeMap;
    /// # #[derive(Default)] struct Weigh { sku: String, grams: u32 }
    /// # impl StepBody for Weigh { async fn run(&mut self, _: &StepContext) -> StepResult { Ok(ExecutionResult::next()) } }
    /// # #[derive(Clone, serde::Serialize, serde::Deserialize)] struct Parcel { skus: Vec<String>, grams: BTreeMap<String, u32> }
    /// # fn steps(flow: &mut WorkflowBuilder<Parcel>) {
    /// flow.for_each("goods", |parcel| parcel.skus.clone(), |each| {
    ///     each.step::<Weigh>("weigh")
    ///         .input(|step, (_parcel, sku)| step.sku.clone_from(sku))
    ///         .output_each(|step, parcel, sku| { parcel.grams.insert(sku.clone(), step.grams); });
    /// });
    /// # }
    /// ```
    pub fn output_each(self, output: impl Fn(&mut B, &mut S::Data, &I) + Send + Sync + 'static) -> Self {
        self.step.add_output(Box::new(move |body, data, items| {
            let body: &mut Body<B> = body.downcast_mut().ok_or_else(wrong_type)?;
            output(&mut body.0, data.downcast_mut().ok_or_else(wrong_type)?, innermost(items)?);
            Ok(())
        }));
        self
    }
}

/// A step that is a [function](WorkflowBuilder::run) with a result of type `R`: what happens with the result, and when it fails.
pub struct RunBuilder<S, R> {
    step: Handle,
    take: Take<R>,
    has_output: bool,
    scope: PhantomData<fn() -> S>,
}

impl<S, R> fmt::Debug for RunBuilder<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunBuilder").field("node", &self.step.node).finish_non_exhaustive()
    }
}

impl<S: Scope, R: Send + 'static> RunBuilder<S, R> {
    pub(super) fn new(draft: SharedDraft, node: NodeIndex, take: Take<R>) -> Self {
        Self { step: Handle { draft, node }, take, has_output: false, scope: PhantomData }
    }

    /// Changes the data by the function's result. The result is handed over, so there can be only one output.
    #[track_caller]
    pub fn output(self, output: impl Fn(R, &mut S::Data) + Send + Sync + 'static) -> Self {
        let take = self.take;
        self.with_output(
            Location::caller(),
            Box::new(move |body, data, _| {
                output(take(body).ok_or_else(wrong_type)?, data.downcast_mut().ok_or_else(wrong_type)?);
                Ok(())
            }),
        )
    }

    fn with_output(mut self, at: &'static Location<'static>, output: Output) -> Self {
        if std::mem::replace(&mut self.has_output, true) {
            self.step.draft.borrow_mut().found(self.step.node, Some(at), ProblemKind::Twice { call: "output" });
        } else {
            self.step.add_output(output);
        }
        self
    }

    cancel_method!();
    policy_methods!();
    compensation_methods!();
    durability_methods!();
}

impl<S: Scope, I: WorkflowData, R: Send + 'static> RunBuilder<Each<S, I>, R> {
    /// As [`output`](Self::output), with the item of the innermost for-each.
    #[track_caller]
    pub fn output_each(self, output: impl Fn(R, &mut S::Data, &I) + Send + Sync + 'static) -> Self {
        let take = self.take;
        self.with_output(
            Location::caller(),
            Box::new(move |body, data, items| {
                let result = take(body).ok_or_else(wrong_type)?;
                output(result, data.downcast_mut().ok_or_else(wrong_type)?, innermost(items)?);
                Ok(())
            }),
        )
    }
}
