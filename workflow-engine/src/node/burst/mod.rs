//! A burst: an instance advances in memory, under its lock, until it rests.

mod bodies;
mod writing;

use bodies::{BodyEnd, Cuttable};
use writing::InFlight;

use super::{Active, CANCEL_GRACE, Node, time::StoreTime};
use crate::{
    body::{BurstContext, OpenTransaction},
    definition::BoxFuture,
    instance::Instance,
};
use futures_util::FutureExt;
use latchwork_core::{
    hub::LifeCycleKind,
    lock::LockGuard,
    queue::WorkItem,
    store::{InboxRow, PointerId},
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How a burst came to its end.
#[derive(Debug)]
pub(in crate::node) enum BurstEnd {
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

pub(in crate::node) struct Burst<'a> {
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
    pub(in crate::node) fn new(
        node: Arc<Node>,
        instance: Box<Instance>,
        active: &'a Active,
        guard: &LockGuard,
        time: StoreTime,
    ) -> Self {
        let began = node.clock.monotonic();
        let context = Arc::new(BurstContext {
            services: node.services.clone(),
            instance: instance.id.clone(),
            fencing: guard.fencing_token(),
            known: node.registry.fingerprints(),
            middleware: node.middleware.steps.clone(),
            event_limit: node.settings.event_limit,
            data_limit: node.settings.data_limit,
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
    pub(in crate::node) async fn run(&mut self, inbox: Vec<InboxRow>, suspect: bool) -> BurstEnd {
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
                if !self.started.is_empty() {
                    self.tell_started(now).await;
                }
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

    /// Instances that got something to do by this burst.
    pub(in crate::node) fn take_follow_ups(&mut self) -> Vec<WorkItem> {
        std::mem::take(&mut self.follow_ups)
    }

    /// When the instance next wakes by itself, by the monotonic clock, when that is before the next poll.
    pub(in crate::node) fn next_due(&self) -> Option<Duration> {
        let deadline = self.time.deadline(self.instance.next_timer()?);
        let horizon = self.node.clock.monotonic().saturating_add(self.node.settings.poll_interval);
        (deadline <= horizon).then_some(deadline)
    }
}
