//! What do the pages of each target have in common with its last one? A memory for each target, shared by those whose series are the same.
//!
//! Replicas of one server show the same series, so that a few memories of about a page's size mostly serve a whole fleet. Where each target has
//! its own, all of them together stay below a limit, and the targets beyond it are read without a memory. A memory that does not fit any more
//! is replaced; where that happens again and again, as with servers that show their series in another order each time, ever less often.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::exposition::Memory;
use crate::units::TargetId;

/// The most that all memories together take, bytes: pages of 100 kB of 130 servers that all differ.
const MOST: usize = 16 << 20;
/// How many of the latest memories are tried for a target that has none that fits.
const TRIED: usize = 4;
/// The most scrapes between two attempts at a memory.
const LONGEST_PAUSE: u32 = 63;

/// The memories of all targets.
#[derive(Debug, Default)]
pub(super) struct Memories {
    inside: Mutex<Inside>,
    /// Of all memories that are alive, bytes.
    size: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Inside {
    targets: BTreeMap<TargetId, State>,
    /// The last one first.
    latest: Vec<Weak<Known>>,
}

#[derive(Debug, Default)]
struct State {
    known: Option<Arc<Known>>,
    /// Scrapes without an attempt that are left.
    pause: u32,
    /// How many there were before the last attempt.
    paused: u32,
}

/// A memory that counts towards the limit as long as it lives.
#[derive(Debug)]
pub(super) struct Known {
    pub memory: Memory,
    size: Arc<AtomicUsize>,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.size.fetch_sub(self.memory.size(), Ordering::Relaxed);
    }
}

/// What a scrape of a target may use.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// To be tried in this order, the target's own first.
    pub known: Vec<Arc<Known>>,
    /// Whether the page is worth a new memory if none fits.
    pub learns: bool,
}

/// What a page was read with.
#[derive(Debug)]
pub(super) enum Used {
    /// The memory at this place of those that were tried.
    Earlier(usize),
    /// None; this is one of the page itself, where it can be remembered.
    None(Option<Memory>),
}

impl Memories {
    /// What the next page of the target may be read with.
    pub fn earlier(&self, target: &TargetId) -> Earlier {
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let state = inside.targets.get(target);
        let own = state.and_then(|state| state.known.clone());
        let mut known: Vec<_> = own.into_iter().collect();
        for other in inside.latest.iter().filter_map(Weak::upgrade) {
            if known.iter().all(|known| !Arc::ptr_eq(known, &other)) {
                known.push(other);
            }
        }
        Earlier { known, learns: state.is_none_or(|state| state.pause == 0) }
    }

    /// Takes note of how a page of the target was read.
    pub fn note(&self, target: &TargetId, earlier: &Earlier, used: Used) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let Inside { targets, latest } = &mut *inside;
        let state = targets.entry(target.clone()).or_default();
        match used {
            Used::Earlier(place) => *state = State { known: earlier.known.get(place).cloned(), ..State::default() },
            Used::None(_) if !earlier.learns => {
                state.known = None;
                state.pause = state.pause.saturating_sub(1);
            }
            Used::None(memory) => {
                state.known = None;
                state.paused = (state.paused * 2 + 1).min(LONGEST_PAUSE);
                state.pause = state.paused - 1;
                state.known = memory.and_then(|memory| self.admit(memory));
                if let Some(known) = &state.known {
                    latest.insert(0, Arc::downgrade(known));
                    latest.retain(|known| known.strong_count() > 0);
                    latest.truncate(TRIED);
                }
            }
        }
    }

    /// Forgets all other targets.
    pub fn retain(&self, targets: &BTreeSet<&TargetId>) {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).targets.retain(|target, _| targets.contains(target));
    }

    /// The memory, if there is room for it.
    fn admit(&self, memory: Memory) -> Option<Arc<Known>> {
        let size = memory.size();
        let fits = |taken: usize| taken.checked_add(size).filter(|taken| *taken <= MOST);
        self.size.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Arc::new(Known { memory, size: Arc::clone(&self.size) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::{Format, Wanted, read};

    fn memory(body: &str) -> Option<Memory> {
        let wanted = Wanted::all();
        let page = read(body.as_bytes(), Format::Text, &wanted).ok()?;
        Memory::of(body.as_bytes(), Format::Text, &wanted, &page)
    }

    /// One scrape of a target whose page is `body`; whether a memory was used.
    fn scrape(memories: &Memories, target: &str, body: &str) -> bool {
        let target = TargetId::from(target);
        let earlier = memories.earlier(&target);
        let fits = |known: &Arc<Known>| known.memory.read(body.as_bytes(), Format::Text, &Wanted::all()).is_some();
        let place = earlier.known.iter().position(fits);
        let used = place.map_or_else(|| Used::None(if earlier.learns { memory(body) } else { None }), Used::Earlier);
        memories.note(&target, &earlier, used);
        place.is_some()
    }

    #[test]
    fn targets_with_the_same_series_share_one_memory() {
        let memories = Memories::default();
        let used: Vec<bool> = ["a", "b", "c", "a"].map(|target| scrape(&memories, target, "g 1\n")).to_vec();
        assert_eq!(used, [false, true, true, true]);
        let size = memories.size.load(Ordering::Relaxed);
        assert_eq!(Some(size), memory("g 1\n").map(|memory| memory.size()));
        memories.retain(&BTreeSet::from([&TargetId::from("c")]));
        assert_eq!(memories.size.load(Ordering::Relaxed), size);
        memories.retain(&BTreeSet::new());
        assert_eq!(memories.size.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_memory_is_replaced_once_the_series_change() {
        let memories = Memories::default();
        let used: Vec<bool> = ["g 1\n", "g 2\n", "g 2\nh 1\n", "g 3\nh 2\n"].map(|body| scrape(&memories, "a", body)).to_vec();
        assert_eq!(used, [false, true, false, true]);
    }

    #[test]
    fn series_that_always_change_are_remembered_ever_less_often() {
        let memories = Memories::default();
        let mut learned = 0;
        for round in 0..1000 {
            learned += usize::from(memories.earlier(&TargetId::from("a")).learns);
            assert!(!scrape(&memories, "a", &format!("g{{round=\"{round}\"}} 1\n")));
        }
        assert!((15..25).contains(&learned), "{learned}");
    }

    #[test]
    fn beyond_the_limit_targets_have_no_memory() {
        let memories = Memories::default();
        let large = |name: usize| format!("g{{name=\"{name}\",filler=\"{}\"}} 1\n", "x".repeat(1 << 20));
        for round in 0..2 {
            let used = (0..20).filter(|&name| scrape(&memories, &format!("{name}"), &large(name))).count();
            assert!(if round == 0 { used == 0 } else { (5..8).contains(&used) }, "{used}");
            assert!(memories.size.load(Ordering::Relaxed) <= MOST);
        }
    }
}
