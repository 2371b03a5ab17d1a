//! What does the text say, and where? YAML, TOML and JSON become one tree whose nodes know their line and column.

use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use super::problem::Problem;

/// Deepest nesting of a document. Ours needs 7 levels; the reader recurses, so that a limit protects the stack.
const MAX_DEPTH: usize = 32;
/// Most nodes of a document, aliases expanded. A file with 1000 targets has about 1100.
const MAX_NODES: usize = 200_000;

/// A text with the name of the file that it came from. The name's ending tells the format: `yaml`, `yml`, `toml` or `json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// Where the text came from; relative paths in it start at this file's folder.
    pub path: PathBuf,
    /// The whole text.
    pub text: String,
}

/// Line and column, from 1.
pub(super) type Place = (usize, usize);

/// One value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub value: Value,
    pub at: Option<Place>,
}

/// What a document can hold. Dates and the like are text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file; a key may occur twice until [`drop_duplicates`] has run.
    Map(Vec<(Key, Node)>),
}

/// The key of a map entry and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub text: String,
    pub at: Option<Place>,
    /// Whether it came in through a YAML merge (`<<`), which an entry of the map itself overrides.
    merged: bool,
}

impl Node {
    /// The entry of that name.
    pub(super) fn entry(&self, name: &str) -> Option<&(Key, Node)> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(key, _)| key.text == name),
            _ => None,
        }
    }

    /// The element at that place of a list.
    pub(super) fn element(&self, index: usize) -> Option<&Node> {
        match &self.value {
            Value::List(items) => items.get(index),
            _ => None,
        }
    }
}

/// Reads a text by the format that its name tells. Duplicate keys come back as problems beside the tree; bad syntax leaves no tree.
pub(super) fn read(source: &SourceText) -> (Option<Node>, Vec<Problem>) {
    let SourceText { path, text } = source;
    // A byte order mark is legal in front of YAML only; editors write it in front of anything.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let tree = match ending.as_deref() {
        Some("yaml" | "yml") => read_yaml(path, text),
        Some("toml") => read_toml(path, text),
        Some("json") => read_json(path, text),
        _ => Err(Problem::syntax(path, None, "expected a file name that ends in .yaml, .yml, .toml or .json".to_owned())),
    };
    without_duplicates(tree, path)
}

/// Reads YAML, whatever its name says.
pub(super) fn read_as_yaml(source: &SourceText) -> (Option<Node>, Vec<Problem>) {
    let text = source.text.strip_prefix('\u{feff}').unwrap_or(&source.text);
    without_duplicates(read_yaml(&source.path, text), &source.path)
}

fn without_duplicates(tree: Result<Node, Problem>, path: &Path) -> (Option<Node>, Vec<Problem>) {
    match tree {
        Ok(mut node) => {
            let mut problems = Vec::new();
            drop_duplicates(&mut node, path, "", &mut problems);
            (Some(node), problems)
        }
        Err(problem) => (None, vec![problem]),
    }
}

/// Keeps the first of entries with the same key; the others become problems.
fn drop_duplicates(node: &mut Node, file: &Path, prefix: &str, problems: &mut Vec<Problem>) {
    match &mut node.value {
        Value::List(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                drop_duplicates(item, file, &format!("{prefix}[{index}]"), problems);
            }
        }
        Value::Map(entries) => {
            let mut seen: Vec<(Key, Node)> = Vec::with_capacity(entries.len());
            for (key, mut child) in std::mem::take(entries) {
                let path = join(prefix, &key.text);
                if let Some((first, _)) = seen.iter().find(|(first, _)| first.text == key.text) {
                    if !key.merged {
                        let line = first.at.map_or(String::new(), |(line, _)| format!(" in line {line}"));
                        let message = format!("written twice, first{line}; keep one");
                        problems.push(Problem { key: path, location: key.at, file: Some(file.to_owned()), message });
                    }
                    continue;
                }
                drop_duplicates(&mut child, file, &path, problems);
                seen.push((key, child));
            }
            *entries = seen;
        }
        _ => {}
    }
}

/// The path of a key below `prefix`.
pub(super) fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

fn read_yaml(path: &Path, text: &str) -> Result<Node, Problem> {
    // Duplicates are refused here as elsewhere, but by `drop_duplicates`, since the reader would stop at the first.
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
        strict_booleans: true,
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, max_nodes: MAX_NODES, max_events: 4 * MAX_NODES, max_documents: 1 },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Option<Marked>>(text, options)
        .map(|marked| marked.map_or(Node { value: Value::Null, at: None }, |marked| marked.0))
        .map_err(|error| {
            let location = error.location().and_then(place);
            Problem::syntax(path, location, format!("not readable as YAML: {}", plain_message(&error)))
        })
}

/// The reader's message without the location that it appends; we print our own.
fn plain_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.split(" at line ").next().unwrap_or(line);
    let line = line.strip_prefix("error: ").unwrap_or(line);
    match line.strip_prefix("line ") {
        // "line 3 column 5: message"
        Some(rest) => rest.split_once(": ").map_or(line, |(_, message)| message).to_owned(),
        None => line.to_owned(),
    }
}

fn place(location: serde_saphyr::Location) -> Option<Place> {
    let line = usize::try_from(location.line()).ok().filter(|&line| line > 0)?;
    Some((line, usize::try_from(location.column()).ok()?))
}

