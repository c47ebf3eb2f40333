//! Grants, guards, releases.

use super::*;
use latchwork_core::lock::{Loss, LossDetection, NamedLocks};

pub(in crate::lock) async fn a_free_lock_is_granted_and_a_held_one_is_none(fixture: &Fixture) -> Checked {
    for (holder, rival) in pairs(fixture) {
        let name = fresh("held");
        let guard = take(holder, &name).await?;
        ensure!(*guard.key() == key(holder, &name)?, "the guard's key is {:?}, not that of the request", guard.key());
        must_be_held(rival, &name, "it is held").await?;
        must_be_held(holder, &name, "it is held, also within one task").await?;
        let elsewhere = take(rival, &fresh("elsewhere")).await?;
        ensure!(!guard.is_lost() && !elsewhere.is_lost(), "a fresh guard says that it is lost");
        guard.release().await?;
        elsewhere.release().await?;
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn k51_a_dropped_guard_frees_the_lock(fixture: &Fixture) -> Checked {
    for (holder, next) in pairs(fixture) {
        let name = fresh("dropped");
        drop(take(holder, &name).await?);
        take_soon(next, &name, "its guard was dropped").await?.release().await?;
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn a_guard_may_be_dropped_on_a_plain_thread(fixture: &Fixture) -> Checked {
    let name = fresh("thread");
    let guard = take(&fixture.one, &name).await?;
    let dropped = std::thread::spawn(move || drop(guard)).join();
    ensure!(dropped.is_ok(), "dropping a guard outside a Tokio runtime panicked");
    take_soon(&fixture.other, &name, "its guard was dropped outside a runtime").await?.release().await?;
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn a_release_frees_before_it_returns(fixture: &Fixture) -> Checked {
    let name = fresh("released");
    for round in 0..30 {
        for (holder, next) in pairs(fixture) {
            take(holder, &name).await?.release().await?;
            let Some(guard) = next.try_lock(&name).await? else {
                return Err(Failed(format!("round {round}: `release` returned, and the lock was still held")));
            };
            guard.release().await?;
        }
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn a_release_goes_on_when_its_future_is_dropped(fixture: &Fixture) -> Checked {
    let name = fresh("half-released");
    let mut release = Box::pin(take(&fixture.one, &name).await?.release());
    let _ = poll_once(&mut release).await;
    drop(release);
    take_soon(&fixture.other, &name, "a release was begun, and its future dropped").await?.release().await?;
    // Not even begun: the guard goes with the future.
    drop(take(&fixture.one, &name).await?.release());
    take_soon(&fixture.other, &name, "the future of its release was dropped before its first poll").await?.release().await?;
    Ok(Verdict::Passed)
}

// A guard whose grant was ended by its hold limit; those that end with a session are in `a_broken_session_...`.
pub(in crate::lock) async fn k08_a_stale_release_never_frees_a_newer_grant(fixture: &Fixture) -> Checked {
    for (old, new) in pairs(fixture) {
        for by_drop in [false, true] {
            let name = fresh("stale");
            let stale = take(old, &name).await?;
            stale.limit_hold(Duration::from_millis(1));
            soon("the end of a grant by its hold limit", stale.lost()).await?;
            let newer = take_soon(new, &name, "the hold limit of its guard is over").await?;
            if by_drop {
                drop(stale);
                // What a drop asks for is done in the background; a round trip on the same provider comes after it.
                take(old, &fresh("barrier")).await?.release().await?;
            } else {
                stale
                    .release()
                    .await
                    .map_err(|error| Failed(format!("releasing a stale guard must be harmless, and was: {error}")))?;
            }
            ensure!(!newer.is_lost(), "a stale release ended the newer grant");
            must_be_held(new, &name, "only a stale guard was released").await?;
            must_be_held(old, &name, "only a stale guard was released").await?;
            newer.release().await?;
        }
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn a_lock_is_held_twice_by_reenter_only(fixture: &Fixture) -> Checked {
    let (locks, rival) = (&fixture.one, &fixture.other);
    let name = fresh("twice");
    let first = take(locks, &name).await?;
    must_be_held(locks, &name, "the same task holds it, and locks are not re-entrant by themselves").await?;
    let second = first.reenter();
    first.release().await?;
    must_be_held(rival, &name, "a second guard of the grant is alive").await?;
    let third = second.reenter();
    drop(second);
    must_be_held(rival, &name, "a third guard of the grant is alive").await?;
    third.release().await?;
    take(rival, &name).await?.release().await?;
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn a_held_lock_is_not_signalled_as_lost(fixture: &Fixture) -> Checked {
    let name = fresh("kept");
    let guard = take(&fixture.one, &name).await?;
    // The one real wait of this case: long enough for a session's heartbeat, and for a short lease to be renewed twice.
    let hold = match fixture.one.capabilities().loss {
        LossDetection::Lease(lease) if lease <= Duration::from_secs(10) => lease * 2 + Duration::from_millis(500),
        _ => Duration::from_millis(500),
    };
    let lost = tokio::time::timeout(hold, guard.lost()).await;
    ensure!(lost.is_err() && !guard.is_lost(), "a healthy grant was signalled as lost: {lost:?}");
    must_be_held(&fixture.other, &name, "its guard was never given up").await?;
    guard.release().await?;
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn a_hold_limit_frees_and_signals(fixture: &Fixture) -> Checked {
    let name = fresh("limited");
    let guard = take(&fixture.one, &name).await?;
    guard.limit_hold(Duration::from_millis(50));
    let newer = take_soon(&fixture.other, &name, "the hold limit of its guard is over").await?;
    ensure!(guard.is_lost(), "the lock was freed by its hold limit before the holder was told");
    let why = soon("the loss signal of a hold limit", guard.lost()).await?;
    ensure!(why == Loss::HeldTooLong, "the loss of a guard held too long is {why:?}");
    newer.release().await?;
    // A limit that is not reached has no effect.
    let brief = take(&fixture.one, &name).await?;
    brief.limit_hold(Duration::from_hours(1));
    brief.release().await?;
    take(&fixture.other, &name).await?.release().await?;
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn fencing_tokens_grow_over_hand_overs(fixture: &Fixture) -> Checked {
    let name = fresh("fenced");
    if !fixture.one.capabilities().fencing {
        let guard = take(&fixture.one, &name).await?;
        ensure!(guard.fencing_token().is_none(), "the capabilities claim no fencing, and the guard has a token");
        guard.release().await?;
        return Ok(Verdict::Skipped("no fencing tokens"));
    }
    let mut last = None;
    for round in 0..20 {
        for (holder, _) in directions(fixture) {
            let guard = take_soon(holder, &name, "every guard before was freed").await?;
            let token = guard.fencing_token();
            ensure!(token.is_some(), "the capabilities claim fencing, and a guard has no token");
            ensure!(token > last, "round {round}: the token {token:?} follows {last:?}");
            ensure!(guard.reenter().fencing_token() == token, "a second guard of the same grant has another token");
            last = token;
            match round % 3 {
                0 => guard.release().await?,
                1 => drop(guard),
                _ => guard.limit_hold(Duration::ZERO),
            }
        }
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn the_pair_of_workflow_core_holds_and_frees(fixture: &Fixture) -> Checked {
    let (one, other) = (NamedLocks::new(fixture.one.clone()), NamedLocks::new(fixture.other.clone()));
    let id = fresh("pair");
    ensure!(one.acquire_lock(&id).await?, "a free id was not acquired");
    ensure!(one.holds(&id), "the adapter does not know what it holds");
    ensure!(!one.acquire_lock(&id).await?, "a held id was acquired again by its holder");
    ensure!(!other.acquire_lock(&id).await?, "a held id was acquired by another");
    other.release_lock(&id).await?;
    ensure!(!other.acquire_lock(&id).await?, "releasing what another one holds has freed it");
    one.release_lock(&id).await?;
    one.release_lock(&id).await?;
    ensure!(other.acquire_lock(&id).await?, "a released id was not acquired");
    one.release_lock(&id).await?;
    ensure!(!one.acquire_lock(&id).await?, "a second release has freed the grant of another");
    other.release_lock(&id).await?;
    Ok(Verdict::Passed)
}
