//! What a burst stores, and whom it tells.

use super::{Burst, BurstEnd};
use crate::node::{BackOff, Node, around::Told};
use crate::{
    definition::BoxFuture,
    instance::{Instance, StepOfCheckpoint, Unwritable},
    middleware::WorkflowContext,
};
use futures_util::FutureExt;
use latchwork_core::{
    clock::{ClockExt, Timestamp},
    hub::{LifeCycleEvent, LifeCycleKind},
    store::{Checkpoint, CheckpointOutcome, Committed, PointerId, StoreError, WorkflowStatus},
};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// The one checkpoint that may be in flight.
pub(super) struct InFlight {
    pub(super) outcome: BoxFuture<'static, Option<CheckpointOutcome>>,
    pub(super) steps: Vec<StepOfCheckpoint>,
    pub(super) events: Vec<LifeCycleEvent>,
}

impl Burst<'_> {
    /// What a saga that has failed has to undo.
    pub(super) async fn find_out(&mut self, saga: PointerId, scope: PointerId) -> Option<BurstEnd> {
        match self.node.store.load_scope(&self.instance.id, scope).await {
            Ok(finished) => {
                let now = self.time.now();
                self.instance.scope_loaded(saga, finished, now);
                None
            }
            Err(error) => {
                tracing::warn!(instance = %self.instance.id, error = %causes(&error), "what a saga has to undo could not be read");
                self.node.health.store.fails(&error);
                Some(BurstEnd::Failed)
            }
        }
    }

    /// Tells whoever listens which steps were started. That the instance was started is told before, when it was not yet.
    pub(super) async fn tell_started(&mut self, now: Timestamp) {
        let started = std::mem::take(&mut self.started);
        let kinds: Vec<_> = self.instance.take_started().into_iter().chain(started).collect();
        let events = self.events(kinds, now);
        self.node.tell(events).await;
    }

    pub(super) fn events(&self, kinds: Vec<LifeCycleKind>, now: Timestamp) -> Vec<LifeCycleEvent> {
        let (instance, definition) = (&self.instance, &self.instance.definition);
        let event = |kind| {
            let event = LifeCycleEvent::new(instance.id.clone(), definition.id.clone(), definition.version, now, kind);
            event.with_reference(instance.reference.clone())
        };
        kinds.into_iter().map(event).collect()
    }

    /// What the instance looks like to what stands around workflows.
    pub(in crate::node) fn workflow_context(&self) -> WorkflowContext<'_> {
        let (instance, definition) = (&self.instance, &self.instance.definition);
        WorkflowContext {
            instance: &instance.id,
            definition: &definition.id,
            version: definition.version,
            business_key: instance.business_key.as_deref(),
            reference: instance.reference.as_deref(),
            created: Some(instance.created),
            status: instance.status,
            reason: instance.reason.as_deref(),
            data: Some(&**instance.data()),
            services: &self.node.services,
        }
    }

    /// Calls what stands around workflows for the end, under the lock and before the end is stored.
    pub(super) async fn tell_end(&mut self) -> Option<BurstEnd> {
        for middleware in self.node.middleware.workflows.clone().iter() {
            let context = self.workflow_context();
            let told = self.node.call_at_end(&**middleware, &context, &self.lost).await;
            match told {
                Told::Done => {}
                Told::GaveUp { error, attempts } => {
                    let now = self.time.now();
                    self.instance.keep_error("at_end", &error, attempts, now);
                }
                Told::Lost => return Some(BurstEnd::Lost),
                Told::Stopped => return Some(BurstEnd::Stopped),
            }
        }
        None
    }

    /// Hands over a checkpoint of all that changed.
    pub(super) fn write(&mut self, now: Timestamp) -> Result<(), Unwritable> {
        let (checkpoint, steps) = self.instance.take_checkpoint(now)?;
        let happened = self.instance.take_happened();
        let events = if self.node.hub.has_subscribers() { self.events(happened, now) } else { Vec::new() };
        let outcome = match self.transaction.take() {
            None => commit(self.node.clone(), checkpoint, self.lost.clone()).boxed(),
            Some(transaction) => async move { Some(transaction.0.commit(checkpoint).await) }.boxed(),
        };
        self.in_flight = Some(InFlight { outcome, steps, events });
        Ok(())
    }

    /// The answer to the checkpoint in flight.
    pub(super) async fn written(&mut self, outcome: Option<CheckpointOutcome>) -> Option<BurstEnd> {
        let flight = self.in_flight.take()?;
        match outcome {
            None => Some(BurstEnd::Lost),
            Some(CheckpointOutcome::Committed(committed)) => {
                self.committed(committed, flight.events).await;
                None
            }
            Some(CheckpointOutcome::Refused { .. }) => Some(BurstEnd::Refused),
            Some(CheckpointOutcome::Failed(error)) if error.is_retryable() => Some(BurstEnd::Failed),
            Some(CheckpointOutcome::Failed(error)) => {
                let unwritable = Unwritable { reason: causes(&error), steps: flight.steps };
                Some(self.suspend_unwritable(&unwritable).await)
            }
        }
    }

    pub(super) async fn committed(&mut self, committed: Committed, events: Vec<LifeCycleEvent>) {
        self.time.update(committed.now);
        self.instance.committed(&committed);
        metrics::counter!("latchwork.checkpoints").increment(1);
        if !committed.wake.is_empty() {
            self.follow_ups.extend(committed.wake);
            // With bodies still running the end may be far; others need not wait for it.
            if self.has_bodies() {
                let follow_ups = std::mem::take(&mut self.follow_ups);
                self.node.enqueue(&follow_ups).await;
            }
        }
        self.node.tell(events).await;
        if !committed.inbox.is_empty() {
            let now = self.time.now();
            self.instance.apply_inbox(committed.inbox, now);
        }
    }

    /// Looks at the inbox; whether there was something new.
    pub(super) async fn read_inbox(&mut self) -> bool {
        match self.node.store.read_inbox(std::slice::from_ref(&self.instance.id)).await {
            Ok(inboxes) => {
                let now = self.time.now();
                let rows = inboxes.into_iter().flat_map(|(_, rows)| rows).collect();
                self.instance.apply_inbox(rows, now)
            }
            Err(error) => {
                tracing::warn!(%error, "the instance's inbox could not be read; the next checkpoint's answer brings it");
                self.node.health.store.fails(&error);
                // The mark is kept for the look that follows.
                self.active.wake();
                self.node.clock.sleep(self.node.settings.idle_time).await;
                false
            }
        }
    }

    /// What was to be stored can never be: the instance is suspended as it was stored, and the steps that led there are blamed.
    /// Their bodies are not run again to try.
    pub(super) async fn suspend_unwritable(&mut self, unwritable: &Unwritable) -> BurstEnd {
        // Dropped, it is rolled back.
        self.transaction = None;
        self.stop_bodies().await;
        let loaded = match self.node.store.load(&self.instance.id).await {
            Ok(Some(loaded)) => loaded,
            Ok(None) => return BurstEnd::Refused,
            Err(_) => return BurstEnd::Failed,
        };
        self.time.update(loaded.now);
        let burst = uuid::Uuid::now_v7().as_u128();
        let Ok(instance) = Instance::load(self.instance.definition.clone(), loaded, burst, self.node.rules.clone()) else {
            return BurstEnd::Failed;
        };
        self.instance = instance;
        let now = self.time.now();
        self.instance.suspend_unwritable(&unwritable.steps, &unwritable.reason, now);
        if self.write(now).is_err() {
            return BurstEnd::Failed;
        }
        let Some(flight) = self.in_flight.take() else { return BurstEnd::Failed };
        match flight.outcome.await {
            None => BurstEnd::Lost,
            Some(CheckpointOutcome::Committed(committed)) => {
                self.committed(committed, flight.events).await;
                if self.instance.status == WorkflowStatus::Suspended { BurstEnd::Rests } else { BurstEnd::Yields }
            }
            Some(CheckpointOutcome::Refused { .. }) => BurstEnd::Refused,
            Some(CheckpointOutcome::Failed(_)) => BurstEnd::Failed,
        }
    }
}

/// Writes a checkpoint, again and again with the same id while the store stays away. The lock is kept until the answer is there.
async fn commit(node: Arc<Node>, checkpoint: Arc<Checkpoint>, lost: CancellationToken) -> Option<CheckpointOutcome> {
    let mut back_off = BackOff::new(Duration::from_millis(50), Duration::from_secs(5));
    loop {
        let outcome = node.committer.commit(checkpoint.clone(), &lost).await;
        let Some(CheckpointOutcome::Failed(error)) = &outcome else {
            node.health.store.works();
            return outcome;
        };
        node.health.store.fails(error);
        metrics::counter!("latchwork.checkpoints.failed").increment(1);
        if !error.is_retryable() || node.grace_is_over.is_cancelled() {
            tracing::error!(instance = %checkpoint.instance, error = %causes(error), "a checkpoint was not written");
            return outcome;
        }
        tracing::warn!(instance = %checkpoint.instance, error = %causes(error), "a checkpoint was not written; it is tried again");
        let pause = node.clock.sleep(back_off.next());
        tokio::select! {
            () = pause => {}
            () = node.grace_is_over.cancelled() => return outcome,
            () = lost.cancelled() => return None,
        }
    }
}

fn causes(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
