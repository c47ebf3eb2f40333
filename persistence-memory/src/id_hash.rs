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

    const IDS: usize = 16_384;

    /// The id whose UUID has these bits.
    fn id_of(bits: u128) -> InstanceId {
        let digits = format!("{bits:032x}");
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        parts.join("-").parse().expect("an id")
    }

    /// How many ids fall in each of these buckets.
    fn fill(hashes: &[u64], buckets: usize, bucket: impl Fn(u64) -> u64) -> Vec<usize> {
        let mut filled = vec![0; buckets];
        for hash in hashes {
            filled[usize::try_from(bucket(*hash)).expect("small")] += 1;
        }
        filled
    }

    /// Ids like those that the engine draws one after the other: the time, which hardly changes, then what is random. Here that is made
    /// from a fixed seed, so that the test sees the same ids each time.
    fn drawn_in_a_row() -> Vec<InstanceId> {
        let mut state = 1_u64;
        let mut random = move || {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        let id = |number: usize| {
            // Fifty in a millisecond.
            let millis = 1_893_456_000_000 + number as u128 / 50;
            let (high, low) = (u128::from(random() >> 52), u128::from(random() >> 2));
            id_of(millis << 80 | 7 << 76 | high << 64 | 2 << 62 | low)
        };
        (0..IDS).map(id).collect()
    }

    /// Ids that differ in one run of digits only, and there as little as can be: by a counter.
    fn counted(shift: u32) -> Vec<InstanceId> {
        let first = 0x01a2_2ce6_11dd_7114_8069_2d6c_1ec6_0000_u128;
        let id = |number: usize| id_of(first ^ ((number as u128) << shift));
        (0..IDS).map(id).collect()
    }

    fn assert_that_they_spread(ids: &[InstanceId], what: &str) {
        let hash = IdHash::default();
        let hashes: Vec<_> = ids.iter().map(|id| hash.hash_one(id)).collect();
        assert_eq!(hashes.iter().collect::<BTreeSet<_>>().len(), IDS, "hashes of {what}");
        // The table takes its place from the low bits, and from the high ones the mark by which it tells neighbours apart.
        for (end, filled) in [("low", fill(&hashes, 1_024, |hash| hash % 1_024)), ("high", fill(&hashes, 128, |hash| hash >> 57))]
        {
            let (mean, fullest) = (IDS / filled.len(), filled.iter().max().copied().unwrap_or_default());
            assert!(filled.iter().all(|ids| *ids > 0), "{what}, {end} bits: a bucket is empty");
            assert!(fullest <= mean * 2, "{what}, {end} bits: {fullest} ids in a bucket where {mean} are to be expected");
        }
    }

    #[test]
    fn ids_drawn_in_a_row_spread() {
        assert_that_they_spread(&drawn_in_a_row(), "ids drawn in a row");
    }

    #[test]
    fn ids_that_differ_in_few_digits_spread() {
        for shift in [0, 16, 32, 48, 80, 96] {
            assert_that_they_spread(&counted(shift), &format!("ids counted from bit {shift} on"));
        }
    }
}
