//! Does the ledger keep its promises? One decision a change, ids that only grow, acknowledgements that hold nothing up.

use super::*;

const WITHIN: Duration = Duration::from_secs(1800);

fn at(seconds: u64) -> Moment {
    Moment { monotonic: Duration::from_secs(5000), wall: Duration::from_secs(1_800_000_000) }.after(Duration::from_secs(seconds))
}

fn state(model: &str, pools: &[(&str, Option<u32>)]) -> ModelState {
    let pool = |&(name, replicas): &(&str, Option<u32>)| PoolState {
        pool: PoolId::from(name),
        role: Role::Decode,
        replicas: replicas.map(Replicas),
        reason: Reason::None,
    };
    ModelState { model: ModelId::from(model), target_namespace: "n".to_owned(), pools: pools.iter().map(pool).collect() }
}

fn both(prefill: u32, decode: u32) -> ModelState {
    state("m", &[("p", Some(prefill)), ("d", Some(decode))])
}

fn ledger() -> Ledger {
    Ledger::restored(Kept::default(), Some(WITHIN), at(0))
}

/// The one decision that follows.
fn made(ledger: &mut Ledger, model: ModelState, now: Moment) -> Decision {
    let mut made = ledger.observe([model], "hash", now);
    assert_eq!(made.len(), 1, "{made:?}");
    made.remove(0)
}

/// Pool, before and after.
fn counts(decision: &Decision) -> Vec<(&str, Option<u32>, Option<u32>)> {
    let count = |replicas: Option<Replicas>| replicas.map(|replicas| replicas.0);
    decision.pools.iter().map(|pool| (pool.pool.as_str(), count(pool.before), count(pool.after))).collect()
}

#[test]
fn a_decision_is_a_change_with_all_pools_of_the_model() {
    let mut ledger = ledger();
    assert_eq!(ledger.observe([state("m", &[("p", None), ("d", None)])], "hash", at(0)), [], "nothing is published yet");
    assert_eq!(ledger.standing(), Standing::default());
    let first = made(&mut ledger, both(2, 3), at(5));
    assert_eq!(counts(&first), [("p", None, Some(2)), ("d", None, Some(3))]);
    assert_eq!((first.at, first.config_hash.as_str(), first.is_withdrawn()), (at(5).wall, "hash", false));
    assert_eq!(ledger.observe([both(2, 3)], "other", at(10)), [], "another configuration that publishes the same");
    let second = made(&mut ledger, both(2, 4), at(15));
    assert_eq!(counts(&second), [("p", Some(2), Some(2)), ("d", Some(3), Some(4))]);
    assert_eq!(ledger.standing(), Standing { last_id: second.id, decisions: vec![second] }, "only the latest stands");
}

