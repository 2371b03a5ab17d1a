//! How does a person redo the last decision by hand? Each line of the arithmetic with its formula, its numbers and its result.
//!
//! Numbers are shown to six digits; the API has them unrounded.

use std::fmt::Write;

use super::html::{Escaped, known, millis, number, sums, table};
use crate::planner::model::envelope::{DecodeProfile, PrefillProfile, ProfileDocument};
use crate::planner::plan::{EnvelopeTrace, LatencyRatios, LoadInputs, LoadTrace, Observation, Plan, PoolPlan};
use crate::planner::policy::{CapacityModel, ModelPolicy, Preset};
use crate::units::{Ratio, Replicas, Seconds, Tokens};

/// HTML of one model's decision: what was seen, the arithmetic, then each pool's way from the wish to the number.
pub fn decision(plan: &Plan, policy: &ModelPolicy) -> String {
    let mut html = String::new();
    html.push_str(&window(plan));
    html.push_str(&super::forecast::html(plan));
    if let (Some(seen), Some(trace)) = (&plan.observation, &plan.envelope) {
        html.push_str(&arithmetic(plan, policy, seen, trace));
    }
    html.push_str(&super::queueing::html(plan));
    for pool in &plan.pools {
        html.push_str(&steps(pool));
    }
    if !plan.warnings.is_empty() {
        html.push_str("<ul class=\"warnings\">\n");
        for warning in &plan.warnings {
            let _ = writeln!(html, "<li><b>{}</b>: {}</li>", Escaped(warning), Escaped(warning.meaning()));
        }
        html.push_str("</ul>\n");
    }
    for note in super::notes::of(plan) {
        let _ = writeln!(html, "<p>{}.</p>", Escaped(note));
    }
    html
}

fn window(plan: &Plan) -> String {
    let Some(seen) = &plan.observation else { return "<p>No window yet.</p>\n".to_owned() };
    let [ttft, itl] = symbols(plan);
    let row = |symbol: &str, what: &str, value: String| vec![symbol.to_owned(), what.to_owned(), value];
    let rows = [
        row("H", "time that the window spans", format!("{} s", number(seen.elapsed_seconds.get()))),
        row("C", "requests completed", known(seen.requests.map(|requests| number(requests.get())))),
        row("I", "mean prompt length, tokens", known(seen.input_tokens.map(|tokens| number(tokens.get())))),
        row("O", "mean generated length, tokens", known(seen.output_tokens.map(|tokens| number(tokens.get())))),
        row(ttft, "TTFT", latency(seen.ttft_seconds)),
        row(itl, "ITL", latency(seen.itl_seconds)),
    ];
    format!("<h4>Window</h4>\n{}", table(&["", "observed", "value"], &rows))
}

/// What formulas call the latencies of the window. The queueing model's T is another one, and its formulas spell them out.
pub(super) fn symbols(plan: &Plan) -> [&'static str; 2] {
    if plan.preset == Preset::Wva { ["TTFT", "ITL"] } else { ["T", "G"] }
}

fn latency(value: Option<Seconds>) -> String {
    known(value.map(|latency| millis(latency.get())))
}

/// The observed quantities as text for the formulas: numbers where they are those that the decision used, else their symbols.
struct Seen {
    elapsed: String,
    requests: String,
    input: String,
    output: String,
    ttft: String,
    itl: String,
    /// Whether the window shown is that of the decision. A window that was skipped is newer than the last decision.
    current: bool,
}

impl Seen {
    fn new(seen: &Observation, trace: &EnvelopeTrace) -> Self {
        let current = is_window_of(seen, trace);
        let shown = |symbol: &str, value: Option<f64>| match value.filter(|_| current) {
            Some(value) => number(value),
            None => symbol.to_owned(),
        };
        Self {
            elapsed: shown("H", Some(seen.elapsed_seconds.get())),
            requests: shown("C", seen.requests.map(|requests| requests.get())),
            input: shown("I", seen.input_tokens.map(|tokens| tokens.get())),
            output: shown("O", seen.output_tokens.map(|tokens| tokens.get())),
            ttft: shown("T", seen.ttft_seconds.map(Seconds::get)),
            itl: shown("G", seen.itl_seconds.map(Seconds::get)),
            current,
        }
    }
}

/// Whether the trace's rates are those of the window.
fn is_window_of(seen: &Observation, trace: &EnvelopeTrace) -> bool {
    let (Some(requests), Some(input), Some(output)) = (seen.requests, seen.input_tokens, seen.output_tokens) else { return false };
    let rate = requests.get() / seen.elapsed_seconds.get();
    let agree = |left: f64, right: f64| (left - right).abs() <= 1e-9 * right.abs();
    agree(rate * input.get(), trace.prompt_tokens_per_second.get()) && agree(rate * output.get(), trace.generated_tokens_per_second.get())
}

