use latchwork_core::store::InstanceId;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// More are not kept: those that others have taken over are never forgotten otherwise.
const MOST: usize = 10_000;
/// The longest pause, unless the first is longer.
const LONGEST: Duration = Duration::from_secs(60);

/// Instances whose bursts failed in a row on this node, for reasons that may pass. Forgotten when a burst comes to its end.
#[derive(Debug, Default)]
pub(crate) struct Troubled {
    failures: Mutex<HashMap<InstanceId, u32>>,
}

impl Troubled {
    fn failures(&self) -> MutexGuard<'_, HashMap<InstanceId, u32>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure; how long to wait before the next try.
    pub(super) fn pause(&self, instance: &InstanceId, first: Duration) -> Duration {
        let mut failures = self.failures();
        if failures.len() >= MOST {
            failures.clear();
        }
        let count = failures.entry(instance.clone()).or_default();
        let doublings = (*count).min(16);
        *count = count.saturating_add(1);
        first.saturating_mul(1 << doublings).min(LONGEST.max(first))
    }

    pub(super) fn forget(&self, instance: &InstanceId) {
        let mut failures = self.failures();
        if !failures.is_empty() {
            failures.remove(instance);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_begin_anew_after_a_success() {
        let (troubled, instance) = (Troubled::default(), InstanceId::new());
        let pauses =
            |count: usize| (0..count).map(|_| troubled.pause(&instance, Duration::from_secs(1)).as_secs()).collect::<Vec<_>>();
        assert_eq!(pauses(8), [1, 2, 4, 8, 16, 32, 60, 60]);
        troubled.forget(&instance);
        assert_eq!(pauses(1), [1]);
        assert_eq!(troubled.pause(&InstanceId::new(), Duration::from_secs(90)), Duration::from_secs(90));
    }
}
