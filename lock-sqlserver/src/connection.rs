//! The task that owns one connection: gathers what is asked, sends it as one request, watches the socket, and tells a loss.

use crate::{
    PROVIDER,
    batch::{self, Outcome, Verb},
    table::{Shard, Turn},
};
use latchwork_core::lock::{LockError, LockGuard, LockKey, LockMode};
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
    Release { name: Arc<str>, session: u64, reply: Option<Reply> },
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

/// Its answer.
#[derive(Debug)]
pub(crate) enum Attempt {
    Granted(LockGuard),
    Contended(Turn),
    /// The server ended the try; nothing is held.
    Cancelled,
    Stopped,
    Failed(LockError),
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
#[derive(Clone, Debug)]
struct Failure {
    is_transient: bool,
    text: String,
}

impl From<&SqlServerError> for Failure {
    fn from(error: &SqlServerError) -> Self {
        // What is not understood has ended the session; the next one may do better.
        let is_transient = error.is_transient() || matches!(error, SqlServerError::Protocol { .. });
        Self { is_transient, text: error.to_string() }
    }
}

impl Failure {
    fn of(&self, key: &str) -> LockError {
        if self.is_transient {
            LockError::unavailable(PROVIDER, key, self.text.clone())
        } else {
            LockError::refused(PROVIDER, key, self.text.clone())
        }
    }
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
    shard: Weak<Shard>,
    commands: mpsc::UnboundedReceiver<Command>,
    session: Option<Session>,
    /// Counts the sessions: a grant knows its own, so that a stale release never reaches a newer one.
    number: u64,
    /// When the server last answered.
    answered: Instant,
    /// Whether the idle socket is watched; not while it has something to read that nobody asked for.
    watches: bool,
    acquires: VecDeque<Ask>,
    releases: VecDeque<(Arc<str>, u64, Option<Reply>)>,
}

impl Connection {
    pub(crate) fn new(settings: Arc<Settings>, shard: Weak<Shard>, commands: mpsc::UnboundedReceiver<Command>) -> Self {
        Self {
            settings,
            shard,
            commands,
            session: None,
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
            Command::Release { name, session, reply } => self.releases.push_back((name, session, reply)),
            Command::Check { reply } => {
                let result = self.check().await.map_err(|failure| failure.of(&self.settings.server.server()));
                let _ = reply.send(result);
            }
            Command::Stop { held, reply } => {
                for ask in self.acquires.drain(..) {
                    let _ = ask.reply.send(Attempt::Stopped);
                }
                let result = self.free_all(held).await;
                for (_, _, reply) in self.releases.drain(..) {
                    if let Some(reply) = reply {
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
        let waiting = self.releases.iter().map(|(name, session, _)| (*session, name.clone()));
        let names: Vec<Arc<str>> =
            waiting.chain(held).filter(|(session, _)| *session == self.number).map(|(_, name)| name).collect();
        let freed = batch::release_all(session, &names, limit).await;
        freed.map_err(|error| LockError::unavailable(PROVIDER, self.settings.server.server(), error))
    }

    async fn check(&mut self) -> Result<(), Failure> {
        self.open().await?;
        let limit = self.limit();
        let Some(session) = &mut self.session else { return Ok(()) };
        if let Err(error) = batch::heartbeat(session, limit).await {
            self.lose(&error);
            return Err(Failure::from(&error));
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
        let mut session = opened.map_err(|error| Failure::from(&error))?;
        let database = batch::database(&mut session, limit).await.map_err(|error| Failure::from(&error))?;
        let pinned = match self.settings.database.get() {
            Some(pinned) => pinned,
            None => {
                if let Some(sequence) = &self.settings.fence {
                    batch::draw(&mut session, sequence, limit).await.map_err(|error| Failure::from(&error))?;
                }
                self.settings.database.get_or_init(|| database.clone())
            }
        };
        if *pinned != database {
            let text = format!("the session is in the database `{database}` and not in `{pinned}`, to which the locks belong");
            return Err(Failure { is_transient: false, text });
        }
        self.number += 1;
        self.session = Some(session);
        self.answered = Instant::now();
        self.watches = true;
        tracing::debug!(server = %self.settings.server.server(), session = self.number, "lock session opened");
        Ok(())
    }

    /// The session is no more, or cannot be trusted: tells all who hold something in it, then closes it.
    fn lose(&mut self, error: &SqlServerError) {
        let lost = self.shard.upgrade().map_or(0, |shard| shard.lose(self.number));
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
            && let Some((name, session, reply)) = self.releases.pop_front()
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
                    Command::Release { name, reply, .. } => self.releases.push_back((name, 0, reply)),
                    Command::Check { reply } => drop(reply.send(Err(failure.of(&self.settings.server.server())))),
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
        match batch::ask(session, &asked, self.settings.fence.as_deref(), limit).await {
            Ok(outcomes) => {
                self.answered = Instant::now();
                self.watches = true;
                self.settle(pending, outcomes).await;
            }
            Err(error) => {
                // What was granted is unknown, and ends with the session.
                self.lose(&error);
                fail(pending, &Failure::from(&error));
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
                        self.releases.push_back((name, self.number, None));
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
        match turn.granted(key, mode, self.number, fence) {
            // For nobody: the guard's drop gives it back.
            Some(guard) => drop(reply.send(Attempt::Granted(guard))),
            // The provider is being stopped: given back with all the others.
            None => {
                self.releases.push_back((name, self.number, None));
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
                    fail(vec![Pending::Acquire(ask)], &Failure::from(&error));
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
                    fail(vec![Pending::Release { name, reply }], &Failure::from(&error));
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
            Self::Acquire(ask) => (Verb::Acquire(ask.mode), ask.turn.name().clone()),
            Self::Release { name, .. } => (Verb::Release, name.clone()),
        }
    }
}

fn ended(outcome: &Outcome) -> Failure {
    Failure { is_transient: true, text: format!("the session was closed after: {}", outcome.reason()) }
}

fn fail(pending: Vec<Pending>, failure: &Failure) {
    for pending in pending {
        match pending {
            Pending::Acquire(ask) => {
                let failed = failure.of(ask.key.as_str());
                let _ = ask.reply.send(Attempt::Failed(failed));
            }
            Pending::Release { name, reply: Some(reply) } => {
                let _ = reply.send(Err(LockError::unavailable(PROVIDER, &*name, failure.text.clone())));
            }
            Pending::Release { reply: None, .. } => {}
        }
    }
}
