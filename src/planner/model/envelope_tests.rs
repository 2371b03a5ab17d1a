//! Does the envelope read its profile as written, and name each cell that is wrong?

use super::*;
use crate::planner::tests::world::seed_profile;

fn seed() -> Envelope {
    Envelope::new(seed_profile()).unwrap()
}

fn close(ours: f64, expected: f64) {
    assert!((ours - expected).abs() <= 1e-12 * expected.abs().max(1.0), "{ours}, expected {expected}");
}

#[test]
fn the_prompt_curve_is_exact_at_knots_linear_between_and_flat_outside() {
    for (input, latency_ms, per_gpu) in [
        (512.0, 60.0, 8500.0),
        (2048.0, 215.0, 9500.0),
        (4096.0, 430.0, 9500.0),
        // 110 + 105 * 512/1024 and 9300 + 200 * 512/1024.
        (1536.0, 162.5, 9400.0),
        // 60 + 50 * 128/512 and 8500 + 800 * 128/512.
        (640.0, 72.5, 8700.0),
        (0.0, 60.0, 8500.0),
        (1e9, 430.0, 9500.0),
    ] {
        let point = seed().prompt(Tokens(input));
        close(point.latency.get(), latency_ms / 1000.0);
        close(point.per_gpu.get(), per_gpu);
    }
}

#[test]
fn the_generation_surface_is_bilinear_and_takes_the_nearest_edge() {
    for (kv, context, latency_ms, per_gpu, read_at) in [
        (0.1, 1024.0, 11.0, 900.0, 0.1),
        (0.9, 16_384.0, 60.0, 1500.0, 0.9),
        // 11 + 2 * 1152/3072 and 900 - 150 * 1152/3072.
        (0.1, 2176.0, 11.75, 843.75, 0.1),
        // The middle of four cells: (13 + 16 + 16 + 20)/4 and (2300 + 3100 + 1900 + 2500)/4.
        (0.4, 2560.0, 16.25, 2450.0, 0.4),
        (0.0, 0.0, 11.0, 900.0, 0.1),
        (7.0, 1e9, 60.0, 1500.0, 0.9),
    ] {
        let point = seed().generation(Ratio(kv), Tokens(context));
        close(point.latency.get(), latency_ms / 1000.0);
        close(point.per_gpu.get(), per_gpu);
        close(point.kv_fraction.get(), read_at);
    }
}

#[test]
fn one_point_axes_are_constants() {
    let mut profile = seed_profile();
    profile.prefill = PrefillProfile { isl: vec![100.0], ttft_ms: vec![50.0], thpt_per_gpu: vec![1000.0] };
    profile.decode.kv_usage = vec![0.5];
    profile.decode.context_length = vec![100.0];
    profile.decode.itl_ms = vec![vec![20.0]];
    profile.decode.thpt_per_gpu = vec![vec![300.0]];
    let envelope = Envelope::new(profile).unwrap();
    for at in [1.0, 100.0, 1e6] {
        assert_eq!(envelope.prompt(Tokens(at)), PromptPoint { latency: Seconds(0.05), per_gpu: TokensPerSecond(1000.0) });
        assert_eq!(envelope.generation(Ratio(at), Tokens(at)).latency, Seconds(0.02));
    }
    assert!(envelope.best_within(Seconds(0.02), Tokens(1.0)).fits);
    assert!(!envelope.best_within(Seconds(0.019), Tokens(1.0)).fits);
}

#[test]
fn occupancy_is_in_flight_times_context_over_capacity_inside_the_axis() {
    // 60 * 2184.53 / 262144 is one half.
    close(seed().kv_fraction(Requests(60.0), Tokens(262_144.0 / 120.0)).get(), 0.5);
    close(seed().kv_fraction(Requests(0.0), Tokens(1000.0)).get(), 0.1);
    close(seed().kv_fraction(Requests(1e9), Tokens(1000.0)).get(), 0.9);
}

#[test]
fn the_best_point_is_the_fastest_sample_that_fits_the_budget() {
    // 48.5 ms at context 2176: all fit; the peak lies at the sample next to KV 0.7, 0.1 + 74 * 0.8/99.
    let best = seed().best_within(Seconds(0.0485), Tokens(2176.0));
    close(best.point.kv_fraction.get(), 0.1 + 74.0 * 0.8 / 99.0);
    assert!((best.point.per_gpu.get() - 3035.86).abs() < 0.01 && best.fits);
    // 13 ms at context 1024 is met exactly at KV 0.3, between samples 24 and 25; 0.1 + 24 * 0.8/99 is the last that fits.
    let best = seed().best_within(Seconds(0.013), Tokens(1024.0));
    close(best.point.kv_fraction.get(), 0.1 + 24.0 * 0.8 / 99.0);
    let floor = seed().best_within(Seconds(0.005), Tokens(1024.0));
    assert_eq!((floor.fits, floor.point.kv_fraction, floor.point.per_gpu), (false, Ratio(0.1), TokensPerSecond(900.0)));
}

