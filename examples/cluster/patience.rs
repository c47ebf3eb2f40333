//! Calls that are tried again while the store says that a later try may succeed.

use std::time::Duration;

use latchwork::HostError;

/// With pauses that double up to a second, about half a minute in all.
const TRIES: u32 = 36;

/// Calls until it works, or fails for good. Both starts with a business key and events with an id of their own can be repeated.
pub(crate) async fn patiently<T, Fut>(mut call: impl FnMut() -> Fut) -> Result<T, HostError>
where
    Fut: Future<Output = Result<T, HostError>>,
{
    let mut pause = Duration::from_millis(50);
    for _ in 1..TRIES {
        match call().await {
            Err(error) if error.is_retryable() => tokio::time::sleep(pause).await,
            answer => return answer,
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    call().await
}
