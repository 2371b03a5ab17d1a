//! What did the user write, and where? Bytes of files, the environment and flags, for the pure configuration room.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::config::{self, Flags, Inputs, Loaded, Problem, SourceText};
use crate::files;

/// Where Kubernetes tells a pod its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Variables that the configuration reads.
const VARIABLE_PREFIX: &str = "INFERENCE_PLANNER__";

/// First bytes of a gzip file.
pub(super) const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Largest file that is read, bytes: a configuration is small, and a wrong path may lead to anything.
const LARGEST_FILE: u64 = 16 << 20;

/// Most files of a folder of which every file counts: a ConfigMap holds a megabyte, and a wrong path may lead to anything.
const MOST_FILES: usize = 1000;

/// The flags that describe one model, of `run` and `plan`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ModelFlags {
    /// Name of the model: selects the samples with that model label. Without it every model seen is planned
    #[arg(long)]
    pub model: Option<String>,
    /// Namespace of the model: a label, and what an entry of --queueing-config names [default: our own in a cluster, else default]
    #[arg(long, value_name = "NAMESPACE")]
    pub target_namespace: Option<String>,
    /// Dialect of the servers, auto by default: it is recognised page by page
    #[arg(long)]
    pub engine: Option<String>,
    /// Set of values for the planner: infera (by objectives and a profile), dynamo (by how full replicas are, or with an objective by
    /// forecasts and expected latencies) or wva (by what replicas turn out to do); infera with a profile, wva with --queueing-config, else dynamo
    #[arg(long)]
    pub preset: Option<String>,
    /// Smallest recommendation of each pool [default: 1]
    #[arg(long)]
    pub min_replicas: Option<u32>,
    /// Largest recommendation of each pool [default: 8]
    #[arg(long)]
    pub max_replicas: Option<u32>,
    /// The measured profile: profile.json, or the folder that Dynamo's profiler wrote; means preset infera
    #[arg(long)]
    pub profile_results: Option<PathBuf>,
    /// The folder where llm-d's ConfigMap wva-queueing-model-config is mounted, or one like it; means preset wva where nothing else is
    /// said
    #[arg(long, value_name = "DIR")]
    pub queueing_config: Option<PathBuf>,
    /// Objective for time to first token, with a profile, or preset wva or dynamo; a bare number is milliseconds [default with a profile:
    /// 500]
    #[arg(long, value_parser = config::parse_millis_flag)]
    pub ttft: Option<std::time::Duration>,
    /// Objective for the time between tokens, with a profile, or preset wva or dynamo; a bare number is milliseconds [default with a
    /// profile: 50]
    #[arg(long, value_parser = config::parse_millis_flag)]
    pub itl: Option<std::time::Duration>,
    /// Time between decisions; a bare number is seconds [default: 180, with preset wva 30]
    #[arg(long, value_parser = config::parse_seconds_flag)]
    pub adjustment_interval: Option<std::time::Duration>,
}

impl ModelFlags {
    /// As the configuration room wants them.
    pub fn flags(&self) -> Flags {
        Flags {
            model: self.model.clone(),
            target_namespace: self.target_namespace.clone(),
            engine: self.engine.clone(),
            preset: self.preset.clone(),
            min_replicas: self.min_replicas,
            max_replicas: self.max_replicas,
            profile_results: self.profile_results.clone(),
            ttft: self.ttft,
            itl: self.itl,
            queueing_config: self.queueing_config.clone(),
            adjustment_interval: self.adjustment_interval,
            ..Flags::default()
        }
    }
}

