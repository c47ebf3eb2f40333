use crate::{
    directory::{Attempt, Directory, Entered},
    entry::{Member, Moved},
    options::{FileLockOptions, Layout},
    place::Place,
    turn::{LONGEST_PAUSE, SHORTEST_PAUSE, Turn, jittered},
};
use latchwork_core::{
    BoxError, Scope, async_trait,
    lock::{DistributedLockProvider, LockCapabilities, LockError, LockGuard, LockRequest, LossDetection, Wait},
    name::Namespace,
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

const PROVIDER: &str = "file";
/// How often a provider looks whether its directory is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Locks by name between the processes of this machine.
///
/// A clone is the same provider: `stop` ends both. Another provider on the same directory, of this process or another one, is
/// excluded by it, and stops by itself.
#[derive(Clone, Debug)]
pub struct FileLocks {
    directory: Arc<Directory>,
    member: Arc<Member>,
    namespace: Namespace,
    /// Ends the task that looks after the directory with the last clone.
    _care: Arc<DropGuard>,
}

impl FileLocks {
    /// Locks in this directory, which is made when it is missing. Needs a Tokio runtime, as do all asynchronous calls.
    ///
    /// # Errors
    /// [`LockError::Refused`] when the directory cannot serve: it may not be written, lies on a network file system, or is
    /// in use with another layout. [`LockError::Unavailable`] for other failures of the file system.
    pub async fn open(directory: impl Into<PathBuf>) -> Result<Self, LockError> {
        Self::open_with(FileLockOptions::new(directory)).await
    }

    /// Locks as these options say.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_with(options: FileLockOptions) -> Result<Self, LockError> {
        Self::open_by(options, Directory::open).await
    }

    /// With a table of its own, as another process has it.
    #[cfg(test)]
    pub(crate) async fn open_apart(options: FileLockOptions) -> Result<Self, LockError> {
        Self::open_by(options, Directory::open_apart).await
    }

    async fn open_by(options: FileLockOptions, open: fn(&Path, Layout) -> io::Result<Arc<Directory>>) -> Result<Self, LockError> {
        let FileLockOptions { directory: path, namespace, layout } = options;
        let shown = path.display().to_string();
        let opened = tokio::task::spawn_blocking(move || open(&path, layout)).await;
        let directory = opened
            .map_err(|error| LockError::unavailable(PROVIDER, &shown, error))?
            .map_err(|error| failure(&shown, "cannot be opened", &error))?;
        let ended = CancellationToken::new();
        tokio::spawn(look_after(Arc::downgrade(&directory), ended.clone()));
        Ok(Self { directory, member: Arc::default(), namespace, _care: Arc::new(ended.drop_guard()) })
    }

    /// The directory, as the operating system names it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// How many names this process holds, waits for or asks for in the directory at the moment.
    #[must_use]
    pub fn held_names(&self) -> usize {
        self.directory.held_names()
    }

    fn failed(&self, request: &LockRequest, error: &io::Error) -> LockError {
        let directory = self.directory.path().display();
        if error.kind() == io::ErrorKind::NotFound {
            let message = format!("the lock directory `{directory}` was removed, and is made anew; what was held in it is lost");
            return LockError::unavailable(PROVIDER, request.key.as_str(), message);
        }
        failure(request.key.as_str(), &format!("cannot be locked in `{directory}`"), error)
    }

    async fn attempt(&self, turn: Turn, request: &LockRequest) -> Attempt {
        if self.directory.is_immediate() {
            return self.directory.attempt(turn, &self.member, &request.key, request.mode);
        }
        let (sender, answer) = oneshot::channel();
        let (directory, member, request) = (self.directory.clone(), self.member.clone(), request.clone());
        // When nobody waits for the answer any more it is dropped there: a grant is freed, a turn passes on.
        self.directory.perform(move || drop(sender.send(directory.attempt(turn, &member, &request.key, request.mode))));
        answer.await.unwrap_or_else(|_| Attempt::Failed(io::Error::other("the thread of the file locks has ended")))
    }

    /// Waits in the queue of this process until it is this request's turn to ask the operating system.
    async fn queued(&self, request: &LockRequest, deadline: Option<Instant>) -> Result<Option<Moved>, LockError> {
        let may_wait = !matches!(request.wait, Wait::No | Wait::UpTo(Duration::ZERO));
        let mut ticket = match self.directory.enter(&self.member, &request.key, request.mode, may_wait) {
            Entered::Turn(turn) => return Ok(Some(Moved::Turn(turn))),
            Entered::Granted(guard) => return Ok(Some(Moved::Granted(guard))),
            Entered::Contended => return Ok(None),
            Entered::Stopped => return Err(LockError::stopped(PROVIDER)),
            Entered::Queued(ticket) => ticket,
        };
        let moved = tokio::select! {
            biased;
            // The table lets go of a waiter with nothing only when its provider stops.
            moved = &mut ticket.receiver => moved.map_err(|_| LockError::stopped(PROVIDER))?,
            () = until(deadline) => return Ok(ticket.give_up()),
        };
        if let Moved::Turn(turn) = &moved
            && self.directory.is_due_to_others(turn.place)
        {
            self.let_others(turn.place, deadline).await?;
        }
        Ok(Some(moved))
    }

    /// Stands back for those who wait in other processes, until they have it or have had the time to try more than once.
    async fn let_others(&self, place: Place, deadline: Option<Instant>) -> Result<(), LockError> {
        let longest = Instant::now() + 4 * LONGEST_PAUSE;
        let longest = deadline.map_or(longest, |deadline| longest.min(deadline));
        while Instant::now() < longest && self.directory.is_awaited(place) {
            self.pause(SHORTEST_PAUSE, Some(longest)).await?;
        }
        Ok(())
    }

    /// Waits so long, but not beyond the deadline, nor beyond `stop`.
    async fn pause(&self, pause: Duration, deadline: Option<Instant>) -> Result<(), LockError> {
        tokio::select! {
            biased;
            () = self.member.stopped.cancelled() => Err(LockError::stopped(PROVIDER)),
            () = until(deadline) => Ok(()),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// An error of the file system, for what it concerns, with what to do.
fn failure(concerned: &str, what: &str, error: &io::Error) -> LockError {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; let this process's user write there, or name another directory"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "; name a directory, or a path where one can be made",
        io::ErrorKind::Unsupported => "",
        _ => {
            // Among them the limit of open files, of which the layout `files` needs one per lock.
            let source: BoxError = format!("it {what} ({error}); see the limits of open files and of disk space").into();
            return LockError::unavailable(PROVIDER, concerned, source);
        }
    };
    LockError::refused(PROVIDER, concerned, format!("it {what}: {error}{advice}"))
}

/// Looks after the directory for as long as a provider lives: tells holders when it was removed, and makes it anew.
async fn look_after(directory: std::sync::Weak<Directory>, ended: CancellationToken) {
    loop {
        let Some(strong) = directory.upgrade() else { return };
        tokio::select! {
            biased;
            () = ended.cancelled() => return,
            () = strong.removed.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
        let looked = tokio::task::spawn_blocking(move || strong.look_after().map_err(|error| (strong, error))).await;
        if let Ok(Err((directory, error))) = looked {
            tracing::error!(directory = %directory.path().display(), %error, "the lock directory cannot be made anew");
        }
    }
}

#[async_trait]
impl DistributedLockProvider for FileLocks {
    fn capabilities(&self) -> LockCapabilities {
        let domain = format!("{PROVIDER}:{}", self.directory.path().display());
        LockCapabilities::new(Scope::Host, LossDetection::Process, domain).with_shared()
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    async fn acquire(&self, request: LockRequest) -> Result<Option<LockGuard>, LockError> {
        let deadline = match request.wait {
            Wait::No => Some(Instant::now()),
            // A sum beyond what the clock can count is a wait for ever.
            Wait::UpTo(timeout) => Instant::now().checked_add(timeout),
            Wait::Forever => None,
        };
        let mut turn = match self.queued(&request, deadline).await? {
            None => return Ok(None),
            Some(Moved::Granted(guard)) => return Ok(Some(guard)),
            Some(Moved::Turn(turn)) => turn,
        };
        // The first of this process: only it asks the operating system, again and again when another process holds.
        let (mut pause, mut waiting) = (SHORTEST_PAUSE, None);
        loop {
            turn = match self.attempt(turn, &request).await {
                Attempt::Granted(guard) => return Ok(Some(guard)),
                Attempt::Stopped => return Err(LockError::stopped(PROVIDER)),
                Attempt::Failed(error) => return Err(self.failed(&request, &error)),
                Attempt::Contended(turn) => turn,
            };
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(None);
            }
            waiting.get_or_insert_with(|| self.directory.wait(turn.place));
            self.pause(jittered(pause), deadline).await?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn check(&self) -> Result<(), LockError> {
        if self.member.stopped.is_cancelled() {
            return Err(LockError::stopped(PROVIDER));
        }
        let (directory, shown) = (self.directory.clone(), self.directory.path().display().to_string());
        match tokio::task::spawn_blocking(move || directory.is_there()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(LockError::unavailable(PROVIDER, shown, "the lock directory was removed")),
            Err(error) => Err(LockError::unavailable(PROVIDER, shown, error)),
        }
    }

    async fn stop(&self, grace: Duration) -> Result<(), LockError> {
        self.directory.stop(&self.member);
        let (sender, freed) = oneshot::channel();
        // Behind all releases.
        self.directory.perform(move || {
            let _ = sender.send(());
        });
        match tokio::time::timeout(grace, freed).await {
            Ok(_) => Ok(()),
            Err(late) => Err(LockError::unavailable(PROVIDER, self.directory.path().display().to_string(), late)),
        }
    }
}
