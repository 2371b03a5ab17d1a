//! Which samples of a family repeat a series that came before?
//!
//! Label lists are numbered, so that series are compared as numbers. Of buckets that stand in the order of their bounds, as all exporters
//! write them, only the first is looked at: most families are done without a comparison of each sample with others.

use super::page::{Part, Row};

/// The places of the rows that repeat an earlier one, in rising order. `room` is for the function's own use.
pub(super) fn repeated(rows: &[Row], room: &mut Vec<Series>) -> Vec<usize> {
    if runs_differ(rows, room) {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_unstable_by_key(|&place| (series(&rows[place]), place));
    let pairs = order.windows(2).filter(|pair| series(&rows[pair[0]]) == series(&rows[pair[1]]));
    let mut repeated: Vec<usize> = pairs.map(|pair| pair[1]).collect();
    repeated.sort_unstable();
    repeated
}

/// Numbers that differ between series that differ: of the labels and of the part.
pub(super) type Series = (u32, (u8, u64));

fn series(row: &Row) -> Series {
    (row.set, row.part.key())
}

/// Whether no two runs can share a series: neither two runs of buckets with the same labels nor two other rows of one series. A run is
/// buckets in a row with the same labels and rising bounds, or one row of another kind.
fn runs_differ(rows: &[Row], room: &mut Vec<Series>) -> bool {
    room.clear();
    let mut before: Option<&Row> = None;
    for row in rows {
        match (before.map(|row| (row.set, row.part)), row.part) {
            (Some((set, Part::Bucket(lower))), Part::Bucket(bound)) if set == row.set && lower < bound => {}
            (_, Part::Bucket(_)) => room.push((row.set, Part::Bucket(0.0).key())),
            _ => room.push(series(row)),
        }
        before = Some(row);
    }
    room.sort_unstable();
    room.windows(2).all(|pair| pair[0] != pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(series: &[(u32, Part)]) -> Vec<usize> {
        let rows: Vec<Row> = series.iter().map(|&(set, part)| Row { part, set, line: 1 }).collect();
        repeated(&rows, &mut Vec::new())
    }

    #[test]
    fn a_series_is_repeated_where_labels_and_part_are() {
        let mixed = [
            (0, Part::Value),
            (1, Part::Value),
            (0, Part::Value),
            (0, Part::Sum),
            (0, Part::Value),
            (0, Part::Bucket(1.0)),
            (0, Part::Bucket(2.0)),
            (0, Part::Quantile(1.0)),
            (0, Part::Quantile(2.0)),
        ];
        assert_eq!(places(&mixed), [2, 4]);
    }

    #[test]
    fn buckets_are_repeated_within_and_across_runs_of_rising_bounds() {
        let buckets = |bounds: &[(u32, f64)]| places(&bounds.iter().map(|&(set, bound)| (set, Part::Bucket(bound))).collect::<Vec<_>>());
        assert_eq!(buckets(&[(0, 1.0), (0, 2.0), (1, 1.0), (1, 2.0)]), [0; 0]);
        assert_eq!(buckets(&[(0, 1.0), (0, 2.0), (0, 2.0), (0, f64::INFINITY)]), [2]);
        assert_eq!(buckets(&[(0, 1.0), (0, 3.0), (0, 2.0), (0, 3.0)]), [3]);
        assert_eq!(buckets(&[(0, 1.0), (1, 1.0), (0, 1.0), (1, 2.0)]), [2]);
        assert_eq!(buckets(&[(0, 3.0), (0, 2.0), (0, 1.0)]), [0; 0]);
    }
}
