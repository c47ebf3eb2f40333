//! The loops that take hints and start bursts.

use super::{BackOff, Node, overflow::Drops};
use latchwork_core::{
    clock::ClockExt,
    queue::{Delivery, QueueKind, WorkItem},
};
use std::{sync::Arc, time::Duration};

/// Hints taken from the queue at once.
const BATCH: usize = 64;
/// One wait for a queue that pushes.
const PUSH_WAIT: Duration = Duration::from_secs(1);
/// How long a body runs before its instance's inbox is looked at by the batched query.
const LOOK_AFTER: Duration = Duration::from_secs(1);

impl Node {
    /// Takes hints from the queue, as many as there is room for.
    pub(super) async fn consume_queue(self: Arc<Self>) {
        let wait = if self.queue.capabilities().push { PUSH_WAIT } else { self.settings.idle_time };
        let mut drops = Drops::None;
        let mut back_off = BackOff::new(Duration::from_millis(50), self.settings.error_retry_interval);
        while let Some(room) = self.room().await {
            if drops != Drops::Never {
                drops = self.look_for_drops().await;
            }
            // What is in hand takes up room, too, and nothing tells when it is settled.
            let wait = if drops == Drops::Waiting { wait.min(self.settings.idle_time) } else { wait };
            let dequeue = self.queue.dequeue(QueueKind::Workflow, room.min(BATCH), wait);
            let Some(taken) = self.stopping.run_until_cancelled(dequeue).await else { return };
            match taken {
                Ok(deliveries) => {
                    self.health.queue.works();
                    back_off.reset();
                    for delivery in deliveries {
                        self.take(delivery).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "no hints could be taken from the queue");
                    metrics::counter!("latchwork.queue.failures").increment(1);
                    self.health.queue.fails(&error);
                    if !self.pause(back_off.next()).await {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until a burst can be started; how many can. `None` when the node stops.
    async fn room(&self) -> Option<usize> {
        let permit = self.stopping.run_until_cancelled(self.permits.acquire()).await?;
        drop(permit);
        Some(self.permits.available_permits().max(1))
    }

    async fn take(self: &Arc<Self>, delivery: Delivery) {
        let item = delivery.item();
        if self.registry.get(&item.definition, item.version).is_none() {
            return self.leave_unknown(delivery).await;
        }
        let suspect = delivery.attempt() > 1;
        self.dispatch(item.clone(), Some(delivery), suspect).await;
    }

    /// A hint for a definition that this node does not know: offered to others for a while, then looked at for calls that need no
    /// definition. The row stays due.
    async fn leave_unknown(self: &Arc<Self>, delivery: Delivery) {
        let item = delivery.item().clone();
        if self.registry.report_once(&item.definition, item.version, "unknown") {
            tracing::warn!(
                definition = %item.definition, version = item.version, instance = %item.instance,
                "instances of this definition are waiting, and it is not registered here; they are left for a node that has it"
            );
        }
        metrics::counter!("latchwork.hints.unknown").increment(1);
        if self.unknown_offers(&item) < 3 {
            delivery.nack_later(Duration::from_secs(1));
        } else {
            self.dispatch(item, Some(delivery), false).await;
        }
    }

    /// How often this hint was offered to others before. Counted per instance, forgotten when it reaches the limit.
    fn unknown_offers(&self, item: &WorkItem) -> u32 {
        let mut offers = self.registry.offers();
        let count = offers.entry(item.instance.clone()).or_default();
        *count += 1;
        let before = *count - 1;
        if before >= 3 {
            offers.remove(&item.instance);
        }
        before
    }

    /// Starts a burst for the hint, when there is room; or marks the one that runs. `suspect`: the burst before may have been cut short.
    async fn dispatch(self: &Arc<Self>, item: WorkItem, delivery: Option<Delivery>, suspect: bool) {
        let Some(active) = self.active.begin(&item.instance) else {
            // The burst that runs holds a hint of its own until it has seen what this one is about.
            if let Some(delivery) = delivery {
                delivery.ack_later();
            }
            return;
        };
        let Some(Ok(permit)) = self.stopping.run_until_cancelled(self.permits.clone().acquire_owned()).await else {
            self.active.remove(&item.instance, &active);
            if let Some(delivery) = delivery {
                delivery.nack_later(Duration::ZERO);
            }
            return;
        };
        self.tasks.spawn(self.clone().work(item, delivery, suspect, active, permit));
    }

    /// Starts bursts for timers that come due, and for instances that this node wants to look at again.
    pub(super) async fn consume_wheel(self: Arc<Self>) {
        while self.room().await.is_some() {
            match self.wheel.pop(self.clock.monotonic()) {
                Ok(wake) => self.dispatch(wake.item, None, wake.suspect).await,
                Err(deadline) => {
                    let wait = async {
                        match deadline {
                            Some(deadline) => tokio::select! {
                                () = self.clock.sleep_until(deadline) => {}
                                () = self.wheel.changed() => {}
                            },
                            None => self.wheel.changed().await,
                        }
                    };
                    if self.stopping.run_until_cancelled(wait).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Brings the inboxes of instances whose bodies run long, in one query a second.
    pub(super) async fn watch_inboxes(self: Arc<Self>) {
        while self.stopping.run_until_cancelled(self.clock.sleep(LOOK_AFTER)).await.is_some() {
            let instances = self.active.long_running(self.clock.monotonic(), LOOK_AFTER);
            if instances.is_empty() {
                continue;
            }
            match self.store.read_inbox(&instances).await {
                Ok(inboxes) => {
                    for (instance, rows) in inboxes {
                        self.active.deliver(&instance, rows);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the inboxes of running instances could not be read");
                    self.health.store.fails(&error);
                }
            }
        }
    }
}
