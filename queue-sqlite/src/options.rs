use latchwork_core::options::InvalidSetting;
use latchwork_sqlite_client::SqliteOptions;
use std::{path::PathBuf, time::Duration};

/// How a [`SqliteQueue`](crate::SqliteQueue) works.
///
/// ```
/// use latchwork_queue_sqlite::SqliteQueueOptions;
/// use std::time::Duration;
///
/// let options = SqliteQueueOptions::new("orders.db")
///     .with_lease(Duration::from_secs(10))
///     .with_idle_wait(Duration::from_millis(5), Duration::from_millis(100));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use = "options do nothing until a queue is opened with them"]
pub struct SqliteQueueOptions {
    /// The file, and how it is opened. When the process has it open already, the first opener's options stay in force.
    pub file: SqliteOptions,
    /// How long a hint stays with a consumer that does not renew it; renewed at a third. Default 5 s, at least 100 ms, at
    /// most 1 h. Below 2.5 s a hint may come twice on a file with many writers, whose longest wait is some 250 ms. All
    /// processes of one file use the same.
    pub lease: Duration,
    /// The first pause of a consumer with nothing to do before it looks for hints of other processes. Default 5 ms.
    pub shortest_wait: Duration,
    /// The pause to which it grows, by doubling; so late comes another process's hint at most. Default 50 ms, at most 1 s.
    pub longest_wait: Duration,
}

impl SqliteQueueOptions {
    /// The defaults for the file at `path`, which is created when it is missing.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::from_file(SqliteOptions::new(path))
    }

    /// The defaults for this file.
    pub fn from_file(file: SqliteOptions) -> Self {
        Self {
            file,
            lease: Duration::from_secs(5),
            shortest_wait: Duration::from_millis(5),
            longest_wait: Duration::from_millis(50),
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
        if self.longest_wait > Duration::from_secs(1) {
            return refuse("longest_wait", "it must be at most 1 s, because hints of other processes wait for it");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k53_impossible_settings_are_refused_by_name() {
        let refused = |change: fn(SqliteQueueOptions) -> SqliteQueueOptions| {
            change(SqliteQueueOptions::new("a.db")).validate().map_err(|error| error.setting)
        };
        let (ms, zero) = (Duration::from_millis, Duration::ZERO);
        assert_eq!(refused(|options| options), Ok(()));
        assert_eq!(refused(|options| options.with_lease(Duration::ZERO)), Err("lease"));
        assert_eq!(refused(|options| options.with_lease(Duration::from_hours(2))), Err("lease"));
        let waits = |shortest, longest| SqliteQueueOptions::new("a.db").with_idle_wait(shortest, longest).validate();
        assert_eq!(waits(zero, ms(5)).map_err(|error| error.setting), Err("shortest_wait"));
        assert_eq!(waits(ms(6), ms(5)).map_err(|error| error.setting), Err("longest_wait"));
        assert_eq!(waits(ms(6), ms(5_000)).map_err(|error| error.setting), Err("longest_wait"));
    }
}
