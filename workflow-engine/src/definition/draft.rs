use super::{
    Block, BlockIndex, COMPENSATION, Definition, DefinitionError, DefinitionProblem, Node, NodeIndex, NodeKind, ProblemKind,
    Target, shape, validate,
};
use crate::{
    data::DataType,
    policy::{Durability, Retry},
};
use latchwork_core::{limits, name};
use std::{
    any::TypeId,
    cell::RefCell,
    collections::{HashMap, HashSet},
    panic::Location,
    rc::Rc,
    sync::Arc,
};

/// A definition while it is being built. The builders of one workflow share it; none borrows it while user code runs.
pub(crate) type SharedDraft = Rc<RefCell<Draft>>;

/// See [`SharedDraft`].
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) nodes: Vec<Node>,
    /// The first is the root.
    pub(crate) blocks: Vec<Block>,
    /// Nodes whose names are derived when everything around them is known.
    pub(crate) unnamed: HashSet<NodeIndex>,
    /// Choices that always take one of their branches.
    pub(crate) total: HashSet<NodeIndex>,
    pub(crate) retry: Option<Retry>,
    pub(crate) durability: Durability,
    pub(crate) needs: Vec<(NodeIndex, TypeId, &'static str)>,
    pub(crate) description: Option<String>,
    /// What was found wrong on the way.
    pub(crate) problems: Vec<Found>,
}

/// A problem, before its node has its final name.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) node: Option<NodeIndex>,
    /// `None`: where the node was declared.
    pub(crate) at: Option<&'static Location<'static>>,
    pub(crate) kind: ProblemKind,
}

impl Draft {
    /// A draft with an empty root block.
    pub(crate) fn with_root() -> SharedDraft {
        Rc::new(RefCell::new(Self { blocks: vec![Block::default()], ..Self::default() }))
    }

    pub(crate) fn add_block(&mut self) -> BlockIndex {
        self.blocks.push(Block::default());
        BlockIndex(self.blocks.len() - 1)
    }

    /// Adds a node at the end of a block. Without a name it gets a derived one in the end.
    pub(crate) fn add(
        &mut self,
        block: BlockIndex,
        name: Option<&str>,
        declared: &'static Location<'static>,
        kind: NodeKind,
    ) -> NodeIndex {
        let index = NodeIndex(self.nodes.len());
        let position = self.blocks.get(block.0).map_or(0, |block| block.nodes.len());
        self.nodes.push(Node {
            name: name.unwrap_or_default().into(),
            kind,
            block,
            position,
            declared,
            cancel: None,
            compensation: None,
            can_be_cut: false,
        });
        if let Some(block) = self.blocks.get_mut(block.0) {
            block.nodes.push(index);
        }
        match name {
            Some(name) => self.check_name(index, None, "step name", name),
            None => _ = self.unnamed.insert(index),
        }
        index
    }

    /// Gives a node a name of the user's.
    pub(crate) fn rename(&mut self, index: NodeIndex, name: &str) {
        if let Some(node) = self.nodes.get_mut(index.0) {
            node.name = name.into();
        }
        self.unnamed.remove(&index);
        self.check_name(index, None, "step name", name);
    }

    pub(crate) fn check_name(&mut self, node: NodeIndex, at: Option<&'static Location<'static>>, what: &'static str, name: &str) {
        if let Err(reason) = name::check(what, name) {
            self.found(node, at, ProblemKind::BadName { reason });
        }
    }

    pub(crate) fn found(&mut self, node: NodeIndex, at: Option<&'static Location<'static>>, kind: ProblemKind) {
        self.problems.push(Found { node: Some(node), at, kind });
    }

    /// A node, to be completed.
    pub(crate) fn node_mut(&mut self, index: NodeIndex) -> Option<&mut Node> {
        self.nodes.get_mut(index.0)
    }

    /// The kind of a node, to be completed.
    pub(crate) fn kind_mut(&mut self, index: NodeIndex) -> Option<&mut NodeKind> {
        self.nodes.get_mut(index.0).map(|node| &mut node.kind)
    }

    /// Tells each block whose branch it is, and which.
    fn set_owners(&mut self) {
        for (index, node) in self.nodes.iter().enumerate() {
            for (number, branch) in node.branches() {
                if let Some(block) = self.blocks.get_mut(branch.0) {
                    block.owner = Some((NodeIndex(index), number));
                }
            }
        }
    }

