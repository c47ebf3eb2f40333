//! Random workflows as trees.

use proptest::{collection::vec, prelude::*, sample::select};
use std::fmt::{self, Write};

/// How a step is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    No,
    Yes,
    /// At its second try.
    Flaky,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub id: usize,
    pub undo: Undo,
    /// Tries in all.
    pub tries: u32,
    /// So many of its runs fail for good: runs with a key of their own, for each item around.
    pub fails: usize,
    /// Only those for this innermost item, if there is one.
    pub only: Option<i64>,
    /// The other runs fail once first; only with two tries.
    pub flaky: bool,
    /// `then_continue`.
    pub goes_on: bool,
    /// Seconds that its body takes.
    pub takes: u64,
}

#[derive(Clone, Debug)]
pub enum Node {
    Step(Step),
    Saga {
        id: usize,
        undo: Undo,
        tries: u32,
        goes_on: bool,
        body: Vec<Node>,
    },
    Each {
        id: usize,
        items: u64,
        at_once: bool,
        body: Vec<Node>,
    },
    Parallel {
        id: usize,
        branches: Vec<Vec<Node>>,
    },
    When {
        id: usize,
        holds: bool,
        then: Vec<Node>,
        otherwise: Option<Vec<Node>>,
    },
    While {
        id: usize,
        rounds: i64,
        body: Vec<Node>,
    },
    /// The branch at this place is immediate; the others wait for ever.
    First {
        id: usize,
        at: usize,
        others: usize,
        body: Vec<Node>,
    },
    Group {
        id: usize,
        body: Vec<Node>,
    },
}

/// A workflow; its steps have numbers, by which they are named.
#[derive(Clone)]
pub struct Tree(pub Vec<Node>);

/// What the branches of a race are, in their order: `true` is the immediate one.
pub fn race(at: usize, others: usize) -> impl Iterator<Item = bool> {
    (0..=others).map(move |place| place == at)
}

/// The step at the end of a loop's body, which counts its rounds.
pub fn tick(id: usize) -> Step {
    Step { id, undo: Undo::No, tries: 1, fails: 0, only: None, flaky: false, goes_on: false, takes: 0 }
}

fn step(parallel: bool) -> impl Strategy<Value = Node> {
    let undo = prop_oneof![2 => Just(Undo::No), 5 => Just(Undo::Yes), 1 => Just(Undo::Flaky)];
    let fails = prop_oneof![6 => Just(0_usize), 2 => Just(1), 1 => Just(2)];
    let only = prop_oneof![2 => Just(None), 1 => (1_i64..=3).prop_map(Some)];
    let takes = if parallel {
        prop_oneof![2 => Just(0_u64), 1 => 1_u64..=2].boxed()
    } else {
        prop_oneof![5 => Just(0_u64), 1 => Just(1)].boxed()
    };
    let bit = |of: u32| prop::bool::weighted(1.0 / f64::from(of));
    (undo, 1_u32..=2, fails, only, bit(3), bit(6), takes).prop_map(|(undo, tries, fails, only, flaky, goes_on, takes)| {
        let flaky = flaky && tries == 2;
        Node::Step(Step { id: 0, undo, tries, fails, only, flaky, goes_on, takes })
    })
}

fn node(parallel: bool) -> impl Strategy<Value = Node> {
    step(parallel).prop_recursive(4, 14, 3, move |inner| {
        let body = vec(inner, 1..=3).boxed();
        let undo = prop_oneof![Just(Undo::No), Just(Undo::Yes)];
        let saga = (undo, 1_u32..=3, any::<bool>(), body.clone()).prop_map(|(undo, tries, goes_on, body)| Node::Saga {
            id: 0,
            undo,
            tries,
            goes_on,
            body,
        });
        let each = (0_u64..=3, select(if parallel { vec![true, true, false] } else { vec![false] }), body.clone())
            .prop_map(|(items, at_once, body)| Node::Each { id: 0, items, at_once, body });
        let when = (any::<bool>(), body.clone(), prop::option::of(body.clone()))
            .prop_map(|(holds, then, otherwise)| Node::When { id: 0, holds, then, otherwise });
        let repeat = (0_i64..=2, body.clone()).prop_map(|(rounds, body)| Node::While { id: 0, rounds, body });
        let first = (0_usize..=2, 1_usize..=2, body.clone()).prop_map(|(at, others, body)| Node::First {
            id: 0,
            at: at.min(others),
            others,
            body,
        });
        let group = body.clone().prop_map(|body| Node::Group { id: 0, body });
        let branches = vec(body, 2..=3).prop_map(|branches| Node::Parallel { id: 0, branches });
        prop_oneof![
            6 => saga,
            2 => each,
            1 => when,
            1 => repeat,
            1 => first,
            1 => group,
            if parallel { 5 } else { 0 } => branches,
        ]
    })
}

/// Trees without branches beside each other.
pub fn sequential() -> impl Strategy<Value = Tree> {
    vec(node(false), 1..=3).prop_map(|nodes| numbered(nodes, false))
}

