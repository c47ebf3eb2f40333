//! A table of leases in memory, with a clock of its own and faults on command.

use latchwork_core::{
    async_trait,
    clock::{Clock, Timestamp, add},
    lock::{
        Failure, KeyLimit,
        lease::{HostId, LeaseAnswer, LeaseBatch, LeaseTable},
    },
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::sync::watch;

/// What happens to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// It does not reach the server.
    Refused,
    /// It is done, and its answer does not come.
    Unanswered,
    /// It is done, and its answer comes when the fault is over.
    AnsweredLate,
    /// An error comes, and the request arrives only when [`Server::deliver`] is called.
    Delayed,
}

#[derive(Debug)]
struct Host {
    node: String,
    until: Timestamp,
    request: u64,
}

#[derive(Debug, Default)]
struct State {
    hosts: HashMap<HostId, Host>,
    locks: HashMap<Arc<str>, (HostId, u64)>,
    fence: u64,
    /// Each request that was done, in words.
    done: Vec<&'static str>,
    delayed: Vec<(HostId, LeaseBatch)>,
}

#[derive(Debug)]
pub(crate) struct Server {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl Server {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The requests that were done since the last call.
    pub(crate) fn done(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state().done)
    }

    /// The live hosts of a node.
    pub(crate) fn hosts_of(&self, node: &str) -> Vec<HostId> {
        let (state, now) = (self.state(), self.clock.now());
        state.hosts.iter().filter(|(_, host)| host.node == node && host.until > now).map(|(id, _)| *id).collect()
    }

    /// Ends the leases of a node, as an administrator could.
    pub(crate) fn end(&self, node: &str) {
        let now = self.clock.now();
        self.state().hosts.values_mut().filter(|host| host.node == node).for_each(|host| host.until = now);
    }

    /// The requests that were delayed arrive.
    pub(crate) fn deliver(&self) -> Vec<LeaseAnswer> {
        let delayed = std::mem::take(&mut self.state().delayed);
        delayed.into_iter().map(|(host, batch)| self.exchange(host, &batch)).collect()
    }

    fn exchange(&self, host: HostId, batch: &LeaseBatch) -> LeaseAnswer {
        let now = self.clock.now();
        let state = &mut *self.state();
        match state.hosts.get_mut(&host).filter(|row| row.until > now && row.request < batch.number) {
            Some(row) => row.request = batch.number,
            None => return LeaseAnswer::Ended,
        }
        state.done.push("exchange");
        for release in &batch.releases {
            if state
                .locks
                .get(&release.name)
                .is_some_and(|(owner, fence)| *owner == host && release.fence.is_none_or(|freed| freed == *fence))
            {
                state.locks.remove(&release.name);
            }
        }
        let fences = batch.acquires.iter().map(|name| {
            let free = state
                .locks
                .get(name)
                .is_none_or(|(owner, _)| *owner == host || state.hosts.get(owner).is_none_or(|owner| owner.until <= now));
            free.then(|| {
                state.fence += 1;
                state.locks.insert(name.clone(), (host, state.fence));
                state.fence
            })
        });
        LeaseAnswer::Done(fences.collect())
    }
}

/// The faults of one node's requests.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) renew: watch::Sender<Fault>,
    pub(crate) exchange: watch::Sender<Fault>,
    pub(crate) enter: watch::Sender<Fault>,
    /// Renewals of this host are refused.
    pub(crate) broken: Mutex<Option<HostId>>,
}

/// The table as one node sees it.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) server: Arc<Server>,
    pub(crate) faults: Arc<Faults>,
}

async fn through<T>(fault: &watch::Sender<Fault>, done: impl FnOnce() -> T) -> Result<T, Failure> {
    let kind = *fault.borrow();
    match kind {
        Fault::None => Ok(done()),
        Fault::Refused | Fault::Delayed => Err(Failure::transient("planted")),
        Fault::Unanswered => {
            done();
            Err(Failure::transient("planted"))
        }
        Fault::AnsweredLate => {
            let answer = done();
            let _ = fault.subscribe().wait_for(|fault| *fault != Fault::AnsweredLate).await;
            Ok(answer)
        }
    }
}

#[async_trait]
impl LeaseTable for Table {
    fn provider(&self) -> &'static str {
        "memory-lease"
    }

    fn domain(&self) -> String {
        "memory-lease".to_owned()
    }

    fn longest_key(&self) -> KeyLimit {
        KeyLimit::bytes(255)
    }

    async fn enter(&self, host: HostId, node: &str, previous: Option<HostId>, lease: Duration) -> Result<(), Failure> {
        through(&self.faults.enter, || {
            let now = self.server.clock.now();
            let mut state = self.server.state();
            if let Some(previous) = previous.and_then(|previous| state.hosts.get_mut(&previous)) {
                previous.until = previous.until.min(now);
            }
            state.hosts.insert(host, Host { node: node.to_owned(), until: add(now, lease), request: 0 });
            state.done.push("enter");
        })
        .await
    }

    async fn renew(&self, host: HostId, lease: Duration) -> Result<bool, Failure> {
        if *self.faults.broken.lock().unwrap() == Some(host) {
            return Err(Failure::transient("planted"));
        }
        through(&self.faults.renew, || {
            let now = self.server.clock.now();
            let mut state = self.server.state();
            state.done.push("renew");
            let live = state.hosts.get_mut(&host).filter(|row| row.until > now);
            live.map(|row| row.until = add(now, lease)).is_some()
        })
        .await
    }

    async fn exchange(&self, host: HostId, batch: &LeaseBatch) -> Result<LeaseAnswer, Failure> {
        if *self.faults.exchange.borrow() == Fault::Delayed {
            self.server.state().delayed.push((host, batch.clone()));
        }
        through(&self.faults.exchange, || self.server.exchange(host, batch)).await
    }

    async fn leave(&self, host: HostId) -> Result<(), Failure> {
        let now = self.server.clock.now();
        let mut state = self.server.state();
        state.done.push("leave");
        if let Some(row) = state.hosts.get_mut(&host) {
            row.until = row.until.min(now);
        }
        Ok(())
    }

    async fn purge(&self) -> Result<(), Failure> {
        let now = self.server.clock.now();
        let state = &mut *self.server.state();
        state.locks.retain(|_, (owner, _)| state.hosts.get(owner).is_some_and(|owner| owner.until > now));
        Ok(())
    }
}
