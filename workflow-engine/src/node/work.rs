//! From a hint to the end of a burst: lock, load, run, release, acknowledge.

use super::{
    Active, BackOff, KEPT_HINTS, Node,
    burst::{Burst, BurstEnd},
    time::StoreTime,
};
use crate::{
    definition::Definition,
    instance::{Instance, panicked},
};
use futures_util::FutureExt;
use latchwork_core::{
    clock::ClockExt,
    lock::{LockGuard, LockKey, LockRequest},
    queue::{Delivery, WorkItem},
    store::{InboxMessage, InstanceHeader, LoadedInstance},
};
use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

/// The first and the longest pause between tries for a lock that another node holds.
const CONTENDED_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// What becomes of a hint.
pub(super) enum Hint {
    /// The store needs it no more.
    Done,
    /// It is to come again.
    Again(Duration),
}

impl Node {
    /// Works on one instance, until it rests and no news is left.
    pub(crate) async fn work(
        self: Arc<Self>,
        item: WorkItem,
        delivery: Option<Delivery>,
        suspect: bool,
        active: Arc<Active>,
        permit: OwnedSemaphorePermit,
    ) {
        let mut has_panicked = false;
        let hint = {
            // Also when the burst panics: an instance must not be barred from this node by a fault of the engine.
            let _over = Over { node: &self, item: &item, active: &active };
            let worked = AssertUnwindSafe(self.work_on(&item, suspect, &active, permit)).catch_unwind().await;
            worked.unwrap_or_else(|panic| {
                has_panicked = true;
                tracing::error!(instance = %item.instance, panic = panicked(&*panic).to_string(), "a burst panicked; it is tried again");
                metrics::counter!("latchwork.burst.panics").increment(1);
                Hint::Again(self.settings.error_retry_interval)
            })
        };
        let Some(delivery) = delivery else {
            if let Hint::Again(delay) = hint {
                let deadline = self.clock.monotonic().saturating_add(delay);
                if has_panicked { self.wheel.insert_suspect(item, deadline) } else { self.wheel.insert(item, deadline) }
            }
            return;
        };
        match hint {
            Hint::Done => delivery.ack_later(),
            Hint::Again(delay) => delivery.nack_later(delay),
        }
    }

    /// One burst of an instance that nobody else has.
    pub(crate) async fn burst_alone(self: &Arc<Self>, item: &WorkItem, active: &Active) {
        let key = match LockKey::new(&self.namespace, item.instance.as_str()) {
            Ok(key) => key,
            Err(error) => return tracing::error!(%error, "an instance cannot be locked"),
        };
        if let Ok(Some(guard)) = self.lock.acquire(LockRequest::new(key)).await
            && let Hint::Again(delay) = self.hold(item, false, active, guard).await
        {
            self.clock.sleep(delay).await;
        }
    }

    async fn work_on(self: &Arc<Self>, item: &WorkItem, suspect: bool, active: &Active, permit: OwnedSemaphorePermit) -> Hint {
        let (mut permit, mut suspect) = (Some(permit), suspect);
        loop {
            let guard = match self.lock_instance(item, &mut permit).await {
                Ok(guard) => guard,
                Err(hint) => return hint,
            };
            // What is to be seen is seen by the load that follows.
            active.take_woken();
            let hint = self.hold(item, std::mem::take(&mut suspect), active, guard).await;
            match hint {
                Hint::Done if !self.active.end(&item.instance, active) => {}
                hint => return hint,
            }
        }
    }

