//! Lanes: what is asked often, so that all that waits at the same moment shares a round trip.

use crate::{checkpoint, create, error::Failure, event, inbox, load, server::Server};
use latchwork_core::{
    limits::{GROUP_BYTES, GROUP_CHECKPOINTS, STATEMENT_ROWS},
    queue::WorkItem,
    store::{
        AppendOutcome, Checkpoint, CheckpointOutcome, Control, CreateOutcome, InstanceId, LoadedInstance, NewEvent, NewInstance,
    },
};
use std::{collections::HashMap, fmt, sync::Arc};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::task::TaskTracker;

/// How many instances are read at once.
const LOADS: usize = 64;
/// How often an instance is read again because a checkpoint came between.
const READS: u32 = 10;

/// What a lane is for.
pub(crate) trait Work: Send + Sync + 'static {
    type Item: Clone + Send + Sync + 'static;
    type Answer: Send + 'static;

    /// Does it for all of them, in order. After a failure that may be that of a single one it is asked for each alone.
    fn run(&self, server: &Server, items: &[Self::Item]) -> impl Future<Output = Result<Vec<Self::Answer>, Failure>> + Send;

    /// Roughly what an item sends.
    fn bytes(&self, item: &Self::Item) -> usize;

    fn max_items(&self) -> usize {
        GROUP_CHECKPOINTS
    }
}

/// An item, and who waits for its answer.
type Asked<W> = (<W as Work>::Item, oneshot::Sender<Result<<W as Work>::Answer, Failure>>);

/// What waits, shared by the tasks of a lane.
struct Queue<W: Work> {
    asked: mpsc::UnboundedReceiver<Asked<W>>,
    /// The first that did not fit into the group before.
    next: Option<Asked<W>>,
}

/// Items on their way to the server. Its tasks end with it, after what was given before.
pub(crate) struct Lane<W: Work> {
    asked: mpsc::UnboundedSender<Asked<W>>,
}

impl<W: Work> fmt::Debug for Lane<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

/// An answer that is on its way. What was asked is done also when this is dropped.
pub(crate) struct Ticket<A>(oneshot::Receiver<Result<A, Failure>>);

impl<A> Ticket<A> {
    pub(crate) async fn answer(self) -> Result<A, Failure> {
        let lost = |_| Failure::from(latchwork_sqlserver_client::SqlServerError::Stopped);
        self.0.await.unwrap_or_else(|error| Err(lost(error)))
    }
}

impl<W: Work> Lane<W> {
    /// A lane whose groups are sent by so many tasks of `tasks`, each one at a time.
    pub(crate) fn new(work: W, server: &Server, tasks: &TaskTracker, width: usize) -> Self {
        let (sender, asked) = mpsc::unbounded_channel();
        let queue = Arc::new(Mutex::new(Queue::<W> { asked, next: None }));
        let work = Arc::new(work);
        for _ in 0..width {
            let (work, server, queue) = (work.clone(), server.clone(), queue.clone());
            tasks.spawn(async move {
                while let Some(group) = Self::group(&*work, &queue).await {
                    Self::serve(&*work, &server, group).await;
                }
            });
        }
        Self { asked: sender }
    }

    /// Queues an item. Several that are queued before the first is awaited go together.
    pub(crate) fn enqueue(&self, item: W::Item) -> Ticket<W::Answer> {
        let (reply, answer) = oneshot::channel();
        // Refused only when the tasks have ended; the ticket then says so.
        let _ = self.asked.send((item, reply));
        Ticket(answer)
    }

    pub(crate) async fn submit(&self, item: W::Item) -> Result<W::Answer, Failure> {
        self.enqueue(item).answer().await
    }

