use crate::queue::{
    Fault, QueueFixture, Verdict,
    tools::{NEVER, QUEUE, QUIET, ensure, hint, hints, nothing_comes, take, take_this},
};
use latchwork_core::{
    queue::{QueueProvider, WorkItem},
    store::InstanceId,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// What one node queues another gets, whole; acknowledged, it is gone.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_hint_goes_round<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (sender, receiver) = (fixture.node().await?, fixture.node().await?);
    let long_name: String = "zażółć gęślą jaźń '\"\\ ".chars().cycle().take(140).collect();
    let item = WorkItem::new(InstanceId::new(), long_name.trim(), u32::MAX);
    sender.enqueue(QUEUE, &[]).await?;
    sender.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    let delivery = take_this(&receiver, &item, fixture.arrival_within(), "the hint").await?;
    ensure!(delivery.attempt() == 1, "the first delivery has attempt {}", delivery.attempt());
    delivery.ack().await?;
    nothing_comes(&sender, QUIET, "the hint was acknowledged").await?;
    nothing_comes(&receiver, QUIET, "the hint was acknowledged").await?;
    // Acknowledged does not mean known for ever: the instance may have something to do again.
    sender.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    take_this(&receiver, &item, fixture.arrival_within(), "the hint, queued again").await?.ack().await?;
    Ok(Verdict::Passed)
}

/// One consumer gets hints in the order in which they were queued, within a batch and over batches.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn hints_come_in_order<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (sender, receiver) = (fixture.node().await?, fixture.node().await?);
    let items = hints(200);
    for batch in items.chunks(50) {
        sender.enqueue(QUEUE, batch).await?;
    }
    let mut came = Vec::new();
    while came.len() < items.len() {
        for delivery in take(&receiver, 7, fixture.arrival_within(), "the next of 200 hints").await? {
            came.push(delivery.item().clone());
            delivery.ack().await?;
        }
    }
    let first = items.iter().zip(&came).position(|(queued, came)| queued != came);
    ensure!(first.is_none() && came.len() == items.len(), "hint {first:?} of {} is out of order", came.len());
    Ok(Verdict::Passed)
}

/// A dequeue gives at most what it was asked for, and leaves the rest to others.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn no_more_than_asked_for_comes<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (first, second) = (fixture.node().await?, fixture.node().await?);
    first.enqueue(QUEUE, &hints(10)).await?;
    let held = take(&first, 3, fixture.arrival_within(), "one of 10 hints").await?;
    ensure!(held.len() <= 3, "a dequeue of at most 3 gave {} hints", held.len());
    let mut left = 10 - held.len();
    while left > 0 {
        let taken = take(&second, 4, fixture.arrival_within(), "a hint that the first consumer did not take").await?;
        ensure!(taken.len() <= 4.min(left), "a dequeue of at most 4 gave {} hints while {left} were left", taken.len());
        left -= taken.len();
        for delivery in taken {
            delivery.ack().await?;
        }
    }
    for delivery in held {
        delivery.ack().await?;
    }
    Ok(Verdict::Passed)
}

/// With nothing to do a dequeue takes its time, so that its caller does not spin; without a wait it takes none.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn an_empty_dequeue_returns_after_its_wait<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let node = fixture.node().await?;
    let wait = Duration::from_millis(300);
    let start = Instant::now();
    let taken = node.dequeue(QUEUE, 10, wait).await?;
    ensure!(taken.is_empty(), "an empty queue gave {taken:?}");
    let elapsed = start.elapsed();
    ensure!(elapsed >= wait * 9 / 10, "an empty dequeue should wait for {wait:?}, and returned after {elapsed:?}");
    let at_once = tokio::time::timeout(fixture.arrival_within(), node.dequeue(QUEUE, 10, Duration::ZERO)).await;
    ensure!(matches!(&at_once, Ok(Ok(taken)) if taken.is_empty()), "a dequeue without a wait gave {at_once:?}");
    Ok(Verdict::Passed)
}

/// A waiting consumer gets what another node queues, long before its wait ends.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_waiting_dequeue_is_woken<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (sender, receiver) = (fixture.node().await?, Arc::new(fixture.node().await?));
    let waiting = tokio::spawn({
        let receiver = receiver.clone();
        async move { receiver.dequeue(QUEUE, 10, NEVER).await }
    });
    // Long enough for the consumer to have settled down to its longest pause.
    tokio::time::sleep(Duration::from_millis(250)).await;
    let item = hint();
    sender.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    let within = fixture.arrival_within();
    let Ok(taken) = tokio::time::timeout(within, waiting).await else {
        return Err(Fault::new(format!("a waiting dequeue has nothing {within:?} after another node queued a hint")));
    };
    for delivery in taken?? {
        ensure!(delivery.item() == &item, "{:?} came", delivery.item());
        delivery.ack().await?;
    }
    Ok(Verdict::Passed)
}

/// A nacked hint comes again, not before its delay and not at once to somebody else.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_nacked_hint_comes_again_after_its_delay<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (first, second) = (fixture.node().await?, fixture.node().await?);
    let item = hint();
    first.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    let delivery = take_this(&first, &item, fixture.arrival_within(), "the hint").await?;
    let delay = Duration::from_millis(400);
    let start = Instant::now();
    delivery.nack(delay).await?;
    let again = take_this(&second, &item, delay + fixture.arrival_within(), "the nacked hint").await?;
    let elapsed = start.elapsed();
    // The service's clock may be a little coarser than ours.
    let tolerance = Duration::from_millis(20);
    ensure!(elapsed + tolerance >= delay, "a hint delayed by {delay:?} came after {elapsed:?}");
    ensure!(again.attempt() == 1, "a nack counted as an attempt: {}", again.attempt());
    again.ack().await?;
    // The same without anybody who waits for an answer, and without a delay.
    first.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    take_this(&second, &item, fixture.arrival_within(), "the hint").await?.nack_later(Duration::ZERO);
    take_this(&first, &item, fixture.arrival_within(), "the hint nacked without delay").await?.ack().await?;
    Ok(Verdict::Passed)
}

/// A hint that is queued while its like is delayed comes at once: it may tell of other work.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_fresh_hint_does_not_wait_for_a_delayed_one<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (sender, receiver) = (fixture.node().await?, fixture.node().await?);
    let item = hint();
    sender.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    take_this(&receiver, &item, fixture.arrival_within(), "the hint").await?.nack(NEVER).await?;
    nothing_comes(&receiver, QUIET, "the hint is delayed").await?;
    sender.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    let fresh = take_this(&receiver, &item, fixture.arrival_within(), "a fresh hint beside a delayed one").await?;
    fresh.ack().await?;
    Ok(Verdict::Passed)
}
