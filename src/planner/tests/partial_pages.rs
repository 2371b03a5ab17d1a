//! Does what a page does not say for a while pass for something that happened? Counters that are away, what routers say of their fleets, restarts.

use std::sync::Arc;

use super::fleet::*;
use super::world::*;
use crate::planner::input::*;
use crate::planner::plan::Plan;
use crate::planner::policy::*;

fn auto_rate(plan: &Plan) -> f64 {
    plan.pools[0].auto.as_ref().unwrap().rate.get()
}

#[test]
fn a_counter_that_is_away_for_a_while_is_no_burst_when_it_is_back() {
    let mut fleet = Fleet::new(auto_policy(), &[8, 4]);
    let stood = recommended(&fleet.last(600.0, 20.0));
    for round in 0..24 {
        fleet.edit = if round % 3 == 0 {
            |sample| {
                sample.tallies.remove(&Tally::Finished);
                sample.tallies.remove(&Tally::Iterations);
                sample.gauges.remove(&Gauge::Running);
            }
        } else {
            |_| ()
        };
        let plan = fleet.round(20.0);
        assert_eq!(recommended(&plan), stood, "round {round}");
        assert!((auto_rate(&plan) - 20.0).abs() < 1.0, "round {round}: {}", auto_rate(&plan));
    }
}

/// The policy where routers are all that is scraped.
fn routed() -> ModelPolicy {
    let policy = auto_policy();
    let pools = policy.pools.iter().map(|pool| PoolPolicy { replicas_from: ReplicasFrom::Metric, ..pool.clone() }).collect();
    ModelPolicy { pools, ..policy }
}

/// The requests a second that preset auto sees at two routers of 10 each, of which the first's page is changed in the last minute.
fn of_two_routers(edit: fn(&mut Sample)) -> f64 {
    let mut world = World::new(routed());
    let mut routers = Routers::new(2, &Router::new(8, 4));
    let mut last = None;
    for round in 1..=60 {
        routers.routers.iter_mut().for_each(|(_, router)| router.serve(Served::typical(50.0)));
        let mut pages: Vec<Sample> = routers.routers.iter().map(|(_, router)| router.sample()).collect();
        if round > 48 {
            edit(&mut pages[0]);
        }
        let readings = pages.into_iter().map(|page| Reading::Sample(Arc::new(page)));
        let named = routers.routers.iter().map(|(name, _)| name.as_str()).zip(readings).collect();
        last = Some(world.round(f64::from(round) * 5.0, named));
    }
    auto_rate(&last.unwrap())
}

#[test]
fn a_router_that_does_not_say_what_is_behind_it_is_no_server() {
    let whole = of_two_routers(|_| ());
    assert!((whole - 20.0).abs() < 0.1, "{whole}");
    assert_eq!(of_two_routers(|sample| sample.workers.clear()), whole);
}

#[test]
fn what_a_router_lost_when_it_restarted_did_arrive() {
    let mut world = World::new(routed());
    let mut router = Router::new(8, 4);
    let before = world.drive(&mut router, 0.0, 300.0, 20.0);
    let mut anew = Router { start: Some(MIDNIGHT as f64 + 304.0), ..Router::new(8, 4) };
    let restarted = world.one(305.0, &anew);
    let after = world.drive(&mut anew, 305.0, 330.0, 20.0);
    for plan in [&restarted, &after] {
        assert!((auto_rate(plan) - 20.0).abs() < 1.0, "{}", auto_rate(plan));
        assert_eq!(recommended(plan), recommended(&before));
    }
}
