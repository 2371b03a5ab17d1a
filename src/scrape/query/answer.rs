//! What do the answers of Prometheus' API say? JSON in; the targets, and the page that each showed at its last scrape, out. Pure.
//!
//! Prometheus puts labels of its own on every series of a target, and keeps the page's label of the same name as `exported_NAME`. The series
//! `up` has exactly these labels, so that they can be taken off again: what comes out is the page that the target sent.
//!
//! All samples of one scrape, `up` among them, carry the moment of that scrape. Only samples of the moment of the last scrape make the page:
//! a series that the target has dropped since is not on it, however recently Prometheus saw it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// The series that Prometheus writes with every scrape: 1 where the target gave a page.
pub(super) const UP: &str = "up";
const NAME: &str = "__name__";
/// What Prometheus puts before a label of the page that it needs for itself.
const EXPORTED: &str = "exported_";
/// Prometheus counts time in milliseconds, and writes it as a number of seconds.
const SAME_MOMENT: f64 = 0.000_6;

/// A text that is copied only where it has escapes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl std::borrow::Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Deserialize)]
struct Answer<'a> {
    status: String,
    #[serde(default, borrow)]
    data: Option<Data<'a>>,
    #[serde(default, rename = "errorType")]
    error_type: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Data<'a> {
    #[serde(rename = "resultType")]
    kind: String,
    #[serde(default, borrow)]
    result: Vec<Series<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Series<'a> {
    #[serde(borrow)]
    metric: BTreeMap<Text<'a>, Text<'a>>,
    /// Of a range. A native histogram has none.
    #[serde(default, borrow)]
    values: Vec<(f64, Text<'a>)>,
    /// Of a moment.
    #[serde(default, borrow)]
    value: Option<(f64, Text<'a>)>,
}

/// The series of an answer, which must be whole.
pub(super) fn series<'a>(body: &'a [u8], kind: &str) -> Result<Vec<Series<'a>>, String> {
    let wrong = |error: serde_json::Error| {
        format!("expected an answer of Prometheus' API in JSON; line {}, column {}", error.line(), error.column())
    };
    let answer: Answer<'a> = serde_json::from_slice(body).map_err(wrong)?;
    if answer.status != "success" {
        return Err(format!("{}: {}", answer.error_type, one_line(&answer.error)));
    }
    if let Some(warning) = answer.warnings.first() {
        // Part of a fleet is not a smaller fleet.
        return Err(format!("the answer may not be whole: {}", one_line(warning)));
    }
    match answer.data {
        Some(data) if data.kind == kind => Ok(data.result),
        Some(data) => Err(format!("expected a result of type {kind}, got {:?}", data.kind)),
        None => Err(format!("expected a result of type {kind}, got none")),
    }
}

/// The error that an answer tells, if it is one of the API.
pub(super) fn error(body: &[u8]) -> Option<String> {
    let answer: Answer<'_> = serde_json::from_slice(body).ok()?;
    (answer.status == "error").then(|| format!("{}: {}", answer.error_type, one_line(&answer.error)))
}

/// The beginning of a message, without line ends.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}

/// A target as its series `up` shows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    /// The value of the target label.
    pub name: String,
    /// The labels that Prometheus puts on everything of the target.
    labels: BTreeMap<String, String>,
    /// The moment of the last scrape, seconds since the Unix epoch by Prometheus' clock.
    pub scraped: f64,
    /// How many series `up` have this name. Above 1 it is not known which series are whose.
    pub namesakes: usize,
}

