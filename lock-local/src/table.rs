//! The table of held names: sharded, each shard behind a mutex that is held for a few instructions and never over a wait,
//! a wake-up or a drop of somebody else's value.

use latchwork_core::lock::{LockError, LockGuard, LockKey, LockMode, Loss, LossSignal, Release};
use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map},
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::sync::oneshot;

/// More than there are cores on most machines; a shard costs some 100 bytes.
const SHARDS: usize = 64;
/// A shard's map below this capacity is not worth shrinking.
const SMALL: usize = 64;

/// A provider over a table: what `stop` tells apart.
#[derive(Debug, Default)]
pub(crate) struct Member {
    stopped: AtomicBool,
}

impl Member {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

/// A key and its hash, which is computed once.
#[derive(Clone)]
struct Hashed {
    hash: u64,
    key: LockKey,
}

impl PartialEq for Hashed {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.key == other.key
    }
}

impl Eq for Hashed {}

impl Hash for Hashed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Hands a hash through as it is.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Not reached: `Hashed` writes one `u64`. Right all the same, if slow.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A grant, as the table knows it. Its number is its fencing token.
struct Holder {
    member: Arc<Member>,
    loss: LossSignal,
}

enum Holders {
    Exclusive(u64, Holder),
    Shared(BTreeMap<u64, Holder>),
}

impl Holders {
    fn new(mode: LockMode, grant: u64, holder: Holder) -> Self {
        match mode {
            LockMode::Exclusive => Self::Exclusive(grant, holder),
            LockMode::Shared => Self::Shared(BTreeMap::from([(grant, holder)])),
        }
    }

    /// Only after [`admit`](Self::admit).
    fn add(&mut self, grant: u64, holder: Holder) {
        if let Self::Shared(holders) = self {
            holders.insert(grant, holder);
        }
    }

    fn admit(&self, mode: LockMode) -> bool {
        matches!((self, mode), (Self::Shared(_), LockMode::Shared))
    }

    /// Whether anybody is left.
    fn remove(&mut self, grant: u64) -> Removed {
        match self {
            Self::Exclusive(held, _) if *held == grant => Removed::Last,
            Self::Exclusive(..) => Removed::Nothing,
            Self::Shared(holders) => match holders.remove(&grant) {
                Some(_) if holders.is_empty() => Removed::Last,
                Some(_) => Removed::OneOfSeveral,
                None => Removed::Nothing,
            },
        }
    }

    fn of(&self, member: &Arc<Member>) -> Vec<(u64, LossSignal)> {
        let owned = |(grant, holder): (&u64, &Holder)| Arc::ptr_eq(&holder.member, member).then(|| (*grant, holder.loss.clone()));
        match self {
            Self::Exclusive(grant, holder) => owned((grant, holder)).into_iter().collect(),
            Self::Shared(holders) => holders.iter().filter_map(owned).collect(),
        }
    }
}

enum Removed {
    /// It was not there: stale.
    Nothing,
    OneOfSeveral,
    Last,
}

struct Waiter {
    number: u64,
    mode: LockMode,
    member: Arc<Member>,
    sender: oneshot::Sender<LockGuard>,
}

/// A name that is held. There is none without a holder, so waiters are always behind somebody.
struct Entry {
    holders: Holders,
    waiters: VecDeque<Waiter>,
}

#[derive(Default)]
struct Shard {
    held: HashMap<Hashed, Entry, BuildHasherDefault<AsIs>>,
}

impl Shard {
    fn remove(&mut self, key: &Hashed) {
        self.held.remove(key);
        // Shrinking to twice the need when an eighth is in use: each key pays for a constant number of moves.
        if self.held.capacity() > SMALL && self.held.len() < self.held.capacity() / 8 {
            self.held.shrink_to(self.held.len() * 2);
        }
    }
}

/// Grants on their way to those who waited; sent when the shard is unlocked. What arrives for nobody comes back, is
/// dropped, and so freed.
#[derive(Default)]
struct Deliveries(Vec<(oneshot::Sender<LockGuard>, LockGuard)>);

impl Deliveries {
    fn send(self) {
        for (sender, guard) in self.0 {
            drop(sender.send(guard));
        }
    }
}

pub(crate) struct Table {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// The last number given to a grant or a waiter.
    last: AtomicU64,
}

