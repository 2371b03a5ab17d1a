//! Which of what was found is a target, and which page of it? Labels, `keep` and `drop`, each target once.

use std::collections::BTreeMap;

use regex_lite::Regex;
use serde::Deserialize;

use super::Looked;
use crate::config::{DiscoveryConfig, TargetConfig, found_target, whole};
use crate::units::TargetId;

/// Most targets of one source: a wrong list must not open a hundred thousand sockets.
pub(super) const MOST_TARGETS: usize = 10_000;

/// A place that a way found, with what is said of it.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Host and port.
    pub address: String,
    pub labels: BTreeMap<String, String>,
}

/// A group of Prometheus' target lists.
#[derive(Debug, Deserialize)]
pub(super) struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

/// The places that groups name.
pub(super) fn places(groups: Vec<Group>) -> impl Iterator<Item = Found> {
    groups.into_iter().flat_map(|group| {
        let labels = group.labels.unwrap_or_default();
        group.targets.into_iter().map(move |address| Found { address, labels: labels.clone() })
    })
}

/// Makes targets of places.
#[derive(Debug)]
pub(super) struct Sieve {
    scheme: String,
    path: String,
    keep: Vec<(String, Regex)>,
    drop: Vec<(String, Regex)>,
}

impl Sieve {
    pub(super) fn new(config: &DiscoveryConfig) -> Self {
        let rules = |map: &BTreeMap<String, String>| {
            // A checked configuration holds sound patterns only.
            map.iter().filter_map(|(label, pattern)| Some((label.clone(), Regex::new(&whole(pattern)).ok()?))).collect()
        };
        Self { scheme: config.scheme.clone(), path: config.path.clone(), keep: rules(&config.keep), drop: rules(&config.drop) }
    }

    /// The targets among the places, sorted by name, each once. One that cannot be read refuses all: a list that is half right is not a
    /// smaller fleet.
    pub(super) fn sift(&self, found: impl IntoIterator<Item = Found>) -> Result<Looked, String> {
        let mut targets: BTreeMap<TargetId, TargetConfig> = BTreeMap::new();
        let mut note = None;
        for Found { address, mut labels } in found {
            // The place's own address wins over one that its group claims, as in Prometheus.
            labels.insert("__address__".to_owned(), address);
            if !self.accepts(&labels) {
                continue;
            }
            let label =
                |name: &str, default: &str| labels.get(name).filter(|text| !text.is_empty()).map_or(default.to_owned(), Clone::clone);
            let (scheme, path) = (label("__scheme__", &self.scheme), label("__metrics_path__", &self.path));
            if !matches!(scheme.as_str(), "http" | "https") || !path.starts_with('/') {
                return Err("a target has a __scheme__ or __metrics_path__ that is none; expected http or https, and /PATH".to_owned());
            }
            let target = found_target(&scheme, &labels["__address__"], &path)?;
            if let Some(twin) = twin(targets.entry(target.target.clone()).or_insert_with(|| target.clone()), &target) {
                note.get_or_insert(twin);
            }
            if targets.len() > MOST_TARGETS {
                return Err(format!("expected at most {MOST_TARGETS} targets, got more"));
            }
        }
        Ok(Looked { note, ..Looked::from(targets.into_values().collect::<Vec<_>>()) })
    }

    /// Whether a place is kept and not dropped, whatever page of it is a target.
    #[cfg(feature = "kubernetes")]
    pub(super) fn takes(&self, found: &Found) -> bool {
        let mut labels = found.labels.clone();
        labels.insert("__address__".to_owned(), found.address.clone());
        self.accepts(&labels)
    }

    fn accepts(&self, labels: &BTreeMap<String, String>) -> bool {
        // A label that is not there is an empty text, as in Prometheus.
        let matches = |(label, pattern): &(String, Regex)| pattern.is_match(labels.get(label).map_or("", String::as_str));
        self.keep.iter().all(matches) && !self.drop.iter().any(matches)
    }
}

