use crate::{
    PROVIDER,
    connection::{Ask, Attempt, Command, Connection, Settings},
    options::SqlServerLockOptions,
    table::{Entered, Shard, Turn},
};
use latchwork_core::{
    Scope, async_trait,
    lock::{DistributedLockProvider, KeyLimit, LockCapabilities, LockError, LockGuard, LockRequest, LossDetection, Wait},
    name::Namespace,
};
use latchwork_sqlserver_client::SqlServerOptions;
use std::{
    fmt,
    hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState},
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// What SQL Server keeps of a name; the bytes are for servers that count those.
const LONGEST: KeyLimit = KeyLimit::bytes(255).with_utf16_units(255);
/// The pauses between two tries while another process holds the lock.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Locks by name in a database of SQL Server, as its application locks.
///
/// A clone is the same provider: `stop` ends both.
#[derive(Clone)]
pub struct SqlServerLocks {
    shards: Arc<[Arc<Shard>]>,
    settings: Arc<Settings>,
    namespace: Namespace,
    stopped: CancellationToken,
}

impl fmt::Debug for SqlServerLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlServerLocks")
            .field("domain", &self.domain())
            .field("namespace", &self.namespace.as_str())
            .field("connections", &self.shards.len())
            .field("held_names", &self.held_names())
            .field("stopped", &self.stopped.is_cancelled())
            .finish_non_exhaustive()
    }
}

impl SqlServerLocks {
    /// Opens a first session, to see that it works; the others are opened when they are needed. Needs a Tokio runtime, as do all
    /// asynchronous calls.
    ///
    /// # Errors
    /// [`LockError::Refused`] when the options cannot work, [`LockError::Unavailable`] when the server does not answer now.
    pub async fn connect(options: &SqlServerLockOptions) -> Result<Self, LockError> {
        options.check()?;
        let server = SqlServerOptions::new(options.connection_string.clone())
            .with_application_name(format!("Latchwork Lock Manager/{}", options.node))
            .with_connect_timeout(options.connect_timeout)
            .with_request_timeout(options.answer_within);
        let settings =
            Arc::new(Settings { server, heartbeat: options.heartbeat, fence: options.fencing(), database: OnceLock::new() });
        let shards = (0..options.connections).map(|_| {
            let (commands, given) = mpsc::unbounded_channel();
            let shard = Arc::new(Shard::new(commands));
            tokio::spawn(Connection::new(settings.clone(), Arc::downgrade(&shard), given).run());
            shard
        });
        let locks =
            Self { shards: shards.collect(), settings, namespace: options.namespace.clone(), stopped: CancellationToken::new() };
        locks.check().await?;
        Ok(locks)
    }

    /// How many names this provider holds, waits for or asks for at the moment.
    #[must_use]
    pub fn held_names(&self) -> usize {
        self.shards.iter().map(|shard| shard.len()).sum()
    }

    fn domain(&self) -> String {
        let server = self.settings.server.server();
        let server = server.strip_suffix(",1433").unwrap_or(&server);
        format!("{PROVIDER}:{server}/{}", self.settings.database.get().map_or("", String::as_str))
    }

