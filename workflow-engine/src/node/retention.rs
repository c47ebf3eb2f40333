//! Deletes what is over, in batches, on one node of a cluster at a time.

use super::{BackOff, Node};
use latchwork_core::{
    BoxError,
    lock::LockKey,
    store::{PurgeReport, PurgeRequest},
};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// How long ends of instances are gathered before they are deleted together.
const GATHER: Duration = Duration::from_secs(1);
/// The pause before another try while another node sweeps: it may have missed what ended last here.
const CONTENDED: Duration = Duration::from_secs(1);
/// The shortest and the longest pause between two batches.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// Tells the metrics what was deleted.
pub(crate) fn count_purged(report: &PurgeReport) {
    metrics::counter!("latchwork.retention.instances").increment(report.instances);
    metrics::counter!("latchwork.retention.events").increment(report.events);
    metrics::counter!("latchwork.retention.tombstones").increment(report.tombstones);
}

impl Node {
    /// Sweeps every so often, and soon after an instance ended that is to be deleted at its end. What a node leaves that dies in between
    /// is found by the next sweep of any node, its own first one included.
    pub(super) async fn sweep(self: Arc<Self>) {
        let retention = &self.settings.retention;
        let (Some(interval), Ok(key)) = (
            retention.interval,
            LockKey::internal(&self.namespace, &format!("retention:{}", self.cluster))
                .inspect_err(|error| tracing::error!(%error, "this node cannot delete what is over")),
        ) else {
            return;
        };
        let (requests, requests_at_end) = (retention.requests(), retention.requests_at_end());
        let now = || self.clock.monotonic();
        // Nothing that a node keeps for long is worth a call at each start.
        let mut next = if retention.deletes_instances() { now() } else { now().saturating_add(interval) };
        let mut next_at_end: Option<Duration> = None;
        let mut back_off = BackOff::new(self.settings.error_retry_interval.min(interval), interval);
        loop {
            let at = next_at_end.map_or(next, |at_end| at_end.min(next));
            let waits_for_ends = retention.deletes_at_end() && next_at_end.is_none();
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = self.clock.sleep_until(at) => {}
                () = self.completions.any_ended(), if waits_for_ends => {
                    next_at_end = Some(now().saturating_add(GATHER));
                    continue;
                }
            }
            let is_full = now() >= next;
            match self.sweep_once(&key, if is_full { &requests } else { &requests_at_end }).await {
                Ok(Some(report)) => {
                    self.health.retention.swept(now(), report);
                    back_off.reset();
                    next_at_end = None;
                }
                Ok(None) => next_at_end = next_at_end.map(|_| now().saturating_add(CONTENDED)),
                Err(error) => {
                    tracing::warn!(%error, "what is over could not be deleted; it is tried again");
                    metrics::counter!("latchwork.retention.failures").increment(1);
                    self.health.retention.fails(&*error);
                    let again = now().saturating_add(back_off.next());
                    if is_full {
                        next = again;
                        // What ended meanwhile waits for the same try.
                        next_at_end = None;
                    } else {
                        next_at_end = Some(again);
                    }
                    continue;
                }
            }
            if is_full {
                next = now().saturating_add(interval);
            }
        }
    }

    /// What was deleted; `None` when another node is at it.
    async fn sweep_once(&self, key: &LockKey, requests: &[PurgeRequest]) -> Result<Option<PurgeReport>, BoxError> {
        let Some(guard) = self.turn(key).await? else { return Ok(None) };
        let swept = self.purge_all(requests, &guard.lost_token()).await;
        let released = guard.release().await;
        let report = swept?;
        released?;
        Ok(Some(report))
    }

    async fn purge_all(&self, requests: &[PurgeRequest], lost: &CancellationToken) -> Result<PurgeReport, BoxError> {
        let mut total = PurgeReport::default();
        for request in requests {
            loop {
                let began = self.clock.monotonic();
                let report = self.store.purge(request).await.inspect_err(|error| self.health.store.fails(error))?;
                self.health.store.works();
                count_purged(&report);
                total.instances += report.instances;
                total.events += report.events;
                total.tombstones += report.tombstones;
                let any = report.instances + report.events + report.tombstones > 0;
                if !(report.more && any) {
                    break;
                }
                // A long sweep leaves the store to others half of the time.
                let took = self.clock.monotonic().saturating_sub(began);
                if lost.is_cancelled() || !self.pause(took.clamp(PAUSES.0, PAUSES.1)).await {
                    return Ok(total);
                }
            }
        }
        if total != PurgeReport::default() {
            tracing::debug!(
                instances = total.instances,
                events = total.events,
                tombstones = total.tombstones,
                "what is over was deleted"
            );
        }
        Ok(total)
    }
}
