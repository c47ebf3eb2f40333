use super::{Block, BlockIndex, Node, NodeKind, Target};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write,
};

/// What running instances depend on: the steps' names and kinds, and how they hang together. Flat, so that no nesting is too deep to read.
#[derive(Default, Serialize, Deserialize)]
struct Shape {
    /// The names of the steps of the workflow itself, in their order.
    root: Vec<String>,
    steps: BTreeMap<String, Step>,
}

#[derive(Default, Serialize, Deserialize)]
struct Step {
    kind: String,
    /// The names of the steps of each branch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    branches: Vec<Vec<String>>,
    /// The names of the steps of the branch for a step's values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    each: Option<Vec<String>>,
    /// The names of the steps that undo it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compensation: Option<Vec<String>>,
    /// Where a go-to leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

/// The shape of a definition's nodes, as canonical JSON.
pub(super) fn of(nodes: &[Node], blocks: &[Block]) -> String {
    let name_of = |index: super::NodeIndex| nodes.get(index.0).map(|node| node.name.to_string());
    let names = |block: BlockIndex| -> Vec<String> {
        blocks.get(block.0).map_or_else(Vec::new, |block| block.nodes.iter().filter_map(|node| name_of(*node)).collect())
    };
    let step = |node: &Node| {
        let mut branches: Vec<_> = node.kind.branches().into_iter().map(names).collect();
        let each = match &node.kind {
            NodeKind::Step(step) if step.each.is_some() => branches.pop(),
            _ => None,
        };
        let target = match &node.kind {
            NodeKind::GoTo { target: Target::Node(index) } => name_of(*index),
            _ => None,
        };
        let compensation = node.compensation.map(names);
        (node.name.to_string(), Step { kind: node.kind.as_str().to_owned(), branches, each, compensation, target })
    };
    let shape = Shape { root: names(BlockIndex::ROOT), steps: nodes.iter().map(step).collect() };
    // Maps with text keys and plain text can always be written.
    serde_json::to_string(&shape).unwrap_or_default()
}

/// The first 128 bits of the SHA-256, in hex.
pub(super) fn fingerprint(text: &str) -> String {
    Sha256::digest(text).iter().take(16).fold(String::new(), |mut hex, byte| {
        _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// A branch: of which step and which one. `None`: the workflow itself.
type Place<'a> = Option<(&'a str, usize)>;

/// The number of a compensation among the branches.
const UNDO: usize = usize::MAX;

impl Shape {
    /// Each block with the names of its steps.
    fn blocks(&self) -> Vec<(Place<'_>, &[String])> {
        let branches = self.steps.iter().flat_map(|(owner, step)| {
            let blocks = step.branches.iter().chain(&step.each).enumerate();
            let compensation = step.compensation.iter().map(|names| (UNDO, names));
            blocks.chain(compensation).map(|(number, names)| (Some((owner.as_str(), number)), names.as_slice()))
        });
        [(None, self.root.as_slice())].into_iter().chain(branches).collect()
    }

    /// Where each step stands: its block, and its position there.
    fn places(&self) -> HashMap<&str, (Place<'_>, usize)> {
        let blocks = self.blocks().into_iter();
        blocks.flat_map(|(place, names)| names.iter().enumerate().map(move |(at, name)| (name.as_str(), (place, at)))).collect()
    }
}

/// Says in words what changed from one shape of a workflow to another, one sentence after the other; empty when nothing did.
#[must_use]
pub fn shape_difference(old: &str, new: &str) -> String {
    let (old, new) = match (serde_json::from_str::<Shape>(old), serde_json::from_str::<Shape>(new)) {
        (Ok(old), Ok(new)) => (old, new),
        _ => return "the shapes cannot be compared: one was written by another version of the engine".to_owned(),
    };
    let old_places = old.places();
    let mut said: Vec<String> = Vec::new();
    for name in old.steps.keys().filter(|name| !new.steps.contains_key(*name)) {
        said.push(format!("step `{name}` was removed"));
    }
    for (place, names) in new.blocks() {
        let kept: Vec<_> =
            names.iter().filter_map(|name| old_places.get(name.as_str()).map(|(place, at)| (place, *at))).collect();
        let stay: Vec<_> = kept.iter().filter(|(was, _)| **was == place).map(|(_, at)| *at).collect();
        let unmoved: HashSet<_> = longest_rising(&stay).into_iter().collect();
        for (at, name) in names.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|before| names.get(before));
            match old_places.get(name.as_str()) {
                None => said.push(format!("step `{name}` was added {}", describe(place, before))),
                Some((was, at)) if *was == place && unmoved.contains(at) => {}
                Some(_) => said.push(format!("step `{name}` now stands {}", describe(place, before))),
            }
        }
    }
    for (name, step) in &new.steps {
        let Some(was) = old.steps.get(name) else { continue };
        if was.kind != step.kind {
            said.push(format!("`{name}` was a {} and is a {}", was.kind, step.kind));
            continue;
        }
        if let (Some(was), Some(is)) = (&was.target, &step.target)
            && was != is
        {
            said.push(format!("`{name}` goes to `{is}`, no more to `{was}`"));
        }
        if was.branches.len() != step.branches.len() {
            said.push(format!("`{name}` has {} branches, no more {}", step.branches.len(), was.branches.len()));
        }
        match (&was.compensation, &step.compensation) {
            (None, Some(_)) => said.push(format!("`{name}` got a compensation")),
            (Some(_), None) => said.push(format!("`{name}` lost its compensation")),
            _ => {}
        }
        match (&was.each, &step.each) {
            (None, Some(_)) => said.push(format!("`{name}` got a branch for its values")),
            (Some(_), None) => said.push(format!("`{name}` lost the branch for its values")),
            _ => {}
        }
    }
    said.join("; ")
}

fn describe(place: Place<'_>, before: Option<&String>) -> String {
    match (place, before) {
        (_, Some(before)) => format!("after `{before}`"),
        (None, None) => "at the beginning".to_owned(),
        (Some((owner, UNDO)), None) => format!("at the beginning of the compensation of `{owner}`"),
        (Some((owner, number)), None) => format!("at the beginning of branch {} of `{owner}`", number + 1),
    }
}

/// The longest selection of the numbers that rises: what need not have moved.
fn longest_rising(numbers: &[usize]) -> Vec<usize> {
    // The last elements of the best selection of each length, and for each number its predecessor.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: HashMap<usize, usize> = HashMap::new();
    for number in numbers {
        let length = ends.partition_point(|end| end < number);
        if let Some(previous) = length.checked_sub(1).and_then(|previous| ends.get(previous)) {
            before.insert(*number, *previous);
        }
        match ends.get_mut(length) {
            Some(end) => *end = *number,
            None => ends.push(*number),
        }
    }
    let mut chosen: Vec<_> = std::iter::successors(ends.last().copied(), |number| before.get(number).copied()).collect();
    chosen.reverse();
    chosen
}
