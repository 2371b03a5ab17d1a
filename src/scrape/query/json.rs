//! How is an answer of the API read without holding a large fleet as a tree? Series by series: each is used and let go.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A text that is copied only where it has escapes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl std::borrow::Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// One series of a result.
#[derive(Debug, Deserialize)]
pub(super) struct Series<'a> {
    #[serde(borrow)]
    pub metric: BTreeMap<Text<'a>, Text<'a>>,
    /// Of a range: moments in seconds of Unix time, and values. A native histogram has none.
    #[serde(default, borrow)]
    pub values: Vec<(f64, Text<'a>)>,
    /// Of a moment.
    #[serde(default, borrow)]
    pub value: Option<(f64, Text<'a>)>,
}

/// Gives `each` the series of an answer with a result of this kind. An error is an answer of another kind or one that is not whole; what
/// `each` was given then means nothing.
pub(super) fn series<'a>(body: &'a [u8], kind: &str, mut each: impl FnMut(Series<'a>)) -> Result<(), String> {
    let mut head = Head::default();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = Answer { head: &mut head, each: &mut each }.deserialize(&mut reader).and_then(|()| reader.end());
    read.map_err(|error| format!("expected an answer of Prometheus' API in JSON; line {}, column {}", error.line(), error.column()))?;
    if let Some(error) = head.error() {
        return Err(error);
    }
    if let Some(warning) = head.warnings.first() {
        // Part of a fleet is not a smaller fleet.
        return Err(format!("the answer may not be whole: {}", one_line(warning)));
    }
    match head.kind {
        Some(found) if found == kind => Ok(()),
        found => Err(format!("expected a result of type {kind}, got {:?}", found.unwrap_or_default())),
    }
}

/// The error that an answer tells, if it is one of the API.
pub(super) fn error(body: &[u8]) -> Option<String> {
    let mut head = Head::default();
    Answer { head: &mut head, each: &mut |_| () }.deserialize(&mut serde_json::Deserializer::from_slice(body)).ok()?;
    head.error().filter(|_| !head.status.is_empty())
}

/// The beginning of a message, without line ends.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}

/// All of an answer but its series.
#[derive(Default)]
struct Head {
    status: String,
    error_type: String,
    error: String,
    warnings: Vec<String>,
    kind: Option<String>,
}

impl Head {
    fn error(&self) -> Option<String> {
        (self.status != "success").then(|| format!("{}: {}", self.error_type, one_line(&self.error)))
    }
}

struct Answer<'s, F> {
    head: &'s mut Head,
    each: &'s mut F,
}

impl<'de, F: FnMut(Series<'de>)> DeserializeSeed<'de> for Answer<'_, F> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de, F: FnMut(Series<'de>)> Visitor<'de> for Answer<'_, F> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an answer")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match key.0.as_ref() {
                "status" => self.head.status = map.next_value()?,
                "errorType" => self.head.error_type = map.next_value()?,
                "error" => self.head.error = map.next_value()?,
                "warnings" => self.head.warnings = map.next_value::<Option<_>>()?.unwrap_or_default(),
                "data" => map.next_value_seed(Data { kind: &mut self.head.kind, each: &mut *self.each })?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct Data<'s, F> {
    kind: &'s mut Option<String>,
    each: &'s mut F,
}

impl<'de, F: FnMut(Series<'de>)> DeserializeSeed<'de> for Data<'_, F> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de, F: FnMut(Series<'de>)> Visitor<'de> for Data<'_, F> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data of an answer")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match key.0.as_ref() {
                "resultType" => *self.kind = Some(map.next_value()?),
                "result" => map.next_value_seed(Each(&mut *self.each))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
    /// An error has `"data": null` in some implementations.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

struct Each<'s, F>(&'s mut F);

impl<'de, F: FnMut(Series<'de>)> DeserializeSeed<'de> for Each<'_, F> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(Series<'de>)> Visitor<'de> for Each<'_, F> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(series) = list.next_element()? {
            (self.0)(series);
        }
        Ok(())
    }
}
