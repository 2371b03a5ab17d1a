//! Does one budget serve several models as its operator ordered, whatever they ask for?

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

fn claim(pool: &str, priority: i32, gpus: u32, [floor, stands, wish]: [u32; 3]) -> Claim {
    Claim {
        pool: PoolId::from(pool),
        priority,
        gpus: NonZeroU32::new(gpus).unwrap(),
        wish: Replicas(wish),
        floor: Replicas(floor),
        stands: Replicas(stands),
    }
}

fn band(min: Option<u32>, max: Option<u32>) -> GpuBand {
    GpuBand { min, max }
}

fn counts(claims: &[Claim], band: GpuBand) -> Vec<u32> {
    let granted = allot(claims, band);
    claims.iter().map(|claim| granted[&claim.pool].replicas.0).collect()
}

#[test]
fn wishes_within_the_budget_are_granted() {
    let claims = [claim("a", 0, 1, [1, 2, 3]), claim("b", 5, 2, [1, 1, 2])];
    for band in [band(None, None), band(None, Some(8)), band(Some(4), Some(8)), band(Some(7), None)] {
        assert_eq!(counts(&claims, band), [3, 2], "{band:?}");
        assert!(allot(&claims, band).values().all(|grant| grant.cause.is_none()));
    }
}

#[test]
fn no_pool_is_taken_from_for_one_of_its_own_priority() {
    let claims = [claim("a", 0, 1, [1, 6, 6]), claim("b", 0, 1, [1, 2, 10])];
    assert_eq!(counts(&claims, band(None, Some(8))), [6, 2]);
    assert_eq!(allot(&claims, band(None, Some(8)))[&PoolId::from("b")].cause, Some(Cause::Ceiling));
}

#[test]
fn a_higher_priority_takes_what_it_wants_as_soon_as_the_others_have_let_go() {
    let claims = |stands| [claim("a", 0, 1, [1, stands, 6]), claim("b", 1, 1, [1, 2, 10])];
    assert_eq!(counts(&claims(6), band(None, Some(8))), [1, 2]);
    assert_eq!(allot(&claims(6), band(None, Some(8)))[&PoolId::from("b")].cause, Some(Cause::HeldByOthers));
    assert_eq!(counts(&claims(3), band(None, Some(8))), [1, 5], "three of A's have ended");
    assert_eq!(counts(&claims(1), band(None, Some(8))), [1, 7]);
}

#[test]
fn what_is_free_is_shared_in_proportion_to_what_is_wanted_beyond() {
    // 10 free of 14: A wants 15 more and B 5 more.
    let claims = [claim("a", 0, 1, [1, 2, 17]), claim("b", 0, 1, [1, 2, 7])];
    assert_eq!(counts(&claims, band(None, Some(14))), [10, 4], "7.5 and 2.5; of equal remainders the first name");
    // With 2 GPUs each for B: (10 * 15 / 25, 10 * 5 / 25) = (6, 2).
    let claims = [claim("a", 0, 1, [1, 2, 17]), claim("b", 0, 2, [1, 2, 7])];
    assert_eq!(counts(&claims, band(None, Some(16))), [8, 4]);
}

#[test]
fn too_many_replicas_are_given_back_in_proportion_down_to_the_floors() {
    let claims = [claim("a", 0, 1, [2, 12, 12]), claim("b", 0, 1, [2, 7, 7])];
    // 4 floors; of the other 10 and 5 the remaining 6 are shared 4 to 2.
    assert_eq!(counts(&claims, band(None, Some(10))), [6, 4]);
    assert_eq!(counts(&claims, band(None, Some(3))), [2, 2], "floors are kept");
}

#[test]
fn gpus_that_a_high_priority_cannot_use_in_whole_replicas_go_to_a_lower_one() {
    let claims = [claim("large", 1, 4, [1, 1, 4]), claim("small", 0, 1, [0, 0, 9])];
    assert_eq!(counts(&claims, band(None, Some(11))), [2, 3]);
}

#[test]
fn what_ends_still_holds_its_gpus() {
    // A was lowered to 2 and two of its replicas still end; B has to wait, and rises as far as there is room.
    let claims = [claim("a", 0, 1, [1, 4, 2]), claim("b", 0, 1, [1, 2, 6])];
    let granted = allot(&claims, band(None, Some(8)));
    assert_eq!(granted[&PoolId::from("b")], Grant { replicas: Replicas(4), cause: Some(Cause::HeldByOthers) });
    assert_eq!(granted[&PoolId::from("a")], Grant { replicas: Replicas(2), cause: None });
}

#[test]
fn a_minimum_is_met_by_what_would_have_been_given_back_and_then_by_the_most_important() {
    let claims = [claim("a", 0, 1, [1, 4, 2]), claim("b", 0, 1, [1, 2, 2]), claim("c", 9, 1, [1, 1, 1])];
    assert_eq!(counts(&claims, band(Some(6), None)), [3, 2, 1]);
    assert_eq!(counts(&claims, band(Some(7), None)), [4, 2, 1]);
    assert_eq!(counts(&claims, band(Some(9), None)), [4, 2, 3]);
    assert_eq!(allot(&claims, band(Some(9), None))[&PoolId::from("c")].cause, Some(Cause::Minimum));
    // With a ceiling 6 of 7 are near enough, and a minimum over the ceiling is the ceiling.
    assert_eq!(counts(&claims, band(Some(6), Some(12))), [2, 2, 1]);
    assert_eq!(counts(&claims, band(Some(40), Some(7))), [4, 2, 1]);
    assert_eq!(counts(&[claim("a", 0, 2, [0, 0, 0])], band(Some(5), None)), [3]);
}

