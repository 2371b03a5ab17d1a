//! How much of the wish may be acted on now? Ordered stages, each leaving a step.
//!
//! 1. Growth: one decision multiplies the observed count by a bounded factor, or adds a bounded number. A later window can continue the move if
//!    the signal persists, so one wild window cannot buy a fleet. The last recommendation is never above this bound: lost replicas must not
//!    lower it. While the replicas of an earlier increase arrive, the fast loop adds none on top.
//! 2. Hold-down: a decrease needs a window that describes the fleet. With coverage below 0.9 the last recommendation stands. From there on it may
//!    fall to what is needed if every silent target carries its last or the average load. A process whose first window is short does not shrink,
//!    nor does a pool of which many replicas have just started.
//! 3. Step: one decision takes away so many replicas at most.
//! 4. Limits: the configured minimum and maximum, last, because only what the operator wrote may override caution.
//!
//! | observed 2, last 5, coverage 0.8 | wish 20 | wish 3 |
//! |---|---|---|
//! | growth (x4) | 8 | 3 |
//! | hold-down | 8 | 5 |
//! | limits 1..6 | 6 | 5 |

use std::num::NonZeroU32;

use super::observe::COVERAGE_TO_LOWER;
use super::plan::{Limit, Stage, Step, StepReason};
use super::policy::{GrowthRule, Limits};
use super::propose::Wish;
use super::reconcile::growth_base;
use crate::units::{Ratio, Replicas};

/// A rise by this many replicas needs no second decision that agrees (planning.md 0, `confirm`).
const SMALL_RISE: u32 = 2;

/// What the stages look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Context {
    /// Ready replicas, where they are known.
    pub observed: Option<Replicas>,
    /// The last recommendation, where there was one.
    pub recommended: Option<Replicas>,
    /// The reconciled wish of the decision before, where there was one.
    pub previous_wish: Option<Replicas>,
    /// Share of the fleet that the window describes.
    pub coverage: Ratio,
    /// Whether a window of a whole interval has been seen since the process started, this one included.
    pub complete_window_seen: bool,
    /// Why the cautious wish may be the larger one.
    pub caution: StepReason,
    /// Why the pool must not shrink whatever its load says, if so.
    pub keep: Option<StepReason>,
    /// How far one decision may grow the pool.
    pub growth: GrowthRule,
    /// While replicas of an earlier increase arrive: how far the pool may grow all the same.
    pub while_moving: Option<Replicas>,
    /// Replicas that one decision may take away; `None` for all.
    pub step_down: Option<NonZeroU32>,
    /// The configured limits.
    pub limits: Limits,
}

/// The bounded count with its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// After all limits.
    pub planned: Replicas,
    /// One step a stage; neighbours join.
    pub steps: Vec<Step>,
    /// Limits that changed the wish.
    pub limits: Vec<Limit>,
}

/// Passes a wish through all stages.
pub fn bound(wish: Wish, context: &Context) -> Bounded {
    let mut bounded = Bounded { planned: wish.supported, steps: Vec::new(), limits: Vec::new() };

    let cap = growth_cap(context);
    let (capped, limit) = match context.growth {
        GrowthRule::TimesObserved(_) | GrowthRule::Within(_) => (StepReason::GrowthCapped, Limit::Growth),
        GrowthRule::Confirm(_) => (StepReason::NotConfirmed, Limit::Confirm),
    };
    let moving = context.while_moving.map(|most| most.max(context.recommended.unwrap_or_default()));
    let (after, reason) = match moving {
        Some(most) if wish.supported > most && most < cap => (most, StepReason::Transition),
        _ if wish.supported > cap => (cap, capped),
        _ => (wish.supported, StepReason::WithinLimit),
    };
    bounded.step(Stage::Growth, after, reason, limit);

    let (after, reason) = hold_down(bounded.planned, wish.cautious.min(cap), context);
    bounded.step(Stage::HoldDown, after, reason, Limit::HoldDown);

    if let Some(most) = context.step_down {
        let least = Replicas(context.recommended.or(context.observed).unwrap_or_default().0.saturating_sub(most.get()));
        let (after, reason) =
            if bounded.planned < least { (least, StepReason::StepCapped) } else { (bounded.planned, StepReason::WithinLimit) };
        bounded.step(Stage::StepDown, after, reason, Limit::Step);
    }

    let after = context.limits.clamp(bounded.planned);
    if after > bounded.planned {
        bounded.step(Stage::Limits, after, StepReason::RaisedToMinimum, Limit::Min);
    } else if after < bounded.planned {
        bounded.step(Stage::Limits, after, StepReason::LoweredToMaximum, Limit::Max);
    } else {
        bounded.step(Stage::Limits, after, StepReason::WithinLimit, Limit::Max);
    }
    bounded
}

