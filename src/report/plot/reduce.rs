//! How do tens of thousands of points become a drawing of some kilobytes without losing a peak?
//!
//! - Lines keep the lowest and the highest value of each of [`COLUMNS`] columns: more cannot be seen, and an overload of a single tick stays.
//! - Steps keep each change; where a column has many, the lowest, the highest and the last.
//! - Means over equal spans are for rates, whose noise would hide them.
//!
//! A day at 5 s (17,280 points) takes at most some 12 kB a line this way.

use super::{Band, Mark, Point};
use crate::units::Seconds;

/// Columns of a drawing. Plots are at most about as wide as that many pixels.
const COLUMNS: f64 = 600.0;
/// Changes of a column that are all kept.
const FEW: usize = 3;
/// Columns of marks: a mark is some pixels wide.
const MARK_COLUMNS: f64 = 100.0;

/// A place in the drawing: of the width from the left, and of the height from the bottom.
pub(super) type Place = (f64, f64);

fn column(x: f64, columns: f64) -> u32 {
    // `as` saturates; x is from 0 to 1.
    (x * columns) as u32
}

#[derive(Clone, Copy)]
struct Extremes {
    column: u32,
    /// Lowest and highest; `None` while only unknown values were seen.
    ends: Option<(Place, Place)>,
}

/// Pieces of a line. A column of which nothing is known ends a piece.
pub(super) fn line(places: impl Iterator<Item = (f64, Option<f64>)>) -> Vec<Vec<Place>> {
    let mut pieces = vec![Vec::new()];
    let mut open: Option<Extremes> = None;
    for (x, y) in places {
        let place = y.map(|y| (x, y));
        let column = column(x, COLUMNS);
        match &mut open {
            Some(extremes) if extremes.column == column => extremes.add(place),
            _ => {
                flush(open, &mut pieces);
                open = Some(Extremes { column, ends: place.map(|place| (place, place)) });
            }
        }
    }
    flush(open, &mut pieces);
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

impl Extremes {
    fn add(&mut self, place: Option<Place>) {
        let Some(place) = place else { return };
        let (low, high) = self.ends.unwrap_or((place, place));
        self.ends = Some((if place.1 < low.1 { place } else { low }, if place.1 > high.1 { place } else { high }));
    }
}

fn flush(extremes: Option<Extremes>, pieces: &mut Vec<Vec<Place>>) {
    let Some(Extremes { ends, .. }) = extremes else { return };
    match (ends, pieces.last_mut()) {
        (Some((low, high)), Some(piece)) => {
            let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
            piece.push(first);
            if second != first {
                piece.push(second);
            }
        }
        _ => pieces.push(Vec::new()),
    }
}

/// A value that holds from each place on, and where the last of them ends.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stairs {
    pub changes: Vec<Place>,
    pub end: f64,
}

/// Pieces of a stair. Neighbours that are equal join; an unknown value ends a piece.
pub(super) fn steps(places: impl Iterator<Item = (f64, Option<f64>)>) -> Vec<Stairs> {
    let mut pieces: Vec<Stairs> = Vec::new();
    let mut open = false;
    for (x, y) in places {
        if let Some(piece) = pieces.last_mut().filter(|_| open) {
            piece.end = x;
        }
        match (y, pieces.last_mut().filter(|_| open)) {
            (None, _) => open = false,
            (Some(y), None) => {
                pieces.push(Stairs { changes: vec![(x, y)], end: x });
                open = true;
            }
            (Some(y), Some(piece)) => {
                if piece.changes.last().is_none_or(|last| last.1 != y) {
                    piece.changes.push((x, y));
                }
            }
        }
    }
    for piece in &mut pieces {
        piece.changes = thin(&piece.changes);
    }
    pieces
}

fn thin(changes: &[Place]) -> Vec<Place> {
    let mut kept = Vec::new();
    for group in changes.chunk_by(|one, other| column(one.0, COLUMNS) == column(other.0, COLUMNS)) {
        if group.len() <= FEW {
            kept.extend(group);
            continue;
        }
        let mut few: Vec<Place> = [
            group.iter().min_by(|one, other| one.1.total_cmp(&other.1)),
            group.iter().max_by(|one, other| one.1.total_cmp(&other.1)),
            group.last(),
        ]
        .into_iter()
        .flatten()
        .copied()
        .collect();
        few.sort_by(|one, other| one.0.total_cmp(&other.0));
        few.dedup();
        kept.extend(few);
    }
    kept
}

/// The mean of the known values of each span, in the middle of the span.
pub fn means(points: &[Point], span: Seconds) -> Vec<Point> {
    let span = if span.is_positive() { span.get() } else { 1.0 };
    // The end of a tick belongs to the span before.
    let bin = |point: &Point| (point.at.get() / span - 1e-9).floor();
    let mean = |group: &[Point]| {
        let known: Vec<f64> = group.iter().filter_map(|point| point.value).collect();
        let count = known.len() as f64;
        let value = (!known.is_empty()).then(|| known.iter().sum::<f64>() / count);
        group.first().map(|first| Point { at: Seconds((bin(first) + 0.5) * span), value })
    };
    points.chunk_by(|one, other| bin(one) == bin(other)).filter_map(mean).collect()
}