    /// All that waits, as far as it fits into a group; `None` when nothing will come any more.
    async fn group(work: &W, queue: &Mutex<Queue<W>>) -> Option<Vec<Asked<W>>> {
        // Held while the first is awaited: the other tasks of the lane would wait for the same.
        let mut queue = queue.lock().await;
        let first = match queue.next.take() {
            Some(first) => first,
            None => queue.asked.recv().await?,
        };
        let mut bytes = work.bytes(&first.0);
        let mut group = vec![first];
        while group.len() < work.max_items() {
            let Ok(asked) = queue.asked.try_recv() else { break };
            bytes = bytes.saturating_add(work.bytes(&asked.0));
            if bytes > GROUP_BYTES {
                queue.next = Some(asked);
                break;
            }
            group.push(asked);
        }
        Some(group)
    }

    async fn serve(work: &W, server: &Server, group: Vec<Asked<W>>) {
        let (items, replies): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        match work.run(server, &items).await {
            Ok(answers) => {
                for (reply, answer) in replies.into_iter().zip(answers) {
                    // Nobody may wait any more; it is done all the same.
                    let _ = reply.send(Ok(answer));
                }
            }
            Err(error) if error.concerns_all() || items.len() == 1 => {
                for reply in replies {
                    let _ = reply.send(Err(error.clone()));
                }
            }
            // One bad value must not fail its neighbours.
            Err(_) => {
                for (item, reply) in items.iter().zip(replies) {
                    let answer = work.run(server, std::slice::from_ref(item)).await;
                    let _ = reply.send(answer.and_then(|mut answers| answers.pop().ok_or_else(|| Failure::corrupt("no answer"))));
                }
            }
        }
    }
}

/// Checkpoints.
#[derive(Debug)]
pub(crate) struct Checkpoints;

impl Work for Checkpoints {
    type Item = Arc<Checkpoint>;
    type Answer = CheckpointOutcome;

    async fn run(&self, server: &Server, items: &[Arc<Checkpoint>]) -> Result<Vec<CheckpointOutcome>, Failure> {
        // Checkpoints of different calls meet here, so that one instance can have several: each goes into a round of its own.
        let mut rounds: Vec<Vec<(usize, Arc<Checkpoint>)>> = Vec::new();
        let mut seen: HashMap<&InstanceId, usize> = HashMap::new();
        for (at, checkpoint) in items.iter().enumerate() {
            let round = *seen.entry(&checkpoint.instance).and_modify(|round| *round += 1).or_default();
            if rounds.len() <= round {
                rounds.push(Default::default());
            }
            if let Some(members) = rounds.get_mut(round) {
                members.push((at, checkpoint.clone()));
            }
        }
        let mut answers = Vec::with_capacity(items.len());
        for mut round in rounds {
            round.sort_unstable_by(|(_, one), (_, other)| one.instance.cmp(&other.instance));
            let (places, members): (Vec<usize>, Vec<Arc<Checkpoint>>) = round.into_iter().unzip();
            let rows = server.ask(checkpoint::write(&members)?).await?;
            answers.extend(places.into_iter().zip(checkpoint::written(&members, rows)?));
        }
        answers.sort_unstable_by_key(|(at, _)| *at);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    fn bytes(&self, item: &Arc<Checkpoint>) -> usize {
        item.weight()
    }
}

/// Calls of create.
#[derive(Debug)]
pub(crate) struct Creates;

impl Work for Creates {
    type Item = Arc<[NewInstance]>;
    type Answer = Vec<CreateOutcome>;

    async fn run(&self, server: &Server, items: &[Arc<[NewInstance]>]) -> Result<Vec<Vec<CreateOutcome>>, Failure> {
        let all: Vec<&NewInstance> = items.iter().flat_map(|call| call.iter()).collect();
        let mut answers = Vec::with_capacity(all.len());
        for some in all.chunks(STATEMENT_ROWS) {
            let rows = server.ask(create::create(some.iter().copied())?).await?;
            answers.extend(create::created(some.len(), rows)?);
        }
        Ok(by_call(items.iter().map(|call| call.len()), answers))
    }

