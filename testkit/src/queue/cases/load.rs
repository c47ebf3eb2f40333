use crate::queue::{
    Fault, QueueFixture, Verdict,
    tools::{QUEUE, QUIET, ensure, hint, hints, take},
};
use latchwork_core::{
    queue::{QueueProvider, WorkItem},
    store::InstanceId,
};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// 10,000 hints for one instance leave few of them waiting, and cost a consumer few deliveries.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn k12_copies_of_a_waiting_hint_are_bounded<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (first, second) = (fixture.node().await?, fixture.node().await?);
    let most = fixture.most_copies();
    let (item, other) = (hint(), hint());
    let batch = vec![item.clone(); 50];
    first.enqueue(QUEUE, std::slice::from_ref(&other)).await?;
    for _ in 0..100 {
        first.enqueue(QUEUE, &batch).await?;
        second.enqueue(QUEUE, &batch).await?;
    }
    let waiting = first.depth(QUEUE).await?.waiting;
    ensure!(
        waiting <= most + 1,
        "after 10,000 hints for one instance and one for another, {waiting} wait; at most {most} + 1 may"
    );
    let mut came = 0;
    loop {
        let wait = if came == 0 { fixture.arrival_within() } else { QUIET };
        let taken = second.dequeue(QUEUE, 100, wait).await?;
        if taken.is_empty() {
            break;
        }
        for delivery in taken {
            came += u64::from(delivery.item() == &item);
            delivery.ack().await?;
        }
    }
    ensure!(came >= 1, "none of 10,000 hints for one instance came");
    ensure!(came <= most, "{came} copies of one hint came; at most {most} may");
    Ok(Verdict::Passed)
}

/// Two nodes share 1,000 hints: each hint comes, and never to both while one has it in hand, however long; each node keeps
/// the first hints it gets until all the others are done.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn consumers_share_the_work<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let nodes = [Arc::new(fixture.node().await?), Arc::new(fixture.node().await?)];
    let items = hints(1_000);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut tasks: JoinSet<Result<(), Fault>> = JoinSet::new();
    for (node, part) in nodes.iter().zip(items.chunks(500)) {
        let (node, part) = (node.clone(), part.to_vec());
        tasks.spawn(async move {
            for batch in part.chunks(25) {
                node.enqueue(QUEUE, batch).await?;
            }
            Ok(())
        });
    }
    for node in &nodes {
        tasks.spawn(consume(node.clone(), seen.clone(), items.len(), fixture.arrival_within()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(items.iter().all(|item| seen.done.contains(&item.instance)), "a hint that nobody queued came, and one is missing");
    Ok(Verdict::Passed)
}

/// What two consumers have seen together.
#[derive(Default)]
struct Seen {
    in_hand: HashSet<InstanceId>,
    done: HashSet<InstanceId>,
    /// In hand until all others are done.
    long: usize,
}

impl Seen {
    fn under_way(&self) -> usize {
        self.done.len() + self.long
    }

    fn finish(&mut self, instance: &InstanceId) {
        self.in_hand.remove(instance);
        self.done.insert(instance.clone());
    }
}

/// Takes hints until `total` are done or in long work, and then ends the long work.
async fn consume(node: Arc<impl QueueProvider>, seen: Arc<Mutex<Seen>>, total: usize, patience: Duration) -> Result<(), Fault> {
    let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    let mut long = Vec::new();
    let mut last = Instant::now();
    while lock().under_way() < total {
        let taken = node.dequeue(QUEUE, 32, Duration::from_millis(50)).await?;
        if taken.is_empty() {
            ensure!(last.elapsed() < patience, "hints are missing, and none came for {patience:?}");
            continue;
        }
        last = Instant::now();
        for delivery in &taken {
            let free = lock().in_hand.insert(delivery.item().instance.clone());
            ensure!(free, "{:?} came while it was in hand", delivery.item());
        }
        if long.is_empty() {
            lock().long += taken.len();
            long = taken;
            continue;
        }
        tokio::task::yield_now().await;
        for delivery in taken {
            lock().finish(&delivery.item().instance);
            delivery.ack_later();
        }
    }
    for delivery in long {
        let mut seen = lock();
        seen.long -= 1;
        seen.finish(&delivery.item().instance);
        drop(seen);
        delivery.ack_later();
    }
    Ok(())
}

/// A dequeue whose future is dropped at any moment loses nothing: what it had taken comes again.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_dropped_dequeue_loses_nothing<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (sender, receiver) = (fixture.node().await?, fixture.node().await?);
    let items = hints(100);
    let mut missing: HashSet<WorkItem> = items.iter().cloned().collect();
    for (number, item) in (0..).zip(&items) {
        // Dropped after it was polled once, and at later moments, before and after the hint is there.
        let patience = Duration::from_micros(150) * (number % 10);
        let taken = {
            let dequeue = receiver.dequeue(QUEUE, 10, Duration::from_secs(5));
            let mut dequeue = std::pin::pin!(tokio::time::timeout(patience, dequeue));
            let early = tokio::select! {
                biased;
                ended = &mut dequeue => Some(ended),
                queued = sender.enqueue(QUEUE, std::slice::from_ref(item)) => { queued?; None }
            };
            match early {
                Some(ended) => {
                    sender.enqueue(QUEUE, std::slice::from_ref(item)).await?;
                    ended
                }
                None => dequeue.await,
            }
        };
        if let Ok(taken) = taken {
            for delivery in taken? {
                missing.remove(delivery.item());
                delivery.ack_later();
            }
        }
    }
    while !missing.is_empty() {
        let expected = "a hint whose dequeue may have been dropped";
        for delivery in take(&receiver, 10, fixture.redelivery_within(), expected).await? {
            missing.remove(delivery.item());
            delivery.ack_later();
        }
    }
    Ok(Verdict::Passed)
}