    /// The instance's lock. While another node holds it the hint is kept, and tried again; the permit goes to others meanwhile.
    async fn lock_instance(&self, item: &WorkItem, permit: &mut Option<OwnedSemaphorePermit>) -> Result<LockGuard, Hint> {
        let key = LockKey::new(&self.namespace, item.instance.as_str()).map_err(|error| {
            tracing::error!(instance = %item.instance, %error, "this instance cannot be locked");
            Hint::Done
        })?;
        let mut back_off = BackOff::new(CONTENDED_PAUSES.0, CONTENDED_PAUSES.1);
        let mut kept = None;
        loop {
            if permit.is_none() {
                *permit = match self.stopping.run_until_cancelled(self.permits.clone().acquire_owned()).await {
                    Some(Ok(granted)) => Some(granted),
                    _ => return Err(Hint::Again(Duration::ZERO)),
                };
            }
            match self.lock.acquire(LockRequest::new(key.clone())).await {
                Ok(Some(guard)) => {
                    self.health.lock.works();
                    return Ok(guard);
                }
                Ok(None) => {
                    self.health.lock.works();
                    metrics::counter!("latchwork.lock.contended").increment(1);
                }
                // Nothing runs unlocked (I6).
                Err(error) => {
                    if self.health.lock.report().is_healthy() {
                        tracing::error!(%error, "the lock service fails: nothing is started on this node until it is back");
                    }
                    metrics::counter!("latchwork.lock.failures").increment(1);
                    self.health.lock.fails(&error);
                    if !error.is_retryable() {
                        return Err(Hint::Again(self.settings.poll_interval));
                    }
                }
            }
            *permit = None;
            if kept.is_none() {
                kept = Some(Kept::one_more(self));
                if self.kept.load(Ordering::Relaxed) > KEPT_HINTS {
                    return Err(Hint::Again(self.settings.poll_interval));
                }
            }
            if !self.pause(back_off.next()).await {
                return Err(Hint::Again(Duration::ZERO));
            }
        }
    }

    /// Loads the instance and runs it, under its lock.
    async fn hold(self: &Arc<Self>, item: &WorkItem, suspect: bool, active: &Active, guard: LockGuard) -> Hint {
        let loaded = match self.store.load(&item.instance).await {
            Ok(loaded) => loaded,
            Err(error) => {
                tracing::warn!(instance = %item.instance, %error, "an instance could not be loaded");
                metrics::counter!("latchwork.load.failures").increment(1);
                self.health.store.fails(&error);
                self.release(guard).await;
                return Hint::Again(if error.is_retryable() { self.later(item) } else { self.settings.poll_interval });
            }
        };
        self.health.store.works();
        let Some(loaded) = loaded.filter(|loaded| !loaded.header.status.is_terminal()) else {
            self.release(guard).await;
            return Hint::Done;
        };
        let Some(definition) = self.definition_of(&loaded.header) else {
            let hint = self.control_only(loaded, &guard).await;
            self.release(guard).await;
            return hint;
        };
        let span = tracing::info_span!(
            "burst", node = %self.name, instance = %item.instance, definition = %item.definition, version = item.version
        );
        self.burst(definition, loaded, item, suspect, active, guard).instrument(span).await
    }

    /// The definition with the instance's own shape. An instance of another shape is left, and reported once.
    fn definition_of(&self, header: &InstanceHeader) -> Option<Arc<Definition>> {
        let registered = self.registry.get(&header.definition, header.version)?;
        if registered.definition.fingerprint == header.fingerprint {
            return Some(registered.definition.clone());
        }
        if self.registry.report_once(&header.definition, header.version, "shape") {
            tracing::warn!(
                definition = %header.definition, version = header.version, instance = %header.id,
                "instances of this version began with another shape than the one registered here; they are left for a node that has it"
            );
        }
        metrics::counter!("latchwork.hints.unknown").increment(1);
        None
    }