#[test]
fn a_gap_in_the_points_that_fit_is_searched_on_both_sides_and_a_tie_goes_to_the_lowest() {
    let mut profile = seed_profile();
    profile.decode.kv_usage = vec![0.1, 0.5, 0.9];
    profile.decode.context_length = vec![1024.0];
    profile.decode.itl_ms = vec![vec![10.0, 40.0, 10.0]];
    profile.decode.thpt_per_gpu = vec![vec![1000.0, 1000.0, 2000.0]];
    let best = Envelope::new(profile.clone()).unwrap().best_within(Seconds(0.011), Tokens(1024.0));
    assert_eq!(best.point.kv_fraction, Ratio(0.9));
    profile.decode.thpt_per_gpu = vec![vec![1000.0; 3]];
    assert_eq!(Envelope::new(profile).unwrap().best_within(Seconds(1.0), Tokens(1024.0)).point.kv_fraction, Ratio(0.1));
}

fn problems(spoil: impl Fn(&mut ProfileDocument)) -> Vec<String> {
    let mut profile = seed_profile();
    spoil(&mut profile);
    Envelope::new(profile).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn every_problem_names_its_cell_and_what_was_expected() {
    let finite = "expected a finite number above zero, got";
    for (cell, spoil) in [
        ("prefill.ttft_ms[2]: expected a finite number above zero, got 0", (|p| p.prefill.ttft_ms[2] = 0.0) as fn(&mut ProfileDocument)),
        ("prefill.thpt_per_gpu[0]: expected a finite number above zero, got -1", |p| p.prefill.thpt_per_gpu[0] = -1.0),
        ("decode.itl_ms[1][3]: expected a finite number above zero, got NaN", |p| p.decode.itl_ms[1][3] = f64::NAN),
        ("decode.thpt_per_gpu[2][4]: expected a finite number above zero, got inf", |p| p.decode.thpt_per_gpu[2][4] = f64::INFINITY),
        ("decode.max_kv_tokens: expected a finite number above zero, got 0", |p| p.decode.max_kv_tokens = 0.0),
        ("prefill.ttft_ms: expected one value for each prefill.isl (4), got 3", |p| p.prefill.ttft_ms.truncate(3)),
        ("prefill.isl[1]: expected a value above the one before it (512), got 512", |p| p.prefill.isl[1] = 512.0),
        ("decode.context_length[2]: expected a value above the one before it (4096), got 5", |p| p.decode.context_length[2] = 5.0),
        ("decode.kv_usage[4]: expected a share in (0, 1], got 1.5", |p| p.decode.kv_usage[4] = 1.5),
        ("decode.itl_ms: expected one row for each decode.context_length (3), got 2", |p| p.decode.itl_ms.truncate(2)),
        ("decode.thpt_per_gpu[0]: expected one value for each decode.kv_usage (5), got 4", |p| p.decode.thpt_per_gpu[0].truncate(4)),
        ("prefill_engine_num_gpu: expected at least 1", |p| p.prefill_engine_num_gpu = 0),
        ("decode_engine_num_gpu: expected at least 1", |p| p.decode_engine_num_gpu = 0),
    ] {
        assert_eq!(problems(spoil), [cell]);
    }
    assert!(problems(|p| p.prefill.isl.clear()).contains(&"prefill.isl: expected at least one value".to_owned()));
    assert!(problems(|p| p.decode.kv_usage[0] = 0.0)[0].starts_with(&format!("decode.kv_usage[0]: {finite}")));
}

#[test]
fn all_problems_are_reported_at_once() {
    let found = problems(|p| {
        p.prefill.ttft_ms[0] = 0.0;
        p.decode.itl_ms[0][0] = -1.0;
        p.decode_engine_num_gpu = 0;
    });
    assert_eq!(found.len(), 3);
    let text = serde_json::to_string(&ProfileDocument { prefill_engine_num_gpu: 0, ..seed_profile() }).unwrap();
    assert!(serde_json::from_str::<Envelope>(&text).unwrap_err().to_string().contains("prefill_engine_num_gpu"));
}

#[test]
fn the_document_round_trips() {
    let text = serde_json::to_string(&seed()).unwrap();
    assert_eq!(serde_json::from_str::<Envelope>(&text).unwrap(), seed());
}
