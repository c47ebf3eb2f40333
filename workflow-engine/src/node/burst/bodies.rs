//! The bodies of a burst: started, watched, told to end, dropped.

use super::Burst;
use crate::node::{CANCEL_GRACE, Node};
use crate::{
    body::{OpenTransaction, Outbox, SharedTransaction, StepContext},
    definition::{ErasedBody, NodeKind},
    error::{StepError, StepResult},
    instance::{guarded, panicked},
    middleware,
};
use futures_util::FutureExt;
use latchwork_core::{
    clock::{ClockExt, Timestamp},
    hub::LifeCycleKind,
    store::PointerId,
};
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// What a body left.
pub(super) struct BodyEnd {
    pub(super) pointer: PointerId,
    /// Gone when it panicked.
    pub(super) body: Option<Box<dyn ErasedBody>>,
    pub(super) result: StepResult,
    pub(super) outbox: Outbox,
    /// Of a transactional step.
    pub(super) transaction: Option<SharedTransaction>,
}

/// A running body that can be told to end alone.
pub(super) struct Cuttable {
    pub(super) token: CancellationToken,
    /// `None`: it runs in the burst's own task.
    pub(super) task: Option<AbortHandle>,
    /// When it is dropped, by the monotonic clock, if it was told to end.
    pub(super) drop_at: Option<Duration>,
}

impl Burst<'_> {
    /// Tells bodies whose pointers were cancelled to end, and sets the time at which they are dropped.
    pub(super) fn cut_bodies(&mut self) {
        let cut = self.instance.take_cut();
        if cut.is_empty() {
            return;
        }
        let drop_at = self.node.clock.monotonic().saturating_add(CANCEL_GRACE);
        for id in cut {
            if let Some(body) = self.cuttable.get_mut(&id) {
                body.token.cancel();
                body.drop_at = Some(drop_at);
            }
        }
    }

    /// When the first of the bodies that were told to end is dropped.
    pub(super) fn next_drop(&self) -> Option<Duration> {
        self.cuttable.values().filter_map(|body| body.drop_at).min()
    }

    /// Drops bodies that were told to end and did not.
    pub(super) fn drop_cut(&mut self) {
        let now = self.node.clock.monotonic();
        let late: Vec<PointerId> =
            self.cuttable.iter().filter(|(_, body)| body.drop_at.is_some_and(|at| at <= now)).map(|(id, _)| *id).collect();
        for id in late {
            if self.in_transaction == Some(id) {
                self.in_transaction = None;
            }
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

    pub(super) fn has_bodies(&self) -> bool {
        self.inline.is_some() || !self.beside.is_empty()
    }

    /// Starts the bodies that can run. One alone runs in the burst's own task; several run beside each other.
    pub(super) fn start_bodies(&mut self, now: Timestamp) {
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
                    // Below the burst's span, also in a task of its own.
                    let span = tracing::info_span!("step", step = %cx.step, attempt = cx.attempt, key = cx.idempotency_key());
                    let run = if is_transactional {
                        self.in_transaction = Some(id);
                        run_transactional(self.node.clone(), id, body, cx).instrument(span).boxed()
                    } else {
                        run_body(id, body, cx).instrument(span).boxed()
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
    pub(super) fn show_bodies(&mut self) {
        self.shown = true;
        self.active.set_bodies(self.instance.running_steps(), self.node.clock.monotonic());
    }

    pub(super) fn hide_bodies(&mut self) {
        if std::mem::take(&mut self.shown) {
            self.active.set_bodies(Vec::new(), Duration::ZERO);
        }
    }

    /// A fresh body with its inputs applied, and its context.
    pub(super) fn prepare(&self, id: PointerId) -> StepResult<(Box<dyn ErasedBody>, StepContext)> {
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

    pub(super) async fn inline_ended(&mut self, end: BodyEnd) {
        self.inline = None;
        self.active.set_inline(None);
        self.body_ended(end).await;
    }

    pub(super) async fn body_ended(&mut self, mut end: BodyEnd) {
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

    /// Fires the token of the bodies, and sets the time at which their futures are dropped.
    pub(super) fn cancel_bodies(&mut self, grace: Duration) {
        if !self.context.cancellation.is_cancelled() {
            self.context.cancellation.cancel();
            self.drop_bodies_at = Some(self.node.clock.monotonic().saturating_add(grace));
        }
    }

    /// Ends the bodies that are left: their token fires, and a little later their futures are dropped. Returns when none is left,
    /// because a lock is never released while a body of its instance still runs.
    pub(in crate::node) async fn stop_bodies(&mut self) {
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
    pub(super) async fn drop_bodies(&mut self) {
        self.inline = None;
        self.active.set_inline(None);
        self.beside.shutdown().await;
        self.in_transaction = None;
        self.cuttable.clear();
        self.hide_bodies();
        self.instance.bodies_dropped();
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
