//! A directory of locks as this process sees it: the table of names that it holds, waits for or asks for. There is one per
//! directory, whatever the number of providers, because the operating system tells processes apart and not their parts.

use crate::{
    entry::{Deliveries, Entry, Holder, Member, Moved, Shard, State, Waiter},
    options::Layout,
    os::{self, Hold, Os, Waiting},
    place::{Place, SHARDS},
    turn::{Freed, Ticket, Turn, free},
};
use latchwork_core::lock::{LockGuard, LockKey, LockMode, Loss, LossSignal};
use std::{
    collections::{HashMap, VecDeque, hash_map},
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, oneshot};

/// How long this process may hand a name on among its own before it lets other processes have it.
const SPELL: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce() + Send>;

/// The directories that are open, by their real paths.
type Opened = HashMap<(PathBuf, Layout), Weak<Directory>>;

static OPEN: LazyLock<Mutex<Opened>> = LazyLock::new(Mutex::default);

pub(crate) struct Directory {
    path: PathBuf,
    os: Os,
    shards: Box<[Mutex<Shard>]>,
    /// The last number given to a grant or a waiter.
    last: AtomicU64,
    /// Grows when the directory is found to be removed: what was granted before is lost.
    generation: AtomicU64,
    /// Wakes those who make it anew.
    pub(crate) removed: Notify,
    /// The thread of a layout whose calls are too long for the caller's. It ends with the directory.
    worker: Option<mpsc::Sender<Job>>,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("path", &self.path).field("held_names", &self.held_names()).finish_non_exhaustive()
    }
}

/// The answer to a request before the operating system is asked.
pub(crate) enum Entered {
    Turn(Turn),
    Granted(LockGuard),
    Queued(Ticket),
    Contended,
    Stopped,
}

/// The operating system's answer.
pub(crate) enum Attempt {
    Granted(LockGuard),
    Contended(Turn),
    Stopped,
    Failed(io::Error),
}

