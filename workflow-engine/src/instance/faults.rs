//! Bursts that were cut short: a body that kills its process, again and again, is not to take the nodes with it.

use super::Instance;
use latchwork_core::{
    clock::{self, Timestamp},
    store::WorkflowStatus,
};
use std::time::Duration;

/// Bursts in a row that may be cut short at once.
const FREE: u32 = 2;
/// Bursts in a row that may be cut short at all.
const MOST: u32 = 10;
const LONGEST: Duration = Duration::from_secs(60);

/// How long bodies wait after so many bursts in a row were cut short; `None`: until somebody resumes the instance.
fn pause(faults: u32) -> Option<Duration> {
    match faults {
        0..=FREE => Some(Duration::ZERO),
        _ if faults < MOST => Some(Duration::from_secs(1 << (faults - FREE - 1)).min(LONGEST)),
        _ => None,
    }
}

/// Until when bodies have to wait, as it is stored: in the due time, which may be that of a later timer.
pub(super) fn held_until(faults: u32, due: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let latest = clock::add(now, LONGEST);
    due.filter(|due| faults > FREE && *due > now).map(|due| due.min(latest))
}

impl Instance {
    /// The burst before may have been cut short: its hint came again, or was lost. Counted before any body starts, because one of them may
    /// be the cause; whatever body comes to its end sets the count back.
    pub(crate) fn count_fault(&mut self, now: Timestamp) {
        if self.status != WorkflowStatus::Runnable || self.ready.is_empty() || self.is_held(now) {
            return;
        }
        self.fault_count = self.fault_count.saturating_add(1);
        self.changes.header = true;
        self.changes.durable = true;
        match pause(self.fault_count) {
            Some(pause) => {
                self.held_for = self.next_number;
                self.held_until = (!pause.is_zero()).then(|| clock::add(now, pause));
                if !pause.is_zero() {
                    tracing::warn!(
                        instance = %self.id, faults = self.fault_count, ?pause,
                        "bursts of this instance were cut short in a row; its steps wait before they are tried again"
                    );
                }
            }
            None => {
                let mut steps: Vec<_> = self
                    .ready
                    .iter()
                    .filter_map(|id| self.pointers.get(id))
                    .map(|pointer| format!("`{}`", pointer.record.step))
                    .collect();
                steps.sort();
                steps.truncate(3);
                let reason = format!(
                    "{} bursts in a row were cut short before any step came to its end, each while {} ran: the process died, or was killed; `resume` tries again",
                    self.fault_count,
                    steps.join(", ")
                );
                tracing::error!(instance = %self.id, reason, "an instance is stuck, and is suspended");
                metrics::counter!("latchwork.instances.stuck").increment(1);
                self.suspend(Some(reason));
            }
        }
    }

    /// Whether bodies have to wait.
    pub(super) fn is_held(&self, now: Timestamp) -> bool {
        self.held_for > self.committed_number || self.is_finding_out() || self.held_until.is_some_and(|until| now < until)
    }

    /// There was progress, or somebody wants another try.
    pub(super) fn forget_faults(&mut self) {
        self.fault_count = 0;
        self.held_until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_begin_after_the_free_tries_double_and_end() {
        let pauses: Vec<_> = (1..=10).map(|faults| pause(faults).map(|pause| pause.as_secs())).collect();
        assert_eq!(pauses, [Some(0), Some(0), Some(1), Some(2), Some(4), Some(8), Some(16), Some(32), Some(60), None]);
    }
}
