//! Which integer may be served now, and until when? Overrides, modes, holds and expiry; the last stage of a plan.
//!
//! Precedence: a pin, then freeze, then shadow, then the plan. A computed value is served for `hold_for`. While the plan is held, the last
//! served value stays: a blind hold lets it run out, a deliberate one renews it while most targets answer, a decreed one always renews it
//! (contract 5). Nothing is ever derived from current counts. Below a pin everything goes on, so that its end uncovers the plan of that moment
//! and not one from before the pin.

use super::input::{Mode, ModelPolicy, PoolPolicy};
use super::memory::PoolMemory;
use super::observe::ClockStep;
use super::plan::{HoldKind, OverrideKind, Published, Reason};
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
    for published in [memory.published.as_mut().map(|p| &mut p.replicas), memory.frozen.as_mut()].into_iter().flatten() {
        *published = pool.limits.clamp(*published);
    }
    let pin = pool.pin.as_ref().filter(|pin| now.wall < pin.until);
    let pinned = pin.map(|pin| Published {
        // The limits may have been reloaded since the pin was written.
        replicas: pool.limits.clamp(pin.replicas),
        timestamp: now.wall,
        // Valid to its end whatever becomes of us: it does not rest on anything that we observe.
        valid_until: pin.until,
    });
    let serving = serve_unpinned(memory, pinned, policy, standing, now);
    match pinned {
        Some(_) => Serving { published: pinned, held: true, reason: Reason::Pinned, overridden: Some(OverrideKind::Pin) },
        None => serving,
    }
}

/// What mode and plan serve where no pin covers it; `pinned` is what a pin serves at this moment.
fn serve_unpinned(memory: &mut PoolMemory, pinned: Option<Published>, policy: &ModelPolicy, standing: Standing, now: Moment) -> Serving {
    let held = standing.reason.hold_kind().is_some();
    let fresh = |replicas| Published { replicas, timestamp: now.wall, valid_until: now.wall + policy.hold_for };
    if policy.mode != Mode::Freeze {
        memory.frozen = None;
    }
    match policy.mode {
        Mode::Freeze => {
            let last = pinned.or(memory.published).map(|published| published.replicas);
            memory.frozen = memory.frozen.or(last);
            memory.published = memory.frozen.map(fresh);
            let overridden = Some(OverrideKind::Freeze);
            return Serving { published: memory.published, held: true, reason: Reason::Frozen, overridden };
        }
        Mode::Shadow => {
            // What was served before is not forgotten, and not renewed either: it is served again only if shadow ends before it expires.
            memory.published = memory.published.filter(|published| now.wall < published.valid_until);
            return Serving { published: None, held, reason: standing.reason, overridden: Some(OverrideKind::Shadow) };
        }
        Mode::Publish => {}
    }
    if let Some(replicas) = standing.decided {
        memory.published = Some(fresh(replicas));
    } else if let Some(published) = &mut memory.published {
        if standing.reason.hold_kind() == Some(HoldKind::Deliberate) && standing.coverage_good {
            *published = fresh(published.replicas);
        }
        if published.valid_until <= now.wall {
            memory.published = None;
        }
    }
    Serving { published: memory.published, held, reason: standing.reason, overridden: None }
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
