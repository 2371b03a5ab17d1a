//! How does a person redo the queueing model's decision by hand? The objectives, what one replica can do within them, and how many follow.
//!
//! Times are in milliseconds and rates in requests a second; the API has seconds, unrounded. T is the duration of an iteration here.

mod counts;

use std::fmt::Write;

use counts::counts;

use super::html::{Escaped, known, millis, number, sums};
use crate::planner::learn::{LARGEST_CONDITION, LEAST_UPDATES, Update};
use crate::planner::model::queueing::{Objective, Parameters};
use crate::planner::objectives::{HEADROOM, HIGHEST_ITL, HIGHEST_TTFT};
use crate::planner::plan::{HoldKind, Plan, PoolPlan, QueueingTrace, SloSource, Stage, StepReason};
use crate::planner::variants::{CONVERGED, ROOM};
use crate::units::{RequestsPerSecond, Role, Seconds};

/// One quantity: how it is computed, with numbers, and what comes of it.
struct Line {
    quantity: String,
    formula: String,
    result: String,
}

struct Section {
    title: String,
    lines: Vec<Line>,
}

/// The arithmetic as tables; empty where no queueing model decided.
pub(super) fn html(plan: &Plan) -> String {
    let mut html = String::new();
    for section in sections(plan) {
        let row = |line: Line| vec![line.quantity, line.formula, line.result];
        let rows: Vec<_> = section.lines.into_iter().map(row).collect();
        let _ = write!(html, "<h4>{}</h4>\n{}", Escaped(section.title), sums(&rows));
    }
    html
}

/// The same in lines for a terminal, in characters that every terminal has.
pub(super) fn text(plan: &Plan) -> String {
    let mut text = String::new();
    for section in sections(plan) {
        let _ = writeln!(text, "  {}:", section.title);
        for Line { quantity, formula, result } in section.lines {
            let _ = writeln!(text, "    {quantity:<29} {formula}{}{result}", if formula.is_empty() { "" } else { " = " });
        }
    }
    text.replace('×', "*").replace('−', "-").replace('–', "unknown").replace('√', "sqrt").replace('⌈', "ceil(").replace('⌉', ")")
}

fn line(quantity: impl Into<String>, formula: impl Into<String>, result: impl Into<String>) -> Line {
    Line { quantity: quantity.into(), formula: formula.into(), result: result.into() }
}

/// A result with the reason for it.
fn told(quantity: impl Into<String>, result: impl std::fmt::Display, why: impl std::fmt::Display) -> Line {
    line(quantity, "", format!("{result}: {why}"))
}

fn sections(plan: &Plan) -> Vec<Section> {
    let known: Vec<One<'_>> = plan.pools.iter().filter_map(One::new).collect();
    if known.is_empty() {
        return Vec::new();
    }
    let window = plan.observation.as_ref().map(|seen| seen.elapsed_seconds).unwrap_or_default();
    // A variant that shows nothing while others do keeps its count and carries nothing.
    let is_aside = |pool: &PoolPlan| !plan.held && pool.reason.hold_kind() == Some(HoldKind::Blind);
    let mut sections = vec![Section { title: "Objectives".to_owned(), lines: objectives(plan, &known) }];
    sections.extend(known.iter().map(|one| Section { title: format!("One replica of pool {}", one.pool.pool), lines: one.lines() }));
    for role in Role::ALL {
        let members: Vec<&One<'_>> = known.iter().filter(|one| one.pool.role == role && !is_aside(one.pool)).collect();
        if let Some(first) = members.first() {
            let mut lines = counts(first.trace, window, &members);
            for pool in plan.pools.iter().filter(|pool| pool.role == role) {
                if is_aside(pool) {
                    lines.push(line(
                        pool.pool.as_str(),
                        "",
                        format!("held, {}: it keeps its count and carries nothing in the sums", pool.reason),
                    ));
                } else if pool.queueing.is_none() {
                    let why =
                        pool.untaught.map_or_else(String::new, |reason| format!("; the last window taught nothing: {}", reason.meaning()));
                    lines.push(line(pool.pool.as_str(), "", format!("nothing is known of its replicas: it keeps its count{why}")));
                }
            }
            sections.push(Section { title: format!("Replicas of role {role}"), lines });
        }
    }
    sections
}