    /// The connection that carries this name.
    fn shard(&self, name: &str) -> Result<&Arc<Shard>, LockError> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let count = u64::try_from(self.shards.len()).unwrap_or(1).max(1);
        let place = usize::try_from(hasher.finish() % count).unwrap_or_default();
        self.shards.get(place).ok_or_else(|| LockError::stopped(PROVIDER))
    }

    /// Waits until nobody of this process is before this request.
    async fn turn(&self, request: &LockRequest, deadline: Option<Instant>) -> Result<Option<Turn>, LockError> {
        let may_wait = !matches!(request.wait, Wait::No | Wait::UpTo(Duration::ZERO));
        let name = request.key.fit(LONGEST);
        let shard = self.shard(&name)?;
        let mut ticket = match shard.enter(Arc::from(&*name), request.mode, may_wait) {
            Entered::Turn(turn) => return Ok(Some(turn)),
            Entered::Contended => return Ok(None),
            Entered::Stopped => return Err(LockError::stopped(PROVIDER)),
            Entered::Queued(ticket) => ticket,
        };
        let turn = tokio::select! {
            biased;
            // The table lets go of a waiter with nothing only when its provider stops.
            turn = ticket.called() => turn.ok_or_else(|| LockError::stopped(PROVIDER))?,
            () = until(deadline) => return Ok(None),
        };
        if turn.is_due_to_others() {
            // Longer than the longest pause of those who wait in other processes.
            self.pause(2 * LONGEST_PAUSE, deadline).await?;
            turn.rested();
        }
        Ok(Some(turn))
    }

    /// Waits so long, but not beyond the deadline, nor beyond `stop`.
    async fn pause(&self, pause: Duration, deadline: Option<Instant>) -> Result<(), LockError> {
        tokio::select! {
            biased;
            () = self.stopped.cancelled() => Err(LockError::stopped(PROVIDER)),
            () = until(deadline) => Ok(()),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    async fn ask(&self, turn: Turn, request: &LockRequest) -> Attempt {
        let (reply, answer) = oneshot::channel();
        let shard = turn.shard();
        // When nobody waits for the answer any more it is dropped: a grant is given back, a turn passes on.
        if !shard.send(Command::Acquire(Ask { turn, key: request.key.clone(), mode: request.mode, again: false, reply })) {
            return Attempt::Stopped;
        }
        answer.await.unwrap_or(Attempt::Stopped)
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Between half of `pause` and the whole of it, so that processes do not try in step.
fn jittered(pause: Duration) -> Duration {
    let drawn = RandomState::new().build_hasher().finish() as u16;
    pause / 2 + pause.mul_f64(f64::from(drawn) / f64::from(u16::MAX)) / 2
}

#[async_trait]
impl DistributedLockProvider for SqlServerLocks {
    fn capabilities(&self) -> LockCapabilities {
        let capabilities =
            LockCapabilities::new(Scope::Cluster, LossDetection::Session, self.domain()).with_shared().with_longest_key(LONGEST);
        if self.settings.fence.is_some() { capabilities.with_fencing() } else { capabilities }
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
        let Some(mut turn) = self.turn(&request, deadline).await? else { return Ok(None) };
        // The first of this process: only it asks the server, again and again when another process holds.
        let mut pause = SHORTEST_PAUSE;
        loop {
            turn = match self.ask(turn, &request).await {
                Attempt::Granted(guard) => return Ok(Some(guard)),
                Attempt::Cancelled => return Ok(None),
                Attempt::Stopped => return Err(LockError::stopped(PROVIDER)),
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

    async fn check(&self) -> Result<(), LockError> {
        let stopped = || LockError::stopped(PROVIDER);
        let (reply, answer) = oneshot::channel();
        let first = self.shards.first().filter(|_| !self.stopped.is_cancelled()).ok_or_else(stopped)?;
        if !first.send(Command::Check { reply }) {
            return Err(stopped());
        }
        answer.await.map_err(|_| stopped())?
    }

    async fn stop(&self, grace: Duration) -> Result<(), LockError> {
        self.stopped.cancel();
        let stopping: Vec<_> = self
            .shards
            .iter()
            .filter_map(|shard| {
                let (reply, answer) = oneshot::channel();
                // Holders are told before anything is freed.
                shard.send(Command::Stop { held: shard.stop(), reply }).then_some(answer)
            })
            .collect();
        let freed = async {
            let mut result = Ok(());
            for answer in stopping {
                // No answer: stopped already.
                result = result.and(answer.await.unwrap_or(Ok(())));
            }
            result
        };
        match tokio::time::timeout(grace, freed).await {
            Ok(result) => result,
            Err(late) => Err(LockError::unavailable(PROVIDER, self.domain(), late)),
        }
    }
}