impl Directory {
    /// The directory at this path, made when it is missing. Blocks for a moment.
    pub(crate) fn open(path: &Path, layout: Layout) -> io::Result<Arc<Self>> {
        let key = (real_path(path)?, layout);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, directory| directory.strong_count() > 0);
        if let Some(directory) = open.get(&key).and_then(Weak::upgrade) {
            // It may have been removed since, and made again just now, empty.
            directory.look_after()?;
            return Ok(directory);
        }
        let directory = Self::start(&key.0, layout)?;
        open.insert(key, Arc::downgrade(&directory));
        Ok(directory)
    }

    /// With a table of its own, as another process has it.
    #[cfg(test)]
    pub(crate) fn open_apart(path: &Path, layout: Layout) -> io::Result<Arc<Self>> {
        Self::start(&real_path(path)?, layout)
    }

    fn start(path: &Path, layout: Layout) -> io::Result<Arc<Self>> {
        let os = Os::open(path, layout)?;
        let worker = if os.is_immediate() { None } else { Some(start_worker()?) };
        Ok(Arc::new(Self {
            path: path.to_owned(),
            os,
            shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(),
            last: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            removed: Notify::new(),
            worker,
        }))
    }

    /// Whether [`attempt`](Self::attempt) may be called in place.
    pub(crate) fn is_immediate(&self) -> bool {
        self.worker.is_none()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn held_names(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).names.len()).sum()
    }

    fn shard(&self, place: Place) -> Option<MutexGuard<'_, Shard>> {
        self.shards.get(usize::from(place.file)).map(lock)
    }

    fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Runs a job that calls the operating system: here, or on the worker, in the order of the calls.
    pub(crate) fn perform(&self, job: impl FnOnce() + Send + 'static) {
        match &self.worker {
            None => job(),
            // The worker ends with the directory, which is alive.
            Some(worker) => {
                if let Err(mpsc::SendError(job)) = worker.send(Box::new(job)) {
                    job();
                }
            }
        }
    }

    /// A guard for a grant that the table knows.
    fn guard(self: &Arc<Self>, key: &LockKey, place: Place, grant: u64, loss: LossSignal) -> LockGuard {
        LockGuard::new(key.clone(), None, loss, Freed { directory: self.clone(), place, grant })
    }

    fn turn(self: &Arc<Self>, place: Place) -> Turn {
        Turn { directory: self.clone(), place, open: true }
    }

    /// Takes the turn, shares what is shared, or queues when `may_wait`.
    pub(crate) fn enter(self: &Arc<Self>, member: &Arc<Member>, key: &LockKey, mode: LockMode, may_wait: bool) -> Entered {
        let place = Place::of(key);
        let Some(mut shard) = self.shard(place) else { return Entered::Contended };
        // Under the shard's lock, so that `stop` either sees this request or is seen by it.
        if member.stopped.is_cancelled() {
            return Entered::Stopped;
        }
        let entry = match shard.names.entry(place) {
            hash_map::Entry::Vacant(free) => {
                free.insert(Entry { state: State::Turn, waiters: VecDeque::new(), since: Instant::now() });
                return Entered::Turn(self.turn(place));
            }
            hash_map::Entry::Occupied(held) => held.into_mut(),
        };
        // Behind a waiter everybody waits: else readers would starve a writer.
        if let State::Held { mode: LockMode::Shared, holders, .. } = &mut entry.state
            && mode == LockMode::Shared
            && entry.waiters.is_empty()
        {
            let (grant, loss) = (self.number(), LossSignal::new());
            holders.push(Holder { grant, member: member.clone(), loss: loss.clone() });
            drop(shard);
            return Entered::Granted(self.guard(key, place, grant, loss));
        }
        if !may_wait {
            return Entered::Contended;
        }
        let (sender, receiver) = oneshot::channel();
        let number = self.number();
        entry.waiters.push_back(Waiter { number, key: key.clone(), mode, member: member.clone(), sender });
        Entered::Queued(Ticket { directory: self.clone(), place, number, receiver })
    }

    /// Asks the operating system.
    pub(crate) fn attempt(self: &Arc<Self>, mut turn: Turn, member: &Arc<Member>, key: &LockKey, mode: LockMode) -> Attempt {
        let generation = self.generation.load(Ordering::SeqCst);
        let hold = match self.os.try_lock(key, turn.place, mode) {
            Ok(Some(hold)) => hold,
            Ok(None) => return Attempt::Contended(turn),
            Err(error) => {
                if error.kind() == io::ErrorKind::NotFound {
                    self.lose(generation);
                }
                return Attempt::Failed(error);
            }
        };
        let refused = match self.settle(&mut turn, hold, generation, member, key, mode) {
            Ok((guard, deliveries)) => {
                deliveries.send();
                return Attempt::Granted(guard);
            }
            Err(hold) => hold,
        };
        free(refused, turn);
        if member.stopped.is_cancelled() { Attempt::Stopped } else { Attempt::Failed(io::ErrorKind::NotFound.into()) }
    }

    /// Enters a grant of the operating system into the table; gives it back when it is for nobody.
    fn settle(
        self: &Arc<Self>,
        turn: &mut Turn,
        hold: Hold,
        generation: u64,
        member: &Arc<Member>,
        key: &LockKey,
        mode: LockMode,
    ) -> Result<(LockGuard, Deliveries), Hold> {
        let place = turn.place;
        let Some(mut shard) = self.shard(place) else { return Err(hold) };
        // Under the shard's lock: `stop` and `lose` see this grant, or are seen here.
        if member.stopped.is_cancelled() || self.generation.load(Ordering::SeqCst) != generation {
            return Err(hold);
        }
        let Some(entry) = shard.names.get_mut(&place) else { return Err(hold) };
        let (grant, loss) = (self.number(), LossSignal::new());
        let holder = Holder { grant, member: member.clone(), loss: loss.clone() };
        entry.state = State::Held { mode, hold, holders: vec![holder] };
        turn.open = false;
        let deliveries = self.let_in(place, entry);
        drop(shard);
        Ok((self.guard(key, place, grant, loss), deliveries))
    }

    /// Lets in the readers at the head of the queue when readers hold.
    fn let_in(self: &Arc<Self>, place: Place, entry: &mut Entry) -> Deliveries {
        let mut deliveries = Deliveries::default();
        let State::Held { mode: LockMode::Shared, holders, .. } = &mut entry.state else { return deliveries };
        while let Some(waiter) = entry.waiters.pop_front_if(|waiter| waiter.mode == LockMode::Shared || waiter.sender.is_closed())
        {
            if waiter.sender.is_closed() {
                continue;
            }
            let (grant, loss) = (self.number(), LossSignal::new());
            holders.push(Holder { grant, member: waiter.member, loss: loss.clone() });
            deliveries.0.push((waiter.sender, Moved::Granted(self.guard(&waiter.key, place, grant, loss))));
        }
        deliveries
    }

    /// Passes the turn to the next waiter, or forgets the name.
    pub(crate) fn next(self: &Arc<Self>, place: Place) {
        let Some(mut shard) = self.shard(place) else { return };
        let Some(entry) = shard.names.get_mut(&place) else { return };
        while let Some(waiter) = entry.waiters.pop_front() {
            if !waiter.sender.is_closed() {
                let moved = Moved::Turn(self.turn(place));
                drop(shard);
                // For nobody: it comes back, is dropped, and passes on.
                drop(waiter.sender.send(moved));
                return;
            }
        }
        shard.remove(place);
    }

    /// Ends a grant. The last one of a name leaves what is to be undone; nothing when it is stale.
    pub(crate) fn end(self: Arc<Self>, place: Place, grant: u64) -> Option<(Hold, Turn)> {
        let mut shard = self.shard(place)?;
        let entry = shard.names.get_mut(&place)?;
        let State::Held { holders, .. } = &mut entry.state else { return None };
        let found = holders.iter().position(|holder| holder.grant == grant)?;
        let ended = holders.swap_remove(found);
        if !holders.is_empty() {
            return None;
        }
        let State::Held { hold, .. } = std::mem::replace(&mut entry.state, State::Turn) else { return None };
        drop(shard);
        drop(ended);
        let turn = self.turn(place);
        Some((hold, turn))
    }

    /// Takes a waiter out of its queue, and lets in the readers who were behind it only.
    pub(crate) fn forget(self: &Arc<Self>, place: Place, number: u64) {
        let Some(mut shard) = self.shard(place) else { return };
        let Some(entry) = shard.names.get_mut(&place) else { return };
        let Some(found) = entry.waiters.iter().position(|waiter| waiter.number == number) else { return };
        let waiter = entry.waiters.remove(found);
        let deliveries = self.let_in(place, entry);
        drop(shard);
        drop(waiter);
        deliveries.send();
    }

    /// Lets other processes see that this one waits.
    pub(crate) fn wait(&self, place: Place) -> Waiting {
        self.os.wait(place)
    }

    /// Whether this process has had the name for long enough, and another one waits; then its spell begins anew.
    pub(crate) fn is_due_to_others(&self, place: Place) -> bool {
        let Some(mut shard) = self.shard(place) else { return false };
        let Some(entry) = shard.names.get_mut(&place) else { return false };
        let long = entry.since.elapsed() >= SPELL;
        if long {
            entry.since = Instant::now();
        }
        drop(shard);
        long && self.is_awaited(place)
    }

    /// Whether another process is seen waiting.
    pub(crate) fn is_awaited(&self, place: Place) -> bool {
        self.os.is_awaited(place)
    }

    /// Ends all that belongs to `member`. Holders are told before anybody else can be granted what they held.
    pub(crate) fn stop(self: &Arc<Self>, member: &Arc<Member>) {
        member.stopped.cancel();
        for shard in &self.shards {
            let (mut gone, mut deliveries) = (Vec::new(), Vec::new());
            let mut locked = lock(shard);
            for (place, entry) in &mut locked.names {
                let (ours, theirs) = entry.waiters.drain(..).partition::<Vec<_>, _>(|waiter| Arc::ptr_eq(&waiter.member, member));
                entry.waiters = theirs.into();
                if !ours.is_empty() {
                    gone.extend(ours);
                    deliveries.push(self.let_in(*place, entry));
                }
            }
            drop(locked);
            drop(gone);
            deliveries.into_iter().for_each(Deliveries::send);
            self.end_all(shard, |holder| Arc::ptr_eq(&holder.member, member), Loss::Stopped);
        }
    }

    /// The directory was removed: whoever comes finds nothing locked. All grants of that generation are lost.
    fn lose(self: &Arc<Self>, generation: u64) {
        if self.generation.compare_exchange(generation, generation + 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        tracing::error!(directory = %self.path.display(), "the lock directory was removed; all locks held in it are lost");
        for shard in &self.shards {
            self.end_all(shard, |_| true, Loss::SessionClosed);
        }
        self.removed.notify_waiters();
    }

    fn end_all(self: &Arc<Self>, shard: &Mutex<Shard>, which: impl Fn(&Holder) -> bool, why: Loss) {
        let mut ended = Vec::new();
        for (place, entry) in &lock(shard).names {
            if let State::Held { holders, .. } = &entry.state {
                ended.extend(
                    holders.iter().filter(|holder| which(holder)).map(|holder| (*place, holder.grant, holder.loss.clone())),
                );
            }
        }
        for (_, _, loss) in &ended {
            loss.fire(why);
        }
        for (place, grant, _) in ended {
            if let Some((hold, turn)) = self.clone().end(place, grant) {
                self.perform(move || free(hold, turn));
            }
        }
    }

    /// Looks whether the directory is still there, ends what was held when it is not, and makes it anew. Blocks for a moment.
    pub(crate) fn look_after(self: &Arc<Self>) -> io::Result<()> {
        let generation = self.generation.load(Ordering::SeqCst);
        if self.os.is_there() {
            return Ok(());
        }
        self.lose(generation);
        self.os.reopen(&self.path)
    }

    /// Whether the directory is still there.
    pub(crate) fn is_there(&self) -> bool {
        self.os.is_there()
    }
}

