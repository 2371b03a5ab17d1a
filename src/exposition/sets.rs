//! Which number has a label list? Each list of a page is kept once, whichever series have it, and all of them one behind the other.
//!
//! A page has hundreds of series and a few label lists, so that a search by a fingerprint finds most of them at once. A page made to
//! collide costs a search through ordered lists and no more.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::page::Label;
use super::recent::Recent;
use super::table::mix_text;

/// Label lists by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists<'a> {
    labels: Vec<Label<'a>>,
    /// Up to which label each list reaches, by number.
    ends: Vec<usize>,
}

impl<'a> Lists<'a> {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn labels(&self) -> &[Label<'a>] {
        &self.labels
    }

    pub fn get(&self, number: u32) -> &[Label<'a>] {
        let number = number as usize;
        let from = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.labels[from..self.ends[number]]
    }

    /// The same by themselves, without the page.
    pub fn lasting(&self) -> Lists<'static> {
        let owned = |text: &Cow<'_, str>| Cow::Owned(text.as_ref().to_owned());
        Lists { labels: self.labels.iter().map(|(name, value)| (owned(name), owned(value))).collect(), ends: self.ends.clone() }
    }

    /// From which label on the next list stands.
    fn end(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }
}

/// The label lists of a page under construction.
#[derive(Default)]
pub(super) struct Sets<'a> {
    /// Behind the last one stands the list that is being read.
    lists: Lists<'a>,
    /// The first list with each fingerprint.
    known: BTreeMap<u64, u32>,
    /// The others, which are hardly ever there.
    collided: BTreeMap<Vec<Label<'a>>, u32>,
    /// Lists as they stood on the page, without a bound, up to the value.
    blocks: Recent<(&'a [u8], u32)>,
}

impl<'a> Sets<'a> {
    /// Room for the labels of the next line, which are to be put behind what is there.
    pub fn room(&mut self) -> &mut Vec<Label<'a>> {
        self.lists.labels.truncate(self.lists.end());
        &mut self.lists.labels
    }

    /// The labels that were put into the room.
    fn list(&self) -> &[Label<'a>] {
        &self.lists.labels[self.lists.end()..]
    }

    /// Sorts the labels that were put into the room; `false` if a name is there twice.
    pub fn sort(&mut self) -> bool {
        let end = self.lists.end();
        let labels = &mut self.lists.labels[end..];
        if labels.is_sorted_by(|left, right| left.0 < right.0) {
            return true;
        }
        labels.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        labels.windows(2).all(|pair| pair[0].0 != pair[1].0)
    }

    /// The number of the list in the room.
    pub fn number(&mut self) -> u32 {
        // Names are left out: lists that differ in them alone are rare, and found all the same.
        let fingerprint = self.list().iter().fold(0, |state, (_, value)| mix_text(state, value.as_bytes()));
        let next = u32::try_from(self.lists.len()).unwrap_or(u32::MAX);
        match self.known.get(&fingerprint) {
            Some(&number) if self.lists.get(number) == self.list() => return number,
            Some(_) => match self.collided.get(self.list()) {
                Some(&number) => return number,
                None => drop(self.collided.insert(self.list().to_vec(), next)),
            },
            None => drop(self.known.insert(fingerprint, next)),
        }
        self.lists.ends.push(self.lists.labels.len());
        next
    }

    /// The number of the list that `text`, from the end of a bare name on, starts with, and where the value begins, if it was seen before.
    pub fn seen(&mut self, text: &[u8]) -> Option<(u32, usize)> {
        self.blocks.find(|(block, _)| text.starts_with(block)).map(|(block, number)| (number, block.len()))
    }

    /// Remembers how the list with this number stood on the page; it is not empty.
    pub fn remember(&mut self, block: &'a [u8], number: u32) {
        self.blocks.keep((block, number));
    }

    /// Whether the list with this number has a label that is a bound in other families: what it says depends on the name before it.
    pub fn may_bound(&self, number: u32) -> bool {
        self.lists.get(number).iter().any(|(name, _)| name == "le" || name == "quantile")
    }

    /// All lists.
    pub fn into_lists(mut self) -> Lists<'a> {
        self.room();
        self.lists
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(sets: &mut Sets<'static>, labels: &[(&'static str, &'static str)]) -> u32 {
        sets.room().extend(labels.iter().map(|(name, value)| (Cow::Borrowed(*name), Cow::Borrowed(*value))));
        assert!(sets.sort());
        sets.number()
    }

    #[test]
    fn each_list_has_one_number_whatever_its_fingerprint() {
        // Fingerprints leave names out, so that the last three collide with the first.
        let lists: [&[(&str, &str)]; 7] = [
            &[("a", "1"), ("b", "2")],
            &[],
            &[("a", "2"), ("b", "1")],
            &[("a", "1")],
            &[("a", "1"), ("c", "2")],
            &[("b", "1"), ("c", "2")],
            &[("c", "1"), ("d", "2")],
        ];
        let mut sets = Sets::default();
        for _ in 0..3 {
            for (place, list) in (0..).zip(lists) {
                assert_eq!(number(&mut sets, list), place);
            }
        }
        assert_eq!(number(&mut sets, &[("b", "2"), ("a", "1")]), 0);
        sets.room().push((Cow::Borrowed("left"), Cow::Borrowed("over")));
        let found = sets.into_lists();
        assert_eq!((found.len(), found.labels().len()), (lists.len(), 11));
        for (place, list) in (0..).zip(lists) {
            assert_eq!(found.get(place).iter().map(|(name, value)| (&**name, &**value)).collect::<Vec<_>>(), list);
        }
    }
}
