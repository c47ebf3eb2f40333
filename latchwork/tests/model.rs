//! Random workflows, held against a small model of the rules of control flow and sagas, with nodes that live and nodes that are killed.
//!
//! Trees without branches beside each other are interpreted by the rules, and all that their bodies do is compared; of the others it is
//! checked what must hold in whatever order their branches come. `PROPTEST_CASES` and `PROPTEST_RNG_SEED` look further.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]

#[macro_use]
#[allow(unused_macros, reason = "the workflows of this test are made at run time")]
mod common;
#[path = "model/engine.rs"]
#[allow(unreachable_pub, reason = "a module of this test")]
mod engine;
#[path = "model/rules.rs"]
#[allow(unreachable_pub, reason = "a module of this test")]
mod rules;
#[path = "model/trace.rs"]
#[allow(unreachable_pub, reason = "a module of this test")]
mod trace;
#[path = "model/tree.rs"]
#[allow(unreachable_pub, reason = "a module of this test")]
mod tree;

use common::*;
use engine::{Random, Run, Seen, Watch};
use latchwork::{
    core::store::StoreErrorKind,
    store::{PointerRecord, PointerStatus},
};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed, TestCaseError, TestRunner},
};
use std::collections::HashMap;
use tree::Tree;

/// How a node is killed: at its so manieth checkpoint.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    /// Before it is written.
    Before(usize),
    /// After it is written, before the node knows.
    After(usize),
    /// Its answer is lost, and the node lives.
    NoAnswer(usize),
    /// It fails, and those after it too, until the node is killed.
    Fails(usize),
}

fn trouble() -> impl Strategy<Value = Trouble> {
    // Most trees have few checkpoints: the sooner is the more likely.
    let number = (0_usize..30, 0_usize..30).prop_map(|(a, b)| a.min(b));
    (number, 0..4).prop_map(|(number, kind)| match kind {
        0 => Trouble::Before(number),
        1 => Trouble::After(number),
        2 => Trouble::NoAnswer(number),
        _ => Trouble::Fails(number),
    })
}

/// What became of an instance.
struct Outcome {
    status: WorkflowStatus,
    seen: Seen,
    runs: Vec<Run>,
    pointers: Vec<PointerRecord>,
    /// How often bodies may have had to run again.
    kills: usize,
}

async fn start(world: &World, tree: &Tree, watch: &Watch, at_most: usize) -> TestNode {
    let node = world.node().with(|b| {
        let b = b.workflow(Random(tree.clone())).service(watch.clone());
        b.configure(|options| options.max_concurrent_steps = at_most)
    });
    node.start().await
}

async fn run(world: World, tree: &Tree, trouble: Trouble, at_most: AtMost) -> Outcome {
    let watch = Watch::new(tree, world.clock.clone());
    let mut node = start(&world, tree, &watch, at_most.0).await;
    let gate = match trouble {
        Trouble::None => None,
        Trouble::Before(number) => Some(node.means.store.on(StoreCall::Commit).skip(number).once().hold()),
        Trouble::After(number) => Some(node.means.store.on(StoreCall::Commit).skip(number).once().hold_answer()),
        Trouble::NoAnswer(number) => {
            node.means.store.on(StoreCall::Commit).skip(number).once().lose_answer(StoreErrorKind::Unavailable);
            None
        }
        Trouble::Fails(number) => {
            node.means.store.on(StoreCall::Commit).skip(number).fail(StoreErrorKind::Unavailable);
            None
        }
    };
    let id = node.begin::<Random>(Seen::default()).await.id().clone();
    let mut kills = usize::from(matches!(trouble, Trouble::NoAnswer(_)));
    let handle = node.workflow_instance::<Random>(id.clone());
    let ended = async || !handle.is(WorkflowStatus::Runnable).await;
    let dies = async || match (&gate, trouble) {
        (Some(gate), _) => gate.arrived() > 0,
        (None, Trouble::Fails(number)) => node.means.store.count(StoreCall::Commit) > number,
        _ => false,
    };
    world.fly_until(async || dies().await || ended().await).await;
    if dies().await {
        // What runs may come to its end, and is not written.
        world.rest().await;
        let next = watch.next_node();
        world.kill(node);
        kills += 1;
        node = start(&world, tree, &next, at_most.1).await;
    }
    let handle = node.workflow_instance::<Random>(id);
    world.fly_until(async || !handle.is(WorkflowStatus::Runnable).await).await;
    // A node whose answer was lost asks again, later.
    world.fly_until(async || node.health().active == 0).await;
    let status = handle.status().await.expect("there");
    let outcome = Outcome {
        status,
        seen: handle.data().await.expect("data"),
        runs: watch.runs(),
        pointers: handle.pointers().await,
        kills,
    };
    node.stop_clean().await;
    outcome
}

