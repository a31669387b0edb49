//! A small mapping that keeps the order of its source, and is equal to another one whatever their orders.

use std::hash::{Hash, Hasher};

/// Keys and values in the order of their source; each key once.
#[derive(Clone, Debug)]
pub struct Pairs<K, V>(Vec<(K, V)>);

impl<K: PartialEq, V> Pairs<K, V> {
    /// The value of a key.
    pub fn get<Q: PartialEq<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.0.iter().find_map(|(known, value)| (key == known).then_some(value))
    }

    /// The keys and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Whether it has no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Ord, V> Pairs<K, V> {
    fn sorted(&self) -> Vec<&(K, V)> {
        let mut pairs: Vec<_> = self.0.iter().collect();
        pairs.sort_by(|one, other| one.0.cmp(&other.0));
        pairs
    }
}

impl<K, V> Default for Pairs<K, V> {
    fn default() -> Self {
        Pairs(Vec::new())
    }
}

impl<K: PartialEq, V> FromIterator<(K, V)> for Pairs<K, V> {
    /// The last value of a key counts, in the place of its first one.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        let mut found: Vec<(K, V)> = Vec::with_capacity(pairs.size_hint().0);
        for (key, value) in pairs {
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => *known = value,
                None => found.push((key, value)),
            }
        }
        Pairs(found)
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Pairs<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
            || self.0.len() == other.0.len()
                && self.0.iter().all(|(key, value)| other.0.iter().any(|(known, found)| known == key && found == value))
    }
}

impl<K: Eq, V: Eq> Eq for Pairs<K, V> {}

impl<K: Ord + Hash, V: Hash> Hash for Pairs<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.sorted().hash(state);
    }
}