/// What is told where two places have one name and are not the same page: the first is asked. A query may be a token and is no part of a name.
pub(super) fn twin(first: &TargetConfig, other: &TargetConfig) -> Option<String> {
    let differ = || {
        format!(
            "target {} was found twice, with another query or scheme; only the first is asked: targets are told apart by host, port and path",
            first.target
        )
    };
    (first.url != other.url).then(differ)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Way;

    fn sieve(keep: &[(&str, &str)], drop: &[(&str, &str)]) -> Sieve {
        let map = |rules: &[(&str, &str)]| rules.iter().map(|(label, pattern)| ((*label).to_owned(), (*pattern).to_owned())).collect();
        Sieve::new(&DiscoveryConfig {
            way: Way::Http { url: "http://h/".to_owned() },
            refresh: std::time::Duration::from_secs(1),
            scheme: "http".to_owned(),
            path: "/metrics".to_owned(),
            keep: map(keep),
            drop: map(drop),
        })
    }

    fn found(address: &str, labels: &[(&str, &str)]) -> Found {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Found { address: address.to_owned(), labels }
    }

    fn urls(looked: Result<Looked, String>) -> Vec<String> {
        looked.unwrap().targets.into_iter().map(|target| target.url).collect()
    }

    #[test]
    fn labels_say_scheme_and_page_and_a_target_counts_once() {
        let labels = [("__scheme__", "https"), ("__metrics_path__", "/prometheus/metrics")];
        let places = [found("b:1", &[]), found("a:1", &labels), found("b:1", &[("zone", "z")]), found("[::1]:9", &[])];
        let expected = ["http://[::1]:9/metrics", "https://a:1/prometheus/metrics", "http://b:1/metrics"];
        assert_eq!(urls(sieve(&[], &[]).sift(places)), expected);
    }

    #[test]
    fn targets_that_differ_in_their_query_only_are_told_without_it() {
        let page = |query: &str| format!("/metrics?token={query}");
        let (first, second) = (page("hunter2"), page("hunter3"));
        let place = |path: &str| found("a:1", &[("__metrics_path__", path)]);
        let looked = sieve(&[], &[]).sift([place(&first), place(&second), place(&first)]).unwrap();
        assert_eq!(looked.targets.len(), 1);
        assert!(looked.targets[0].url.ends_with("hunter2"));
        let note = looked.note.unwrap();
        assert!(note.contains("target a:1/metrics was found twice") && !note.contains("hunter"), "{note}");
        assert_eq!(sieve(&[], &[]).sift([place(&first), place(&first)]).unwrap().note, None);
    }

    #[test]
    fn patterns_match_the_whole_label_or_not_at_all() {
        let places = || [found("a:1", &[("role", "decode")]), found("b:1", &[("role", "decode-old")]), found("c:1", &[])];
        assert_eq!(urls(sieve(&[("role", "decode")], &[]).sift(places())), ["http://a:1/metrics"]);
        assert_eq!(urls(sieve(&[], &[("role", "decode|x")]).sift(places())), ["http://b:1/metrics", "http://c:1/metrics"]);
        assert_eq!(urls(sieve(&[("role", "")], &[]).sift(places())), ["http://c:1/metrics"]);
        assert_eq!(urls(sieve(&[("__address__", "(a|b):1")], &[("role", ".*-old")]).sift(places())), ["http://a:1/metrics"]);
    }

    #[test]
    fn one_bad_place_refuses_the_list_without_telling_credentials() {
        for address in ["", "http://a:1/metrics", "user:secret@a:1", "a b:1", "a:99999"] {
            let refused = sieve(&[], &[]).sift([found("ok:1", &[]), found(address, &[])]).unwrap_err();
            assert!(!refused.contains("secret"), "{refused}");
        }
        assert!(sieve(&[], &[]).sift([found("a:1", &[("__scheme__", "ftp")])]).is_err());
    }
}
