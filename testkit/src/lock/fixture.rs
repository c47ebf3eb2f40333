use latchwork_core::lock::DistributedLockProvider;
use std::{any::Any, fmt, pin::Pin, sync::Arc, time::Duration};

/// Generous, because test machines are slow, and never waited out by a provider that is right.
const PATIENCE: Duration = Duration::from_secs(20);

type Break = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Two providers over the same lock service and namespace, as two nodes have them, each with its own sessions or leases:
/// stopping or breaking one must not touch the other.
pub struct Fixture {
    pub(super) one: Arc<dyn DistributedLockProvider>,
    pub(super) other: Arc<dyn DistributedLockProvider>,
    pub(super) break_one: Option<Break>,
    pub(super) many: usize,
    pub(super) patience: Duration,
    kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture")
            .field("one", &self.one)
            .field("other", &self.other)
            .field("breaks", &self.break_one.is_some())
            .field("many", &self.many)
            .finish_non_exhaustive()
    }
}

impl Fixture {
    /// Two providers over the same service.
    pub fn new(one: impl DistributedLockProvider, other: impl DistributedLockProvider) -> Self {
        Self { one: Arc::new(one), other: Arc::new(other), break_one: None, many: 10_000, patience: PATIENCE, kept: Vec::new() }
    }

    /// A way to end the sessions or leases of the first provider as a failure would: a killed connection, a lease that is
    /// made to run out. Without it the cases about broken sessions are skipped.
    #[must_use]
    pub fn with_break<F, Fut>(mut self, break_one: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.break_one = Some(Box::new(move || Box::pin(break_one())));
        self
    }

    /// Keeps something until the case has ended: a temporary folder, a test server.
    #[must_use]
    pub fn with_kept(mut self, kept: impl Any + Send + Sync) -> Self {
        self.kept.push(Box::new(kept));
        self
    }

    /// How long something may take that must happen soon. Default 20 s; a provider that is right never takes it. Above the
    /// time in which the service notices a broken session.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How many locks the case of many locks held at once takes. Default 10,000.
    #[must_use]
    pub fn with_many(mut self, many: usize) -> Self {
        self.many = many;
        self
    }
}
