use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{fmt, str::FromStr, sync::Arc};
use uuid::Uuid;

macro_rules! uuid_text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// A new id: a UUID version 7, so that ids sort by the time they were drawn.
            #[must_use]
            pub fn new() -> Self {
                let mut text = Uuid::encode_buffer();
                Self(Arc::from(&*Uuid::now_v7().hyphenated().encode_lower(&mut text)))
            }

            /// The text: lower case, with hyphens.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            /// Reads a UUID in any of its usual forms.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let mut buffer = Uuid::encode_buffer();
                Ok(Self(Arc::from(&*Uuid::try_parse(text)?.hyphenated().encode_lower(&mut buffer))))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

uuid_text_id! {
    /// The id of a workflow instance, drawn by the engine before the first try to create it.
    InstanceId
}
uuid_text_id! {
    /// The id of an event, drawn by the engine before the first try to publish it.
    EventId
}
uuid_text_id! {
    /// The token of one claim of an activity. A newer claim of the same activity has another.
    ActivityToken
}

macro_rules! hash_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u128);

        impl $name {
            /// The id derived from these parts, in this order: the first 128 bits of their SHA-256. Each part is preceded by
            /// its length, so that parts never run into each other.
            #[must_use]
            pub fn derive(parts: &[&[u8]]) -> Self {
                let mut hash = Sha256::new();
                for part in parts {
                    hash.update((part.len() as u64).to_le_bytes());
                    hash.update(part);
                }
                let mut head = [0_u8; 16];
                for (to, from) in head.iter_mut().zip(hash.finalize()) {
                    *to = from;
                }
                Self(u128::from_be_bytes(head))
            }

            /// The number itself.
            #[must_use]
            pub const fn as_u128(self) -> u128 {
                self.0
            }

            /// From the number.
            #[must_use]
            pub const fn from_u128(number: u128) -> Self {
                Self(number)
            }
        }

        impl fmt::Display for $name {
            /// 32 hexadecimal digits, lower case.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:032x})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;

            /// Reads hexadecimal digits.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                u128::from_str_radix(text, 16).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hash_id! {
    /// The id of an execution pointer: derived from its parent, step name, branch, item, round and saga attempt, never random, so
    /// that a repeated run of the same work has the same id. Unique within its instance.
    PointerId
}
hash_id! {
    /// The id of a wait for an event or an activity: derived from its pointer and the number of the wait. Unique within its
    /// instance.
    SubscriptionId
}

/// The id of an inbox row, drawn by the store; unique within the store and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InboxId(pub i64);

/// The number of an instance's checkpoints: 1 at creation, one more with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub i64);

impl Revision {
    /// The revision of a new instance.
    pub const FIRST: Self = Self(1);

    /// The one after this.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_lower_case_and_sort_by_time() {
        let (first, second) = (InstanceId::new(), InstanceId::new());
        assert!(first < second);
        assert_eq!(first.as_str(), first.as_str().to_lowercase());
        assert_eq!(first.as_str().to_uppercase().parse::<InstanceId>(), Ok(first));
        assert!("order-1".parse::<InstanceId>().is_err());
    }

    #[test]
    fn parts_of_a_derived_id_do_not_run_into_each_other() {
        assert_ne!(PointerId::derive(&[b"ab", b"c"]), PointerId::derive(&[b"a", b"bc"]));
        let id = PointerId::derive(&[b"a"]);
        assert_eq!(id.to_string().len(), 32);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(serde_json::from_str::<PointerId>(&serde_json::to_string(&id).expect("json")).expect("id"), id);
    }
}