#[test]
fn models_are_decided_for_themselves_and_parts_of_one_name_are_one_model() {
    let mut ledger = ledger();
    let first = ledger.observe([state("a", &[("a", Some(1))]), state("b", &[("b", Some(1))])], "hash", at(0));
    assert_eq!(first.iter().map(|decision| decision.model.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let second = ledger.observe([state("a", &[("a", Some(1))]), state("b", &[("b", Some(2))])], "hash", at(5));
    assert_eq!(second.len(), 1);
    assert_eq!(second[0].model.as_str(), "b");
    let parts = || [state("c", &[("c1", Some(1))]), state("c", &[("c2", Some(2))])];
    let with = |more: [ModelState; 2]| [state("a", &[("a", Some(1))]), state("b", &[("b", Some(2))])].into_iter().chain(more);
    let third = ledger.observe(with(parts()), "hash", at(10));
    assert_eq!(counts(&third[0]), [("c1", None, Some(1)), ("c2", None, Some(2))]);
    assert_eq!(ledger.observe(with(parts()), "hash", at(15)), []);
}

#[test]
fn ids_grow_whatever_the_wall_clock_does() {
    let mut ledger = ledger();
    let many = ledger.observe([state("a", &[("a", Some(1))]), state("b", &[("b", Some(1))])], "hash", at(0));
    assert_eq!(many.iter().map(|decision| decision.id.0).collect::<Vec<_>>(), [1_800_000_000_000, 1_800_000_000_001]);
    let set_back = Moment { wall: Duration::from_secs(7), ..at(10) };
    let after = ledger.observe([state("a", &[("a", Some(2))]), state("b", &[("b", Some(1))])], "hash", set_back);
    assert_eq!(after[0].id.0, 1_800_000_000_002);
}

#[test]
fn a_value_that_ends_withdraws_the_decision_and_is_never_zero() {
    let mut ledger = ledger();
    let first = made(&mut ledger, both(2, 3), at(0));
    let partly = made(&mut ledger, state("m", &[("p", None), ("d", Some(3))]), at(5));
    assert_eq!((counts(&partly), partly.is_withdrawn()), (vec![("p", Some(2), None), ("d", Some(3), Some(3))], false));
    let wholly = made(&mut ledger, state("m", &[("p", None), ("d", None)]), at(10));
    assert_eq!((counts(&wholly), wholly.is_withdrawn()), (vec![("p", None, None), ("d", Some(3), None)], true));
    assert!(wholly.id > partly.id && partly.id > first.id);
    assert_eq!(wholly.due, None, "there is nothing to be done");
    let again = made(&mut ledger, both(2, 3), at(15));
    assert_eq!(counts(&again), [("p", None, Some(2)), ("d", None, Some(3))]);
}

#[test]
fn a_recommendation_of_zero_is_a_count_and_no_withdrawal() {
    let mut ledger = ledger();
    made(&mut ledger, both(1, 1), at(0));
    let zero = made(&mut ledger, both(0, 0), at(5));
    assert!(!zero.is_withdrawn() && zero.due.is_some());
}

#[test]
fn a_pool_that_leaves_is_told_once_and_one_that_comes_without_a_value_is_no_change() {
    let mut ledger = ledger();
    made(&mut ledger, both(2, 3), at(0));
    assert_eq!(ledger.observe([state("m", &[("p", Some(2)), ("d", Some(3)), ("new", None)])], "hash", at(5)), []);
    let left = made(&mut ledger, state("m", &[("p", Some(2))]), at(10));
    assert_eq!(counts(&left), [("p", Some(2), Some(2)), ("d", Some(3), None)]);
    assert_eq!((left.pools[0].reason, left.pools[1].reason), (Some(Reason::None), None));
    assert_eq!(counts(&made(&mut ledger, state("m", &[("p", Some(4))]), at(15))), [("p", Some(2), Some(4))]);
}

#[test]
fn a_model_that_leaves_is_withdrawn_and_remembered_for_a_while() {
    let mut ledger = ledger();
    made(&mut ledger, both(2, 3), at(0));
    let gone = ledger.observe([], "hash", at(10));
    assert_eq!(counts(&gone[0]), [("p", Some(2), None), ("d", Some(3), None)]);
    assert!(gone[0].is_withdrawn());
    assert_eq!(ledger.observe([], "hash", at(1809)), []);
    assert_eq!(ledger.standing().decisions, gone);
    assert_eq!(ledger.observe([], "hash", at(1810)), []);
    assert_eq!(ledger.standing(), Standing { last_id: gone[0].id, decisions: Vec::new() });
    assert!(made(&mut ledger, both(2, 3), at(1820)).id > gone[0].id);
}

#[test]
fn an_acknowledgement_is_kept_and_a_second_changes_nothing() {
    let mut ledger = ledger();
    let decision = made(&mut ledger, both(2, 3), at(0));
    let first = ledger.acknowledge(decision.id, Some("launcher".to_owned()), at(60)).unwrap();
    let expected = Acknowledgement { at: at(60).wall, by: Some("launcher".to_owned()) };
    assert_eq!((first.acknowledged.as_ref(), first.due), (Some(&expected), None));
    assert_eq!(ledger.acknowledge(decision.id, None, at(90)), Ok(first.clone()));
    assert_eq!(ledger.standing().decisions, [first]);
    assert_eq!(ledger.overdue(at(5000)), []);
}

#[test]
fn a_superseded_decision_is_refused_with_the_newer_id_and_an_unknown_one_as_unknown() {
    let mut ledger = ledger();
    let ids: Vec<DecisionId> = (1..=40).map(|count| made(&mut ledger, both(count, 1), at(count.into())).id).collect();
    let newest = *ids.last().unwrap();
    assert_eq!(ledger.acknowledge(ids[38], None, at(50)), Err(Refusal::Superseded { by: newest }));
    assert_eq!(ledger.acknowledge(ids[7], None, at(50)), Err(Refusal::Superseded { by: newest }));
    assert_eq!(ledger.acknowledge(ids[6], None, at(50)), Err(Refusal::Unknown), "too long ago");
    assert_eq!(ledger.acknowledge(DecisionId(newest.0 + 1), None, at(50)), Err(Refusal::Unknown));
    assert!(ledger.acknowledge(newest, None, at(50)).is_ok());
}

#[test]
fn what_nobody_acknowledges_in_time_is_told_once_and_stands() {
    let mut ledger = ledger();
    let decision = made(&mut ledger, both(2, 3), at(0));
    assert_eq!(decision.due.map(|due| due.wall), Some(at(1800).wall));
    assert_eq!(ledger.overdue(at(1799)), []);
    assert!(!decision.is_timed_out(at(1799)) && decision.is_timed_out(at(1800)));
    // A wall clock that steps changes nothing.
    let stepped = Moment { monotonic: at(1799).monotonic, wall: at(9000).wall };
    assert!(!decision.is_timed_out(stepped));
    assert_eq!(ledger.overdue(at(1800)), vec![decision.clone()]);
    assert_eq!(ledger.overdue(at(1801)), []);
    let newer = made(&mut ledger, both(3, 3), at(1802));
    assert!(!newer.is_timed_out(at(1802)), "a newer decision has its own time");
    assert_eq!(ledger.acknowledge(newer.id, None, at(4000)).map(|late| late.is_timed_out(at(4000))), Ok(false), "late is not never");
}

#[test]
fn nothing_times_out_where_nobody_may_acknowledge() {
    let mut ledger = Ledger::restored(Kept::default(), None, at(0));
    let decision = made(&mut ledger, both(2, 3), at(0));
    assert_eq!((decision.due, decision.is_timed_out(at(1 << 20))), (None, false));
    assert_eq!(ledger.overdue(at(1 << 20)), []);
}

/// What comes back from the state file.
fn restart(ledger: &Ledger, now: Moment) -> Ledger {
    let text = serde_json::to_string(&ledger.kept()).unwrap();
    Ledger::restored(serde_json::from_str(&text).unwrap(), Some(WITHIN), now)
}

/// A later process, whose monotonic clock begins anew.
fn later(seconds: u64) -> Moment {
    Moment { monotonic: Duration::from_secs(10 + seconds), ..at(seconds) }
}

#[test]
fn a_restart_keeps_decisions_acknowledgements_and_times() {
    let mut before = ledger();
    let acknowledged = made(&mut before, both(1, 1), at(0));
    let open = made(&mut before, both(2, 3), at(100));
    let mut after = restart(&before, later(400));
    assert_eq!(after.observe([both(2, 3)], "hash", later(400)), [], "what is published again is no change");
    let standing = after.standing();
    assert_eq!((standing.last_id, standing.decisions[0].id), (open.id, open.id));
    assert!(!standing.decisions[0].is_timed_out(later(1899)) && standing.decisions[0].is_timed_out(later(1900)));
    assert_eq!(after.acknowledge(acknowledged.id, None, later(500)), Err(Refusal::Superseded { by: open.id }));
    assert_eq!(after.overdue(later(1900)).len(), 1);
    let mut third = restart(&after, later(2000));
    third.observe([both(2, 3)], "hash", later(2000));
    assert_eq!(third.overdue(later(2000)), [], "it was told before the restart");
    third.acknowledge(open.id, Some("x".to_owned()), later(2010)).unwrap();
    let fourth = restart(&third, later(2020)).standing();
    assert_eq!(fourth.decisions[0].acknowledged.as_ref().and_then(|by| by.by.as_deref()), Some("x"));
}

#[test]
fn a_model_that_is_found_again_after_a_restart_has_its_old_decision() {
    let mut before = ledger();
    let decision = made(&mut before, both(2, 3), at(0));
    let mut after = restart(&before, later(3600));
    assert_eq!(after.observe([], "hash", later(3600)), [], "it may still be found");
    assert_eq!(after.overdue(later(3600)), [], "nothing is published for it yet");
    assert_eq!(after.observe([both(2, 3)], "hash", later(3605)), []);
    assert_eq!(after.standing().last_id, decision.id);
    let mut expired = restart(&before, later(3600));
    assert!(made(&mut expired, state("m", &[("p", None), ("d", None)]), later(3600)).is_withdrawn(), "its value ended in between");
}
