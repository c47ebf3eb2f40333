//! What the tests share: a world of one store, one lock service and one queue on a virtual clock, in which nodes are started,
//! stopped and killed, and a probe that sees and steers the bodies of steps.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests may")]
#![allow(dead_code, unreachable_pub, unused_imports, missing_debug_implementations, reason = "each test uses a part of it")]

mod probe;

pub use latchwork::prelude::*;
pub use latchwork_testkit::{
    clock::VirtualClock,
    faults::{
        Disorder, Faults, FaultyLocks, FaultyQueue, FaultyStore, Gate, LockCall, LockFault, Losses, QueueCall, QueueFault,
        StoreCall,
    },
};
pub use probe::{Probe, step};
pub use std::{sync::Arc, time::Duration};

use latchwork::{
    WorkflowHostBuilder,
    core::{
        BoxError,
        clock::Clock,
        lock::DistributedLockProvider,
        name::Namespace,
        options::ProviderContext,
        store::{ErrorRecord, InstanceRecord, PersistenceProvider, PointerRecord, SchemaMode, StoreErrorKind},
    },
};
use latchwork_lock_local::LocalLocks;
use latchwork_persistence_memory::MemoryStore;
use latchwork_persistence_sqlite::SqliteStore;
use latchwork_queue_local::{LocalQueue, LocalQueueOptions};
use latchwork_sqlite_client::SqliteOptions;
use std::{ops::Deref, pin::Pin, sync::Mutex};

/// Longest that a test waits, by the real clock, for what needs no time of the virtual one: far more than it ever takes.
const LONGEST: Duration = Duration::from_secs(120);

/// The data of most test workflows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Data {
    pub n: i64,
    pub text: String,
    pub items: Vec<i64>,
    pub log: Vec<String>,
}

impl Data {
    pub fn n(n: i64) -> Self {
        Self { n, ..Self::default() }
    }

    pub fn items(items: impl IntoIterator<Item = i64>) -> Self {
        Self { items: items.into_iter().collect(), ..Self::default() }
    }

    /// The log, sorted: for what runs in no fixed order.
    pub fn sorted(mut self) -> Vec<String> {
        self.log.sort();
        self.log
    }
}

/// `workflow!(Name, |flow| { ... })`: a workflow over [`Data`] (or `Name: Type`), whose id is its name. A version can be given: `Name = 2`.
macro_rules! workflow {
    ($name:ident, |$flow:ident| $build:expr) => { workflow!($name: Data = 1 as stringify!($name), |$flow| $build); };
    ($name:ident: $data:ty, |$flow:ident| $build:expr) => { workflow!($name: $data = 1 as stringify!($name), |$flow| $build); };
    ($name:ident: $data:ty = $version:literal as $id:expr, |$flow:ident| $build:expr) => {
        struct $name;
        impl Workflow for $name {
            type Data = $data;
            const ID: &'static str = $id;
            const VERSION: u32 = $version;
            fn build(&self, $flow: &mut WorkflowBuilder<$data>) {
                $build;
            }
        }
    };
}

