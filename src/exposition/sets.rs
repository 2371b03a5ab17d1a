//! Which number has a label list? Each list of a page is kept once, whichever series have it.
//!
//! A page has hundreds of series and a few label lists, so that a search by a fingerprint finds most of them at once. A page made to
//! collide costs a search through ordered lists and no more.

use std::collections::BTreeMap;

use super::page::Label;
use super::table::mix_text;

/// The label lists of a page.
#[derive(Default)]
pub(super) struct Sets<'a> {
    known: BTreeMap<Key<'a>, u32>,
    /// The list that is being read.
    scratch: Key<'a>,
    /// Lists as they stood on the page, without a bound, up to the value; the last one first.
    blocks: [(&'a [u8], u32); 3],
}

/// Ordered by the fingerprint first, which differs at nearly every step of a search.
#[derive(Default, PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    fingerprint: u64,
    labels: Vec<Label<'a>>,
}

impl<'a> Sets<'a> {
    /// Room for the labels of the next line, empty.
    pub fn room(&mut self) -> &mut Vec<Label<'a>> {
        self.scratch.labels.clear();
        &mut self.scratch.labels
    }

    /// Sorts the labels that were put into the room; `false` if a name is there twice.
    pub fn sort(&mut self) -> bool {
        let labels = &mut self.scratch.labels;
        if labels.is_sorted_by(|left, right| left.0 < right.0) {
            return true;
        }
        labels.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        labels.windows(2).all(|pair| pair[0].0 != pair[1].0)
    }

    /// The number of the list in the room.
    pub fn number(&mut self) -> u32 {
        // Names are left out: lists that differ in them alone are rare, and found all the same.
        self.scratch.fingerprint = self.scratch.labels.iter().fold(0, |state, (_, value)| mix_text(state, value.as_bytes()));
        if let Some(&number) = self.known.get(&self.scratch) {
            return number;
        }
        let number = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        self.known.insert(std::mem::take(&mut self.scratch), number);
        number
    }

    /// The number of the list that `text`, from the end of a bare name on, starts with, and where the value begins, if it was seen before.
    pub fn seen(&self, text: &[u8]) -> Option<(u32, usize)> {
        self.blocks.iter().find(|(block, _)| !block.is_empty() && text.starts_with(block)).map(|(block, number)| (*number, block.len()))
    }

    /// Remembers how the list with this number stood on the page.
    pub fn remember(&mut self, block: &'a [u8], number: u32) {
        self.blocks.rotate_right(1);
        self.blocks[0] = (block, number);
    }

    /// Whether the list in the room has a label that is a bound in other families: what it says depends on the name before it.
    pub fn may_bound(&self) -> bool {
        self.scratch.labels.iter().any(|(name, _)| name == "le" || name == "quantile")
    }

    /// All lists, by number.
    pub fn into_lists(self) -> Vec<Box<[Label<'a>]>> {
        let mut lists: Vec<_> = self.known.into_iter().map(|(key, number)| (number, key.labels)).collect();
        lists.sort_unstable_by_key(|(number, _)| *number);
        lists.into_iter().map(|(_, labels)| labels.into_boxed_slice()).collect()
    }
}
