//! What does a Dynamo planner configuration say? Its fields, typed by the table, with the place of each; and what is wrong with them.
//!
//! As tolerant as Dynamo's own reader: a number may stand in quotes, `yes` is true. It is stricter where that one is silent: a misspelt field
//! and a field under two of its names are problems.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::fields::{self, FIELDS, Field, Kind};
use crate::config::problem::Problem;
use crate::config::tree::{self, Key, Node, Place, Value};
use crate::config::{check, scalar, schema};

/// Where the planner's part stands in a request for a deployment, and in the part of it that people keep.
const HOLDERS: [&[&str]; 2] = [&["spec", "features", "planner"], &["features", "planner"]];
/// The model of such a request, beside its features.
const MODEL: &str = "model";
/// Longest value that is repeated, characters.
const LONG: usize = 80;

/// A value of the right kind.
#[derive(Clone, Debug, PartialEq)]
enum Datum {
    Null,
    Whole(i64),
    Number(f64),
    Switch(bool),
    Text(String),
    /// Not looked into.
    Structure(Node),
}

struct Written {
    /// The name in the file.
    name: String,
    at: Option<Place>,
    datum: Datum,
    shown: String,
}

/// What the file says.
pub(super) struct Fields {
    file: PathBuf,
    /// In front of every field's name in problems: `spec.features.planner.`.
    prefix: String,
    at: Option<Place>,
    written: BTreeMap<&'static str, Written>,
    /// Fields whose values were refused, by the name that is in the file.
    wrong: BTreeMap<&'static str, String>,
    /// The model that a request for a deployment names.
    pub model: Option<String>,
    /// What else stands in such a request.
    pub beside: Vec<String>,
    problems: Vec<Problem>,
}

impl Fields {
    /// Reads a document: the configuration itself, or a request for a deployment that holds one.
    pub(super) fn of(file: &Path, root: &Node) -> Self {
        let mut fields = Self {
            file: file.to_owned(),
            prefix: String::new(),
            at: root.at,
            written: BTreeMap::new(),
            wrong: BTreeMap::new(),
            model: None,
            beside: Vec::new(),
            problems: Vec::new(),
        };
        match HOLDERS.iter().find_map(|path| Some((*path, descend(root, path)?))) {
            Some((path, planner)) => {
                fields.at = planner.at;
                fields.request(root, path);
                fields.prefix = format!("{}.", path.join("."));
                fields.section(planner, "");
            }
            None => fields.section(root, ""),
        }
        fields
    }

    /// The parts of a request that stand beside the planner's.
    fn request(&mut self, root: &Node, path: &[&str]) {
        let (mut node, mut prefix) = (root, String::new());
        for step in path {
            let Value::Map(entries) = &node.value else { return };
            for (key, child) in entries.iter().filter(|(key, _)| key.text != *step) {
                match &child.value {
                    Value::Text(model) if key.text == MODEL && self.model.is_none() => self.model = Some(model.clone()),
                    _ => self.beside.push(single_line(&tree::join(&prefix, &key.text))),
                }
            }
            let Some((_, child)) = node.entry(step) else { return };
            (node, prefix) = (child, tree::join(&prefix, step));
        }
    }

    fn section(&mut self, node: &Node, prefix: &str) {
        let entries = match &node.value {
            Value::Map(entries) => entries,
            Value::Null => return,
            _ => {
                let message = "expected the fields of Dynamo's planner configuration, got a single value or a list".to_owned();
                return self.add(prefix.trim_end_matches('.'), node.at, message);
            }
        };
        if prefix.is_empty() && self.is_another_document(entries) {
            return;
        }
        for (key, child) in entries {
            let name = format!("{prefix}{}", key.text);
            match fields::find(&name) {
                None => self.unknown(prefix, key),
                Some(Field { kind: Kind::Section, .. }) => self.section(child, &format!("{name}.")),
                Some(field) => self.field(field, name, key, child),
            }
        }
    }