fn growth_cap(context: &Context) -> Replicas {
    let factor = match context.growth {
        GrowthRule::TimesObserved(factor) | GrowthRule::Confirm(factor) => factor,
        GrowthRule::Within(most) => {
            // Where nothing is known of the pool, the configured maximum alone binds.
            let Some(from) = context.observed.max(context.recommended) else { return Replicas(u32::MAX) };
            return Replicas(from.0.saturating_add(most.get()));
        }
    };
    // Without an observed count there is nothing to multiply; the configured maximum still binds.
    let Some(observed) = context.observed else { return Replicas(u32::MAX) };
    let grown = Replicas(growth_base(observed).0.saturating_mul(factor.get()));
    let standing = context.recommended.map_or(grown, |recommended| recommended.max(grown));
    match context.growth {
        GrowthRule::TimesObserved(_) | GrowthRule::Within(_) => standing,
        // As far as the decision before wanted as well; a rise of two replicas is none to doubt.
        GrowthRule::Confirm(_) => {
            let small = Replicas(growth_base(observed).0.saturating_add(SMALL_RISE));
            standing.max(small).max(context.previous_wish.unwrap_or_default())
        }
    }
}

/// The wish, raised to what a decrease may not fall below.
fn hold_down(wanted: Replicas, cautious: Replicas, context: &Context) -> (Replicas, StepReason) {
    // Before the first recommendation a decrease is judged against the observed count.
    let last = context.recommended.or(context.observed).filter(|&last| wanted < last);
    let Some(last) = last else { return (wanted, StepReason::WithinLimit) };
    if context.coverage.get() < COVERAGE_TO_LOWER {
        return (last, StepReason::CoverageBelowLowering);
    }
    if !context.complete_window_seen {
        return (last, StepReason::FirstWindowIncomplete);
    }
    if let Some(reason) = context.keep {
        return (last, reason);
    }
    let needed = cautious.min(last);
    if needed > wanted { (needed, context.caution) } else { (wanted, StepReason::WithinLimit) }
}

impl Bounded {
    fn step(&mut self, stage: Stage, after: Replicas, reason: StepReason, limit: Limit) {
        if after != self.planned {
            self.limits.push(limit);
        }
        self.steps.push(Step { stage, before: self.planned, after, reason });
        self.planned = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        Context {
            observed: Some(Replicas(2)),
            recommended: Some(Replicas(5)),
            previous_wish: None,
            coverage: Ratio(1.0),
            complete_window_seen: true,
            caution: StepReason::SilentTargetsMayCarryLoad,
            keep: None,
            growth: GrowthRule::TimesObserved(NonZeroU32::new(4).unwrap()),
            while_moving: None,
            step_down: None,
            limits: Limits::new(Replicas(1), Replicas(6)).unwrap(),
        }
    }

    fn planned(supported: u32, cautious: u32, context: &Context) -> u32 {
        bound(Wish { supported: Replicas(supported), cautious: Replicas(cautious) }, context).planned.0
    }

    #[test]
    fn one_decision_grows_at_most_fourfold_and_then_meets_the_maximum() {
        let wide = Context { limits: Limits::new(Replicas(1), Replicas(100)).unwrap(), ..context() };
        assert_eq!(planned(20, 20, &wide), 8);
        assert_eq!(planned(20, 20, &context()), 6);
        assert_eq!(planned(9, 9, &Context { observed: Some(Replicas(0)), recommended: None, ..wide }), 4);
    }

    #[test]
    fn a_large_rise_waits_for_a_second_decision_that_agrees() {
        let wide = Limits::new(Replicas(1), Replicas(100)).unwrap();
        let growth = GrowthRule::Confirm(NonZeroU32::new(4).unwrap());
        let first = Context { limits: wide, growth, recommended: None, ..context() };
        assert_eq!(planned(20, 20, &first), 8);
        assert_eq!(planned(20, 20, &Context { previous_wish: Some(Replicas(30)), ..first }), 20);
        assert_eq!(planned(20, 20, &Context { previous_wish: Some(Replicas(12)), ..first }), 12, "as far as both go");
        assert_eq!(bound(Wish { supported: Replicas(20), cautious: Replicas(20) }, &first).limits, [Limit::Confirm]);
    }

