//! Which of the things that came before comes again? As a rule the one behind the last one, since exporters write all families in one order.

/// Things that a page had, each once, in the order in which they came first.
pub(super) struct Recent<T> {
    items: Vec<T>,
    last: usize,
}

/// So many are kept at most, so that a page of many different ones costs no more than a few comparisons a line.
const MOST: usize = 32;

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { items: Vec::new(), last: 0 }
    }
}

impl<T: Copy> Recent<T> {
    /// One that `is_it`.
    #[inline]
    pub fn find(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let next = self.last + 1;
        if self.items.get(next).is_some_and(&is_it) {
            self.last = next;
        } else {
            self.last = self.items.iter().position(is_it)?;
        }
        self.items.get(self.last).copied()
    }

    /// Keeps one that was not found.
    pub fn keep(&mut self, item: T) {
        if self.items.len() < MOST {
            self.last = self.items.len();
            self.items.push(item);
        }
    }
}
