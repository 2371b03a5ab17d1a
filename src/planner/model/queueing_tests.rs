//! Does the closed form give the reference's numbers, and does its inverse lead back?

use serde_json::Value;

use super::*;

const GOLDENS: &str = include_str!("../../../tests/fixtures/goldens/queueing.json");

fn cases(kind: &str) -> Vec<Value> {
    let goldens: Value = serde_json::from_str(GOLDENS).unwrap();
    let cases = goldens[kind].as_array().unwrap().clone();
    assert_eq!(cases.len(), 30, "{kind}");
    cases
}

fn milli(case: &Value, key: &str) -> f64 {
    case[key].as_f64().unwrap_or_else(|| panic!("{key} in {case}")) / 1000.0
}

fn parameters(case: &Value) -> Parameters {
    Parameters::new(milli(case, "alpha_ms"), milli(case, "beta_ms"), milli(case, "gamma_ms")).unwrap()
}

fn lengths(case: &Value) -> Lengths {
    Lengths { input: Tokens(case["input_tokens"].as_f64().unwrap()), output: Tokens(case["output_tokens"].as_f64().unwrap()) }
}

#[track_caller]
fn close(ours: f64, golden: f64, case: &Value) {
    assert!((ours - golden).abs() <= 1e-9 * golden.abs(), "{ours}, expected {golden} in {case}");
}

/// What facts call case A.
fn case_a() -> (Parameters, Lengths) {
    (Parameters::new(0.008, 1.6e-5, 5e-7).unwrap(), Lengths { input: Tokens(512.0), output: Tokens(128.0) })
}

fn objective(ttft_ms: f64, itl_ms: f64) -> Objective {
    Objective { ttft: Seconds(ttft_ms / 1000.0), itl: Seconds(itl_ms / 1000.0) }
}

#[test]
fn the_forward_goldens_agree() {
    for case in cases("forward") {
        let rate = RequestsPerSecond(case["rate_per_s"].as_f64().unwrap());
        let state = parameters(&case).at(Role::Aggregated, rate, lengths(&case)).unwrap();
        let expect = &case["expect"];
        close(state.utilization.get(), expect["rho"].as_f64().unwrap(), &case);
        close(state.iteration.get(), milli(expect, "iteration_ms"), &case);
        close(state.ttft.get(), milli(expect, "ttft_ms"), &case);
        close(state.itl.get(), milli(expect, "itl_ms"), &case);
        close(state.concurrency.get(), expect["concurrency"].as_f64().unwrap(), &case);
    }
}

#[test]
fn the_inverse_goldens_agree() {
    for case in cases("inverse") {
        let objective = objective(case["target_ttft_ms"].as_f64().unwrap(), case["target_itl_ms"].as_f64().unwrap());
        let batch = case["max_batch_size"].as_f64().map(Requests);
        let capacity = parameters(&case).capacity(Role::Aggregated, lengths(&case), objective, batch);
        let expect = &case["expect"];
        let agree = |ours: Option<RequestsPerSecond>, key: &str| match expect[key].as_f64() {
            Some(golden) => close(ours.unwrap().get(), golden, &case),
            None => assert_eq!(ours, None, "{key} in {case}"),
        };
        agree(capacity.ttft, "lambda_ttft");
        agree(capacity.itl, "lambda_itl");
        agree(capacity.rate(), "lambda_star");
        if let Some(golden) = expect["lambda_batch"].as_f64() {
            close(capacity.batch.get(), golden, &case);
        }
        if let Some(golden) = expect["replicas"].as_u64() {
            let demand = RequestsPerSecond(case["total_arrivals_per_s"].as_f64().unwrap());
            assert_eq!(u64::from(replicas(demand, capacity.rate().unwrap()).0), golden, "{case}");
        }
    }
}

