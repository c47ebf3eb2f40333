//! A stand-in for SQL Server that the real driver connects to: a loopback TDS server with sessions and application locks.
//!
//! It knows the statements around application locks and nothing else: `sp_getapplock`, `sp_releaseapplock`, `APPLOCK_MODE`,
//! `APPLOCK_TEST`, `NEXT VALUE FOR`, `SELECT` of such values, variables, `IF`, `WHILE` and `TRY`, sums and pieces of texts; as batches, by `sp_executesql`, and as
//! procedure calls. Locks behave as SQL Server's do: they belong to database, principal and a name of 255 UTF-16 units that is
//! compared unit by unit, are counted within a session, and end with it. It has TLS when it is started so, with a certificate of its own
//! making. It misbehaves on command.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
//! use latchwork_testkit::sqlserver::SimulatedSqlServer;
//!
//! let server = SimulatedSqlServer::start().await?;
//! let connection_string = server.connection_string(); // for the provider under test
//! assert!(connection_string.contains("Encrypt=false"));
//! assert!(server.held().is_empty());
//! # Ok(()) }
//! ```

pub mod grammar;
mod locks;
mod request;
mod run;
mod script;
mod server;
mod tls;
mod wire;

pub use server::SimulatedSession;
pub use tls::TlsFault;

use server::{Shared, Told};
use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};
use tls::Tls;
use tokio::{net::TcpListener, task::JoinHandle};

const PASSWORD: &str = "Str0ng;pass=word";

/// A lock that a session holds, as [`SimulatedSqlServer::held`] lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct SimulatedLock {
    /// Its name.
    pub resource: String,
    /// The session that holds it.
    pub session: u16,
    /// How often the session was granted it without a release.
    pub grants: usize,
}

/// The server. It serves until it is dropped; then all connections close.
pub struct SimulatedSqlServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    listening: JoinHandle<()>,
}

impl fmt::Debug for SimulatedSqlServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedSqlServer")
            .field("address", &self.address)
            .field("sessions", &self.sessions().len())
            .finish_non_exhaustive()
    }
}

impl Drop for SimulatedSqlServer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl SimulatedSqlServer {
    /// Listens on a free port of the loopback address. Needs a Tokio runtime with input, output and time.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> io::Result<Self> {
        Self::listen(None).await
    }

    /// As [`start`](Self::start), with TLS: for the log-in alone with `Encrypt=false`, else for all. It makes its own certificate, for a server of
    /// this name; clients know it as `127.0.0.1`.
    ///
    /// # Errors
    /// When no port can be had, or no certificate for the name.
    pub async fn start_with_tls(name: &str) -> io::Result<Self> {
        Self::listen(Some(Tls::new(name)?)).await
    }

    async fn listen(tls: Option<Tls>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(PASSWORD, tls));
        let serving = shared.clone();
        let listening = tokio::spawn(async move {
            // The connections end with this task.
            let mut connections = tokio::task::JoinSet::new();
            loop {
                tokio::select! {
                    Ok((stream, _)) = listener.accept() => {
                        connections.spawn(server::serve(stream, serving.clone()));
                    }
                    Some(_) = connections.join_next() => {}
                    else => return,
                }
            }
        });
        Ok(Self { shared, address, listening })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// An ADO.NET connection string of the database `orders`, with `Encrypt=false`.
    #[must_use]
    pub fn connection_string(&self) -> String {
        self.connection_string_of("orders")
    }

    /// An ADO.NET connection string of this database; every name is a database.
    #[must_use]
    pub fn connection_string_of(&self, database: &str) -> String {
        format!(
            "Server=tcp:{},{};Database={database};User Id=latchwork;Password='{PASSWORD}';Encrypt=false",
            self.address.ip(),
            self.address.port()
        )
    }

    /// The server's certificate, which is its own authority, as PEM: for a file that `TrustServerCertificateCA` names. `None` without TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<&str> {
        self.shared.tls.as_ref().map(|tls| tls.certificate.as_str())
    }

    /// The sessions that are there now.
    #[must_use]
    pub fn sessions(&self) -> Vec<SimulatedSession> {
        self.shared.sessions()
    }

    /// The locks that are held now, by name.
    #[must_use]
    pub fn held(&self) -> Vec<SimulatedLock> {
        let mut held: Vec<_> = self.shared.locks(|locks| {
            let shown = |(session, name, grants): (u16, &locks::Name, usize)| SimulatedLock {
                resource: name.resource(),
                session,
                grants,
            };
            locks.held().map(shown).collect()
        });
        held.sort();
        held
    }

    /// The texts of the batches since the last call, in the order in which they came.
    #[must_use]
    pub fn take_statements(&self) -> Vec<String> {
        self.shared.tell(|told| std::mem::take(&mut told.statements))
    }

    /// How many clients have tried to log in so far.
    #[must_use]
    pub fn log_ins(&self) -> usize {
        self.shared.tell(|told| told.log_ins)
    }

    /// Creates a sequence of this name, with its schema, which begins with 1.
    pub fn create_sequence(&self, name: &str) {
        self.shared.create_sequence(name);
    }

    /// Ends one session as `KILL` does: its locks are free at once. Resolves when its client has closed its end, at the latest
    /// after some seconds.
    pub async fn kill(&self, session: u16) {
        self.shared.end(|shown| shown.id == session).await;
    }

    /// Ends the sessions of the applications whose names begin so, as [`kill`](Self::kill) does.
    pub async fn kill_application(&self, head: &str) {
        self.shared.end(|shown| shown.application.starts_with(head)).await;
    }

    /// Ends all sessions as a restart or a failover does. New ones are welcome at once.
    pub async fn restart(&self) {
        self.shared.end(|_| true).await;
    }

    /// Whether new log-ins are refused with this error; `None` lets them in again.
    pub fn refuse_log_in(&self, error: Option<(i32, &str)>) {
        self.shared.tell(|told| told.refuses_log_in = error.map(|(number, text)| (number, text.to_owned())));
    }

    /// Whether new connections are closed as soon as they are there.
    pub fn refuse_connections(&self, refuse: bool) {
        self.shared.tell(|told| told.refuses_connections = refuse);
    }

    /// Whether this procedure, or this sequence named with its schema, raises an error whenever it is used, as for a missing permission (229) or in a
    /// database that is read-only (3906). `None` ends it.
    pub fn fail(&self, name: &str, error: Option<(i32, &str)>) {
        let name = name.to_ascii_lowercase();
        self.shared.tell(|told| match error {
            Some((number, text)) => drop(told.failing.insert(name, (number, text.to_owned()))),
            None => drop(told.failing.remove(&name)),
        });
    }

    /// How the TLS handshakes to come fail; `None` lets them succeed again.
    pub fn fail_tls(&self, fault: Option<TlsFault>) {
        self.shared.tell(|told| told.tls_fault = fault);
    }

    /// Answers later by so much.
    pub fn delay(&self, delay: Duration) {
        self.shared.tell(|told| told.delay = delay);
    }

    /// Whether the server is silent: it carries out what it is asked, and answers nothing; log-ins hang. What was held back is
    /// answered when the silence ends.
    pub fn be_silent(&self, silent: bool) {
        self.shared.silent.send_replace(silent);
    }

    /// Gives the next `sp_getapplock` this return code, and raises an error of this text when there is one. Called again, for the one
    /// after it.
    pub fn answer_next_acquire(&self, code: i32, error: Option<&str>) {
        let told = Told { code, error: error.map(str::to_owned) };
        self.shared.tell(|telling| telling.next_codes.push_back(told));
    }
}
