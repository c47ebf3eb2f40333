use latchwork_core::{
    limits,
    store::{Checkpoint, CheckpointOutcome, PersistenceProvider, StoreError, StoreErrorKind},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Groups in flight at the same time: while the store writes one, the next is made ready.
const GROUPS: usize = 2;

/// Writes the checkpoints of many bursts together.
#[derive(Debug)]
pub(crate) struct Committer {
    store: Arc<dyn PersistenceProvider>,
    /// `None`: the store has no use for groups.
    queue: Option<Queue>,
    closed: CancellationToken,
}

#[derive(Debug)]
struct Queue {
    jobs: mpsc::UnboundedSender<Job>,
    /// Jobs that no group has taken yet.
    waiting: Arc<AtomicUsize>,
    /// One permit for each group in flight.
    room: Arc<Semaphore>,
}

#[derive(Debug)]
struct Job {
    checkpoint: Arc<Checkpoint>,
    lost: CancellationToken,
    answer: oneshot::Sender<Option<CheckpointOutcome>>,
}

impl Committer {
    /// A committer over this store; its task ends with it.
    pub(crate) fn new(store: Arc<dyn PersistenceProvider>, tasks: &TaskTracker) -> Self {
        let closed = CancellationToken::new();
        let queue = store.capabilities().group_commit.then(|| {
            // Bounded by the bursts: each has at most one checkpoint in flight.
            let (jobs, taken) = mpsc::unbounded_channel();
            let queue = Queue { jobs, waiting: Arc::default(), room: Arc::new(Semaphore::new(GROUPS)) };
            tasks.spawn(write_groups(store.clone(), taken, queue.waiting.clone(), queue.room.clone(), closed.clone()));
            queue
        });
        Self { store, queue, closed }
    }

    /// Takes nothing more; what was handed over is written.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    /// Writes a checkpoint; `None` when its lock was lost before it was handed over.
    pub(crate) async fn commit(&self, checkpoint: Arc<Checkpoint>, lost: &CancellationToken) -> Option<CheckpointOutcome> {
        let Some(queue) = &self.queue else { return self.commit_alone(checkpoint, lost).await };
        // With nobody waiting there is no group to wait for, and nothing to gain by a task in between.
        if queue.waiting.load(Ordering::Relaxed) == 0
            && let Ok(_room) = queue.room.try_acquire()
        {
            return self.commit_alone(checkpoint, lost).await;
        }
        let (answer, answered) = oneshot::channel();
        queue.waiting.fetch_add(1, Ordering::Relaxed);
        if queue.jobs.send(Job { checkpoint, lost: lost.clone(), answer }).is_err() {
            return Some(no_answer());
        }
        answered.await.unwrap_or_else(|_| Some(no_answer()))
    }

    async fn commit_alone(&self, checkpoint: Arc<Checkpoint>, lost: &CancellationToken) -> Option<CheckpointOutcome> {
        if lost.is_cancelled() {
            return None;
        }
        metrics::histogram!("latchwork.commit.group").record(1.0);
        let outcomes = self.store.commit(vec![checkpoint]).await;
        Some(outcomes.into_iter().next().unwrap_or_else(no_answer))
    }
}

fn no_answer() -> CheckpointOutcome {
    CheckpointOutcome::Failed(StoreError::new(StoreErrorKind::Unavailable, "configured", "answer a checkpoint"))
}

async fn write_groups(
    store: Arc<dyn PersistenceProvider>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    waiting: Arc<AtomicUsize>,
    room: Arc<Semaphore>,
    closed: CancellationToken,
) {
    let in_flight = TaskTracker::new();
    let mut held_back = None;
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { break };
        let first = match held_back.take() {
            Some(job) => job,
            None => match closed.run_until_cancelled(jobs.recv()).await.flatten().or_else(|| jobs.try_recv().ok()) {
                Some(job) => job,
                None => break,
            },
        };
        let mut bytes = first.checkpoint.weight();
        let mut group = vec![first];
        while group.len() < limits::GROUP_CHECKPOINTS
            && let Ok(job) = jobs.try_recv()
        {
            bytes += job.checkpoint.weight();
            if bytes > limits::GROUP_BYTES {
                held_back = Some(job);
                break;
            }
            group.push(job);
        }
        waiting.fetch_sub(group.len(), Ordering::Relaxed);
        let store = store.clone();
        in_flight.spawn(async move {
            write_group(&*store, group).await;
            drop(permit);
        });
    }
    in_flight.close();
    in_flight.wait().await;
}

async fn write_group(store: &dyn PersistenceProvider, group: Vec<Job>) {
    // Those whose lock was lost are not handed over.
    let (lost, group): (Vec<_>, Vec<_>) = group.into_iter().partition(|job| job.lost.is_cancelled());
    for job in lost {
        let _ = job.answer.send(None);
    }
    if group.is_empty() {
        return;
    }
    metrics::histogram!("latchwork.commit.group").record(group.len() as f64);
    let (checkpoints, answers): (Vec<_>, Vec<_>) = group.into_iter().map(|job| (job.checkpoint, job.answer)).unzip();
    let mut outcomes = store.commit(checkpoints).await.into_iter();
    for answer in answers {
        let _ = answer.send(Some(outcomes.next().unwrap_or_else(no_answer)));
    }
}