fn read_json(path: &Path, text: &str) -> Result<Node, Problem> {
    // Two readers: this one knows JSON's syntax to the letter, the YAML reader knows positions, and JSON is YAML but for rarities
    // (tabs as indentation, surrogate pairs), for which a tree without positions must do.
    if text.trim().is_empty() {
        return Ok(Node { value: Value::Null, at: None });
    }
    let bare: Bare = serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or(&message);
        Problem::syntax(path, Some((error.line(), error.column())), format!("not readable as JSON: {message}"))
    })?;
    Ok(match read_yaml(path, text) {
        Ok(marked) if same(&marked, &bare.0) => marked,
        _ => bare.0,
    })
}

/// Whether two trees differ in positions only.
fn same(left: &Node, right: &Node) -> bool {
    match (&left.value, &right.value) {
        (Value::List(left), Value::List(right)) => left.len() == right.len() && left.iter().zip(right).all(|(l, r)| same(l, r)),
        (Value::Map(left), Value::Map(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|((lk, l), (rk, r))| lk.text == rk.text && same(l, r))
        }
        (Value::Integer(left), Value::Float(right)) => *left as f64 == *right,
        (left, right) => left == right,
    }
}

fn read_toml(path: &Path, text: &str) -> Result<Node, Problem> {
    let document = toml_edit::ImDocument::parse(text).map_err(|error| {
        let location = error.span().and_then(|span| place_of_offset(text, span.start));
        let message = error.message().lines().collect::<Vec<_>>().join("; ");
        Problem::syntax(path, location, format!("not readable as TOML: {message}"))
    })?;
    Ok(toml_item(document.as_item(), text))
}

fn place_of_offset(text: &str, offset: usize) -> Option<Place> {
    let before = text.get(..offset)?;
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Some((before.matches('\n').count() + 1, before[line_start..].chars().count() + 1))
}

fn toml_item(item: &toml_edit::Item, text: &str) -> Node {
    use toml_edit::{Item, Value as Toml};
    let at = item.span().and_then(|span| place_of_offset(text, span.start));
    let value = match item {
        Item::None => Value::Null,
        Item::ArrayOfTables(tables) => Value::List(tables.iter().map(|table| toml_item(&Item::Table(table.clone()), text)).collect()),
        Item::Value(Toml::String(value)) => Value::Text(value.value().clone()),
        Item::Value(Toml::Integer(value)) => Value::Integer((*value.value()).into()),
        Item::Value(Toml::Float(value)) => Value::Float(*value.value()),
        Item::Value(Toml::Boolean(value)) => Value::Bool(*value.value()),
        Item::Value(Toml::Datetime(value)) => Value::Text(value.value().to_string()),
        Item::Value(Toml::Array(items)) => Value::List(items.iter().map(|value| toml_item(&Item::Value(value.clone()), text)).collect()),
        Item::Table(_) | Item::Value(Toml::InlineTable(_)) => Value::Map(toml_entries(item, text)),
    };
    Node { value, at }
}

fn toml_entries(item: &toml_edit::Item, text: &str) -> Vec<(Key, Node)> {
    let Some(table) = item.as_table_like() else { return Vec::new() };
    table
        .iter()
        .map(|(name, child)| {
            let at = table.key(name).and_then(toml_edit::Key::span).and_then(|span| place_of_offset(text, span.start));
            let mut node = toml_item(child, text);
            // Tables made by dotted keys have no place of their own.
            node.at = node.at.or(at);
            (Key { text: name.to_owned(), at, merged: false }, node)
        })
        .collect()
}

/// A tree with the YAML reader's positions.
struct Marked(Node);
/// A tree without positions.
struct Bare(Node);

/// What differs between the two when a map's key is read.
trait Reading<'de>: Deserialize<'de> {
    type Name: Deserialize<'de>;
    fn node(self) -> Node;
    fn key(name: Self::Name) -> Key;
}

impl<'de> Reading<'de> for Marked {
    type Name = Spanned<String>;
    fn node(self) -> Node {
        self.0
    }
    fn key(name: Self::Name) -> Key {
        let merged = name.referenced != name.defined;
        Key { text: name.value, at: place(name.referenced), merged }
    }
}

impl<'de> Reading<'de> for Bare {
    type Name = String;
    fn node(self) -> Node {
        self.0
    }
    fn key(name: String) -> Key {
        Key { text: name, at: None, merged: false }
    }
}

impl<'de> Deserialize<'de> for Marked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Inner(Value);
        impl<'de> Deserialize<'de> for Inner {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(ValueVisitor::<Marked>(PhantomData)).map(Inner)
            }
        }
        let spanned = Spanned::<Inner>::deserialize(deserializer)?;
        Ok(Self(Node { value: spanned.value.0, at: place(spanned.referenced) }))
    }
}

impl<'de> Deserialize<'de> for Bare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor::<Self>(PhantomData)).map(|value| Self(Node { value, at: None }))
    }
}

struct ValueVisitor<R>(PhantomData<R>);

impl<'de, R: Reading<'de>> Visitor<'de> for ValueVisitor<R> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }
    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }
    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(i128::try_from(value).map_or(Value::Float(value as f64), Value::Integer))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<R>()? {
            items.push(item.node());
        }
        Ok(Value::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(name) = map.next_key::<R::Name>()? {
            entries.push((R::key(name), map.next_value::<R>()?.node()));
        }
        Ok(Value::Map(entries))
    }
}