    /// Says once of another object of Kubernetes that it is none of ours, instead of refusing each of its fields.
    fn is_another_document(&mut self, entries: &[(Key, Node)]) -> bool {
        let text = |name: &str| match entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| &node.value) {
            Some(Value::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        let (Some(kind), Some(_)) = (text("kind"), text("apiVersion")) else { return false };
        let hint = if kind == "ConfigMap" { "; the configuration is the text of one of its keys" } else { "" };
        let message = format!(
            "expected Dynamo's planner configuration, or a DynamoGraphDeploymentRequest with spec.features.planner, got kind {kind:?} \
             without it{hint}"
        );
        self.add("", self.at, message);
        true
    }

    fn unknown(&mut self, prefix: &str, key: &Key) {
        let known = FIELDS.iter().flat_map(Field::names).filter_map(|name| name.strip_prefix(prefix)).filter(|name| !name.contains('.'));
        let message = format!("Dynamo's planner has no such field{}", schema::hint(&key.text, known));
        self.add(&format!("{prefix}{}", key.text), key.at, message);
    }

    fn field(&mut self, field: &'static Field, name: String, key: &Key, node: &Node) {
        let first = self.written.get(field.name).map(|written| &written.name).or_else(|| self.wrong.get(field.name));
        if let Some(first) = first {
            let message = format!("the same field as {first}, which is written as well; keep one");
            return self.add(&name, key.at, message);
        }
        match datum(field, node) {
            Some(datum) => {
                let written = Written { name, at: node.at.or(key.at), datum, shown: shown(field, node) };
                self.written.insert(field.name, written);
            }
            None => {
                let hint = match (field.kind, &node.value) {
                    (Kind::Choice(words), Value::Text(word)) => schema::hint(word, words.iter().copied()),
                    _ => String::new(),
                };
                let message = format!("expected {}, got {}{hint}", expected(field), shown(field, node));
                self.wrong.insert(field.name, name.clone());
                self.add(&name, node.at.or(key.at), message);
            }
        }
    }

    fn add(&mut self, name: &str, at: Option<Place>, message: String) {
        let key = format!("{}{name}", self.prefix);
        let key = key.trim_end_matches('.').to_owned();
        self.problems.push(Problem { key, location: at, file: Some(self.file.clone()), message });
    }

    /// Adds a problem at a field; where it is not written, at the beginning of the configuration.
    pub(super) fn problem(&mut self, name: &'static str, message: impl Into<String>) {
        let (written, at) = match self.written.get(name) {
            Some(written) => (written.name.clone(), written.at),
            None => (name.to_owned(), self.at),
        };
        self.add(&written, at, message.into());
    }

    /// All problems so far.
    pub(super) fn take_problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems)
    }

    /// Whether none of these has a problem: only then may a rule compare them.
    pub(super) fn are_right(&self, names: &[&'static str]) -> bool {
        names.iter().all(|name| !self.wrong.contains_key(name))
    }

    /// The rows of the fields that are written, in the order of the table.
    pub(super) fn written(&self) -> impl Iterator<Item = &'static Field> {
        FIELDS.iter().filter(|field| self.written.contains_key(field.name))
    }

    /// Whether a field is written, be it as `null`.
    pub(super) fn is_written(&self, name: &'static str) -> bool {
        self.written.contains_key(name)
    }

    /// Whether a field is written as `null`.
    pub(super) fn is_null(&self, name: &'static str) -> bool {
        self.written.get(name).is_some_and(|written| written.datum == Datum::Null)
    }

    /// A field as it is written, on one line and without secrets; Dynamo's default where it is not. What `key` and `value` say already is
    /// left out.
    pub(super) fn told(&self, name: &'static str, key: &str, value: &str) -> String {
        let (name, shown, default) = match self.written.get(name) {
            Some(written) => (written.name.as_str(), written.shown.as_str(), ""),
            None => (name, default_of(name), "Dynamo's default"),
        };
        let told = match (name == key, shown == value) {
            (true, true) => return default.to_owned(),
            (_, true) => name.to_owned(),
            _ => format!("{name}: {shown}"),
        };
        if default.is_empty() { told } else { format!("{told} ({default})") }
    }

    /// A whole number; `None` where it is null.
    pub(super) fn whole(&self, name: &'static str) -> Option<i64> {
        match self.written.get(name).map(|written| &written.datum) {
            Some(Datum::Whole(value)) => Some(*value),
            Some(_) => None,
            None => default_of(name).parse().ok(),
        }
    }

    /// A number; `None` where it is null.
    pub(super) fn number(&self, name: &'static str) -> Option<f64> {
        match self.written.get(name).map(|written| &written.datum) {
            Some(Datum::Number(value)) => Some(*value),
            Some(_) => None,
            None => default_of(name).parse().ok(),
        }
    }

    /// A switch.
    pub(super) fn switch(&self, name: &'static str) -> bool {
        match self.written.get(name).map(|written| &written.datum) {
            Some(datum) => *datum == Datum::Switch(true),
            None => default_of(name) == "true",
        }
    }

    /// A text; `None` where it is null.
    pub(super) fn text(&self, name: &'static str) -> Option<&str> {
        match self.written.get(name).map(|written| &written.datum) {
            Some(Datum::Text(text)) => Some(text),
            Some(_) => None,
            None => Some(default_of(name)).filter(|text| *text != "null"),
        }
    }

    /// What is not looked into, save by a rule of its own.
    pub(super) fn structure(&self, name: &'static str) -> Option<(&str, &Node)> {
        match self.written.get(name).map(|written| (written.name.as_str(), &written.datum)) {
            Some((name, Datum::Structure(node))) => Some((name, node)),
            _ => None,
        }
    }
}

