//! What does a target say of a few things, in their order? A map for handfuls: entries side by side, where a tree would take a node of eleven places
//! for one.
//!
//! It reads and writes as a map does, whatever its keys are and also without any; `litemap` by itself would write lists.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use litemap::LiteMap;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Entries in the order of their keys, each key once.
#[derive(Clone, Debug, PartialEq)]
pub struct Few<K, V>(LiteMap<K, V>);

impl<K, V> Few<K, V> {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The values, in the order of their keys.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// The values by themselves.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_tuple_vec().into_iter().map(|(_, value)| value)
    }
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self(LiteMap::new_vec())
    }
}

impl<K, V> Deref for Few<K, V> {
    type Target = LiteMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K, V> DerefMut for Few<K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Few<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for Few<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Ord, V> Extend<(K, V)> for Few<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.0.extend(entries);
    }
}

impl<K, V> IntoIterator for Few<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_tuple_vec().into_iter()
    }
}

impl<'a, K, V> IntoIterator for &'a Few<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = <&'a LiteMap<K, V> as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        (&self.0).into_iter()
    }
}

impl<'a, K, V> IntoIterator for &'a mut Few<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = <&'a mut LiteMap<K, V> as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        (&mut self.0).into_iter()
    }
}

impl<K: Serialize, V: Serialize> Serialize for Few<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for Few<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

struct Entries<K, V>(PhantomData<(K, V)>);

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Visitor<'de> for Entries<K, V> {
    type Value = Few<K, V>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut few = Few::default();
        while let Some((key, value)) = access.next_entry()? {
            few.insert(key, value);
        }
        Ok(few)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_and_writes_what_a_tree_does(entries in prop::collection::vec(("[a-c]{0,2}", any::<i8>()), 0..12), gone in "[a-c]{0,2}") {
            let (mut few, mut tree) = (Few::from_iter(entries.clone()), BTreeMap::from_iter(entries));
            prop_assert_eq!(few.remove(&gone), tree.remove(&gone));
            let written = serde_json::to_string(&few).unwrap();
            prop_assert_eq!(&written, &serde_json::to_string(&tree).unwrap());
            prop_assert_eq!(serde_json::from_str::<Few<String, i8>>(&written).unwrap(), few.clone());
            prop_assert!(few.values_mut().map(|value| *value).eq(tree.values().copied()));
            prop_assert!(few.into_iter().eq(tree));
        }
    }
}
