//! Where does a line end, and which one is it?

use memchr::memchr;

use super::without_carriage_return;

/// A line of the page without its line end.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub text: &'a [u8],
    /// Counted from 1.
    pub number: u32,
    /// Whether the line has a line end.
    pub ended: bool,
}

/// What is left of a page.
pub(super) struct Lines<'a> {
    pub rest: &'a [u8],
    /// Of the line before the rest, counted from 1.
    pub number: u32,
}

impl<'a> Lines<'a> {
    pub fn of(body: &'a [u8]) -> Self {
        Self { rest: body, number: 0 }
    }

    /// Goes on behind a line of this length, line end included.
    #[inline]
    pub fn pass(&mut self, length: usize) {
        self.rest = &self.rest[length..];
        self.number = self.number.saturating_add(1);
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    #[inline]
    fn next(&mut self) -> Option<Line<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', self.rest);
        let text = without_carriage_return(&self.rest[..end.unwrap_or(self.rest.len())]);
        self.rest = end.map_or(&[], |end| &self.rest[end + 1..]);
        self.number = self.number.saturating_add(1);
        Some(Line { text, number: self.number, ended: end.is_some() })
    }
}
