//! How cheap could any plan be? Work over capacity, as if replicas came in fractions and at once.
//!
//! What a request must have computed is priced as the simulator prices it. Iterations are shared, and how many there must be is bounded from
//! below in several ways; the strictest way counts:
//!
//! | way | an iteration holds at most |
//! |---|---|
//! | batch | `max_requests` requests |
//! | memory | `kv_tokens` tokens of the requests in it |
//! | prompt | `max_batched_tokens` tokens of prompts |
//! | spacing | as much work as fits into the objective for ITL |
//!
//! For the last: the longer an iteration, the less time a unit of its work takes, but ever more slowly so. Requests that meet the objective
//! have iterations of at most that length in the mean, and a mix of long and short ones takes more time than equal ones. (Strictly so if
//! long and short contexts are spread evenly over iterations.) The dearest requests, as many as may miss, are left out, since nobody has to
//! serve them; and those that may still be worked on after the horizon. Waiting, rounding, start-up and draining are not in the bound.

use std::time::Duration;

use super::Task;
use crate::simulator::costs::Work;
use crate::simulator::fleet::{Layout, ReplicaSettings};
use crate::simulator::workload::Request;
use crate::units::Role;

/// Ways to bound the number of iterations.
const WAYS: usize = 4;

/// What a request asks of a role, in seconds of a replica.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    /// Without the iterations that it shares.
    own: f64,
    /// Its part of the iterations, by each way.
    shared: [f64; WAYS],
}

impl Task<'_> {
    /// GPU time below which no plan meets the goal.
    pub fn fluid_lower_bound(&self) -> Duration {
        let offered = self.requests.iter().filter(|request| (self.judged_from..=self.horizon).contains(&request.at));
        let served: Vec<&Request> = offered.filter(|request| self.is_served(request) && self.must_be_paid(request)).collect();
        let may_miss = usize::try_from(self.allowed()).unwrap_or(usize::MAX);
        let role_seconds = |role| {
            let needs: Vec<Needs> = served.iter().map(|request| self.needs(request, role)).collect();
            let by_way = |way: usize| {
                let mut sums: Vec<f64> = needs.iter().map(|needs| needs.own + needs.shared[way]).collect();
                sums.sort_by(f64::total_cmp);
                sums.iter().take(sums.len().saturating_sub(may_miss)).sum::<f64>()
            };
            (0..WAYS).map(by_way).fold(0.0, f64::max)
        };
        let gpu_seconds = self.roles().into_iter().map(|(role, limits)| {
            let idle = limits.min.as_f64() * self.horizon.saturating_sub(self.judged_from).as_secs_f64();
            role_seconds(role).max(idle) * f64::from(limits.gpus)
        });
        Duration::try_from_secs_f64(gpu_seconds.sum()).unwrap_or(Duration::MAX)
    }

    /// Replicas of each role that the requests of each interval keep busy.
    pub(super) fn demand(&self) -> Vec<Vec<f64>> {
        let roles = self.roles();
        let mut demand = vec![vec![0.0; roles.len()]; self.intervals()];
        let mut interval = 0;
        for request in self.requests.iter().filter(|request| request.at <= self.horizon && self.is_served(request)) {
            while request.at > self.end_of(interval) {
                interval += 1;
            }
            let begin = interval.checked_sub(1).map_or(Duration::ZERO, |before| self.end_of(before));
            let length = self.end_of(interval).saturating_sub(begin).as_secs_f64().max(1e-9);
            for (index, (role, _)) in roles.iter().enumerate() {
                let needs = self.needs(request, *role);
                demand[interval][index] += (needs.own + needs.shared.into_iter().fold(0.0, f64::max)) / length;
            }
        }
        demand
    }

    fn replica(&self, role: Role) -> ReplicaSettings {
        match self.fleet.layout {
            Layout::Disaggregated { prefill, .. } if role == Role::Prefill => prefill.replica,
            Layout::Disaggregated { decode, .. } => decode.replica,
            Layout::Aggregated(both) => both.replica,
        }
    }

    /// Whether it must end before the horizon to meet the objectives. Others may be worked on in the grace, which costs nothing.
    fn must_be_paid(&self, request: &Request) -> bool {
        let spacings = f64::from(request.output.max(1) - 1);
        request.at.as_secs_f64() + self.goal.ttft.get() + spacings * self.goal.itl.get() <= self.horizon.as_secs_f64()
    }

    /// Whether replicas are large enough for it.
    fn is_served(&self, request: &Request) -> bool {
        let tokens = u64::from(request.input.max(1)) + u64::from(request.output.max(1));
        self.roles().iter().all(|(role, _)| {
            let needs = if *role == Role::Prefill { u64::from(request.input.max(1)) + 1 } else { tokens };
            needs <= self.replica(*role).kv_tokens
        })
    }

    fn needs(&self, request: &Request, role: Role) -> Needs {
        let replica = self.replica(role);
        let alpha = replica.costs.iteration.get();
        let (input, output) = (request.input.max(1), request.output.max(1));
        // `as` as the fleet does it.
        let cached = ((f64::from(input) * self.fleet.prefix_hits.get()) as u32).min(input - 1);
        let computed = if role == Role::Decode { 0.0 } else { f64::from(input - cached) };
        let steps = if role == Role::Prefill { 0.0 } else { f64::from(output - 1) };
        let mut work = Work::decode(steps, steps * f64::from(input) + steps * (steps - 1.0).max(0.0) / 2.0);
        work.iterations = 0.0;
        let decoding = replica.costs.of(&work).get();
        if role != Role::Decode {
            // In one chunk: more chunks read memory more often.
            work += Work::chunk(cached, input - cached);
        }
        let iterations = steps + if role == Role::Decode { 0.0 } else { 1.0 };
        let kept = f64::from(input) + if role == Role::Prefill { 1.0 } else { f64::from(output) };
        let spare = self.goal.itl.get() - alpha;
        let spacing = if spare > 0.0 { alpha * decoding / spare } else { 0.0 };
        let shared = [
            alpha * iterations / f64::from(replica.max_requests.max(1)),
            alpha * iterations * kept / replica.kv_tokens.max(1) as f64,
            alpha * computed / f64::from(replica.max_batched_tokens.max(1)),
            spacing,
        ];
        Needs { own: replica.costs.of(&work).get(), shared }
    }
}
