//! The task that owns one connection: gathers what is asked, sends it as one request, watches the socket, and tells a loss.

use crate::{
    PROVIDER,
    batch::{self, Counting, Outcome, Verb},
};
use latchwork_core::lock::{Attempt, Failure, Freed, HeldNames, LockError, LockKey, LockMode, Loss, LossSignal, Turn};
use latchwork_sqlserver_client::{Session, SqlServerError, SqlServerOptions};
use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

type Reply = oneshot::Sender<Result<(), LockError>>;

/// The server's error for the release of a lock that the session does not hold.
const NOT_HELD: i64 = 1223;

/// What the connection is asked.
#[derive(Debug)]
pub(crate) enum Command {
    Acquire(Ask),
    Release(Freed),
    Check { reply: Reply },
    Stop { held: Vec<(u64, Arc<str>)>, reply: Reply },
}

/// A try for a lock.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) turn: Turn,
    pub(crate) key: LockKey,
    pub(crate) mode: LockMode,
    /// Whether the server is asked for the second time, after a refusal that it did not explain.
    pub(crate) again: bool,
    pub(crate) reply: oneshot::Sender<Attempt>,
}

/// What all connections of a provider have in common.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) server: SqlServerOptions,
    pub(crate) heartbeat: Duration,
    pub(crate) fence: Option<String>,
    /// The database that the first session was in; locks belong to it.
    pub(crate) database: OnceLock<String>,
}

/// An error of the connection, for all who asked.
fn failure(error: &SqlServerError) -> Failure {
    // What is not understood has ended the session; the next one may do better.
    let is_transient = error.is_transient() || matches!(error, SqlServerError::Protocol { .. });
    if is_transient { Failure::transient(error) } else { Failure::lasting(error) }
}

/// One part of a request that is under way.
#[derive(Debug)]
enum Pending {
    Acquire(Ask),
    Release { name: Arc<str>, reply: Option<Reply> },
}

#[derive(Debug)]
pub(crate) struct Connection {
    settings: Arc<Settings>,
    names: Weak<HeldNames>,
    commands: mpsc::UnboundedReceiver<Command>,
    session: Option<Session>,
    /// How the session counts a text.
    counting: Counting,
    /// Counts the sessions: a grant knows its own, so that a stale release never reaches a newer one.
    number: u64,
    /// When the server last answered.
    answered: Instant,
    /// Whether the idle socket is watched; not while it has something to read that nobody asked for.
    watches: bool,
    acquires: VecDeque<Ask>,
    releases: VecDeque<Freed>,
}

impl Connection {
    pub(crate) fn new(settings: Arc<Settings>, names: Weak<HeldNames>, commands: mpsc::UnboundedReceiver<Command>) -> Self {
        Self {
            settings,
            names,
            commands,
            session: None,
            counting: Counting::Units,
            number: 0,
            answered: Instant::now(),
            watches: true,
            acquires: VecDeque::new(),
            releases: VecDeque::new(),
        }
    }

    fn limit(&self) -> Duration {
        self.settings.server.request_timeout
    }

    /// Serves until the provider is stopped, or dropped with all its guards.
    pub(crate) async fn run(mut self) {
        loop {
            if self.acquires.is_empty() && self.releases.is_empty() {
                let Some(command) = self.idle().await else { return };
                if self.accept(command).await {
                    return;
                }
            }
            while let Ok(command) = self.commands.try_recv() {
                if self.accept(command).await {
                    return;
                }
            }
            self.send_batch().await;
        }
    }

    /// Waits for a command, with an eye on the session. `None` when nobody can send one any more.
    async fn idle(&mut self) -> Option<Command> {
        loop {
            let Some(session) = &mut self.session else { return self.commands.recv().await };
            tokio::select! {
                biased;
                closed = session.stirs(), if self.watches => {
                    if closed {
                        self.lose(&SqlServerError::closed("the connection was closed"));
                    } else {
                        self.watches = false;
                        self.beat().await;
                    }
                }
                command = self.commands.recv() => return command,
                () = tokio::time::sleep_until(self.answered + self.settings.heartbeat) => {
                    self.beat().await;
                    self.watches = true;
                }
            }
        }
    }

    async fn beat(&mut self) {
        let limit = self.limit();
        let Some(session) = &mut self.session else { return };
        match batch::heartbeat(session, limit).await {
            Ok(()) => self.answered = Instant::now(),
            Err(error) => self.lose(&error),
        }
    }

    /// Takes a command in; `true` when it was the last one.
    async fn accept(&mut self, command: Command) -> bool {
        match command {
            Command::Acquire(ask) => self.acquires.push_back(ask),
            Command::Release(freed) => self.releases.push_back(freed),
            Command::Check { reply } => {
                let result = self.check().await.map_err(|failure| failure.of(PROVIDER, &self.settings.server.server()));
                let _ = reply.send(result);
            }
            Command::Stop { held, reply } => {
                for ask in self.acquires.drain(..) {
                    let _ = ask.reply.send(Attempt::Stopped);
                }
                let result = self.free_all(held).await;
                for freed in self.releases.drain(..) {
                    if let Some(reply) = freed.reply {
                        let _ = reply.send(Ok(()));
                    }
                }
                // The end of the session frees whatever was granted for nobody.
                self.session = None;
                let _ = reply.send(result);
                return true;
            }
        }
        false
    }