#[test]
fn the_learned_objectives_agree() {
    for case in cases("learned_slo") {
        let multiplier = SloMultiplier::new(case["k"].as_f64().unwrap()).unwrap();
        let of = |variant: &Value| parameters(variant).at_multiple(multiplier, lengths(&case));
        let all: Vec<Objective> = case["variants"].as_array().unwrap().iter().map(of).collect();
        let most = |of: fn(&Objective) -> f64| all.iter().map(of).fold(0.0, f64::max);
        close(most(|one| one.ttft.get()), milli(&case["expect"], "ttft_ms"), &case);
        close(most(|one| one.itl.get()), milli(&case["expect"], "itl_ms"), &case);
        close(1.0 - 1.0 / multiplier.get(), case["expect"]["target_rho"].as_f64().unwrap(), &case);
    }
}

#[test]
fn the_bootstrap_goldens_agree() {
    for case in cases("bootstrap") {
        let found = Parameters::bootstrap(Seconds(milli(&case, "ttft_ms")), Seconds(milli(&case, "itl_ms")), lengths(&case));
        let expect = &case["expect"];
        if expect.is_null() {
            assert_eq!(found, None, "{case}");
            continue;
        }
        let found = found.unwrap();
        close(found.alpha.get(), milli(expect, "alpha_ms"), &case);
        close(found.beta.get(), milli(expect, "beta_ms"), &case);
        close(found.gamma.get(), milli(expect, "gamma_ms"), &case);
    }
}

#[test]
fn the_worked_values_hold() {
    let (case, lengths) = case_a();
    let state = case.at(Role::Aggregated, RequestsPerSecond(10.0), lengths).unwrap();
    let near = |ours: f64, expected: f64| assert!((ours / expected - 1.0).abs() < 1e-5, "{ours}, expected {expected}");
    near(state.utilization.get(), 0.47392);
    near(state.iteration.get(), 0.015_206_8);
    near(state.ttft.get(), 0.023_654_8);
    near(state.itl.get(), 0.015_511_1);
    near(state.concurrency.get(), 19.6168);
    // The closed-form columns of the measured cases: TTFT and ITL over the rate, capacity by objective, learned objectives.
    for (rate, ttft, itl) in [(1.0, 16.8460, 8.7023), (5.0, 18.9324, 10.7886), (14.0, 32.221, 24.078), (18.0, 62.89, 54.75)] {
        let state = case.at(Role::Aggregated, RequestsPerSecond(rate), lengths).unwrap();
        assert!((state.ttft.get() * 1000.0 - ttft).abs() < 0.005 && (state.itl.get() * 1000.0 - itl).abs() < 0.005, "{rate}");
    }
    for (ttft, itl, star) in [(500.0, 50.0, 17.704), (500.0, 20.0, 12.530), (30.0, 20.0, 12.530)] {
        let rate = case.capacity(Role::Aggregated, lengths, objective(ttft, itl), None).rate().unwrap();
        assert!((rate.get() - star).abs() < 0.001, "{ttft}, {itl}: {rate:?}");
    }
    for (k, ttft, itl, star) in [(2.0, 24.448, 16.3043, 10.5503), (3.0, 32.448, 24.3043, 14.0671), (5.0, 48.448, 40.3043, 16.8805)] {
        let learned = case.at_multiple(SloMultiplier::new(k).unwrap(), lengths);
        assert!((learned.ttft.get() * 1000.0 - ttft).abs() < 0.001 && (learned.itl.get() * 1000.0 - itl).abs() < 0.001, "{k}");
        let rate = case.capacity(Role::Aggregated, lengths, learned, None).rate().unwrap();
        assert!((rate.get() - star).abs() < 0.001, "{k}: {rate:?}");
    }
    let slow = Parameters::new(0.005, 5e-5, 5e-8).unwrap();
    let long = Lengths { input: Tokens(1000.0), output: Tokens(200.0) };
    let rate = slow.capacity(Role::Aggregated, long, slow.at_multiple(SloMultiplier::new(3.0).unwrap(), long), None).rate().unwrap();
    assert!((rate.get() - 9.3824).abs() < 0.0001, "{rate:?}");
    // Bootstrap, one that succeeds and one that fails.
    let of = |ttft: f64, itl: f64| {
        Parameters::bootstrap(Seconds(ttft / 1e3), Seconds(itl / 1e3), Lengths { input: Tokens(100.0), output: Tokens(100.0) })
    };
    let guess = of(50.0, 10.0).unwrap();
    near(guess.alpha.get(), 0.009);
    near(guess.beta.get(), 4.060_535_1e-4);
    near(guess.gamma.get(), 3.946_49e-6);
    assert_eq!(of(100.0, 8.0), None);
}

