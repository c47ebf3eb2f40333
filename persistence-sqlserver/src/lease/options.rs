use latchwork_core::{
    lock::{LockError, lease::LeaseOptions},
    store::SchemaMode,
};
use latchwork_sqlserver_client::ConnectionString;
use std::time::Duration;

/// How locks are kept as leases in a database of SQL Server.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are given to `SqlServerLeaseLocks::connect`"]
#[non_exhaustive]
pub struct SqlServerLeaseOptions {
    /// Where, and as whom. The tables are in the database that it names, in the schema of the store of the same namespace.
    pub connection_string: ConnectionString,
    /// How leases are kept: namespace, node, renewal period, margin, clock.
    pub lease: LeaseOptions,
    /// Who makes the tables. Default: this program, which also brings them up to date.
    pub schema: SchemaMode,
    /// Longest time for a request that acquires or releases. Default 5 s. (One that renews has a quarter of the margin.)
    pub answer_within: Duration,
    /// Longest time for the connection of such a request, and its log-in. Default 15 s.
    pub connect_timeout: Duration,
}

impl SqlServerLeaseOptions {
    /// Leases by this ADO.NET connection string, of 60 s, renewed every 30 s.
    pub fn new(connection_string: impl Into<ConnectionString>) -> Self {
        Self {
            connection_string: connection_string.into(),
            lease: LeaseOptions::default(),
            schema: SchemaMode::default(),
            answer_within: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(15),
        }
    }

    /// With leases that are kept like this.
    pub fn with_lease(mut self, lease: LeaseOptions) -> Self {
        self.lease = lease;
        self
    }

    /// Renews so often, 1 s to 12 h, with a margin of the same length; the work of a dead node goes on after at most the sum of both.
    pub fn with_renewal_period(mut self, period: Duration) -> Self {
        self.lease = self.lease.with_renewal_period(period).with_margin(period);
        self
    }

    /// Does this about the tables.
    pub fn with_schema(mut self, mode: SchemaMode) -> Self {
        self.schema = mode;
        self
    }

    /// With this limit for a request that acquires or releases.
    pub fn with_answer_within(mut self, limit: Duration) -> Self {
        self.answer_within = limit;
        self
    }

    /// With this limit for a connection and its log-in.
    pub fn with_connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// # Errors
    /// [`LockError::Refused`] with the reason.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        if self.answer_within.is_zero() || self.connect_timeout.is_zero() {
            return Err(LockError::refused(super::PROVIDER, "options", "a limit of no time; take one above zero"));
        }
        self.lease.check(super::PROVIDER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k53_impossible_options_are_refused_with_the_reason() {
        let options = || SqlServerLeaseOptions::new("Server=x;Password=secret");
        assert!(options().check().is_ok());
        for (wrong, reason) in [
            (options().with_renewal_period(Duration::ZERO), "too short"),
            (options().with_renewal_period(Duration::from_millis(999)), "too short"),
            (options().with_lease(LeaseOptions::default().with_margin(Duration::ZERO)), "too short"),
            (options().with_answer_within(Duration::ZERO), "no time"),
            (options().with_connect_timeout(Duration::ZERO), "no time"),
        ] {
            let error = wrong.check().expect_err("refused");
            assert!(error.to_string().contains(reason), "{error}");
            assert!(!format!("{wrong:?}").contains("secret"));
        }
    }
}
