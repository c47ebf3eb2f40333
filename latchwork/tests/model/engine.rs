//! A tree as a workflow, and what its bodies did.

use super::{
    common::*,
    tree::{Node, Step, Tree, Undo, race, tick},
};
use latchwork::{Each, Scope, clock::ClockExt};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard},
};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// What completed, in its order.
    pub log: Vec<String>,
    /// The rounds of each loop.
    pub rounds: BTreeMap<String, i64>,
}

/// The items around something.
pub fn label(name: &str, items: &[i64]) -> String {
    if items.is_empty() { name.to_owned() } else { format!("{name}{items:?}") }
}

/// A run of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub label: String,
    pub key: String,
    pub attempt: u32,
    /// When it began and ended, counted over all begins and ends; `None`: it was cut off.
    pub began: usize,
    pub ended: Option<usize>,
    /// Whether it succeeded.
    pub good: bool,
}

/// Decides about all bodies of a node, and sees them. What it has seen outlives nodes, as the world outside does.
#[derive(Clone, Debug)]
pub struct Watch {
    state: Arc<Mutex<State>>,
    node: usize,
}

#[derive(Debug)]
struct State {
    clock: VirtualClock,
    steps: HashMap<String, Step>,
    /// The keys with which each piece of work was asked for.
    keys: HashMap<String, Vec<String>>,
    runs: Vec<Run>,
    now: usize,
    /// The node that lives; the bodies of those before it neither begin nor end any more.
    node: usize,
}

/// Whether a run fails: the so manieth piece of work of this step and these items, at this try.
pub fn fails(step: &Step, items: &[i64], number: usize, attempt: u32) -> bool {
    let is_meant = step.only.is_none_or(|only| items.last().is_none_or(|item| *item == only));
    (is_meant && number < step.fails) || (step.flaky && attempt == 1)
}

impl Watch {
    pub fn new(tree: &Tree, clock: VirtualClock) -> Self {
        let mut steps = HashMap::new();
        gather(&tree.0, &mut steps);
        let state = State { clock, steps, keys: HashMap::new(), runs: Vec::new(), now: 0, node: 0 };
        Self { state: Arc::new(Mutex::new(state)), node: 0 }
    }

    /// The watch of the next node: the one before it is dead.
    pub fn next_node(&self) -> Self {
        let node = self.node + 1;
        self.state().node = node;
        Self { state: self.state.clone(), node }
    }

    async fn die(&self) {
        if self.state().node != self.node {
            std::future::pending::<()>().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    pub fn runs(&self) -> Vec<Run> {
        self.state().runs.clone()
    }

    async fn run(&self, items: &[i64], cx: &StepContext) -> StepResult<()> {
        self.die().await;
        let (label, key) = (label(cx.step(), items), cx.idempotency_key().to_owned());
        let (index, fails, takes, clock) = {
            let mut state = self.state();
            let keys = state.keys.entry(label.clone()).or_default();
            let number = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
                keys.push(key.clone());
                keys.len() - 1
            });
            let (fails, takes) = match state.steps.get(cx.step()) {
                Some(step) => (fails(step, items, number, cx.attempt()), step.takes),
                None => (false, 0),
            };
            state.now += 1;
            let began = state.now;
            state.runs.push(Run { label: label.clone(), key, attempt: cx.attempt(), began, ended: None, good: false });
            (state.runs.len() - 1, fails, takes, state.clock.clone())
        };
        match takes {
            0 => tokio::task::yield_now().await,
            takes => clock.sleep(Duration::from_secs(takes)).await,
        }
        self.die().await;
        let mut state = self.state();
        state.now += 1;
        let now = state.now;
        state.runs[index].ended = Some(now);
        state.runs[index].good = !fails;
        if fails { Err(format!("{label} was told to fail").into()) } else { Ok(()) }
    }
}

/// The steps by their names; compensations are steps too.
fn gather(nodes: &[Node], steps: &mut HashMap<String, Step>) {
    let undoes = |id: usize, undo: Undo| Step { flaky: undo == Undo::Flaky, tries: 2, ..tick(id) };
    for node in nodes {
        match node {
            Node::Step(step) => {
                steps.insert(format!("s{}", step.id), step.clone());
                steps.insert(format!("undo s{}", step.id), undoes(step.id, step.undo));
            }
            Node::Saga { id, undo, body, .. } => {
                steps.insert(format!("undo n{id}"), undoes(*id, *undo));
                gather(body, steps);
            }
            Node::Parallel { branches, .. } => branches.iter().for_each(|branch| gather(branch, steps)),
            Node::When { then, otherwise, .. } => {
                gather(then, steps);
                gather(otherwise.as_deref().unwrap_or_default(), steps);
            }
            Node::Each { body, .. } | Node::While { body, .. } | Node::First { body, .. } | Node::Group { body, .. } => {
                gather(body, steps);
            }
        }
    }
}

#[derive(Default)]
struct Act {
    items: Vec<i64>,
}

impl StepBody for Act {
    async fn run(&mut self, cx: &StepContext) -> StepResult {
        cx.service::<Watch>()?.run(&self.items, cx).await?;
        Ok(ExecutionResult::next())
    }
}

