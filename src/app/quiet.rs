//! How much does the log hear of failing targets? Each change of a problem's kind, up to a few lines a minute for each source, and then a number.
//!
//! A fleet of hundreds that comes and goes has something new to complain of in every round, and a log that is full of it hides what matters.
//! The rule: the targets of one pool, or the traffic targets together, get [`LINES_A_MINUTE`] lines in each minute that begins with the first of
//! them; the rest of that minute is counted, and told as one line when it is over. Nothing else is lost: the page and the metrics show every
//! target as it is.

use std::collections::BTreeMap;
use std::time::Duration;

use super::events::Event;
use crate::units::{PoolId, TargetId};

/// Enough to see what goes wrong; a rolling update of a small pool fits.
const LINES_A_MINUTE: u32 = 10;

const MINUTE: Duration = Duration::from_secs(60);

/// News of one target.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Notice {
    /// Whose target; `None` for traffic targets.
    pub pool: Option<PoolId>,
    pub target: TargetId,
    /// What is wrong, `None` once nothing is.
    pub problem: Option<String>,
}

/// What was told in the minute that goes on, by pool. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Quiet(BTreeMap<Option<PoolId>, Told>);

#[derive(Clone, Copy, Debug)]
struct Told {
    since: Duration,
    lines: u32,
    untold: u32,
}

impl Quiet {
    /// The events that the log is told in this round.
    pub fn pass(&mut self, notices: Vec<Notice>, now: Duration) -> Vec<Event> {
        let mut events = Vec::new();
        self.0.retain(|pool, told| {
            let goes_on = now.saturating_sub(told.since) < MINUTE;
            if !goes_on && told.untold > 0 {
                let source = pool.as_ref().map_or_else(|| "traffic".to_owned(), ToString::to_string);
                events.push(Event::Targets { source, untold: told.untold });
            }
            goes_on
        });
        for Notice { pool, target, problem } in notices {
            let told = self.0.entry(pool).or_insert(Told { since: now, lines: 0, untold: 0 });
            if told.lines < LINES_A_MINUTE {
                told.lines += 1;
                events.push(Event::Target { target, problem });
            } else {
                told.untold += 1;
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices(pool: Option<&str>, count: usize) -> Vec<Notice> {
        let notice = |index| Notice {
            pool: pool.map(PoolId::from),
            target: TargetId::from(format!("t{index}")),
            problem: Some("connect: refused".to_owned()),
        };
        (0..count).map(notice).collect()
    }

    fn counted(events: &[Event]) -> (usize, Vec<(&str, u32)>) {
        let lines = events.iter().filter(|event| matches!(event, Event::Target { .. })).count();
        let summaries = events.iter().filter_map(|event| match event {
            Event::Targets { source, untold } => Some((source.as_str(), *untold)),
            _ => None,
        });
        (lines, summaries.collect())
    }

    #[test]
    fn a_source_gets_ten_lines_a_minute_and_then_a_number() {
        let mut quiet = Quiet::default();
        let at = Duration::from_secs;
        assert_eq!(counted(&quiet.pass(notices(Some("p"), 25), at(100))), (10, vec![]));
        assert_eq!(counted(&quiet.pass(notices(Some("p"), 5), at(130))), (0, vec![]));
        assert_eq!(counted(&quiet.pass(notices(None, 3), at(130))), (3, vec![]), "another source has lines of its own");
        assert_eq!(counted(&quiet.pass(notices(Some("p"), 1), at(160))), (1, vec![("p", 20)]));
        assert_eq!(counted(&quiet.pass(Vec::new(), at(400))), (0, vec![]), "nothing was left out since");
        assert!(quiet.0.is_empty());
    }
}
