//! What must come of a tree without branches beside each other: the rules, as an interpreter of the tree.

use super::{
    common::WorkflowStatus,
    engine::{fails, label},
    tree::{Node, Step, Tree, Undo, tick},
};
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Default, PartialEq)]
pub struct Expected {
    /// All tries of all bodies, in their order: the label, the number of the piece of work with it, the try.
    pub tries: Vec<(String, usize, u32)>,
    pub log: Vec<String>,
    pub rounds: BTreeMap<String, i64>,
}

/// Something that a saga has done.
struct Done {
    name: String,
    items: Vec<i64>,
    undo: Undo,
}

enum Then {
    GoesOn,
    /// What is around it fails; without a saga around it, the instance ends up so.
    Fails(WorkflowStatus),
}

#[derive(Default)]
struct Rules {
    expected: Expected,
    /// How often each piece of work was asked for.
    asked: HashMap<String, usize>,
    /// What the open sagas have done, the outermost first.
    sagas: Vec<Vec<Done>>,
}

pub fn expected(tree: &Tree) -> (Expected, WorkflowStatus) {
    let mut rules = Rules::default();
    let status = match rules.block(&tree.0, &[]) {
        Then::GoesOn => WorkflowStatus::Complete,
        Then::Fails(status) => status,
    };
    (rules.expected, status)
}

impl Rules {
    fn block(&mut self, nodes: &[Node], items: &[i64]) -> Then {
        for node in nodes {
            if let Then::Fails(status) = self.node(node, items) {
                return Then::Fails(status);
            }
        }
        Then::GoesOn
    }

    fn node(&mut self, node: &Node, items: &[i64]) -> Then {
        match node {
            Node::Step(step) => self.step(step, items),
            Node::Saga { id, undo, tries, goes_on, body } => self.saga(*id, *undo, *tries, *goes_on, body, items),
            Node::Each { items: count, body, .. } => {
                for item in (1..).take(usize::try_from(*count).expect("few")) {
                    if let Then::Fails(status) = self.block(body, &[items, &[item]].concat()) {
                        return Then::Fails(status);
                    }
                }
                Then::GoesOn
            }
            Node::When { holds: true, then, .. } => self.block(then, items),
            Node::When { otherwise, .. } => self.block(otherwise.as_deref().unwrap_or_default(), items),
            Node::While { id, rounds, body } => {
                let name = label(&format!("n{id}"), items);
                while self.expected.rounds.get(&name).copied().unwrap_or(0) < *rounds {
                    if let Then::Fails(status) = self.block(body, items) {
                        return Then::Fails(status);
                    }
                    self.body(&format!("tick n{id}"), &tick(*id), items);
                    *self.expected.rounds.entry(name.clone()).or_default() += 1;
                }
                Then::GoesOn
            }
            Node::First { body, .. } | Node::Group { body, .. } => self.block(body, items),
            Node::Parallel { .. } => panic!("not sequential"),
        }
    }

    /// Tries a body until it succeeds or its tries are used up; whether it succeeded.
    fn body(&mut self, name: &str, step: &Step, items: &[i64]) -> bool {
        let label = label(name, items);
        let asked = self.asked.entry(label.clone()).or_default();
        let number = *asked;
        *asked += 1;
        for attempt in 1..=step.tries {
            self.expected.tries.push((label.clone(), number, attempt));
            if !fails(step, items, number, attempt) {
                self.expected.log.push(label);
                return true;
            }
        }
        false
    }

    fn undo(&mut self, done: &Done) {
        if done.undo != Undo::No {
            let step = Step { flaky: done.undo == Undo::Flaky, tries: 2, ..tick(0) };
            self.body(&format!("undo {}", done.name), &step, &done.items);
        }
    }

    fn step(&mut self, step: &Step, items: &[i64]) -> Then {
        let name = format!("s{}", step.id);
        let good = self.body(&name, step, items);
        let done = Done { name, items: items.to_vec(), undo: step.undo };
        match self.sagas.last_mut() {
            Some(saga) => {
                saga.push(done);
                if good || step.goes_on { Then::GoesOn } else { Then::Fails(WorkflowStatus::Suspended) }
            }
            None if good || step.goes_on => Then::GoesOn,
            None if step.undo != Undo::No => {
                self.undo(&done);
                Then::GoesOn
            }
            None => Then::Fails(WorkflowStatus::Suspended),
        }
    }

    fn saga(&mut self, id: usize, undo: Undo, tries: u32, goes_on: bool, body: &[Node], items: &[i64]) -> Then {
        let own = Done { name: format!("n{id}"), items: items.to_vec(), undo };
        for _ in 0..tries {
            self.sagas.push(Vec::new());
            let then = self.block(body, items);
            let done = self.sagas.pop().unwrap_or_default();
            match (then, self.sagas.last_mut()) {
                (Then::GoesOn, Some(around)) => {
                    // Its own compensation comes after those of its steps, also when it is undone with the saga around it.
                    around.push(own);
                    around.extend(done);
                    return Then::GoesOn;
                }
                (Then::GoesOn, None) => return Then::GoesOn,
                (Then::Fails(_), _) => {
                    for done in done.iter().rev() {
                        self.undo(done);
                    }
                    self.undo(&own);
                }
            }
        }
        if goes_on { Then::GoesOn } else { Then::Fails(WorkflowStatus::Terminated) }
    }
}