pub struct Random(pub Tree);

impl Workflow for Random {
    type Data = Seen;
    const ID: &'static str = "random";

    fn build(&self, flow: &mut WorkflowBuilder<Seen>) {
        block(flow, &self.0.0);
    }
}

const PAUSE: Duration = Duration::from_secs(1);

fn retry(tries: u32, goes_on: bool) -> Retry {
    let retry = Retry::fixed(PAUSE).max_attempts(tries);
    if goes_on { retry.then_continue() } else { retry }
}

/// Where a step stands: how many loops over items are around it.
trait Level: Scope<Data = Seen> + Sized {
    fn look<'a>(view: Self::View<'a>) -> (&'a Seen, Vec<i64>);
    fn each(flow: &mut WorkflowBuilder<Self>, name: &str, items: u64, at_once: bool, body: &[Node]);
}

macro_rules! each {
    () => {
        fn each(flow: &mut WorkflowBuilder<Self>, name: &str, items: u64, at_once: bool, body: &[Node]) {
            let items: Vec<i64> = (1..).take(usize::try_from(items).expect("few")).collect();
            let each = flow.for_each(name, move |_| items.clone(), |each| block::<Each<Self, i64>>(each, body));
            if !at_once {
                each.sequential();
            }
        }
    };
}

impl Level for Seen {
    fn look<'a>(seen: Self::View<'a>) -> (&'a Seen, Vec<i64>) {
        (seen, Vec::new())
    }

    each!();
}

impl Level for Each<Seen, i64> {
    fn look<'a>((seen, item): Self::View<'a>) -> (&'a Seen, Vec<i64>) {
        (seen, vec![*item])
    }

    each!();
}

impl Level for Each<Each<Seen, i64>, i64> {
    fn look<'a>(((seen, outer), item): Self::View<'a>) -> (&'a Seen, Vec<i64>) {
        (seen, vec![*outer, *item])
    }

    fn each(_: &mut WorkflowBuilder<Self>, name: &str, _: u64, _: bool, _: &[Node]) {
        panic!("{name} is too deep");
    }
}

fn act<S: Level>(flow: &mut WorkflowBuilder<S>, name: String) -> latchwork::StepBuilder<S, Act> {
    let step = flow.step::<Act>(&name).input(|act, view| act.items = S::look(view).1);
    step.output(move |act, seen| seen.log.push(label(&name, &act.items)))
}

fn block<S: Level>(flow: &mut WorkflowBuilder<S>, nodes: &[Node]) {
    for node in nodes {
        describe(flow, node);
    }
}

fn describe<S: Level>(flow: &mut WorkflowBuilder<S>, node: &Node) {
    match node {
        Node::Step(step) => {
            let built = act(flow, format!("s{}", step.id)).on_error(retry(step.tries, step.goes_on));
            if step.undo != Undo::No {
                let name = format!("undo s{}", step.id);
                built.compensate_sequence(|undo| _ = act(undo, name).on_error(retry(2, false)));
            }
        }
        Node::Saga { id, undo, tries, goes_on, body } => {
            let built = flow.saga(&format!("n{id}"), |saga| block(saga, body)).on_error(retry(*tries, *goes_on));
            if *undo != Undo::No {
                built.compensate_sequence(|undo| _ = act(undo, format!("undo n{id}")).on_error(retry(2, false)));
            }
        }
        Node::Each { id, items, at_once, body } => S::each(flow, &format!("n{id}"), *items, *at_once, body),
        Node::Parallel { id, branches } => {
            flow.parallel(&format!("n{id}"), |all| {
                for (number, branch) in branches.iter().enumerate() {
                    all.branch(&number.to_string(), |b| block(b, branch));
                }
            });
        }
        Node::When { id, holds, then, otherwise } => {
            let holds = *holds;
            let when = flow.when(&format!("n{id}"), move |_| holds, |b| block(b, then));
            if let Some(otherwise) = otherwise {
                when.otherwise(|b| block(b, otherwise));
            }
        }
        Node::While { id, rounds, body } => {
            let (name, rounds) = (format!("n{id}"), *rounds);
            let tick = name.clone();
            let test = move |view: S::View<'_>| {
                let (seen, items) = S::look(view);
                seen.rounds.get(&label(&name, &items)).copied().unwrap_or(0) < rounds
            };
            flow.repeat_while(&format!("n{id}"), test, |b| {
                block(b, body);
                act(b, format!("tick {tick}"))
                    .output(move |act, seen| *seen.rounds.entry(label(&tick, &act.items)).or_default() += 1);
            });
        }
        Node::First { id, at, others, body } => {
            flow.first_of(&format!("n{id}"), |all| {
                for (number, immediate) in race(*at, *others).enumerate() {
                    let name = format!("n{id} never {number}");
                    all.branch(&number.to_string(), |b| match immediate {
                        true => block(b, body),
                        false if number % 2 == 0 => _ = b.wait_for("never", |_| "k".to_owned()).output(|(), _| ()).named(&name),
                        false => b.delay(&name, Duration::from_hours(24 * 365)),
                    });
                }
            });
        }
        Node::Group { id, body } => _ = flow.group(&format!("n{id}"), |b| block(b, body)),
    }
}