/// The answer to a request.
pub(crate) enum Answer {
    Granted(LockGuard),
    Contended,
    Queued(Ticket),
    Stopped,
}

impl Table {
    pub(crate) fn new() -> Self {
        // Tokens go on from the time of day, so that those of the next process are higher.
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| u64::try_from(age.as_nanos()).unwrap_or(0));
        Self {
            shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(),
            hasher: RandomState::new(),
            last: AtomicU64::new(seed),
        }
    }

    fn hashed(&self, key: &LockKey) -> Hashed {
        Hashed { hash: self.hasher.hash_one(key), key: key.clone() }
    }

    fn shard(&self, key: &Hashed) -> Option<MutexGuard<'_, Shard>> {
        // Middle bits: the map inside uses the lowest and the highest ones.
        let shard = self.shards.get((key.hash >> 40) as usize % SHARDS);
        shard.map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn guard(self: &Arc<Self>, key: &Hashed, grant: u64, loss: LossSignal) -> LockGuard {
        let release = Freed { table: self.clone(), key: key.clone(), grant };
        LockGuard::new(key.key.clone(), Some(grant), loss, release)
    }

    /// Grants, or queues when `may_wait`.
    pub(crate) fn ask(self: &Arc<Self>, member: &Arc<Member>, key: &LockKey, mode: LockMode, may_wait: bool) -> Answer {
        let hashed = self.hashed(key);
        let Some(mut shard) = self.shard(&hashed) else { return Answer::Contended };
        // Under the shard's lock, so that `stop` either sees this grant or is seen here.
        if member.is_stopped() {
            return Answer::Stopped;
        }
        let entry = match shard.held.entry(hashed) {
            hash_map::Entry::Vacant(free) => {
                // Drawn under the shard's lock: the numbers of one key have the order of its grants.
                let (grant, loss) = (self.next(), LossSignal::new());
                let holder = Holder { member: member.clone(), loss: loss.clone() };
                let hashed = free.key().clone();
                free.insert(Entry { holders: Holders::new(mode, grant, holder), waiters: VecDeque::new() });
                drop(shard);
                return Answer::Granted(self.guard(&hashed, grant, loss));
            }
            hash_map::Entry::Occupied(held) => held,
        };
        let hashed = entry.key().clone();
        let entry = entry.into_mut();
        // Behind a waiter everybody waits: else readers would starve a writer.
        if entry.waiters.is_empty() && entry.holders.admit(mode) {
            let (grant, loss) = (self.next(), LossSignal::new());
            entry.holders.add(grant, Holder { member: member.clone(), loss: loss.clone() });
            drop(shard);
            return Answer::Granted(self.guard(&hashed, grant, loss));
        }
        if !may_wait {
            return Answer::Contended;
        }
        let (sender, receiver) = oneshot::channel();
        let number = self.next();
        entry.waiters.push_back(Waiter { number, mode, member: member.clone(), sender });
        Answer::Queued(Ticket { table: self.clone(), key: hashed, number, receiver })
    }

    /// Moves waiters up while the head of the queue can be granted. Called with the entry's shard locked.
    fn move_up(self: &Arc<Self>, key: &Hashed, entry: &mut Entry, mut holders: Option<Holders>) -> (Option<Holders>, Deliveries) {
        let mut deliveries = Deliveries::default();
        while let Some(head) = entry.waiters.front() {
            if holders.as_ref().is_some_and(|holders| !holders.admit(head.mode)) {
                break;
            }
            let Some(waiter) = entry.waiters.pop_front() else { break };
            if waiter.sender.is_closed() {
                continue;
            }
            let (grant, loss) = (self.next(), LossSignal::new());
            let holder = Holder { member: waiter.member, loss: loss.clone() };
            match &mut holders {
                None => holders = Some(Holders::new(waiter.mode, grant, holder)),
                Some(holders) => holders.add(grant, holder),
            }
            deliveries.0.push((waiter.sender, self.guard(key, grant, loss)));
        }
        (holders, deliveries)
    }

    /// Frees a grant; nothing when it is stale.
    fn free(self: &Arc<Self>, key: &Hashed, grant: u64) {
        let Some(mut shard) = self.shard(key) else { return };
        let Some(entry) = shard.held.get_mut(key) else { return };
        match entry.holders.remove(grant) {
            Removed::Nothing | Removed::OneOfSeveral => {}
            Removed::Last => {
                let (holders, deliveries) = self.move_up(key, entry, None);
                match holders {
                    Some(holders) => entry.holders = holders,
                    None => shard.remove(key),
                }
                drop(shard);
                deliveries.send();
            }
        }
    }

    /// Takes a waiter out of its queue, and lets in those who were behind it only.
    fn forget(self: &Arc<Self>, key: &Hashed, number: u64) {
        let Some(mut shard) = self.shard(key) else { return };
        let Some(entry) = shard.held.get_mut(key) else { return };
        let Some(place) = entry.waiters.iter().position(|waiter| waiter.number == number) else { return };
        let waiter = entry.waiters.remove(place);
        let deliveries = if place == 0 { self.let_in(key, entry) } else { Deliveries::default() };
        drop(shard);
        drop(waiter);
        deliveries.send();
    }

    /// Lets in the readers at the head of the queue, beside the readers who hold.
    fn let_in(self: &Arc<Self>, key: &Hashed, entry: &mut Entry) -> Deliveries {
        let Holders::Shared(held) = &mut entry.holders else { return Deliveries::default() };
        let held = std::mem::take(held);
        let (holders, deliveries) = self.move_up(key, entry, Some(Holders::Shared(held)));
        if let Some(holders) = holders {
            entry.holders = holders;
        }
        deliveries
    }

    /// Ends all that belongs to `member`. Holders are told before anybody else can be granted what they held.
    pub(crate) fn stop(self: &Arc<Self>, member: &Arc<Member>) {
        member.stopped.store(true, Ordering::SeqCst);
        for shard in &self.shards {
            let (mut ended, mut gone, mut deliveries) = (Vec::new(), Vec::new(), Vec::new());
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, entry) in &mut shard.held {
                ended.extend(entry.holders.of(member).into_iter().map(|(grant, loss)| (key.clone(), grant, loss)));
                let (ours, theirs) = entry.waiters.drain(..).partition::<Vec<_>, _>(|waiter| Arc::ptr_eq(&waiter.member, member));
                entry.waiters = theirs.into();
                if !ours.is_empty() {
                    gone.extend(ours);
                    deliveries.push(self.let_in(key, entry));
                }
            }
            drop(shard);
            drop(gone);
            deliveries.into_iter().for_each(Deliveries::send);
            for (_, _, loss) in &ended {
                loss.fire(Loss::Stopped);
            }
            for (key, grant, _) in ended {
                self.free(&key, grant);
            }
        }
    }

    /// How many names are held.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).held.len()).sum()
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn waiters(&self) -> usize {
        let waiting = |shard: &Mutex<Shard>| {
            shard.lock().unwrap_or_else(PoisonError::into_inner).held.values().map(|entry| entry.waiters.len()).sum::<usize>()
        };
        self.shards.iter().map(waiting).sum()
    }

    /// How many names the table has room for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).held.capacity()).sum()
    }
}

struct Freed {
    table: Arc<Table>,
    key: Hashed,
    grant: u64,
}

impl Release for Freed {
    fn release(self: Box<Self>, reply: Option<oneshot::Sender<Result<(), LockError>>>) {
        self.table.free(&self.key, self.grant);
        if let Some(reply) = reply {
            let _ = reply.send(Ok(()));
        }
    }
}

/// A place in a queue. Dropping it gives the place up; a grant that is on its way comes back and is freed.
pub(crate) struct Ticket {
    table: Arc<Table>,
    key: Hashed,
    number: u64,
    receiver: oneshot::Receiver<LockGuard>,
}

impl Ticket {
    /// Resolves with the grant, or with an error when the provider is stopped.
    pub(crate) fn granted(&mut self) -> &mut oneshot::Receiver<LockGuard> {
        &mut self.receiver
    }

    /// Gives the place up; the grant, if it has arrived by now.
    pub(crate) fn give_up(mut self) -> Option<LockGuard> {
        self.table.forget(&self.key, self.number);
        self.receiver.try_recv().ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // After the grant, or a second time, it is not found, which is cheap.
        self.table.forget(&self.key, self.number);
    }
}
