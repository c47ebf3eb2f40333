use super::{
    options::LeaseOptions,
    requests::Command,
    table::{HostId, LeaseTable},
    term::{Moment, Term},
};
use crate::lock::{Failure, HeldNames, Loss};
use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::Poll,
    time::Duration,
};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// The lease of a provider, and who came before.
#[derive(Debug, Default)]
struct Slot {
    term: Option<Arc<Term>>,
    /// A host that was lost, and may still be live at the server.
    previous: Option<HostId>,
    /// The number of the last lease.
    last: u64,
}

/// What both tasks of a provider know.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) table: Arc<dyn LeaseTable>,
    pub(super) options: LeaseOptions,
    names: Weak<HeldNames>,
    commands: mpsc::WeakUnboundedSender<Command>,
    slot: Mutex<Slot>,
    entered: Notify,
    /// Ends the renewals.
    pub(super) ended: CancellationToken,
}

impl Keeper {
    pub(super) fn new(
        table: Arc<dyn LeaseTable>,
        options: LeaseOptions,
        names: Weak<HeldNames>,
        commands: mpsc::WeakUnboundedSender<Command>,
    ) -> Self {
        let (slot, entered, ended) = (Mutex::default(), Notify::new(), CancellationToken::new());
        Self { table, options, names, commands, slot, entered, ended }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the provider was stopped, or dropped.
    pub(super) fn is_stopped(&self) -> bool {
        self.names.upgrade().is_none_or(|names| names.is_stopped())
    }

    /// The lease, if there is one. One whose deadline has been reached is lost by this.
    pub(super) fn current(&self) -> Option<Arc<Term>> {
        let term = self.slot().term.clone()?;
        if term.is_over() {
            self.lose(&term, "it was not renewed in time");
            return None;
        }
        Some(term)
    }

    /// A lease is over: tells all who hold something under it. Once; a later call is harmless.
    pub(super) fn lose(&self, term: &Arc<Term>, why: &str) {
        term.end();
        // Before there can be a next host, whose entry may end this one at the server.
        let lost = self.names.upgrade().map_or(0, |names| names.lose(term.number, Loss::LeaseExpired));
        let mut slot = self.slot();
        if slot.term.take_if(|current| current.number == term.number).is_some() {
            slot.previous = Some(term.host);
            drop(slot);
            let (provider, node) = (self.table.provider(), &self.options.node);
            if lost > 0 {
                tracing::warn!(provider, node, host = %term.host, lost, why, "lease lost, and all locks under it");
            } else {
                tracing::debug!(provider, node, host = %term.host, why, "lease lost; it held nothing");
            }
        }
    }

    /// Enters as a new host. Only for the task that has no lease.
    pub(super) async fn enter(&self) -> Result<Arc<Term>, Failure> {
        let (host, previous) = (HostId::draw(), self.slot().previous);
        let sent = Moment::now(&*self.options.clock);
        self.table.enter(host, &self.options.node, previous, self.options.lease()).await?;
        let mut slot = self.slot();
        let until = sent.after(self.options.term());
        let term = Arc::new(Term::new(host, slot.last + 1, self.options.clock.clone(), until));
        slot.last = term.number;
        slot.previous = Some(host);
        if term.is_over() {
            return Err(Failure::transient("the answer to the entry of a new host came after the end of its lease"));
        }
        slot.term = Some(term.clone());
        slot.previous = None;
        drop(slot);
        self.entered.notify_one();
        tracing::debug!(provider = self.table.provider(), node = %self.options.node, %host, "lease host entered");
        Ok(term)
    }

    /// Gives the lease up, for a stop: nothing is renewed or granted after it.
    pub(super) fn take(&self) -> Option<Arc<Term>> {
        self.ended.cancel();
        let term = self.slot().term.take()?;
        term.end();
        Some(term)
    }

    /// Renews until the provider has ended.
    pub(super) async fn run(self: Arc<Self>) {
        let ended = self.ended.clone();
        ended.run_until_cancelled_owned(self.keep()).await;
    }

    async fn keep(self: Arc<Self>) {
        loop {
            let Some(term) = self.current() else {
                self.entered.notified().await;
                continue;
            };
            let mut due = self.options.clock.monotonic().saturating_add(self.options.renewal_period);
            while !term.is_over() {
                term.sleep_until(due).await;
                if term.is_over() {
                    break;
                }
                due = self.renew(&term, due).await;
            }
            self.lose(&term, "it was not renewed in time");
        }
    }

    /// One try, which ends with the lease. Gives the time of the next.
    async fn renew(&self, term: &Arc<Term>, due: Duration) -> Duration {
        let sent = Moment::now(&*self.options.clock);
        let asked = self.table.renew(term.host, self.options.lease());
        match unless(asked, term.sleep_until(Duration::MAX)).await {
            Some(Ok(true)) => {
                if term.extend(sent.after(self.options.term()))
                    && let Some(commands) = self.commands.upgrade()
                {
                    let _ = commands.send(Command::Purge);
                }
                sent.monotonic.saturating_add(self.options.renewal_period)
            }
            Some(Ok(false)) => {
                self.lose(term, "the server says that it has ended");
                due
            }
            Some(Err(failure)) => {
                tracing::warn!(provider = self.table.provider(), node = %self.options.node, %failure, "a lease was not renewed; it is tried again");
                self.options.clock.monotonic().saturating_add(self.options.retry_pause())
            }
            None => due,
        }
    }
}

/// The first future's output, unless the second ends before.
async fn unless<T>(wanted: impl Future<Output = T>, end: impl Future<Output = ()>) -> Option<T> {
    let (mut wanted, mut end) = (pin!(wanted), pin!(end));
    std::future::poll_fn(|cx| match wanted.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}
