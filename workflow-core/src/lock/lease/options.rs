use crate::{
    clock::{Clock, SystemClock},
    lock::LockError,
    name::Namespace,
};
use std::{sync::Arc, time::Duration};

/// The shortest renewal period, and the shortest margin.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest of each: a dead node would keep its locks for so long.
const LONGEST: Duration = Duration::from_hours(12);

/// How leases are kept.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are given to a provider"]
#[non_exhaustive]
pub struct LeaseOptions {
    /// Where names are made. Default `wfc`.
    pub namespace: Namespace,
    /// The name of this node, which its host row shows. Default: the number of the process.
    pub node: String,
    /// A lease is renewed so often. Default 30 s, at least 1 s, at most 12 h. Shorter: the work of a dead node goes on sooner, for more
    /// requests.
    pub renewal_period: Duration,
    /// A lease is valid for so much longer than the renewal period, which is the time in which a renewal may fail and be tried again.
    /// Default 30 s, at least 1 s and a tenth of the renewal period, at most 12 h.
    pub margin: Duration,
    /// The clock that deadlines are kept by. It is never compared with the server's. Default: the system's.
    pub clock: Arc<dyn Clock>,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self {
            namespace: Namespace::default(),
            node: std::process::id().to_string(),
            renewal_period: Duration::from_secs(30),
            margin: Duration::from_secs(30),
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl LeaseOptions {
    /// Makes keys in this namespace.
    pub fn with_namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// Shown in the table of hosts as this node.
    pub fn with_node(mut self, node: impl Into<String>) -> Self {
        self.node = node.into();
        self
    }

    /// Renews so often, 1 s to 12 h.
    #[doc(alias = "HostLockRenewalPeriod")]
    pub fn with_renewal_period(mut self, period: Duration) -> Self {
        self.renewal_period = period;
        self
    }

    /// Is valid for so much longer than the renewal period, 1 s to 12 h, and at least a tenth of that period.
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Keeps deadlines by this clock.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// How long a lease is valid at the server without renewal: renewal period and margin.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.renewal_period.saturating_add(self.margin)
    }

    /// How long it is valid here, from the moment before the renewal was sent: a fifth of the margin less. In that time the holders
    /// are told; and the clocks of node and server may run apart by so much, which is at least 2 % of a renewal period.
    pub(super) fn term(&self) -> Duration {
        self.lease().saturating_sub(self.margin / 5)
    }

    /// The longest that a backend may wait for an answer, or for a connection: a quarter of the margin, so that a renewal that is due
    /// can fail twice and still be in time.
    #[must_use]
    pub fn answer_within(&self) -> Duration {
        self.margin / 4
    }

    /// The pause after a renewal that failed.
    pub(super) fn retry_pause(&self) -> Duration {
        self.margin / 20
    }

    /// Refuses what cannot work.
    ///
    /// # Errors
    /// [`LockError::Refused`] with the reason.
    pub fn check(&self, provider: &'static str) -> Result<(), LockError> {
        for (what, value) in [("renewal period", self.renewal_period), ("margin", self.margin)] {
            let why = if value < SHORTEST {
                format!("a {what} of {value:?} is too short to protect anything; {SHORTEST:?} is the least")
            } else if value > LONGEST {
                format!("a {what} of {value:?} would keep the locks of a dead node for longer; {LONGEST:?} is the most")
            } else {
                continue;
            };
            return Err(LockError::refused(provider, "options", why));
        }
        if self.margin < self.renewal_period / 10 {
            let (margin, period) = (self.margin, self.renewal_period);
            let why =
                format!("a margin of {margin:?} is too short for a renewal period of {period:?}; a tenth of it is the least");
            return Err(LockError::refused(provider, "options", why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k53_impossible_leases_are_refused_with_the_reason() {
        let second = Duration::from_secs(1);
        for (period, margin, reason) in [
            (Duration::ZERO, second, "a renewal period of 0ns is too short"),
            (second, Duration::ZERO, "a margin of 0ns is too short"),
            (Duration::from_millis(999), second, "a renewal period of 999ms is too short"),
            (second, Duration::from_millis(999), "a margin of 999ms is too short"),
            (Duration::MAX, second, "would keep the locks of a dead node"),
            (11 * second, second, "too short for a renewal period of 11s"),
            (second, Duration::MAX, "would keep the locks of a dead node"),
        ] {
            let options = LeaseOptions::default().with_renewal_period(period).with_margin(margin);
            let refused = options.check("test").expect_err("refused");
            assert!(refused.to_string().contains(reason), "{refused}");
            assert!(!refused.is_retryable());
        }
        assert!(LeaseOptions::default().check("test").is_ok());
        let shortest = LeaseOptions::default().with_renewal_period(second).with_margin(second);
        assert!(shortest.check("test").is_ok());
        assert_eq!(LeaseOptions::default().lease(), 60 * second);
    }

    #[test]
    fn two_failed_renewals_leave_time_for_a_third() {
        for (period, margin) in [(1, 1), (1, 30), (30, 3), (30, 30)] {
            let options =
                LeaseOptions::default().with_renewal_period(Duration::from_secs(period)).with_margin(Duration::from_secs(margin));
            let failed_twice = options.renewal_period + 2 * (options.answer_within() + options.retry_pause());
            assert!(failed_twice < options.term(), "{options:?}");
        }
    }
}
