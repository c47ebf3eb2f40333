use crate::{
    parking,
    table::{Answer, Member, Table},
};
use latchwork_core::{
    Scope, async_trait,
    lock::{DistributedLockProvider, LockCapabilities, LockError, LockGuard, LockKey, LockRequest, LossDetection, Wait},
    name::Namespace,
};
use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

const PROVIDER: &str = "local";

/// The locks that `process` gives.
static PROCESS: LazyLock<Arc<Table>> = LazyLock::new(|| Arc::new(Table::new()));

/// Locks by name within this process: asynchronous and blocking, exclusive and shared, first come first served.
///
/// A clone is the same provider: it shares its names, and `stop` ends both. A [`peer`](Self::peer) shares the names, and
/// stops by itself.
///
/// An uncontended acquire and its release need no task switch, and no runtime. Names vanish from memory when nobody holds them.
#[derive(Clone)]
pub struct LocalLocks {
    table: Arc<Table>,
    member: Arc<Member>,
    namespace: Namespace,
}

impl fmt::Debug for LocalLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLocks")
            .field("namespace", &self.namespace.as_str())
            .field("held_names", &self.held_names())
            .field("stopped", &self.member.is_stopped())
            .finish_non_exhaustive()
    }
}

impl Default for LocalLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalLocks {
    /// Locks of their own: only clones and peers of this provider are excluded by it.
    #[must_use]
    pub fn new() -> Self {
        Self::over(Arc::new(Table::new()))
    }

    /// The locks of this process: everybody who asks here is excluded by everybody else who does, within one namespace.
    #[must_use]
    pub fn process() -> Self {
        Self::over(PROCESS.clone())
    }

    fn over(table: Arc<Table>) -> Self {
        Self { table, member: Arc::default(), namespace: Namespace::default() }
    }

    /// Another provider over the same locks, as a second node has it: it is excluded by this one, and stops by itself.
    #[must_use]
    pub fn peer(&self) -> Self {
        Self { table: self.table.clone(), member: Arc::default(), namespace: self.namespace.clone() }
    }

    /// Makes keys in this namespace. Default `wfc`.
    #[must_use]
    pub fn with_namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// How many names are held at the moment, by this provider, its peers, and in all namespaces.
    #[must_use]
    pub fn held_names(&self) -> usize {
        self.table.len()
    }

    /// Blocks this thread for up to `timeout` until the exclusive lock on `name` is granted; `None` is contention. For
    /// code without a runtime; in asynchronous code it would hold up a worker thread.
    ///
    /// # Errors
    /// [`LockError::InvalidKey`], and [`LockError::Stopped`] after `stop`.
    pub fn blocking_lock(&self, name: &str, timeout: Duration) -> Result<Option<LockGuard>, LockError> {
        let key = LockKey::new(&self.namespace, name)?;
        self.blocking_acquire(&LockRequest::new(key).with_wait(Wait::UpTo(timeout)))
    }

    /// Blocks this thread until the request is answered; otherwise as
    /// [`acquire`](DistributedLockProvider::acquire). For code without a runtime.
    ///
    /// # Errors
    /// [`LockError::Stopped`] after `stop`.
    pub fn blocking_acquire(&self, request: &LockRequest) -> Result<Option<LockGuard>, LockError> {
        let mut ticket = match self.ask(request) {
            Answer::Queued(ticket) => ticket,
            answer => return at_once(answer),
        };
        let deadline = match request.wait {
            // A sum beyond what the clock can count is a wait for ever.
            Wait::UpTo(timeout) => Instant::now().checked_add(timeout),
            Wait::No | Wait::Forever => None,
        };
        match parking::wait(ticket.granted(), deadline) {
            Some(granted) => granted.map(Some).map_err(|_| LockError::stopped(PROVIDER)),
            None => Ok(ticket.give_up()),
        }
    }