#[test]
fn a_wish_below_the_floor_is_the_floor() {
    let granted = allot(&[claim("a", 0, 1, [2, 2, 0])], band(None, None));
    assert_eq!(granted[&PoolId::from("a")], Grant { replicas: Replicas(2), cause: Some(Cause::Floor) });
    assert!(allot(&[], band(Some(3), Some(4))).is_empty());
}

#[test]
fn counts_at_the_end_of_the_number_range_are_answered_at_once() {
    let most = u32::MAX;
    let claims = [claim("a", 0, most, [0, most, most]), claim("b", 1, 1, [1, 0, most]), claim("c", 1, 1, [1, 0, most])];
    assert_eq!(counts(&claims, band(None, Some(9))).iter().map(|count| u64::from(*count)).sum::<u64>(), 2);
    assert_eq!(counts(&claims[1..], band(Some(most), Some(most))), [1 << 31, (1 << 31) - 1]);
}

fn a_claim() -> impl Strategy<Value = (i32, u32, [u32; 3])> {
    (0..3_i32, 1..9_u32, [0..5_u32, 0..20_u32, 0..20_u32])
}

fn claims_of(drawn: Vec<(i32, u32, [u32; 3])>) -> Vec<Claim> {
    drawn.into_iter().enumerate().map(|(at, (priority, gpus, counts))| claim(&format!("pool-{at}"), priority, gpus, counts)).collect()
}

fn cost(claims: &[Claim], count: impl Fn(&Claim) -> u32) -> u64 {
    claims.iter().map(|claim| u64::from(count(claim)) * u64::from(claim.gpus.get())).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, rng_seed: RngSeed::Fixed(0x5eed), ..ProptestConfig::default() })]

    #[test]
    fn no_answer_breaks_a_bound(
        drawn in prop::collection::vec(a_claim(), 1..6),
        min in prop::option::of(0..200_u32),
        max in prop::option::of(0..200_u32),
        turn in 0..6_usize,
    ) {
        let claims = claims_of(drawn);
        let band = band(min, max);
        let granted = allot(&claims, band);
        let of = |claim: &Claim| granted[&claim.pool];
        let used = cost(&claims, |claim| of(claim).replicas.0);
        let floors = cost(&claims, |claim| claim.floor.0);
        prop_assert!(max.is_none_or(|max| used <= u64::from(max).max(floors)), "{used} of {max:?}");
        for claim in &claims {
            let grant = of(claim);
            prop_assert!(grant.replicas >= claim.floor);
            prop_assert!(grant.replicas <= claim.wish.max(claim.floor) || grant.cause == Some(Cause::Minimum), "{claim:?}: {grant:?}");
            prop_assert_eq!(grant.cause.is_none(), grant.replicas == claim.wish, "{:?}: {:?}", claim, grant);
            // What a pool rises to is not held by others.
            let others = cost(&claims, |other| if other.pool == claim.pool { 0 } else { of(other).replicas.0.max(other.stands.0) });
            let rises = grant.replicas > claim.stands.max(claim.floor);
            let holds = others + u64::from(grant.replicas.0) * u64::from(claim.gpus.get());
            prop_assert!(!rises || max.is_none_or(|max| holds <= u64::from(max)), "{claim:?}: {grant:?}");
        }
        let wished = cost(&claims, |claim| claim.wish.max(claim.floor).0);
        let held = cost(&claims, |claim| claim.wish.max(claim.floor).max(claim.stands).0);
        if min.is_none_or(|min| wished >= u64::from(min)) && max.is_none_or(|max| held <= u64::from(max)) {
            prop_assert!(claims.iter().all(|claim| of(claim).replicas == claim.wish.max(claim.floor)));
        }
        let mut turned = claims.clone();
        turned.rotate_left(turn % claims.len());
        prop_assert_eq!(&allot(&turned, band), &granted);
        turned.reverse();
        prop_assert_eq!(&allot(&turned, band), &granted);
    }

    /// As long as wishes keep still, counts come to rest: each round's counts are what stands in the next.
    #[test]
    fn counts_come_to_rest(drawn in prop::collection::vec(a_claim(), 1..6), min in prop::option::of(0..100_u32), max in prop::option::of(0..100_u32)) {
        let mut claims = claims_of(drawn);
        let band = band(min, max);
        let mut last = None;
        for _ in 0..20 {
            let granted = allot(&claims, band);
            if last.as_ref() == Some(&granted) {
                return Ok(());
            }
            for claim in &mut claims {
                claim.stands = granted[&claim.pool].replicas;
            }
            last = Some(granted);
        }
        prop_assert!(false, "{claims:?} under {band:?} never rest");
    }
}
