//! Several locks together.

use super::*;
use latchwork_core::lock::LockSet;

/// Granted at once; retried a little, because what a roll-back or a drop frees may take a moment.
async fn all_soon(locks: &Locks, names: &[&str]) -> Result<LockSet, Failed> {
    let set = locks.lock_all(names, patience()).await?;
    set.ok_or_else(|| Failed(format!("{} locks that nobody holds were not granted together", names.len())))
}

pub(in crate::lock) async fn several_locks_are_taken_together_or_not_at_all(fixture: &Fixture) -> Checked {
    let (locks, rival) = (&fixture.one, &fixture.other);
    let prefix = fresh("set");
    let names: Vec<_> = ["c", "a", "b"].iter().map(|tail| format!("{prefix}{tail}")).collect();
    let [c, a, b] = [&*names[0], &*names[1], &*names[2]];

    let set = all_soon(locks, &[c, a, b, a]).await?;
    let keys: Vec<_> = set.guards().iter().map(|guard| guard.key().clone()).collect();
    ensure!(keys == [key(locks, a)?, key(locks, b)?, key(locks, c)?], "the set holds {keys:?}: not sorted, or one twice");
    for name in [a, b, c] {
        must_be_held(rival, name, "it is part of a held set").await?;
    }
    set.release().await?;
    let set = locks.lock_all([a, b], Duration::MAX).await?;
    ensure!(set.is_some(), "free locks were not granted within the longest of times");
    drop(set);
    all_soon(locks, &[a, b]).await?.release().await?;

    let blocker = take(rival, b).await?;
    let none = soon("the end of a wait for a set", locks.lock_all([a, b, c], Duration::from_millis(80))).await??;
    ensure!(none.is_none(), "a set was granted although one of its locks is held");
    for name in [a, c] {
        take(rival, name)
            .await
            .map_err(|_| Failed("a set that could not be had kept one of its locks".to_owned()))?
            .release()
            .await?;
    }

    // Granted when the missing one comes free within the deadline.
    let (waiting_locks, waiting_names, patience) = (locks.clone(), names.clone(), patience());
    let waiting = tokio::spawn(async move { waiting_locks.lock_all(&waiting_names, patience).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    blocker.release().await?;
    let set = soon("the grant of a set", waiting).await???;
    ensure!(set.is_some(), "a set was not granted, although the lock that it lacked came free");
    drop(set);
    for name in [a, b, c] {
        take_soon(rival, name, "its set was dropped").await?.release().await?;
    }
    let none_at_all = locks.lock_all(std::iter::empty::<&str>(), Duration::ZERO).await?;
    ensure!(none_at_all.is_some_and(|set| set.guards().is_empty()), "a set of no locks is not granted");
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn several_locks_taken_crosswise_never_wait_in_a_circle(fixture: &Fixture) -> Checked {
    let prefix = fresh("cross");
    let names: Vec<_> = (0..4).map(|number| format!("{prefix}{number}")).collect();
    let (mut tasks, patience) = (Vec::new(), patience() * 2);
    for task in 0..8_u64 {
        let locks = if task % 2 == 0 { fixture.one.clone() } else { fixture.other.clone() };
        let names = names.clone();
        tasks.push(tokio::spawn(async move {
            let mut numbers = Numbers(task);
            for _ in 0..10 {
                let mut order = names.clone();
                order.rotate_left(numbers.below(4) as usize);
                if numbers.below(2) == 0 {
                    order.reverse();
                }
                order.truncate(2 + numbers.below(2) as usize);
                let set = locks.lock_all(&order, patience).await?;
                let set = set.ok_or_else(|| Failed(format!("task {task} waited in vain for {order:?}")))?;
                tokio::task::yield_now().await;
                set.release().await?;
            }
            Ok::<_, Failed>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn the_loss_of_one_of_several_locks_is_linked(fixture: &Fixture) -> Checked {
    let prefix = fresh("linked");
    let names: Vec<_> = (0..3).map(|number| format!("{prefix}{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let set = all_soon(&fixture.one, &names).await?;
    let lost = tokio::spawn(set.lost());
    ensure!(!set.is_lost(), "a fresh set says that it is lost");
    for guard in set.guards().iter().skip(1).take(1) {
        guard.limit_hold(Duration::from_millis(10));
    }
    soon("the loss signal of a set, one of whose locks was lost", lost).await??;
    ensure!(set.is_lost(), "a set that lost one lock does not say so");
    set.release().await?;
    all_soon(&fixture.other, &names).await?.release().await?;
    Ok(Verdict::Passed)
}
