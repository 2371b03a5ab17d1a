//! Does preset wva see that replicas have no place for more requests, though their iterations are short?

use super::queueing::{World, count, policy, pool};
use crate::planner::plan::Plan;

/// lambda* of the plan's pool.
fn star(plan: &Plan) -> f64 {
    plan.pools[0].queueing.as_ref().unwrap().capacity.unwrap().estimate.get()
}

#[test]
fn a_replica_serves_no_more_than_its_kv_memory_holds() {
    let taught = |kv_tokens| {
        let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[3]);
        world.pools[0].iter_mut().for_each(|server| server.kv_tokens = kv_tokens);
        world.teach();
        world.minute(&[10.0])
    };
    // 20000 tokens hold 34.7 requests of 512 + 64.5: 34.7 / (129 * 0.008 + 34.7 * 0.047392) = 12.96/s, where ITL alone would allow 17.7.
    let (free, bound) = (taught(None), taught(Some(20_000.0)));
    assert!((star(&free) / 17.7 - 1.0).abs() < 0.02 && (star(&bound) / 12.96 - 1.0).abs() < 0.02, "{} {}", star(&free), star(&bound));
    assert_eq!((count(&free.pools[0]), count(&bound.pools[0])), (3, 3), "nothing is given back yet");
}

#[test]
fn what_full_batches_held_bounds_the_count_where_nobody_says_how_large_the_memory_is() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[2]);
    world.teach();
    let before = world.minute(&[10.0]);
    assert_eq!(count(&before.pools[0]), 2);
    // 11 requests a second are served and 15 arrive at each, round after round; the iterations stay short.
    let mut plans = Vec::new();
    for _ in 0..4 {
        world.pools[0].iter_mut().for_each(|server| server.waiting += 4.0 * world.seconds);
        plans.push(world.minute(&[11.0]));
    }
    let last = plans.last().unwrap();
    assert!((star(last) / 11.0 - 1.0).abs() < 0.03, "{}", star(last));
    assert_eq!(count(&last.pools[0]), 3, "30 / 11");
}