    async fn free_all(&mut self, held: Vec<(u64, Arc<str>)>) -> Result<(), LockError> {
        let limit = self.limit();
        let Some(session) = &mut self.session else { return Ok(()) };
        let waiting = self.releases.iter().map(|freed| (freed.session, freed.name.clone()));
        let names: Vec<Arc<str>> =
            waiting.chain(held).filter(|(session, _)| *session == self.number).map(|(_, name)| name).collect();
        let freed = batch::release_all(session, &names, self.counting, limit).await;
        freed.map_err(|error| LockError::unavailable(PROVIDER, self.settings.server.server(), error))
    }

    async fn check(&mut self) -> Result<(), Failure> {
        self.open().await?;
        let limit = self.limit();
        let Some(session) = &mut self.session else { return Ok(()) };
        if let Err(error) = batch::heartbeat(session, limit).await {
            self.lose(&error);
            return Err(failure(&error));
        }
        self.answered = Instant::now();
        Ok(())
    }

    /// Opens a session when there is none.
    async fn open(&mut self) -> Result<(), Failure> {
        if self.session.is_some() {
            return Ok(());
        }
        let (opened, limit) = (Session::open(&self.settings.server).await, self.limit());
        let mut session = opened.map_err(|error| failure(&error))?;
        let (database, counting) = batch::database(&mut session, limit).await.map_err(|error| failure(&error))?;
        let pinned = match self.settings.database.get() {
            Some(pinned) => pinned,
            None => {
                if let Some(sequence) = &self.settings.fence {
                    batch::draw(&mut session, sequence, limit).await.map_err(|error| failure(&error))?;
                }
                self.settings.database.get_or_init(|| database.clone())
            }
        };
        if *pinned != database {
            let text = format!("the session is in the database `{database}` and not in `{pinned}`, to which the locks belong");
            return Err(Failure::lasting(&text));
        }
        self.number += 1;
        self.session = Some(session);
        self.counting = counting;
        self.answered = Instant::now();
        self.watches = true;
        tracing::debug!(server = %self.settings.server.server(), session = self.number, "lock session opened");
        Ok(())
    }

    /// The session is no more, or cannot be trusted: tells all who hold something in it, then closes it.
    fn lose(&mut self, error: &SqlServerError) {
        let lost = self.names.upgrade().map_or(0, |names| names.lose(self.number, Loss::SessionClosed));
        let server = self.settings.server.server();
        if lost > 0 {
            tracing::warn!(%server, lost, %error, "lock session lost, and all locks in it");
        } else {
            tracing::debug!(%server, %error, "lock session lost; it held nothing");
        }
        self.session = None;
    }

