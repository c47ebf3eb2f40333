use super::{
    keeper::Keeper,
    table::{LeaseAnswer, LeaseBatch, LeaseRelease},
    term::Term,
};
use crate::lock::{Attempt, Failure, Freed, LockError, LockKey, LockMode, Loss, LossSignal, Turn};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// The most acquires and releases of one request.
const MOST_ACQUIRES: usize = 500;
const MOST_RELEASES: usize = 1_000;
/// The pause before a release that was not confirmed is sent again.
const RETRY: Duration = Duration::from_millis(500);

type Reply = oneshot::Sender<Result<(), LockError>>;

/// What the task is asked.
#[derive(Debug)]
pub(super) enum Command {
    Acquire(Ask),
    Release(Freed),
    Check(Reply),
    Purge,
    Stop(Reply),
}

/// A try for a lock.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) turn: Turn,
    pub(super) key: LockKey,
    pub(super) reply: oneshot::Sender<Attempt>,
}

/// The task that acquires and releases: gathers what is asked, and sends it as one request.
#[derive(Debug)]
pub(super) struct Requests {
    keeper: Arc<Keeper>,
    commands: mpsc::UnboundedReceiver<Command>,
    acquires: VecDeque<Ask>,
    /// In the order in which they must reach the table: before all acquires.
    releases: VecDeque<Freed>,
    checks: Vec<Reply>,
    /// Numbers the requests.
    last: u64,
    /// The last request was not confirmed.
    failed: bool,
    purge: bool,
    stop: Option<Reply>,
}

impl Requests {
    pub(super) fn new(keeper: Arc<Keeper>, commands: mpsc::UnboundedReceiver<Command>) -> Self {
        Self {
            keeper,
            commands,
            acquires: VecDeque::new(),
            releases: VecDeque::new(),
            checks: Vec::new(),
            last: 0,
            failed: false,
            purge: false,
            stop: None,
        }
    }

    /// Serves until the provider is stopped, or dropped with all its guards.
    pub(super) async fn run(mut self) {
        // Also when the runtime drops this task, renewals end with it.
        let _ends = self.keeper.ended.clone().drop_guard();
        while self.stop.is_none() && self.wait().await {
            while let Ok(command) = self.commands.try_recv() {
                self.accept(command);
            }
            if self.stop.is_some() {
                break;
            }
            if std::mem::take(&mut self.purge)
                && let Err(failure) = self.keeper.table.purge().await
            {
                tracing::debug!(provider = self.provider(), %failure, "rows of ended leases were not removed; it is tried again");
            }
            self.exchange().await;
        }
        self.leave().await;
    }