fn default_of(name: &str) -> &'static str {
    fields::find(name).map_or("null", |field| field.default)
}

fn descend<'a>(root: &'a Node, path: &[&str]) -> Option<&'a Node> {
    path.iter().try_fold(root, |node, step| node.entry(step).map(|(_, child)| child))
}

/// The value of a field, or nothing where it is of another kind.
fn datum(field: &Field, node: &Node) -> Option<Datum> {
    if node.value == Value::Null {
        return field.nullable.then_some(Datum::Null);
    }
    match field.kind {
        Kind::Whole(least, most) => whole(&node.value).filter(|value| (least..=most).contains(value)).map(Datum::Whole),
        Kind::Positive => number(&node.value).filter(|value| *value > 0.0).map(Datum::Number),
        Kind::Range(least, most) => number(&node.value).filter(|value| (least..=most).contains(value)).map(Datum::Number),
        Kind::Switch => switch(&node.value).map(Datum::Switch),
        Kind::Text | Kind::Secret => text(&node.value).map(Datum::Text),
        Kind::Choice(words) => text(&node.value).filter(|word| words.contains(&word.as_str())).map(Datum::Text),
        Kind::Structure => matches!(node.value, Value::Map(_) | Value::List(_)).then(|| Datum::Structure(node.clone())),
        Kind::Section => None,
    }
}

fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(value) => i64::try_from(*value).ok(),
        // Exact in double precision; beyond that no range of the table reaches.
        Value::Float(value) if value.fract() == 0.0 && value.abs() < 1e15 => Some(*value as i64),
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Integer(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

fn switch(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::Integer(0) => Some(false),
        Value::Integer(1) => Some(true),
        Value::Text(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" | "t" | "y" => Some(true),
            "false" | "no" | "off" | "0" | "f" | "n" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

/// What a field accepts, for messages and the reference.
pub(super) fn expected(field: &Field) -> String {
    let value = match field.kind {
        Kind::Whole(least, most) if least < 0 && most > 65_535 => "a whole number".to_owned(),
        Kind::Whole(least, most) if most > 65_535 => format!("a whole number of at least {least}"),
        Kind::Whole(least, most) => format!("a whole number from {least} to {most}"),
        Kind::Positive => "a number above 0".to_owned(),
        Kind::Range(least, most) => format!("a number from {least} to {most}"),
        Kind::Switch => "true or false".to_owned(),
        Kind::Text | Kind::Secret => "a text".to_owned(),
        Kind::Choice(words) => check::one_of(words),
        Kind::Structure | Kind::Section => "further fields".to_owned(),
    };
    if field.nullable { format!("{value}, or null") } else { value }
}

/// A value on one line, cut where it is long, without secrets.
fn shown(field: &Field, node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        _ if matches!(field.kind, Kind::Secret) => "(hidden)".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Text(text) => single_line(&scalar::hide_secrets(text)),
        Value::List(_) => "[...]".to_owned(),
        Value::Map(_) => "{...}".to_owned(),
    }
}

/// A text that cannot end a comment or move a cursor.
fn single_line(text: &str) -> String {
    let cut: String = text.chars().take(LONG).collect();
    let more = if cut.len() < text.len() { "..." } else { "" };
    let plain = !cut.is_empty() && cut.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    if plain { format!("{cut}{more}") } else { format!("{cut:?}{more}") }
}
