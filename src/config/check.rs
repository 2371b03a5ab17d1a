//! Does every key exist, and is every value of its kind? Walks a tree along the table and keeps what is right, typed.
//!
//! Nothing stops at the first mistake. A wrong value is remembered as wrong, so that no later rule also calls it missing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::value::Value as Layered;

use super::layers::{self, Layer, Merged};
use super::problem::Problem;
use super::schema::{self, Fallback, Key, Kind};
use super::tree::{self, Node, Place};
use super::{Shard, TargetConfig, flags, scalar};

/// A value of the right kind.
#[derive(Clone, Debug, PartialEq)]
enum Scalar {
    Section,
    List(usize),
    Text(String),
    Switch(bool),
    Count(u64),
    Number(f64),
    Span(Duration),
    Address(SocketAddr),
    Shard(Shard),
    Target(TargetConfig),
    Map(BTreeMap<String, String>),
    /// Since the Unix epoch.
    Moment(Duration),
}

struct Entry {
    scalar: Scalar,
    layer: Layer,
    at: Option<Place>,
}

/// What was written, typed, by concrete path; and what is wrong so far.
pub(super) struct Values {
    table: &'static [Key],
    file: Option<PathBuf>,
    entries: BTreeMap<String, Entry>,
    wrong: BTreeSet<String>,
    /// The keys that misspelt ones were probably meant to be.
    meant: Vec<String>,
    problems: Vec<Problem>,
}

impl Values {
    /// Checks the merged layers; `file` is the tree that knows the positions.
    pub(super) fn of_layers(table: &'static [Key], merged: &Merged, path: Option<&Path>, file: Option<&Node>) -> Self {
        let mut values = Self::empty(table, path);
        values.visit("", &merged.root(), file, None, &|value| merged.layer(value));
        values.spare_what_was_meant();
        values
    }

    /// Checks a single file.
    pub(super) fn of_file(table: &'static [Key], root: &Layered, path: &Path, file: &Node) -> Self {
        let mut values = Self::empty(table, Some(path));
        values.visit("", root, Some(file), None, &|_| Layer::File);
        values.spare_what_was_meant();
        values
    }

