//! How much memory may the bodies of all targets hold together?
//!
//! A body claims memory in steps, as it grows, so that a server that only announces a large body holds nothing. Claims that grow while
//! they are held can wait for each other in a circle. The way out is a reserve as large as the largest body: when the common part is
//! used up, one claim at a time gets the whole reserve, with which it can always be finished, and so the others move on as well.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory is counted in steps of this many bytes, so that any budget fits the semaphore's 32 bits.
const STEP: usize = 4096;

/// The memory for all bodies.
#[derive(Debug)]
pub(super) struct Budget {
    common: Arc<Semaphore>,
    /// One permit: the whole reserve.
    reserve: Arc<Semaphore>,
    largest: usize,
    /// The first bytes of every body, which claim nothing.
    free: usize,
}

impl Budget {
    /// A budget of `total` bytes for bodies of at most `largest` bytes, but never more than all of it.
    /// The first `free` bytes of each are outside of it: what an ordinary page takes must not wait for bodies that have stalled.
    pub(super) fn new(total: usize, largest: usize, free: usize) -> Arc<Self> {
        let largest = largest.min(total);
        let common = (total - largest) / STEP;
        Arc::new(Self {
            common: Arc::new(Semaphore::new(common.min(u32::MAX as usize))),
            reserve: Arc::new(Semaphore::new(1)),
            largest,
            free,
        })
    }

    /// The largest body that fits, bytes.
    pub(super) fn largest(&self) -> usize {
        self.largest
    }

    /// A claim that holds nothing yet.
    pub(super) fn claim(self: &Arc<Self>) -> Claim {
        Claim { budget: Arc::clone(self), common: None, reserve: None }
    }
}

/// What one body holds of the budget; given back when dropped.
#[derive(Debug)]
pub(super) struct Claim {
    budget: Arc<Budget>,
    common: Option<OwnedSemaphorePermit>,
    reserve: Option<OwnedSemaphorePermit>,
}

impl Claim {
    /// Waits until the claim covers `bytes`, which must not exceed [`Budget::largest`].
    pub(super) async fn grow_to(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.budget.largest, "bodies are limited before they claim memory");
        let held = self.common.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.saturating_sub(self.budget.free).div_ceil(STEP).saturating_sub(held);
        if self.reserve.is_some() || missing == 0 {
            return;
        }
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        // The semaphores are never closed, so neither branch gives an error.
        tokio::select! {
            biased;
            Ok(more) = Arc::clone(&self.budget.common).acquire_many_owned(missing) => match &mut self.common {
                Some(common) => common.merge(more),
                None => self.common = Some(more),
            },
            Ok(reserve) = Arc::clone(&self.budget.reserve).acquire_owned() => self.reserve = Some(reserve),
            else => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn claims_that_grow_into_each_other_all_get_through() {
        // Eight bodies of four steps each in a budget of six: each waits with something in hand.
        let budget = Budget::new(6 * STEP, 4 * STEP, 0);
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let mut claim = budget.claim();
                tokio::spawn(async move {
                    for steps in 1..=4 {
                        claim.grow_to(steps * STEP).await;
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            assert!(task.await.is_ok());
        }
        assert_eq!((budget.common.available_permits(), budget.reserve.available_permits()), (2, 1));
    }

    #[tokio::test]
    async fn a_claim_waits_while_everything_is_taken_and_then_goes_on() {
        let budget = Budget::new(2 * STEP, STEP, 0);
        let (mut first, mut second, mut third) = (budget.claim(), budget.claim(), budget.claim());
        first.grow_to(STEP).await;
        second.grow_to(1).await;
        {
            let waiting = third.grow_to(STEP);
            tokio::pin!(waiting);
            assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut waiting).await.is_err());
            drop(second);
            waiting.await;
        }
        assert!(third.reserve.is_some());
    }

    #[tokio::test]
    async fn an_ordinary_page_does_not_wait_for_bodies_that_have_stalled() {
        let budget = Budget::new(2 * STEP, STEP, STEP);
        let mut stalled = [budget.claim(), budget.claim()];
        for claim in &mut stalled {
            claim.grow_to(STEP).await;
        }
        let mut page = budget.claim();
        assert!(tokio::time::timeout(std::time::Duration::ZERO, page.grow_to(STEP)).await.is_ok());
    }

    #[test]
    fn a_body_is_never_larger_than_the_whole_budget() {
        assert_eq!(Budget::new(10, 20, 0).largest(), 10);
    }
}
