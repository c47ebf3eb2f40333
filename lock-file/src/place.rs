use latchwork_core::lock::LockKey;
use sha2::{Digest, Sha256};
use std::hash::{BuildHasherDefault, Hasher};

/// How many parts the table of held names has, and how many files the ranges lie in.
pub(crate) const SHARDS: usize = 64;

/// A key as the directory knows it: a part of its SHA-256. Two keys never share one, but by an accident of 2^-68 per pair.
///
/// The table of held names is keyed by it, so that what the operating system takes for one lock is one here too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The file of a range.
    pub(crate) file: u8,
    /// The offset of a range, below 2^62.
    pub(crate) offset: u64,
}

impl Place {
    pub(crate) fn of(key: &LockKey) -> Self {
        let digest = Sha256::digest(key.as_str().as_bytes());
        let mut bytes = digest.iter().copied();
        let file = bytes.next().unwrap_or_default() % SHARDS as u8;
        let offset = bytes.take(8).fold(0_u64, |offset, byte| offset << 8 | u64::from(byte)) >> 2;
        Self { file, offset }
    }

    /// For the name of a file.
    pub(crate) fn hex(self) -> String {
        format!("{:02x}{:016x}", self.file, self.offset)
    }
}

// The offset is as good as random already.
impl std::hash::Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.offset);
    }
}

/// Hands the hash of a [`Place`] through.
#[derive(Default)]
pub(crate) struct AsIs(u64);

pub(crate) type PlaceHash = BuildHasherDefault<AsIs>;

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        // The map takes its buckets from the lowest bits and its tags from the highest; the latter are always zero here.
        self.0.rotate_left(20)
    }

    fn write(&mut self, bytes: &[u8]) {
        // Not reached: a place writes one `u64`. Right all the same.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork_core::name::Namespace;

    #[test]
    fn a_place_is_the_same_in_every_process_and_version() {
        let key = LockKey::new(&Namespace::default(), "order-1").expect("a valid name");
        // By hand from the SHA-256 of "wfc:order-1".
        assert_eq!(Place::of(&key).hex(), "2833eba038f08958c3");
        assert!(Place::of(&key).offset < 1 << 62);
    }
}
