//! Does the page show each configuration, whatever its name and however little happened?

use std::collections::BTreeMap;

use super::{html, text};
use crate::planner::plan::{Proposer, Reason};
use crate::simulator::backtest::comparison::{Comparison, FitErrors, Objectives, Traffic};
use crate::simulator::backtest::hindsight::Hindsight;
use crate::simulator::backtest::outcome::{Counts, Decision, Outcome, Point, Scaling, Spread};
use crate::simulator::backtest::{PoolWhy, Why};
use crate::units::{Ratio, Replicas, RequestsPerSecond, Role, Seconds, Tokens};

pub(super) fn outcome(policy: &str, ticks: u32, roles: &[Role]) -> Outcome {
    let at = |tick: u32| Seconds(5.0 * f64::from(tick));
    let count = |tick: u32| Replicas(1 + tick / 10 % 3);
    let point = |tick| Point {
        at: at(tick),
        replicas: roles.iter().map(|&role| (role, Counts { recommended: count(tick), ready: count(tick) })).collect(),
        offered: RequestsPerSecond(2.0),
        completed: RequestsPerSecond(2.0),
        ttft: (tick % 5 != 3).then_some(Seconds(0.2)),
        itl: None,
        observed: (tick > 4).then_some(RequestsPerSecond(2.1)),
        reason: Some(Reason::None),
    };
    let decision = |tick| {
        let pool = PoolWhy { proposed: BTreeMap::from([(Proposer::EnvelopeQueue, count(tick))]), steps: Vec::new() };
        let reason = if tick == 0 { Reason::Baseline } else { Reason::None };
        Decision {
            at: at(tick),
            replicas: roles.iter().map(|&role| (role, count(tick))).collect(),
            why: Some(Why {
                reason,
                observed: None,
                warnings: Vec::new(),
                pools: roles.iter().map(|&role| (role, pool.clone())).collect(),
            }),
        }
    };
    Outcome {
        policy: policy.to_owned(),
        offered: 10,
        completed: 10,
        refused: 0,
        unfinished: 0,
        within: 10,
        attainment: Ratio(1.0),
        ttft: None,
        itl: None,
        gpu_hours: f64::from(ticks),
        hours: f64::from(ticks) / 720.0,
        roles: roles.iter().map(|&role| (role, Scaling::default())).collect(),
        violation: Seconds(0.0),
        longest_violation: Seconds(0.0),
        chosen_in_hindsight: false,
        tick: Seconds(5.0),
        decisions: (0..ticks).step_by(10).map(decision).collect(),
        series: (0..ticks).map(point).collect(),
    }
}

fn comparison(configurations: Vec<Outcome>, length: f64) -> Comparison {
    Comparison {
        trace: Traffic {
            name: "<trace>".to_owned(),
            scale: 1.0,
            seed: 0,
            requests: 10,
            length_seconds: Seconds(length),
            rate: RequestsPerSecond(2.0),
            mean_input: Tokens(1000.0),
            mean_output: Tokens(200.0),
        },
        startup_seconds: Seconds(60.0),
        warm_up_seconds: Seconds(0.0),
        metric_faults: Vec::new(),
        objectives: Objectives { ttft_seconds: Seconds(0.5), itl_seconds: Seconds(0.05) },
        fit_error: FitErrors { prefill_mean: Ratio(0.01), prefill_max: Ratio(0.02), decode_mean: Ratio(0.1), decode_max: Ratio(0.2) },
        out_of_reach: 1,
        configurations,
        baselines: Vec::new(),
        hindsight: None,
    }
}

const BOTH: [Role; 2] = [Role::Prefill, Role::Decode];