/// The tries of bodies in their order; one that ran again at once, because its node was killed, counts once.
fn tries(runs: &[Run], kills: usize) -> Result<Vec<(String, usize, u32)>, String> {
    let mut keys: HashMap<&str, Vec<&str>> = HashMap::new();
    let (mut tries, mut again) = (Vec::new(), 0);
    for run in runs {
        let keys = keys.entry(&run.label).or_default();
        let number = keys.iter().position(|key| *key == run.key).unwrap_or_else(|| {
            keys.push(&run.key);
            keys.len() - 1
        });
        let this = (run.label.clone(), number, run.attempt);
        if tries.last() == Some(&this) {
            again += 1;
        } else {
            tries.push(this);
        }
    }
    if again > kills { Err(format!("{again} bodies ran again, with {kills} kills")) } else { Ok(tries) }
}

fn check_sequential(tree: &Tree, outcome: &Outcome) -> Result<(), TestCaseError> {
    let (expected, status) = rules::expected(tree);
    let tries = tries(&outcome.runs, outcome.kills).map_err(TestCaseError::fail)?;
    let show = |tries: &[(String, usize, u32)]| {
        let tries = tries.iter().map(|(label, number, attempt)| format!("{label} #{number} try {attempt}"));
        tries.collect::<Vec<_>>().join("\n  ")
    };
    prop_assert_eq!(show(&tries), show(&expected.tries), "the bodies differ (left: as they ran)");
    prop_assert_eq!(outcome.status, status);
    prop_assert_eq!(&outcome.seen.log, &expected.log);
    prop_assert_eq!(&outcome.seen.rounds, &expected.rounds);
    check_rest(outcome)
}

fn check_parallel(tree: &Tree, outcome: &Outcome) -> Result<(), TestCaseError> {
    let story = || {
        let runs = outcome.runs.iter().map(|run| {
            let good = if run.good { "" } else { " fails" };
            format!("{:>4} to {:>4}: {} try {}{good}", run.began, run.ended.unwrap_or(0), run.label, run.attempt)
        });
        runs.collect::<Vec<_>>().join("\n")
    };
    let told = |error: String| TestCaseError::fail(format!("{error}\n{}", story()));
    let trace = trace::Trace::new(outcome.pointers.clone(), outcome.runs.clone(), outcome.kills).map_err(told)?;
    let expected = trace.check(tree, outcome.status).map_err(told)?;
    let mut log = outcome.seen.log.clone();
    log.sort();
    prop_assert_eq!(log, expected, "{}", story());
    check_rest(outcome)
}

/// Nothing is left open of an instance that has ended.
fn check_rest(outcome: &Outcome) -> Result<(), TestCaseError> {
    let open = outcome.pointers.iter().filter(|pointer| pointer.status.is_open());
    let open: Vec<_> = open.map(|pointer| (pointer.step.to_string(), pointer.status)).collect();
    match outcome.status {
        WorkflowStatus::Suspended => {
            prop_assert!(open.iter().any(|(_, status)| *status == PointerStatus::Failed), "suspended without a reason: {open:?}");
        }
        _ => prop_assert!(open.is_empty(), "ended, and this is open: {open:?}"),
    }
    Ok(())
}

