//! How many of the wanted replicas do the GPU budgets leave? The last word on a count, in every round.
//!
//! Two budgets may bind: that of the model's own pools, and what a budget of all models leaves to each pool, which the caller says
//! ([`ModelInput::allowed`]). A decision leaves what it wants in memory (`wanted`); what is planned follows from it anew in each round, since GPUs
//! become free when others let go of them, and not when this model decides.
//!
//! - The pools of preset dynamo, one or a prefill and decode pair, keep their proportion and their direction as in the original (`budget.rs`);
//!   those of other presets, of which there may be any number, share by their wishes (`allotment.rs`).
//! - A pool rises only into what the others do not hold. They hold the larger of what is recommended and what is there, is coming, or is
//!   ending: GPUs are used until a replica is gone.
//! - A budget lowers a count also while nothing is seen: the operator wrote it. It raises one only while something is.
//!
//! A pinned or frozen pool takes what it publishes, whatever the budget says, and leaves the rest to the others.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::allotment::{Cause, Claim, Grant, allot};
use super::budget::{Pair, Single};
use super::input::ModelInput;
use super::memory::Memory;
use super::plan::{Limit, Stage, Step, StepReason};
use super::policy::{GpuBand, Mode, ModelPolicy, PoolPolicy, Preset};
use super::propose::gpus_of;
use super::{current_replicas, lifecycle, replicas};
use crate::units::{Moment, PoolId, Replicas, Role};

/// What the budgets make of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rationed {
    /// What may be planned.
    pub replicas: Replicas,
    /// Why it is not what is wanted.
    pub reason: StepReason,
}

/// The counts that budgets move, by pool. Pools that are planned as they are wanted are not listed.
pub(super) fn ration(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment) -> BTreeMap<PoolId, Rationed> {
    let mut rationed = BTreeMap::new();
    if policy.gpus.is_open() && input.allowed.is_empty() {
        return rationed;
    }
    let own = of_the_model(memory, input, policy, now);
    for pool in &policy.pools {
        let Some(wanted) = wanted(memory, pool) else { continue };
        let grant = own.get(&pool.pool).copied().unwrap_or(Grant { replicas: wanted, cause: None });
        let (replicas, cause) = match input.allowed.get(&pool.pool) {
            Some(allowed) if grant.replicas > allowed.replicas => (allowed.replicas, Some(allowed.cause.unwrap_or(Cause::HeldByOthers))),
            Some(allowed) if allowed.cause == Some(Cause::Minimum) && grant.replicas < allowed.replicas => {
                (allowed.replicas, allowed.cause)
            }
            _ => (grant.replicas, grant.cause),
        };
        let replicas = pool.limits.clamp(replicas);
        if replicas != wanted {
            rationed.insert(pool.pool.clone(), Rationed { replicas, reason: reason(cause, replicas < wanted) });
        }
    }
    rationed
}

/// What each pool asks for under a budget, of its model or of all.
pub fn claims(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment) -> Vec<Claim> {
    let decreed = |pool: &PoolPolicy| policy.mode == Mode::Freeze || pool.pin.as_ref().is_some_and(|pin| now.wall < pin.until);
    let claims = policy.pools.iter().filter_map(|pool| {
        let served = memory.pools.get(&pool.pool).and_then(|known| known.served);
        let stands = stands(memory, input, pool, now);
        // What is not known yet is not the minimum: a pool that nobody has decided on keeps what it has, as far as the budget allows.
        let keeps = || pool.limits.clamp(stands);
        let (wish, floor) = match served.filter(|_| decreed(pool)) {
            Some(served) => (served, served),
            None => (wanted(memory, pool).or(served).unwrap_or_else(keeps), pool.limits.min()),
        };
        Some(Claim {
            pool: pool.pool.clone(),
            priority: i32::try_from(policy.priority).unwrap_or(i32::MAX),
            gpus: NonZeroU32::new(gpus_of(pool, &policy.capacity))?,
            wish,
            floor,
            stands,
        })
    });
    claims.collect()
}

