use crate::name::{self, InvalidName, Namespace};
use sha2::{Digest, Sha256};
use std::{borrow::Cow, fmt, fmt::Write, sync::Arc};

/// The full key of a lock, namespace included.
///
/// * an instance: `{namespace}:{instance id}`
/// * a user's lock: `{namespace}:{name}`
/// * internal: `{namespace}:!...`; `!` is refused at the head of a user's name.
///
/// In the default namespace the first two are the very resource strings of Workflow Core's SQL Server provider.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockKey(Arc<str>);

impl LockKey {
    /// The key of a user's lock, or of an instance by its id.
    ///
    /// # Errors
    /// [`InvalidName`] when the name is empty, longer than 4,096 bytes, has control characters or white space at an end,
    /// or begins with `!`.
    pub fn new(namespace: &Namespace, name: &str) -> Result<Self, InvalidName> {
        name::check_lock(name)?;
        Ok(Self(format!("{namespace}:{name}").into()))
    }

    /// The key of an internal lock, for example `poll:{cluster}:{set}`. Users cannot make the same.
    ///
    /// # Errors
    /// [`InvalidName`] as in [`new`](Self::new).
    pub fn internal(namespace: &Namespace, name: &str) -> Result<Self, InvalidName> {
        name::check_lock(name)?;
        Ok(Self(format!("{namespace}:!{name}").into()))
    }

    /// The whole key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as a backend with this limit knows it: unchanged when it fits, else a readable head and the SHA-256 of
    /// the whole, so that two long keys never meet. The limit should leave room for 64 hexadecimal digits; with less
    /// room the digest is cut, and with it the distance between two keys.
    #[must_use]
    pub fn fit(&self, limit: KeyLimit) -> Cow<'_, str> {
        if limit.allows(&self.0) {
            return Cow::Borrowed(&self.0);
        }
        let mut tail = String::with_capacity(65);
        tail.push('~');
        for byte in Sha256::digest(self.0.as_bytes()) {
            let _ = write!(tail, "{byte:02x}");
        }
        let mut head = self.0.len();
        loop {
            head = self.0.floor_char_boundary(head);
            let fitted = format!("{}{tail}", self.0.get(..head).unwrap_or_default());
            if head == 0 || limit.allows(&fitted) {
                return Cow::Owned(crate::limits::cut(&fitted, limit.bytes).to_owned());
            }
            head -= 1;
        }
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockKey({:?})", self.0)
    }
}

/// How long a backend's lock names may be. Both limits hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyLimit {
    /// Bytes of UTF-8.
    pub bytes: usize,
    /// Units of UTF-16.
    pub utf16_units: usize,
}

impl KeyLimit {
    /// A limit in bytes of UTF-8.
    #[must_use]
    pub const fn bytes(bytes: usize) -> Self {
        Self { bytes, utf16_units: usize::MAX }
    }

    /// A further limit in units of UTF-16.
    #[must_use]
    pub const fn with_utf16_units(mut self, units: usize) -> Self {
        self.utf16_units = units;
        self
    }

    fn allows(self, key: &str) -> bool {
        key.len() <= self.bytes && (key.len() <= self.utf16_units || key.encode_utf16().count() <= self.utf16_units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(name: &str) -> LockKey {
        LockKey::new(&Namespace::default(), name).expect("a valid name")
    }

    #[test]
    fn instance_and_user_keys_are_those_of_workflow_core() {
        assert_eq!(key("0190-abc").as_str(), "wfc:0190-abc");
    }

    #[test]
    fn a_key_that_fits_is_not_changed() {
        let limit = KeyLimit::bytes(255).with_utf16_units(255);
        assert_eq!(key(&"x".repeat(251)).fit(limit).len(), 255);
        assert!(matches!(key(&"x".repeat(251)).fit(limit), Cow::Borrowed(_)));
        assert!(matches!(key(&"x".repeat(252)).fit(limit), Cow::Owned(_)));
    }

    proptest! {
        #[test]
        fn long_look_alike_keys_stay_apart_and_fit(head in "[a-zż𝄞]{100,300}", a in "[a-c]{1,4}", b in "[a-c]{1,4}") {
            let limit = KeyLimit::bytes(255).with_utf16_units(255);
            let (a, b) = (key(&format!("{head}{a}")), key(&format!("{head}{b}")));
            prop_assert_eq!(a == b, a.fit(limit) == b.fit(limit));
            prop_assert!(a.fit(limit).len() <= 255);
            prop_assert!(a.fit(limit).starts_with("wfc:"));
        }
    }
}
