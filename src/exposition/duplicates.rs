//! Which samples of a family repeat a series that came before?
//!
//! A page with thousands of samples is read every few seconds, so samples are compared only where a 64-bit fingerprint agrees:
//! sorting numbers is several times cheaper than sorting label lists. A page made to collide costs a sort of label lists and no more.

use super::page::Sample;

/// A number that is equal for equal series, and hardly ever for others.
pub(super) fn fingerprint(sample: &Sample<'_>) -> u64 {
    let (part, bound) = sample.part.key();
    let mut state = mix(u64::from(part), bound);
    for (name, value) in &sample.labels {
        state = mix_bytes(mix_bytes(state, name.as_bytes()), value.as_bytes());
    }
    state
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

fn mix_bytes(mut state: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    for word in words {
        state = mix(state, u64::from_le_bytes(word.try_into().unwrap_or_default()));
    }
    // The length tells a text from the same text with zero bytes behind it, and where one ends and the next begins.
    mix(mix(state, u64::from_le_bytes(last)), bytes.len() as u64)
}

fn mix(state: u64, word: u64) -> u64 {
    // The golden ratio in 64 bits: odd, with an even mixture of ones and zeros. The rotation brings high bits, which a product mixes
    // best, to where the next product takes them up.
    (state.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
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
    fn fingerprints_depend_on_every_piece_of_a_series() {
        let series = [
            sample(Part::Value, &[], 0.0),
            sample(Part::Total, &[], 0.0),
            sample(Part::Value, &[("a", "")], 0.0),
            sample(Part::Value, &[("", "a")], 0.0),
            sample(Part::Value, &[("a", "\0")], 0.0),
            sample(Part::Value, &[("a", "12345678")], 0.0),
            sample(Part::Value, &[("a", "12345679")], 0.0),
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