fn arithmetic(plan: &Plan, policy: &ModelPolicy, observation: &Observation, trace: &EnvelopeTrace) -> String {
    let CapacityModel::Envelope(envelope) = &policy.capacity else { return String::new() };
    let seen = Seen::new(observation, trace);
    let profile = envelope.document();
    let mut rows = load_rows(&seen, profile, plan.latency_ratio, trace);
    rows.extend(prefill_rows(plan, trace));
    // The prompt length is the window's own; a curve can be read for it only while that window is shown.
    if let Some(input) = observation.input_tokens.filter(|_| seen.current) {
        show_curve(&mut rows, &profile.prefill, input.get());
    }
    rows.extend(decode_rows(plan, profile, trace));
    let estimates = &plan.estimated;
    let estimate = |at: &crate::planner::plan::Latencies| format!("TTFT {}, ITL {}", latency(at.ttft_seconds), latency(at.itl_seconds));
    rows.push(row("estimate at the current counts", ESTIMATE, estimate(&estimates.current)));
    rows.push(row("estimate at the recommended counts", "the same with the recommended counts: fewer wait for each prefill replica, and fewer requests are in flight on each decode replica", estimate(&estimates.recommended)));
    let note = if seen.current {
        ""
    } else {
        "<p>The window above is not the one that this decision was made from; symbols stand for that one.</p>\n"
    };
    format!("<h4>Arithmetic</h4>\n{note}{}", sums(&rows))
}

fn row(quantity: &str, formula: impl Into<String>, result: impl Into<String>) -> Vec<String> {
    vec![quantity.to_owned(), formula.into(), result.into()]
}

fn load_rows(seen: &Seen, profile: &ProfileDocument, ratio: LatencyRatios, trace: &EnvelopeTrace) -> Vec<Vec<String>> {
    let Seen { elapsed, requests, input, output, ttft, itl, .. } = seen;
    let decode = trace.decode_replicas;
    let (duration, context) = (number(trace.request_duration_seconds.get()), number(trace.mean_context_tokens.get()));
    let (prompt_latency, generation_latency) = (trace.prompt_latency_seconds.get(), trace.generation_latency_seconds.get());
    let shown = |ratio: Option<Ratio>| known(ratio.map(|ratio| number(ratio.get())));
    vec![
        row("D, duration of a request", format!("T + G × max(0, O − 1) = {ttft} + {itl} × max(0, {output} − 1)"), format!("{duration} s")),
        row("mean context", format!("I + O / 2 = {input} + {output} / 2"), format!("{context} tokens")),
        row(
            "in flight on a decode replica",
            format!("C × D / H / decode replicas = {requests} × {duration} / {elapsed} / {decode}"),
            number(trace.in_flight_per_decode_replica.get()),
        ),
        row(
            "KV occupancy",
            format!(
                "in flight × mean context / KV capacity, inside the profile's axis = {} × {context} / {}",
                number(trace.in_flight_per_decode_replica.get()),
                number(profile.decode.max_kv_tokens)
            ),
            number(trace.kv_fraction.get()),
        ),
        row(PROMPT_LATENCY, format!("the profile's prompt curve at I = {input}"), millis(prompt_latency)),
        row("prompt ratio", format!("T / L = {ttft} / {}", number(prompt_latency)), shown(ratio.prompt)),
        row(
            "profile's ITL",
            format!(
                "the profile's surface: {}",
                surface(&profile.decode, &profile.decode.itl_ms, trace.kv_fraction, trace.mean_context_tokens)
            ),
            millis(generation_latency),
        ),
        row("generation ratio", format!("G / profile's ITL = {itl} / {}", number(generation_latency)), shown(ratio.generation)),
        row(
            "prompt tokens a second",
            format!("C × I / H = {requests} × {input} / {elapsed}"),
            number(trace.prompt_tokens_per_second.get()),
        ),
        row(
            "generated tokens a second",
            format!("C × O / H = {requests} × {output} / {elapsed}"),
            number(trace.generated_tokens_per_second.get()),
        ),
    ]
}