    #[test]
    fn a_rule_in_replicas_counts_from_what_is_there_or_recommended() {
        let wide = Limits::new(Replicas(1), Replicas(100)).unwrap();
        let within = Context { limits: wide, growth: GrowthRule::Within(NonZeroU32::new(8).unwrap()), ..context() };
        assert_eq!(planned(40, 40, &within), 13, "8 above the recommended 5");
        assert_eq!(planned(40, 40, &Context { observed: Some(Replicas(9)), ..within }), 17);
        assert_eq!(planned(40, 40, &Context { observed: None, recommended: None, ..within }), 40);
    }

    #[test]
    fn while_replicas_arrive_a_pool_grows_to_its_floor_only_and_shrinks_as_ever() {
        let moving = Context { while_moving: Some(Replicas(0)), ..context() };
        assert_eq!(planned(6, 6, &moving), 5);
        assert_eq!(planned(6, 6, &Context { while_moving: Some(Replicas(6)), ..moving }), 6);
        assert_eq!(planned(3, 3, &moving), 3);
    }

    #[test]
    fn one_decision_takes_away_so_many_at_most() {
        let slow = Context { step_down: NonZeroU32::new(1), ..context() };
        assert_eq!(planned(1, 1, &slow), 4);
        assert_eq!(planned(9, 9, &slow), 6);
        assert_eq!(bound(Wish { supported: Replicas(1), cautious: Replicas(1) }, &slow).limits, [Limit::Step]);
        assert_eq!(planned(1, 1, &Context { recommended: None, ..slow }), 1, "one less than the two that are there");
    }

    #[test]
    fn lost_replicas_do_not_lower_a_recommendation_through_the_growth_limit() {
        let lost = Context { observed: Some(Replicas(1)), ..context() };
        assert_eq!(planned(9, 9, &lost), 5, "four times one is less than what stands already");
        assert_eq!(planned(3, 3, &lost), 3, "the load itself may still lower it");
    }

    #[test]
    fn a_window_of_half_the_fleet_never_lowers_but_raises() {
        let half = Context { coverage: Ratio(0.5), ..context() };
        assert_eq!(planned(1, 1, &half), 5);
        assert_eq!(planned(6, 6, &half), 6);
    }

    #[test]
    fn silent_targets_stop_a_decrease_at_what_they_may_carry() {
        let most = Context { coverage: Ratio(0.95), ..context() };
        assert_eq!(planned(2, 3, &most), 3);
        assert_eq!(planned(2, 9, &most), 5, "never above the last recommendation on a guess");
        assert_eq!(planned(2, 2, &context()), 2);
    }

    #[test]
    fn a_short_first_window_does_not_shrink_a_pool() {
        let fresh = Context { complete_window_seen: false, ..context() };
        assert_eq!(planned(2, 2, &fresh), 5);
        assert_eq!(planned(6, 6, &fresh), 6);
    }

    #[test]
    fn a_pool_of_fresh_replicas_does_not_shrink_and_may_grow() {
        let rolling = Context { keep: Some(StepReason::ManyFreshReplicas), ..context() };
        assert_eq!(planned(2, 2, &rolling), 5);
        assert_eq!(planned(6, 6, &rolling), 6);
    }

    #[test]
    fn a_maximum_that_the_operator_wrote_lowers_even_without_coverage() {
        let low = Context { coverage: Ratio(0.0), limits: Limits::new(Replicas(1), Replicas(3)).unwrap(), ..context() };
        let bounded = bound(Wish { supported: Replicas(1), cautious: Replicas(1) }, &low);
        assert_eq!(bounded.planned, Replicas(3));
        assert_eq!(bounded.limits, [Limit::HoldDown, Limit::Max]);
    }

    #[test]
    fn steps_join() {
        let bounded = bound(Wish { supported: Replicas(20), cautious: Replicas(20) }, &context());
        assert_eq!(bounded.steps.first().unwrap().before, Replicas(20));
        assert!(bounded.steps.windows(2).all(|pair| pair[0].after == pair[1].before));
        assert_eq!(bounded.steps.last().unwrap().after, bounded.planned);
    }
}
