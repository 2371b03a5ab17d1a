//! Do two exporters that started at different times come to recommend the same? As two replicas of one deployment do, behind a `max`.

use std::collections::BTreeMap;
use std::time::Duration;

use inference_planner_exporter::units::{Moment, Replicas, Role};

use crate::virtual_time::{ROLES, START, Servers, config, exporter, recommended};

/// From the start of the first to that of the second.
const APART: Duration = Duration::from_secs(70);
const ROUND: Duration = Duration::from_secs(10);
/// Policies, and how far back what decides here looks: two windows with the growth limit, ten minutes of arrivals. The predictor of preset dynamo
/// remembers 200 windows, which is too long to wait for; a test of `arima` sees that its choices become the same.
const PLANNERS: [(&str, Duration); 4] = [
    ("preset: infera, profile: profile.json, adjustment_interval: 60s", Duration::from_secs(120)),
    ("preset: auto, profile: profile.json", Duration::from_secs(600)),
    ("preset: wva", Duration::from_secs(300)),
    ("preset: dynamo, profile: profile.json, adjustment_interval: 60s", Duration::from_secs(300)),
];
/// How long they are watched afterwards.
const WATCHED: Duration = Duration::from_secs(400);
const LOAD_PERIOD: f64 = 3600.0;

/// Requests a second: between 4 and 20.
fn rate(at: Duration) -> f64 {
    12.0 + 8.0 * (at.as_secs_f64() / LOAD_PERIOD * std::f64::consts::TAU).sin()
}

/// The rounds in which the two differ, as times since the start of the second one, until `end`; and what both recommended then.
fn differences(planner: &str, end: Duration) -> (Vec<Duration>, BTreeMap<Role, Option<Replicas>>) {
    let config = config(planner, ROUND);
    // The zero of the monotonic clock is each process's own.
    let moment = |at: Duration, of: Duration| Moment { monotonic: at - of, wall: START.wall + at };
    let mut servers = Servers::default();
    let mut next = 0;
    ROLES.into_iter().for_each(|role| servers.scale(role, Replicas(3), &mut next, START));
    let mut first = exporter(&config, moment(Duration::ZERO, Duration::ZERO));
    let mut second = None;
    let mut found = Vec::new();
    let mut at = Duration::ZERO;
    let mut wanted = BTreeMap::new();
    while at < APART + end {
        at += ROUND;
        servers.work(ROUND, rate(at));
        let one = recommended(&servers.round(&mut first, moment(at, Duration::ZERO), |_, _| None));
        wanted.clone_from(&one);
        if at >= APART {
            let second = second.get_or_insert_with(|| exporter(&config, moment(at, APART)));
            let other = recommended(&servers.round(second, moment(at, APART), |_, _| None));
            if one != other {
                found.push(at - APART);
            }
            wanted.iter_mut().for_each(|(role, count)| *count = (*count).max(other.get(role).copied().flatten()));
        }
        follow(&mut servers, &wanted, &mut next, moment(at, Duration::ZERO));
    }
    (found, wanted)
}

fn follow(servers: &mut Servers, wanted: &BTreeMap<Role, Option<Replicas>>, next: &mut u32, now: Moment) {
    for (role, count) in wanted {
        if let Some(count) = count {
            servers.scale(*role, *count, next, now);
        }
    }
}

#[test]
fn two_replicas_started_70_s_apart_agree_after_twice_the_longest_memory() {
    for (planner, memory) in PLANNERS {
        let (found, wanted) = differences(planner, 2 * memory + WATCHED);
        assert!(ROLES.iter().all(|role| wanted[role].is_some()), "{planner}: nothing to agree on, {wanted:?}");
        assert!(found.iter().all(|at| *at <= 2 * memory), "{planner}: they differ at {found:?}");
    }
}
