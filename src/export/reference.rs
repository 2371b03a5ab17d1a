//! What does the reference of the metrics say? README.md, rendered from the catalogue and the closed sets.

use std::fmt::Write;

use super::catalog::{self, Family, Label, Level, Member, Values};
use crate::planner::plan::{Capability, HoldKind, LatencyCause, LoadRule, Reason, Stage, StepReason, Warning};

/// The whole text of `src/export/README.md`.
pub fn render() -> String {
    let mut text = String::from(INTRODUCTION);
    for level in Level::ALL {
        families(&mut text, level);
    }
    text.push_str("\n## Label values\n");
    for (name, members) in label_sets() {
        set(&mut text, &name, &members);
    }
    hold_kinds(&mut text);
    text.push_str(
        "\n## Sets in plans\n\nThese occur in the JSON of plans and on the status page only; all other sets there are those above.\n",
    );
    for (name, members) in plan_sets() {
        set(&mut text, name, &members);
    }
    text
}

const INTRODUCTION: &str = "\
# Metrics

Generated from `catalog.rs` and the closed sets of the planner. A test holds this file equal to them; rewrite it with

    UPDATE_REFERENCES=1 cargo test --test it export

The exporter decides in its own loop; a scrape only reads the result of the last round and changes nothing. A number that is not known has
no series: none is ever NaN, infinite or negative. Every member of a closed set of a counter has a series from the start.
";

fn families(text: &mut String, level: Level) {
    let labels = level.labels().iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
    let _ = write!(text, "\n## Level {}\n\n", level.as_str());
    let _ = match labels.as_str() {
        "" => writeln!(text, "No labels of the level.\n"),
        labels => writeln!(text, "Labels of every series: {labels}.\n"),
    };
    text.push_str("| family | type | further labels | meaning |\n|---|---|---|---|\n");
    for family in catalog::ALL.iter().filter(|family| family.level == level) {
        let _ = writeln!(text, "| `{}` | {} | {} | {} |", family.name(), family.kind.as_str(), further_labels(family), family.help);
    }
}

fn further_labels(family: &Family) -> String {
    let label = |label: &Label| match label.values {
        Values::Named(meaning) => format!("`{}`: {meaning}", label.name),
        Values::Closed(_) => format!("`{}`", label.name),
    };
    family.labels.iter().map(label).collect::<Vec<_>>().join("; ")
}

/// Each closed set of label values once, titled with the label and the first family that carries it.
fn label_sets() -> Vec<(String, Vec<Member>)> {
    let mut sets: Vec<(String, Vec<Member>, &'static str)> = Vec::new();
    for family in catalog::ALL {
        for label in family.labels {
            let Values::Closed(members) = label.values else { continue };
            let members = members();
            if !sets.iter().any(|(_, known, name)| *name == label.name && *known == members) {
                sets.push((format!("`{}` of `{}`", label.name, family.name()), members, label.name));
            }
        }
    }
    sets.into_iter().map(|(title, members, _)| (title, members)).collect()
}

fn plan_sets() -> Vec<(&'static str, Vec<Member>)> {
    macro_rules! members {
        ($set:ty) => {
            <$set>::ALL.iter().map(|member| (member.as_str(), member.meaning())).collect()
        };
    }
    vec![
        ("`steps[].stage`", members!(Stage)),
        ("`steps[].reason`", members!(StepReason)),
        ("`warnings`", members!(Warning)),
        ("`pools[].missing[].what`", members!(Capability)),
        ("`pools[].load.inputs.rule`", members!(LoadRule)),
        ("`pools[].latency.cause`", members!(LatencyCause)),
    ]
}

/// How long a held recommendation lives, by reason.
fn hold_kinds(text: &mut String) {
    text.push_str(HOLDS);
    for &reason in Reason::ALL {
        let end = match reason.hold_kind() {
            None => continue,
            Some(HoldKind::Blind) => "expires",
            Some(HoldKind::Deliberate) => "renews while coverage is good",
            Some(HoldKind::Decreed) => "always renews",
        };
        let _ = writeln!(text, "| `{reason}` | {end} |");
    }
}

const HOLDS: &str = "
## How a hold ends

A recommendation that expires is dropped from the page once it has been held for `hold_for`; it never becomes 0.

| reason | the held value |
|---|---|
";

fn set(text: &mut String, title: &str, members: &[Member]) {
    let _ = write!(text, "\n### {title}\n\n| value | meaning |\n|---|---|\n");
    for (value, meaning) in members {
        let _ = writeln!(text, "| `{value}` | {meaning} |");
    }
}