fn prefill_rows(plan: &Plan, trace: &EnvelopeTrace) -> Vec<Vec<String>> {
    let ratio = known(plan.latency_ratio.prompt.map(|ratio| number(ratio.get())));
    let latency = number(trace.prompt_latency_seconds.get());
    let throughput = format!(
        "⌈prompt tokens a second × min(1, prompt ratio) / (per GPU × GPUs)⌉ = ⌈{} × min(1, {ratio}) / ({} × {})⌉",
        number(trace.prompt_tokens_per_second.get()),
        number(trace.prompt_tokens_per_second_per_gpu.get()),
        trace.prefill_gpus_per_replica
    );
    let queue = format!(
        "⌈L × (prompt ratio − 1) × max(1, prefill replicas) / (TTFT objective − L)⌉ = ⌈{latency} × ({ratio} − 1) × max(1, {}) / ({} − {latency})⌉; \
         0 where the ratio is at most 1 or the objective leaves less than L / 5",
        trace.prefill_replicas,
        number(plan.slo.ttft.get())
    );
    let (throughput_budget, queue_budget) = (trace.prefill_throughput_budget, trace.prefill_queue_budget);
    vec![
        row(
            PROMPT_THROUGHPUT,
            "the profile's prompt throughput at I",
            format!("{} tokens/s", number(trace.prompt_tokens_per_second_per_gpu.get())),
        ),
        row("prefill for throughput", throughput, throughput_budget.to_string()),
        row("prefill for the queue", queue, queue_budget.to_string()),
        row(
            "prefill wanted",
            format!("the larger of {throughput_budget} and {queue_budget}"),
            Replicas::max(throughput_budget, queue_budget).to_string(),
        ),
    ]
}

fn decode_rows(plan: &Plan, profile: &ProfileDocument, trace: &EnvelopeTrace) -> Vec<Vec<String>> {
    let ratio = known(plan.latency_ratio.generation.map(|ratio| number(ratio.get())));
    let budget = number(trace.effective_itl_budget_seconds.get() * 1000.0);
    let per_gpu = number(trace.capacity_tokens_per_second_per_gpu.get());
    let decode = &profile.decode;
    let (occupancy, context) = (trace.capacity_kv_fraction, trace.mean_context_tokens);
    vec![
        row(
            "ITL that the profile may show",
            format!("ITL objective / generation ratio = {} / {ratio}", number(plan.slo.itl.get())),
            format!("{budget} ms"),
        ),
        row(
            "best operating point",
            format!(
                "of the occupancies tried, the one with the highest throughput whose ITL is within {budget} ms at context {}; else the lowest",
                number(context.get())
            ),
            format!("occupancy {}", number(occupancy.get())),
        ),
        row("ITL there", surface(decode, &decode.itl_ms, occupancy, context), millis(trace.capacity_itl_seconds.get())),
        row("decode throughput there, a GPU", surface(decode, &decode.thpt_per_gpu, occupancy, context), format!("{per_gpu} tokens/s")),
        row(
            "decode wanted",
            format!(
                "⌈generated tokens a second / (per GPU × GPUs)⌉ = ⌈{} / ({per_gpu} × {})⌉",
                number(trace.generated_tokens_per_second.get()),
                trace.decode_gpus_per_replica
            ),
            trace.decode_budget.to_string(),
        ),
    ]
}

/// How the latencies at some count are expected; at the current count they are the observed ones, as far as rounding goes.
const ESTIMATE: &str = "TTFT: L × min(1, prompt ratio) + L × max(0, prompt ratio − 1) × prefill replicas now / then; \
     ITL: generation ratio × the profile's ITL at the occupancy that the decode replicas would then have";

/// Rows whose formula becomes the reading of the prompt curve where the prompt length is known.
const PROMPT_LATENCY: &str = "L, profile's TTFT";
const PROMPT_THROUGHPUT: &str = "prefill throughput, a GPU";

fn show_curve(rows: &mut [Vec<String>], curve: &PrefillProfile, input: f64) {
    let at = Segment::on(&curve.isl, input);
    for row in rows {
        let reading = match row[0].as_str() {
            PROMPT_LATENCY => at.reading(&curve.ttft_ms),
            PROMPT_THROUGHPUT => at.reading(&curve.thpt_per_gpu),
            _ => continue,
        };
        row[1] =
            format!("{} = {reading}, where I lies {} of the way from {} to {}", row[1], number(at.share), number(at.from), number(at.to));
    }
}

/// How the surface is read: along the occupancy in both neighbouring rows, then between the rows.
fn surface(profile: &DecodeProfile, cells: &[Vec<f64>], occupancy: Ratio, context: Tokens) -> String {
    let row = Segment::on(&profile.context_length, context.get());
    let column = Segment::on(&profile.kv_usage, occupancy.get());
    let reading = |at: usize| cells.get(at).map_or_else(String::new, |cells| column.reading(cells));
    format!(
        "(1 − {y}) × ({}) + {y} × ({}), where context {} lies y = {y} of the way from {} to {}, and occupancy {} x = {} from {} to {}",
        reading(row.left),
        reading(row.right),
        number(context.get()),
        number(row.from),
        number(row.to),
        number(occupancy.get()),
        number(column.share),
        number(column.from),
        number(column.to),
        y = number(row.share),
    )
}

