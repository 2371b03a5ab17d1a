//! How would servers behave? Simulated pools in virtual time; also what `demo` serves.
//!
//! Values flow one way: a [`workload`] gives requests in the order of their arrival, a [`fleet`] serves them with the latencies of a measured
//! profile, and its routers count what a real router counts. Nothing here knows a clock: whoever drives a [`Simulation`] says how far time
//! has come. The same settings and seed give the same numbers to the last bit.
//!
//! - [`random`]: the only source of chance, seeded.
//! - [`workload`]: when requests come and how long they are.
//! - [`trace`]: requests that were recorded, or that follow a curve of rates; cut, scaled.
//! - `pool`: the life of a replica, from the request for it to its release.
//! - `prefill`, `decode`: what one replica of each role does.
//! - [`counters`]: what routers export, and the truth beside it.
//! - [`fleet`]: the pools behind their routers, and the order of events.
//! - [`scenario`]: the fleet and the load that `demo` shows.
//!
//! A trace is any iterator of [`workload::Request`] in order of arrival; a further kind of replica is a further file beside `decode`.

pub mod counters;
mod decode;
pub mod fleet;
mod pool;
mod prefill;
pub mod random;
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
