use crate::queue::{
    Fault, QueueFixture, Verdict,
    tools::{GRACE, NEVER, QUEUE, QUIET, ensure, hint, hints, nothing_comes, take, take_these, take_this},
};
use latchwork_core::queue::{QueueProvider, Redelivery};
use std::time::Duration;

/// A delivery dropped without a word comes again, to any node, as a further attempt.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_dropped_delivery_comes_again<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (first, second) = (fixture.node().await?, fixture.node().await?);
    let item = hint();
    first.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    drop(take_this(&first, &item, fixture.arrival_within(), "the hint").await?);
    let again = take_this(&second, &item, fixture.redelivery_within(), "the dropped hint").await?;
    ensure!(again.attempt() == 2, "a hint dropped once should come as attempt 2, and has {}", again.attempt());
    again.ack().await?;
    nothing_comes(&first, QUIET, "the hint was acknowledged").await?;
    Ok(Verdict::Passed)
}

/// The number of the attempt grows with each failure of a consumer and with nothing else, and starts again with a new hint.
/// There is no limit to it.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn attempts_count_failures_only<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let node = fixture.node().await?;
    let item = hint();
    node.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    for failures in 0..20 {
        let delivery = take_this(&node, &item, fixture.redelivery_within(), "the hint to be nacked").await?;
        let attempt = delivery.attempt();
        ensure!(attempt == failures + 1, "after {failures} failures and {failures} nacks the attempt is {attempt}");
        delivery.nack(Duration::ZERO).await?;
        drop(take_this(&node, &item, fixture.arrival_within(), "the hint to be dropped").await?);
    }
    take_this(&node, &item, fixture.redelivery_within(), "the hint after 20 failures").await?.ack().await?;
    node.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    let fresh = take_this(&node, &item, fixture.arrival_within(), "a new hint").await?;
    ensure!(fresh.attempt() == 1, "a new hint after an acknowledged one has attempt {}", fresh.attempt());
    fresh.ack().await?;
    Ok(Verdict::Passed)
}

/// What a consumer had in hand when it died goes to another node, within the stated time, as a further attempt.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_dead_consumers_hints_go_to_another<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (victim, other) = (fixture.node().await?, fixture.node().await?);
    if other.capabilities().redelivery == Redelivery::Never {
        return Ok(Verdict::skipped("the queue ends with its process"));
    }
    let items = hints(5);
    other.enqueue(QUEUE, &items).await?;
    let dead = take_these(&victim, &items, fixture.arrival_within(), "one of 5 hints").await?;
    if !fixture.kill(victim).await? {
        return Ok(Verdict::skipped("the fixture cannot kill a node"));
    }
    let again = take_these(&other, &items, fixture.redelivery_within(), "a dead consumer's hint").await?;
    for delivery in again {
        let attempt = delivery.attempt();
        ensure!(attempt >= 2, "a hint whose consumer died should come as attempt 2 or later, and has {attempt}");
        delivery.ack().await?;
    }
    nothing_comes(&other, QUIET, "all hints were acknowledged").await?;
    drop(dead);
    Ok(Verdict::Passed)
}

/// A hint that arrives while its like is in hand is not swallowed: it comes, at the latest after the settlement, whatever
/// that is.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_hint_that_arrives_in_hand_is_kept<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (sender, receiver) = (fixture.node().await?, fixture.node().await?);
    for dropped in [false, true] {
        let item = hint();
        sender.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
        let in_hand = take_this(&receiver, &item, fixture.arrival_within(), "the hint").await?;
        sender.enqueue(QUEUE, &[item.clone(), item.clone()]).await?;
        // A broker may deliver copies at once, to be settled after the one in hand.
        let early = receiver.dequeue(QUEUE, 10, QUIET).await?;
        if dropped {
            drop(in_hand);
        } else {
            in_hand.ack().await?;
        }
        let mut kept = early;
        if kept.is_empty() {
            kept = take(&receiver, 10, fixture.redelivery_within(), "the hint that arrived in hand").await?;
        }
        for delivery in kept {
            ensure!(delivery.item() == &item, "{:?} came", delivery.item());
            delivery.ack().await?;
        }
        for delivery in receiver.dequeue(QUEUE, 10, QUIET).await? {
            delivery.ack().await?;
        }
        nothing_comes(&receiver, QUIET, "all copies were acknowledged").await?;
    }
    Ok(Verdict::Passed)
}