    fn bytes(&self, item: &Arc<[NewInstance]>) -> usize {
        item.iter().map(|instance| 512 + instance.data.as_str().len()).sum()
    }
}

/// Calls of publish.
#[derive(Debug)]
pub(crate) struct Publishes;

impl Work for Publishes {
    type Item = Arc<[NewEvent]>;
    type Answer = Vec<WorkItem>;

    async fn run(&self, server: &Server, items: &[Arc<[NewEvent]>]) -> Result<Vec<Vec<WorkItem>>, Failure> {
        let all: Vec<&NewEvent> = items.iter().flat_map(|call| call.iter()).collect();
        let mut woken = Vec::with_capacity(all.len());
        for some in all.chunks(STATEMENT_ROWS) {
            let rows = server.ask(event::publish(some)?).await?;
            woken.extend(event::published(some, rows)?);
        }
        let calls = by_call(items.iter().map(|call| call.len()), woken);
        Ok(calls.into_iter().map(|woken| event::each_once(woken.into_iter().flatten())).collect())
    }

    fn bytes(&self, item: &Arc<[NewEvent]>) -> usize {
        item.iter().map(|event| 256 + event.data.as_ref().map_or(0, |data| data.as_str().len())).sum()
    }
}

/// Calls of append.
#[derive(Debug)]
pub(crate) struct Appends;

impl Work for Appends {
    type Item = Arc<[(InstanceId, Control)]>;
    type Answer = Vec<AppendOutcome>;

    async fn run(&self, server: &Server, items: &[Arc<[(InstanceId, Control)]>]) -> Result<Vec<Vec<AppendOutcome>>, Failure> {
        let all: Vec<&(InstanceId, Control)> = items.iter().flat_map(|call| call.iter()).collect();
        let mut answers = Vec::with_capacity(all.len());
        for some in all.chunks(STATEMENT_ROWS) {
            let rows = server.ask(inbox::append(some.iter().copied())?).await?;
            answers.extend(inbox::appended(some.len(), rows)?);
        }
        Ok(by_call(items.iter().map(|call| call.len()), answers))
    }

    fn bytes(&self, item: &Arc<[(InstanceId, Control)]>) -> usize {
        512 * item.len()
    }
}

/// Gives each call, of which the lengths are known, its part of the answers.
fn by_call<A>(lengths: impl Iterator<Item = usize>, answers: Vec<A>) -> Vec<Vec<A>> {
    let mut answers = answers.into_iter();
    lengths.map(|length| answers.by_ref().take(length).collect()).collect()
}

/// Instances to be read.
#[derive(Debug)]
pub(crate) struct Loads;

impl Work for Loads {
    type Item = InstanceId;
    type Answer = Option<LoadedInstance>;

    async fn run(&self, server: &Server, items: &[InstanceId]) -> Result<Vec<Option<LoadedInstance>>, Failure> {
        let mut found: HashMap<&InstanceId, Option<LoadedInstance>> = HashMap::new();
        for _ in 0..READS {
            let mut wanted: Vec<&InstanceId> = items.iter().filter(|id| !found.contains_key(id)).collect();
            wanted.sort_unstable();
            wanted.dedup();
            if wanted.is_empty() {
                break;
            }
            let rows = server.ask(load::load(&wanted)?).await?;
            for (id, (instance, revision)) in wanted.iter().zip(load::loaded(wanted.len(), rows)?) {
                if instance.as_ref().map(|instance| instance.header.revision) == revision {
                    found.insert(id, instance);
                }
            }
        }
        let busy =
            || Failure::from(latchwork_sqlserver_client::SqlServerError::closed("an instance was written whenever it was read"));
        items.iter().map(|id| found.get(id).cloned().ok_or_else(busy)).collect()
    }

    fn bytes(&self, _: &InstanceId) -> usize {
        0
    }

    fn max_items(&self) -> usize {
        LOADS
    }
}