#[test]
fn the_target_utilization_is_exactly_one_minus_one_over_k() {
    let (case, lengths) = case_a();
    for role in Role::ALL {
        for k in [1.01, 1.5, 2.0, 3.0, 5.0, 20.0] {
            let learned = case.at_multiple(SloMultiplier::new(k).unwrap(), lengths);
            let capacity = case.capacity(role, lengths, learned, None);
            let rates = [capacity.ttft, capacity.itl].map(|rate| rate.unwrap().get());
            let bounded: Vec<f64> = rates.into_iter().filter(|rate| rate.is_finite()).collect();
            for rate in &bounded {
                let rho = rate * case.work(role, lengths).get();
                assert!((rho - (1.0 - 1.0 / k)).abs() < 1e-12, "{role} {k}: {rho}");
            }
            assert!(bounded.windows(2).all(|pair| (pair[0] / pair[1] - 1.0).abs() < 1e-12), "both invert to the same rate");
        }
    }
}

#[test]
fn the_inverse_leads_back_for_every_role_and_limit() {
    let (case, lengths) = case_a();
    for role in Role::ALL {
        for (ttft, itl, batch) in [(30.0, 500.0, None), (500.0, 20.0, None), (5000.0, 5000.0, Some(Requests(8.0)))] {
            let wanted = objective(ttft, itl);
            let rate = case.capacity(role, lengths, wanted, batch).rate().unwrap();
            let state = case.at(role, rate, lengths).unwrap();
            let at = |found: Seconds, limit: Seconds| found.get() / limit.get();
            let shares = [
                if role == Role::Decode { 0.0 } else { at(state.ttft, wanted.ttft) },
                if role == Role::Prefill { 0.0 } else { at(state.itl, wanted.itl) },
                batch.map_or(0.0, |batch| state.concurrency.get() / batch.get()),
            ];
            let most = shares.iter().copied().fold(0.0, f64::max);
            assert!((most - 1.0).abs() < 1e-9, "{role} {wanted:?}: {shares:?}");
        }
    }
}

#[test]
fn the_work_of_the_roles_adds_up() {
    let (case, lengths) = case_a();
    let [prefill, decode, both] = [Role::Prefill, Role::Decode, Role::Aggregated].map(|role| case.work(role, lengths).get());
    assert!((both - (prefill + decode)).abs() < 1e-12 * both, "{both} {prefill} {decode}");
}

#[test]
fn more_than_a_replica_can_serve_has_no_state_and_an_unattainable_objective_no_rate() {
    let (case, lengths) = case_a();
    for rate in [21.2, 1e9, f64::INFINITY, f64::NAN, -1.0] {
        assert_eq!(case.at(Role::Aggregated, RequestsPerSecond(rate), lengths), None, "{rate}");
    }
    assert_eq!(case.capacity(Role::Aggregated, lengths, objective(16.4, 500.0), None).rate(), None);
    assert_eq!(case.capacity(Role::Aggregated, lengths, objective(500.0, 8.2), None).rate(), None);
    assert_eq!(Parameters::new(0.0, 1e-5, 1e-8), None);
    assert_eq!(SloMultiplier::new(1.0), None);
}