#[test]
fn the_page_has_a_section_a_policy_and_plots_for_each_role() {
    let mut all = comparison(vec![outcome("one", 100, &BOTH), outcome("two", 90, &BOTH)], 500.0);
    let page = html(&all);
    assert_eq!((page.matches("<section>").count(), page.matches("<figure>").count()), (2, 10));
    assert_eq!(page.matches("clairvoyant</span>").count(), 0);
    assert!(page.contains("★ ") && page.contains("<tr class=\"best\"><td>two</td>"), "the cheapest that meets the goal");
    assert!(!page.contains("class=\"shade\""));
    all.warm_up_seconds = Seconds(100.0);
    let known = |name| outcome(name, 80, &BOTH);
    all.hindsight = Some(Hindsight {
        goal: Ratio(0.99),
        constant: known("c"),
        clairvoyant: known("p"),
        causal: known("l"),
        lower_bound_gpu_hours: 1.0,
    });
    let page = html(&all);
    assert_eq!((page.matches("<section>").count(), page.matches("<figure>").count()), (5, 16));
    assert_eq!(page.matches("clairvoyant</span>").count(), 4);
    assert_eq!(page.matches("<rect class=\"shade\" y=").count(), 16, "nothing of the warm-up is judged");
    assert!(page.contains("<tr class=\"best\"><td>two</td>"), "what knows the future does not win");
    all.baselines = vec![Outcome { chosen_in_hindsight: true, ..outcome("tuned", 10, &BOTH) }];
    assert!(html(&all).contains("<tr class=\"best\"><td>two</td>"), "nor what was tuned on the trace");
}

#[test]
fn a_goal_that_is_lower_or_none_is_explained() {
    let mut all = comparison(vec![outcome("one", 100, &BOTH)], 500.0);
    all.baselines = vec![outcome("other", 100, &BOTH)];
    for shown in [html(&all), text(&all)] {
        assert!(shown.contains("no fleet within the limits can meet the objectives"));
    }
    let known = || outcome("p", 80, &BOTH);
    let goal = Ratio(0.99 * 0.5);
    all.hindsight = Some(Hindsight { goal, constant: known(), clairvoyant: known(), causal: known(), lower_bound_gpu_hours: 1.0 });
    for shown in [html(&all), text(&all)] {
        assert!(shown.contains("the goal is 49.50 %") && shown.contains("has 50.00 % within both"), "{shown}");
    }
}

#[test]
fn the_table_keeps_to_its_lines_whatever_a_policy_is_called() {
    let mut long = outcome("a\u{1b}[2Jb\nc", 100, &BOTH);
    long.ttft = Some(Spread { p50: Seconds(331.369), p95: Seconds(400.0), p99: Seconds(0.0123) });
    let shown = text(&comparison(vec![long], 500.0));
    let line = shown.lines().nth(1).unwrap();
    assert!(line.starts_with("a\\u{1b}[2Jb\\nc ") && line.contains("331 s") && line.contains("12.3 ms"), "{line}");
    assert!(shown.contains("\nreversals: ") && shown.contains("\nviolation: "));
}

#[test]
fn names_from_outside_stay_text() {
    let page = html(&comparison(vec![outcome("<script>alert(1)</script>", 20, &BOTH)], 100.0));
    assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("&lt;trace&gt;"));
    assert!(!page.contains("<script>alert") && !page.contains("<trace>"));
}

#[test]
fn reasons_are_marked_listed_and_explained() {
    let page = html(&comparison(vec![outcome("one", 100, &[Role::Aggregated])], 500.0));
    assert!(
        page.contains("0:00:50 aggregated 1 → 2\nnone: The value was computed from data that can be trusted.\nenvelope_queue 2</title>")
    );
    assert!(page.contains("<li><b>0:00:50</b> aggregated 1 → 2 <span class=\"reason calm\" title=\"The value was computed"));
    assert!(page.contains("<div>aggregated: envelope_queue 2</div></li>"));
    assert!(page.contains("<dt><code>baseline</code></dt>") && page.contains("The start and 9 changes of"));
}

#[test]
fn a_long_list_says_what_it_leaves_out() {
    let page = html(&comparison(vec![outcome("one", 17_280, &[Role::Aggregated])], 86_400.0));
    assert!(page.contains("The start and 1727 changes of") && page.contains("<p>1228 are left out"));
    assert!(page.len() < 1_000_000, "{}", page.len());
}

#[test]
fn little_or_nothing_is_shown_without_numbers_that_are_none() {
    let empty = Outcome { series: Vec::new(), decisions: Vec::new(), roles: BTreeMap::new(), ..outcome("empty", 0, &[]) };
    let single = outcome("single", 1, &[Role::Aggregated]);
    for (configurations, length) in [(vec![empty.clone()], 0.0), (vec![single.clone()], 0.0), (vec![empty, single], 5.0), (vec![], 5.0)] {
        let page = html(&comparison(configurations, length));
        assert!(!page.contains("NaN") && !page.contains(">inf") && !page.contains("inf "), "{page}");
        assert!(page.ends_with("</html>\n"));
    }
}
