//! How long the store keeps what is over.

use crate::{
    options::InvalidSetting,
    store::{PurgeRequest, WorkflowStatus},
};
use std::time::Duration;

/// The shortest retention of events and tombstones.
const SHORTEST: Duration = Duration::from_secs(60);

/// How long ended instances of one status are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Until somebody deletes them by [`purge`](crate::store::PersistenceProvider::purge).
    #[default]
    Forever,
    /// Not at all: they are deleted about a second after their end.
    DeleteAtEnd,
    /// So long after their end, by the store's clock.
    For(Duration),
}

impl Keep {
    /// The age from which on instances are deleted; `None` when they are kept.
    #[must_use]
    pub fn age(self) -> Option<Duration> {
        match self {
            Self::Forever => None,
            Self::DeleteAtEnd => Some(Duration::ZERO),
            Self::For(age) => Some(age),
        }
    }
}

/// What a host's background sweep deletes, and when. Ages are counted by the store's clock.
///
/// A deleted instance goes with all that belongs to it: data, pointers, errors, waits, inbox, attributes. What is left is a
/// *tombstone*: id, definition, business key, status, end, and the data when it is stored in no more than
/// [`TOMBSTONE_RESULT_BYTES`](crate::limits::TOMBSTONE_RESULT_BYTES). As long as the tombstone is there, a start with the same business
/// key finds the instance, and a waiter gets the result. Of larger data only who waited when the instance ended gets it, if the look came
/// before the sweep; a later one is told that it was deleted.
///
/// Each node of a cluster sweeps by its own settings, one node at a time, so the shortest retention in a cluster counts.
///
/// ```
/// use latchwork_core::retention::{Keep, Retention};
/// use std::time::Duration;
///
/// // Complete instances go at once, those that were ended early stay for a month.
/// let retention = Retention::delete_at_end().with_terminated(Keep::For(Duration::from_secs(30 * 86_400)));
/// assert_eq!(retention.complete, Keep::DeleteAtEnd);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a retention does nothing until a host is given it"]
pub struct Retention {
    /// Instances that ended as their definition says. Default: kept for ever.
    pub complete: Keep,
    /// Instances that were ended early. Default: kept for ever.
    pub terminated: Keep,
    /// Events, from their time on; `None` keeps them for ever. An event reaches waits that begin later only while it is kept (I3). One that
    /// stands in an inbox is never deleted. Default 90 days.
    pub events: Option<Duration>,
    /// Tombstones, from the deletion of their instance on; `None` keeps them for ever. Default 7 days.
    pub tombstones: Option<Duration>,
    /// How often a node sweeps; `None` leaves it to other nodes, or to calls. Default 10 minutes. What is deleted at its end does not wait
    /// for it.
    pub interval: Option<Duration>,
    /// The most rows of each kind deleted in one transaction. Default 1,000. After each a sweep pauses as long as the batch took.
    pub batch: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            complete: Keep::Forever,
            terminated: Keep::Forever,
            events: Some(Duration::from_hours(24 * 90)),
            tombstones: Some(Duration::from_hours(24 * 7)),
            interval: Some(Duration::from_mins(10)),
            batch: 1_000,
        }
    }
}

impl Retention {
    /// Keeps ended instances for ever, events for 90 days, tombstones for 7.
    pub fn new() -> Self {
        Self::default()
    }

    /// Deletes instances when they have ended.
    pub fn delete_at_end() -> Self {
        Self { complete: Keep::DeleteAtEnd, terminated: Keep::DeleteAtEnd, ..Self::default() }
    }

    /// Deletes instances so long after their end.
    pub fn delete_after(age: Duration) -> Self {
        Self { complete: Keep::For(age), terminated: Keep::For(age), ..Self::default() }
    }

    /// Deletes nothing by itself: for hosts whose store is swept by other nodes, or by calls.
    pub fn by_hand() -> Self {
        Self { interval: None, ..Self::default() }
    }

    /// What becomes of instances that ended as their definition says.
    pub fn with_complete(mut self, keep: Keep) -> Self {
        self.complete = keep;
        self
    }

    /// What becomes of instances that were ended early.
    pub fn with_terminated(mut self, keep: Keep) -> Self {
        self.terminated = keep;
        self
    }

    /// How long events are kept; `None` is for ever.
    pub fn with_events(mut self, age: Option<Duration>) -> Self {
        self.events = age;
        self
    }

    /// How long tombstones are kept; `None` is for ever.
    pub fn with_tombstones(mut self, age: Option<Duration>) -> Self {
        self.tombstones = age;
        self
    }

