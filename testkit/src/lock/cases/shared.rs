//! Shared mode.

use super::*;

/// Whether the provider has shared mode; without it, asking must be `Unsupported`.
async fn has_shared(locks: &Locks) -> Result<bool, Failed> {
    if locks.capabilities().shared {
        return Ok(true);
    }
    match locks.try_lock_shared(&fresh("unshared")).await {
        Err(LockError::Unsupported { .. }) => Ok(false),
        Err(error) => Err(Failed(format!("shared mode that is not there must be `Unsupported`, and is: {error}"))),
        Ok(_) => Err(Failed("the capabilities claim no shared mode, and a shared request was accepted".to_owned())),
    }
}

const LACKING: Checked = Ok(Verdict::Skipped("no shared mode"));

async fn share(locks: &Locks, name: &str) -> Result<LockGuard, Failed> {
    let granted = locks.try_lock_shared(name).await?;
    granted.ok_or_else(|| Failed("a shared try was not granted, although nobody holds or awaits it exclusively".to_owned()))
}

pub(in crate::lock) async fn shared_holders_exclude_only_exclusive_ones(fixture: &Fixture) -> Checked {
    if !has_shared(&fixture.one).await? {
        return LACKING;
    }
    for (one, other) in pairs(fixture) {
        let name = fresh("shared");
        let (first, second, third) = (share(one, &name).await?, share(other, &name).await?, share(one, &name).await?);
        must_be_held(one, &name, "it is shared").await?;
        must_be_held(other, &name, "it is shared").await?;
        first.release().await?;
        must_be_held(other, &name, "two still share it").await?;
        second.release().await?;
        must_be_held(one, &name, "one still shares it").await?;
        let waiting = waiter(other, &name, Wait::UpTo(patience())).await?;
        third.release().await?;
        let writer = soon("the grant after the last shared holder", waiting).await???;
        ensure!(writer.is_some(), "the last shared holder is gone, and an exclusive waiter was not granted");
        ensure!(one.try_lock_shared(&name).await?.is_none(), "a lock that is held exclusively was shared");
        let none = other.lock_shared(&name, Duration::from_millis(40)).await?;
        ensure!(none.is_none(), "a lock that is held exclusively was shared with a waiter");
        if let Some(writer) = writer {
            writer.release().await?;
        }
        share(one, &name).await?.release().await?;
        // Dropped guards free too.
        drop((share(one, &name).await?, share(other, &name).await?));
        take_soon(one, &name, "all who shared it dropped their guards").await?.release().await?;
    }
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn a_waiting_writer_is_not_starved_by_readers(fixture: &Fixture) -> Checked {
    if !has_shared(&fixture.one).await? {
        return LACKING;
    }
    let (locks, name) = (&fixture.one, fresh("starved"));
    let reader = share(locks, &name).await?;
    let writer = waiter(locks, &name, Wait::Forever).await?;
    // Readers of the same process that overlap without end would starve it, unless new ones queue behind it.
    ensure!(locks.try_lock_shared(&name).await?.is_none(), "a reader overtook a writer that waits in the same process");
    let late = locks.lock_shared(&name, Duration::from_millis(30)).await?;
    ensure!(late.is_none(), "a waiting reader overtook a writer that waits in the same process");
    let behind = tokio::spawn(acquire(locks, &name, Wait::Forever, LockMode::Shared)?);
    tokio::time::sleep(Duration::from_millis(10)).await;
    ensure!(!writer.is_finished() && !behind.is_finished(), "a writer shares a lock, or a reader overtook it");
    reader.release().await?;
    let granted = soon("the grant to a writer among readers", writer).await???;
    ensure!(granted.is_some(), "a wait for ever ended with `None`");
    ensure!(!behind.is_finished(), "a reader was let in beside a writer");
    drop(granted);
    let granted = soon("the grant to a reader behind a writer", behind).await???;
    ensure!(granted.is_some(), "a wait for ever ended with `None`");
    drop(granted);
    take_soon(locks, &name, "all holders dropped their guards").await?.release().await?;
    Ok(Verdict::Passed)
}

pub(in crate::lock) async fn a_cancelled_writer_lets_the_readers_behind_it_in(fixture: &Fixture) -> Checked {
    if !has_shared(&fixture.one).await? {
        return LACKING;
    }
    let (locks, name) = (&fixture.one, fresh("queued-reader"));
    let reader = share(locks, &name).await?;
    let writer = waiter(locks, &name, Wait::Forever).await?;
    let behind = tokio::spawn(acquire(locks, &name, Wait::Forever, LockMode::Shared)?);
    tokio::time::sleep(Duration::from_millis(10)).await;
    writer.abort();
    let _ = writer.await;
    let granted = soon("the grant to a reader behind a writer that gave up", behind).await???;
    ensure!(granted.is_some(), "a wait for ever ended with `None`");
    must_be_held(&fixture.other, &name, "two share it").await?;
    drop((reader, granted));
    take_soon(&fixture.other, &name, "all who shared it dropped their guards").await?.release().await?;
    Ok(Verdict::Passed)
}
