//! Which samples of a family repeat a series that came before?
//!
//! A page with thousands of samples is read every few seconds, so samples are compared only where a 64-bit fingerprint agrees:
//! sorting numbers is several times cheaper than sorting label lists. A page made to collide costs a sort of label lists and no more.

use super::page::Sample;

/// A number that is equal for equal series, and seldom for others. Label names are left out: series of one family that differ in them
/// alone are rare, and a needless comparison now and then is cheaper than reading all names of a page once more.
pub(super) fn fingerprint(sample: &Sample<'_>) -> u64 {
    let (part, bound) = sample.part.key();
    sample.labels.iter().fold(mix(u64::from(part), bound), |state, (_, value)| mix_text(state, value.as_bytes()))
}

/// The places of the samples that repeat an earlier one, in rising order. `fingerprints` are those of `samples`, in the same order.
pub(super) fn repeated(samples: &[Sample<'_>], fingerprints: &[u64]) -> Vec<usize> {
    let mut order: Vec<(u64, usize)> = fingerprints.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let mut repeated = Vec::new();
    for suspects in order.chunk_by_mut(|left, right| left.0 == right.0).filter(|suspects| suspects.len() > 1) {
        let series = |place: usize| (samples[place].part.key(), &samples[place].labels);
        suspects.sort_unstable_by(|&(_, left), &(_, right)| series(left).cmp(&series(right)).then(left.cmp(&right)));
        let pairs = suspects.windows(2).filter(|pair| series(pair[0].1) == series(pair[1].1));
        repeated.extend(pairs.map(|pair| pair[1].1));
    }
    repeated.sort_unstable();
    repeated
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
    let mut short = [0; 8];
    short[..text.len()].copy_from_slice(text);
    (u64::from_le_bytes(short), 0)
}

/// Both halves of a product, in which every bit of either number takes part.
fn mix(left: u64, right: u64) -> u64 {
    // Arbitrary odd numbers (digits of the golden ratio and of the root of two) keep a zero on one side from wiping out the other.
    let product = u128::from(left ^ 0x9E37_79B9_7F4A_7C15) * u128::from(right ^ 0x6A09_E667_F3BC_C909);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::super::page::Part;
    use super::*;
    use std::borrow::Cow;

    fn sample(part: Part, labels: &[(&'static str, &'static str)], value: f64) -> Sample<'static> {
        let labels = labels.iter().map(|&(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value))).collect();
        Sample { part, labels, value, line: 1 }
    }

    #[test]
    fn series_are_told_apart_even_if_all_fingerprints_collide() {
        let samples = [
            sample(Part::Value, &[("a", "1")], 1.0),
            sample(Part::Value, &[("a", "2")], 2.0),
            sample(Part::Value, &[("a", "1")], 3.0),
            sample(Part::Sum, &[("a", "1")], 4.0),
            sample(Part::Value, &[("a", "1")], 5.0),
            sample(Part::Bucket(1.0), &[("a", "1")], 6.0),
            sample(Part::Bucket(2.0), &[("a", "1")], 7.0),
        ];
        assert_eq!(repeated(&samples, &[7; 7]), [2, 4]);
        assert_eq!(repeated(&samples, &samples.each_ref().map(fingerprint)), [2, 4]);
    }

    #[test]
    fn fingerprints_tell_parts_and_values_apart() {
        let series = [
            sample(Part::Value, &[], 0.0),
            sample(Part::Total, &[], 0.0),
            sample(Part::Value, &[("a", "")], 0.0),
            sample(Part::Value, &[("a", "\0")], 0.0),
            sample(Part::Value, &[("a", "12345678")], 0.0),
            sample(Part::Value, &[("a", "12345679")], 0.0),
            sample(Part::Value, &[("a", "12345678 and more")], 0.0),
            sample(Part::Value, &[("a", "12345678 and much more")], 0.0),
            sample(Part::Value, &[("a", "http://10.0.0.1:8000/metrics?format=text")], 0.0),
            sample(Part::Value, &[("a", "http://10.0.0.2:8000/metrics?format=text")], 0.0),
            sample(Part::Value, &[("a", "1"), ("b", "2")], 0.0),
            sample(Part::Value, &[("a", "2"), ("b", "1")], 0.0),
            sample(Part::Bucket(0.0), &[], 0.0),
            sample(Part::Bucket(1.0), &[], 0.0),
        ];
        let mut fingerprints: Vec<u64> = series.iter().map(fingerprint).collect();
        fingerprints.sort_unstable();
        fingerprints.dedup();
        assert_eq!(fingerprints.len(), series.len());
    }
}