    async fn burst(
        self: &Arc<Self>,
        definition: Arc<Definition>,
        loaded: LoadedInstance,
        item: &WorkItem,
        suspect: bool,
        active: &Active,
        guard: LockGuard,
    ) -> Hint {
        metrics::counter!("latchwork.bursts").increment(1);
        let (time, inbox) = (StoreTime::new(self.clock.clone(), loaded.now), loaded.inbox.clone());
        let number = uuid::Uuid::now_v7().as_u128();
        let instance = match Instance::load(definition, loaded, number, self.rules.clone()) {
            Ok(instance) => instance,
            Err(error) => {
                if self.registry.report_once(&item.definition, item.version, "unreadable") {
                    tracing::error!(%error, "an instance cannot be read here, and is left for a node that can");
                }
                metrics::counter!("latchwork.instances.unreadable").increment(1);
                // Suspend, resume and terminate need neither the definition nor the data.
                let hint = match inbox.iter().any(|row| matches!(row.message, InboxMessage::Control(_))) {
                    true => self.control_unreadable(item, &guard).await,
                    false => Hint::Done,
                };
                self.release(guard).await;
                return hint;
            }
        };
        let mut burst = Burst::new(self.clone(), instance, active, &guard, time);
        let begun = self.call_before_burst(&burst.workflow_context()).await;
        if let Err(error) = begun {
            tracing::warn!(error, "a middleware refused a burst; it is tried again");
            drop(burst);
            self.release(guard).await;
            return Hint::Again(self.later(item));
        }
        let end = burst.run(inbox, suspect).await;
        burst.stop_bodies().await;
        let follow_ups = burst.take_follow_ups();
        let due = burst.next_due();
        drop(burst);
        self.release(guard).await;
        self.enqueue(&follow_ups).await;
        if !matches!(end, BurstEnd::Failed) {
            self.troubled.forget(&item.instance);
        }
        match end {
            BurstEnd::Rests => {
                if let Some(deadline) = due {
                    self.wheel.insert(item.clone(), deadline);
                }
                Hint::Done
            }
            BurstEnd::Ended => {
                self.completions.ended(&item.instance);
                Hint::Done
            }
            BurstEnd::Yields | BurstEnd::Stopped => Hint::Again(Duration::ZERO),
            BurstEnd::Lost => {
                tracing::warn!("the instance's lock was lost; its burst was stopped, and nothing more was written");
                metrics::counter!("latchwork.lock.lost").increment(1);
                Hint::Again(Duration::ZERO)
            }
            BurstEnd::Refused => {
                tracing::warn!("a checkpoint was refused: another node has advanced the instance, so it was dropped here");
                metrics::counter!("latchwork.checkpoints.refused").increment(1);
                Hint::Again(Duration::ZERO)
            }
            BurstEnd::Failed => Hint::Again(self.later(item)),
        }
    }

    async fn control_unreadable(&self, item: &WorkItem, guard: &LockGuard) -> Hint {
        match self.store.load(&item.instance).await {
            Ok(Some(loaded)) => self.control_only(loaded, guard).await,
            Ok(None) => Hint::Done,
            Err(error) => {
                self.health.store.fails(&error);
                Hint::Again(self.settings.error_retry_interval)
            }
        }
    }

    /// When an instance is tried again whose burst failed for a reason that may pass: later after each failure in a row.
    fn later(&self, item: &WorkItem) -> Duration {
        self.troubled.pause(&item.instance, self.settings.error_retry_interval)
    }

    /// Gives a lock back. What cannot be confirmed ends with its session or lease.
    async fn release(&self, guard: LockGuard) {
        if let Err(error) = guard.release().await {
            tracing::warn!(%error, "a lock's release was not confirmed");
            self.health.lock.fails(&error);
        }
    }
}

/// Takes a burst out of the map of active ones.
struct Over<'a> {
    node: &'a Node,
    item: &'a WorkItem,
    active: &'a Arc<Active>,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.node.active.remove(&self.item.instance, self.active);
    }
}

/// A hint kept because its instance is held elsewhere.
struct Kept<'a>(&'a Node);

impl<'a> Kept<'a> {
    fn one_more(node: &'a Node) -> Self {
        node.kept.fetch_add(1, Ordering::Relaxed);
        Self(node)
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.kept.fetch_sub(1, Ordering::Relaxed);
    }
}
