//! What the tests share: a world of one store, one lock service and one queue on a virtual clock, in which nodes are started,
//! stopped and killed, and a probe that sees and steers the bodies of steps.

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
        clock::Clock,
        lock::DistributedLockProvider,
        store::{ErrorRecord, InstanceRecord, PersistenceProvider, PointerRecord, StoreErrorKind},
    },
};
use latchwork_lock_local::LocalLocks;
use latchwork_persistence_memory::MemoryStore;
use latchwork_queue_local::{LocalQueue, LocalQueueOptions};
use std::{ops::Deref, sync::Mutex};

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
        }
    )*};
}

/// One store, one lock service, one queue, one clock.
pub struct World {
    pub clock: VirtualClock,
    pub probe: Probe,
    open: Box<dyn Fn() -> Arc<dyn PersistenceProvider> + Send + Sync>,
    locks: LocalLocks,
    queue: Mutex<LocalQueue>,
}

impl World {
    pub fn memory() -> Self {
        let clock = VirtualClock::new();
        let store = MemoryStore::with_clock(Arc::new(clock.clone()));
        Self::new(clock, move || Arc::new(store.clone()))
    }

    fn new(clock: VirtualClock, open: impl Fn() -> Arc<dyn PersistenceProvider> + Send + Sync + 'static) -> Self {
        let queue = Mutex::new(queue(&clock));
        Self { clock, probe: Probe::default(), open: Box::new(open), locks: LocalLocks::new(), queue }
    }

    /// A handle to the store that no host has.
    pub fn store(&self) -> Arc<dyn PersistenceProvider> {
        (self.open)()
    }

    /// The queue is lost, with all in it.
    pub fn lose_queue(&self) {
        *self.queue.lock().expect("no panic") = queue(&self.clock);
    }

    /// A node that is yet to be started.
    pub fn node(&self) -> NodeBuilder {
        let store = FaultyStore::over(self.store());
        let locks = FaultyLocks::new(self.locks.peer());
        let queue = FaultyQueue::new(self.queue.lock().expect("no panic").clone());
        let means = Means {
            store: store.faults().clone(),
            locks: locks.faults().clone(),
            losses: locks.losses(),
            queue: queue.faults().clone(),
            disorder: queue.disorder().clone(),
        };
        let clock = self.clock.clone();
        let builder = WorkflowHost::builder().service(self.probe.clone()).configure(|options| {
            options.clock = Arc::new(clock);
            options.use_persistence(async move |_| Ok(store));
            options.use_distributed_lock_manager(async move |_| Ok(locks));
            options.use_queue_provider(async move |_| Ok(queue));
        });
        NodeBuilder { builder, means }
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
        for _ in 0..20_000 {
            tokio::select! {
                biased;
                output = &mut future => return output,
                () = settle() => self.clock.advance(step),
            }
        }
        panic!("it did not come to pass, however long the clock ran");
    }

    /// Lets so much time go by, a second at a time, with the nodes doing what they have to do in each.
    pub async fn pass(&self, span: Duration) {
        for _ in 0..span.as_secs() {
            self.clock.advance(Duration::from_secs(1));
            settle().await;
        }
    }

    /// Awaits this with the clock standing still.
    pub async fn soon<F: IntoFuture>(&self, future: F) -> F::Output {
        tokio::time::timeout(Duration::from_secs(20), future).await.expect("it comes to pass without the clock")
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
        Ok(TestNode { host: self.builder.start().await?, means: self.means })
    }
}

/// A host, and the means to trouble it.
pub struct TestNode {
    pub host: WorkflowHost,
    pub means: Means,
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

    /// Stops cleanly, and checks that nothing was left running.
    pub async fn stop_clean(self) {
        assert_eq!(self.host.stop().await.expect("stopped").unfinished, []);
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
