//! An ordered map that costs one exact allocation while it is small, and stays logarithmic when it is not.

use std::collections::BTreeMap;

/// Up to so many entries are kept in a sorted vector.
const FEW: usize = 16;

/// Most instances have one open pointer and one wait, some have ten thousand; both must be cheap.
#[derive(Debug)]
pub(crate) enum SmallMap<K, V> {
    /// Sorted by key.
    Few(Vec<(K, V)>),
    Many(BTreeMap<K, V>),
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        match self {
            Self::Few(few) => few.iter().find(|(k, _)| k == key).map(|(_, value)| value),
            Self::Many(many) => many.get(key),
        }
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self {
            Self::Few(few) => few.iter_mut().find(|(k, _)| k == key).map(|(_, value)| value),
            Self::Many(many) => many.get_mut(key),
        }
    }

    /// Puts the value in; gives back the one that stood there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self {
            Self::Few(few) => {
                let at = few.partition_point(|(k, _)| *k < key);
                if let Some((_, old)) = few.get_mut(at).filter(|(k, _)| *k == key) {
                    return Some(std::mem::replace(old, value));
                }
                if few.len() < FEW {
                    if few.len() == few.capacity() {
                        // One entry is the usual case, so the growth is by hand: 1, 2, 4, 8, 16.
                        few.reserve_exact(few.len().max(1));
                    }
                    few.insert(at, (key, value));
                } else {
                    let mut many: BTreeMap<K, V> = std::mem::take(few).into_iter().collect();
                    many.insert(key, value);
                    *self = Self::Many(many);
                }
                None
            }
            Self::Many(many) => many.insert(key, value),
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        match self {
            Self::Few(few) => {
                let at = few.iter().position(|(k, _)| k == key)?;
                Some(few.remove(at).1)
            }
            Self::Many(many) => {
                let value = many.remove(key)?;
                if many.is_empty() {
                    *self = Self::default();
                }
                Some(value)
            }
        }
    }

    /// All entries, by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (few, many) = match self {
            Self::Few(few) => (few.as_slice(), None),
            Self::Many(many) => ([].as_slice(), Some(many)),
        };
        few.iter().map(|(key, value)| (key, value)).chain(many.into_iter().flatten())
    }

    /// The entries whose key is this or a later one, by key.
    pub(crate) fn from(&self, key: &K) -> impl Iterator<Item = (&K, &V)> {
        let (few, many) = match self {
            Self::Few(few) => (few.get(few.partition_point(|(k, _)| k < key)..).unwrap_or_default(), None),
            Self::Many(many) => ([].as_slice(), Some(many.range(key..))),
        };
        few.iter().map(|(key, value)| (key, value)).chain(many.into_iter().flatten())
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_order_of_keys_through_its_growth_and_back() {
        let mut map = SmallMap::default();
        for key in (0..40).rev() {
            assert_eq!(map.insert(key, key * 10), None);
            assert_eq!(map.insert(key, key), Some(key * 10));
        }
        assert_eq!(map.len(), 40);
        assert!(map.iter().map(|(key, _)| *key).eq(0..40));
        assert!(map.from(&37).map(|(key, _)| *key).eq(37..40));
        for key in 0..40 {
            assert_eq!(map.get(&key), Some(&key));
            assert_eq!(map.remove(&key), Some(key));
            assert_eq!(map.get_mut(&key), None);
        }
        assert!(map.is_empty() && matches!(map, SmallMap::Few(_)));
    }

    #[test]
    fn a_small_one_is_read_from_a_key_on() {
        let mut map = SmallMap::default();
        map.insert(2, 'b');
        map.insert(4, 'd');
        assert!(map.from(&3).eq([(&4, &'d')]));
        assert!(map.from(&5).next().is_none());
        assert!(map.from(&2).count() == 2);
    }
}