    fn ask(&self, request: &LockRequest) -> Answer {
        let may_wait = match request.wait {
            Wait::No => false,
            Wait::UpTo(timeout) => !timeout.is_zero(),
            Wait::Forever => true,
        };
        self.table.ask(&self.member, &request.key, request.mode, may_wait)
    }
}

fn at_once(answer: Answer) -> Result<Option<LockGuard>, LockError> {
    match answer {
        Answer::Granted(guard) => Ok(Some(guard)),
        Answer::Contended => Ok(None),
        Answer::Queued(ticket) => Ok(ticket.give_up()),
        Answer::Stopped => Err(LockError::stopped(PROVIDER)),
    }
}

#[async_trait]
impl DistributedLockProvider for LocalLocks {
    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities::new(Scope::Process, LossDetection::Process, PROVIDER)
            .with_fencing()
            .with_shared()
            .with_server_side_wait()
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    async fn acquire(&self, request: LockRequest) -> Result<Option<LockGuard>, LockError> {
        let mut ticket = match self.ask(&request) {
            Answer::Queued(ticket) => ticket,
            answer => return at_once(answer),
        };
        let granted = match request.wait {
            Wait::UpTo(timeout) => match tokio::time::timeout(timeout, ticket.granted()).await {
                Ok(granted) => granted,
                Err(_) => return Ok(ticket.give_up()),
            },
            Wait::No | Wait::Forever => ticket.granted().await,
        };
        // The table lets go of a waiter without a grant only when its provider stops.
        granted.map(Some).map_err(|_| LockError::stopped(PROVIDER))
    }

    async fn check(&self) -> Result<(), LockError> {
        if self.member.is_stopped() { Err(LockError::stopped(PROVIDER)) } else { Ok(()) }
    }

