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
    by_deadline: BTreeMap<(Duration, InstanceId), WorkItem>,
}

impl Wheel {
    /// Wakes the instance at `deadline`, or earlier when that was asked before.
    pub(crate) fn insert(&self, item: WorkItem, deadline: Duration) {
        let mut state = self.state();
        if let Some(known) = state.deadlines.get(&item.instance).copied() {
            if known <= deadline {
                return;
            }
            state.by_deadline.remove(&(known, item.instance.clone()));
        }
        let is_first = state.by_deadline.first_key_value().is_none_or(|((first, _), _)| deadline < *first);
        state.deadlines.insert(item.instance.clone(), deadline);
        state.by_deadline.insert((deadline, item.instance.clone()), item);
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// What has come due, or the deadline to wait for.
    pub(crate) fn pop(&self, now: Duration) -> Result<WorkItem, Option<Duration>> {
        let mut state = self.state();
        match state.by_deadline.first_key_value() {
            Some(((deadline, _), _)) if *deadline > now => Err(Some(*deadline)),
            None => Err(None),
            Some(_) => match state.by_deadline.pop_first() {
                Some((_, item)) => {
                    state.deadlines.remove(&item.instance);
                    Ok(item)
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
        assert_eq!(wheel.pop(at(5)), Ok(a));
        assert_eq!(wheel.pop(at(5)), Ok(b));
        assert_eq!(wheel.pop(at(9)), Err(None));
    }
}
