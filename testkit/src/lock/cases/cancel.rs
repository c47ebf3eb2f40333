//! Futures dropped half-way.

use super::*;

/// After whatever was cancelled: both nodes can have the lock soon, so that nobody holds it for nobody.
async fn must_become_free(fixture: &Fixture, name: &str, why: &str) -> Result<(), Failed> {
    for locks in [&fixture.other, &fixture.one] {
        take_soon(locks, name, why).await?.release().await?;
    }
    Ok(())
}

/// Polls `acquire` up to `polls` times, a little apart, and drops it.
async fn poll_and_drop(acquire: impl Future<Output = Acquired> + Send, polls: u64) -> Result<(), Failed> {
    let mut acquire = Box::pin(acquire);
    for poll in 0..polls {
        if let Some(acquired) = poll_once(&mut acquire).await {
            acquired?;
            break;
        }
        // Not after the last poll: the drop must also meet a request that has only just been sent.
        match poll % 3 {
            _ if poll + 1 == polls => {}
            0 => tokio::task::yield_now().await,
            1 => tokio::time::sleep(Duration::from_micros(200)).await,
            _ => tokio::time::sleep(Duration::from_millis(3)).await,
        }
    }
    Ok(())
}

pub(in crate::lock) async fn a_cancelled_try_leaves_nothing_held(fixture: &Fixture) -> Checked {
    for (locks, _) in directions(fixture) {
        let name = fresh("cancelled-try");
        for (round, polls) in (0..6).cycle().take(60).enumerate() {
            poll_and_drop(acquire(locks, &name, Wait::No, LockMode::Exclusive)?, polls).await?;
            if round % 4 < 2 {
                // A late grant meets a free lock.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            must_become_free(fixture, &name, &format!("its acquire was dropped after {polls} polls")).await?;
        }
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn k07_a_cancelled_wait_leaves_nothing_held(fixture: &Fixture) -> Checked {
    for (holder, rival) in pairs(fixture) {
        let name = fresh("cancelled-wait");
        for (round, polls) in (0..6).cycle().take(18).enumerate() {
            let guard = take_soon(holder, &name, "nobody is left who could hold it").await?;
            let wait = if round % 2 == 0 { Wait::Forever } else { Wait::UpTo(patience()) };
            poll_and_drop(acquire(rival, &name, wait, LockMode::Exclusive)?, polls).await?;
            must_be_held(rival, &name, "its holder lives, and only a waiter was dropped").await?;
            guard.release().await?;
            must_become_free(fixture, &name, &format!("its holder freed it, and its waiter was dropped after {polls} polls"))
                .await?;
        }
        // In the middle of a queue: those behind move up.
        let guard = take(holder, &name).await?;
        let gone = [waiter(rival, &name, Wait::Forever).await?, waiter(rival, &name, Wait::Forever).await?];
        let stays = waiter(rival, &name, Wait::Forever).await?;
        for wait in gone {
            wait.abort();
            let _ = wait.await;
        }
        guard.release().await?;
        let granted = soon("the grant to the waiter behind two that were dropped", stays).await???;
        ensure!(granted.is_some(), "a wait for ever ended with `None`");
        drop(granted);
        must_become_free(fixture, &name, "its last holder dropped its guard").await?;
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn k07_a_wait_cancelled_as_its_grant_arrives_leaves_nothing_held(fixture: &Fixture) -> Checked {
    let mut numbers = Numbers(7);
    for (holder, rival) in pairs(fixture) {
        let name = fresh("raced");
        for round in 0..100 {
            let guard = take_soon(holder, &name, "nobody is left who could hold it").await?;
            let waiting = waiter(rival, &name, Wait::Forever).await?;
            let (before, spins) = (numbers.below(2) == 0, numbers.below(20_000));
            let free = tokio::spawn(guard.release());
            if before {
                tokio::task::yield_now().await;
            }
            // Busy for a random moment, so that the drop meets the grant in each state of its journey.
            for spin in 0..spins {
                std::hint::black_box(spin);
            }
            waiting.abort();
            // Too late to abort is fine: then the grant has arrived, and its guard is dropped here.
            let _ = waiting.await;
            free.await??;
            let why = format!("round {round}: its waiter was dropped at the moment of the grant");
            take_soon(rival, &name, &why).await?.release().await?;
        }
        must_become_free(fixture, &name, "all waiters were dropped").await?;
    }
    Ok(Verdict::Passed)
}
