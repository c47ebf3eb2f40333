//! The safety net under the queue, and the clock of far timers. Writes nothing; gives hints only.

use super::{BackOff, KEPT_HINTS, Node, time::StoreTime};
use latchwork_core::{
    BoxError, Scope,
    clock::{self, ClockExt, Timestamp},
    lock::LockKey,
    queue::{Redelivery, WorkItem},
    store::{InstanceId, PointerId, RunnableQuery},
};
use std::{sync::Arc, time::Duration};

/// Rows of one page.
const PAGE: usize = 1_000;

/// The shortest time between two polls, however often the queue is full.
const SHORTEST: Duration = Duration::from_secs(1);

/// What a poll looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    /// What has been due for one poll interval.
    Overdue,
    /// All that is due: the hints were lost with the process before.
    AfterLoss,
    /// All that is due: hints were dropped by a full queue.
    AfterDrops,
}

impl Node {
    pub(super) async fn poll(self: Arc<Self>) {
        let key = match self.poll_key() {
            Ok(key) => key,
            Err(error) => {
                tracing::error!(%error, "this node cannot poll");
                return;
            }
        };
        let interval = self.settings.poll_interval;
        let mut back_off = BackOff::new(self.settings.error_retry_interval.min(interval), interval);
        // The hints of a queue that lives in this process were lost with the process before.
        let capabilities = self.queue.capabilities();
        let lost = capabilities.scope == Scope::Process || capabilities.redelivery == Redelivery::Never;
        self.health.poller.begins(self.clock.monotonic());
        let mut walk = if lost { Walk::AfterLoss } else { Walk::Overdue };
        loop {
            let pause = match self.poll_once(&key, walk).await {
                Ok(polled) => {
                    if polled {
                        self.health.poller.complete(self.clock.monotonic());
                        walk = Walk::Overdue;
                    } else {
                        self.health.poller.left_to_other(self.clock.monotonic());
                    }
                    back_off.reset();
                    interval
                }
                Err(error) => {
                    tracing::warn!(%error, "a poll failed");
                    metrics::counter!("latchwork.poll.failures").increment(1);
                    self.health.poller.fails(&*error);
                    back_off.next()
                }
            };
            let dropped = async {
                self.clock.sleep((interval / 10).min(SHORTEST)).await;
                self.room_for_dropped().await;
            };
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = self.clock.sleep(pause) => {}
                () = dropped => if walk == Walk::Overdue { walk = Walk::AfterDrops },
            }
        }
    }

    /// Nodes that know the same definitions take turns; those that know others poll for themselves.
    fn poll_key(&self) -> Result<LockKey, BoxError> {
        let known: Vec<String> = self.registry.known().iter().map(|(id, version)| format!("{id}\n{version}")).collect();
        let parts: Vec<&[u8]> = known.iter().map(String::as_bytes).collect();
        let set = PointerId::derive(&parts).to_string();
        Ok(LockKey::internal(&self.namespace, &format!("poll:{}:{}", self.cluster, latchwork_core::limits::cut(&set, 16)))?)
    }

    /// One walk over all pages. `false` when another node is at it.
    async fn poll_once(&self, key: &LockKey, walk: Walk) -> Result<bool, BoxError> {
        let Some(guard) = self.turn(key).await? else { return Ok(false) };
        let walked = self.walk(walk).await;
        let released = guard.release().await;
        walked?;
        released?;
        Ok(true)
    }

    async fn walk(&self, walk: Walk) -> Result<(), BoxError> {
        let interval = self.settings.poll_interval;
        // A walk takes its time, and so the next one begins later than an interval from now.
        let horizon = interval.saturating_mul(3) / 2;
        let dropped = if walk == Walk::Overdue { 0 } else { self.dropped().await };
        let mut after: Option<(Timestamp, InstanceId)> = None;
        let mut is_first = true;
        let mut room = self.permits.available_permits().min(KEPT_HINTS);
        loop {
            let mut query = RunnableQuery::new(self.registry.known(), PAGE).with_horizon(horizon);
            query.after = after.take();
            let page = match self.store.runnable(&query).await {
                Ok(page) => page,
                Err(error) => {
                    self.health.store.fails(&error);
                    return Err(error.into());
                }
            };
            self.health.store.works();
            let time = StoreTime::new(self.clock.clone(), page.now);
            let mut overdue: Vec<WorkItem> = Vec::new();
            for runnable in &page.items {
                if runnable.due > page.now {
                    self.wheel.insert(runnable.item.clone(), time.deadline(runnable.due));
                } else if walk != Walk::Overdue || clock::between(runnable.due, page.now) >= interval {
                    overdue.push(runnable.item.clone());
                }
            }
            if std::mem::take(&mut is_first) {
                // Oldest first. What runs here is stored as due as long as it runs.
                let oldest = page.items.iter().find(|runnable| !self.active.has(&runnable.item.instance));
                let oldest = oldest.map_or(Duration::ZERO, |first| clock::between(first.due, page.now));
                self.health.poller.overdue(oldest);
                metrics::gauge!("latchwork.poll.oldest_overdue_seconds").set(oldest.as_secs_f64());
            }
            metrics::counter!("latchwork.poll.overdue").increment(overdue.len() as u64);
            // The oldest are not trusted to the queue again, which may be down, or bring them to nodes that do not know them only.
            let own = overdue.len().min(room);
            room -= own;
            let now = self.clock.monotonic();
            for item in overdue.drain(..own) {
                match walk {
                    Walk::AfterDrops => self.wheel.insert(item, now),
                    // Its hint was lost, with its burst perhaps.
                    Walk::Overdue | Walk::AfterLoss => self.wheel.insert_suspect(item, now),
                }
            }
            self.enqueue(&overdue).await;
            match page.items.last() {
                Some(last) if page.items.len() >= PAGE => after = Some((last.due, last.item.instance.clone())),
                _ => break,
            }
            // What is left would be dropped again.
            if walk == Walk::AfterDrops && self.queue_is_full().await {
                self.overflow.made_up_for(dropped, false);
                return Ok(());
            }
            // Pages of a large backlog leave room for others.
            if !self.pause(Duration::ZERO).await {
                return Ok(());
            }
        }
        if walk != Walk::Overdue {
            self.overflow.made_up_for(dropped, true);
        }
        Ok(())
    }
}