    fn empty(table: &'static [Key], path: Option<&Path>) -> Self {
        Self {
            table,
            file: path.map(Path::to_owned),
            entries: BTreeMap::new(),
            wrong: BTreeSet::new(),
            meant: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// What was misspelt is not missing; and where it has a default, that is not what was asked for.
    fn spare_what_was_meant(&mut self) {
        for path in std::mem::take(&mut self.meant) {
            if self.entries.get(&path).is_none_or(|entry| entry.layer == Layer::Default) {
                self.entries.remove(&path);
                self.wrong.insert(path);
            }
        }
    }

    fn visit(&mut self, path: &str, value: &Layered, node: Option<&Node>, key_at: Option<Place>, layer: &dyn Fn(&Layered) -> Layer) {
        let from = layer(value);
        let at = node.and_then(|node| node.at).or(key_at);
        // The root of the configuration is a section without a row.
        let kind = match schema::find(self.table, path) {
            Some(key) => key.kind,
            None if path.is_empty() => Kind::Section,
            None => return self.refuse_unknown(path, key_at.or(at), from),
        };
        match (kind, value) {
            (Kind::Later, _) => {
                self.refuse(path, key_at.or(at), from, "not supported yet by this version; leave it out".to_owned());
            }
            (Kind::Section, Layered::Dict(_, dict)) => {
                self.keep(path, Scalar::Section, from, at);
                for (name, child) in dict {
                    let entry = node.and_then(|node| node.entry(name));
                    let place = entry.and_then(|(key, _)| key.at);
                    self.visit(&tree::join(path, name), child, entry.map(|(_, node)| node), place, layer);
                }
            }
            (Kind::List, Layered::Array(_, items)) => {
                self.keep(path, Scalar::List(items.len()), from, at);
                for (index, item) in items.iter().enumerate() {
                    self.visit(&format!("{path}[{index}]"), item, node.and_then(|node| node.element(index)), at, layer);
                }
            }
            (Kind::Map, Layered::Dict(_, dict)) => match texts(dict) {
                Ok(map) => self.keep(path, Scalar::Map(map), from, at),
                Err(message) => self.refuse(path, at, from, message),
            },
            _ => match read(kind, value, from) {
                Ok(scalar) => self.keep(path, scalar, from, at),
                Err(message) => self.refuse(path, at, from, message),
            },
        }
    }

    fn keep(&mut self, path: &str, scalar: Scalar, layer: Layer, at: Option<Place>) {
        self.entries.insert(path.to_owned(), Entry { scalar, layer, at });
    }

    fn refuse(&mut self, path: &str, at: Option<Place>, layer: Layer, message: String) {
        self.wrong.insert(path.to_owned());
        self.add(path, at, layer, message);
    }

    fn refuse_unknown(&mut self, path: &str, at: Option<Place>, layer: Layer) {
        let template = schema::template(path);
        let (section, name) = template.rsplit_once('.').unwrap_or(("", &template));
        let known = schema::members(self.table, section).filter(|(key, _)| !matches!(key.kind, Kind::Later));
        let nearest = schema::nearest(name, known.map(|(_, name)| name));
        let mut hint = nearest.map_or(String::new(), |name| format!("; did you mean {name}?"));
        if let Some(nearest) = nearest {
            self.meant.push(tree::join(path.rsplit_once('.').map_or("", |(section, _)| section), nearest));
        } else {
            let ending = format!(".{name}");
            let elsewhere = self.table.iter().find(|key| key.path.ends_with(&ending) && !matches!(key.kind, Kind::Later));
            hint = elsewhere.map_or(String::new(), |key| format!("; {name} belongs at {}", key.path));
        }
        self.refuse(path, at, layer, format!("no such key{hint}"));
    }

    fn add(&mut self, path: &str, at: Option<Place>, layer: Layer, message: String) {
        self.problems.push(match (layer, &self.file) {
            (Layer::Variable, _) => Problem::outside(&layers::variable(path), message),
            (Layer::Flag, _) => Problem::outside(flags::flag_of(path).unwrap_or(path), message),
            (_, file) => Problem { key: path.to_owned(), location: at, file: file.clone(), message },
        });
    }

    /// Adds a problem at a key; where nothing is written there, at what holds it.
    pub(super) fn problem(&mut self, path: &str, message: impl Into<String>) {
        let problem = self.describe(path, message.into());
        self.problems.push(problem);
    }

    /// The problem or warning that a key's place and this message make.
    pub(super) fn describe(&self, path: &str, message: String) -> Problem {
        let mut scratch = Self::empty(self.table, self.file.as_deref());
        let (at, layer) = self.nearest(path);
        scratch.add(path, at, layer, message);
        scratch.problems.swap_remove(0)
    }

    fn nearest(&self, path: &str) -> (Option<Place>, Layer) {
        let mut path = path;
        loop {
            match self.entries.get(path) {
                // A default has no place; what holds it may.
                Some(entry) if entry.layer != Layer::Default || entry.at.is_some() => return (entry.at, entry.layer),
                _ => {}
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return self.entries.get("").map_or((None, Layer::File), |root| (root.at, Layer::File)),
            }
        }
    }

    /// All problems so far.
    pub(super) fn take_problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems)
    }

    /// Whether the key is written, rightly or wrongly.
    pub(super) fn is_written(&self, path: &str) -> bool {
        self.entries.get(path).is_some_and(|entry| entry.layer != Layer::Default) || self.is_wrong(path)
    }

    /// Whether the key, or something that holds it, is written wrongly: then nobody may call it missing.
    pub(super) fn is_wrong(&self, path: &str) -> bool {
        self.wrong.iter().any(|wrong| path.strip_prefix(wrong.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])))
    }

    /// Where the value came from; the file where nothing is written.
    pub(super) fn layer(&self, path: &str) -> Layer {
        self.nearest(path).1
    }

    /// The value, or the table's default. A missing required key becomes a problem.
    fn get(&mut self, path: &str) -> Option<Scalar> {
        if let Some(entry) = self.entries.get(path) {
            return Some(entry.scalar.clone());
        }
        // What was written wrongly has no value: rules that need it would speak of a default that nobody asked for.
        if self.is_wrong(path) {
            return None;
        }
        let key = schema::find(self.table, path);
        debug_assert!(key.is_some(), "{path} is not in the table");
        match key?.fallback {
            Fallback::Value(text) => read(key?.kind, &Layered::from(text), Layer::Default).ok(),
            Fallback::Required => {
                self.wrong.insert(path.to_owned());
                self.problem(path, format!("required: expected {}", expected(key?.kind)));
                None
            }
            _ => None,
        }
    }

    pub(super) fn len(&mut self, path: &str) -> usize {
        if let Some(Scalar::List(len)) = self.get(path) { len } else { 0 }
    }

    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        if let Some(Scalar::Text(text)) = self.get(path) { Some(text) } else { None }
    }

    pub(super) fn shard(&mut self, path: &str) -> Option<Shard> {
        if let Some(Scalar::Shard(shard)) = self.get(path) { Some(shard) } else { None }
    }

    pub(super) fn switch(&mut self, path: &str) -> Option<bool> {
        if let Some(Scalar::Switch(value)) = self.get(path) { Some(value) } else { None }
    }

    pub(super) fn count(&mut self, path: &str) -> Option<u64> {
        if let Some(Scalar::Count(value)) = self.get(path) { Some(value) } else { None }
    }

    pub(super) fn number(&mut self, path: &str) -> Option<f64> {
        if let Some(Scalar::Number(value)) = self.get(path) { Some(value) } else { None }
    }

    pub(super) fn span(&mut self, path: &str) -> Option<Duration> {
        if let Some(Scalar::Span(value)) = self.get(path) { Some(value) } else { None }
    }

    pub(super) fn address(&mut self, path: &str) -> Option<SocketAddr> {
        if let Some(Scalar::Address(value)) = self.get(path) { Some(value) } else { None }
    }

    pub(super) fn target(&mut self, path: &str) -> Option<TargetConfig> {
        if let Some(Scalar::Target(value)) = self.get(path) { Some(value) } else { None }
    }

    pub(super) fn map(&mut self, path: &str) -> BTreeMap<String, String> {
        if let Some(Scalar::Map(map)) = self.get(path) { map } else { BTreeMap::new() }
    }

    pub(super) fn moment(&mut self, path: &str) -> Option<Duration> {
        if let Some(Scalar::Moment(value)) = self.get(path) { Some(value) } else { None }
    }
}