/// A hint that arrived while its like was in hand does not share the delay with which that one is nacked.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_hint_that_arrives_in_hand_does_not_wait_for_a_delay<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (sender, receiver) = (fixture.node().await?, fixture.node().await?);
    let item = hint();
    sender.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    let in_hand = take_this(&receiver, &item, fixture.arrival_within(), "the hint").await?;
    sender.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    in_hand.nack(NEVER).await?;
    let fresh = take_this(&receiver, &item, fixture.arrival_within(), "the hint that arrived in hand").await?;
    ensure!(fresh.attempt() == 1, "a nack counted as an attempt: {}", fresh.attempt());
    fresh.ack().await?;
    Ok(Verdict::Passed)
}

/// The settlement of a delivery that was given back does not settle the next delivery of the same hint.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_stale_settlement_harms_nothing<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (first, second) = (fixture.node().await?, fixture.node().await?);
    let third = fixture.node().await?;
    let item = hint();
    first.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    let stale = take_this(&first, &item, fixture.arrival_within(), "the hint").await?;
    first.stop(GRACE).await?;
    let current = take_this(&second, &item, fixture.redelivery_within(), "the hint of a stopped node").await?;
    // Whether the stopped provider calls this an error is its own affair.
    let _ = stale.ack().await;
    nothing_comes(&third, QUIET, "the hint is in hand").await?;
    drop(current);
    let again = take_this(&third, &item, fixture.redelivery_within(), "the dropped hint, after a stale acknowledgement").await?;
    again.ack().await?;
    nothing_comes(&second, QUIET, "the hint was acknowledged").await?;
    Ok(Verdict::Passed)
}

/// A delivery that outlived its node's connection or lease gives back nothing and takes away nothing when it is settled.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn a_settlement_after_death_harms_nothing<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    let (victim, second) = (fixture.node().await?, fixture.node().await?);
    let third = fixture.node().await?;
    if third.capabilities().redelivery == Redelivery::Never {
        return Ok(Verdict::skipped("the queue ends with its process"));
    }
    let items = hints(3);
    second.enqueue(QUEUE, &items).await?;
    let mut stale = take_these(&victim, &items, fixture.arrival_within(), "one of 3 hints").await?.into_iter();
    if !fixture.kill(victim).await? {
        return Ok(Verdict::skipped("the fixture cannot kill a node"));
    }
    let current = take_these(&second, &items, fixture.redelivery_within(), "a dead consumer's hint").await?;
    if let (Some(one), Some(two)) = (stale.next(), stale.next()) {
        one.ack_later();
        two.nack_later(Duration::ZERO);
    }
    drop(stale);
    nothing_comes(&third, QUIET, "the hints are in hand").await?;
    drop(current);
    let again = take_these(&third, &items, fixture.redelivery_within(), "a dropped hint, after a stale settlement").await?;
    for delivery in again {
        delivery.ack().await?;
    }
    Ok(Verdict::Passed)
}

/// While a delivery lives, nobody else gets its hint, however long the work takes.
///
/// # Errors
/// [`Fault`]: what the provider did wrong.
pub async fn long_work_outlasts_the_lease<F: QueueFixture>(fixture: &F) -> Result<Verdict, Fault> {
    const LONGEST: Duration = Duration::from_secs(10);
    let (worker, other) = (fixture.node().await?, fixture.node().await?);
    let capabilities = worker.capabilities();
    let limit = match (capabilities.redelivery, capabilities.longest_unacknowledged) {
        (Redelivery::Lease(lease), limit) => limit.map_or(lease, |limit| limit.min(lease)),
        (_, Some(limit)) => limit,
        (_, None) => return Ok(Verdict::skipped("nothing ends a delivery while its node lives")),
    };
    if limit > LONGEST {
        return Ok(Verdict::skipped("the lease is too long for a test; give the fixture a shorter one"));
    }
    let items = hints(3);
    worker.enqueue(QUEUE, &items).await?;
    let long = take_these(&worker, &items, fixture.arrival_within(), "one of 3 hints").await?;
    nothing_comes(&other, limit * 5 / 2, "the hints are in hand").await?;
    for delivery in long {
        ensure!(delivery.attempt() == 1, "long work counted as an attempt: {}", delivery.attempt());
        delivery.ack().await?;
    }
    // A hint that was renewed and then nacked is as any other.
    nothing_comes(&other, limit * 3 / 2, "the hints were acknowledged after long work").await?;
    let item = hint();
    worker.enqueue(QUEUE, std::slice::from_ref(&item)).await?;
    take_this(&worker, &item, fixture.arrival_within(), "the hint").await?.nack(NEVER).await?;
    nothing_comes(&other, limit * 3 / 2, "a delay outlasts the lease").await?;
    Ok(Verdict::Passed)
}
