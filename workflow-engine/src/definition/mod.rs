//! Definitions: the erased form of a workflow, ready to be executed.

mod draft;
mod node;
mod problem;
mod shape;
#[cfg(test)]
mod tests;
mod validate;

pub(crate) use draft::*;
pub use node::AfterCancel;
pub(crate) use node::*;
pub use problem::{DefinitionError, DefinitionProblem, ProblemKind};
pub use shape::shape_difference;

use crate::{
    data::DataType,
    policy::{Durability, Retry},
};
use std::{any::TypeId, collections::HashMap, sync::Arc};

/// A workflow that was built and found sound.
#[derive(Debug)]
pub struct Definition {
    pub(crate) id: Arc<str>,
    pub(crate) version: u32,
    pub(crate) nodes: Vec<Node>,
    /// The first is the root.
    pub(crate) blocks: Vec<Block>,
    pub(crate) by_name: HashMap<Arc<str>, NodeIndex>,
    pub(crate) data: DataType,
    /// For steps without a policy of their own; `None`: the host's.
    pub(crate) retry: Option<Retry>,
    /// The services that steps declared, with the step and the service's type name.
    pub(crate) needs: Vec<(Arc<str>, TypeId, &'static str)>,
    pub(crate) shape: Arc<str>,
    pub(crate) fingerprint: Arc<str>,
    pub(crate) description: Option<String>,
    /// Whether any step is transactional.
    pub(crate) has_transactions: bool,
    /// For steps that say nothing else.
    pub(crate) durability: Durability,
}

impl Definition {
    /// The workflow's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The workflow's version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The shape: canonical JSON of the steps' names, kinds and links.
    #[must_use]
    pub fn shape(&self) -> &str {
        &self.shape
    }

    /// What it is for, in words; see [`WorkflowBuilder::description`](crate::WorkflowBuilder::description).
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The names of its steps, in the order of the source.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| &*node.name)
    }

    /// Whether it has a step of this name.
    #[must_use]
    pub fn has_step(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The fingerprint of the shape.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub(crate) fn node(&self, index: NodeIndex) -> &Node {
        &self.nodes[index.0]
    }

    pub(crate) fn block(&self, index: BlockIndex) -> &Block {
        &self.blocks[index.0]
    }

    /// The types of the items that a node sees, outermost first.
    pub(crate) fn item_types(&self, node: NodeIndex) -> Vec<DataType> {
        let mut types = Vec::new();
        let mut block = self.node(node).block;
        while let Some((owner, number)) = self.block(block).owner {
            match &self.node(owner).kind {
                NodeKind::ForEach { item, .. } if number != COMPENSATION => types.push(*item),
                NodeKind::Step(step) if step.each == Some(block) => types.push(DataType::of::<serde_json::Value>()),
                _ => {}
            }
            block = self.node(owner).block;
        }
        types.reverse();
        types
    }
}
