//! What several stores keep in the same way; for those who write one.
//!
//! A pointer has columns for what its store looks at (sequence, whether it is open, scope) and its state; the rest of it is one JSON text.

use super::{Encoded, InboxRow, PointerId, PointerRecord, PointerStatus};
use crate::{BoxError, clock::Timestamp, store::Place};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// How many stripes the channels of events share.
pub const STRIPES: u16 = 256;

/// The stripe of a channel, 0 to 255: the last byte of the 64-bit FNV-1a hash of the name, a zero byte and the key, which all nodes of
/// a store must agree on for ever.
#[must_use]
pub fn stripe(name: &str, key: &str) -> u8 {
    let bytes = name.bytes().chain([0]).chain(key.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash.to_le_bytes()[0]
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The part of a pointer that a store does not look at.
#[derive(Serialize, Deserialize)]
struct StoredPointer {
    id: PointerId,
    step: Arc<str>,
    status: PointerStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<PointerId>,
    #[serde(default, skip_serializing_if = "is_zero")]
    branch: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    item: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    round: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    saga_attempt: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due: Option<i64>,
}

/// The JSON text of a pointer, without sequence, scope and state.
///
/// # Errors
/// None in practice; those of the encoder.
pub fn pointer_to_json(pointer: &PointerRecord) -> Result<String, serde_json::Error> {
    let micros = |time: Timestamp| time.timestamp_micros();
    serde_json::to_string(&StoredPointer {
        id: pointer.id,
        step: pointer.step.clone(),
        status: pointer.status,
        parent: pointer.parent,
        branch: pointer.place.branch,
        item: pointer.place.item,
        round: pointer.place.round,
        saga_attempt: pointer.place.attempt,
        attempts: pointer.attempts,
        started: pointer.started.map(micros),
        ended: pointer.ended.map(micros),
        due: pointer.due.map(micros),
    })
}

/// A pointer from its sequence, the text of [`pointer_to_json`], its scope and its state.
///
/// # Errors
/// What cannot be what was written.
pub fn pointer_from_json(
    sequence: i64,
    json: &str,
    scope: Option<&str>,
    state: Option<String>,
) -> Result<PointerRecord, BoxError> {
    let time = |micros: Option<i64>| {
        let read = |micros| Timestamp::from_timestamp_micros(micros).ok_or_else(|| format!("{micros} is no time"));
        micros.map(read).transpose()
    };
    let stored: StoredPointer = serde_json::from_str(json)?;
    let mut pointer = PointerRecord::new(stored.id, sequence, stored.step).with_status(stored.status);
    pointer.parent = stored.parent;
    pointer.place = Place { branch: stored.branch, item: stored.item, round: stored.round, attempt: stored.saga_attempt };
    pointer.scope = scope.map(str::parse).transpose()?;
    pointer.attempts = stored.attempts;
    pointer.started = time(stored.started)?;
    pointer.ended = time(stored.ended)?;
    pointer.due = time(stored.due)?;
    pointer.state = state.map(Encoded::from_json);
    Ok(pointer)
}

/// Inbox rows in the order of [`LoadedInstance::inbox`](super::LoadedInstance::inbox): as they come, which is by their ids, but the events of one
/// channel among themselves in the order of their places (time, number). A row without an event has no place.
#[must_use]
pub fn in_event_order<C: Ord, P: Ord>(rows: Vec<(InboxRow, Option<(C, P)>)>) -> Vec<InboxRow> {
    let mut channels: BTreeMap<&C, Vec<(&P, usize)>> = BTreeMap::new();
    for (at, (_, place)) in rows.iter().enumerate() {
        if let Some((channel, order)) = place {
            channels.entry(channel).or_default().push((order, at));
        }
    }
    let mut source: Vec<usize> = (0..rows.len()).collect();
    for events in channels.into_values().filter(|events| events.len() > 1) {
        let mut sorted = events.clone();
        sorted.sort();
        for ((_, to), (_, from)) in events.into_iter().zip(sorted) {
            if let Some(place) = source.get_mut(to) {
                *place = from;
            }
        }
    }
    let mut rows: Vec<_> = rows.into_iter().map(|(row, _)| Some(row)).collect();
    source.into_iter().filter_map(|from| rows.get_mut(from).and_then(Option::take)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Control, InboxId, InboxMessage};

    #[test]
    fn a_pointer_reads_back() {
        let mut pointer = PointerRecord::new(PointerId::from_u128(7), 3, "pick").with_status(PointerStatus::Sleeping);
        pointer.parent = Some(PointerId::from_u128(6));
        pointer.place = Place { branch: 1, item: Some(2), round: 3, attempt: 4 };
        pointer.attempts = 5;
        pointer.due = Timestamp::from_timestamp_micros(1);
        let json = pointer_to_json(&pointer).expect("encoded");
        assert_eq!(pointer_from_json(3, &json, None, None).expect("decoded"), pointer);
        assert!(pointer_from_json(3, "{}", None, None).is_err());
        assert!(pointer_from_json(3, &json, Some("no id"), None).is_err());
    }

    #[test]
    fn the_stripe_of_a_channel_never_changes() {
        assert_eq!([stripe("", ""), stripe("packed", "A-1"), stripe("packedA", "-1")], [0xdf, 0x30, 0xf2]);
    }

    #[test]
    fn the_events_of_a_channel_come_in_their_own_order() {
        let row = |id| InboxRow { id: InboxId(id), message: InboxMessage::Control(Control::Resume) };
        let rows = vec![(row(1), Some(("a", 9))), (row(2), None), (row(3), Some(("b", 1))), (row(4), Some(("a", 5)))];
        let ids: Vec<i64> = in_event_order(rows).into_iter().map(|row| row.id.0).collect();
        assert_eq!(ids, [4, 2, 3, 1]);
    }
}
