//! Definitions: the erased form of a workflow, ready to be executed.

mod draft;
mod node;
mod problem;
mod shape;
#[cfg(test)]
mod tests;
mod validate;

pub(crate) use draft::*;
pub(crate) use node::*;
pub use problem::{DefinitionError, DefinitionProblem, ProblemKind};
pub use shape::shape_difference;

use crate::{data::DataType, policy::Retry};
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
}
