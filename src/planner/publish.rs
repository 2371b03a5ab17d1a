//! Which integer may be served now, and until when? Overrides, modes, holds and expiry; the last stage of a plan.
//!
//! Precedence: a pin, then freeze, then shadow, then the plan. A computed value is served for `hold_for`. While the plan is held, the last
//! served value stays: a blind hold lets it run out, a deliberate one renews it while most targets answer, a decreed one always renews it
//! (contract 5). Nothing is derived from current counts but the baseline of a pool that
//! nothing was ever published of, once. Below a pin, freeze and shadow the plan's own value goes on, so that their end
//! uncovers the plan of that moment and not one from before.

use super::memory::PoolMemory;
use super::observe::ClockStep;
use super::plan::{HoldKind, OverrideKind, Published, Reason};
use super::policy::{Mode, ModelPolicy, PoolPolicy};
use crate::units::{Moment, Replicas};

/// What a pool serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    /// The value, `None` where nothing may be served.
    pub published: Option<Published>,
    /// Whether it is held rather than computed.
    pub held: bool,
    /// Why.
    pub reason: Reason,
    /// The operator's override in force.
    pub overridden: Option<OverrideKind>,
}

/// The state of the plan that the served value depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The plan's verdict.
    pub reason: Reason,
    /// The count that was decided in this round, if one was.
    pub decided: Option<Replicas>,
    /// Whether most targets answer.
    pub coverage_good: bool,
}

/// Decides what is served and remembers it.
pub fn publish(memory: &mut PoolMemory, pool: &PoolPolicy, policy: &ModelPolicy, standing: Standing, now: Moment) -> Serving {
    // Limits bind at once, also on values from before a reload.
    let published = memory.published.as_mut().map(|published| &mut published.replicas);
    for replicas in [published, memory.frozen.as_mut(), memory.served.as_mut()].into_iter().flatten() {
        *replicas = pool.limits.clamp(*replicas);
    }
    follow_plan(memory, policy, standing, now);
    let pin = pool.pin.as_ref().filter(|pin| now.wall < pin.until).map(|pin| Published {
        // The limits may have been reloaded since the pin was written.
        replicas: pool.limits.clamp(pin.replicas),
        timestamp: now.wall,
        // Valid to its end whatever becomes of us: it does not rest on anything that we observe.
        valid_until: pin.until,
    });
    let last_served = pin.map(|pin| pin.replicas).or(memory.served);
    memory.frozen = if policy.mode == Mode::Freeze { memory.frozen.or(last_served) } else { None };

    let plan_held = standing.reason.hold_kind().is_some();
    let serving = match (pin, policy.mode) {
        (Some(_), _) => Serving { published: pin, held: true, reason: Reason::Pinned, overridden: Some(OverrideKind::Pin) },
        (None, Mode::Freeze) => Serving {
            published: memory.frozen.map(|replicas| fresh(replicas, policy, now)),
            held: true,
            reason: Reason::Frozen,
            overridden: Some(OverrideKind::Freeze),
        },
        (None, Mode::Shadow) => {
            Serving { published: None, held: plan_held, reason: standing.reason, overridden: Some(OverrideKind::Shadow) }
        }
        (None, Mode::Publish) => Serving { published: memory.published, held: plan_held, reason: standing.reason, overridden: None },
    };
    memory.served = serving.published.map(|published| published.replicas);
    serving
}

pub(super) fn fresh(replicas: Replicas, policy: &ModelPolicy, now: Moment) -> Published {
    Published { replicas, timestamp: now.wall, valid_until: now.wall.saturating_add(policy.hold_for) }
}

/// The value that the plan itself stands for, whether or not it is served: computed anew, renewed, or running out.
fn follow_plan(memory: &mut PoolMemory, policy: &ModelPolicy, standing: Standing, now: Moment) {
    if let Some(replicas) = standing.decided {
        memory.published = Some(fresh(replicas, policy, now));
    } else if let Some(published) = &mut memory.published {
        if standing.reason.hold_kind() == Some(HoldKind::Deliberate) && standing.coverage_good {
            *published = fresh(published.replicas, policy, now);
        }
        if published.valid_until <= now.wall {
            memory.published = None;
        }
    }
}

/// Moves what is served along with a step of the wall clock, so that a corrected clock neither ends nor prolongs it.
pub fn shift(memory: &mut PoolMemory, step: ClockStep) {
    let Some(published) = &mut memory.published else { return };
    for instant in [&mut published.timestamp, &mut published.valid_until] {
        *instant = match step {
            ClockStep::Forward(by) => instant.saturating_add(by),
            ClockStep::Back(by) => instant.saturating_sub(by),
        };
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
