//! What do the answers of Prometheus' API say? JSON in; the targets, and the page that each showed at its last scrape, out. Pure.
//!
//! Prometheus puts labels of its own on every series of a target, and keeps the page's label of the same name as `exported_NAME`. The series
//! `up` has exactly these labels, so that they can be taken off again: what comes out is the page that the target sent.
//!
//! All samples of one scrape, `up` among them, carry the moment of that scrape. Only samples of the moment of the last scrape make the page:
//! a series that the target has dropped since is not on it, however recently Prometheus saw it.

use std::collections::{BTreeMap, BTreeSet};

use super::json::{Series, Text, series};

/// The series that Prometheus writes with every scrape: 1 where the target gave a page.
pub(super) const UP: &str = "up";
const NAME: &str = "__name__";
/// What Prometheus puts before a label of the page that it needs for itself.
const EXPORTED: &str = "exported_";
/// Prometheus counts time in milliseconds, and writes it as a number of seconds.
const SAME_MOMENT: f64 = 0.000_6;

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
pub(super) fn listed(body: &[u8], target_label: &str) -> Result<(Vec<Listed>, f64), String> {
    let mut found = Vec::new();
    series(body, "vector", |series| found.push(series))?;
    let mut targets: BTreeMap<&str, Listed> = BTreeMap::new();
    let mut now = 0.0;
    for Series { metric, value, .. } in &found {
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
            // The colon of a name stands behind its first word.
            if !name.contains(':') {
                names.insert(name.replacen('_', ":", 1));
            }
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

/// The last scrape of each of `targets`, in their order, from an answer to [`samples_query`].
pub(super) fn scrapes(body: &[u8], targets: &[Listed], target_label: &str) -> Result<Vec<Scrape>, String> {
    let single = targets.iter().enumerate().filter(|(_, target)| target.namesakes == 1);
    let places: BTreeMap<&str, usize> = single.map(|(place, target)| (target.name.as_str(), place)).collect();
    let mut scrapes = vec![Scrape::default(); targets.len()];
    series(body, "matrix", |Series { metric, values, .. }| {
        let (Some(name), Some(target)) = (metric.get(NAME), metric.get(target_label)) else { return };
        let Some(&place) = places.get(target.0.as_ref()) else { return };
        let (target, scrape) = (&targets[place], &mut scrapes[place]);
        let of_scrape = |(at, _): &&(f64, Text<'_>)| (at - target.scraped).abs() < SAME_MOMENT;
        let Some((_, value)) = values.iter().rev().find(of_scrape) else { return };
        if name.0 == UP {
            scrape.up = Some(value.0 == "1");
        } else {
            line(&mut scrape.page, &name.0, &metric, &target.labels, &value.0);
        }
    })?;
    Ok(scrapes)
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
