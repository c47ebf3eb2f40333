use latchwork_core::store::{StoreError, StoreErrorKind};
use latchwork_sqlserver_client::ConnectionString;
use std::time::Duration;

/// How a store uses SQL Server.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are given to `SqlServerStore::open`"]
#[non_exhaustive]
pub struct SqlServerStoreOptions {
    /// Where, and as whom. The tables are in the database that it names.
    pub connection_string: ConnectionString,
    /// The most sessions of this node. Default 8. They are opened when they are needed, and stay open.
    pub sessions: usize,
    /// Longest time for a connection and its log-in. Default 15 s.
    pub connect_timeout: Duration,
    /// Longest time for a request. Default 30 s.
    pub request_timeout: Duration,
}

impl SqlServerStoreOptions {
    /// A store by this ADO.NET connection string.
    pub fn new(connection_string: impl Into<ConnectionString>) -> Self {
        Self {
            connection_string: connection_string.into(),
            sessions: 8,
            connect_timeout: Duration::from_secs(15),
            request_timeout: Duration::from_secs(30),
        }
    }

    /// With at most so many sessions, 2 at least: a step in a transaction has one for itself.
    pub fn with_sessions(mut self, sessions: usize) -> Self {
        self.sessions = sessions;
        self
    }

    /// With this limit for a connection and its log-in.
    pub fn with_connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// With this limit for a request.
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// # Errors
    /// [`StoreErrorKind::Invalid`] with the reason.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let refused = |why: &str| Err(StoreError::new(StoreErrorKind::Invalid, "sqlserver", "use its options").with_advice(why));
        if self.sessions < 2 {
            return refused("take 2 sessions at least, since a step in a transaction has one for itself");
        }
        if self.connect_timeout.is_zero() || self.request_timeout.is_zero() {
            return refused("take limits of time above zero");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_options_are_refused_with_the_reason() {
        let options = || SqlServerStoreOptions::new("Server=x;Password=secret");
        assert!(options().check().is_ok());
        for (wrong, reason) in [
            (options().with_sessions(1), "2 sessions"),
            (options().with_connect_timeout(Duration::ZERO), "above zero"),
            (options().with_request_timeout(Duration::ZERO), "above zero"),
        ] {
            let error = wrong.check().expect_err("refused");
            assert!(error.to_string().contains(reason), "{error}");
            assert!(!format!("{wrong:?}").contains("secret"));
        }
    }
}
