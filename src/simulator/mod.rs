//! How would servers behave? Simulated pools in virtual time; also what `demo` serves.
//!
//! Values flow one way: a [`workload`] gives requests in the order of their arrival, a [`fleet`] serves them iteration by iteration at the
//! prices of a measured profile, and its routers and replicas count what real ones count. Nothing here knows a clock: whoever drives a
//! [`Simulation`] says how far time has come. The same settings and seed give the same numbers to the last bit.
//!
//! - [`random`]: the only source of chance, seeded.
//! - [`workload`]: when requests come and how long they are.
//! - [`trace`]: requests that were recorded, or that follow a curve of rates; cut, scaled.
//! - [`costs`]: how long an iteration lasts.
//! - [`fit`](mod@fit): those prices from a profile, and how far they are from it.
//! - `pool`: the life of a replica, from the request for it to its release.
//! - `replica`: what one replica of any role does.
//! - [`meters`], [`counters`]: what replicas and routers export, and the truth beside it.
//! - [`fleet`]: the pools behind their routers, and the order of events.
//! - [`clairvoyant`]: the cheapest plan for a known trace, by which policies are judged.
//! - [`backtest`]: policies in closed loop with it, judged and compared.
//! - [`scenario`]: the fleet and the load that `demo` shows.
//!
//! A trace is any iterator of [`workload::Request`] in order of arrival.

pub mod backtest;
pub mod clairvoyant;
pub mod costs;
pub mod counters;
pub mod fit;
pub mod fleet;
pub mod meters;
mod pool;
pub mod random;
mod replica;
pub mod scenario;
pub mod trace;
pub mod workload;

use std::iter::Peekable;
use std::time::Duration;

use fleet::Fleet;
use workload::Request;

/// A fleet under a load.
#[derive(Debug)]
pub struct Simulation<W: Iterator<Item = Request>> {
    /// The servers. Change targets and read counters here.
    pub fleet: Fleet,
    workload: Peekable<W>,
}

impl<W: Iterator<Item = Request>> Simulation<W> {
    /// `workload` gives its requests in order of arrival; one that is late counts as arriving when its predecessor did.
    pub fn new(fleet: Fleet, workload: W) -> Self {
        Self { fleet, workload: workload.peekable() }
    }

    /// Lets virtual time run up to and including `until`, counted from the start of the simulation. A time in the past does nothing.
    pub fn advance_to(&mut self, until: Duration) {
        while let Some(request) = self.workload.next_if(|request| request.at <= until) {
            self.fleet.offer(request);
        }
        self.fleet.advance_to(until);
    }
}
