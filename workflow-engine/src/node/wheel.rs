use latchwork_core::{queue::WorkItem, store::InstanceId};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// The timers that fall due before the next poll, by this node's monotonic clock. Lost with the node; the poller makes up for it.
#[derive(Debug, Default)]
pub(crate) struct Wheel {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// One for each instance: the earliest.
    deadlines: HashMap<InstanceId, Duration>,
    by_deadline: BTreeMap<(Duration, InstanceId), Wake>,
}

/// An instance to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wake {
    pub(crate) item: WorkItem,
    /// A burst of it may have been cut short: its hint was lost.
    pub(crate) suspect: bool,
}

impl Wheel {
    /// Wakes the instance at `deadline`, or earlier when that was asked before.
    pub(crate) fn insert(&self, item: WorkItem, deadline: Duration) {
        self.insert_wake(Wake { item, suspect: false }, deadline);
    }

    /// As [`insert`](Self::insert), for an instance whose last burst may have been cut short.
    pub(crate) fn insert_suspect(&self, item: WorkItem, deadline: Duration) {
        self.insert_wake(Wake { item, suspect: true }, deadline);
    }

    fn insert_wake(&self, wake: Wake, deadline: Duration) {
        let Wake { item, .. } = &wake;
        let mut state = self.state();
        if let Some(known) = state.deadlines.get(&item.instance).copied() {
            if known <= deadline {
                return;
            }
            state.by_deadline.remove(&(known, item.instance.clone()));
        }
        let is_first = state.by_deadline.first_key_value().is_none_or(|((first, _), _)| deadline < *first);
        state.deadlines.insert(item.instance.clone(), deadline);
        state.by_deadline.insert((deadline, item.instance.clone()), wake);
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// What has come due, or the deadline to wait for.
    pub(crate) fn pop(&self, now: Duration) -> Result<Wake, Option<Duration>> {
        let mut state = self.state();
        match state.by_deadline.first_key_value() {
            Some(((deadline, _), _)) if *deadline > now => Err(Some(*deadline)),
            None => Err(None),
            Some(_) => match state.by_deadline.pop_first() {
                Some((_, wake)) => {
                    state.deadlines.remove(&wake.item.instance);
                    Ok(wake)
                }
                None => Err(None),
            },
        }
    }

    /// Resolves when an earlier deadline was inserted since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item() -> WorkItem {
        WorkItem::new(InstanceId::new(), "w", 1)
    }

    #[test]
    fn the_earliest_deadline_of_an_instance_counts() {
        let (wheel, a, b) = (Wheel::default(), item(), item());
        let at = Duration::from_secs;
        wheel.insert(a.clone(), at(5));
        wheel.insert(a.clone(), at(3));
        wheel.insert(a.clone(), at(9));
        wheel.insert(b.clone(), at(4));
        assert_eq!(wheel.pop(at(2)), Err(Some(at(3))));
        assert_eq!(wheel.pop(at(5)).map(|wake| wake.item), Ok(a));
        assert_eq!(wheel.pop(at(5)).map(|wake| wake.item), Ok(b));
        assert_eq!(wheel.pop(at(9)), Err(None));
    }
}
