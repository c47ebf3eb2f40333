//! A burst: an instance advances in memory, under its lock, until it rests.

use super::{Active, BackOff, CANCEL_GRACE, Node, around::Told, time::StoreTime};
use crate::{
    body::{BurstContext, OpenTransaction, Outbox, SharedTransaction, StepContext},
    definition::{BoxFuture, ErasedBody, NodeKind},
    error::{StepError, StepResult},
    instance::{Instance, StepOfCheckpoint, Unwritable, guarded, panicked},
    middleware::{self, WorkflowContext},
};
use futures_util::FutureExt;
use latchwork_core::{
    clock::{ClockExt, Timestamp},
    hub::{LifeCycleEvent, LifeCycleKind},
    lock::LockGuard,
    queue::WorkItem,
    store::{Checkpoint, CheckpointOutcome, Committed, InboxRow, PointerId, StoreError, WorkflowStatus},
};
use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// How a burst came to its end.
#[derive(Debug)]
pub(super) enum BurstEnd {
    /// Nothing can run now.
    Rests,
    /// The instance has ended.
    Ended,
    /// Others wait.
    Yields,
    /// The node stops.
    Stopped,
    /// The lock is lost.
    Lost,
    /// Another node has written the instance.
    Refused,
    /// The store fails.
    Failed,
}

/// What a body left.
struct BodyEnd {
    pointer: PointerId,
    /// Gone when it panicked.
    body: Option<Box<dyn ErasedBody>>,
    result: StepResult,
    outbox: Outbox,
    /// Of a transactional step.
    transaction: Option<SharedTransaction>,
}

/// A running body that can be told to end alone.
struct Cuttable {
    token: CancellationToken,
    /// `None`: it runs in the burst's own task.
    task: Option<AbortHandle>,
    /// When it is dropped, by the monotonic clock, if it was told to end.
    drop_at: Option<Duration>,
}

/// The one checkpoint that may be in flight.
struct InFlight {
    outcome: BoxFuture<'static, Option<CheckpointOutcome>>,
    steps: Vec<StepOfCheckpoint>,
    events: Vec<LifeCycleEvent>,
}

pub(super) struct Burst<'a> {
    node: Arc<Node>,
    /// Boxed: it is moved about, and large.
    instance: Box<Instance>,
    active: &'a Active,
    time: StoreTime,
    lost: CancellationToken,
    /// What all bodies of the burst are given.
    context: Arc<BurstContext>,
    /// A body that runs in the burst's own task, because it was the only one that could.
    inline: Option<BoxFuture<'static, BodyEnd>>,
    /// Bodies that run beside each other.
    beside: JoinSet<BodyEnd>,
    /// The running bodies that can be told to end one by one.
    cuttable: HashMap<PointerId, Cuttable>,
    in_flight: Option<InFlight>,
    /// A transactional body runs: no checkpoint is written until it ends, but its own.
    in_transaction: Option<PointerId>,
    /// The transaction with which the next checkpoint is written.
    transaction: Option<OpenTransaction>,
    /// Whether the end was told to what stands around workflows.
    end_told: bool,
    /// Steps that were started, to be told.
    started: Vec<LifeCycleKind>,
    /// When bodies that were cancelled are dropped, by the monotonic clock.
    drop_bodies_at: Option<Duration>,
    /// Whether the rest of the node was told which bodies run. Those that end at once are not worth it.
    shown: bool,
    /// Whether the node was seen to stop.
    stopping: bool,
    follow_ups: Vec<WorkItem>,
    began: Duration,
}

impl<'a> Burst<'a> {
    pub(super) fn new(node: Arc<Node>, instance: Box<Instance>, active: &'a Active, guard: &LockGuard, time: StoreTime) -> Self {
        let began = node.clock.monotonic();
        let context = Arc::new(BurstContext {
            services: node.services.clone(),
            instance: instance.id.clone(),
            fencing: guard.fencing_token(),
            known: node.registry.fingerprints(),
            middleware: node.middleware.steps.clone(),
            cancellation: CancellationToken::new(),
        });
        Self {
            node,
            context,
            instance,
            active,
            time,
            lost: guard.lost_token(),
            inline: None,
            beside: JoinSet::new(),
            cuttable: HashMap::new(),
            in_flight: None,
            in_transaction: None,
            transaction: None,
            end_told: false,
            started: Vec::new(),
            drop_bodies_at: None,
            shown: false,
            stopping: false,
            follow_ups: Vec::new(),
            began,
        }
    }

