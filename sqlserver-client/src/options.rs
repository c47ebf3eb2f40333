use crate::ConnectionString;
use std::time::Duration;

/// How sessions are opened.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a session is opened with them"]
#[non_exhaustive]
pub struct SqlServerOptions {
    /// Where, and as whom.
    pub connection_string: ConnectionString,
    /// What the server's lists of sessions show as the program's name; at most 128 characters. Default `Latchwork`.
    pub application_name: String,
    /// Longest time for a connection, its TLS handshake and its log-in. Default 15 s.
    pub connect_timeout: Duration,
    /// Longest time for a request. Default 30 s.
    pub request_timeout: Duration,
}

impl SqlServerOptions {
    /// Sessions by this ADO.NET connection string.
    pub fn new(connection_string: impl Into<ConnectionString>) -> Self {
        Self {
            connection_string: connection_string.into(),
            application_name: "Latchwork".to_owned(),
            connect_timeout: Duration::from_secs(15),
            request_timeout: Duration::from_secs(30),
        }
    }

    /// Shown to the server under this name, cut to 128 characters.
    pub fn with_application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = name.into();
        self
    }

    /// With this limit for a connection.
    pub fn with_connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// With this limit for a request.
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// The server as the connection string names it, in small letters and without a protocol: for messages and names of services.
    #[must_use]
    pub fn server(&self) -> String {
        let named = self.connection_string.value(&["server", "data source"]).unwrap_or_default().to_ascii_lowercase();
        let named = named.strip_prefix("tcp:").unwrap_or(&named).trim().to_owned();
        if matches!(named.as_str(), "" | "." | "(local)") { "localhost".to_owned() } else { named }
    }
}
