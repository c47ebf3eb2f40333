//! What this provider holds, and who waits for it, by the name that the server knows. The same session would be granted the same
//! lock again, so a second request is refused here, before anything is sent.

use crate::connection::Command;
use latchwork_core::lock::{LockError, LockGuard, LockKey, LockMode, Loss, LossSignal, Release};
use std::{
    collections::{HashMap, VecDeque, hash_map},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

/// After so long of handing a name on within this process others are let in.
const RUN: Duration = Duration::from_millis(100);

/// A grant: its number within the provider, and its loss signal.
type Grant = (u64, LossSignal);

#[derive(Debug)]
struct Held {
    mode: LockMode,
    /// The session that holds it.
    session: u64,
    grants: Vec<Grant>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    mode: LockMode,
    sender: oneshot::Sender<Turn>,
}

#[derive(Debug)]
struct Entry {
    held: Option<Held>,
    /// Somebody is asking the server.
    turn: bool,
    queue: VecDeque<Waiter>,
    /// Since when this process has had the name without a pause.
    since: Instant,
}

impl Entry {
    /// Whether the server may be asked for it while this process holds it as it does.
    fn admits(&self, mode: LockMode) -> bool {
        self.held.as_ref().is_none_or(|held| held.mode == LockMode::Shared && mode == LockMode::Shared)
    }
}

/// The names of one connection.
#[derive(Debug, Default)]
pub(crate) struct Names {
    stopped: bool,
    entries: HashMap<Arc<str>, Entry>,
}

/// One connection as the providers' callers see it.
#[derive(Debug)]
pub(crate) struct Shard {
    names: Mutex<Names>,
    commands: mpsc::UnboundedSender<Command>,
    /// Numbers waiters and grants.
    last: AtomicU64,
}

/// The answer to a request before the server is asked.
#[derive(Debug)]
pub(crate) enum Entered {
    Turn(Turn),
    Queued(Ticket),
    Contended,
    Stopped,
}

impl Shard {
    pub(crate) fn new(commands: mpsc::UnboundedSender<Command>) -> Self {
        Self { names: Mutex::default(), commands, last: AtomicU64::new(0) }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(self: &Arc<Self>, name: Arc<str>) -> Turn {
        Turn { shard: self.clone(), name, open: true }
    }

    fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn len(&self) -> usize {
        self.names().entries.len()
    }

    /// `false` when the connection's task has ended.
    pub(crate) fn send(&self, command: Command) -> bool {
        self.commands.send(command).is_ok()
    }

    /// Takes the turn to ask the server, or queues when `may_wait`.
    pub(crate) fn enter(self: &Arc<Self>, name: Arc<str>, mode: LockMode, may_wait: bool) -> Entered {
        let mut names = self.names();
        if names.stopped {
            return Entered::Stopped;
        }
        let entry = match names.entries.entry(name.clone()) {
            hash_map::Entry::Vacant(free) => {
                free.insert(Entry { held: None, turn: true, queue: VecDeque::new(), since: Instant::now() });
                return Entered::Turn(self.turn(name));
            }
            hash_map::Entry::Occupied(entry) => entry.into_mut(),
        };
        // Behind a waiter everybody waits: else readers would starve a writer.
        if !entry.turn && entry.queue.is_empty() && entry.admits(mode) {
            entry.turn = true;
            return Entered::Turn(self.turn(name));
        }
        if !may_wait {
            return Entered::Contended;
        }
        let (sender, receiver) = oneshot::channel();
        let number = self.number();
        entry.queue.push_back(Waiter { number, mode, sender });
        Entered::Queued(Ticket { shard: self.clone(), name, number, receiver })
    }

    /// Hands the turn to the first waiter when it may ask, and forgets a name that nobody needs.
    fn advance(self: &Arc<Self>, names: &mut Names, name: &Arc<str>) {
        let Some(entry) = names.entries.get_mut(name) else { return };
        while !entry.turn
            && let Some(first) = entry.queue.front()
            && entry.admits(first.mode)
            && let Some(first) = entry.queue.pop_front()
        {
            match first.sender.send(self.turn(name.clone())) {
                Ok(()) => entry.turn = true,
                // Its drop would wait for the lock that is held here.
                Err(mut unwanted) => unwanted.open = false,
            }
        }
        if entry.held.is_none() && !entry.turn && entry.queue.is_empty() {
            names.entries.remove(name);
            // A million names that were held leave no memory behind.
            if names.entries.capacity() > 64 && names.entries.len() < names.entries.capacity() / 8 {
                names.entries.shrink_to(names.entries.len() * 2);
            }
        }
    }

    /// A session has ended: all that it held is lost.
    pub(crate) fn lose(self: &Arc<Self>, session: u64) -> usize {
        let mut names = self.names();
        let mut lost = 0;
        let mut freed = Vec::new();
        for (name, entry) in &mut names.entries {
            if let Some(held) = entry.held.take_if(|held| held.session == session) {
                lost += held.grants.len();
                for (_, loss) in held.grants {
                    loss.fire(Loss::SessionClosed);
                }
                freed.push(name.clone());
            }
        }
        for name in freed {
            self.advance(&mut names, &name);
        }
        lost
    }

    /// Signals all grants, ends all waits, refuses what comes later. What is held is named once per grant, with its session.
    pub(crate) fn stop(&self) -> Vec<(u64, Arc<str>)> {
        let mut names = self.names();
        names.stopped = true;
        let entries = std::mem::take(&mut names.entries);
        drop(names);
        let mut held_names = Vec::new();
        for (name, entry) in entries {
            if let Some(held) = entry.held {
                for (_, loss) in held.grants {
                    loss.fire(Loss::Stopped);
                    held_names.push((held.session, name.clone()));
                }
            }
        }
        held_names
    }
}

/// The right to ask the server for a name: one in this process. Dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn {
    shard: Arc<Shard>,
    name: Arc<str>,
    /// Whether the name is still in this turn.
    open: bool,
}

impl Turn {
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn shard(&self) -> Arc<Shard> {
        self.shard.clone()
    }

    /// Whether this process has had the name for so long that others should be let in.
    pub(crate) fn is_due_to_others(&self) -> bool {
        self.shard.names().entries.get(&self.name).is_some_and(|entry| entry.since.elapsed() > RUN)
    }

    /// Others had their chance.
    pub(crate) fn rested(&self) {
        if let Some(entry) = self.shard.names().entries.get_mut(&self.name) {
            entry.since = Instant::now();
        }
    }

    /// The server has granted it to this session: the guard of the grant. `None` when the provider was stopped meanwhile.
    pub(crate) fn granted(mut self, key: LockKey, mode: LockMode, session: u64, fence: Option<u64>) -> Option<LockGuard> {
        self.open = false;
        let (grant, loss) = (self.shard.number(), LossSignal::new());
        let mut names = self.shard.names();
        if names.stopped {
            return None;
        }
        let entry = names.entries.get_mut(&self.name)?;
        entry.turn = false;
        entry.held.get_or_insert_with(|| Held { mode, session, grants: Vec::new() }).grants.push((grant, loss.clone()));
        self.shard.advance(&mut names, &self.name);
        drop(names);
        let freed = Freed { shard: self.shard.clone(), name: self.name.clone(), grant };
        Some(LockGuard::new(key, fence, loss, freed))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.open {
            let mut names = self.shard.names();
            if let Some(entry) = names.entries.get_mut(&self.name) {
                entry.turn = false;
                self.shard.advance(&mut names, &self.name);
            }
        }
    }
}

/// A place in the queue for a name. Dropping it gives the place up.
#[derive(Debug)]
pub(crate) struct Ticket {
    shard: Arc<Shard>,
    name: Arc<str>,
    number: u64,
    receiver: oneshot::Receiver<Turn>,
}

impl Ticket {
    /// Resolves when it is this one's turn, and with nothing when the provider is stopped.
    pub(crate) async fn called(&mut self) -> Option<Turn> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut names = self.shard.names();
        if let Some(entry) = names.entries.get_mut(&self.name) {
            entry.queue.retain(|waiter| waiter.number != self.number);
            // It may have kept those behind it from sharing.
            self.shard.advance(&mut names, &self.name);
        }
    }
}

/// The way back of a grant.
struct Freed {
    shard: Arc<Shard>,
    name: Arc<str>,
    grant: u64,
}

impl Release for Freed {
    fn release(self: Box<Self>, reply: Option<oneshot::Sender<Result<(), LockError>>>) {
        let mut names = self.shard.names();
        if let Some(entry) = names.entries.get_mut(&self.name)
            && let Some(held) = &mut entry.held
            && let Some(place) = held.grants.iter().position(|(grant, _)| *grant == self.grant)
        {
            held.grants.swap_remove(place);
            let session = held.session;
            if held.grants.is_empty() {
                entry.held = None;
            }
            // Sent before anybody may ask again, so that the server frees before it is asked. A task that has ended has freed all.
            self.shard.send(Command::Release { name: self.name.clone(), session, reply });
            self.shard.advance(&mut names, &self.name);
        } else if let Some(reply) = reply {
            // The grant was lost, and somebody else may hold the name by now.
            let _ = reply.send(Ok(()));
        }
    }
}
