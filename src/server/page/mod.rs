//! What does a person see at `/`, and in a report? Models, pools, the last hours as plots, the last decision step by step, and targets.
//!
//! One self-contained page without external resources, which works without scripts. All text that comes from outside is escaped.

mod frame;
mod model;
mod targets;

use std::fmt::Write;
use std::time::Duration;

pub(super) use frame::policy;

use crate::export::served::served;
use crate::export::snapshot::{ModelSnapshot, Snapshot};
use crate::history::SPAN;
use crate::report::html::{Cell, Escaped, records};
use crate::report::verdict::{counted, legend};
use crate::units::Moment;
use model::reason;

/// Models that are shown in full on one page. More are a list, and each has a page of its own.
const IN_FULL: usize = 4;

/// Times that a person may choose to look back. The first is shown if none is chosen.
const SPANS: [(&str, Duration); 3] = [("6h", SPAN), ("1h", Duration::from_secs(3600)), ("15m", Duration::from_secs(900))];

/// What of the page was asked for.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub(super) struct Query {
    /// One model, by its name.
    model: Option<String>,
    /// How far to look back; [`SPANS`] has the words.
    span: Option<String>,
}

impl Query {
    fn span(&self) -> (&'static str, Duration) {
        let chosen = |(word, _): &&(&str, Duration)| self.span.as_deref() == Some(word);
        *SPANS.iter().find(chosen).unwrap_or(&SPANS[0])
    }

    /// Our path that asks for a model, or for the list, and a time to look back.
    fn path(model: Option<&str>, span: &str) -> String {
        let model = model.map(|name| format!("model={}", encoded(name)));
        let span = (span != SPANS[0].0).then(|| format!("span={span}"));
        let parts: Vec<String> = model.into_iter().chain(span).collect();
        if parts.is_empty() { "/".to_owned() } else { format!("/?{}", parts.join("&")) }
    }
}

/// A text as the value of a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        let _ = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => write!(encoded, "{}", char::from(byte)),
            other => write!(encoded, "%{other:02X}"),
        };
    }
    encoded
}

/// The status page; `None` where a model was asked for that is not planned.
pub(super) fn render(snapshot: &Snapshot, now: Moment, query: &Query) -> Option<String> {
    let all = &snapshot.models;
    let asked: Vec<&ModelSnapshot> = match &query.model {
        Some(name) => all.iter().filter(|model| model.plan.model.as_str() == name).collect(),
        None => all.iter().collect(),
    };
    if query.model.is_some() && asked.is_empty() {
        return None;
    }
    let (word, span) = query.span();
    let refresh = snapshot.scrape_interval.as_secs().clamp(5, 60);
    let mut html = frame::head("inference-planner-exporter", Some(refresh));
    html.push_str(&frame::facts(snapshot, now));
    html.push_str(&frame::banners(snapshot));
    if let Some(name) = &query.model {
        let _ = writeln!(html, "<p><a href=\"/\">All models</a> / <b>{}</b></p>", Escaped(name));
    }
    if asked.is_empty() {
        html.push_str("<p>No model has been seen yet.</p>\n");
    }
    let in_full = query.model.is_some() || asked.len() <= IN_FULL;
    if !in_full || asked.len() > 1 {
        html.push_str(&list(snapshot, &asked, now, |name| Query::path(Some(name), word)));
    }
    if in_full && !asked.is_empty() {
        html.push_str(&look_back(query, word));
        for (place, model) in asked.iter().enumerate() {
            html.push_str(&model::section(snapshot, model, &model::Look { now, span, place, unfolded: asked.len() == 1 }));
        }
    }
    html.push_str(&targets::section(&snapshot.targets));
    html.push_str(frame::FOOT);
    Some(html)
}

/// The same as a file of its own, of the last `span`. `title` says which time that is.
pub fn report(snapshot: &Snapshot, now: Moment, span: Duration, title: &str) -> String {
    let mut html = frame::head(title, None);
    html.push_str(&frame::facts(snapshot, now));
    html.push_str(&frame::banners(snapshot));
    let models: Vec<&ModelSnapshot> = snapshot.models.iter().collect();
    if models.len() > 1 {
        html.push_str(&list(snapshot, &models, now, |name| format!("#{}", encoded(name))));
    }
    html.push_str(&legend());
    for (place, model) in models.into_iter().enumerate() {
        html.push_str(&model::section(snapshot, model, &model::Look { now, span, place, unfolded: false }));
    }
    html.push_str(&targets::section(&snapshot.targets));
    html.push_str(frame::FOOT);
    html
}

/// One line a pool, of all models. `path` leads to a model.
fn list(snapshot: &Snapshot, models: &[&ModelSnapshot], now: Moment, path: impl Fn(&str) -> String) -> String {
    let pools: usize = models.iter().map(|model| model.plan.pools.len()).sum();
    let mut rows = Vec::with_capacity(pools);
    for model in models {
        for pool in &model.plan.pools {
            rows.push(vec![
                Cell::link(&path(model.plan.model.as_str()), &model.plan.model),
                Cell::text(&pool.pool),
                Cell::text(pool.role),
                Cell::number(pool.current_replicas),
                Cell::number(served(snapshot, pool, now).ok()),
                reason(snapshot, pool, now),
            ]);
        }
    }
    let title = format!("{}, {}", counted(models.len(), "model"), counted(pools, "pool"));
    format!("<h2>{title}</h2>\n{}", records(&["model", "pool", "role", "ready", "recommended", "reason"], &rows))
}

/// How far the plots look back, with the marks' meanings.
fn look_back(query: &Query, shown: &str) -> String {
    let link = |(word, _): &(&str, Duration)| match *word == shown {
        true => format!("<b>{word}</b>"),
        false => format!("<a href=\"{}\">{word}</a>", Escaped(Query::path(query.model.as_deref(), word))),
    };
    let links: Vec<String> = SPANS.iter().map(link).collect();
    format!("<p class=\"faint\">Plots of the last {}, as far as the start; times are UTC.</p>\n{}", links.join(" · "), legend())
}

/// A span for people, to the second.
fn span(span: Duration) -> String {
    humantime::format_duration(Duration::from_secs(span.as_secs())).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_links_cannot_leave_their_place() {
        assert_eq!(Query::path(Some("Qwen/Qwen3-8B"), "6h"), "/?model=Qwen%2FQwen3-8B");
        assert_eq!(Query::path(Some("a b&span=\"<é"), "1h"), "/?model=a%20b%26span%3D%22%3C%C3%A9&span=1h");
        assert_eq!(Query::path(None, "6h"), "/");
    }

    #[test]
    fn an_unknown_time_is_the_usual_one() {
        let query = |span: &str| Query { model: None, span: Some(span.to_owned()) };
        assert_eq!(query("1h").span().1, Duration::from_secs(3600));
        assert_eq!(query("<script>").span().0, "6h");
    }
}
