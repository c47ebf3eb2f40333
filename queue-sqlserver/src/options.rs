use latchwork_core::options::InvalidSetting;
use latchwork_sqlserver_client::{ConnectionString, SqlServerOptions};
use std::time::Duration;

/// How a [`SqlServerQueue`](crate::SqlServerQueue) works.
///
/// ```
/// use latchwork_queue_sqlserver::SqlServerQueueOptions;
/// use std::time::Duration;
///
/// let options = SqlServerQueueOptions::new("Server=tcp:db1;Database=orders;User Id=app;Password='...'")
///     .with_lease(Duration::from_secs(5))
///     .with_idle_wait(Duration::from_millis(10), Duration::from_millis(500));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use = "options do nothing until a queue is opened with them"]
pub struct SqlServerQueueOptions {
    /// Where, and as whom.
    pub connection_string: ConnectionString,
    /// How long a hint stays with a consumer that does not renew it; renewed at a third. Default 10 s, at least 100 ms, at most
    /// 1 h. Below 2 s a hint may come twice when the server or the network pauses. All nodes of a namespace use the same.
    pub lease: Duration,
    /// The first pause of a node with nothing to do before it looks for hints of other processes. Default 5 ms.
    pub shortest_wait: Duration,
    /// The pause to which it grows, by doubling; so late comes another process's hint at most. Default 100 ms, at most 5 s.
    pub longest_wait: Duration,
    /// Longest time for a connection and its log-in. Default 15 s.
    pub connect_timeout: Duration,
    /// Longest time for a request. Default 10 s.
    pub request_timeout: Duration,
}

impl SqlServerQueueOptions {
    /// The defaults for the database of this ADO.NET connection string.
    pub fn new(connection_string: impl Into<ConnectionString>) -> Self {
        Self {
            connection_string: connection_string.into(),
            lease: Duration::from_secs(10),
            shortest_wait: Duration::from_millis(5),
            longest_wait: Duration::from_millis(100),
            connect_timeout: Duration::from_secs(15),
            request_timeout: Duration::from_secs(10),
        }
    }

    /// With leases of this length.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// With pauses between these two.
    pub fn with_idle_wait(mut self, shortest: Duration, longest: Duration) -> Self {
        self.shortest_wait = shortest;
        self.longest_wait = longest;
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

    /// How sessions of this node are opened.
    pub(crate) fn sessions(&self, node: &str) -> SqlServerOptions {
        SqlServerOptions::new(self.connection_string.clone())
            .with_application_name(format!("Latchwork Queue/{node}"))
            .with_connect_timeout(self.connect_timeout)
            .with_request_timeout(self.request_timeout)
    }

    pub(crate) fn validate(&self) -> Result<(), InvalidSetting> {
        let refuse = |setting, reason: &str| Err(InvalidSetting::new(setting, reason));
        if self.lease < Duration::from_millis(100) {
            return refuse("lease", "it must be at least 100 ms, or it ends before it can be renewed");
        }
        if self.lease > Duration::from_hours(1) {
            return refuse("lease", "it must be at most 1 h, because a dead consumer's hints wait for its end");
        }
        if self.shortest_wait < Duration::from_millis(1) {
            return refuse("shortest_wait", "it must be at least 1 ms, or an idle node spins");
        }
        if self.longest_wait < self.shortest_wait {
            return refuse("longest_wait", "it must not be below shortest_wait");
        }
        if self.longest_wait > Duration::from_secs(5) {
            return refuse("longest_wait", "it must be at most 5 s, because hints of other processes wait for it");
        }
        for (setting, limit) in [("connect_timeout", self.connect_timeout), ("request_timeout", self.request_timeout)] {
            if limit.is_zero() {
                return refuse(setting, "it must not be zero, or nothing is ever answered in time");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k53_impossible_settings_are_refused_by_name() {
        let refused = |change: fn(SqlServerQueueOptions) -> SqlServerQueueOptions| {
            change(SqlServerQueueOptions::new("Server=a")).validate().map_err(|error| error.setting)
        };
        assert_eq!(refused(|options| options), Ok(()));
        assert_eq!(refused(|options| options.with_lease(Duration::ZERO)), Err("lease"));
        assert_eq!(refused(|options| options.with_lease(Duration::from_hours(2))), Err("lease"));
        assert_eq!(refused(|options| options.with_connect_timeout(Duration::ZERO)), Err("connect_timeout"));
        assert_eq!(refused(|options| options.with_request_timeout(Duration::ZERO)), Err("request_timeout"));
        let ms = Duration::from_millis;
        let waits = |shortest, longest| SqlServerQueueOptions::new("Server=a").with_idle_wait(shortest, longest).validate();
        assert_eq!(waits(Duration::ZERO, ms(5)).map_err(|error| error.setting), Err("shortest_wait"));
        assert_eq!(waits(ms(6), ms(5)).map_err(|error| error.setting), Err("longest_wait"));
        assert_eq!(waits(ms(6), ms(6_000)).map_err(|error| error.setting), Err("longest_wait"));
        assert_eq!(waits(ms(6), ms(6)), Ok(()));
    }
}