/// So many cases, the same each time unless something else is asked for.
fn runner(cases: u32) -> TestRunner {
    let asked = Config::default();
    let cases = if std::env::var("PROPTEST_CASES").is_ok() { asked.cases } else { cases };
    let rng_seed = if std::env::var("PROPTEST_RNG_SEED").is_ok() { asked.rng_seed } else { RngSeed::Fixed(1) };
    TestRunner::new(Config { cases, rng_seed, failure_persistence: None, max_shrink_iters: 400, ..asked })
}

#[derive(Clone, Copy)]
enum Store {
    Memory,
    Sqlite,
}

fn hold_against_the_rules<T: std::fmt::Debug>(
    cases: u32,
    store: Store,
    strategy: impl Strategy<Value = T>,
    parts: impl Fn(&T) -> (&Tree, Trouble, AtMost),
    check: impl Fn(&Tree, &Outcome) -> Result<(), TestCaseError>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let result = runner(cases).run(&strategy, |case| {
        let (tree, trouble, at_most) = parts(&case);
        let outcome = runtime.block_on(async {
            let world = match store {
                Store::Memory => World::memory(),
                Store::Sqlite => World::sqlite().await,
            };
            run(world, tree, trouble, at_most).await
        });
        check(tree, &outcome)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// How many bodies may run at a time, on the first node and on the one after it.
type AtMost = (usize, usize);

const MANY: AtMost = (16, 16);

fn at_most() -> impl Strategy<Value = AtMost> {
    let at_most = || prop_oneof![1 => Just(1_usize), 1 => Just(2), 3 => Just(16)];
    (at_most(), at_most())
}

#[test]
fn one_after_the_other_all_is_as_the_rules_say() {
    hold_against_the_rules(120, Store::Memory, tree::sequential(), |tree| (tree, Trouble::None, MANY), check_sequential);
}

#[test]
fn one_after_the_other_on_sqlite_all_is_as_the_rules_say() {
    hold_against_the_rules(8, Store::Sqlite, tree::sequential(), |tree| (tree, Trouble::None, MANY), check_sequential);
}

#[test]
fn one_after_the_other_with_a_kill_the_end_is_the_same_and_nothing_completed_runs_again() {
    let cases = (tree::sequential(), trouble());
    hold_against_the_rules(80, Store::Memory, cases, |(tree, trouble)| (tree, *trouble, MANY), check_sequential);
}

#[test]
fn one_after_the_other_with_a_kill_on_sqlite_the_end_is_the_same() {
    let cases = (tree::sequential(), trouble());
    hold_against_the_rules(8, Store::Sqlite, cases, |(tree, trouble)| (tree, *trouble, MANY), check_sequential);
}

#[test]
fn beside_each_other_all_that_ran_in_a_failed_saga_is_undone_once_in_reverse_order() {
    let cases = (tree::parallel(), at_most());
    hold_against_the_rules(80, Store::Memory, cases, |(tree, at_most)| (tree, Trouble::None, *at_most), check_parallel);
}

#[test]
fn beside_each_other_with_a_kill_all_that_ran_in_a_failed_saga_is_undone_once_in_reverse_order() {
    let cases = (tree::parallel(), trouble(), at_most());
    hold_against_the_rules(80, Store::Memory, cases, |(tree, trouble, at_most)| (tree, *trouble, *at_most), check_parallel);
}

#[test]
fn beside_each_other_with_a_kill_on_sqlite_all_is_undone() {
    let cases = (tree::parallel(), trouble(), at_most());
    hold_against_the_rules(8, Store::Sqlite, cases, |(tree, trouble, at_most)| (tree, *trouble, *at_most), check_parallel);
}
