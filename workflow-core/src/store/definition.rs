use std::sync::Arc;

/// The shape of a definition: canonical JSON of its steps' names, kinds and links, without types, durations or retry numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionShape {
    /// The definition.
    pub definition: Arc<str>,
    /// Its version.
    pub version: u32,
    /// The fingerprint of the shape, which instances carry.
    pub fingerprint: Arc<str>,
    /// The shape.
    pub shape: Arc<str>,
}

/// What became of a shape that a host registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefineOutcome {
    /// It is the stored one now: it was already, there was none, or no open instance used the other.
    Stored,
    /// Open instances use another shape of the same version. Starting the version must be refused, with the difference.
    Conflict {
        /// The stored shape.
        stored: DefinitionShape,
    },
}

/// Which cluster a store belongs to: kept in one row, and equal for all hosts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterIdentity {
    /// Drawn by the first host.
    pub cluster: String,
    /// The namespace.
    pub namespace: String,
    /// The domain of the lock service, from its capabilities.
    pub lock_domain: String,
}

/// What became of a host's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityOutcome {
    /// It fits; the cluster is this one.
    Accepted(ClusterIdentity),
    /// The store belongs to hosts of another namespace or lock service.
    Differs(ClusterIdentity),
}