/// Where bands begin and end, in shares of the width. Those of one colour that would touch become one, with the text of the first.
pub(super) fn bands(bands: &[Band], place: impl Fn(Seconds) -> Option<f64>) -> Vec<(f64, f64, &Band)> {
    let mut kept: Vec<(f64, f64, &Band)> = Vec::new();
    for band in bands {
        let (Some(from), Some(until)) = (place(band.from), place(band.until)) else { continue };
        match kept.last_mut() {
            Some((_, end, last)) if last.tone == band.tone && column(*end, COLUMNS) >= column(from, COLUMNS) => *end = end.max(until),
            _ => kept.push((from, until, band)),
        }
    }
    kept
}

/// Marks of one kind that would cover each other become the first of them; its text says how many it stands for.
pub(super) fn marks(marks: &[Mark], place: impl Fn(Seconds) -> Option<f64>) -> Vec<(f64, Mark)> {
    let mut kept: Vec<(f64, Mark, u32)> = Vec::new();
    for mark in marks {
        let Some(x) = place(mark.at) else { continue };
        let same = |kept: &&mut (f64, Mark, u32)| {
            kept.1.sign == mark.sign && kept.1.tone == mark.tone && column(kept.0, MARK_COLUMNS) == column(x, MARK_COLUMNS)
        };
        // Only the last few marks can lie in the same column.
        match kept.iter_mut().rev().take(16).find(same) {
            Some((_, _, more)) => *more += 1,
            None => kept.push((x, mark.clone(), 0)),
        }
    }
    let text = |text: String, more: u32| if more > 0 { format!("{text}\nand {more} more like it shortly after") } else { text };
    kept.into_iter().map(|(x, mark, more)| (x, Mark { text: text(mark.text, more), ..mark })).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Sign, Tone};
    use super::*;

    #[test]
    fn a_peak_of_a_single_tick_stays_among_many() {
        let many = 17_280_u32;
        let value = |at: u32| if at == 8000 { 0.9 } else { 0.2 + f64::from(at % 7) / 100.0 };
        let pieces = line((0..many).map(|at| (f64::from(at) / f64::from(many), Some(value(at)))));
        let [piece] = pieces.as_slice() else { panic!("{} pieces", pieces.len()) };
        assert!(piece.len() <= 2 * 600, "{}", piece.len());
        let extreme = |of: fn(f64, f64) -> f64, start| piece.iter().map(|place| place.1).fold(start, of);
        assert_eq!((extreme(f64::min, 1.0), extreme(f64::max, 0.0)), (0.2, 0.9));
        assert!(piece.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn few_points_stay_as_they_are_and_unknown_ones_part_them() {
        let places = [(0.0, Some(0.1)), (0.1, Some(0.3)), (0.2, None), (0.3, Some(0.2))];
        assert_eq!(line(places.into_iter()), [vec![(0.0, 0.1), (0.1, 0.3)], vec![(0.3, 0.2)]]);
        assert_eq!(line([(0.0, None)].into_iter()), Vec::<Vec<Place>>::new());
    }

    #[test]
    fn steps_keep_changes_only_and_last_until_the_end() {
        let places = [(0.0, Some(0.5)), (0.1, Some(0.5)), (0.2, Some(1.0)), (0.3, Some(1.0))];
        assert_eq!(steps(places.into_iter()), [Stairs { changes: vec![(0.0, 0.5), (0.2, 1.0)], end: 0.3 }]);
        let gap = [(0.0, Some(0.5)), (0.1, None), (0.2, Some(1.0)), (0.4, Some(1.0))];
        let expected = [Stairs { changes: vec![(0.0, 0.5)], end: 0.1 }, Stairs { changes: vec![(0.2, 1.0)], end: 0.4 }];
        assert_eq!(steps(gap.into_iter()), expected);
    }

    #[test]
    fn a_count_that_flutters_keeps_its_extremes_and_where_it_came_to_rest() {
        let heights = [0.1, 0.9, 0.2, 0.8, 0.0, 0.7, 0.4];
        let places = heights.iter().enumerate().map(|(at, &y)| (at as f64 / 1e5, Some(y)));
        let kept: Vec<f64> = steps(places)[0].changes.iter().map(|place| place.1).collect();
        assert_eq!(kept, [0.9, 0.0, 0.4]);
    }

    #[test]
    fn a_mean_covers_the_ticks_that_end_in_its_span() {
        let point = |at, value| Point { at: Seconds(at), value };
        let points = [point(30.0, Some(1.0)), point(60.0, Some(3.0)), point(90.0, None), point(150.0, Some(4.0))];
        let means = means(&points, Seconds(60.0));
        assert_eq!(means, [point(30.0, Some(2.0)), point(90.0, None), point(150.0, Some(4.0))]);
    }

    #[test]
    fn marks_that_would_cover_each_other_are_counted() {
        let mark = |at, sign| Mark { at: Seconds(at), sign, tone: Tone::Calm, text: "x".to_owned() };
        let all = [mark(0.0, Sign::Up), mark(1.0, Sign::Down), mark(2.0, Sign::Up), mark(500.0, Sign::Up)];
        let kept = marks(&all, |at| Some(at.get() / 1000.0));
        assert_eq!(kept.len(), 3);
        assert_eq!(kept[0].1.text, "x\nand 1 more like it shortly after");
    }
}
