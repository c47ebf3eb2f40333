//! Waiting.

use super::*;
use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

pub(in crate::lock) async fn a_wait_ends_with_none_at_its_time_out(fixture: &Fixture) -> Checked {
    let wait = Duration::from_millis(120);
    for (holder, rival) in pairs(fixture) {
        let name = fresh("timed");
        let guard = take(holder, &name).await?;
        let begun = Instant::now();
        let granted = soon("the end of a wait of 120 ms", rival.lock(&name, wait)).await??;
        ensure!(granted.is_none(), "a held lock was granted to a waiter");
        ensure!(begun.elapsed() >= wait, "a wait of {wait:?} gave up after {:?}", begun.elapsed());
        let at_once = soon("the end of a wait of no time", rival.lock(&name, Duration::ZERO)).await??;
        ensure!(at_once.is_none(), "a held lock was granted to a wait of no time");
        guard.release().await?;
        // The waiter that gave up left no claim behind.
        take(holder, &name).await?.release().await?;
        // No time at all is enough for a free lock, and so is more than any clock can count.
        for wait in [Duration::ZERO, Duration::MAX] {
            let granted = soon("the grant of a free lock", rival.lock(&name, wait)).await??;
            ensure!(granted.is_some(), "a free lock was not granted within {wait:?}");
            if let Some(guard) = granted {
                guard.release().await?;
            }
        }
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn a_wait_is_granted_when_the_holder_frees(fixture: &Fixture) -> Checked {
    for (holder, rival) in pairs(fixture) {
        for by_drop in [false, true] {
            let name = fresh("awaited");
            let guard = take(holder, &name).await?;
            let waiting = waiter(rival, &name, Wait::UpTo(patience())).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
            ensure!(!waiting.is_finished(), "a wait ended while the lock was held");
            if by_drop {
                drop(guard);
            } else {
                guard.release().await?;
            }
            let granted = soon("the grant to a waiter", waiting).await???;
            ensure!(granted.is_some(), "the holder freed the lock, and the waiter was not granted it");
            must_be_held(holder, &name, "the waiter holds it now").await?;
        }
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn a_wait_for_ever_ends_with_the_grant(fixture: &Fixture) -> Checked {
    for (holder, rival) in pairs(fixture) {
        let name = fresh("for-ever");
        let guard = take(holder, &name).await?;
        let waiting = waiter(rival, &name, Wait::Forever).await?;
        tokio::time::sleep(Duration::from_millis(150)).await;
        ensure!(!waiting.is_finished(), "a wait for ever ended while the lock was held");
        guard.release().await?;
        let granted = soon("the grant to a waiter for ever", waiting).await???;
        ensure!(granted.is_some(), "a wait for ever ended with `None`");
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn waiters_of_one_process_are_served_in_order(fixture: &Fixture) -> Checked {
    for holder in [&fixture.one, &fixture.other] {
        let name = fresh("ordered");
        let guard = take(holder, &name).await?;
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for number in 0..20 {
            let (wait, served) = (waiter(&fixture.one, &name, Wait::Forever).await?, served.clone());
            waiting.push(tokio::spawn(async move {
                let guard = wait.await??.ok_or_else(|| Failed("a wait for ever ended with `None`".to_owned()))?;
                served.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(number);
                guard.release().await?;
                Ok::<_, Failed>(())
            }));
        }
        // Not at once: waiters that merely try again and again have lost their order by then.
        tokio::time::sleep(Duration::from_millis(40)).await;
        guard.release().await?;
        for wait in waiting {
            soon("the grant to a queued waiter", wait).await???;
        }
        let served = served.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        ensure!(
            served == (0..20).collect::<Vec<_>>(),
            "waiters queued in the order 0 to 19, and were served in the order {served:?}"
        );
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn k06_a_release_does_not_wait_behind_waiters(fixture: &Fixture) -> Checked {
    let locks = &fixture.one;
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for number in 0..150 {
        let name = fresh(&format!("crowd-{number}"));
        held.push(take(&fixture.other, &name).await?);
        waiting.push(waiter(locks, &name, Wait::Forever).await?);
    }
    let name = fresh("through");
    let guard = soon("a grant while 150 others wait", take(locks, &name)).await??;
    soon("a release while 150 others wait", guard.release()).await??;
    soon("a grant while 150 others wait", take(&fixture.other, &name)).await??.release().await?;
    for wait in waiting {
        wait.abort();
    }
    Ok(Verdict::Passed)
}