/// Where the objectives come from.
fn objectives(plan: &Plan, known: &[One<'_>]) -> Vec<Line> {
    let objective = Objective { ttft: Seconds(plan.slo.ttft.get()), itl: Seconds(plan.slo.itl.get()) };
    let phases = [
        ("TTFT", Role::Decode, objective.ttft, HIGHEST_TTFT, (|one| (one.prompt_work(), one.at_multiple().ttft)) as OfPool),
        ("ITL", Role::Prefill, objective.itl, HIGHEST_ITL, |one| (one.token_work(), one.at_multiple().itl)),
    ];
    let mut lines = vec![told("source", plan.slo_source, plan.slo_source.meaning())];
    for (name, without, objective, highest, of_pool) in phases {
        let how = match plan.slo_source {
            SloSource::Explicit => String::new(),
            SloSource::Observed if objective >= highest => format!("at most {}", millis(highest.get())),
            SloSource::Observed => {
                format!("{HEADROOM} × the lowest mean of a window so far = {HEADROOM} × {}", number(objective.get() * 1000.0 / HEADROOM))
            }
            SloSource::Learned => {
                for one in known.iter().filter(|one| one.pool.role != without) {
                    let (work, wanted) = of_pool(one);
                    let (k, alpha) = (number(one.trace.multiplier.get()), one.alpha());
                    let [symbols, numbers] = work.iterations("k × alpha", &format!("{k} × {alpha}"));
                    let formula = format!("{symbols} + {} = {numbers} + {}", work.symbols, work.numbers);
                    lines.push(line(format!("{name} wanted of {}", one.pool.pool), formula, millis(wanted.get())));
                }
                "the largest of the pools that have converged".to_owned()
            }
        };
        lines.push(line(format!("{name} objective"), how, millis(objective.get())));
    }
    lines
}

type OfPool = fn(&One<'_>) -> (Expression, Seconds);

/// A formula in symbols and in numbers, times in milliseconds.
struct Expression {
    symbols: &'static str,
    numbers: String,
    /// Milliseconds.
    value: f64,
    /// How many T come before it in TTFT, where the server's prompts wait for more than the one of the seed's form.
    wait: Option<f64>,
}

impl Expression {
    /// T with its factor, in symbols and in numbers.
    fn iterations(&self, symbols: &str, numbers: &str) -> [String; 2] {
        match self.wait {
            Some(wait) => [format!("wait × {symbols}"), format!("{} × {numbers}", number(wait))],
            None => [symbols.to_owned(), numbers.to_owned()],
        }
    }
}

/// A pool whose replicas the model knows.
struct One<'a> {
    pool: &'a PoolPlan,
    trace: &'a QueueingTrace,
}

impl<'a> One<'a> {
    fn new(pool: &'a PoolPlan) -> Option<Self> {
        Some(Self { pool, trace: pool.queueing.as_ref()? })
    }

    fn parameters(&self) -> Parameters {
        self.trace.parameters
    }

    fn alpha(&self) -> String {
        number(self.parameters().alpha.get() * 1000.0)
    }

    fn beta(&self) -> String {
        number(self.parameters().beta.get() * 1000.0)
    }

    fn gamma(&self) -> String {
        number(self.parameters().gamma.get() * 1000.0)
    }

    fn input(&self) -> String {
        number(self.trace.lengths.input.get())
    }

    fn output(&self) -> String {
        number(self.trace.lengths.output.get())
    }

    fn at_multiple(&self) -> Objective {
        self.parameters().at_multiple(self.trace.multiplier, self.trace.lengths)
    }

    /// What TTFT has beyond T.
    fn prompt_work(&self) -> Expression {
        let wait = self.parameters().wait.get();
        let beyond = self.at_multiple().ttft.get() - wait * self.trace.multiplier.get() * self.parameters().alpha.get();
        let numbers = format!("({} + {}) × {}", self.beta(), self.gamma(), self.input());
        let value = beyond * 1000.0;
        Expression { symbols: "(beta + gamma) × i", numbers, value, wait: Some(wait).filter(|wait| *wait != 1.0) }
    }

    /// What ITL has beyond T.
    fn token_work(&self) -> Expression {
        let beyond = self.at_multiple().itl.get() - self.trace.multiplier.get() * self.parameters().alpha.get();
        let numbers = format!("({} + {} × ({} + ({} + 1) / 2))", self.beta(), self.gamma(), self.input(), self.output());
        Expression { symbols: "(beta + gamma × (i + (o + 1) / 2))", numbers, value: beyond * 1000.0, wait: None }
    }

    fn work(&self) -> Expression {
        let value = self.parameters().work(self.pool.role, self.trace.lengths).get() * 1000.0;
        let (beta, gamma, i, o) = (self.beta(), self.gamma(), self.input(), self.output());
        match self.pool.role {
            Role::Prefill => Expression { value, ..self.prompt_work() },
            Role::Decode => Expression {
                symbols: "o × (beta + gamma × (i + (o + 1) / 2))",
                numbers: format!("{o} × {}", self.token_work().numbers),
                value,
                wait: None,
            },
            Role::Aggregated => Expression {
                symbols: "beta × (i + o) + gamma × (o + 1) × (i + o / 2)",
                numbers: format!("{beta} × ({i} + {o}) + {gamma} × ({o} + 1) × ({i} + {o} / 2)"),
                value,
                wait: None,
            },
        }
    }

    fn lines(&self) -> Vec<Line> {
        let work = self.work();
        let mut lines = self.learned();
        lines.push(line("i, o", "", format!("{} prompt and {} generated tokens", self.input(), self.output())));
        lines.push(line("W, work of a request", format!("{} = {}", work.symbols, work.numbers), format!("{} ms", number(work.value))));
        lines.extend(self.now(&work));
        lines.extend(self.capacity(&work));
        lines.extend(self.interval());
        lines
    }

    /// What the parameters rest on.
    fn learned(&self) -> Vec<Line> {
        let trace = self.trace;
        let apart = format!(
            "learned from {} distinct loads, {} windows accepted since the server last changed; condition number {}, up to {LARGEST_CONDITION} the \
             loads tell the three apart",
            trace.points,
            trace.accepted,
            known(trace.condition.map(number))
        );
        let fate = match (trace.update, self.pool.untaught) {
            (Some(Update::Accepted), _) => "accepted: it fits what was believed, and refined it".to_owned(),
            (Some(Update::Rejected), _) => "rejected: it does not fit what is believed".to_owned(),
            (Some(Update::Reset), _) => "one contradiction too many: the parameters were estimated anew".to_owned(),
            (None, Some(reason)) => format!("it taught nothing, {reason}: {}", reason.meaning()),
            (None, None) => "it taught nothing: nothing was decided on it".to_owned(),
        };
        let distance = match trace.update {
            Some(_) => format!("; normalized innovation squared {}", known(trace.nis.map(number))),
            None => String::new(),
        };
        let parameters = format!("{} ms an iteration, {} ms a token computed, {} ms a token read", self.alpha(), self.beta(), self.gamma());
        let mut lines = vec![told("alpha, beta, gamma", parameters, apart)];
        if let Some(wait) = self.prompt_work().wait {
            let why = "as far as windows show: iterations that differ make prompts wait for the long ones";
            lines.push(told("wait", format!("{} iterations from the arrival of a prompt to its first token", number(wait)), why));
        }
        lines.push(line("last window", "", format!("{fate}{distance}")));
        lines
    }

    /// The closed form at the load of now.
    fn now(&self, work: &Expression) -> Vec<Line> {
        let Some(rho) = self.trace.utilization else { return vec![line("rho", "", "nobody served")] };
        let lambda = RequestsPerSecond(rho.get() * 1000.0 / work.value);
        let Some(state) = self.parameters().at(self.pool.role, lambda, self.trace.lengths) else { return Vec::new() };
        let iteration = number(state.iteration.get() * 1000.0);
        let rate = number(lambda.get());
        let mut lines = vec![
            line("lambda of one replica now", "", format!("{rate} requests/s")),
            line("rho", format!("lambda × W / 1000 = {rate} × {} / 1000", number(work.value)), number(rho.get())),
            line("T now", format!("alpha / (1 − rho) = {} / (1 − {})", self.alpha(), number(rho.get())), format!("{iteration} ms")),
        ];
        let mut latency = |name: &str, beyond: Expression, value: Seconds| {
            let [symbols, numbers] = beyond.iterations("T", &iteration);
            let formula = format!("{symbols} + {} = {numbers} + {}", beyond.symbols, beyond.numbers);
            lines.push(line(format!("{name} by the model now"), formula, millis(value.get())));
        };
        if self.pool.role != Role::Decode {
            latency("TTFT", self.prompt_work(), state.ttft);
        }
        if self.pool.role != Role::Prefill {
            latency("ITL", self.token_work(), state.itl);
        }
        lines
    }

    /// lambda*: the objectives backwards.
    fn capacity(&self, work: &Expression) -> Vec<Line> {
        let trace = self.trace;
        let role = self.pool.role;
        let found = self.parameters().capacity(role, trace.lengths, trace.objective, Some(trace.max_batch));
        let (alpha, w) = (self.alpha(), number(work.value));
        let mut lines = Vec::new();
        let mut phase = |name: &str, objective: Seconds, beyond: Expression, rate: Option<RequestsPerSecond>| {
            let objective = objective.get() * 1000.0;
            let left = number((objective - beyond.value) / beyond.wait.unwrap_or(1.0));
            let (symbols, numbers) =
                (format!("{name} objective − {}", beyond.symbols), format!("{} − {}", number(objective), beyond.numbers));
            let formula = match beyond.wait {
                Some(wait) => format!("({symbols}) / wait = ({numbers}) / {}", number(wait)),
                None => format!("{symbols} = {numbers}"),
            };
            lines.push(line(format!("T that {name} leaves"), formula, format!("{left} ms")));
            lines.push(match rate {
                Some(rate) => line(
                    format!("lambda at the {name} objective"),
                    format!("(1 − alpha / T) / W × 1000 = (1 − {alpha} / {left}) / {w} × 1000"),
                    format!("{} requests/s", number(rate.get())),
                ),
                None => line(format!("lambda at the {name} objective"), "", format!("none: alpha alone is {alpha} ms")),
            });
        };
        if role != Role::Decode {
            phase("TTFT", trace.objective.ttft, self.prompt_work(), found.ttft);
        }
        if role != Role::Prefill {
            phase("ITL", trace.objective.itl, self.token_work(), found.itl);
        }
        let o = self.output();
        let (symbol, iterations) = match role {
            Role::Aggregated => ("(o + 1)", format!("({o} + 1)")),
            Role::Prefill => ("1", "1".to_owned()),
            Role::Decode => ("o", o),
        };
        let batch = number(trace.max_batch.get());
        lines.push(line(
            "lambda of a full batch",
            format!("batch / ({symbol} × alpha + batch × W) × 1000 = {batch} / ({iterations} × {alpha} + {batch} × {w}) × 1000"),
            format!("{} requests/s", number(found.batch.get())),
        ));
        lines.push(match found.rate() {
            Some(rate) => line("lambda*", "the least of these", format!("{} requests/s", number(rate.get()))),
            None => line("lambda*", "", "none: no rate meets the objectives"),
        });
        lines.extend(self.sized_with(found.rate(), &w));
        lines
    }

    /// Where the count is not computed with lambda* itself.
    fn sized_with(&self, least: Option<RequestsPerSecond>, w: &str) -> Option<Line> {
        let trace = self.trace;
        let rate = format!("{} requests/s", number(trace.sized_with.get()));
        match least {
            None => {
                let k = number(trace.multiplier.get());
                Some(line("lambda at rho = 1 − 1 / k", format!("(1 − 1 / k) / W × 1000 = (1 − 1 / {k}) / {w} × 1000"), rate))
            }
            Some(least) if trace.sized_with.get() > least.get() * (1.0 + 1e-9) => {
                if trace.update == Some(Update::Reset) {
                    let why = "the parameters were estimated anew in this window: what was believed before counts until the next one confirms them";
                    return Some(told("sized with", rate, why));
                }
                let why = format!(
                    "taken for lambda*: it is served within the objectives now, so it is possible; {ROOM} times what is served where they are not \
                     nearly used up"
                );
                Some(told("possible all the same", rate, why))
            }
            Some(_) => None,
        }
    }

    fn interval(&self) -> Vec<Line> {
        let trace = self.trace;
        let Some(capacity) = trace.capacity else { return Vec::new() };
        let share = CONVERGED * 100.0;
        let verdict = if trace.converged {
            format!("converged: at least {LEAST_UPDATES} windows accepted, and both ends within {share} % of it")
        } else {
            format!("not converged: that takes {LEAST_UPDATES} accepted windows and both ends within {share} % of it")
        };
        let ends = format!("{} to {} requests/s", number(capacity.lower.get()), number(capacity.upper.get()));
        vec![line("lambda* that the loads allow", "", ends), line("certainty", "", verdict)]
    }

    /// What one replica is counted for.
    fn each(&self) -> f64 {
        self.trace.sized_with.get()
    }

    fn lower(&self) -> f64 {
        self.trace.capacity.map_or(0.0, |capacity| capacity.lower.get())
    }

    /// What a request a second costs.
    fn dearness(&self) -> String {
        let (cost, rate) = (self.trace.cost, self.each());
        format!("cost / lambda* = {} / {} = {}", number(cost), number(rate), number(cost / rate))
    }

    fn standing(&self) -> u32 {
        self.trace.standing.0
    }

    /// Of those that were recommended before, the ones that are there or still believed to come.
    fn present(&self) -> u32 {
        self.standing().saturating_sub(self.trace.absent.0)
    }

    /// The same of those that are wished for: what is not coming is given back first.
    fn present_then(&self) -> u32 {
        let given_back = self.standing().saturating_sub(self.wish());
        self.wish().saturating_sub(self.trace.absent.0.saturating_sub(given_back))
    }

    /// Without what only an uncertain estimate would give back.
    fn wish(&self) -> u32 {
        let kept = self.pool.steps.iter().find(|step| step.stage == Stage::HoldDown && step.reason == StepReason::NotConverged);
        kept.map(|step| step.after).or(self.pool.unbounded_replicas).map_or(self.standing(), |wish| wish.0)
    }

    fn by_estimate_alone(&self) -> Option<u32> {
        self.pool.unbounded_replicas.map(|wish| wish.0).filter(|wish| *wish < self.wish())
    }
}
