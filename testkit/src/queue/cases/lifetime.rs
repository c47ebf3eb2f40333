use crate::queue::{
    Fault, QueueFixture, Verdict,
    tools::{GRACE, NEVER, QUEUE, QUIET, depth_becomes, ensure, hint, hints, nothing_comes, take_these, take_this},
};
use latchwork_core::queue::QueueProvider;
use std::time::Duration;

/// Clusters of different namespaces share a service undisturbed.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn namespaces_do_not_see_each_other<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let Some(elsewhere) = fixture.node_elsewhere().await? else {
        return Ok(Verdict::skipped("the fixture has one namespace"));
    };
    let here = fixture.node().await?;
    // The same instance in both: ids of two clusters may well be equal, when one was copied from the other.
    let item = hint();
    here.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    nothing_comes(&elsewhere, QUIET, "the hint was queued in another namespace").await?;
    ensure!(elsewhere.depth(QUEUE).await?.waiting == 0, "the depth counts another namespace's hints");
    elsewhere.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    take_this(&elsewhere, &item, fixture.arrival_within(), "the hint").await?.ack().await?;
    take_this(&here, &item, fixture.arrival_within(), "the hint, which was acknowledged in another namespace only")
        .await?
        .ack()
        .await?;
    Ok(Verdict::Passed)
}

/// A stop sends what is settled, gives back what is in hand without counting it as an attempt, refuses later calls, can be
/// repeated, and leaves the other nodes alone.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_stopped_queue_gives_back_and_refuses<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (stopped, other) = (fixture.node().await?, fixture.node().await?);
    let items = hints(20);
    stopped.enqueue(QUEUE, &items).await?;
    let mut held = take_these(&stopped, &items, fixture.arrival_within(), "one of 20 hints").await?;
    let in_hand = held.split_off(10);
    for delivery in held {
        delivery.ack_later();
    }
    let kept: Vec<_> = in_hand.iter().map(|delivery| delivery.item().clone()).collect();
    stopped.stop(GRACE).await?;
    let again = take_these(&other, &kept, fixture.redelivery_within(), "a hint that a stopped node gave back").await?;
    for delivery in again {
        ensure!(delivery.attempt() == 1, "a stop counted as an attempt: {}", delivery.attempt());
        delivery.ack().await?;
    }
    drop(in_hand);
    nothing_comes(&other, QUIET, "all hints were acknowledged, ten of them before the stop").await?;
    ensure!(stopped.enqueue(QUEUE, &[hint()]).await.is_err(), "a stopped node still queues");
    let refused = tokio::time::timeout(fixture.arrival_within(), stopped.dequeue(QUEUE, 1, NEVER)).await;
    ensure!(matches!(refused, Ok(Err(_))), "a stopped node still gives hints: {refused:?}");
    ensure!(stopped.depth(QUEUE).await.is_err(), "a stopped node still tells a depth");
    stopped.stop(GRACE).await?;
    let item = hint();
    other.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    take_this(&other, &item, fixture.arrival_within(), "a hint, after another node was stopped").await?.ack().await?;
    Ok(Verdict::Passed)
}

/// A stop does not wait for consumers that wait.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_stop_ends_a_waiting_dequeue<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (node, other) = (std::sync::Arc::new(fixture.node().await?), fixture.node().await?);
    let waiting = tokio::spawn({
        let node = node.clone();
        async move { node.dequeue(QUEUE, 1, NEVER).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    node.stop(GRACE).await?;
    let Ok(ended) = tokio::time::timeout(GRACE, waiting).await else {
        return Err(Fault::new("a dequeue still waits after its node was stopped"));
    };
    let came = ended?.map_or(0, |taken| taken.len());
    ensure!(came == 0, "an empty queue gave {came} hints when it was stopped");
    let item = hint();
    other.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    take_this(&other, &item, fixture.arrival_within(), "a hint, after another node was stopped").await?.ack().await?;
    Ok(Verdict::Passed)
}

/// Hints belong to the service, not to the node that queued them.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn hints_outlive_the_node_that_queued_them<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (sender, witness) = (fixture.node().await?, fixture.node().await?);
    let items = hints(3);
    sender.enqueue(QUEUE, &items).await?;
    sender.stop(GRACE).await?;
    drop(sender);
    let late = fixture.node().await?;
    for delivery in take_these(&late, &items, fixture.arrival_within(), "a hint of a node that is gone").await? {
        delivery.ack().await?;
    }
    nothing_comes(&witness, QUIET, "all hints were acknowledged").await?;
    Ok(Verdict::Passed)
}

/// The depth counts what waits, delayed hints included, and what is in hand.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn depth_counts<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (node, other) = (fixture.node().await?, fixture.node().await?);
    let within = fixture.arrival_within();
    depth_becomes(&node, 0, 0, within, "before the first hint").await?;
    let items = hints(5);
    node.enqueue(QUEUE, &items).await?;
    depth_becomes(&other, 5, 0, within, "with 5 hints queued").await?;
    let mut held = take_these(&node, &items, within, "one of 5 hints").await?;
    depth_becomes(&other, 0, 5, within, "with 5 hints taken").await?;
    let (first, second) = (held.pop(), held.pop());
    if let (Some(first), Some(second)) = (first, second) {
        first.ack().await?;
        second.nack(NEVER).await?;
    }
    depth_becomes(&other, 1, 3, within, "with one hint acknowledged and one delayed").await?;
    for delivery in held {
        delivery.ack().await?;
    }
    depth_becomes(&node, 1, 0, within, "with only a delayed hint left").await?;
    Ok(Verdict::Passed)
}
