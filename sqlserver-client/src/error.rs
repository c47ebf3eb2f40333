use std::time::Duration;
use tiberius::error::{Error as DriverError, IoErrorKind};

/// Numbers of the server's errors, and of its clients', that are worth another try after a pause.
const TRANSIENT: [u32; 23] = [
    20, 53, 64, 121, 233, 1205, 1222, 3910, 4060, 8641, 8645, 10053, 10054, 10060, 10061, 10928, 10929, 40143, 40197, 40501,
    40549, 40553, 40613,
];

/// What can go wrong between a client and SQL Server. No text of it holds a part of the connection string but the server's name.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlServerError {
    /// The connection string cannot be read.
    #[error("the SQL Server connection string cannot be used: {reason}")]
    #[non_exhaustive]
    ConnectionString {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The server cannot be reached.
    #[error("the SQL Server `{server}` cannot be reached: {reason}")]
    #[non_exhaustive]
    Unreachable {
        /// The server.
        server: String,
        /// What the operating system said.
        reason: String,
    },
    /// The server has no TLS, and the connection string does not do without.
    #[error("the SQL Server `{server}` offers no TLS; set it up there, or say `Encrypt=false` in the connection string")]
    #[non_exhaustive]
    NoTls {
        /// The server.
        server: String,
    },
    /// The TLS handshake failed, for example because the certificate is not trusted.
    #[error(
        "the TLS handshake with the SQL Server `{server}` failed: {reason}; name a certificate authority with `TrustServerCertificateCA`, \
         or trust any with `TrustServerCertificate=true`"
    )]
    #[non_exhaustive]
    Tls {
        /// The server.
        server: String,
        /// What the TLS library said.
        reason: String,
    },
    /// The server refused the log-in.
    #[error("the SQL Server `{server}` refused the log-in with error {number}: {message}")]
    #[non_exhaustive]
    LogIn {
        /// The server.
        server: String,
        /// The number of the error.
        number: u32,
        /// What the server said.
        message: String,
    },
    /// The server answered a request with an error.
    #[error("SQL Server error {number}: {message}")]
    #[non_exhaustive]
    Server {
        /// The number of the error.
        number: u32,
        /// How severe it is; from 20 on the session has ended.
        class: u8,
        /// What the server said.
        message: String,
    },
    /// The server did not answer in time.
    #[error("SQL Server did not answer within {limit:?}")]
    #[non_exhaustive]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The session has ended, or can no longer be used.
    #[error("the SQL Server session has ended: {reason}")]
    #[non_exhaustive]
    Closed {
        /// Why.
        reason: String,
    },
    /// The schema in the database is not the one that this program needs.
    #[error("{reason}")]
    #[non_exhaustive]
    Schema {
        /// Which tables, which version is needed, and what is there.
        reason: String,
    },
    /// What was asked was stopped before.
    #[error("it was stopped; open it again")]
    Stopped,
    /// The driver and the server do not understand each other, or a value has not the type that was asked for.
    #[error("SQL Server was not understood: {reason}")]
    #[non_exhaustive]
    Protocol {
        /// What the driver said.
        reason: String,
    },
}

impl SqlServerError {
    /// The session has ended.
    pub fn closed(reason: impl Into<String>) -> Self {
        Self::Closed { reason: reason.into() }
    }

    /// An answer is not what was asked for.
    pub fn protocol(reason: impl Into<String>) -> Self {
        Self::Protocol { reason: reason.into() }
    }

    /// The number of the server's error, when it is one.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        match self {
            Self::LogIn { number, .. } | Self::Server { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Closed { .. } => true,
            Self::LogIn { number, .. } => TRANSIENT.contains(number),
            Self::Server { number, class, .. } => *class >= 20 || TRANSIENT.contains(number),
            Self::ConnectionString { .. }
            | Self::NoTls { .. }
            | Self::Tls { .. }
            | Self::Schema { .. }
            | Self::Stopped
            | Self::Protocol { .. } => false,
        }
    }

    /// Whether what was asked may have been done all the same: the session ended before the answer came.
    #[must_use]
    pub fn leaves_the_outcome_open(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Closed { .. } | Self::Protocol { .. } => true,
            Self::Server { class, .. } => *class >= 20,
            _ => false,
        }
    }

    /// Whether the server chose the request as a deadlock's victim.
    #[must_use]
    pub fn is_deadlock(&self) -> bool {
        self.number() == Some(1205)
    }

    /// Whether the session it happened in can still be used.
    #[must_use]
    pub fn spares_the_session(&self) -> bool {
        matches!(self, Self::Server { class, .. } if *class < 20)
    }

    /// An error of a request.
    pub(crate) fn of_request(error: DriverError) -> Self {
        match error {
            DriverError::Server(token) => {
                Self::Server { number: token.code(), class: token.class(), message: token.message().to_owned() }
            }
            DriverError::Io { message, .. } => Self::Closed { reason: message },
            error => Self::Protocol { reason: error.to_string() },
        }
    }

    /// An error on the way to a session.
    pub(crate) fn of_opening(server: String, error: DriverError) -> Self {
        match error {
            DriverError::Server(token) => Self::LogIn { server, number: token.code(), message: token.message().to_owned() },
            DriverError::Io { kind, message } if is_of_tls(kind, &message) => Self::Tls { server, reason: message },
            DriverError::Io { message, .. } => Self::Unreachable { server, reason: message },
            DriverError::Tls(reason) => {
                // What follows are calls of the driver, which nobody can make through a connection string.
                let reason = reason.split(" To connect anyway").next().unwrap_or_default().trim_end_matches('.').to_owned();
                Self::Tls { server, reason }
            }
            DriverError::Protocol(reason) if reason.contains("encryption level") => Self::NoTls { server },
            error => Self::Protocol { reason: error.to_string() },
        }
    }
}

/// Whether an error of input or output, on the way to a session, is one of TLS: the driver has no class for a handshake that was
/// understood and failed, nor for certificates that cannot be read.
fn is_of_tls(kind: IoErrorKind, message: &str) -> bool {
    match kind {
        IoErrorKind::InvalidData => true,
        IoErrorKind::InvalidInput | IoErrorKind::NotFound => message.to_ascii_lowercase().contains("certificate"),
        _ => false,
    }
}
