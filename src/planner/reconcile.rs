//! Which wish counts, when several proposers speak for one role? The largest: each names a need that the others do not see.

use super::propose::{Proposal, Wish};
use crate::units::{Replicas, Role};

/// The reconciled wish of a role, before any limit. `None` where nobody asked.
pub fn reconcile(proposal: &Proposal, role: Role) -> Option<Wish> {
    let wishes = proposal.wishes.values().filter(|(wished, _)| *wished == role).map(|(_, wish)| *wish);
    wishes.reduce(|a, b| Wish { supported: a.supported.max(b.supported), cautious: a.cautious.max(b.cautious) })
}

/// Growth is counted from at least one replica: a pool observed at 0 must be able to grow.
pub fn growth_base(observed: Replicas) -> Replicas {
    observed.max(Replicas(1))
}