    /// How often a node sweeps.
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }

    /// The most rows of each kind deleted in one transaction.
    pub fn with_batch(mut self, rows: usize) -> Self {
        self.batch = rows;
        self
    }

    /// Whether any instances are deleted.
    #[must_use]
    pub fn deletes_instances(&self) -> bool {
        [self.complete, self.terminated].iter().any(|keep| *keep != Keep::Forever)
    }

    /// Whether any instances are deleted at their end.
    #[must_use]
    pub fn deletes_at_end(&self) -> bool {
        [self.complete, self.terminated].contains(&Keep::DeleteAtEnd)
    }

    /// For engines: what a sweep asks of the store, one request per status that is not kept, and one for events and tombstones.
    #[must_use]
    pub fn requests(&self) -> Vec<PurgeRequest> {
        let mut requests = self.instance_requests(|_| true);
        let mut rest = PurgeRequest::new().with_limit(self.batch);
        (rest.events, rest.tombstones) = (self.events, self.tombstones);
        if rest.events.is_some() || rest.tombstones.is_some() {
            requests.push(rest);
        }
        requests
    }

    /// For engines: what a sweep asks of the store to delete instances at their end.
    #[must_use]
    pub fn requests_at_end(&self) -> Vec<PurgeRequest> {
        self.instance_requests(|keep| keep == Keep::DeleteAtEnd)
    }

    fn instance_requests(&self, wanted: impl Fn(Keep) -> bool) -> Vec<PurgeRequest> {
        let by_status = [(WorkflowStatus::Complete, self.complete), (WorkflowStatus::Terminated, self.terminated)];
        let request = |(status, keep): (WorkflowStatus, Keep)| {
            let age = Some(keep).filter(|keep| wanted(*keep))?.age()?;
            Some(PurgeRequest::new().with_instances(age).with_status([status]).with_limit(self.batch))
        };
        by_status.into_iter().filter_map(request).collect()
    }

    /// Refuses what cannot work, with the reason.
    ///
    /// # Errors
    /// [`InvalidSetting`].
    pub fn validate(&self, poll_interval: Duration) -> Result<(), InvalidSetting> {
        let refuse = |setting, reason: String| Err(InvalidSetting::new(setting, reason));
        let shortest = SHORTEST.max(poll_interval.saturating_mul(2));
        if self.tombstones.is_some_and(|age| age < shortest) {
            let reason = format!(
                "it must be at least {shortest:?} (a minute, and two polls): hints, results and waiters that come late look for the tombstone"
            );
            return refuse("retention.tombstones", reason);
        }
        if self.events.is_some_and(|age| age < shortest) {
            let reason = format!(
                "it must be at least {shortest:?} (a minute, and two polls), or events are gone before their waits begin"
            );
            return refuse("retention.events", reason);
        }
        if self.interval.is_some_and(|interval| interval < Duration::from_secs(1)) {
            return refuse(
                "retention.interval",
                "it must be at least 1 s; what is deleted at its end does not wait for it".into(),
            );
        }
        if self.batch == 0 {
            return refuse("retention.batch", "it must be at least 1, or nothing is ever deleted".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn a_sweep_asks_for_what_is_not_kept_only() {
        let ages = |requests: Vec<PurgeRequest>| {
            let age = |request: PurgeRequest| (request.statuses, request.instances, request.events, request.tombstones);
            requests.into_iter().map(age).collect::<Vec<_>>()
        };
        let rest = (vec![], None, Some(DAY * 90), Some(DAY * 7));
        assert_eq!(ages(Retention::new().requests()), vec![rest.clone()]);
        let retention = Retention::delete_after(DAY).with_complete(Keep::DeleteAtEnd);
        let (complete, terminated) = (vec![WorkflowStatus::Complete], vec![WorkflowStatus::Terminated]);
        let at_end = (complete, Some(Duration::ZERO), None, None);
        assert_eq!(ages(retention.requests()), [at_end.clone(), (terminated, Some(DAY), None, None), rest]);
        assert_eq!(ages(retention.requests_at_end()), [at_end]);
        let nothing = Retention::new().with_events(None).with_tombstones(None);
        assert_eq!(ages(nothing.requests()), []);
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_name() {
        let poll = Duration::from_secs(10);
        let setting = |retention: Retention, poll| retention.validate(poll).map_err(|error| error.setting);
        assert_eq!(setting(Retention::delete_at_end(), poll), Ok(()));
        let short = Some(Duration::from_secs(59));
        assert_eq!(setting(Retention::new().with_tombstones(short), poll), Err("retention.tombstones"));
        assert_eq!(setting(Retention::new().with_tombstones(Some(poll * 6)), poll), Ok(()));
        assert_eq!(setting(Retention::new().with_tombstones(Some(poll * 6)), poll * 4), Err("retention.tombstones"));
        assert_eq!(setting(Retention::new().with_events(short), poll), Err("retention.events"));
        assert_eq!(setting(Retention::new().with_interval(Duration::ZERO), poll), Err("retention.interval"));
        assert_eq!(setting(Retention::new().with_batch(0), poll), Err("retention.batch"));
    }
}
