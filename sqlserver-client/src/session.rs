use crate::{SqlServerError, SqlServerOptions, stream::SharedStream};
use futures_util::FutureExt;
use std::{fmt, time::Duration};
use tiberius::{Client, Config, EncryptionLevel, Row, SqlBrowser, ToSql, error::Error as DriverError};
use tokio::{
    net::TcpStream,
    time::{error::Elapsed, timeout},
};
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};

/// How many addresses a log-in follows: a gateway names the node that has the database.
const REDIRECTIONS: u32 = 3;
/// What the server keeps of an application's name.
const APPLICATION_NAME: usize = 128;

/// One session with the server, which ends when this is dropped. One request at a time.
///
/// A request that is dropped before its end leaves an answer half read: the session is [broken](Self::is_broken) then, and
/// refuses further ones. So requests belong in a task that sees them through, as those of a [`SqlServerPool`](crate::SqlServerPool) are.
pub struct Session {
    client: Client<Compat<SharedStream>>,
    stream: SharedStream,
    broken: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("broken", &self.broken).finish_non_exhaustive()
    }
}

impl Session {
    /// Connects and logs in, within the options' `connect_timeout`.
    ///
    /// # Errors
    /// [`SqlServerError`]; [`is_transient`](SqlServerError::is_transient) tells whether a later try may succeed.
    pub async fn open(options: &SqlServerOptions) -> Result<Self, SqlServerError> {
        let config = Self::config(options)?;
        let limit = options.connect_timeout;
        let opened = timeout(limit, Self::log_in(options, config)).await;
        opened.unwrap_or_else(|_| {
            Err(SqlServerError::Unreachable { server: options.server(), reason: format!("no log-in within {limit:?}") })
        })
    }

    pub(crate) fn config(options: &SqlServerOptions) -> Result<Config, SqlServerError> {
        let mut config = Config::from_ado_string(options.connection_string.reveal()).map_err(|_| {
            // The driver's own words may hold a part of the string.
            SqlServerError::ConnectionString {
                reason: "it is not in the form of ADO.NET; put values with `;` or quotation marks in quotes",
            }
        })?;
        config.application_name(options.application_name.chars().take(APPLICATION_NAME).collect::<String>());
        config.handshake_timeout(None);
        config.command_timeout(None);
        Ok(config)
    }

    async fn log_in(options: &SqlServerOptions, mut config: Config) -> Result<Self, SqlServerError> {
        let encrypt = options.connection_string.value(&["encrypt"]).unwrap_or_default();
        let does_without = ["false", "no"].iter().any(|no| encrypt.eq_ignore_ascii_case(no))
            && options.connection_string.value(&["trustservercertificateca"]).is_none();
        if does_without {
            // As ADO.NET: what encrypts the log-in alone, with a certificate of the server's own making, is not checked.
            config.trust_cert();
        }
        match Self::follow(options, config.clone()).await {
            // A server without TLS turns the handshake of the log-in away; without it everything is in the clear, as asked.
            Err(DriverError::Io { .. }) if does_without => {
                let mut plain = config;
                plain.encryption(EncryptionLevel::NotSupported);
                Self::follow(options, plain).await
            }
            result => result,
        }
        .map_err(|error| SqlServerError::of_opening(options.server(), error))
    }

    async fn follow(options: &SqlServerOptions, mut config: Config) -> Result<Self, DriverError> {
        let mut redirections = 0;
        loop {
            let stream = SharedStream::new(TcpStream::connect_named(&config).await?)?;
            match Box::pin(Client::connect(config.clone(), stream.clone().compat_write())).await {
                Err(DriverError::Routing { host, port }) if redirections < REDIRECTIONS => {
                    tracing::debug!(server = %options.server(), "the log-in was sent on to another address");
                    config.host(host);
                    config.port(port);
                    redirections += 1;
                }
                result => return Ok(Self { client: result?, stream, broken: false }),
            }
        }
    }

    /// Sends one batch and reads its whole answer: the rows of each result.
    ///
    /// # Errors
    /// [`SqlServerError`]. After any but a [mild one](SqlServerError::spares_the_session) of the server the session is broken.
    pub async fn query(
        &mut self,
        sql: &str,
        parameters: &[&dyn ToSql],
        limit: Duration,
    ) -> Result<Vec<Vec<Row>>, SqlServerError> {
        self.begin_request()?;
        let asked = async { self.client.query(sql, parameters).await?.into_results().await };
        let result = timeout(limit, asked).await;
        self.end_request(result, limit)
    }

    /// As [`query`](Self::query), without parameters and without the frame that these need: what it begins, as a
    /// transaction, goes on after its end.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub async fn batch(&mut self, sql: &str, limit: Duration) -> Result<Vec<Vec<Row>>, SqlServerError> {
        self.begin_request()?;
        let asked = async { self.client.simple_query(sql).await?.into_results().await };
        let result = timeout(limit, asked).await;
        self.end_request(result, limit)
    }

    fn begin_request(&mut self) -> Result<(), SqlServerError> {
        if self.broken {
            return Err(SqlServerError::closed("an earlier request did not end as it should"));
        }
        // Stays when the future of the request is dropped.
        self.broken = true;
        Ok(())
    }

    fn end_request<T>(&mut self, result: Result<Result<T, DriverError>, Elapsed>, limit: Duration) -> Result<T, SqlServerError> {
        let result = match result {
            Ok(result) => result.map_err(SqlServerError::of_request),
            Err(_) => Err(SqlServerError::TimedOut { limit }),
        };
        self.broken = result.as_ref().is_err_and(|error| !error.spares_the_session());
        result
    }

    /// Whether the server has closed it, as far as is known now.
    pub(crate) fn is_closed_by_now(&self) -> bool {
        self.stream.stirs().now_or_never().unwrap_or(false)
    }

    /// Whether no further request can be sent.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// While no request is under way: resolves with `true` as soon as the socket is closed, by the server or on the way, and with
    /// `false` when there is something to read that nobody asked for, which a request will read.
    pub async fn stirs(&self) -> bool {
        self.stream.stirs().await
    }
}