    /// Runs until the burst has to end. Bodies may still be there then: see [`stop_bodies`](Self::stop_bodies).
    pub(super) async fn run(&mut self, inbox: Vec<InboxRow>, suspect: bool) -> BurstEnd {
        let now = self.time.now();
        self.instance.apply_inbox(inbox, now);
        if suspect {
            self.instance.fire_timers(now);
            self.instance.count_fault(now);
        }
        loop {
            if self.lost.is_cancelled() {
                return BurstEnd::Lost;
            }
            let now = self.time.now();
            self.instance.fire_timers(now);
            let ended = self.instance.status.is_terminal();
            if ended && self.has_bodies() {
                self.cancel_bodies(self.node.settings.stop_grace);
            }
            if self.in_flight.is_none()
                && !ended
                && !self.instance.must_checkpoint()
                && let Some((saga, scope)) = self.instance.wanted_scope()
            {
                match self.find_out(saga, scope).await {
                    Some(end) => return end,
                    None => continue,
                }
            }
            self.cut_bodies();
            let may_start = !ended && !self.stopping && !self.must_yield();
            if may_start {
                self.start_bodies(now);
                self.tell_started(now).await;
            }
            let can_start = may_start && self.instance.ready_count(now) > 0;
            let idle = !self.has_bodies() && !can_start;
            let due_to_write = self.instance.must_checkpoint() || (idle && self.instance.has_changes());
            let may_write = self.in_flight.is_none() && self.in_transaction.is_none();
            if may_write && due_to_write && !(ended && self.has_bodies()) {
                if ended && !self.end_told {
                    match self.tell_end().await {
                        Some(end) => return end,
                        None => self.end_told = true,
                    }
                }
                if ended {
                    self.instance.close_all(now);
                }
                if let Err(unwritable) = self.write(now) {
                    return self.suspend_unwritable(&unwritable).await;
                }
            } else if may_write && idle {
                match self.rest(may_start).await {
                    Some(end) => return end,
                    None => continue,
                }
            }
            if let Some(end) = self.wait().await {
                return end;
            }
            // A burst that never has to wait must not keep its thread.
            tokio::task::consume_budget().await;
        }
    }