fn wanted(memory: &Memory, pool: &PoolPolicy) -> Option<Replicas> {
    let known = memory.pools.get(&pool.pool)?;
    known.wanted.or(known.planned).map(|wanted| pool.limits.clamp(wanted))
}

/// What the pool holds of a budget.
fn stands(memory: &Memory, input: &ModelInput, pool: &PoolPolicy, now: Moment) -> Replicas {
    let known = memory.pools.get(&pool.pool);
    let recommended = known.and_then(|known| known.served.or(known.planned)).unwrap_or_default();
    let ready = current_replicas(pool, memory, input).unwrap_or_default();
    let ending = lifecycle(pool, input).map_or(Replicas(0), |told| replicas(told.terminating, pool));
    let coming = memory.growth.get(&pool.pool).and_then(|growth| growth.coming(now)).unwrap_or_default();
    recommended.max(Replicas(ready.0.saturating_add(ending.0).saturating_add(coming.0)))
}

/// The model's own budget.
fn of_the_model(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment) -> BTreeMap<PoolId, Grant> {
    if policy.gpus.is_open() {
        return BTreeMap::new();
    }
    let mut claims = claims(memory, input, policy, now);
    let asked: BTreeMap<PoolId, Replicas> = claims.iter().map(|claim| (claim.pool.clone(), claim.wish)).collect();
    if policy.preset == Preset::Dynamo {
        let guarded = guarded(memory, policy, &claims);
        for claim in &mut claims {
            claim.wish = guarded.get(&claim.pool).copied().unwrap_or(claim.wish);
        }
    }
    let mut grants = allot(&claims, policy.gpus);
    for (pool, grant) in &mut grants {
        let asked = asked.get(pool).copied().unwrap_or(grant.replicas);
        if grant.cause.is_none() && grant.replicas != asked {
            grant.cause = Some(if grant.replicas < asked { Cause::Ceiling } else { Cause::Minimum });
        }
    }
    grants
}

/// The change from what is planned to what is wanted, as far as the original's guard lets it pass.
fn guarded(memory: &Memory, policy: &ModelPolicy, claims: &[Claim]) -> BTreeMap<PoolId, Replicas> {
    let current = |claim: &Claim| memory.pools.get(&claim.pool).and_then(|known| known.planned).unwrap_or(claim.wish);
    let of = |role| {
        let pool = policy.pools.iter().find(|pool| pool.role == role)?;
        claims.iter().find(|claim| claim.pool == pool.pool)
    };
    let band: GpuBand = policy.gpus;
    match (of(Role::Prefill), of(Role::Decode), claims) {
        (Some(prefill), Some(decode), _) => {
            let pair = Pair { gpus: [prefill.gpus, decode.gpus], floors: [prefill.floor, decode.floor], band };
            let counts = pair.guard_with_floors([current(prefill), current(decode)], [prefill.wish, decode.wish]).counts;
            BTreeMap::from([(prefill.pool.clone(), counts[0]), (decode.pool.clone(), counts[1])])
        }
        (_, _, [only]) => {
            let single = Single { gpus: only.gpus, floor: only.floor, band };
            BTreeMap::from([(only.pool.clone(), single.guard(current(only), only.wish).counts)])
        }
        _ => BTreeMap::new(),
    }
}

fn reason(cause: Option<Cause>, lower: bool) -> StepReason {
    match cause {
        Some(Cause::HeldByOthers) => StepReason::BudgetHeldByOthers,
        _ if lower => StepReason::LoweredToBudget,
        _ => StepReason::RaisedToBudget,
    }
}

impl Rationed {
    /// The step that it leaves behind those of the decision.
    pub(super) fn step(self, before: Replicas) -> (Step, Limit) {
        (Step { stage: Stage::GpuBudget, before, after: self.replicas, reason: self.reason }, Limit::GpuBudget)
    }
}