/// The texts of a map. Numbers and switches are texts here, as in Prometheus' files. A refused value is not repeated: it may be a secret.
fn texts(dict: &figment::value::Dict) -> Result<BTreeMap<String, String>, String> {
    let text = |(name, value): (&String, &Layered)| match value {
        Layered::String(_, text) => Ok((name.clone(), text.clone())),
        Layered::Num(..) | Layered::Bool(..) => Ok((name.clone(), shown(value))),
        _ => Err(format!("expected a text for {name:?}, got something else")),
    };
    dict.iter().map(text).collect()
}

/// The value of a kind, or the sentence that refuses it.
fn read(kind: Kind, value: &Layered, layer: Layer) -> Result<Scalar, String> {
    let refused = || format!("expected {}, got {}", expected(kind), shown(value));
    if let Layered::String(_, text) = value
        && let Some(what) = text.strip_prefix(scalar::PLACEHOLDER)
    {
        return Err(format!("still to be filled in{what}"));
    }
    // Variables and defaults are text whatever they mean; a file has types.
    let untyped = layer != Layer::File;
    match (kind, value) {
        (Kind::Switch, Layered::Bool(_, value)) => Ok(Scalar::Switch(*value)),
        (Kind::Switch, Layered::String(_, text)) if untyped => text.trim().parse().map(Scalar::Switch).map_err(|_| refused()),
        (Kind::Count(low, high), Layered::String(_, text)) if untyped => {
            let count = text.trim().parse().ok().filter(|count| (low..=high).contains(count));
            count.map(Scalar::Count).ok_or_else(refused)
        }
        (Kind::Count(low, high), Layered::Num(_, number)) => {
            let count = whole(number).filter(|count| (low..=high).contains(count));
            count.map(Scalar::Count).ok_or_else(refused)
        }
        (Kind::Number(most), Layered::String(_, text)) if untyped => {
            let number = text.trim().parse().ok().filter(|number| (0.0..=most).contains(number));
            number.map(Scalar::Number).ok_or_else(refused)
        }
        (Kind::Number(most), Layered::Num(_, number)) => {
            let number =
                number.to_f64().or_else(|| number.to_i128().map(|whole| whole as f64)).filter(|number| (0.0..=most).contains(number));
            number.map(Scalar::Number).ok_or_else(refused)
        }
        (Kind::Port, Layered::Num(_, number)) => {
            let port = whole(number).filter(|port| (1..=65_535).contains(port));
            port.map(|port| Scalar::Text(port.to_string())).ok_or_else(refused)
        }
        (Kind::Bytes(low), Layered::Num(_, number)) => whole(number).filter(|count| *count >= low).map(Scalar::Count).ok_or_else(refused),
        (Kind::Bytes(low), Layered::String(_, text)) => {
            scalar::bytes(text).ok().filter(|count| *count >= low).map(Scalar::Count).ok_or_else(refused)
        }
        (_, Layered::String(_, text)) => read_text(kind, text, refused),
        _ => Err(refused()),
    }
}

