//! Which preset plans a model, and do its pools fit it?

use super::check::Values;
use super::layers::Layer;
use super::pools::PoolDraft;
use crate::planner::policy::Preset;
use crate::units::Role;

/// The preset of a model: the written one, else the one that fits what else is written.
pub(super) fn read(values: &mut Values, key: &str, has_profile: bool) -> Option<Preset> {
    let (at, profile_at) = (format!("{key}.planner.preset"), format!("{key}.planner.profile"));
    let has_profile = has_profile || values.is_wrong(&profile_at);
    let by_flags = values.layer(key) == Layer::Flag;
    let objective = ["ttft", "itl"].into_iter().any(|name| values.is_written(&format!("{key}.slo.{name}")));
    let preset = if values.is_written(&at) {
        values.text(&at).and_then(|name| Preset::ALL.into_iter().find(|preset| preset.as_str() == name))
    } else if values.is_wrong(&at) {
        None
    } else if has_profile && (by_flags || !objective) {
        Some(Preset::Infera)
    } else if objective {
        Some(Preset::Auto)
    } else if values.is_written("queueing_config") {
        Some(Preset::Wva)
    } else {
        Some(Preset::Dynamo)
    };
    match preset {
        Some(Preset::Infera) if !has_profile => {
            let message = if by_flags { "required by preset infera" } else { "required by preset infera: the path of a profile.json" };
            values.problem(&profile_at, message);
        }
        Some(Preset::Wva) if has_profile => {
            values
                .problem(&profile_at, "preset wva learns what replicas can do and reads no profile; leave it out, or write preset: infera");
        }
        _ => {}
    }
    preset
}

/// Whether the preset can plan these pools.
pub(super) fn pools_fit(values: &mut Values, key: &str, preset: Preset, any: bool, pools: &[PoolDraft]) {
    match preset {
        Preset::Infera => fit_infera(values, key, pools),
        Preset::Dynamo | Preset::Auto => fit_pair(values, key, preset, pools),
        Preset::Wva => fit_wva(values, key, any, pools),
    }
}

fn fit_infera(values: &mut Values, key: &str, pools: &[PoolDraft]) {
    for pool in pools.iter().filter(|pool| pool.role == Some(Role::Aggregated)) {
        let message = "preset infera plans prefill and decode apart; a profile says nothing of aggregated replicas";
        values.problem(&format!("{}.role", pool.key), message);
    }
    let at = format!("{key}.pools");
    let unclear = pools.iter().any(|pool| matches!(pool.role, None | Some(Role::Aggregated)));
    if unclear || values.is_wrong(&at) {
        return;
    }
    for role in [Role::Prefill, Role::Decode] {
        let count = pools.iter().filter(|pool| pool.role == Some(role)).count();
        if count != 1 {
            values.problem(&at, format!("preset infera takes exactly one pool of role {role}, got {count}"));
        }
    }
}

fn fit_pair(values: &mut Values, key: &str, preset: Preset, pools: &[PoolDraft]) {
    let at = format!("{key}.pools");
    if pools.iter().any(|pool| pool.role.is_none()) || values.is_wrong(&at) {
        return;
    }
    let count = |role| pools.iter().filter(|pool| pool.role == Some(role)).count();
    let (prefill, decode, both) = (count(Role::Prefill), count(Role::Decode), count(Role::Aggregated));
    let profile = format!("{key}.planner.profile");
    if both > 0 && values.is_written(&profile) && !values.is_wrong(&profile) {
        let learner = if preset == Preset::Auto { "preset auto" } else { "target sla" };
        let message = format!("a profile says nothing of aggregated replicas; leave it out: {learner} learns what they can do");
        values.problem(&profile, message);
    }
    if prefill > 1 || decode > 1 || both > 1 || (both == 1 && prefill + decode > 0) {
        let message = format!(
            "preset {} takes one pool of role aggregated, or at most one of role prefill and one of role decode, got {both}, {prefill} and {decode}",
            preset.as_str()
        );
        values.problem(&at, message);
    }
}

fn fit_wva(values: &mut Values, key: &str, any: bool, pools: &[PoolDraft]) {
    let at = format!("{key}.pools");
    if pools.iter().any(|pool| pool.role.is_none()) || values.is_wrong(&at) {
        return;
    }
    let of = |role| pools.iter().filter(move |pool| pool.role == Some(role));
    if of(Role::Aggregated).count() > 0 && of(Role::Aggregated).count() < pools.len() {
        let message = "preset wva takes pools of role aggregated, or pools of roles prefill and decode; with both nobody knows which \
                       of them serves a request";
        values.problem(&at, message);
    }
    for role in Role::ALL.into_iter().filter(|role| of(*role).count() > 1) {
        if any {
            values
                .problem(&at, format!("with the model name \"*\" expected one pool of role {role}: pools are called after model and role"));
            continue;
        }
        for pool in of(role).filter(|pool| !pool.has_targets) {
            let message = format!(
                "one of several pools of role {role}: expected targets of its own, since without them nobody knows which replica did what"
            );
            values.problem(&format!("{}.targets", pool.key), message);
        }
    }
}
