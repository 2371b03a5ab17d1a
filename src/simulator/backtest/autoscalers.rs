//! How do autoscalers do that look at one number? Two that are in use, written from their documented rules.
//!
//! | | Kubernetes HPA on the queue | Knative KPA on concurrency |
//! |---|---|---|
//! | sees | requests that wait | requests that wait or are worked on, averaged over 60 s and over 6 s |
//! | acts | every 15 s | every tick |
//! | wants | queue / target | average / target |
//! | does nothing | within 10 % of the target | |
//! | upwards at most | twice the count or four more | |
//! | downwards | the largest wish of the last 300 s | to half the count; not in panic |
//! | panic | | if the 6 s want twice the ready count, until 60 s after that was last so |
//!
//! Both look at each role by itself and stay within the operator's limits.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::policy::{Answer, Policy, View};
use crate::planner::policy::Limits;
use crate::units::{Replicas, Requests, Role};

const SYNC: Duration = Duration::from_secs(15);
const TOLERANCE: f64 = 0.1;
const STABILISATION: Duration = Duration::from_secs(300);
const STABLE: Duration = Duration::from_secs(60);
const PANIC: Duration = Duration::from_secs(6);
const PANIC_FACTOR: f64 = 2.0;

/// Limits that nobody wrote: at least one replica.
fn within(limits: &BTreeMap<Role, Limits>, role: Role, wanted: Replicas) -> Replicas {
    limits.get(&role).map_or(wanted.max(Replicas(1)), |limits| limits.clamp(wanted))
}

/// The horizontal pod autoscaler of Kubernetes on the length of the queue.
#[derive(Clone, Debug)]
pub struct HpaQueue {
    target: Requests,
    limits: BTreeMap<Role, Limits>,
    next: Duration,
    wishes: BTreeMap<Role, VecDeque<(Duration, Replicas)>>,
}

impl HpaQueue {
    /// `target` is how many requests may wait for each replica, above zero.
    pub fn new(target: Requests, limits: BTreeMap<Role, Limits>) -> Self {
        Self { target, limits, next: Duration::ZERO, wishes: BTreeMap::new() }
    }

    fn wish(&mut self, view: &View<'_>, role: Role) -> Replicas {
        let current = view.target(role);
        // A queue is far below any exact number; `as` keeps it.
        let wanted = view.waiting(role) as f64 / self.target.get();
        let ratio = wanted / current.as_f64().max(1.0);
        let wanted = if (ratio - 1.0).abs() <= TOLERANCE { current } else { Replicas::ceil(wanted) };
        let wanted = within(&self.limits, role, wanted);

        let wishes = self.wishes.entry(role).or_default();
        wishes.push_back((view.now(), wanted));
        while wishes.front().is_some_and(|(at, _)| *at + STABILISATION < view.now()) {
            wishes.pop_front();
        }
        if wanted >= current {
            let most = current.0.saturating_mul(2).max(current.0.saturating_add(4));
            return wanted.min(Replicas(most));
        }
        wishes.iter().map(|(_, wish)| *wish).max().unwrap_or(wanted).min(current)
    }
}

impl Policy for HpaQueue {
    fn name(&self) -> String {
        format!("hpa queue {}", self.target.get())
    }

    fn targets(&mut self, view: &View<'_>) -> Answer {
        if view.now() < self.next {
            return Answer::default();
        }
        self.next = view.now() + SYNC;
        let targets = view.roles().map(|role| (role, self.wish(view, role))).collect();
        Answer { targets, why: None }
    }
}

/// The autoscaler of Knative on concurrency.
#[derive(Clone, Debug)]
pub struct Kpa {
    targets: BTreeMap<Role, Requests>,
    limits: BTreeMap<Role, Limits>,
    pools: BTreeMap<Role, KpaPool>,
}

#[derive(Clone, Debug, Default)]
struct KpaPool {
    seen: VecDeque<(Duration, u64)>,
    /// The end of the panic and the largest count in it.
    panic: Option<(Duration, Replicas)>,
}

impl KpaPool {
    fn average(&self, now: Duration, window: Duration) -> f64 {
        let seen = self.seen.iter().filter(|(at, _)| *at + window > now);
        let (sum, count) = seen.fold((0, 0_u32), |(sum, count), (_, found)| (sum + found, count + 1));
        sum as f64 / f64::from(count.max(1))
    }
}

impl Kpa {
    /// `targets` are the requests that each replica of a role shall hold, above zero; a role that is not listed stays as it is.
    pub fn new(targets: BTreeMap<Role, Requests>, limits: BTreeMap<Role, Limits>) -> Self {
        Self { targets, limits, pools: BTreeMap::new() }
    }

    fn wish(&mut self, view: &View<'_>, role: Role, target: Requests) -> Replicas {
        let now = view.now();
        let pool = self.pools.entry(role).or_default();
        pool.seen.push_back((now, view.concurrency(role)));
        while pool.seen.front().is_some_and(|(at, _)| *at + STABLE <= now) {
            pool.seen.pop_front();
        }
        let ready = view.ready(role).max(Replicas(1));
        let stable = Replicas::ceil(pool.average(now, STABLE) / target.get()).max(Replicas(ready.0 / 2));
        let urgent = Replicas::ceil(pool.average(now, PANIC) / target.get());
        let largest = pool.panic.filter(|(until, _)| now < *until).map(|(_, largest)| largest);
        let wanted = if urgent.as_f64() >= PANIC_FACTOR * ready.as_f64() {
            let largest = largest.unwrap_or(ready).max(urgent).max(stable);
            pool.panic = Some((now + STABLE, largest));
            largest
        } else if let Some(largest) = largest {
            let largest = largest.max(urgent);
            pool.panic = pool.panic.map(|(until, _)| (until, largest));
            largest
        } else {
            pool.panic = None;
            stable
        };
        within(&self.limits, role, wanted)
    }
}

impl Policy for Kpa {
    fn name(&self) -> String {
        let targets: Vec<String> = self.targets.values().map(|target| format!("{:.1}", target.get())).collect();
        format!("kpa concurrency {}", targets.join("+"))
    }

    fn targets(&mut self, view: &View<'_>) -> Answer {
        let targets = self.targets.clone();
        let targets = targets.into_iter().map(|(role, target)| (role, self.wish(view, role, target)));
        Answer { targets: targets.collect(), why: None }
    }
}