    /// Derives the names that the user did not give, from the kind, the event or target, and the place, so that they stay the same when
    /// other blocks change.
    fn set_names(&mut self) {
        let given = self.nodes.iter().enumerate().filter(|(index, _)| !self.unnamed.contains(&NodeIndex(*index)));
        let mut taken: HashSet<Arc<str>> = given.map(|(_, node)| node.name.clone()).collect();
        let mut blocks = vec![BlockIndex::ROOT];
        while let Some(index) = blocks.pop() {
            let Some(block) = self.blocks.get(index.0) else { continue };
            let place = block.owner.and_then(|(owner, number)| Some((self.nodes.get(owner.0)?, number)));
            let place = place.map_or_else(String::new, |(owner, number)| match number {
                COMPENSATION => format!(" in the compensation of {}", owner.name),
                _ => format!(" in {}/{}", owner.name, number + 1),
            });
            let mut ordinals = HashMap::new();
            for index in block.nodes.clone() {
                let Some(node) = self.nodes.get_mut(index.0) else { continue };
                if self.unnamed.contains(&index) {
                    let base = match &node.kind {
                        NodeKind::Wait(wait) => format!("wait for {}", wait.event),
                        NodeKind::GoTo { target: Target::Name(name) } => format!("go to {name}"),
                        kind => kind.as_str().to_owned(),
                    };
                    let ordinal = ordinals.entry(base.clone()).or_insert(0_u32);
                    node.name = loop {
                        *ordinal += 1;
                        let number = if *ordinal == 1 { String::new() } else { format!(" ({ordinal})") };
                        let name = short(format!("{base}{number}{place}")).into();
                        if taken.insert(Arc::clone(&name)) {
                            break name;
                        }
                    };
                }
                blocks.extend(node.branches().into_iter().map(|(_, block)| block));
            }
        }
    }

    /// Tells which nodes can be cancelled from outside while they run.
    fn set_cuts(&mut self) {
        let mut blocks = vec![(BlockIndex::ROOT, false)];
        while let Some((index, inside)) = blocks.pop() {
            let Some(block) = self.blocks.get(index.0) else { continue };
            for index in block.nodes.clone() {
                let Some(node) = self.nodes.get_mut(index.0) else { continue };
                node.can_be_cut = inside || node.cancel.is_some();
                let cuts = node.can_be_cut || matches!(node.kind, NodeKind::First { .. });
                blocks.extend(node.branches().into_iter().map(|(_, block)| (block, cuts)));
            }
        }
    }

    fn find_names(&mut self) -> HashMap<Arc<str>, NodeIndex> {
        let mut by_name: HashMap<Arc<str>, NodeIndex> = HashMap::new();
        let mut twice = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            match by_name.get(&node.name).and_then(|first| self.nodes.get(first.0)) {
                None => _ = by_name.insert(node.name.clone(), NodeIndex(index)),
                Some(first) => twice.push((NodeIndex(index), ProblemKind::DuplicateName { first: first.declared })),
            }
        }
        for (node, kind) in twice {
            self.found(node, None, kind);
        }
        by_name
    }

    fn set_targets(&mut self, by_name: &HashMap<Arc<str>, NodeIndex>) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let NodeKind::GoTo { target } = &mut node.kind else { continue };
            let Target::Name(name) = target else { continue };
            match by_name.get(name.as_str()) {
                Some(found) => *target = Target::Node(*found),
                None => {
                    let kind = ProblemKind::UnknownTarget { target: name.clone() };
                    self.problems.push(Found { node: Some(NodeIndex(index)), at: None, kind });
                }
            }
        }
    }
}

/// Cuts a derived name to what is allowed, with a hash in place of the rest.
fn short(name: String) -> String {
    if name.len() <= limits::NAME_BYTES {
        return name;
    }
    let hash = shape::fingerprint(&name);
    format!("{}~{hash}", limits::cut(&name, limits::NAME_BYTES - 1 - hash.len()))
}

/// Makes a definition of a draft, or says all that is wrong with it.
pub(crate) fn finish(mut draft: Draft, id: &str, version: u32, data: DataType) -> Result<Definition, DefinitionError> {
    if let Err(reason) = name::check("workflow id", id) {
        draft.problems.push(Found { node: None, at: None, kind: ProblemKind::BadName { reason } });
    }
    if version == 0 {
        draft.problems.push(Found { node: None, at: None, kind: ProblemKind::VersionZero });
    }
    draft.set_owners();
    draft.set_names();
    let by_name = draft.find_names();
    draft.set_targets(&by_name);
    draft.set_cuts();
    let found = validate::problems(&draft);
    draft.problems.extend(found);

    let id: Arc<str> = id.into();
    if !draft.problems.is_empty() {
        let problems = draft.problems.into_iter().map(|found| {
            let node = found.node.and_then(|node| draft.nodes.get(node.0));
            DefinitionProblem {
                workflow: id.clone(),
                version,
                step: node.map(|node| node.name.clone()),
                at: found.at.or(node.map(|node| node.declared)),
                kind: found.kind,
            }
        });
        return Err(DefinitionError::new(problems.collect()));
    }
    let needs = draft.needs.into_iter();
    let needs = needs.filter_map(|(node, service, name)| Some((draft.nodes.get(node.0)?.name.clone(), service, name))).collect();
    let shape: Arc<str> = shape::of(&draft.nodes, &draft.blocks).into();
    let fingerprint = shape::fingerprint(&shape).into();
    let (nodes, blocks, retry) = (draft.nodes, draft.blocks, draft.retry);
    let has_transactions = nodes.iter().any(|node| matches!(&node.kind, NodeKind::Step(step) if step.transactional));
    Ok(Definition {
        id,
        version,
        nodes,
        blocks,
        by_name,
        data,
        retry,
        needs,
        shape,
        fingerprint,
        description: draft.description,
        has_transactions,
        durability: draft.durability,
    })
}