    /// Sends what waits, releases first.
    async fn send_batch(&mut self) {
        let mut pending = Vec::new();
        while pending.len() < batch::MOST
            && let Some(Freed { name, session, reply, .. }) = self.releases.pop_front()
        {
            if self.session.is_some() && session == self.number {
                pending.push(Pending::Release { name, reply });
            } else if let Some(reply) = reply {
                // It ended with its session.
                let _ = reply.send(Ok(()));
            }
        }
        while pending.len() < batch::MOST
            && let Some(ask) = self.acquires.pop_front()
        {
            // Nobody waits for it any more: the turn passes on, and nothing is sent.
            if !ask.reply.is_closed() {
                pending.push(Pending::Acquire(ask));
            }
        }
        if pending.is_empty() {
            return;
        }
        if let Err(failure) = self.open().await {
            tracing::warn!(server = %self.settings.server.server(), reason = %failure.text, "no lock session can be opened");
            // Also those who came meanwhile, else each batch would wait for another time-out.
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Acquire(ask) => pending.push(Pending::Acquire(ask)),
                    Command::Release(freed) => self.releases.push_back(freed),
                    Command::Check { reply } => drop(reply.send(Err(failure.of(PROVIDER, &self.settings.server.server())))),
                    stop @ Command::Stop { .. } => {
                        // Nothing is held without a session, so this is at an end.
                        self.commands.close();
                        Box::pin(self.accept(stop)).await;
                    }
                }
            }
            pending.extend(self.acquires.drain(..).map(Pending::Acquire));
            fail(pending, &failure);
            return;
        }
        let limit = self.limit();
        let Some(session) = &mut self.session else { return };
        let asked: Vec<_> = pending.iter().map(Pending::asked).collect();
        match batch::ask(session, &asked, self.settings.fence.as_deref(), self.counting, limit).await {
            Ok(outcomes) => {
                self.answered = Instant::now();
                self.watches = true;
                self.settle(pending, outcomes).await;
            }
            Err(error) => {
                // What was granted is unknown, and ends with the session.
                self.lose(&error);
                fail(pending, &failure(&error));
            }
        }
    }

    async fn settle(&mut self, pending: Vec<Pending>, outcomes: Vec<Outcome>) {
        let mut unclear = Vec::new();
        for (pending, outcome) in pending.into_iter().zip(outcomes) {
            match pending {
                Pending::Acquire(ask) => match (outcome.code, outcome.error) {
                    (0 | 1, 0) => self.granted(ask, outcome.fence),
                    (0.., _) => {
                        // The lock without its number: given back.
                        let name = ask.turn.name().clone();
                        self.releases.push_back(Freed::new(name, self.number));
                        ask.refuse(&outcome);
                    }
                    (-1, _) => {
                        let Ask { turn, reply, .. } = ask;
                        let _ = reply.send(Attempt::Contended(turn));
                    }
                    (-2, _) => drop(ask.reply.send(Attempt::Cancelled)),
                    (-3, _) => {
                        tracing::warn!(key = %ask.key, "the server chose a lock request as a deadlock's victim");
                        let failed = LockError::deadlock(PROVIDER, ask.key.as_str());
                        let _ = ask.reply.send(Attempt::Failed(failed));
                    }
                    _ => unclear.push((Pending::Acquire(ask), outcome)),
                },
                Pending::Release { name, reply } => match (outcome.code, outcome.error) {
                    (0, 0) | (_, NOT_HELD) => {
                        if outcome.error == NOT_HELD {
                            tracing::warn!(%name, "a lock was freed that its session did not hold any more");
                        }
                        if let Some(reply) = reply {
                            let _ = reply.send(Ok(()));
                        }
                    }
                    _ => unclear.push((Pending::Release { name, reply }, outcome)),
                },
            }
        }
        for (pending, outcome) in unclear {
            self.clear_up(pending, outcome).await;
        }
    }

    fn granted(&mut self, ask: Ask, fence: Option<u64>) {
        let Ask { turn, key, mode, reply, .. } = ask;
        let name = turn.name().clone();
        match turn.granted(key, mode, self.number, fence, LossSignal::new()) {
            // For nobody: the guard's drop gives it back.
            Some(guard) => drop(reply.send(Attempt::Granted(guard))),
            // The provider is being stopped: given back with all the others.
            None => {
                self.releases.push_back(Freed::new(name, self.number));
                let _ = reply.send(Attempt::Stopped);
            }
        }
    }

    /// The server's refusal may mean that somebody else holds the lock, or that it is not held at all: it is asked again.
    async fn clear_up(&mut self, pending: Pending, outcome: Outcome) {
        let limit = self.limit();
        let Some(session) = &mut self.session else { return fail(vec![pending], &ended(&outcome)) };
        match pending {
            Pending::Acquire(ask) => match batch::is_held_elsewhere(session, ask.turn.name(), ask.mode, limit).await {
                Ok(true) => {
                    let Ask { turn, reply, .. } = ask;
                    let _ = reply.send(Attempt::Contended(turn));
                }
                // Without a word of why: who held it may have freed it since.
                Ok(false) if outcome.error == 0 && !ask.again => self.acquires.push_front(Ask { again: true, ..ask }),
                Ok(false) => ask.refuse(&outcome),
                Err(error) => {
                    self.lose(&error);
                    fail(vec![Pending::Acquire(ask)], &failure(&error));
                }
            },
            Pending::Release { name, reply } => match batch::is_held_here(session, &name, limit).await {
                Ok(false) => {
                    tracing::warn!(%name, reason = %outcome.reason(), "the release of a lock was refused, and it is not held");
                    if let Some(reply) = reply {
                        let _ = reply.send(Ok(()));
                    }
                }
                // It cannot be freed alone: with its session.
                Ok(true) => {
                    self.lose(&SqlServerError::closed(format!("a lock in it could not be freed: {}", outcome.reason())));
                    fail(vec![Pending::Release { name, reply }], &ended(&outcome));
                }
                Err(error) => {
                    self.lose(&error);
                    fail(vec![Pending::Release { name, reply }], &failure(&error));
                }
            },
        }
    }
}

impl Ask {
    fn refuse(self, outcome: &Outcome) {
        let reason = outcome.reason();
        tracing::warn!(key = %self.key, %reason, "the server refused a lock request");
        let failed = LockError::refused(PROVIDER, self.key.as_str(), reason);
        let _ = self.reply.send(Attempt::Failed(failed));
    }
}

impl Pending {
    fn asked(&self) -> (Verb, Arc<str>) {
        match self {
            Self::Acquire(ask) => (ask.mode.into(), ask.turn.name().clone()),
            Self::Release { name, .. } => (Verb::Release, name.clone()),
        }
    }
}

fn ended(outcome: &Outcome) -> Failure {
    Failure::transient(&format!("the session was closed after: {}", outcome.reason()))
}

fn fail(pending: Vec<Pending>, failure: &Failure) {
    for pending in pending {
        match pending {
            Pending::Acquire(ask) => {
                let failed = failure.of(PROVIDER, ask.key.as_str());
                let _ = ask.reply.send(Attempt::Failed(failed));
            }
            Pending::Release { name, reply: Some(reply) } => {
                let _ = reply.send(Err(LockError::unavailable(PROVIDER, &*name, failure.text.clone())));
            }
            Pending::Release { reply: None, .. } => {}
        }
    }
}
