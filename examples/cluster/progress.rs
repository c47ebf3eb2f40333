//! How far the run is, read from the ledger.

use std::collections::{BTreeMap, HashSet};

use crate::{
    fulfilment::{EFFECTS, SHIP},
    ledger::Effect,
};

/// What one node has done in this run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeProgress {
    /// Bodies that ran to their end.
    pub(crate) steps: u64,
    /// Orders shipped.
    pub(crate) shipped: u64,
}

/// Progress over all.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The orders of this run.
    orders: HashSet<String>,
    /// What is done of them: (order, step), each once.
    done: HashSet<(String, String)>,
    /// How much of it an earlier run did.
    done_before: usize,
    by_node: BTreeMap<String, NodeProgress>,
}

impl Progress {
    /// Nothing is known to be done yet of these orders.
    pub(crate) fn of(orders: HashSet<String>) -> Self {
        Self { orders, done: HashSet::new(), done_before: 0, by_node: BTreeMap::new() }
    }

    /// Counts what a node of another run did.
    pub(crate) fn add_earlier(&mut self, effect: &Effect) {
        self.done_before += usize::from(self.take(effect));
    }

    /// Counts what a node did in this run.
    pub(crate) fn add(&mut self, effect: &Effect) {
        let node = self.by_node.entry(effect.node.clone()).or_default();
        node.steps += 1;
        node.shipped += u64::from(effect.step == SHIP);
        self.take(effect);
    }

    /// Whether it is new, and of an order of this run.
    fn take(&mut self, effect: &Effect) -> bool {
        self.orders.contains(&effect.order) && self.done.insert((effect.order.clone(), effect.step.clone()))
    }

    /// Whether this order was shipped.
    pub(crate) fn is_shipped(&self, order: &str) -> bool {
        self.done.contains(&(order.to_owned(), SHIP.to_owned()))
    }

    /// The steps done in this run, each counted once however often its body ran.
    pub(crate) fn steps(&self) -> u64 {
        (self.done.len() - self.done_before) as u64
    }

    /// The steps there are to do in this run, if no order fails.
    pub(crate) fn steps_to_do(&self) -> u64 {
        (self.orders.len() * EFFECTS.len()).saturating_sub(self.done_before) as u64
    }

    /// Whether `part` of `whole` of the run is done.
    pub(crate) fn has_reached(&self, part: u32, whole: u32) -> bool {
        self.steps() * u64::from(whole) >= self.steps_to_do() * u64::from(part)
    }

    /// What this node has done in this run.
    pub(crate) fn of_node(&self, node: &str) -> NodeProgress {
        self.by_node.get(node).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fulfilment::{CHARGE, VALIDATE};

    fn effect(order: &str, step: &str, node: &str) -> Effect {
        let (order, step, node) = (order.to_owned(), step.to_owned(), node.to_owned());
        Effect { key: format!("{order}/{step}"), order, step, node, time: latchwork::core::clock::Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn progress_is_of_this_run_and_counts_a_repeated_body_once() {
        let orders = ["A-1", "A-2"].map(str::to_owned).into();
        let mut progress = Progress::of(orders);
        progress.add_earlier(&effect("A-1", VALIDATE, "node-1"));
        progress.add_earlier(&effect("B-9", SHIP, "node-1"));
        assert_eq!((progress.steps(), progress.steps_to_do(), progress.has_reached(1, 9)), (0, 9, false));
        progress.add(&effect("A-1", CHARGE, "node-2"));
        progress.add(&effect("A-1", CHARGE, "node-1"));
        progress.add(&effect("A-1", SHIP, "node-1"));
        assert_eq!((progress.steps(), progress.has_reached(2, 9), progress.has_reached(1, 3)), (2, true, false));
        assert_eq!(progress.of_node("node-1"), NodeProgress { steps: 2, shipped: 1 });
        assert_eq!((progress.is_shipped("A-1"), progress.is_shipped("B-9")), (true, false));
    }
}
