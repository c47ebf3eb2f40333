//! What the tests of this crate share: the servers that they run on, and the ways to them.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "helpers of tests are tests")]

use latchwork_core::lock::{LockGuard, LockProviderExt, Loss};
use latchwork_lock_sqlserver::{SqlServerLockOptions, SqlServerLocks};
use latchwork_sqlserver_client::{Session, SqlServerOptions};
use latchwork_testkit::{proxy::Proxy, sqlserver::SimulatedSqlServer};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

/// Never waited out by a provider that is right.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A name that no other run on the same server has.
pub(crate) fn fresh(name: &str) -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("later than 1970").as_nanos();
    format!("{name}-{}-{now}-{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn take(locks: &SqlServerLocks, name: &str) -> LockGuard {
    locks.try_lock(name).await.expect("answered").expect("free")
}

pub(crate) async fn loss(guard: &LockGuard) -> Loss {
    tokio::time::timeout(PATIENCE, guard.lost()).await.expect("told of the loss")
}

/// A server, and a proxy before it.
pub(crate) struct Place {
    pub(crate) proxy: Proxy,
    /// Past the proxy.
    pub(crate) direct: String,
    through: String,
    pub(crate) simulated: Option<SimulatedSqlServer>,
    pub(crate) is_babelfish: bool,
}

impl Place {
    /// The simulated server, and the named one when there is one.
    pub(crate) async fn all() -> Vec<Self> {
        let server = SimulatedSqlServer::start().await.expect("started");
        let mut places = vec![Self::before(server.connection_string(), Some(server)).await];
        places.extend(Self::named().await);
        places
    }

    /// The server that the environment names. Without it, says so.
    pub(crate) async fn named() -> Option<Self> {
        match std::env::var("LATCHWORK_TEST_SQLSERVER") {
            Ok(named) => Some(Self::before(named, None).await),
            Err(_) => {
                println!("skipped: LATCHWORK_TEST_SQLSERVER is not set");
                None
            }
        }
    }

    /// The simulated server that encrypts everything.
    pub(crate) async fn encrypted() -> Self {
        let server = SimulatedSqlServer::start_with_tls("127.0.0.1").await.expect("started");
        let text = server.connection_string().replace("Encrypt=false", "Encrypt=true;TrustServerCertificate=true");
        Self::before(text, Some(server)).await
    }

    async fn before(direct: String, simulated: Option<SimulatedSqlServer>) -> Self {
        let server = SqlServerOptions::new(direct.as_str()).server();
        let (host, port) = server.split_once(',').unwrap_or((&server, "1433"));
        let proxy = Proxy::start(format!("{host}:{port}")).await.expect("started");
        // The last one counts.
        let through = format!("{direct};Server=tcp:127.0.0.1,{}", proxy.address().port());
        let is_babelfish = is_babelfish(&direct).await;
        Self { proxy, direct, through, simulated, is_babelfish }
    }

    /// Through the proxy, on one connection, as a node of a name that nobody else has.
    pub(crate) fn options(&self) -> SqlServerLockOptions {
        SqlServerLockOptions::new(self.through.as_str()).with_node(fresh("node")).with_connections(1)
    }

    pub(crate) async fn connect(&self) -> SqlServerLocks {
        SqlServerLocks::connect(&self.options()).await.expect("connected")
    }

    /// A provider past the proxy.
    pub(crate) async fn rival(&self) -> SqlServerLocks {
        let options = SqlServerLockOptions::new(self.direct.as_str()).with_node(fresh("rival")).with_connections(1);
        SqlServerLocks::connect(&options).await.expect("connected")
    }

    /// A program that knows nothing of this crate.
    pub(crate) async fn session(&self) -> Session {
        Session::open(&SqlServerOptions::new(self.direct.as_str())).await.expect("opened")
    }

    /// One try past the proxy, in a session of its own: some servers bear only few tries in vain in one session.
    pub(crate) async fn try_elsewhere(&self, name: &str) -> Option<LockGuard> {
        self.rival().await.try_lock(name).await.expect("answered")
    }

    /// Taken past the proxy, as soon as the server has noticed what has happened.
    pub(crate) async fn take_elsewhere(&self, name: &str) -> LockGuard {
        let taken = async {
            loop {
                if let Some(guard) = self.try_elsewhere(name).await {
                    return guard;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, taken).await.expect("free")
    }
}

/// Whether the server is Babelfish, which behaves otherwise than SQL Server here and there.
pub(crate) async fn is_babelfish(connection_string: &str) -> bool {
    let mut session = Session::open(&SqlServerOptions::new(connection_string)).await.expect("opened");
    let results = session.query("SELECT SERVERPROPERTY('babelfish') AS babelfish", &[], PATIENCE).await.expect("answered");
    let row = results.first().and_then(|rows| rows.first()).expect("a row");
    use latchwork_sqlserver_client::driver::ColumnData;
    !matches!(
        row.cells().next().map(|(_, value)| value),
        None | Some(ColumnData::String(None) | ColumnData::I32(None) | ColumnData::I64(None))
    )
}