    fn provider(&self) -> &'static str {
        self.keeper.table.provider()
    }

    /// Waits until there is something to do. `false` when nobody can ask any more.
    async fn wait(&mut self) -> bool {
        if !self.acquires.is_empty() || !self.checks.is_empty() || (!self.releases.is_empty() && !self.failed) {
            return true;
        }
        let command = if self.releases.is_empty() {
            self.commands.recv().await
        } else {
            match tokio::time::timeout(RETRY, self.commands.recv()).await {
                Ok(command) => command,
                Err(_) => return true,
            }
        };
        command.map(|command| self.accept(command)).is_some()
    }

    fn accept(&mut self, command: Command) {
        match command {
            Command::Acquire(ask) => self.acquires.push_back(ask),
            Command::Release(freed) => self.releases.push_back(freed),
            Command::Check(reply) => self.checks.push(reply),
            Command::Purge => self.purge = true,
            Command::Stop(reply) => self.stop = Some(reply),
        }
    }

    /// Ends the lease, and with it all that is held under it.
    async fn leave(mut self) {
        for ask in self.acquires.drain(..) {
            let _ = ask.reply.send(Attempt::Stopped);
        }
        for check in self.checks.drain(..) {
            let _ = check.send(Err(LockError::stopped(self.keeper.table.provider())));
        }
        let left = match self.keeper.take() {
            Some(term) => self.keeper.table.leave(term.host).await,
            None => Ok(()),
        };
        let result = left.map_err(|failure| failure.of(self.provider(), &self.keeper.table.domain()));
        for reply in self.releases.drain(..).filter_map(|freed| freed.reply) {
            // By the lease's end, at the latest.
            let _ = reply.send(Ok(()));
        }
        if let Some(reply) = self.stop.take() {
            let _ = reply.send(result);
        }
    }

    /// Sends what waits.
    async fn exchange(&mut self) {
        let current = self.keeper.current();
        // What was granted under another lease has ended with it.
        let number = current.as_ref().map_or(0, |term| term.number);
        let (live, over): (VecDeque<_>, VecDeque<_>) = self.releases.drain(..).partition(|freed| freed.session == number);
        self.releases = live;
        for reply in over.into_iter().filter_map(|freed| freed.reply) {
            let _ = reply.send(Ok(()));
        }
        // Nobody waits for it any more: the turn passes on, and nothing is sent.
        self.acquires.retain(|ask| !ask.reply.is_closed());
        if self.acquires.is_empty() && self.checks.is_empty() && self.releases.is_empty() {
            return;
        }
        let term = match current {
            Some(term) => term,
            None => match self.keeper.enter().await {
                Ok(term) => term,
                Err(failure) => return self.no_lease(&failure),
            },
        };
        let releases: Vec<Freed> = self.releases.drain(..self.releases.len().min(MOST_RELEASES)).collect();
        // An acquire must not overtake the release of an older grant of its name.
        let room = if self.releases.is_empty() { self.acquires.len().min(MOST_ACQUIRES) } else { 0 };
        let acquires: Vec<Ask> = self.acquires.drain(..room).collect();
        let checks = std::mem::take(&mut self.checks);
        self.last += 1;
        let batch = LeaseBatch::new(
            self.last,
            releases.iter().map(|freed| LeaseRelease::new(freed.name.clone(), freed.fence)).collect(),
            acquires.iter().map(|ask| ask.turn.name().clone()).collect(),
        );
        let answer = self.keeper.table.exchange(term.host, &batch).await;
        self.failed = answer.is_err();
        match answer {
            Ok(LeaseAnswer::Done(fences)) if fences.len() == acquires.len() => {
                for reply in releases.into_iter().filter_map(|freed| freed.reply).chain(checks) {
                    let _ = reply.send(Ok(()));
                }
                for (ask, fence) in acquires.into_iter().zip(fences) {
                    self.settle(ask, &term, fence);
                }
            }
            Ok(LeaseAnswer::Done(fences)) => {
                let text = format!("{} answers to {} requests", fences.len(), acquires.len());
                self.unconfirmed(&term, releases, acquires, checks, &Failure::transient(&text));
            }
            Ok(LeaseAnswer::Ended) => {
                self.keeper.lose(&term, "the server says that it has ended");
                for reply in releases.into_iter().filter_map(|freed| freed.reply) {
                    let _ = reply.send(Ok(()));
                }
                self.fail(acquires, checks, &ended());
            }
            Err(failure) => {
                tracing::warn!(provider = self.provider(), node = %self.keeper.options.node, %failure, "a request for locks was not confirmed");
                self.unconfirmed(&term, releases, acquires, checks, &failure);
            }
        }
    }

    fn settle(&mut self, ask: Ask, term: &Arc<Term>, fence: Option<u64>) {
        let Ask { turn, key, reply } = ask;
        let Some(fence) = fence else {
            let _ = reply.send(Attempt::Contended(turn));
            return;
        };
        if term.is_over() {
            self.keeper.lose(term, "it was not renewed in time");
        }
        let watched = term.clone();
        let loss = LossSignal::looking(move || watched.is_over().then_some(Loss::LeaseExpired));
        let failed = ended().of(self.provider(), key.as_str());
        // What is granted for nobody ends with the lease, in a moment.
        let attempt = match turn.granted(key, LockMode::Exclusive, term.number, Some(fence), loss) {
            Some(guard) => Attempt::Granted(guard),
            None if self.keeper.is_stopped() => Attempt::Stopped,
            None => Attempt::Failed(failed),
        };
        // For nobody: the guard's drop gives it back.
        let _ = reply.send(attempt);
    }

    /// There is no lease, and none can be had: also those who came meanwhile are told, else each would wait for another time-out.
    fn no_lease(&mut self, failure: &Failure) {
        let (provider, node) = (self.provider(), &self.keeper.options.node);
        tracing::warn!(provider, node, %failure, "no lease can be had");
        while let Ok(command) = self.commands.try_recv() {
            self.accept(command);
        }
        let (acquires, checks) = (self.acquires.drain(..).collect(), std::mem::take(&mut self.checks));
        self.fail(acquires, checks, failure);
    }

    /// What became of a request is not known: what it may have granted is given back, and its releases are sent again.
    fn unconfirmed(&mut self, term: &Term, releases: Vec<Freed>, acquires: Vec<Ask>, checks: Vec<Reply>, failure: &Failure) {
        let mut again = VecDeque::with_capacity(releases.len() + acquires.len());
        for mut freed in releases {
            if let Some(reply) = freed.reply.take() {
                let text = Failure::transient(&failure.text);
                let _ = reply.send(Err(text.of(self.provider(), &freed.name)));
            }
            again.push_back(freed);
        }
        again.extend(acquires.iter().map(|ask| Freed::new(ask.turn.name().clone(), term.number)));
        // In front: a later acquire of these names comes after.
        again.append(&mut self.releases);
        self.releases = again;
        self.fail(acquires, checks, failure);
    }

    fn fail(&self, acquires: Vec<Ask>, checks: Vec<Reply>, failure: &Failure) {
        for ask in acquires {
            let failed = failure.of(self.provider(), ask.key.as_str());
            let _ = ask.reply.send(Attempt::Failed(failed));
        }
        for check in checks {
            let _ = check.send(Err(failure.of(self.provider(), &self.keeper.table.domain())));
        }
    }
}

fn ended() -> Failure {
    Failure::transient("the lease ended before the answer came; the next try draws a new one")
}