/// The targets of an answer to [`list_query`], sorted by name, and the moment of the answer by Prometheus' clock (0 without targets).
pub(super) fn listed(series: &[Series<'_>], target_label: &str) -> Result<(Vec<Listed>, f64), String> {
    let mut targets: BTreeMap<&str, Listed> = BTreeMap::new();
    let mut now = 0.0;
    for Series { metric, value, .. } in series {
        let Some(name) = metric.get(target_label).map(|name| name.0.as_ref()).filter(|name| !name.is_empty()) else {
            return Err(format!("expected every series up to have the label {target_label}, got one without"));
        };
        let moment = value.as_ref().and_then(|(at, scraped)| Some((*at, scraped.0.parse::<f64>().ok().filter(|time| time.is_finite())?)));
        let (at, scraped) = moment.ok_or_else(|| format!("expected the moment of the last scrape of {name}, got none"))?;
        now = at;
        let labels = metric.iter().filter(|(name, _)| name.0 != NAME).map(|(name, value)| (name.0.to_string(), value.0.to_string()));
        let known =
            targets.entry(name).or_insert_with(|| Listed { name: name.to_owned(), labels: labels.collect(), scraped, namesakes: 0 });
        known.namesakes += 1;
    }
    Ok((targets.into_values().collect(), now))
}

/// Asks for the moment of each target's last scrape. Targets that Prometheus no longer scrapes have none, at once.
pub(super) fn list_query(matchers: &str) -> String {
    format!("timestamp({UP}{{{matchers}}})")
}

/// Asks for the raw samples of the families in the last seconds.
pub(super) fn samples_query(matchers: &str, families: &[&str], seconds: u64) -> String {
    // Each family under both spellings, as the reader of pages takes it; a counter with and without its ending.
    let mut names = BTreeSet::new();
    for family in families {
        let stem = family.strip_suffix("_total").filter(|stem| !stem.is_empty()).unwrap_or(family);
        // A histogram may be called `x_total`, and then has series `x_total_sum`.
        for name in [stem, family] {
            // Other characters may mean something in a pattern; a family too many does no harm.
            let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | ':') { c } else { '.' }).collect();
            names.insert(name.replace(':', "_"));
            names.insert(name);
        }
    }
    let names: Vec<String> = names.into_iter().collect();
    format!("{{__name__=~\"{UP}|(?:{})(?:_total|_bucket|_sum|_count|_created)?\",{matchers}}}[{seconds}s]", names.join("|"))
}

/// What Prometheus has of a target's last scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scrape {
    /// The page, as far as it was asked for. Ends with a line end, or is empty.
    pub page: String,
    /// Whether there was one; `None` where `up` does not say.
    pub up: Option<bool>,
}

/// The last scrape of each of `targets`, in their order.
pub(super) fn scrapes(series: &[Series<'_>], targets: &[Listed], target_label: &str) -> Vec<Scrape> {
    let place: BTreeMap<&str, usize> = targets
        .iter()
        .enumerate()
        .filter(|(_, target)| target.namesakes == 1)
        .map(|(place, target)| (target.name.as_str(), place))
        .collect();
    let mut scrapes = vec![Scrape::default(); targets.len()];
    for Series { metric, values, .. } in series {
        let (Some(name), Some(target)) = (metric.get(NAME), metric.get(target_label)) else { continue };
        let Some(&place) = place.get(target.0.as_ref()) else { continue };
        let (target, scrape) = (&targets[place], &mut scrapes[place]);
        let of_scrape = |(at, _): &&(f64, Text<'_>)| (at - target.scraped).abs() < SAME_MOMENT;
        let Some((_, value)) = values.iter().rev().find(of_scrape) else { continue };
        if name.0 == UP {
            scrape.up = Some(value.0 == "1");
        } else {
            line(&mut scrape.page, &name.0, metric, &target.labels, &value.0);
        }
    }
    scrapes
}

/// Writes one sample as the target wrote it.
fn line(page: &mut String, name: &str, metric: &BTreeMap<Text<'_>, Text<'_>>, added: &BTreeMap<String, String>, value: &str) {
    let mut before = '{';
    if is_legacy(name) {
        page.push_str(name);
    } else {
        page.push('{');
        quoted(page, name);
        before = ',';
    }
    for (name, value) in metric.iter().map(|(name, value)| (name.0.as_ref(), value.0.as_ref())) {
        if name == NAME || added.get(name).is_some_and(|added| added == value) {
            continue;
        }
        let name = name.strip_prefix(EXPORTED).filter(|own| added.contains_key(*own)).unwrap_or(name);
        page.push(before);
        before = ',';
        if is_legacy(name) {
            page.push_str(name)
        } else {
            quoted(page, name)
        }
        page.push('=');
        quoted(page, value);
    }
    if before == ',' {
        page.push('}');
    }
    page.push(' ');
    page.push_str(value);
    page.push('\n');
}

/// Whether a name is written without quotes.
fn is_legacy(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'))
}

fn quoted(page: &mut String, text: &str) {
    page.push('"');
    for character in text.chars() {
        match character {
            '\\' => page.push_str("\\\\"),
            '"' => page.push_str("\\\""),
            '\n' => page.push_str("\\n"),
            other => page.push(other),
        }
    }
    page.push('"');
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