    async fn stop(&self, _grace: Duration) -> Result<(), LockError> {
        self.table.stop(&self.member);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork_core::lock::{LockMode, LockProviderExt, Loss};
    use std::{
        sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        thread,
    };

    #[tokio::test]
    async fn k48_a_million_keys_leave_no_memory_behind() {
        let locks = LocalLocks::new();
        let empty = locks.table.capacity();
        for number in 0..500_000 {
            let guard = locks.try_lock(&format!("one-by-one-{number}")).await.expect("answered").expect("free");
            drop(guard);
        }
        assert!(locks.table.capacity() <= empty + 64 * 8, "names that are held one by one need no room for many");
        let guards: Vec<_> = (0..500_000)
            .map(|number| locks.blocking_lock(&format!("at-once-{number}"), Duration::ZERO).expect("answered").expect("free"))
            .collect();
        assert_eq!(locks.held_names(), 500_000);
        assert!(locks.table.capacity() >= 500_000);
        drop(guards);
        assert_eq!(locks.held_names(), 0);
        assert!(locks.table.capacity() <= 64 * 64, "room for {} names is left", locks.table.capacity());
    }

    #[test]
    fn a_thread_blocks_until_the_grant_or_its_time_out() {
        let locks = LocalLocks::new();
        let guard = locks.blocking_lock("x", Duration::ZERO).expect("answered").expect("free");
        assert!(locks.blocking_lock("x", Duration::from_millis(20)).expect("answered").is_none());
        let waiting = thread::spawn({
            let locks = locks.clone();
            move || {
                let key = LockKey::new(&locks.namespace, "x")?;
                locks.blocking_acquire(&LockRequest::new(key).with_wait(Wait::Forever))
            }
        });
        while locks.table.waiters() == 0 {
            thread::yield_now();
        }
        let first = guard.fencing_token();
        drop(guard);
        let granted = waiting.join().expect("no panic").expect("answered").expect("granted");
        assert!(granted.fencing_token() > first);
    }

    #[test]
    fn threads_and_tasks_exclude_each_other_and_count_right() {
        let locks = LocalLocks::new();
        let (counted, inside) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let visit = {
            let (counted, inside) = (counted.clone(), inside.clone());
            move || {
                assert!(!inside.swap(true, SeqCst), "two holders at once");
                let seen = counted.load(SeqCst);
                thread::yield_now();
                counted.store(seen + 1, SeqCst);
                inside.store(false, SeqCst);
            }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        thread::scope(|scope| {
            for _ in 0..4 {
                let (locks, visit) = (locks.clone(), visit.clone());
                scope.spawn(move || {
                    for _ in 0..500 {
                        let guard = locks.blocking_lock("x", Duration::from_secs(60)).expect("answered").expect("granted");
                        visit();
                        drop(guard);
                    }
                });
            }
            for _ in 0..4 {
                let (locks, visit) = (locks.clone(), visit.clone());
                runtime.spawn(async move {
                    for _ in 0..500 {
                        let guard = locks.lock("x", Duration::from_secs(60)).await.expect("answered").expect("granted");
                        visit();
                        guard.release().await.expect("freed");
                    }
                });
            }
        });
        runtime.block_on(async {
            while counted.load(SeqCst) < 4_000 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        assert_eq!(counted.load(SeqCst), 4_000);
        assert_eq!(locks.held_names(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_that_give_up_leave_the_queue() {
        let locks = LocalLocks::new();
        let guard = locks.try_lock("x").await.expect("answered").expect("free");
        for _ in 0..1_000 {
            assert!(locks.lock("x", Duration::from_secs(60)).await.expect("answered").is_none());
        }
        assert_eq!(locks.table.waiters(), 0);
        drop(guard);
    }

    #[tokio::test]
    async fn a_clone_stops_with_its_provider_and_a_peer_does_not() {
        let locks = LocalLocks::new();
        let (clone, peer) = (locks.clone(), locks.peer());
        let (of_clone, of_peer) = (
            clone.try_lock("a").await.expect("answered").expect("free"),
            peer.try_lock("b").await.expect("answered").expect("free"),
        );
        locks.stop(Duration::ZERO).await.expect("stopped");
        assert_eq!(of_clone.lost().await, Loss::Stopped);
        assert!(!of_peer.is_lost());
        assert!(matches!(clone.try_lock("c").await, Err(LockError::Stopped { .. })));
        assert!(peer.try_lock("a").await.expect("answered").is_some());
        assert!(clone.check().await.is_err() && peer.check().await.is_ok());
    }

    #[tokio::test]
    async fn stop_lets_the_readers_behind_its_writer_in() {
        let locks = LocalLocks::new();
        let peer = locks.peer();
        let reader = peer.try_lock_shared("x").await.expect("answered").expect("free");
        let key = reader.key().clone();
        let request = |mode| LockRequest::new(key.clone()).with_wait(Wait::Forever).with_mode(mode);
        let writer = tokio::spawn({
            let (locks, request) = (locks.clone(), request(LockMode::Exclusive));
            async move { locks.acquire(request).await }
        });
        while locks.table.waiters() < 1 {
            tokio::task::yield_now().await;
        }
        let behind = tokio::spawn({
            let (peer, request) = (peer.clone(), request(LockMode::Shared));
            async move { peer.acquire(request).await }
        });
        while locks.table.waiters() < 2 {
            tokio::task::yield_now().await;
        }
        locks.stop(Duration::ZERO).await.expect("stopped");
        assert!(matches!(writer.await.expect("joined"), Err(LockError::Stopped { .. })));
        assert!(behind.await.expect("joined").expect("answered").is_some());
    }

    #[tokio::test]
    async fn locks_of_the_process_are_one_and_namespaces_are_apart() {
        let guard = LocalLocks::process().try_lock("of-the-process").await.expect("answered").expect("free");
        assert!(LocalLocks::process().try_lock("of-the-process").await.expect("answered").is_none());
        let elsewhere = LocalLocks::process().with_namespace(Namespace::new("elsewhere").expect("valid"));
        assert!(elsewhere.try_lock("of-the-process").await.expect("answered").is_some());
        assert!(LocalLocks::new().try_lock("of-the-process").await.expect("answered").is_some());
        drop(guard);
    }
}
