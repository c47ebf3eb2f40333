use crate::{
    body::StepContext,
    cron::Cron,
    data::{AnyData, DataType, Items},
    error::StepResult,
    policy::{Durability, Retry},
    services::{ServiceMissing, Services},
};
use chrono::{DateTime, Utc};
use serde_json::Value;
use std::{any::Any, fmt, panic::Location, pin::Pin, sync::Arc, time::Duration};

/// The index of a node in [`Definition::nodes`](super::Definition::nodes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeIndex(pub(crate) usize);

/// The index of a block in [`Definition::blocks`](super::Definition::blocks).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockIndex(pub(crate) usize);

impl BlockIndex {
    /// The block of the workflow itself.
    pub(crate) const ROOT: Self = Self(0);
}

/// Nodes that follow each other.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) nodes: Vec<NodeIndex>,
    /// The node whose branch this is, and the number of the branch; `None` for the root.
    pub(crate) owner: Option<(NodeIndex, u32)>,
}

/// A step of any kind.
#[derive(Debug)]
pub(crate) struct Node {
    /// Unique in the definition.
    pub(crate) name: Arc<str>,
    pub(crate) kind: NodeKind,
    /// Where it stands.
    pub(crate) block: BlockIndex,
    pub(crate) position: usize,
    /// Where it was declared.
    pub(crate) declared: &'static Location<'static>,
    /// When to give it up, and what comes then.
    pub(crate) cancel: Option<CancelRule>,
    /// What undoes it.
    pub(crate) compensation: Option<BlockIndex>,
    /// Whether it can be cancelled while it runs, by a rule of its own or of what is around it.
    pub(crate) can_be_cut: bool,
}

/// The branch number of a compensation.
pub(crate) const COMPENSATION: u32 = u32::MAX - 1;

impl Node {
    /// All its branches with their numbers, its compensation too.
    pub(crate) fn branches(&self) -> Vec<(u32, BlockIndex)> {
        (0..).zip(self.kind.branches()).chain(self.compensation.map(|block| (COMPENSATION, block))).collect()
    }
}

/// When to give a step up that has not ended.
pub(crate) struct CancelRule {
    pub(crate) test: Test,
    pub(crate) then: AfterCancel,
}

impl fmt::Debug for CancelRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelRule").field("then", &self.then).finish_non_exhaustive()
    }
}

/// What comes after a step that was cancelled by its [condition](crate::StepBuilder::cancel_when).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterCancel {
    /// The workflow goes on after the step.
    Proceed,
    /// The branch that the step stands in is over; at the root of the workflow, the workflow.
    Stop,
}

pub(crate) enum NodeKind {
    /// A body.
    Step(StepNode),
    /// Takes at most one of its branches: `when`, `decide`.
    Choose { select: Select, branches: Vec<BlockIndex> },
    /// Repeats its branch while the test holds.
    While { test: Test, body: BlockIndex },
    /// Runs its branch for each item, so many at a time.
    ForEach { items: ItemsOf, item: DataType, window: usize, body: BlockIndex },
    /// Runs its branches at the same time, and joins them.
    Parallel { branches: Vec<BlockIndex> },
    /// Runs its branches at the same time until the first of them ends, and cancels the others.
    First { branches: Vec<BlockIndex> },
    /// Nothing but its branch.
    Group { body: BlockIndex },
    /// Compensates what its branch has done when that fails.
    Saga(SagaNode),
    /// Runs its branch later, beside what follows.
    Schedule { span: SpanOf, body: BlockIndex },
    /// Runs its branch again and again, beside what follows.
    Recur(RecurNode),
    /// Does nothing for a while.
    Delay { span: SpanOf },
    /// Waits for an event.
    Wait(WaitNode),
    /// Goes on at another node. A name until the definition is built.
    GoTo { target: Target },
    /// Ends the instance.
    End,
}

#[derive(Clone, Debug)]
pub(crate) enum Target {
    Name(String),
    Node(NodeIndex),
}

