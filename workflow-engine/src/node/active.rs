use latchwork_core::store::{InboxRow, InstanceId};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// The bursts of this node by instance: at most one for each.
#[derive(Debug, Default)]
pub(crate) struct ActiveMap {
    bursts: Mutex<HashMap<InstanceId, Arc<Active>>>,
    changed: Notify,
}

/// How the rest of the node reaches a burst.
#[derive(Debug, Default)]
pub(crate) struct Active {
    woken: AtomicBool,
    notify: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Since when bodies run without a pause, by the monotonic clock.
    bodies_since: Option<Duration>,
    /// The steps that run in tasks of their own.
    bodies: Vec<Arc<str>>,
    /// The step that runs in the burst's own task.
    inline: Option<Arc<str>>,
    /// What the batched look at the inboxes found.
    rows: Vec<InboxRow>,
}

impl Active {
    /// There is something new for the instance.
    pub(crate) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Resolves when there may be something new: it was woken, or was handed rows. May resolve for nothing.
    pub(crate) async fn news(&self) {
        if !self.woken.load(Ordering::Acquire) {
            self.notify.notified().await;
        }
    }

    /// Whether it was woken since it was last asked.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn take_rows(&self) -> Vec<InboxRow> {
        std::mem::take(&mut self.state().rows)
    }

    /// The body that is about to run in the burst's own task: it may block it.
    pub(crate) fn set_inline(&self, step: Option<Arc<str>>) {
        self.state().inline = step;
    }

    /// Which bodies run, since when.
    pub(crate) fn set_bodies(&self, bodies: Vec<Arc<str>>, now: Duration) {
        let mut state = self.state();
        state.bodies_since = if bodies.is_empty() { None } else { state.bodies_since.or(Some(now)) };
        state.bodies = bodies;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActiveMap {
    fn bursts(&self) -> std::sync::MutexGuard<'_, HashMap<InstanceId, Arc<Active>>> {
        self.bursts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new burst of this instance; `None` when there is one, which is woken.
    pub(crate) fn begin(&self, instance: &InstanceId) -> Option<Arc<Active>> {
        let mut bursts = self.bursts();
        if let Some(active) = bursts.get(instance) {
            active.wake();
            return None;
        }
        let active = Arc::new(Active::default());
        bursts.insert(instance.clone(), active.clone());
        Some(active)
    }

    /// The burst is over, unless it was woken meanwhile: then `false`, and it has to look again.
    pub(crate) fn end(&self, instance: &InstanceId, active: &Active) -> bool {
        let mut bursts = self.bursts();
        if active.take_woken() {
            return false;
        }
        bursts.remove(instance);
        self.changed.notify_one();
        true
    }

    /// This burst is over, come what may. Harmless when it was ended already, also when another one has begun.
    pub(crate) fn remove(&self, instance: &InstanceId, active: &Arc<Active>) {
        let mut bursts = self.bursts();
        if bursts.get(instance).is_some_and(|known| Arc::ptr_eq(known, active)) {
            bursts.remove(instance);
            self.changed.notify_one();
        }
    }

    /// Resolves when a burst has ended since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether this node has a burst of the instance.
    pub(crate) fn has(&self, instance: &InstanceId) -> bool {
        self.bursts().contains_key(instance)
    }

    pub(crate) fn len(&self) -> usize {
        self.bursts().len()
    }

    /// The instances of which bodies have been running for at least `span`.
    pub(crate) fn long_running(&self, now: Duration, span: Duration) -> Vec<InstanceId> {
        let since = |active: &Active| active.state().bodies_since;
        let bursts = self.bursts();
        let long = bursts.iter().filter(|(_, active)| since(active).is_some_and(|since| now.saturating_sub(since) >= span));
        long.map(|(instance, _)| instance.clone()).collect()
    }

    /// There is something new for the instance: its burst on this node, if there is one, looks.
    pub(crate) fn wake(&self, instance: &InstanceId) {
        if let Some(active) = self.bursts().get(instance) {
            active.wake();
        }
    }

    /// Hands inbox rows to a burst.
    pub(crate) fn deliver(&self, instance: &InstanceId, rows: Vec<InboxRow>) {
        let active = self.bursts().get(instance).cloned();
        if let Some(active) = active {
            active.state().rows = rows;
            active.notify.notify_one();
        }
    }

    /// The bodies that run now.
    pub(crate) fn running(&self) -> Vec<(InstanceId, Vec<Arc<str>>)> {
        let steps = |active: &Active| {
            let state = active.state();
            let mut steps = state.bodies.clone();
            steps.extend(state.inline.clone().filter(|inline| !steps.contains(inline)));
            steps
        };
        self.bursts().iter().map(|(instance, active)| (instance.clone(), steps(active))).collect()
    }
}
