//! Which setting of a policy would have been the best? Known only in hindsight.

use super::{Outcome, Policy, Scenario, run};
use crate::units::Ratio;

/// The outcome of the best candidate: the cheapest of those that attain `goal`, else the one that attains most; the first among equals.
/// `None` without candidates.
pub fn best_of<P: Policy>(scenario: &Scenario<'_>, candidates: impl IntoIterator<Item = P>, goal: Ratio) -> Option<Outcome> {
    let outcomes = candidates.into_iter().map(|mut policy| run(scenario, &mut policy));
    outcomes.reduce(|best, next| {
        let better = match (best.attainment >= goal, next.attainment >= goal) {
            (true, true) => next.gpu_hours < best.gpu_hours,
            (false, false) => next.attainment > best.attainment,
            (_, reached) => reached,
        };
        if better { next } else { best }
    })
}
