//! Which of several layers wins? Defaults, then the file, then variables, then flags; figment lays them on each other.

use std::collections::BTreeMap;

use figment::value::{Dict, Map, Tag, Value as Layered};
use figment::{Figment, Metadata, Profile, Provider};

use super::problem::Problem;
use super::schema::{self, Fallback, KEYS, Key, Kind};
use super::tree::{self, Node, Value};

/// What our environment variables begin with; two underscores part the words of a path.
const PREFIX: &str = "INFERENCE_PLANNER__";

/// Who said it. The order is the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    Default,
    File,
    Variable,
    Flag,
}

impl Layer {
    const ALL: [Self; 4] = [Self::Default, Self::File, Self::Variable, Self::Flag];

    fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Variable => "variable",
            Self::Flag => "flag",
        }
    }
}

/// One layer for figment.
struct Source {
    layer: Layer,
    dict: Dict,
}

impl Provider for Source {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.layer.name())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.dict.clone())]))
    }
}

/// The layers as one tree, with the layer that each value came from.
pub(super) struct Merged {
    figment: Figment,
    dict: Dict,
}

impl Merged {
    /// Lays the layers on each other. Lists are replaced as a whole, sections are merged key by key.
    pub(super) fn new(file: Option<&Node>, variables: Dict, flags: Dict) -> Result<Self, String> {
        let file = match file.map(|root| layered(KEYS, root, "")) {
            Some(Layered::Dict(_, dict)) => dict,
            _ => Dict::new(),
        };
        let figment = [(Layer::Default, defaults()), (Layer::File, file), (Layer::Variable, variables), (Layer::Flag, flags)]
            .into_iter()
            .fold(Figment::new(), |figment, (layer, dict)| figment.merge(Source { layer, dict }));
        let mut data = figment.data().map_err(|error| error.to_string())?;
        Ok(Self { figment, dict: data.remove(&Profile::Default).unwrap_or_default() })
    }

    /// No layer at all.
    pub(super) fn empty() -> Self {
        Self { figment: Figment::new(), dict: Dict::new() }
    }

    /// The merged tree.
    pub(super) fn root(&self) -> Layered {
        Layered::Dict(Tag::Default, self.dict.clone())
    }

    /// Where a value came from.
    pub(super) fn layer(&self, value: &Layered) -> Layer {
        let name = self.figment.get_metadata(value.tag()).map(|metadata| metadata.name.as_ref());
        Layer::ALL.into_iter().find(|layer| Some(layer.name()) == name).unwrap_or(Layer::Default)
    }
}

/// A tree without positions, for figment. A section or list without content (`slo:` alone) counts as not written.
pub(super) fn layered(table: &[Key], node: &Node, path: &str) -> Layered {
    match &node.value {
        Value::Null => Layered::from(figment::value::Empty::Unit),
        Value::Bool(value) => Layered::from(*value),
        Value::Integer(value) => Layered::from(*value),
        Value::Float(value) => Layered::from(*value),
        Value::Text(value) => Layered::from(value.as_str()),
        Value::List(items) => {
            Layered::from(items.iter().enumerate().map(|(i, item)| layered(table, item, &format!("{path}[{i}]"))).collect::<Vec<_>>())
        }
        Value::Map(entries) => {
            let mut dict = Dict::new();
            for (key, child) in entries {
                let path = tree::join(path, &key.text);
                let holds_others =
                    matches!(schema::find(table, &path), Some(key) if matches!(key.kind, Kind::Section | Kind::List | Kind::Map));
                if !(child.value == Value::Null && holds_others) {
                    dict.insert(key.text.clone(), layered(table, child, &path));
                }
            }
            Layered::from(dict)
        }
    }
}

/// The defaults of the keys outside lists; the others are filled in when a value is asked for.
fn defaults() -> Dict {
    let mut dict = Dict::new();
    for key in KEYS {
        if let (Fallback::Value(text), false) = (key.fallback, key.path.contains("[]")) {
            insert(&mut dict, key.path, Layered::from(text));
        }
    }
    dict
}

/// Puts a value at a path of sections.
pub(super) fn insert(dict: &mut Dict, path: &str, value: Layered) {
    match path.split_once('.') {
        None => {
            dict.insert(path.to_owned(), value);
        }
        Some((section, rest)) => {
            let child = dict.entry(section.to_owned()).or_insert_with(|| Layered::from(Dict::new()));
            if let Layered::Dict(_, child) = child {
                insert(child, rest, value);
            }
        }
    }
}

/// The keys that a variable may set.
pub(super) fn open_to_variables() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter(|key| !matches!(key.kind, Kind::Section | Kind::List | Kind::Later)).map(|key| key.path).filter(|path| {
        path.starts_with("server.") || path.starts_with("scrape.") || matches!(*path, "state_file" | "overrides_file" | "shard")
    })
}

/// The variable that sets a key.
pub(super) fn variable(path: &str) -> String {
    format!("{PREFIX}{}", path.to_ascii_uppercase().replace('.', "__"))
}

/// The layer of the environment. Unknown variables are problems, since a misspelt one would be silent otherwise.
pub(super) fn variables(env: &[(String, String)], problems: &mut Vec<Problem>) -> Dict {
    let known: BTreeMap<String, &str> = open_to_variables().map(|path| (variable(path), path)).collect();
    let mut dict = Dict::new();
    for (name, value) in env {
        match known.get(name) {
            Some(path) => insert(&mut dict, path, Layered::from(value.as_str())),
            None => {
                // Without the common beginning, beside which every name would look alike.
                let ending = |name: &'_ str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
                let endings: Vec<String> = known.keys().map(|name| ending(name)).collect();
                let hint = schema::hint(&ending(name), endings.iter().map(String::as_str)).replace("did you mean ", "did you mean ...__");
                let rule = "not a variable that is read; variables set the keys of server and scrape, state_file, overrides_file and shard";
                problems.push(Problem::outside(name, format!("{rule}{hint}")));
            }
        }
    }
    dict
}
