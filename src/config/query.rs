//! Which Prometheus is asked instead of the targets, and for which of them? One `prometheus` section.

use std::time::Duration;

use super::check::Values;
use super::resolve::text;

/// The name of the section.
pub(super) const KEY: &str = "prometheus";

/// Prometheus itself forgets a silent target after five minutes.
const LONGEST_LOOKBACK: Duration = Duration::from_secs(600);

/// A server that answers Prometheus' queries, and what it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueryConfig {
    /// Its URL without the API's path, without credentials, and without a slash at its end.
    pub url: String,
    /// The selector with its braces: labels that `up` and the series of the targets have, and no name.
    pub selector: String,
    /// The label that names a target.
    pub target_label: String,
    /// A target whose last scrape is older is silent.
    pub lookback: Duration,
}

impl QueryConfig {
    /// The matchers of the selector, without its braces, and without a comma at their end.
    pub fn matchers(&self) -> &str {
        matchers(&self.selector).unwrap_or_default()
    }
}

/// Reads the section at `at`.
pub(super) fn read(values: &mut Values, at: &str) -> Option<QueryConfig> {
    let key = |name: &str| format!("{at}.{name}");
    let url = values.text(&key("url"));
    if url.as_deref().is_some_and(|url| url.contains(['?', '#'])) {
        values.problem(&key("url"), "expected the URL of a server such as http://prometheus:9090, got one with a query or a fragment");
    }
    let selector = values.text(&key("selector"));
    if let Some(selector) = selector.as_deref().filter(|selector| matchers(selector).is_none()) {
        let message = format!("expected labels of the targets such as {{job=\"vllm\"}}, without a metric's name, got {selector:?}");
        values.problem(&key("selector"), message);
    }
    let target_label = values.text(&key("target_label"));
    if let Some(label) = target_label.as_deref().filter(|label| *label == "__name__" || label.contains(char::is_whitespace)) {
        values.problem(&key("target_label"), format!("expected a label such as instance, got {label:?}"));
    }
    let lookback = values.span(&key("lookback"));
    if let Some(lookback) = lookback.filter(|lookback| *lookback > LONGEST_LOOKBACK) {
        values.problem(&key("lookback"), format!("expected at most {}, got {}", text(LONGEST_LOOKBACK), text(lookback)));
    }
    let url = url?.trim_end_matches('/').to_owned();
    Some(QueryConfig { url, selector: selector?.trim().to_owned(), target_label: target_label?, lookback: lookback? })
}

/// What stands between the braces. Whether it is right, the server says; this only sees that nothing else is written.
fn matchers(selector: &str) -> Option<&str> {
    let inner = selector.trim().strip_prefix('{')?.strip_suffix('}')?.trim().trim_end_matches(',');
    (inner.contains('=') || inner.contains('~')).then_some(inner).filter(|inner| !inner.contains("__name__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_labels_in_braces() {
        assert_eq!(matchers(" { job=\"a\", role!~\"b}\", } "), Some("job=\"a\", role!~\"b}\""));
        for refused in ["", "{}", "{ }", "up", "up{job=\"a\"}", "job=\"a\"", "{__name__=\"up\"}", "{job}"] {
            assert_eq!(matchers(refused), None, "{refused}");
        }
    }
}
