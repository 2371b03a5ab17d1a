//! How does a reason look? The marks and colours that every page shares.

use super::plot::{Sign, Tone, mark_key};
use crate::planner::plan::{HoldKind, Reason};

/// The mark of a decision that changes no count.
pub fn sign(reason: Option<Reason>) -> Sign {
    match reason.and_then(Reason::hold_kind) {
        None => Sign::Ring,
        Some(HoldKind::Deliberate | HoldKind::Decreed) => Sign::Square,
        Some(HoldKind::Blind) => Sign::Diamond,
    }
}

/// The colour of a reason.
pub fn tone(reason: Option<Reason>) -> Tone {
    match (reason, reason.and_then(Reason::hold_kind)) {
        (Some(Reason::SloUnreachable), _) | (_, Some(HoldKind::Blind)) => Tone::Alarm,
        (_, None) => Tone::Calm,
        (_, Some(HoldKind::Deliberate)) => Tone::Wait,
        (_, Some(HoldKind::Decreed)) => Tone::Fixed,
    }
}

/// What the marks mean.
pub fn legend() -> String {
    let keys = [
        mark_key(Sign::Up, Tone::Calm, "raised"),
        mark_key(Sign::Down, Tone::Calm, "cut"),
        mark_key(Sign::Ring, Tone::Calm, "computed again after a hold"),
        mark_key(Sign::Square, Tone::Wait, "held: the planner waits"),
        mark_key(Sign::Diamond, Tone::Alarm, "held: the planner does not see"),
    ];
    format!("<p class=\"keys\">{}</p>\n", keys.join(" "))
}

/// A number and what it counts.
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
