//! The warehouse: packs what the workflows hand to it, and publishes that it did. It belongs to the parent process; the workflows wait in
//! the node processes.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::{StreamExt, TryStreamExt, stream};
use latchwork::{
    HostError, WorkflowHost,
    store::{EventId, PointerId},
};
use tokio::sync::mpsc;

use crate::{
    fulfilment::{PACKED, Packed},
    ledger::Effect,
    patience::patiently,
};

/// How long the packing of a batch takes.
const PACKING: Duration = Duration::from_millis(20);
/// Events published at the same time.
const AT_ONCE: usize = 64;

/// Packs orders as they are handed over, until no more can come.
///
/// Each "packed" event has an id that is derived from the hand-over's idempotency key, so that a warehouse that starts again, and
/// reads its list from the beginning, publishes nothing twice.
pub(crate) async fn run(host: WorkflowHost, mut handed_over: mpsc::UnboundedReceiver<Effect>) -> Result<()> {
    let mut batch = Vec::new();
    while handed_over.recv_many(&mut batch, 1_000).await > 0 {
        tokio::time::sleep(PACKING).await;
        let publishing = batch.drain(..).map(|effect| {
            let host = &host;
            async move {
                patiently(|| publish(host, &effect))
                    .await
                    .with_context(|| format!("order {} could not be reported as packed", effect.order))
            }
        });
        stream::iter(publishing).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    }
    Ok(())
}

async fn publish(host: &WorkflowHost, effect: &Effect) -> Result<(), HostError> {
    let packed = Packed { parcels: 1 + u32::from(effect.order.bytes().last().unwrap_or_default() % 3) };
    let event = host.new_event(PACKED, &effect.order, &packed)?;
    let event = match event_id(&effect.key) {
        Some(id) => event.with_id(id),
        None => event,
    };
    host.publish(event).await?;
    Ok(())
}

/// 32 hexadecimal digits are a UUID.
fn event_id(key: &str) -> Option<EventId> {
    PointerId::derive(&[PACKED.as_bytes(), key.as_bytes()]).to_string().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_hand_over_has_the_same_event() {
        assert!(event_id("i/1").is_some());
        assert_eq!(event_id("i/1"), event_id("i/1"));
        assert_ne!(event_id("i/1"), event_id("i/2"));
    }
}
