//! How far a provider reaches.

/// How far a lock, a queue or a store reaches. Ordered: a wider scope is greater.
///
/// A host refuses a lock whose scope is below the store's, because two holders of one lock could then write one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// This process only.
    Process,
    /// All processes of this machine.
    Host,
    /// All machines that reach the same server.
    Cluster,
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Process => "process",
            Self::Host => "host",
            Self::Cluster => "cluster",
        })
    }
}