fn read_text(kind: Kind, text: &str, refused: impl Fn() -> String) -> Result<Scalar, String> {
    match kind {
        Kind::Text | Kind::Path | Kind::Port if text.trim().is_empty() => Err(refused()),
        Kind::Text | Kind::Path | Kind::Port => Ok(Scalar::Text(text.to_owned())),
        Kind::Label => scalar::label_value(text).map(Scalar::Text),
        Kind::Address => scalar::address(text).map(Scalar::Address),
        Kind::Shard => Shard::parse(text).map(Scalar::Shard),
        Kind::Proxy => scalar::proxy(text).map(Scalar::Text),
        Kind::Target => scalar::target(text).map(Scalar::Target),
        Kind::Url => scalar::plain_url(text).map(Scalar::Text),
        Kind::Span(least) => scalar::span_of_at_least(text, Duration::from_micros(least)).map(Scalar::Span),
        Kind::Moment => moment(text).map(Scalar::Moment).ok_or_else(refused),
        Kind::Choice(known, _) if known().contains(&text) => Ok(Scalar::Text(text.to_owned())),
        Kind::Choice(_, later) if later.contains(&text) => Err(format!("{text} is not supported yet by this version; {}", refused())),
        Kind::Choice(known, _) => Err(format!("{}{}", refused(), schema::hint(text, known().into_iter()))),
        Kind::Engine if schema::engines().contains(&text) => Ok(Scalar::Text(text.to_owned())),
        Kind::Engine => Err(format!("{}{}", refused(), schema::hint(text, schema::engines().into_iter()))),
        Kind::Section | Kind::List | Kind::Switch | Kind::Count(..) | Kind::Number(_) | Kind::Bytes(_) | Kind::Map | Kind::Later => {
            Err(refused())
        }
    }
}

fn moment(text: &str) -> Option<Duration> {
    let moment: jiff::Timestamp = text.trim().parse().ok()?;
    Duration::try_from(moment.duration_since(jiff::Timestamp::UNIX_EPOCH)).ok()
}

fn whole(number: &figment::value::Num) -> Option<u64> {
    number.to_i128().and_then(|number| u64::try_from(number).ok()).or_else(|| number.to_u128().and_then(|number| number.try_into().ok()))
}

/// What a kind accepts, for messages and the reference.
pub(super) fn expected(kind: Kind) -> String {
    match kind {
        Kind::Section => "further keys below it".to_owned(),
        Kind::List => "a list".to_owned(),
        Kind::Text => "a text".to_owned(),
        Kind::Label => "a Kubernetes label value".to_owned(),
        Kind::Path => "a path".to_owned(),
        Kind::Address => "an IP address and a port such as 0.0.0.0:10877".to_owned(),
        Kind::Shard => "one of several exporters such as 0/3".to_owned(),
        Kind::Proxy => "a URL such as http://proxy.internal:3128".to_owned(),
        Kind::Target => "a URL such as http://10.0.0.11:8000/metrics".to_owned(),
        Kind::Url => "a URL such as http://inventory.internal/targets".to_owned(),
        Kind::Map => "names, each with a text".to_owned(),
        Kind::Port => "a port's name or number".to_owned(),
        Kind::Switch => "true or false".to_owned(),
        Kind::Count(low, high) => format!("a whole number from {low} to {high}"),
        Kind::Number(most) => format!("a number from 0 to {most}"),
        Kind::Bytes(low) => format!("a number of bytes such as 8388608 or 8MiB, at least {}", scalar::bytes_text(low)),
        Kind::Span(least) => {
            let least = Duration::from_micros(least);
            let example = if least < Duration::from_secs(1) { "500ms" } else { "30s" };
            format!("a duration such as {example}, at least {}", humantime::format_duration(least))
        }
        Kind::Moment => "a moment such as 2026-01-31T18:00:00Z".to_owned(),
        Kind::Choice(known, _) => one_of(&known()),
        Kind::Engine => one_of(&schema::engines()),
        Kind::Later => String::new(),
    }
}

/// Words as a sentence has them.
pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
        [] => "nothing".to_owned(),
    }
}

/// A value as it was given, cut where it is long, without credentials.
fn shown(value: &Layered) -> String {
    const LONG: usize = 80;
    match value {
        Layered::String(_, text) => {
            let text = scalar::hide_userinfo(text);
            let cut: String = text.chars().take(LONG).collect();
            if cut.len() < text.len() { format!("{cut:?} and more") } else { format!("{cut:?}") }
        }
        Layered::Bool(_, value) => value.to_string(),
        Layered::Char(_, value) => format!("{value:?}"),
        Layered::Num(_, number) => match (number.to_i128(), number.to_f64()) {
            (Some(whole), _) => whole.to_string(),
            (None, Some(fraction)) => fraction.to_string(),
            (None, None) => "a number".to_owned(),
        },
        Layered::Empty(..) => "nothing".to_owned(),
        Layered::Dict(..) => "a section".to_owned(),
        Layered::Array(..) => "a list".to_owned(),
    }
}
