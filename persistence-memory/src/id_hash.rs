//! A hash for ids that are random already.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds [`IdHasher`]s.
pub(crate) type IdHash = BuildHasherDefault<IdHasher>;

/// Folds the text of an id, eight bytes at a time. Ids are drawn at random by the engine, so the hash need not withstand
/// chosen keys, and a lookup is on the way of every checkpoint.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl IdHasher {
    fn fold(&mut self, word: u64) {
        // The multiplier of FxHash: 2^64 divided by pi, made odd.
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.fold(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.fold(u64::from(byte));
    }

    fn finish(&self) -> u64 {
        // The table takes its bits from both ends.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork_core::store::InstanceId;
    use std::{collections::BTreeSet, hash::BuildHasher};

    #[test]
    fn ids_drawn_in_a_row_spread() {
        let hash = IdHash::default();
        let hashes: BTreeSet<_> = (0..10_000).map(|_| hash.hash_one(InstanceId::new())).collect();
        assert_eq!(hashes.len(), 10_000);
        let low: BTreeSet<_> = hashes.iter().map(|hash| hash % 1_024).collect();
        let high: BTreeSet<_> = hashes.iter().map(|hash| hash >> 57).collect();
        assert_eq!((low.len(), high.len()), (1_024, 128));
    }
}