pub(crate) struct StepNode {
    pub(crate) make: Make,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<Output>,
    /// `None`: the definition's default.
    pub(crate) retry: Option<Retry>,
    /// `None`: the definition's default.
    pub(crate) durability: Option<Durability>,
    /// The branches to take by outcome.
    pub(crate) outcomes: Vec<(OutcomeTest, BlockIndex)>,
    /// The branch to take for each value of `ExecutionResult::Branch`; its items are JSON values.
    pub(crate) each: Option<BlockIndex>,
    /// The workflow that it starts.
    pub(crate) calls: Option<(&'static str, u32)>,
    /// Whether its body shares a transaction with its checkpoint.
    pub(crate) transactional: bool,
}

/// Whether a branch stands for an outcome.
pub(crate) enum OutcomeTest {
    Value(Value),
    Test(Box<dyn Fn(&Value) -> bool + Send + Sync>),
}

impl OutcomeTest {
    pub(crate) fn fits(&self, outcome: &Value) -> bool {
        match self {
            Self::Value(value) => value == outcome,
            Self::Test(test) => test(outcome),
        }
    }
}

pub(crate) struct SagaNode {
    pub(crate) body: BlockIndex,
    /// How often it is tried as a whole; `None`: once.
    pub(crate) retry: Option<Retry>,
}

pub(crate) struct RecurNode {
    pub(crate) ticks: Ticks,
    /// When it is over.
    pub(crate) until: Option<Test>,
    pub(crate) body: BlockIndex,
}

/// When a recurring branch runs.
pub(crate) enum Ticks {
    /// At once, and so long after each round.
    Every(SpanOf),
    /// At the times of a calendar.
    Cron(Box<Cron>),
}

pub(crate) struct WaitNode {
    pub(crate) event: Arc<str>,
    pub(crate) key: KeyOf,
    pub(crate) as_of: Option<TimeOf>,
    pub(crate) output: Option<OnEvent>,
    pub(crate) timeout: Option<SpanOf>,
    /// The branch to take when the time is over.
    pub(crate) late: Option<BlockIndex>,
}

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A body with its type erased.
pub(crate) trait ErasedBody: Any + Send {
    fn run<'a>(&'a mut self, cx: &'a StepContext) -> BoxFuture<'a, StepResult>;

    /// The user's body.
    fn body_mut(&mut self) -> &mut dyn Any;

    /// Takes the result in place of a run, when it is an `Option` of the type of a function's result.
    fn put_result(&mut self, result: &mut dyn Any) -> bool {
        let _ = result;
        false
    }
}

pub(crate) type Make = Box<dyn Fn(&Services) -> Result<Box<dyn ErasedBody>, ServiceMissing> + Send + Sync>;
pub(crate) type Input = Box<dyn Fn(&mut dyn Any, &Arc<AnyData>, &Items) -> StepResult<()> + Send + Sync>;
pub(crate) type Output = Box<dyn Fn(&mut dyn Any, &mut AnyData, &Items) -> StepResult<()> + Send + Sync>;
/// The branch to take; `None` for none.
pub(crate) type Select = Box<dyn Fn(&AnyData, &Items) -> StepResult<Option<usize>> + Send + Sync>;
pub(crate) type Test = Box<dyn Fn(&AnyData, &Items) -> StepResult<bool> + Send + Sync>;
pub(crate) type ItemsOf = Box<dyn Fn(&AnyData, &Items) -> StepResult<Vec<Arc<AnyData>>> + Send + Sync>;
pub(crate) type SpanOf = Box<dyn Fn(&AnyData, &Items) -> StepResult<Duration> + Send + Sync>;
pub(crate) type TimeOf = Box<dyn Fn(&AnyData, &Items) -> StepResult<DateTime<Utc>> + Send + Sync>;
pub(crate) type KeyOf = Box<dyn Fn(&AnyData, &Items) -> StepResult<String> + Send + Sync>;
pub(crate) type OnEvent = Box<dyn Fn(&Value, &mut AnyData, &Items) -> StepResult<()> + Send + Sync>;

impl NodeKind {
    /// The kind's name in shapes and messages.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Step(_) => "step",
            Self::Choose { .. } => "choose",
            Self::While { .. } => "while",
            Self::ForEach { .. } => "for-each",
            Self::Parallel { .. } => "parallel",
            Self::First { .. } => "first-of",
            Self::Group { .. } => "group",
            Self::Saga(_) => "saga",
            Self::Schedule { .. } => "schedule",
            Self::Recur(_) => "recur",
            Self::Delay { .. } => "delay",
            Self::Wait(_) => "wait",
            Self::GoTo { .. } => "go-to",
            Self::End => "end",
        }
    }

    /// Whether what follows runs beside it.
    pub(crate) fn is_side(&self) -> bool {
        matches!(self, Self::Schedule { .. } | Self::Recur(_))
    }

    /// Its branches, in the order of their numbers, without compensations. The number of a step's or wait's branch is its index here.
    pub(crate) fn branches(&self) -> Vec<BlockIndex> {
        match self {
            Self::Step(step) => step.outcomes.iter().map(|(_, block)| *block).chain(step.each).collect(),
            Self::Choose { branches, .. } | Self::Parallel { branches } | Self::First { branches } => branches.clone(),
            Self::While { body, .. }
            | Self::ForEach { body, .. }
            | Self::Group { body }
            | Self::Schedule { body, .. }
            | Self::Saga(SagaNode { body, .. })
            | Self::Recur(RecurNode { body, .. }) => vec![*body],
            Self::Wait(wait) => wait.late.into_iter().collect(),
            Self::Delay { .. } | Self::GoTo { .. } | Self::End => Vec::new(),
        }
    }
}

impl fmt::Debug for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(self.as_str()).field("branches", &self.branches()).finish_non_exhaustive()
    }
}
