use super::{LockError, LockGuard, LockKey, LockMode, LockRequest, Loss, LossSignal, Release, Wait};
use std::{
    collections::{HashMap, VecDeque, hash_map},
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

/// After so long of handing a name on within this process others are let in.
const RUN: Duration = Duration::from_millis(100);
/// The pauses between two tries while another process holds the lock.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A grant whose last guard has gone: what is to be freed at the backend.
#[derive(Debug)]
#[non_exhaustive]
pub struct Freed {
    /// The name, as the backend knows it.
    pub name: Arc<str>,
    /// The session or lease under which it was granted.
    pub session: u64,
    /// Its fencing token.
    pub fence: Option<u64>,
    /// Who waits for the answer.
    pub reply: Option<oneshot::Sender<Result<(), LockError>>>,
}

impl Freed {
    /// A grant without a guard: whatever this session has under the name. Nobody waits for the answer.
    #[must_use]
    pub fn new(name: Arc<str>, session: u64) -> Self {
        Self { name, session, fence: None, reply: None }
    }
}

/// The answer of the backend to one try.
#[derive(Debug)]
pub enum Attempt {
    /// It is granted.
    Granted(LockGuard),
    /// Another process holds it.
    Contended(Turn),
    /// The server ended the try; nothing is held.
    Cancelled,
    /// The provider was stopped.
    Stopped,
    /// The try failed.
    Failed(LockError),
}

#[derive(Debug)]
struct Grant {
    /// Its number within the provider.
    number: u64,
    fence: Option<u64>,
    loss: LossSignal,
}

#[derive(Debug)]
struct Held {
    mode: LockMode,
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
    /// Somebody is asking the backend.
    turn: bool,
    queue: VecDeque<Waiter>,
    /// Since when this process has had the name without a pause.
    since: Instant,
}

impl Entry {
    /// Whether the backend may be asked for it while this process holds it as it does.
    fn admits(&self, mode: LockMode) -> bool {
        self.held.as_ref().is_none_or(|held| held.mode == LockMode::Shared && mode == LockMode::Shared)
    }
}

#[derive(Debug, Default)]
struct Names {
    stopped: bool,
    /// The last session that ended: what is granted under it, or one before it, comes too late.
    ended: u64,
    entries: HashMap<Arc<str>, Entry>,
}

/// For providers: what this process holds, and who waits for it, by the name that the backend knows.
///
/// Many backends would grant the same lock to the same session again, so a second request is refused here, before anything
/// is sent. Waiters of this process queue in order, and only the first of them asks the backend, again and again while
/// another process holds the lock.
///
/// Grants belong to *sessions*, numbered upwards from 1 by the provider: connections, or leases. [`lose`](Self::lose) ends one.
pub struct HeldNames {
    provider: &'static str,
    names: Mutex<Names>,
    free: Box<dyn Fn(Freed) + Send + Sync>,
    /// Numbers waiters and grants.
    last: AtomicU64,
    stopped: CancellationToken,
}

impl fmt::Debug for HeldNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldNames").field("provider", &self.provider).field("names", &self.len()).finish_non_exhaustive()
    }
}

/// The answer to a request before the backend is asked.
enum Entered {
    Turn(Turn),
    Queued(Ticket),
    Contended,
    Stopped,
}

impl HeldNames {
    /// Nothing held yet. `free` passes a grant that was given up to the provider's task: it must not block, and what it passes
    /// must reach the backend before any later request for the same name.
    pub fn new(provider: &'static str, free: impl Fn(Freed) + Send + Sync + 'static) -> Self {
        Self {
            provider,
            names: Mutex::default(),
            free: Box::new(free),
            last: AtomicU64::new(0),
            stopped: CancellationToken::new(),
        }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(self: &Arc<Self>, name: Arc<str>) -> Turn {
        Turn { names: self.clone(), name, open: true }
    }

    fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How many names are held, waited for or asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names().entries.len()
    }