/// Makes each scenario a test on each store.
#[allow(unused_macros, reason = "not all tests need a store")]
macro_rules! on_each_store {
    ($($(#[$attribute:meta])* async fn $name:ident($world:ident: World) $body:block)*) => {$(
        mod $name {
            use super::*;

            $(#[$attribute])*
            async fn scenario($world: World) $body

            #[tokio::test]
            async fn memory() {
                scenario(World::memory()).await;
            }

            #[tokio::test]
            async fn sqlite() {
                scenario(World::sqlite().await).await;
            }
        }
    )*};
}

/// The hosts that are neither stopped nor killed.
type Hosts = Arc<Mutex<Vec<WorkflowHost>>>;

type Open = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Arc<dyn PersistenceProvider>, BoxError>> + Send>> + Send + Sync>;

/// One store, one lock service, one queue, one clock.
pub struct World {
    pub clock: VirtualClock,
    pub probe: Probe,
    open: Open,
    /// For a look at what is stored, whatever becomes of the nodes.
    look: Arc<dyn PersistenceProvider>,
    single_node: bool,
    /// How often nothing must be seen to happen before it is believed.
    patience: usize,
    hosts: Hosts,
    _folder: Option<tempfile::TempDir>,
    locks: LocalLocks,
    queue: Mutex<LocalQueue>,
}

impl World {
    pub fn memory() -> Self {
        let clock = VirtualClock::new();
        let store = MemoryStore::with_clock(Arc::new(clock.clone()));
        let look = Arc::new(store.clone());
        let open: Open = Arc::new(move || {
            let store = store.clone();
            Box::pin(async move { Ok(Arc::new(store) as Arc<dyn PersistenceProvider>) })
        });
        Self::new(clock, open, look, None)
    }

    pub async fn sqlite() -> Self {
        let clock = VirtualClock::new();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("world.db");
        let context = ProviderContext::new(Namespace::default(), "test").with_clock(Arc::new(clock.clone()));
        let open: Open = Arc::new(move || {
            let (path, context) = (path.clone(), context.clone());
            Box::pin(async move {
                // Each node has resources of its own, as if it were a process.
                let context = ProviderContext::new(context.namespace, "node").with_clock(context.clock);
                let store = SqliteStore::open(SqliteOptions::new(path), &context).await?;
                Ok(Arc::new(store) as Arc<dyn PersistenceProvider>)
            })
        });
        let look = open().await.expect("a store");
        look.prepare(SchemaMode::Migrate).await.expect("a schema");
        Self::new(clock, open, look, Some(folder))
    }

    fn new(clock: VirtualClock, open: Open, look: Arc<dyn PersistenceProvider>, folder: Option<tempfile::TempDir>) -> Self {
        let queue = Mutex::new(queue(&clock));
        let single_node = look.capabilities().scope > latchwork::core::Scope::Process;
        let (locks, hosts, patience) = (LocalLocks::new(), Hosts::default(), if folder.is_some() { 3 } else { 1 });
        Self { clock, probe: Probe::default(), open, look, single_node, patience, hosts, _folder: folder, locks, queue }
    }

    /// The store's file, if it has one.
    pub fn file(&self) -> Option<std::path::PathBuf> {
        self._folder.as_ref().map(|folder| folder.path().join("world.db"))
    }

    pub fn is_memory(&self) -> bool {
        self._folder.is_none()
    }

    /// The store, for a look.
    pub fn store(&self) -> &Arc<dyn PersistenceProvider> {
        &self.look
    }

    /// The queue is lost, with all in it.
    pub fn lose_queue(&self) {
        *self.queue.lock().expect("no panic") = queue(&self.clock);
    }

    /// A node that is yet to be started.
    pub fn node(&self) -> NodeBuilder {
        let open = self.open.clone();
        let locks = FaultyLocks::new(self.locks.peer());
        let queue = FaultyQueue::new(self.queue.lock().expect("no panic").clone());
        let means = Means {
            store: Faults::default(),
            locks: locks.faults().clone(),
            losses: locks.losses(),
            queue: queue.faults().clone(),
            disorder: queue.disorder().clone(),
        };
        let (clock, faults, single_node) = (self.clock.clone(), means.store.clone(), self.single_node);
        let builder = WorkflowHost::builder().service(self.probe.clone()).configure(|options| {
            options.clock = Arc::new(clock);
            // All nodes are in this process, so its locks will do.
            options.single_node = single_node;
            options.use_persistence(async move |_| Ok(FaultyStore::over(open().await?).with_faults(&faults)));
            options.use_distributed_lock_manager(async move |_| Ok(locks));
            options.use_queue_provider(async move |_| Ok(queue));
        });
        NodeBuilder { builder, means, hosts: self.hosts.clone() }
    }

    /// A node with this workflow.
    pub async fn run<W: Workflow>(&self, workflow: W) -> TestNode {
        self.node().with(|b| b.workflow(workflow)).start().await
    }

    /// The node is gone at once, as by `kill -9`: it writes nothing more, its locks are free, its queue and hints are lost.
    pub fn kill(&self, node: TestNode) {
        let means = &node.means;
        means.store.on_any().fail(StoreErrorKind::Unavailable);
        means.queue.on_any().fail(QueueFault::Unavailable);
        means.locks.on(LockCall::Acquire).fail(LockFault::Unavailable);
        means.losses.lose_silently("");
        self.lose_queue();
        drop(node);
    }

    /// Lets time fly until this resolves, a second at a time.
    pub async fn fly<F: IntoFuture>(&self, future: F) -> F::Output {
        self.fly_by(Duration::from_secs(1), future).await
    }

    /// Lets time fly until this resolves, so much at a time.
    pub async fn fly_by<F: IntoFuture>(&self, step: Duration, future: F) -> F::Output {
        let mut future = std::pin::pin!(future.into_future());
        for _ in 0..2_000 {
            tokio::select! {
                biased;
                output = &mut future => return output,
                () = self.rest() => self.clock.advance(step),
            }
        }
        panic!("it did not come to pass, however long the clock ran");
    }

    /// Lets so much time go by, in steps that are short beside a poll, with the nodes doing what they have to do in each.
    pub async fn pass(&self, span: Duration) {
        let step = (span / 30).max(Duration::from_secs(1));
        let mut left = span;
        while !left.is_zero() {
            let step = step.min(left);
            self.clock.advance(step);
            self.rest().await;
            left -= step;
        }
    }

    /// Gives the nodes time to do what there is to do at this moment of the clock: until none has a burst and all that sleep have gone
    /// to sleep, as far as can be seen from outside. A body that is held at a gate is not waited for.
    pub async fn rest(&self) {
        let (mut before, mut same) = (usize::MAX, 0);
        for _ in 0..5 * self.patience {
            settle().await;
            let sleepers = self.clock.sleepers();
            same = if self.active() == 0 && sleepers == before { same + 1 } else { 0 };
            before = sleepers;
            if same >= self.patience {
                return;
            }
        }
    }

    fn active(&self) -> usize {
        self.hosts.lock().expect("no panic").iter().map(|host| host.health().active).sum()
    }

    /// Awaits that no node has a burst, with the clock standing still.
    pub async fn quiet(&self) {
        self.soon_until(async || self.active() == 0).await;
        self.rest().await;
    }

    /// Awaits this with the clock standing still.
    pub async fn soon<F: IntoFuture>(&self, future: F) -> F::Output {
        tokio::time::timeout(LONGEST, future).await.expect("it comes to pass without the clock")
    }

    /// Lets time fly until the condition holds.
    pub async fn fly_until(&self, condition: impl AsyncFn() -> bool) {
        self.fly(until(condition)).await;
    }

    /// Awaits the condition with the clock standing still.
    pub async fn soon_until(&self, condition: impl AsyncFn() -> bool) {
        self.soon(until(condition)).await;
    }
}

fn queue(clock: &VirtualClock) -> LocalQueue {
    LocalQueue::with_options(LocalQueueOptions::default().with_clock(Arc::new(clock.clone()))).expect("sound options")
}

/// Lets other tasks run: nothing tells a test that the tasks of a host have nothing left to do, so this sleeps a moment.
pub async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Resolves when the condition holds.
pub async fn until(condition: impl AsyncFn() -> bool) {
    while !condition().await {
        settle().await;
    }
}

/// Means to trouble a node.
#[derive(Clone, Debug)]
pub struct Means {
    pub store: Faults<StoreCall, StoreErrorKind>,
    pub locks: Faults<LockCall, LockFault>,
    pub losses: Losses,
    pub queue: Faults<QueueCall, QueueFault>,
    pub disorder: Disorder,
}

pub struct NodeBuilder {
    builder: WorkflowHostBuilder,
    pub means: Means,
    hosts: Hosts,
}

impl NodeBuilder {
    pub fn with(mut self, change: impl FnOnce(WorkflowHostBuilder) -> WorkflowHostBuilder) -> Self {
        self.builder = change(self.builder);
        self
    }

    pub async fn start(self) -> TestNode {
        self.try_start().await.expect("the host starts")
    }

    pub async fn try_start(self) -> Result<TestNode, HostError> {
        let host = self.builder.start().await?;
        self.hosts.lock().expect("no panic").push(host.clone());
        Ok(TestNode { host, means: self.means, hosts: self.hosts })
    }
}

/// A host, and the means to trouble it.
pub struct TestNode {
    pub host: WorkflowHost,
    pub means: Means,
    hosts: Hosts,
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.hosts.lock().expect("no panic").retain(|host| host.node_id() != self.host.node_id());
    }
}

impl Deref for TestNode {
    type Target = WorkflowHost;

    fn deref(&self) -> &WorkflowHost {
        &self.host
    }
}

impl TestNode {
    /// Starts an instance.
    pub async fn begin<W: Workflow>(&self, data: W::Data) -> WorkflowHandle<W> {
        self.host.start_workflow::<W>(data).await.expect("started")
    }

    /// Stops cleanly, with the clock standing still, and checks that nothing was left running.
    pub async fn stop_clean(self) {
        let stopped = tokio::time::timeout(LONGEST, self.host.stop()).await.expect("nothing is waited for");
        assert_eq!(stopped.expect("stopped").unfinished, []);
        assert_eq!(self.host.health().active, 0, "bursts that go on after the stop");
    }
}

/// Looks at instances.
pub trait Look {
    async fn record(&self) -> InstanceRecord;
    async fn is(&self, status: WorkflowStatus) -> bool;
    async fn reason(&self) -> String;
    async fn all_errors(&self) -> Vec<ErrorRecord>;
    async fn pointers(&self) -> Vec<PointerRecord>;
}

impl Look for latchwork::InstanceHandle {
    async fn record(&self) -> InstanceRecord {
        self.get().await.expect("it is there")
    }

    async fn is(&self, status: WorkflowStatus) -> bool {
        self.status().await.expect("it is there") == status
    }

    async fn reason(&self) -> String {
        match self.record().await {
            InstanceRecord::Instance { header, .. } => header.reason.unwrap_or_default(),
            InstanceRecord::Deleted(_) => String::new(),
        }
    }

    async fn all_errors(&self) -> Vec<ErrorRecord> {
        self.errors().await.expect("errors")
    }

    async fn pointers(&self) -> Vec<PointerRecord> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let page = self.history(after, 1_000).await.expect("history");
            after = page.items.last().map_or(after, |last| last.sequence);
            all.extend(page.items);
            if !page.more {
                return all;
            }
        }
    }
}

/// The locks of this test, for tests that hold one themselves.
impl World {
    pub fn own_locks(&self) -> impl DistributedLockProvider {
        self.locks.peer()
    }

    pub fn now(&self) -> latchwork::clock::Timestamp {
        self.clock.now()
    }
}