    /// What a saga that has failed has to undo.
    async fn find_out(&mut self, saga: PointerId, scope: PointerId) -> Option<BurstEnd> {
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

    /// Tells bodies whose pointers were cancelled to end, and sets the time at which they are dropped.
    fn cut_bodies(&mut self) {
        let drop_at = self.node.clock.monotonic().saturating_add(CANCEL_GRACE);
        for id in self.instance.take_cut() {
            if let Some(body) = self.cuttable.get_mut(&id) {
                body.token.cancel();
                body.drop_at = Some(drop_at);
            }
        }
    }

    /// When the first of the bodies that were told to end is dropped.
    fn next_drop(&self) -> Option<Duration> {
        self.cuttable.values().filter_map(|body| body.drop_at).min()
    }

    /// Drops bodies that were told to end and did not.
    fn drop_cut(&mut self) {
        let now = self.node.clock.monotonic();
        let late: Vec<PointerId> =
            self.cuttable.iter().filter(|(_, body)| body.drop_at.is_some_and(|at| at <= now)).map(|(id, _)| *id).collect();
        for id in late {
            match self.cuttable.remove(&id).and_then(|body| body.task) {
                Some(task) => task.abort(),
                None => {
                    self.inline = None;
                    self.active.set_inline(None);
                }
            }
        }
        self.hide_bodies();
    }

    /// Tells whoever listens which steps were started. That the instance was started is told before, when it was not yet.
    async fn tell_started(&mut self, now: Timestamp) {
        if self.started.is_empty() {
            return;
        }
        let started = std::mem::take(&mut self.started);
        let kinds: Vec<_> = self.instance.take_started().into_iter().chain(started).collect();
        let events = self.events(kinds, now);
        self.node.tell(events).await;
    }

    fn events(&self, kinds: Vec<LifeCycleKind>, now: Timestamp) -> Vec<LifeCycleEvent> {
        let (instance, definition) = (&self.instance, &self.instance.definition);
        let event = |kind| {
            let event = LifeCycleEvent::new(instance.id.clone(), definition.id.clone(), definition.version, now, kind);
            event.with_reference(instance.reference.clone())
        };
        kinds.into_iter().map(event).collect()
    }

    /// What the instance looks like to what stands around workflows.
    pub(super) fn workflow_context(&self) -> WorkflowContext<'_> {
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
    async fn tell_end(&mut self) -> Option<BurstEnd> {
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

    /// Nothing to do: ends, unless there is news.
    async fn rest(&mut self, may_start: bool) -> Option<BurstEnd> {
        if self.instance.status.is_terminal() {
            return Some(BurstEnd::Ended);
        }
        if self.stopping {
            return Some(BurstEnd::Stopped);
        }
        if !may_start && self.instance.ready_count(self.time.now()) > 0 {
            return Some(BurstEnd::Yields);
        }
        if self.active.take_woken() && self.read_inbox().await {
            return None;
        }
        Some(BurstEnd::Rests)
    }

    /// Whether others wait, and this instance had its share. Asked only when no body runs.
    fn must_yield(&self) -> bool {
        !self.has_bodies()
            && self.node.permits.available_permits() == 0
            && self.node.clock.monotonic().saturating_sub(self.began) > self.node.settings.burst_budget
    }

    fn has_bodies(&self) -> bool {
        self.inline.is_some() || !self.beside.is_empty()
    }

    /// Starts the bodies that can run. One alone runs in the burst's own task; several run beside each other.
    fn start_bodies(&mut self, now: Timestamp) {
        let mut running = usize::from(self.inline.is_some()) + self.beside.len();
        while running < self.node.settings.max_concurrent_steps {
            let is_transactional = self.instance.next_is_transactional();
            if is_transactional && (self.in_flight.is_some() || self.in_transaction.is_some() || self.instance.must_checkpoint())
            {
                break;
            }
            let Some(id) = self.instance.next_ready(now) else { break };
            let alone = running == 0 && self.instance.ready_count(now) == 0;
            match self.prepare(id) {
                Ok((body, cx)) => {
                    if self.node.hub.has_subscribers() {
                        self.started.push(LifeCycleKind::StepStarted { step: cx.step.clone() });
                    }
                    let token = cx.own_cancellation.clone();
                    let run = if is_transactional {
                        self.in_transaction = Some(id);
                        run_transactional(self.node.clone(), id, body, cx).boxed()
                    } else {
                        run_body(id, body, cx).boxed()
                    };
                    let mut task = None;
                    if alone {
                        self.active.set_inline(self.instance.pointer(id).map(|pointer| pointer.record.step.clone()));
                        self.inline = Some(run);
                    } else {
                        task = Some(self.beside.spawn(run));
                    }
                    if let Some(token) = token {
                        self.cuttable.insert(id, Cuttable { token, task, drop_at: None });
                    }
                    running += 1;
                }
                Err(error) => _ = self.instance.body_ended(id, None, Err(error), Outbox::default(), now),
            }
        }
    }

    /// Tells the rest of the node which bodies run, since when.
    fn show_bodies(&mut self) {
        self.shown = true;
        self.active.set_bodies(self.instance.running_steps(), self.node.clock.monotonic());
    }

    fn hide_bodies(&mut self) {
        if std::mem::take(&mut self.shown) {
            self.active.set_bodies(Vec::new(), Duration::ZERO);
        }
    }

    /// A fresh body with its inputs applied, and its context.
    fn prepare(&self, id: PointerId) -> StepResult<(Box<dyn ErasedBody>, StepContext)> {
        let gone = || StepError::permanent("its pointer is gone; please report this as a bug");
        let pointer = self.instance.pointer(id).ok_or_else(gone)?;
        let node = self.instance.definition.node(pointer.node);
        let NodeKind::Step(step) = &node.kind else { return Err(gone()) };
        let (data, items) = (self.instance.data(), &pointer.items);
        let body = guarded(|| {
            let mut body = (step.make)(&self.node.services)?;
            step.inputs.iter().try_for_each(|input| input(&mut *body, data, items))?;
            Ok(body)
        })?;
        let cx = StepContext {
            burst: self.context.clone(),
            step: node.name.clone(),
            pointer: id,
            key: std::sync::OnceLock::new(),
            attempt: pointer.record.attempts + 1,
            kept: pointer.kept(),
            outbox: Arc::default(),
            transaction: None,
            own_cancellation: node.can_be_cut.then(|| self.context.cancellation.child_token()),
        };
        Ok((body, cx))
    }

    /// Hands over a checkpoint of all that changed.
    fn write(&mut self, now: Timestamp) -> Result<(), Unwritable> {
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

    /// Waits for whatever comes first.
    async fn wait(&mut self) -> Option<BurstEnd> {
        // What is there already needs no waiting: bodies and stores in memory mostly are.
        if let Some(flight) = &mut self.in_flight
            && let Some(outcome) = (&mut flight.outcome).now_or_never()
        {
            return self.written(outcome).await;
        }
        if let Some(body) = &mut self.inline
            && let Some(end) = body.now_or_never()
        {
            self.inline_ended(end).await;
            return None;
        }
        if self.has_bodies() && !self.shown {
            self.show_bodies();
        }
        let clock = self.node.clock.clone();
        let timer = self.instance.next_timer().map(|due| self.time.deadline(due));
        let drop_at = self.next_drop();
        let timer_matters = timer.is_some() && self.has_bodies() && !self.stopping;
        tokio::select! {
            biased;
            () = self.lost.cancelled() => Some(BurstEnd::Lost),
            outcome = async { match &mut self.in_flight { Some(flight) => (&mut flight.outcome).await, None => std::future::pending().await } } => {
                self.written(outcome).await
            }
            end = async { match &mut self.inline { Some(body) => body.await, None => std::future::pending().await } } => {
                self.inline_ended(end).await;
                None
            }
            Some(end) = self.beside.join_next(), if !self.beside.is_empty() => {
                // A body's own panic is caught in its task, so this can only be an abort, which only `stop_bodies` asks for.
                if let Ok(end) = end {
                    self.body_ended(end).await;
                }
                None
            }
            () = self.active.news(), if !self.instance.status.is_terminal() => {
                let rows = self.active.take_rows();
                let now = self.time.now();
                self.instance.apply_inbox(rows, now);
                if self.active.take_woken() {
                    self.read_inbox().await;
                }
                None
            }
            () = clock.sleep_until(timer.unwrap_or_default()), if timer_matters => None,
            () = clock.sleep_until(drop_at.unwrap_or_default()), if drop_at.is_some() => {
                self.drop_cut();
                None
            }
            () = clock.sleep_until(self.drop_bodies_at.unwrap_or_default()), if self.drop_bodies_at.is_some() => {
                self.drop_bodies_at = None;
                self.drop_bodies().await;
                // A store that has not answered by now is not waited for.
                let given_up = self.in_flight.is_some() && self.node.grace_is_over.is_cancelled();
                given_up.then_some(BurstEnd::Stopped)
            }
            () = self.node.stopping.cancelled(), if !self.stopping => {
                self.stopping = true;
                None
            }
            () = self.node.grace_is_over.cancelled(), if self.stopping && !self.context.cancellation.is_cancelled() => {
                if self.in_flight.is_some() && !self.has_bodies() {
                    return Some(BurstEnd::Stopped);
                }
                self.cancel_bodies(CANCEL_GRACE);
                None
            }
        }
    }

    async fn inline_ended(&mut self, end: BodyEnd) {
        self.inline = None;
        self.active.set_inline(None);
        self.body_ended(end).await;
    }

    async fn body_ended(&mut self, mut end: BodyEnd) {
        self.cuttable.remove(&end.pointer);
        let transaction = end.transaction.take();
        if transaction.is_some() || self.in_transaction == Some(end.pointer) {
            self.in_transaction = None;
        }
        let open = take_open(transaction);
        let stands = if end.result.is_err() && self.context.cancellation.is_cancelled() {
            self.instance.body_cut_short(end.pointer);
            false
        } else {
            let now = self.time.now();
            self.instance.body_ended(end.pointer, end.body, end.result, end.outbox, now)
        };
        if let Some(open) = open {
            if stands {
                self.transaction = Some(open);
            } else if let Err(error) = open.0.rollback().await {
                tracing::debug!(%error, "a step's transaction ended with its connection");
            }
        }
        self.hide_bodies();
    }

    /// The answer to the checkpoint in flight.
    async fn written(&mut self, outcome: Option<CheckpointOutcome>) -> Option<BurstEnd> {
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

    async fn committed(&mut self, committed: Committed, events: Vec<LifeCycleEvent>) {
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
    async fn read_inbox(&mut self) -> bool {
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
    async fn suspend_unwritable(&mut self, unwritable: &Unwritable) -> BurstEnd {
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

    /// Fires the token of the bodies, and sets the time at which their futures are dropped.
    fn cancel_bodies(&mut self, grace: Duration) {
        if !self.context.cancellation.is_cancelled() {
            self.context.cancellation.cancel();
            self.drop_bodies_at = Some(self.node.clock.monotonic().saturating_add(grace));
        }
    }

    /// Ends the bodies that are left: their token fires, and a little later their futures are dropped. Returns when none is left,
    /// because a lock is never released while a body of its instance still runs.
    pub(super) async fn stop_bodies(&mut self) {
        if self.has_bodies() {
            self.cancel_bodies(CANCEL_GRACE);
            let (clock, deadline) = (self.node.clock.clone(), self.drop_bodies_at.take().unwrap_or_default());
            let all_end = async {
                if let Some(body) = self.inline.as_mut() {
                    body.await;
                }
                while self.beside.join_next().await.is_some() {}
            };
            tokio::select! {
                () = all_end => self.inline = None,
                () = clock.sleep_until(deadline) => {}
            }
            self.drop_bodies().await;
        }
        self.hide_bodies();
    }

    /// Drops the futures of the bodies; those that block their thread are waited for.
    async fn drop_bodies(&mut self) {
        self.inline = None;
        self.active.set_inline(None);
        self.beside.shutdown().await;
        self.in_transaction = None;
        self.cuttable.clear();
        self.hide_bodies();
        self.instance.bodies_dropped();
    }

    /// Instances that got something to do by this burst.
    pub(super) fn take_follow_ups(&mut self) -> Vec<WorkItem> {
        std::mem::take(&mut self.follow_ups)
    }

    /// When the instance next wakes by itself, by the monotonic clock, when that is before the next poll.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let deadline = self.time.deadline(self.instance.next_timer()?);
        let horizon = self.node.clock.monotonic().saturating_add(self.node.settings.poll_interval);
        (deadline <= horizon).then_some(deadline)
    }
}

async fn run_body(pointer: PointerId, mut body: Box<dyn ErasedBody>, cx: StepContext) -> BodyEnd {
    let caught = AssertUnwindSafe(middleware::run(&mut *body, &cx)).catch_unwind().await;
    let (outbox, transaction) = (std::mem::take(&mut *cx.outbox()), cx.transaction.clone());
    match caught {
        Ok(result) => BodyEnd { pointer, body: Some(body), result, outbox, transaction },
        Err(panic) => BodyEnd { pointer, body: None, result: Err(panicked(&*panic)), outbox, transaction },
    }
}

/// Runs a body in a transaction of the store, for no longer than its limit.
async fn run_transactional(node: Arc<Node>, pointer: PointerId, body: Box<dyn ErasedBody>, mut cx: StepContext) -> BodyEnd {
    let begun = match node.store.begin().await {
        Ok(Some(transaction)) => Ok(transaction),
        Ok(None) => Err(StepError::permanent("the store has no transactions for steps")),
        Err(error) => Err(StepError::from(error)),
    };
    let (transaction, limit) = match begun {
        Ok(transaction) => {
            (Arc::new(tokio::sync::Mutex::new(Some(OpenTransaction(transaction)))), node.settings.transaction_limit)
        }
        Err(error) => return BodyEnd { pointer, body: None, result: Err(error), outbox: Outbox::default(), transaction: None },
    };
    cx.transaction = Some(transaction.clone());
    tokio::select! {
        biased;
        end = run_body(pointer, body, cx) => end,
        () = node.clock.sleep(limit) => {
            let error = StepError::from(format!("its transaction was open for longer than {limit:?} (option `transaction_limit`) and was rolled back"));
            BodyEnd { pointer, body: None, result: Err(error), outbox: Outbox::default(), transaction: Some(transaction) }
        }
    }
}

/// The transaction of a body that ended. No guard of it is left: guards borrow the body's own context.
fn take_open(transaction: Option<SharedTransaction>) -> Option<OpenTransaction> {
    transaction?.try_lock().ok()?.take()
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
