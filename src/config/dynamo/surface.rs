//! How do scattered measurements become a curve and a rectangle? The document wants complete axes; Dynamo's points lie where the load was.
//!
//! Points measured twice at the same place count as their mean; the order of the points does not matter.
//!
//! A row of the surface is a context: contexts within 1 % of the row's first are the same one, and the row stands at their mean. Its columns
//! are all KV usages that any row was measured at. In a row, a column between two of its own points is linear between them, and one outside
//! them takes the nearest: what was not measured is not promised, so that a row that ends at a usage of 0.4 has the latency and the
//! throughput of 0.4 at 0.8. Along the context nothing is filled in here; the envelope itself is linear between rows.
//!
//! Dynamo lays a cubic surface through all points at once and reads a grid of 100 by 100 from it. Linear pieces never overshoot what was
//! measured, and agree with it at every measured point.

/// Contexts closer than this share of the smaller are one row.
const SAME_CONTEXT: f64 = 0.01;

/// One measurement of the curve: prompt length, then its values.
pub(super) type CurvePoint<const N: usize> = (f64, [f64; N]);

/// One measurement of the surface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// Share of the KV cache in use.
    pub usage: f64,
    /// Mean context, tokens.
    pub context: f64,
    /// Latency and throughput there.
    pub values: [f64; 2],
}

/// Complete columns and rows, with the values of each cell: first all latencies, then all throughputs.
#[derive(Debug, PartialEq)]
pub(super) struct Rectangle {
    pub usages: Vec<f64>,
    pub contexts: Vec<f64>,
    pub grids: [Vec<Vec<f64>>; 2],
}

/// The points by their place, each place once.
pub(super) fn curve<const N: usize>(mut points: Vec<CurvePoint<N>>) -> Vec<CurvePoint<N>> {
    points.sort_by(|left, right| left.0.total_cmp(&right.0));
    points.chunk_by(|left, right| left.0 == right.0).map(|same| (same[0].0, mean(same.iter().map(|(_, values)| *values)))).collect()
}

/// The points on a rectangle; an error where no context was measured at two usages, so that they are a line and no surface.
pub(super) fn rectangle(mut points: Vec<Point>) -> Result<Rectangle, String> {
    points.sort_by(|left, right| left.context.total_cmp(&right.context));
    let mut rows: Vec<Vec<Point>> = Vec::new();
    for point in points {
        match rows.last_mut() {
            Some(row) if point.context <= row[0].context * (1.0 + SAME_CONTEXT) => row.push(point),
            _ => rows.push(vec![point]),
        }
    }
    let contexts: Vec<f64> = rows.iter().map(|row| mean(row.iter().map(|point| [point.context]))[0]).collect();
    let rows: Vec<Vec<CurvePoint<2>>> =
        rows.into_iter().map(|row| curve(row.into_iter().map(|point| (point.usage, point.values)).collect())).collect();
    if rows.len() > 1 && rows.iter().all(|row| row.len() == 1) {
        return Err(format!("expected points at two KV usages of one context at least, got {} contexts with one each", rows.len()));
    }
    let mut usages: Vec<f64> = rows.iter().flatten().map(|(usage, _)| *usage).collect();
    usages.sort_by(f64::total_cmp);
    usages.dedup();
    let grid = |value: usize| rows.iter().map(|row| usages.iter().map(|usage| at(row, *usage)[value]).collect()).collect();
    Ok(Rectangle { grids: [grid(0), grid(1)], usages, contexts })
}

/// A row at a usage: linear between its points, the nearest outside them.
fn at(row: &[CurvePoint<2>], usage: f64) -> [f64; 2] {
    let right = row.partition_point(|(known, _)| *known < usage);
    match (right.checked_sub(1).map(|left| &row[left]), row.get(right)) {
        (_, Some((known, values))) if *known == usage => *values,
        (Some((left, low)), Some((right, high))) => {
            let share = (usage - left) / (right - left);
            [0, 1].map(|value| low[value] + (high[value] - low[value]) * share)
        }
        (Some((_, nearest)), None) | (None, Some((_, nearest))) => *nearest,
        // A row has at least the point that made it.
        (None, None) => [0.0; 2],
    }
}

fn mean<const N: usize>(values: impl ExactSizeIterator<Item = [f64; N]>) -> [f64; N] {
    let count = values.len() as f64;
    values.fold([0.0; N], |mut sum, value| {
        sum.iter_mut().zip(value).for_each(|(sum, value)| *sum += value / count);
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(usage: f64, context: f64, latency: f64) -> Point {
        Point { usage, context, values: [latency, 1000.0 / latency] }
    }

    #[test]
    fn scattered_points_fill_a_rectangle_and_keep_what_was_measured() {
        // Out of order; one place measured twice; the longer context ends early and was measured elsewhere.
        let points = vec![
            point(0.8, 2000.0, 20.0),
            point(0.2, 2000.0, 8.0),
            point(0.4, 8000.0, 14.0),
            point(0.1, 8000.0, 8.0),
            point(0.2, 2000.0, 12.0),
        ];
        let found = rectangle(points).expect("a surface");
        assert_eq!((found.usages, found.contexts), (vec![0.1, 0.2, 0.4, 0.8], vec![2000.0, 8000.0]));
        let near = |row: &[f64], expected: [f64; 4]| row.iter().zip(expected).all(|(value, expected)| (value - expected).abs() < 1e-9);
        assert!(near(&found.grids[0][0], [10.0, 10.0, 10.0 + 10.0 / 3.0, 20.0]), "{:?}", found.grids[0]);
        assert!(near(&found.grids[0][1], [8.0, 10.0, 14.0, 14.0]), "the nearest beyond the last: {:?}", found.grids[0]);
        assert!(found.grids[1][1][2] == found.grids[1][1][3], "no more throughput than was measured");
    }

    #[test]
    fn contexts_that_differ_by_measurement_noise_are_one_row() {
        let found = rectangle(vec![point(0.1, 1000.0, 8.0), point(0.5, 1004.0, 9.0), point(0.5, 1100.0, 9.0)]).expect("a surface");
        assert_eq!(found.contexts, [1002.0, 1100.0]);
    }

    #[test]
    fn one_context_is_enough_and_a_diagonal_is_none() {
        assert_eq!(rectangle(vec![point(0.1, 1000.0, 8.0)]).map(|found| found.usages), Ok(vec![0.1]));
        let diagonal = rectangle(vec![point(0.1, 1000.0, 8.0), point(0.5, 2000.0, 9.0)]);
        assert_eq!(
            diagonal.err().as_deref(),
            Some("expected points at two KV usages of one context at least, got 2 contexts with one each")
        );
    }

    #[test]
    fn the_curve_is_sorted_and_a_place_measured_twice_counts_once() {
        assert_eq!(curve(vec![(2.0, [4.0]), (1.0, [1.0]), (2.0, [6.0])]), [(1.0, [1.0]), (2.0, [5.0])]);
    }
}