fn real_path(path: &Path) -> io::Result<PathBuf> {
    os::make_directory(path)?;
    path.canonicalize()
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that runs jobs until nobody is left who could send one.
fn start_worker() -> io::Result<mpsc::Sender<Job>> {
    let (sender, jobs) = mpsc::channel::<Job>();
    std::thread::Builder::new().name("file-locks".to_owned()).spawn(move || jobs.into_iter().for_each(|job| job()))?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork_core::name::Namespace;

    #[test]
    fn a_grant_that_was_on_its_way_when_the_directory_was_removed_is_for_nobody() {
        let folder = tempfile::tempdir().expect("a folder");
        for layout in [Layout::Ranges, Layout::Files] {
            let directory = Directory::open_apart(&folder.path().join(layout.as_str()), layout).expect("opened");
            let (member, key) = (Arc::new(Member::default()), LockKey::new(&Namespace::default(), "x").expect("a valid name"));
            let Entered::Turn(mut turn) = directory.enter(&member, &key, LockMode::Exclusive, false) else { panic!("not free") };
            let hold = directory.os.try_lock(&key, turn.place, LockMode::Exclusive).expect("answered").expect("free");
            directory.lose(0);
            assert!(directory.settle(&mut turn, hold, 0, &member, &key, LockMode::Exclusive).is_err(), "{layout:?}");
            drop(turn);
            assert_eq!(directory.held_names(), 0);
        }
    }
}