    /// Whether no name is held, waited for or asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether [`stop`](Self::stop) was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_cancelled()
    }

    /// Takes a lock for this request, under the name that the backend knows: waits for its turn, then asks until it is granted or
    /// the wait is over. A dropped future takes its claims with it.
    ///
    /// # Errors
    /// Those of the tries, and [`LockError::Stopped`].
    pub async fn acquire<F, Fut>(
        self: &Arc<Self>,
        request: &LockRequest,
        name: Arc<str>,
        ask: F,
    ) -> Result<Option<LockGuard>, LockError>
    where
        F: Fn(Turn) -> Fut + Send + Sync,
        Fut: Future<Output = Attempt> + Send,
    {
        let deadline = match request.wait {
            Wait::No => Some(Instant::now()),
            // A sum beyond what the clock can count is a wait for ever.
            Wait::UpTo(timeout) => Instant::now().checked_add(timeout),
            Wait::Forever => None,
        };
        let Some(mut turn) = self.wait_for_turn(request, name, deadline).await? else { return Ok(None) };
        let mut pause = SHORTEST_PAUSE;
        loop {
            turn = match ask(turn).await {
                Attempt::Granted(guard) => return Ok(Some(guard)),
                Attempt::Cancelled => return Ok(None),
                Attempt::Stopped => return Err(LockError::stopped(self.provider)),
                Attempt::Failed(error) => return Err(error),
                Attempt::Contended(turn) => turn,
            };
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(None);
            }
            self.pause(jittered(pause), deadline).await?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits until nobody of this process is before this request.
    async fn wait_for_turn(
        self: &Arc<Self>,
        request: &LockRequest,
        name: Arc<str>,
        deadline: Option<Instant>,
    ) -> Result<Option<Turn>, LockError> {
        let may_wait = !matches!(request.wait, Wait::No | Wait::UpTo(Duration::ZERO));
        let mut ticket = match self.enter(name, request.mode, may_wait) {
            Entered::Turn(turn) => return Ok(Some(turn)),
            Entered::Contended => return Ok(None),
            Entered::Stopped => return Err(LockError::stopped(self.provider)),
            Entered::Queued(ticket) => ticket,
        };
        let called = match deadline {
            Some(deadline) => match tokio::time::timeout_at(deadline, ticket.called()).await {
                Ok(called) => called,
                Err(_) => return Ok(None),
            },
            None => ticket.called().await,
        };
        // The table lets go of a waiter with nothing only when its provider stops.
        let turn = called.ok_or_else(|| LockError::stopped(self.provider))?;
        if turn.is_due_to_others() {
            // Longer than the longest pause of those who wait in other processes.
            self.pause(2 * LONGEST_PAUSE, deadline).await?;
            turn.rested();
        }
        Ok(Some(turn))
    }

    /// Waits so long, but not beyond the deadline, nor beyond `stop`.
    async fn pause(&self, pause: Duration, deadline: Option<Instant>) -> Result<(), LockError> {
        let end = Instant::now() + pause;
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        let slept = self.stopped.run_until_cancelled(tokio::time::sleep_until(end)).await;
        slept.ok_or_else(|| LockError::stopped(self.provider))
    }

    /// Takes the turn to ask the backend, or queues when `may_wait`.
    fn enter(self: &Arc<Self>, name: Arc<str>, mode: LockMode, may_wait: bool) -> Entered {
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
        Entered::Queued(Ticket { names: self.clone(), name, number, receiver })
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

    /// A session has ended: all that it held is lost, for this reason, and nothing can be granted under it any more. Gives the
    /// number of grants that were lost.
    pub fn lose(self: &Arc<Self>, session: u64, why: Loss) -> usize {
        let mut names = self.names();
        names.ended = names.ended.max(session);
        let mut lost = 0;
        let mut freed = Vec::new();
        for (name, entry) in &mut names.entries {
            if let Some(held) = entry.held.take_if(|held| held.session == session) {
                lost += held.grants.len();
                for grant in held.grants {
                    grant.loss.fire(why);
                }
                freed.push(name.clone());
            }
        }
        for name in freed {
            self.advance(&mut names, &name);
        }
        lost
    }

    /// Signals [`Loss::Stopped`] to all grants, ends all waits, and refuses what comes later. What is held is named once per grant,
    /// with its session.
    pub fn stop(&self) -> Vec<(u64, Arc<str>)> {
        self.stopped.cancel();
        let mut names = self.names();
        names.stopped = true;
        let entries = std::mem::take(&mut names.entries);
        drop(names);
        let mut held_names = Vec::new();
        for (name, entry) in entries {
            if let Some(held) = entry.held {
                for grant in held.grants {
                    grant.loss.fire(Loss::Stopped);
                    held_names.push((held.session, name.clone()));
                }
            }
        }
        held_names
    }
}

/// Between half of `pause` and the whole of it, so that processes do not try in step.
fn jittered(pause: Duration) -> Duration {
    let drawn = RandomState::new().build_hasher().finish() as u16;
    pause / 2 + pause.mul_f64(f64::from(drawn) / f64::from(u16::MAX)) / 2
}

/// The right to ask the backend for a name: one in this process. Dropping it passes it on.
#[derive(Debug)]
pub struct Turn {
    names: Arc<HeldNames>,
    name: Arc<str>,
    /// Whether the name is still in this turn.
    open: bool,
}

impl Turn {
    /// The name, as the backend knows it.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether this process has had the name for so long that others should be let in.
    fn is_due_to_others(&self) -> bool {
        self.names.names().entries.get(&self.name).is_some_and(|entry| entry.since.elapsed() > RUN)
    }

    /// Others had their chance.
    fn rested(&self) {
        if let Some(entry) = self.names.names().entries.get_mut(&self.name) {
            entry.since = Instant::now();
        }
    }

    /// The backend has granted it under this session: the guard of the grant. `None` when the provider was stopped or the session
    /// has ended meanwhile; the grant is then for nobody.
    pub fn granted(
        mut self,
        key: LockKey,
        mode: LockMode,
        session: u64,
        fence: Option<u64>,
        loss: LossSignal,
    ) -> Option<LockGuard> {
        let number = self.names.number();
        let mut names = self.names.names();
        if names.stopped || session <= names.ended {
            // The turn passes on with its drop, which takes the lock that is held here.
            drop(names);
            return None;
        }
        self.open = false;
        let entry = names.entries.get_mut(&self.name)?;
        entry.turn = false;
        let held = entry.held.get_or_insert_with(|| Held { mode, session, grants: Vec::new() });
        held.grants.push(Grant { number, fence, loss: loss.clone() });
        self.names.advance(&mut names, &self.name);
        drop(names);
        let given_up = GivenUp { names: self.names.clone(), name: self.name.clone(), number };
        Some(LockGuard::new(key, fence, loss, given_up))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.open {
            let mut names = self.names.names();
            if let Some(entry) = names.entries.get_mut(&self.name) {
                entry.turn = false;
                self.names.advance(&mut names, &self.name);
            }
        }
    }
}

/// A place in the queue for a name. Dropping it gives the place up.
struct Ticket {
    names: Arc<HeldNames>,
    name: Arc<str>,
    number: u64,
    receiver: oneshot::Receiver<Turn>,
}

impl Ticket {
    /// Resolves when it is this one's turn, and with nothing when the provider is stopped.
    async fn called(&mut self) -> Option<Turn> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut names = self.names.names();
        if let Some(entry) = names.entries.get_mut(&self.name) {
            entry.queue.retain(|waiter| waiter.number != self.number);
            // It may have kept those behind it from sharing.
            self.names.advance(&mut names, &self.name);
        }
    }
}

/// The way back of a grant.
struct GivenUp {
    names: Arc<HeldNames>,
    name: Arc<str>,
    number: u64,
}

impl Release for GivenUp {
    fn release(self: Box<Self>, reply: Option<oneshot::Sender<Result<(), LockError>>>) {
        let mut names = self.names.names();
        if let Some(entry) = names.entries.get_mut(&self.name)
            && let Some(held) = &mut entry.held
            && let Some(place) = held.grants.iter().position(|grant| grant.number == self.number)
        {
            let grant = held.grants.swap_remove(place);
            let session = held.session;
            if held.grants.is_empty() {
                entry.held = None;
            }
            // Passed on before anybody may ask again, so that the backend frees before it is asked. A task that has ended has freed all.
            (self.names.free)(Freed { name: self.name.clone(), session, fence: grant.fence, reply });
            self.names.advance(&mut names, &self.name);
        } else if let Some(reply) = reply {
            // The grant was lost, and somebody else may hold the name by now.
            let _ = reply.send(Ok(()));
        }
    }
}
