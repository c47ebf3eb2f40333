//! The life of a provider: health, loss, stop.

use super::*;
use latchwork_core::lock::{Loss, LossDetection};

const GRACE: Duration = Duration::from_secs(10);

pub(in crate::lock) async fn a_service_describes_itself_and_answers(fixture: &Fixture) -> Checked {
    let (one, other) = (fixture.one.capabilities(), fixture.other.capabilities());
    ensure!(!one.domain.trim().is_empty(), "the domain is empty; it must name the lock service");
    ensure!(one.domain == other.domain, "two nodes name one service `{}` and `{}`", one.domain, other.domain);
    ensure!(one.scope == other.scope, "two nodes of one service claim the scopes {} and {}", one.scope, other.scope);
    ensure!(
        fixture.one.namespace() == fixture.other.namespace(),
        "the fixture's providers have different namespaces, `{}` and `{}`",
        fixture.one.namespace(),
        fixture.other.namespace()
    );
    if let LossDetection::Lease(lease) = one.loss {
        ensure!(!lease.is_zero(), "a lease of no time protects nothing");
    }
    soon("the answer to `check`", fixture.one.check()).await??;
    soon("the answer to `check`", fixture.other.check()).await??;
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn stop_frees_all_signals_the_loss_and_ends_waits(fixture: &Fixture) -> Checked {
    let (stopped, lives) = (&fixture.one, &fixture.other);
    let names: Vec<_> = (0..5).map(|number| fresh(&format!("stopped-{number}"))).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(take(stopped, name).await?);
    }
    let (kept_name, awaited) = (fresh("of-another"), fresh("awaited"));
    let (kept, _awaited_guard) = (take(lives, &kept_name).await?, take(lives, &awaited).await?);
    let waiting = waiter(stopped, &awaited, Wait::Forever).await?;
    let taking_over = waiter(lives, &names[0], Wait::Forever).await?;

    soon("the end of `stop`", stopped.stop(GRACE)).await??;

    for guard in &guards {
        ensure!(guard.is_lost(), "`stop` returned, and the guard of `{}` does not know that it is lost", guard.key());
        let why = soon("the loss signal of a stop", guard.lost()).await?;
        ensure!(why == Loss::Stopped, "the loss of a stopped provider's guard is {why:?}");
    }
    let taken_over = soon("the grant of a lock that its holder's stop has freed", taking_over).await???;
    ensure!(taken_over.is_some(), "a wait for ever ended with `None`");
    match soon("the end of a wait on a stopped provider", waiting).await?? {
        Ok(None) | Err(LockError::Stopped { .. }) => {}
        Ok(Some(_)) => return Err(Failed("a stopped provider was granted a lock that another one holds".to_owned())),
        Err(error) => return Err(Failed(format!("a wait ended by `stop` must say `Stopped`, and says: {error}"))),
    }
    for name in names.iter().skip(1) {
        let free = lives.try_lock(name).await?.is_some();
        ensure!(free, "`stop` returned, and a lock of its provider was still held");
    }
    ensure!(!kept.is_lost(), "stopping one provider has signalled a loss to another one's guard");
    must_be_held(lives, &kept_name, "it is held through the provider that was not stopped").await?;
    // Stale by now, and one of them taken over: harmless.
    for guard in guards {
        guard
            .release()
            .await
            .map_err(|error| Failed(format!("a guard of a stopped provider must be harmless, and is: {error}")))?;
    }
    must_be_held(lives, &names[0], "only a stale guard of the stopped provider was released").await?;
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn a_stopped_provider_refuses_later_requests(fixture: &Fixture) -> Checked {
    let (stopped, lives) = (&fixture.one, &fixture.other);
    let name = fresh("late");
    soon("the end of `stop`", stopped.stop(GRACE)).await??;
    soon("the end of a second `stop`", stopped.stop(GRACE))
        .await?
        .map_err(|error| Failed(format!("a second `stop` must be harmless, and says: {error}")))?;
    for wait in [Wait::No, Wait::UpTo(Duration::from_millis(50)), Wait::Forever] {
        let request = LockRequest::new(key(stopped, &name)?).with_wait(wait);
        match soon("the answer of a stopped provider", stopped.acquire(request)).await? {
            Err(error @ LockError::Stopped { .. }) => {
                ensure!(!error.is_retryable(), "a stopped provider says that a later try may succeed");
            }
            Err(error) => return Err(Failed(format!("a stopped provider must say `Stopped`, and says: {error}"))),
            Ok(granted) => return Err(Failed(format!("a stopped provider answered {granted:?} to {wait:?}"))),
        }
    }
    take(lives, &name).await?.release().await?;
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn k50_a_broken_session_is_signalled_and_replaced(fixture: &Fixture) -> Checked {
    let Some(break_one) = &fixture.break_one else {
        return Ok(Verdict::Skipped("the fixture cannot break a session"));
    };
    let (broken, lives) = (&fixture.one, &fixture.other);
    let (name, other_name) = (fresh("broken"), fresh("not-broken"));
    let stale = take(broken, &name).await?;
    let kept = take(lives, &other_name).await?;
    break_one().await;
    let newer = take_soon(lives, &name, "the session of its holder is gone").await?;
    ensure!(stale.is_lost(), "the lock was granted to another before its holder was told of the loss");
    let why = soon("the loss signal of a broken session", stale.lost()).await?;
    ensure!(matches!(why, Loss::SessionClosed | Loss::LeaseExpired), "the loss of a broken session is {why:?}");
    let _ = stale.release().await;
    must_be_held(lives, &name, "only the guard of the broken session was released").await?;
    ensure!(!kept.is_lost() && !newer.is_lost(), "a broken session has taken locks of another provider with it");
    // The provider mends itself.
    let fresh_name = fresh("mended");
    let mended = mend(broken, &fresh_name).await?;
    must_be_held(lives, &fresh_name, "the mended provider holds it").await?;
    // A guard from before the next break must not free what the same provider is granted after it.
    break_one().await;
    soon("the loss signal of a second broken session", mended.lost()).await?;
    let newer = mend(broken, &fresh_name).await?;
    let _ = mended.release().await;
    must_be_held(lives, &fresh_name, "only a guard from before its session broke was released").await?;
    ensure!(!newer.is_lost(), "a stale guard has ended the newer grant of its own provider");
    newer.release().await?;
    Ok(Verdict::Passed)
}

/// One try after the other, until the provider has a new session; meanwhile errors are retryable ones. The old grant of
/// the name may take a moment to be undone.
async fn mend(broken: &Locks, name: &str) -> Result<LockGuard, Failed> {
    soon("a grant after a broken session", async {
        loop {
            match broken.try_lock(name).await {
                Ok(Some(guard)) => return Ok(guard),
                Ok(None) => {}
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(Failed(format!("a broken session must be a retryable error, and is: {error}"))),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await?
}
