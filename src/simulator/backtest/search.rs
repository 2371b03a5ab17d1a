//! Which setting of a policy would have been the best? Known only in hindsight.

use super::Outcome;
use crate::units::Ratio;

/// The best outcome: the cheapest of those that attain `goal`, else the one that attains most, of several such the cheapest; the first among
/// equals. `None` without outcomes.
pub fn best_of(outcomes: impl IntoIterator<Item = Outcome>, goal: Ratio) -> Option<Outcome> {
    outcomes.into_iter().reduce(|best, next| {
        let better = match (best.attainment >= goal, next.attainment >= goal) {
            (true, true) => next.gpu_hours < best.gpu_hours,
            (false, false) if next.attainment == best.attainment => next.gpu_hours < best.gpu_hours,
            (false, false) => next.attainment > best.attainment,
            (_, reached) => reached,
        };
        if better { next } else { best }
    })
}
