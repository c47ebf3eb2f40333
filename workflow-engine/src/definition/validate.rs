use super::{BlockIndex, COMPENSATION, Draft, Found, Node, NodeIndex, NodeKind, ProblemKind, Target};
use std::collections::{HashMap, HashSet};

/// What is wrong with a draft whose names, owners and targets are set.
pub(super) fn problems(draft: &Draft) -> Vec<Found> {
    let check = Check { draft };
    let mut found = Vec::new();
    if draft.nodes.is_empty() {
        return vec![Found { node: None, at: None, kind: ProblemKind::NoSteps }];
    }
    let reached = check.reached();
    for (index, node) in draft.nodes.iter().enumerate() {
        let index = NodeIndex(index);
        let problems = [
            check.emptiness(node),
            check.jump(node),
            check.cycle(index),
            check.unreachable(index, node, &reached).then_some(ProblemKind::Unreachable),
        ];
        found.extend(problems.into_iter().flatten().map(|kind| Found { node: Some(index), at: None, kind }));
    }
    found
}

struct Check<'a> {
    draft: &'a Draft,
}

impl<'a> Check<'a> {
    fn node(&self, index: NodeIndex) -> Option<&'a Node> {
        self.draft.nodes.get(index.0)
    }

    fn nodes_of(&self, block: BlockIndex) -> &'a [NodeIndex] {
        self.draft.blocks.get(block.0).map_or(&[], |block| &block.nodes)
    }

    fn owner(&self, block: BlockIndex) -> Option<(NodeIndex, &'a Node, u32)> {
        let (owner, number) = self.draft.blocks.get(block.0)?.owner?;
        Some((owner, self.node(owner)?, number))
    }

    /// The node that follows in the same block.
    fn next(&self, node: &Node) -> Option<NodeIndex> {
        self.nodes_of(node.block).get(node.position + 1).copied()
    }

    fn is_empty(&self, block: BlockIndex) -> bool {
        self.nodes_of(block).is_empty()
    }

    /// Whether a node in the block, at any depth, is such.
    fn any(&self, block: BlockIndex, is_such: fn(&NodeKind) -> bool) -> bool {
        let mut blocks = vec![block];
        while let Some(block) = blocks.pop() {
            for node in self.nodes_of(block).iter().filter_map(|index| self.node(*index)) {
                if is_such(&node.kind) {
                    return true;
                }
                blocks.extend(node.branches().into_iter().map(|(_, block)| block));
            }
        }
        false
    }

    /// Empty branches of choices, outcomes and time-outs are allowed: they say that nothing is to be done. Others are forgotten.
    fn emptiness(&self, node: &Node) -> Option<ProblemKind> {
        let empty = |what| Some(ProblemKind::Empty { what });
        match &node.kind {
            NodeKind::While { body, .. } => {
                let does = |kind: &NodeKind| {
                    matches!(
                        kind,
                        NodeKind::Step(_)
                            | NodeKind::Wait(_)
                            | NodeKind::Delay { .. }
                            | NodeKind::Schedule { .. }
                            | NodeKind::Recur(_)
                    )
                };
                (!self.any(*body, does)).then_some(ProblemKind::LoopWithoutSteps)
            }
            NodeKind::ForEach { body, .. } if self.is_empty(*body) => empty("its body has no steps"),
            NodeKind::Saga(saga) if self.is_empty(saga.body) => empty("the saga has no steps"),
            NodeKind::Group { body } | NodeKind::Schedule { body, .. } if self.is_empty(*body) => {
                empty("its branch has no steps")
            }
            NodeKind::Recur(recur) if self.is_empty(recur.body) => empty("its branch has no steps"),
            _ if node.compensation.is_some_and(|block| self.is_empty(block)) => empty("its compensation has no steps"),
            NodeKind::Parallel { branches } | NodeKind::First { branches } if branches.is_empty() => empty("it has no branches"),
            NodeKind::Parallel { branches } | NodeKind::First { branches }
                if branches.iter().any(|branch| self.is_empty(*branch)) =>
            {
                empty("one of its branches has no steps")
            }
            NodeKind::Choose { branches, .. } if branches.is_empty() => empty("it has no cases"),
            NodeKind::Step(step) if step.each.is_some_and(|each| self.is_empty(each)) => {
                empty("the branch for its values has no steps")
            }
            NodeKind::Wait(wait) if wait.late.is_some() && wait.timeout.is_none() => Some(ProblemKind::NoTimeout),
            _ => None,
        }
    }

    fn target(&self, node: &Node) -> Option<(NodeIndex, &'a Node)> {
        match &node.kind {
            NodeKind::GoTo { target: Target::Node(target) } => Some((*target, self.node(*target)?)),
            _ => None,
        }
    }

    /// A jump stays in its block or goes to one around it, but not out of what is joined.
    fn jump(&self, node: &Node) -> Option<ProblemKind> {
        let (_, target) = self.target(node)?;
        let name = target.name.to_string();
        let mut block = node.block;
        let mut left = None;
        while block != target.block {
            let Some((_, owner, number)) = self.owner(block) else {
                let owner = self.owner(target.block).map_or_else(String::new, |(_, owner, _)| owner.name.to_string());
                return Some(ProblemKind::TargetInBranch { target: name, owner });
            };
            if left.is_none() && is_joined(&owner.kind, number) {
                left = Some(owner);
            }
            block = owner.block;
        }
        left.map(|owner| ProblemKind::TargetOutside { target: name, owner: owner.name.to_string(), kind: owner.kind.as_str() })
    }

    /// Follows a jump as long as there is one way to go. When that leads back to the jump, nothing ever leaves the circle.
    fn cycle(&self, jump: NodeIndex) -> Option<ProblemKind> {
        let (first, target) = self.target(self.node(jump)?)?;
        let (mut at, mut lowest, mut seen) = (first, jump, HashSet::new());
        while at != jump {
            let node = self.node(at)?;
            if !seen.insert(at) || self.can_leave(node) {
                return None;
            }
            if self.target(node).is_some() {
                lowest = lowest.min(at);
            }
            at = match self.target(node) {
                Some((target, _)) => target,
                None => self.following(node)?,
            };
        }
        // Of a circle with several jumps, one is reported.
        (lowest == jump).then(|| ProblemKind::EndlessCycle { target: target.name.to_string() })
    }

    /// Whether a node, with all in it, can wait, end or branch.
    fn can_leave(&self, node: &Node) -> bool {
        fn can(kind: &NodeKind) -> bool {
            match kind {
                NodeKind::Choose { .. } | NodeKind::While { .. } => true,
                NodeKind::Delay { .. } | NodeKind::Wait(_) | NodeKind::End => true,
                NodeKind::First { .. } | NodeKind::Saga(_) => true,
                NodeKind::Step(step) => !step.outcomes.is_empty(),
                NodeKind::ForEach { .. } | NodeKind::Parallel { .. } | NodeKind::GoTo { .. } => false,
                NodeKind::Group { .. } | NodeKind::Schedule { .. } | NodeKind::Recur(_) => false,
            }
        }
        node.cancel.is_some() || can(&node.kind) || node.kind.branches().into_iter().any(|branch| self.any(branch, can))
    }

    /// What comes after a node, also when it is the last of its branch; `None` where a branch is joined or the workflow ends.
    fn following(&self, node: &Node) -> Option<NodeIndex> {
        let mut node = node;
        loop {
            if let Some(next) = self.next(node) {
                return Some(next);
            }
            let (index, owner, number) = self.owner(node.block)?;
            match owner.kind {
                NodeKind::While { .. } => return Some(index),
                _ if is_joined(&owner.kind, number) => return None,
                _ => node = owner,
            }
        }
    }

    /// All nodes that some way leads to.
    fn reached(&self) -> HashSet<NodeIndex> {
        let mut reached = HashSet::new();
        let mut joined: HashMap<NodeIndex, HashSet<u32>> = HashMap::new();
        let mut ways = vec![Way::Begin(BlockIndex::ROOT)];
        while let Some(way) = ways.pop() {
            match way {
                Way::Begin(block) => ways.push(self.nodes_of(block).first().map_or(Way::EndOf(block), |first| Way::To(*first))),
                Way::To(index) => {
                    let Some(node) = self.node(index) else { continue };
                    if !reached.insert(index) {
                        continue;
                    }
                    ways.extend(node.branches().into_iter().map(|(_, block)| Way::Begin(block)));
                    match &node.kind {
                        NodeKind::GoTo { .. } => ways.extend(self.target(node).map(|(target, _)| Way::To(target))),
                        NodeKind::End => {}
                        NodeKind::Parallel { branches } if !branches.is_empty() && node.cancel.is_none() => {}
                        NodeKind::Choose { .. } if self.draft.total.contains(&index) => {}
                        NodeKind::First { .. } | NodeKind::Group { .. } if node.cancel.is_none() => {}
                        _ => ways.push(self.after(node)),
                    }
                }
                Way::EndOf(block) => {
                    let Some((index, owner, number)) = self.owner(block) else { continue };
                    let goes_on = match &owner.kind {
                        NodeKind::Parallel { branches } => {
                            let ended = joined.entry(index).or_default();
                            ended.insert(number) && ended.len() == branches.len()
                        }
                        NodeKind::Choose { .. } => self.draft.total.contains(&index),
                        NodeKind::First { .. } | NodeKind::Group { .. } => number != COMPENSATION,
                        // Of the others, what follows is reached without their branches.
                        _ => false,
                    };
                    if goes_on {
                        ways.push(self.after(owner));
                    }
                }
            }
        }
        reached
    }

    fn after(&self, node: &Node) -> Way {
        self.next(node).map_or(Way::EndOf(node.block), Way::To)
    }

    /// Whether to report a node as unreachable: the first of its block, of which the reader finds the reason just before.
    fn unreachable(&self, index: NodeIndex, node: &Node, reached: &HashSet<NodeIndex>) -> bool {
        let before = node.position.checked_sub(1).and_then(|before| self.nodes_of(node.block).get(before));
        !reached.contains(&index) && before.is_some_and(|before| reached.contains(before))
    }
}

/// A step of the search for what can be reached.
enum Way {
    Begin(BlockIndex),
    To(NodeIndex),
    EndOf(BlockIndex),
}

/// Whether others run beside this branch of a node, so that it has to be joined.
fn is_joined(kind: &NodeKind, branch: u32) -> bool {
    match kind {
        NodeKind::Parallel { .. } | NodeKind::ForEach { .. } | NodeKind::First { .. } => true,
        NodeKind::Saga(_) | NodeKind::Schedule { .. } | NodeKind::Recur(_) => true,
        _ if branch == COMPENSATION => true,
        NodeKind::Step(step) => step.each.is_some() && branch as usize == step.outcomes.len(),
        _ => false,
    }
}
