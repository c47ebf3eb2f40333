use super::{
    keeper::Keeper,
    options::LeaseOptions,
    requests::{Ask, Command, Requests},
    table::LeaseTable,
};
use crate::{
    lock::{
        Attempt, DistributedLockProvider, HeldNames, LockCapabilities, LockError, LockGuard, LockMode, LockRequest,
        LossDetection, Turn,
    },
    name::Namespace,
};
use async_trait::async_trait;
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// Locks by name as leases in a table: exclusive, with fencing tokens.
///
/// A clone is the same provider: `stop` ends both.
#[derive(Clone)]
pub struct LeaseLocks {
    names: Arc<HeldNames>,
    keeper: Arc<Keeper>,
    commands: mpsc::UnboundedSender<Command>,
}

impl fmt::Debug for LeaseLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseLocks")
            .field("domain", &self.keeper.table.domain())
            .field("namespace", &self.namespace().as_str())
            .field("lease", &self.keeper.options.lease())
            .field("held_names", &self.held_names())
            .field("stopped", &self.names.is_stopped())
            .finish_non_exhaustive()
    }
}

impl LeaseLocks {
    /// Enters as a host of this table, to see that it works. Needs a Tokio runtime, as do all asynchronous calls.
    ///
    /// # Errors
    /// [`LockError::Refused`] when the options cannot work, [`LockError::Unavailable`] when the server does not answer now.
    pub async fn connect(table: impl LeaseTable, options: LeaseOptions) -> Result<Self, LockError> {
        options.check(table.provider())?;
        let (commands, given) = mpsc::unbounded_channel();
        let freeing = commands.clone();
        // A task that has ended has freed all.
        let names = Arc::new(HeldNames::new(table.provider(), move |freed| drop(freeing.send(Command::Release(freed)))));
        let keeper = Arc::new(Keeper::new(Arc::new(table), options, Arc::downgrade(&names), commands.downgrade()));
        tokio::spawn(Requests::new(keeper.clone(), given).run());
        tokio::spawn(keeper.clone().run());
        let locks = Self { names, keeper, commands };
        locks.check().await?;
        Ok(locks)
    }

    /// How many names this provider holds, waits for or asks for at the moment.
    #[must_use]
    pub fn held_names(&self) -> usize {
        self.names.len()
    }

    fn stopped(&self) -> LockError {
        LockError::stopped(self.keeper.table.provider())
    }

    async fn ask(&self, turn: Turn, request: &LockRequest) -> Attempt {
        let (reply, answer) = oneshot::channel();
        // When nobody waits for the answer any more it is dropped: a grant is given back, a turn passes on.
        if self.commands.send(Command::Acquire(Ask { turn, key: request.key.clone(), reply })).is_err() {
            return Attempt::Stopped;
        }
        answer.await.unwrap_or(Attempt::Stopped)
    }
}

#[async_trait]
impl DistributedLockProvider for LeaseLocks {
    fn capabilities(&self) -> LockCapabilities {
        let loss = LossDetection::Lease(self.keeper.options.lease());
        LockCapabilities::new(self.keeper.table.scope(), loss, self.keeper.table.domain())
            .with_fencing()
            .with_longest_key(self.keeper.table.longest_key())
    }

    fn namespace(&self) -> &Namespace {
        &self.keeper.options.namespace
    }

    async fn acquire(&self, request: LockRequest) -> Result<Option<LockGuard>, LockError> {
        if request.mode == LockMode::Shared {
            return Err(LockError::unsupported(self.keeper.table.provider(), "shared mode"));
        }
        // Whoever was paused beyond the end of the lease loses what it held by this call.
        let _ = self.keeper.current();
        let name = request.key.fit(self.keeper.table.longest_key());
        self.names.acquire(&request, Arc::from(&*name), |turn| self.ask(turn, &request)).await
    }

    async fn check(&self) -> Result<(), LockError> {
        if self.names.is_stopped() {
            return Err(self.stopped());
        }
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Check(reply)).map_err(|_| self.stopped())?;
        answer.await.map_err(|_| self.stopped())?
    }

    async fn stop(&self, grace: Duration) -> Result<(), LockError> {
        // Holders are told before anything is freed, which is one request: the end of the lease.
        self.names.stop();
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Stop(reply)).is_err() {
            return Ok(());
        }
        match tokio::time::timeout(grace, answer).await {
            // No answer: stopped already.
            Ok(answer) => answer.unwrap_or(Ok(())),
            Err(late) => Err(LockError::unavailable(self.keeper.table.provider(), self.keeper.table.domain(), late)),
        }
    }
}
