use crate::{
    PROVIDER,
    connection::{Ask, Command, Connection, Settings},
    options::SqlServerLockOptions,
};
use latchwork_core::{
    Scope, async_trait,
    lock::{
        Attempt, DistributedLockProvider, HeldNames, KeyLimit, LockCapabilities, LockError, LockGuard, LockRequest,
        LossDetection, Turn,
    },
    name::Namespace,
};
use latchwork_sqlserver_client::SqlServerOptions;
use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

/// What SQL Server keeps of a name; the bytes are for servers that count those.
const LONGEST: KeyLimit = KeyLimit::bytes(255).with_utf16_units(255);

/// One connection as the provider sees it: the names that it carries, and the way to its task.
#[derive(Debug)]
struct Shard {
    names: Arc<HeldNames>,
    commands: mpsc::UnboundedSender<Command>,
}

/// Locks by name in a database of SQL Server, as its application locks.
///
/// A clone is the same provider: `stop` ends both.
#[derive(Clone)]
pub struct SqlServerLocks {
    shards: Arc<[Shard]>,
    settings: Arc<Settings>,
    namespace: Namespace,
}

impl fmt::Debug for SqlServerLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlServerLocks")
            .field("domain", &self.domain())
            .field("namespace", &self.namespace.as_str())
            .field("connections", &self.shards.len())
            .field("held_names", &self.held_names())
            .field("stopped", &self.is_stopped())
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
            let freeing = commands.clone();
            // A task that has ended has freed all.
            let names = Arc::new(HeldNames::new(PROVIDER, move |freed| drop(freeing.send(Command::Release(freed)))));
            tokio::spawn(Connection::new(settings.clone(), Arc::downgrade(&names), given).run());
            Shard { names, commands }
        });
        let locks = Self { shards: shards.collect(), settings, namespace: options.namespace.clone() };
        locks.check().await?;
        Ok(locks)
    }

    /// How many names this provider holds, waits for or asks for at the moment.
    #[must_use]
    pub fn held_names(&self) -> usize {
        self.shards.iter().map(|shard| shard.names.len()).sum()
    }

    fn is_stopped(&self) -> bool {
        self.shards.iter().all(|shard| shard.names.is_stopped())
    }

    fn domain(&self) -> String {
        let server = self.settings.server.server();
        let server = server.strip_suffix(",1433").unwrap_or(&server);
        format!("{PROVIDER}:{server}/{}", self.settings.database.get().map_or("", String::as_str))
    }

    /// The connection that carries this name.
    fn shard(&self, name: &str) -> Result<&Shard, LockError> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let count = u64::try_from(self.shards.len()).unwrap_or(1).max(1);
        let place = usize::try_from(hasher.finish() % count).unwrap_or_default();
        self.shards.get(place).ok_or_else(|| LockError::stopped(PROVIDER))
    }
}

impl Shard {
    async fn ask(&self, turn: Turn, request: &LockRequest) -> Attempt {
        let (reply, answer) = oneshot::channel();
        // When nobody waits for the answer any more it is dropped: a grant is given back, a turn passes on.
        let ask = Ask { turn, key: request.key.clone(), mode: request.mode, again: false, reply };
        if self.commands.send(Command::Acquire(ask)).is_err() {
            return Attempt::Stopped;
        }
        answer.await.unwrap_or(Attempt::Stopped)
    }
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
        let name = request.key.fit(LONGEST);
        let shard = self.shard(&name)?;
        shard.names.acquire(&request, Arc::from(&*name), |turn| shard.ask(turn, &request)).await
    }

    async fn check(&self) -> Result<(), LockError> {
        let stopped = || LockError::stopped(PROVIDER);
        let (reply, answer) = oneshot::channel();
        let first = self.shards.first().filter(|_| !self.is_stopped()).ok_or_else(stopped)?;
        first.commands.send(Command::Check { reply }).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    async fn stop(&self, grace: Duration) -> Result<(), LockError> {
        let stopping: Vec<_> = self
            .shards
            .iter()
            .filter_map(|shard| {
                let (reply, answer) = oneshot::channel();
                // Holders are told before anything is freed.
                shard.commands.send(Command::Stop { held: shard.names.stop(), reply }).is_ok().then_some(answer)
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