/// Reads the configuration file, if there is one, the environment, and every file that they name.
pub fn load(file: Option<&Path>, flags: Flags) -> Result<Loaded, Vec<Problem>> {
    let file = file.map(source).transpose()?;
    let draft = config::read(Inputs { file, env: environment(), flags, own_namespace: own_namespace() });
    let mut files = BTreeMap::new();
    let text = |path: &Path| if draft.is_trace(path) { unpacked(path).and_then(text_in) } else { text_of(path) };
    let mut read = |path: &Path| match text(path) {
        Ok(text) => drop(files.insert(path.to_owned(), Ok(text))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => drop(files.insert(path.to_owned(), Err(error.to_string()))),
    };
    let (folders, named): (Vec<&PathBuf>, _) = draft.files().iter().partition(|path| draft.may_be_folder(path) && path.is_dir());
    named.iter().for_each(|path| read(path));
    if let Some(folder) = draft.folder() {
        match files_in(folder) {
            Ok(found) => found.iter().for_each(|path| read(path)),
            Err(error) => drop(files.insert(folder.to_owned(), Err(error.to_string()))),
        }
    }
    folders.iter().for_each(|folder| profile_folder(folder, &mut files));
    draft.finish(&files)
}

/// The same for who serves and for who checks: with the file that says who may read us, and what that names.
pub fn load_serving(file: Option<&Path>, flags: Flags) -> Result<Loaded, Vec<Problem>> {
    let mut loaded = load(file, flags)?;
    if let Some(path) = &loaded.config.server.web_config_file {
        let draft = config::read_web(&source(path)?);
        let mut texts = BTreeMap::new();
        for path in draft.files() {
            match text_of(path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                read => drop(texts.insert(path.clone(), read.map_err(|error| error.to_string()))),
            }
        }
        loaded.web = draft.finish(&texts)?;
        loaded.config.files.extend(loaded.web.files.iter().cloned());
    }
    Ok(loaded)
}

/// Reads what a folder has of Dynamo's profile data.
fn profile_folder(folder: &Path, files: &mut BTreeMap<PathBuf, Result<String, String>>) {
    let before = files.len();
    for file in config::profile_files(folder) {
        match files::read(&file, LARGEST_FILE) {
            Ok(bytes) => drop(files.insert(file.clone(), config::profile_text(&file, bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => drop(files.insert(file, Err(error.to_string()))),
        }
    }
    if files.len() == before {
        files.insert(folder.to_owned(), Err(config::no_profile()));
    }
}

/// The text of a file that was named on the command line.
pub(super) fn source(path: &Path) -> Result<SourceText, Vec<Problem>> {
    let text = text_of(path).map_err(|error| vec![Problem::of_file(path, format!("cannot be read: {error}"))])?;
    Ok(SourceText { path: path.to_owned(), text })
}

/// What is in a folder, save what begins with a dot: there Kubernetes keeps what it swaps.
fn files_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    if folder.is_file() {
        return Err(std::io::Error::other(
            "expected the folder where the ConfigMap is mounted, one file for each key of its data, got a file",
        ));
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if found.len() == MOST_FILES {
            return Err(std::io::Error::other(format!("expected at most {MOST_FILES} files, got more")));
        }
        found.push(entry.path());
    }
    Ok(found)
}

/// The text of a file of moderate size.
pub(super) fn text_of(path: &Path) -> std::io::Result<String> {
    text_in(files::read(path, LARGEST_FILE)?)
}

/// What is in a file that may be packed by gzip.
pub(super) fn unpacked(path: &Path) -> std::io::Result<Vec<u8>> {
    let bytes = files::read(path, LARGEST_FILE)?;
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(bytes.as_slice()).take(LARGEST_FILE + 1).read_to_end(&mut unpacked)?;
    if unpacked.len() as u64 > LARGEST_FILE {
        return Err(std::io::Error::other(format!("expected at most {LARGEST_FILE} bytes when unpacked, got more")));
    }
    Ok(unpacked)
}

fn text_in(bytes: Vec<u8>) -> std::io::Result<String> {
    String::from_utf8(bytes).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
}

fn environment() -> Vec<(String, String)> {
    let variables = std::env::vars_os().filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
    variables.filter(|(key, _)| key.starts_with(VARIABLE_PREFIX)).collect()
}

fn own_namespace() -> Option<String> {
    let namespace = std::fs::read_to_string(NAMESPACE_FILE).ok()?;
    Some(namespace.trim().to_owned()).filter(|namespace| !namespace.is_empty())
}
