//! Locks without any workflow: a report that only one process of this machine may build at a time.
//!
//! `cargo run --example locks`, in two terminals at once if you like.

use std::time::Duration;

use anyhow::{Result, bail};
use latchwork::{lock_file::FileLocks, prelude::*};

#[tokio::main]
async fn main() -> Result<()> {
    // Any process that opens this folder takes part.
    let locks = FileLocks::open(std::env::temp_dir().join("latchwork-locks")).await?;

    // Waits for up to ten seconds; `None` is contention, errors are errors.
    let Some(guard) = locks.lock("nightly-report", Duration::from_secs(10)).await? else {
        println!("another process is at the report");
        return Ok(());
    };
    // Held is held, also against this process itself.
    if locks.try_lock("nightly-report").await?.is_some() {
        bail!("the lock was given away twice");
    }
    tokio::select! {
        pages = build_report() => println!("the report has {pages} pages"),
        why = guard.lost() => println!("the lock is lost, so the report is left alone: {why}"),
    }
    guard.release().await?;

    // Several at once, in whatever order they are named: two callers never wait for each other in a circle.
    match locks.lock_all(["accounts/ada", "accounts/bob"], Duration::from_secs(10)).await? {
        Some(both) => {
            println!("both accounts are held: {}", both.guards().len() == 2);
            both.release().await?;
        }
        None => println!("another process holds one of the accounts"),
    }
    locks.stop(Duration::from_secs(5)).await?;
    Ok(())
}

async fn build_report() -> u32 {
    tokio::time::sleep(Duration::from_millis(200)).await;
    42
}
