//! What was wrong with a page that is good enough to be used?
//!
//! Every repair and every lost line is counted by kind, so that "no signal" can be told from "no load"; the first few of each kind
//! are kept with their place, so that a person can find them.

use std::fmt;

/// How many problems of one kind are kept with their place. The kinds are few, so the list stays short however broken a page is.
const KEPT_OF_A_KIND: u32 = 3;

/// What was wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// The line does not start with a metric name. It cannot be told which family it belongs to, so it is reported whatever was wanted.
    BadName,
    /// The label list cannot be read.
    BadLabels,
    /// There is no number where the value should be.
    BadValue,
    /// What follows the value is neither a timestamp nor an exemplar.
    BadTimestamp,
    /// A label name occurs twice in one label list.
    RepeatedLabel,
    /// A bucket has no readable `le`, or a quantile no readable `quantile`.
    BadBound,
    /// The value is NaN or infinite: the sample counts as absent.
    NotFinite,
    /// A series occurs a second time: the first one counts.
    DuplicateSeries,
    /// A family has a second `TYPE` that differs: the first one counts.
    ConflictingType,
    /// A label value has a backslash before a character that needs none: both are kept.
    UnknownEscape,
    /// A label value is not UTF-8: the bad bytes are replaced.
    InvalidUtf8,
}

impl ProblemKind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::BadName,
        Self::BadLabels,
        Self::BadValue,
        Self::BadTimestamp,
        Self::RepeatedLabel,
        Self::BadBound,
        Self::NotFinite,
        Self::DuplicateSeries,
        Self::ConflictingType,
        Self::UnknownEscape,
        Self::InvalidUtf8,
    ];

    /// The kind's name as a label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadName => "bad_name",
            Self::BadLabels => "bad_labels",
            Self::BadValue => "bad_value",
            Self::BadTimestamp => "bad_timestamp",
            Self::RepeatedLabel => "repeated_label",
            Self::BadBound => "bad_bound",
            Self::NotFinite => "not_finite",
            Self::DuplicateSeries => "duplicate_series",
            Self::ConflictingType => "conflicting_type",
            Self::UnknownEscape => "unknown_escape",
            Self::InvalidUtf8 => "invalid_utf8",
        }
    }

    /// Whether the line's sample was lost because the line could not be read. Values that are not finite are not counted here:
    /// healthy servers send them.
    pub fn costs_a_line(self) -> bool {
        match self {
            Self::BadName | Self::BadLabels | Self::BadValue | Self::BadTimestamp | Self::RepeatedLabel | Self::BadBound => true,
            Self::NotFinite | Self::DuplicateSeries | Self::ConflictingType | Self::UnknownEscape | Self::InvalidUtf8 => false,
        }
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One problem with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What was wrong.
    pub kind: ProblemKind,
    /// The line, counted from 1.
    pub line: u32,
    /// The byte of the line, counted from 1; `None` where the whole line is meant.
    pub column: Option<u32>,
    /// What was expected there instead.
    pub expected: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(column) = self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ": {}: expected {}", self.kind, self.expected)
    }
}

/// All problems of one page: counts by kind, and the first few of each kind with their place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    counts: [u32; ProblemKind::ALL.len()],
    first: Vec<Problem>,
}

impl Problems {
    /// How many problems of `kind` there were.
    pub fn count(&self, kind: ProblemKind) -> u32 {
        self.counts[kind as usize]
    }

    /// The kinds that occurred, with their counts.
    pub fn counts(&self) -> impl Iterator<Item = (ProblemKind, u32)> + '_ {
        ProblemKind::ALL.into_iter().map(|kind| (kind, self.count(kind))).filter(|&(_, count)| count > 0)
    }

    /// How many lines could not be read.
    pub fn lines_lost(&self) -> u32 {
        self.counts().filter(|(kind, _)| kind.costs_a_line()).fold(0, |lost, (_, count)| lost.saturating_add(count))
    }

    /// The first three problems of each kind, in the order in which they were found.
    pub fn first(&self) -> &[Problem] {
        &self.first
    }

    /// Whether there was no problem at all.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    pub(super) fn note(&mut self, problem: Problem) {
        let count = &mut self.counts[problem.kind as usize];
        if *count < KEPT_OF_A_KIND {
            self.first.push(problem);
        }
        *count = count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequent_problem_does_not_hide_a_rare_one() {
        let mut problems = Problems::default();
        let problem = |kind, line| Problem { kind, line, column: None, expected: "something else" };
        for line in 1..=100 {
            problems.note(problem(ProblemKind::NotFinite, line));
        }
        problems.note(problem(ProblemKind::BadValue, 101));
        assert_eq!(problems.first().iter().map(|problem| problem.line).collect::<Vec<_>>(), [1, 2, 3, 101]);
        assert_eq!(problems.counts().collect::<Vec<_>>(), [(ProblemKind::BadValue, 1), (ProblemKind::NotFinite, 100)]);
        assert_eq!(problems.lines_lost(), 1);
    }

    #[test]
    fn every_kind_has_its_own_name_and_place_in_the_list() {
        for (position, kind) in ProblemKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, position, "{kind}");
            assert!(ProblemKind::ALL.iter().all(|other| *other == kind || other.as_str() != kind.as_str()), "{kind}");
        }
    }

    #[test]
    fn a_problem_says_where_and_what_was_expected() {
        let problem = Problem { kind: ProblemKind::BadValue, line: 8, column: Some(10), expected: "a decimal number" };
        assert_eq!(problem.to_string(), "line 8, column 10: bad_value: expected a decimal number");
    }
}