/// Trees with branches beside each other. What fails in these outside of sagas does not end the instance: what its other branches
/// had come to by then would depend on the moment.
pub fn parallel() -> impl Strategy<Value = Tree> {
    vec(node(true), 1..=2).prop_map(|nodes| numbered(nodes, true))
}

fn numbered(mut nodes: Vec<Node>, parallel: bool) -> Tree {
    let mut numbering = Numbering { last: 0, parallel };
    numbering.block(&mut nodes, Around { sagas: 0, loops: 0, beside: false });
    Tree(nodes)
}

struct Numbering {
    last: usize,
    parallel: bool,
}

#[derive(Clone, Copy)]
struct Around {
    sagas: usize,
    loops: usize,
    beside: bool,
}

impl Numbering {
    fn block(&mut self, nodes: &mut [Node], around: Around) {
        for node in nodes {
            self.node(node, around);
        }
    }

    fn node(&mut self, node: &mut Node, around: Around) {
        self.last += 1;
        let number = self.last;
        let must_go_on = self.parallel && around.beside && around.sagas == 0;
        match node {
            Node::Step(step) => {
                step.id = number;
                step.goes_on |= must_go_on;
            }
            Node::Saga { body, .. } if around.sagas == 3 => {
                *node = Node::Group { id: number, body: std::mem::take(body) };
                self.last -= 1;
                self.node(node, around);
            }
            Node::Each { body, .. } if around.loops == 2 => {
                *node = Node::Group { id: number, body: std::mem::take(body) };
                self.last -= 1;
                self.node(node, around);
            }
            Node::Saga { id, goes_on, body, .. } => {
                *id = number;
                *goes_on |= must_go_on;
                self.block(body, Around { sagas: around.sagas + 1, ..around });
            }
            Node::Each { id, at_once, body, .. } => {
                *id = number;
                self.block(body, Around { loops: around.loops + 1, beside: around.beside || *at_once, ..around });
            }
            Node::Parallel { id, branches } => {
                *id = number;
                for branch in branches {
                    self.block(branch, Around { beside: true, ..around });
                }
            }
            Node::When { id, then, otherwise, .. } => {
                *id = number;
                self.block(then, around);
                if let Some(otherwise) = otherwise {
                    self.block(otherwise, around);
                }
            }
            Node::While { id, body, .. } | Node::Group { id, body } | Node::First { id, body, .. } => {
                *id = number;
                self.block(body, around);
            }
        }
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::from("\n");
        block(&mut text, &self.0, 1);
        f.write_str(&text)
    }
}

fn block(text: &mut String, nodes: &[Node], depth: usize) {
    for node in nodes {
        let _ = write!(text, "{:indent$}", "", indent = depth * 4);
        let policy = |tries: u32, undo: Undo, goes_on: bool| {
            let undo = if undo == Undo::No { String::new() } else { format!(", undo {undo:?}") };
            format!("{tries} tries{undo}{}", if goes_on { ", then continue" } else { "" })
        };
        match node {
            Node::Step(step) => {
                let _ = write!(text, "step s{}: {}", step.id, policy(step.tries, step.undo, step.goes_on));
                if step.fails > 0 {
                    let only = step.only.map_or_else(String::new, |item| format!(" for item {item}"));
                    let _ = write!(text, ", FAILS {} times{only}", step.fails);
                }
                let _ = write!(text, "{}", if step.flaky { ", flaky" } else { "" });
                let _ = writeln!(text, "{}", if step.takes > 0 { format!(", takes {} s", step.takes) } else { String::new() });
            }
            Node::Saga { id, undo, tries, goes_on, body } => {
                let _ = writeln!(text, "saga n{id}: {}", policy(*tries, *undo, *goes_on));
                block(text, body, depth + 1);
            }
            Node::Each { id, items, at_once, body } => {
                let _ = writeln!(text, "for each n{id} of 1..={items}, {}", if *at_once { "at once" } else { "one by one" });
                block(text, body, depth + 1);
            }
            Node::Parallel { id, branches } => {
                let _ = writeln!(text, "parallel n{id}");
                for (number, branch) in branches.iter().enumerate() {
                    let _ = writeln!(text, "{:indent$}  branch {number}", "", indent = depth * 4);
                    block(text, branch, depth + 1);
                }
            }
            Node::When { id, holds, then, otherwise } => {
                let _ = writeln!(text, "when {holds} n{id}");
                block(text, then, depth + 1);
                if let Some(otherwise) = otherwise {
                    let _ = writeln!(text, "{:indent$}  otherwise", "", indent = depth * 4);
                    block(text, otherwise, depth + 1);
                }
            }
            Node::While { id, rounds, body } => {
                let _ = writeln!(text, "while n{id} went round fewer than {rounds} times");
                block(text, body, depth + 1);
            }
            Node::First { id, at, others, body } => {
                let _ = writeln!(text, "first of n{id}, branch {at} of {}", others + 1);
                block(text, body, depth + 1);
            }
            Node::Group { id, body } => {
                let _ = writeln!(text, "group n{id}");
                block(text, body, depth + 1);
            }
        }
    }
}
