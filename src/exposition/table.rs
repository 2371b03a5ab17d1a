//! Which place has a name? Names in either spelling, `:` and `_` counting as one character.

use super::wanted::same_name;

/// Names with their places. A page asks for hundreds of names of which most are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// In the order in which they were added.
    names: Vec<(String, usize)>,
    /// Indices into `names` plus one, at the place that the hash gives or behind it; 0 is free. A power of two, at least twice the names.
    slots: Vec<u32>,
    /// A bit for each name, at the place that its length and its end give: tells of most other names that they are not there.
    ends: Vec<u64>,
}

impl Table {
    pub fn len(&self) -> usize {
        self.names.len()
    }

    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<usize> {
        let bit = end(name) as usize & (self.ends.len() * 64).wrapping_sub(1);
        if self.ends.get(bit / 64).is_none_or(|bits| bits >> (bit % 64) & 1 == 0) {
            return None;
        }
        self.slot(name).ok().map(|index| self.names[index].1)
    }

    /// The index of the name, or the free slot where it would stand; `usize::MAX` where there is no slot yet.
    fn slot(&self, name: &[u8]) -> Result<usize, usize> {
        let mask = self.slots.len().wrapping_sub(1);
        if self.slots.is_empty() {
            return Err(usize::MAX);
        }
        let mut slot = whole(name) as usize & mask;
        while let Some(index) = (self.slots[slot] as usize).checked_sub(1) {
            if same_name(self.names[index].0.as_bytes(), name) {
                return Ok(index);
            }
            slot = (slot + 1) & mask;
        }
        Err(slot)
    }

    /// Adds a name, or gives one that is there another place.
    pub fn insert(&mut self, name: &str, place: usize) {
        match self.slot(name.as_bytes()) {
            Ok(index) => self.names[index].1 = place,
            Err(_) => {
                self.names.push((name.to_owned(), place));
                if self.names.len() * 2 > self.slots.len() {
                    let slots = (self.names.len() * 4).next_power_of_two();
                    self.slots = vec![0; slots];
                    self.ends = vec![0; (slots / 8).max(1)];
                    (0..self.names.len()).for_each(|index| self.enter(index));
                } else {
                    self.enter(self.names.len() - 1);
                }
            }
        }
    }

    fn enter(&mut self, index: usize) {
        let name = self.names[index].0.as_bytes();
        let bit = end(name) as usize & (self.ends.len() * 64 - 1);
        self.ends[bit / 64] |= 1 << (bit % 64);
        if let Err(slot) = self.slot(name) {
            self.slots[slot] = u32::try_from(index + 1).unwrap_or(u32::MAX);
        }
    }
}

/// A number that a name's length and last eight characters give.
#[inline]
fn end(name: &[u8]) -> u64 {
    let word = name.last_chunk().map_or(0, |last| plain(u64::from_le_bytes(*last)));
    mix(word, name.len() as u64)
}

/// A number that all characters of a name give.
fn whole(name: &[u8]) -> u64 {
    let (words, rest) = name.as_chunks::<8>();
    let state = words.iter().fold(name.len() as u64, |state, word| mix(state, plain(u64::from_le_bytes(*word))));
    mix(state, plain(short(rest)))
}

/// Eight characters with `_` for every `:`.
#[inline]
fn plain(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let differs = word ^ (EACH * b':' as u64);
    // The high bit of each byte that is not zero, without carries from one byte into the next.
    let others = ((differs & (EACH * 0x7f)) + EACH * 0x7f) | differs;
    let colons = !others >> 7 & EACH;
    word ^ (colons * (b':' ^ b'_') as u64)
}

/// Mixes a text into a number.
pub(super) fn mix_text(state: u64, text: &[u8]) -> u64 {
    let words = text.as_chunks::<8>().0;
    let state =
        words.as_chunks::<2>().0.iter().fold(state, |state, &[low, high]| mix(state ^ u64::from_le_bytes(low), u64::from_le_bytes(high)));
    let (low, high) = last_words(text);
    mix(state ^ low, high.wrapping_add(text.len() as u64))
}

/// The last 16 bytes of a text as two numbers. Where it is shorter they overlap or are filled up with zeros; where it is longer they
/// repeat bytes that were mixed in before, which is quicker than to single out the new ones.
fn last_words(text: &[u8]) -> (u64, u64) {
    if let Some(&last) = text.last_chunk::<16>() {
        let both = u128::from_le_bytes(last);
        return (both as u64, (both >> 64) as u64);
    }
    if let (Some(&first), Some(&last)) = (text.first_chunk(), text.last_chunk()) {
        return (u64::from_le_bytes(first), u64::from_le_bytes(last));
    }
    (short(text), 0)
}

/// Fewer than eight bytes as a number. Built in a register: bytes that are copied and then read as one number have to wait for each other.
#[inline]
fn short(text: &[u8]) -> u64 {
    text.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Both halves of a product, in which every bit of either number takes part.
#[inline]
fn mix(left: u64, right: u64) -> u64 {
    // Arbitrary odd numbers (digits of the golden ratio and of the root of two) keep a zero on one side from wiping out the other.
    let product = u128::from(left ^ 0x9E37_79B9_7F4A_7C15) * u128::from(right ^ 0x6A09_E667_F3BC_C909);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_many_is_found_at_its_place_and_no_other() {
        let mut table = Table::default();
        assert_eq!(table.get(b"a0"), None);
        (0..1000).for_each(|place| table.insert(&format!("a{place}"), place));
        table.insert("a7", 7000);
        assert_eq!(table.len(), 1000);
        for place in 0..1000 {
            let expected = if place == 7 { 7000 } else { place };
            assert_eq!(table.get(format!("a{place}").as_bytes()), Some(expected));
            assert_eq!(table.get(format!("b{place}").as_bytes()), None);
        }
    }

    #[test]
    fn a_name_is_found_in_either_spelling_whatever_its_length() {
        let long = "a:b_c:d_e:f_g:h_i:j_k:l_m";
        for length in 1..=long.len() {
            let name = &long[..length];
            let mut table = Table::default();
            table.insert(name, 7);
            for spelling in [name.to_owned(), name.replace(':', "_"), name.replace('_', ":")] {
                assert_eq!(table.get(spelling.as_bytes()), Some(7), "{spelling}");
            }
            for other in [format!("{name}x"), name.replace('a', "b"), name[1..].to_owned(), name.replace(['_', ':'], ";")] {
                assert_eq!(table.get(other.as_bytes()).is_some(), same_name(name.as_bytes(), other.as_bytes()), "{other}");
            }
        }
    }

    #[test]
    fn eight_characters_become_plain_whatever_they_are() {
        for byte in 0..=255_u8 {
            for place in 0..8 {
                let mut word = [b':', 0, 0x80, 0xff, b'_', b'9', b';', 0x3a];
                word[place] = byte;
                let expected = word.map(|byte| if byte == b':' { b'_' } else { byte });
                assert_eq!(plain(u64::from_le_bytes(word)).to_le_bytes(), expected);
            }
        }
    }

    #[test]
    fn texts_that_differ_have_other_fingerprints() {
        let texts = [
            "",
            "\0",
            "12345678",
            "12345679",
            "12345678 and more",
            "12345678 and much more",
            "http://10.0.0.1:8000/metrics?format=text",
            "http://10.0.0.2:8000/metrics?format=text",
        ];
        let mut found: Vec<u64> = texts.iter().map(|text| mix_text(0, text.as_bytes())).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), texts.len());
    }
}
