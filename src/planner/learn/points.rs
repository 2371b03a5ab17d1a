//! Which loads has a replica been seen at? Distinct operating points: windows at about the same load are one point, averaged.
//!
//! A thousand windows at one load say no more about the shape of the curve than one, only with less noise. Kept apart they would also push out
//! the one window at another load that tells the parameters apart.
//!
//! | window | served, tokens | points |
//! |---|---|---|
//! | 1 | 4.0/s, 512 + 128 | 4.0 |
//! | 2 | 4.2/s, 510 + 127: within 10 % of it | 4.1, seen twice |
//! | 3 | 6.0/s, 512 + 128 | 4.1, 6.0 |

use nalgebra::{Matrix2, Matrix3};
use serde::{Deserialize, Serialize};

use super::Seen;
use super::fit;
use crate::planner::model::queueing::{Lengths, Parameters};
use crate::units::{RequestsPerSecond, Role, Seconds, Tokens};

/// Points that are kept.
const MOST: usize = 16;
/// Windows after which a point that was not seen again is dropped: two hours of half minutes.
const OLDEST: u32 = 240;
/// Loads and lengths that differ by less are the same point: the noise of a window's own arrivals.
const SAME: f64 = 0.1;
/// Windows of which a point is at most the average, so that it follows slow drift.
const MEMORY: u32 = 5;

/// An operating point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The average of its windows.
    pub seen: Seen,
    /// The load of its first window, that others are held against: with the average, a load that falls slowly would be one point that moves, and
    /// what was seen on the way would be lost.
    pub anchor: RequestsPerSecond,
    /// Windows in that average, at most `MEMORY`.
    pub windows: u32,
    /// Windows since it was seen last.
    pub age: u32,
}

/// The operating points, the last seen one last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Points(Vec<Point>);

impl Points {
    /// All of them.
    pub fn as_slice(&self) -> &[Point] {
        &self.0
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether windows can have led to them.
    pub(super) fn are_sound(&self) -> bool {
        let is_sound = |point: &Point| {
            let anchored = point.anchor.is_positive() && point.anchor.get().is_finite();
            anchored && point.seen.is_plausible() && (1..=MEMORY).contains(&point.windows) && point.age <= OLDEST
        };
        self.0.len() <= MOST && self.0.iter().all(is_sound)
    }

    /// Takes in a window.
    pub fn add(&mut self, seen: &Seen) {
        self.0.iter_mut().for_each(|point| point.age += 1);
        self.0.retain(|point| point.age <= OLDEST);
        let same = self.0.iter().position(|point| point.is_like(seen));
        let point = match same.map(|index| self.0.remove(index)) {
            Some(point) => point.with(seen),
            None => Point::of(seen),
        };
        self.0.push(point);
        if self.0.len() > MOST {
            self.0.remove(0);
        }
    }

    /// Forgets everything: the server is another one now.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Ratio of the largest to the smallest singular value of the Jacobian of the points' relative latencies with respect to the logarithms of the
    /// parameters. For a pool of one phase beta and gamma act together and count as one. `None`: fewer equations than unknowns, or singular.
    pub fn condition(&self, role: Role, parameters: Parameters) -> Option<f64> {
        let mut normal = Matrix3::zeros();
        for point in &self.0 {
            for slope in fit::slopes(role, &point.seen, parameters)? {
                normal += slope * slope.transpose();
            }
        }
        if role != Role::Aggregated {
            // Beta and gamma move together: the same column twice would be singular by construction.
            let joined = Matrix2::new(
                normal[(0, 0)],
                normal[(0, 1)] + normal[(0, 2)],
                normal[(0, 1)] + normal[(0, 2)],
                normal[(1, 1)] + 2.0 * normal[(1, 2)] + normal[(2, 2)],
            );
            return ratio(joined.symmetric_eigenvalues().as_slice());
        }
        ratio(normal.symmetric_eigenvalues().as_slice())
    }
}

/// From eigenvalues of the normal matrix to the ratio of singular values.
fn ratio(eigenvalues: &[f64]) -> Option<f64> {
    let most = eigenvalues.iter().copied().fold(0.0, f64::max);
    let least = eigenvalues.iter().copied().fold(f64::INFINITY, f64::min);
    let ratio = (most / least).sqrt();
    (least > 0.0 && ratio.is_finite()).then_some(ratio)
}

fn near(one: f64, other: f64) -> bool {
    (one / other).ln().abs() < SAME
}

fn are_alike(one: &Seen, other: &Seen) -> bool {
    near(one.lengths.input.get(), other.lengths.input.get())
        && near(one.lengths.output.get(), other.lengths.output.get())
        // What is known of one and not of the other cannot be averaged.
        && one.ttft.is_some() == other.ttft.is_some()
        && one.itl.is_some() == other.itl.is_some()
}

impl Point {
    /// One window.
    pub(super) fn of(seen: &Seen) -> Self {
        Self { seen: *seen, anchor: seen.served, windows: 1, age: 0 }
    }

    fn is_like(&self, seen: &Seen) -> bool {
        near(self.anchor.get(), seen.served.get()) && are_alike(&self.seen, seen)
    }

    fn with(self, seen: &Seen) -> Self {
        let windows = (self.windows + 1).min(MEMORY);
        let share = 1.0 / f64::from(windows);
        let mean = |old: f64, new: f64| old + (new - old) * share;
        let of = |old: Option<Seconds>, new: Option<Seconds>| old.zip(new).map(|(old, new)| Seconds(mean(old.get(), new.get())));
        let lengths = |of: fn(&Lengths) -> Tokens| Tokens(mean(of(&self.seen.lengths).get(), of(&seen.lengths).get()));
        let seen = Seen {
            served: RequestsPerSecond(mean(self.seen.served.get(), seen.served.get())),
            lengths: Lengths { input: lengths(|lengths| lengths.input), output: lengths(|lengths| lengths.output) },
            ttft: of(self.seen.ttft, seen.ttft),
            itl: of(self.seen.itl, seen.itl),
            saturated: self.seen.saturated && seen.saturated,
        };
        Self { seen, windows, age: 0, ..self }
    }

    /// Weight of its residuals against those of one window.
    pub(super) fn weight(&self) -> f64 {
        f64::from(self.windows).sqrt()
    }
}