/// The two measured points between which a value lies. Outside the axis it is the nearest edge, as in the envelope.
struct Segment {
    left: usize,
    right: usize,
    from: f64,
    to: f64,
    /// Of the way from the left point to the right one.
    share: f64,
}

impl Segment {
    fn on(axis: &[f64], value: f64) -> Self {
        let last = axis.len().saturating_sub(1);
        let right = axis.partition_point(|&point| point < value).clamp(last.min(1), last);
        let left = right.saturating_sub(1);
        let point = |at: usize| axis.get(at).copied().unwrap_or(0.0);
        let (from, to) = (point(left), point(right));
        let share = if to > from { ((value - from) / (to - from)).clamp(0.0, 1.0) } else { 0.0 };
        Self { left, right, from, to, share }
    }

    fn reading(&self, series: &[f64]) -> String {
        let value = |at: usize| known(series.get(at).map(|&value| number(value)));
        let share = number(self.share);
        format!("(1 − {share}) × {} + {share} × {}", value(self.left), value(self.right))
    }
}

/// How full the replicas are, and what follows from it, in one sentence.
pub(super) fn fullness(load: &LoadTrace) -> String {
    let LoadTrace { fullest, described, known, .. } = load;
    let verdict = if load.projected >= load.up {
        "too full"
    } else if load.all_below {
        "all are nearly empty"
    } else {
        "neither too full nor all nearly empty"
    };
    format!(
        "The fullest of {described} of {known} targets is {fullest} with load {}{}, {}{} with the recommended replicas; up from {}, down below {}: {verdict}.",
        number(load.load),
        load.inputs.as_ref().map(|inputs| format!(" = {}", formula(inputs))).unwrap_or_default(),
        number(load.projected),
        load.current.zip(load.recommended).map(|(current, count)| format!(" = load * {current} / {count}")).unwrap_or_default(),
        number(load.up),
        number(load.down),
    )
}

/// A load's formula, and then its numbers.
fn formula(inputs: &LoadInputs) -> String {
    let tokens = |tokens: Option<Tokens>| tokens.map(Tokens::get);
    let numbers = [
        ("kv_usage", inputs.kv_usage),
        ("waiting", inputs.waiting),
        ("running", inputs.running),
        ("queued_prompt_tokens", inputs.queued_prompt_tokens),
        ("input_tokens", tokens(inputs.input_tokens)),
        ("output_tokens", tokens(inputs.output_tokens)),
        ("kv_capacity_tokens", tokens(inputs.kv_capacity_tokens)),
        ("context_length", tokens(inputs.context_length)),
        ("replicas that the counts are divided by", inputs.replicas.map(Replicas::as_f64)),
    ];
    let told = numbers.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", number(value?))));
    format!("{} ({})", inputs.rule.meaning(), told.collect::<Vec<_>>().join(", "))
}

/// What a decision was missing for a pool, a sentence each.
pub(super) fn lacks(pool: &PoolPlan) -> Vec<String> {
    pool.missing.iter().map(|missing| format!("Missing {}", missing.sentence())).collect()
}

fn steps(pool: &PoolPlan) -> String {
    let mut html = format!("<h4>Pool {}</h4>\n", Escaped(&pool.pool));
    if let Some(load) = &pool.load {
        let _ = writeln!(html, "<p>{}</p>", Escaped(fullness(load)));
    }
    for sentence in super::sla::sentences(pool).into_iter().chain(super::auto::sentences(pool)) {
        let _ = writeln!(html, "<p>{}</p>", Escaped(sentence));
    }
    for sentence in lacks(pool) {
        let _ = writeln!(html, "<p class=\"held\">{}</p>", Escaped(sentence));
    }
    let proposals = pool.proposed.iter().map(|(proposer, replicas)| {
        vec![proposer.to_string(), String::new(), replicas.to_string(), "proposed".to_owned(), proposer.meaning().to_owned()]
    });
    let stages = pool.steps.iter().map(|step| {
        let change = [step.before.to_string(), step.after.to_string()];
        let [before, after] = change;
        vec![step.stage.to_string(), before, after, step.reason.to_string(), step.reason.meaning().to_owned()]
    });
    let mut rows: Vec<_> = proposals.collect();
    rows.push(vec!["wish".to_owned(), String::new(), known(pool.unbounded_replicas), "reconciled".to_owned(), String::new()]);
    rows.extend(stages);
    rows.push(vec!["plan".to_owned(), String::new(), known(pool.planned_replicas), "after limits".to_owned(), String::new()]);
    html.push_str(&table(&["stage", "before", "after", "reason", "meaning"], &rows));
    html
}
