//! Does the code keep to the rooms? The import table of `src/lib.rs`, purity, and the shape of files, read from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a room may use: other rooms, and external crates beside std.
struct Room {
    name: &'static str,
    rooms: &'static [&'static str],
    crates: &'static [&'static str],
    pure: bool,
}

const fn room(name: &'static str, pure: bool, rooms: &'static [&'static str], crates: &'static [&'static str]) -> Room {
    Room { name, rooms, crates, pure }
}

const ROOMS: &[Room] = &[
    room("units", true, &[], &["serde"]),
    room("files", false, &[], &["libc"]),
    room("exposition", true, &["units"], &["memchr", "fast_float2"]),
    room("planner", true, &["units"], &["litemap", "nalgebra", "serde"]),
    room("engines", true, &["units", "exposition", "planner"], &[]),
    room(
        "config",
        true,
        &["units", "engines", "planner", "simulator"],
        &[
            "figment",
            "flate2",
            "humantime",
            "jiff",
            "regex_lite",
            "rustls",
            "serde",
            "serde_json",
            "serde_saphyr",
            "sha2",
            "strsim",
            "toml_edit",
            "url",
        ],
    ),
    room(
        "scrape",
        false,
        &["units", "files", "exposition", "engines", "planner", "config"],
        &[
            "flate2",
            "hickory_resolver",
            "humantime",
            "hyper",
            "hyper_util",
            "regex_lite",
            "reqwest",
            "rustls",
            "serde",
            "serde_json",
            "serde_saphyr",
            "thiserror",
            "tokio",
            "tower_service",
            "tracing",
        ],
    ),
    room(
        "profiler",
        false,
        &["units", "files", "exposition", "engines", "planner"],
        &["futures_util", "humantime", "reqwest", "rustls", "serde", "serde_json", "thiserror", "tokio", "tracing"],
    ),
    room("simulator", true, &["units", "planner", "engines"], &["humantime", "jiff", "serde", "serde_json"]),
    room("decisions", true, &["units", "planner"], &["serde"]),
    room("history", true, &["units", "planner"], &[]),
    room("export", false, &["units", "planner", "scrape", "decisions", "history"], &["arc_swap", "prometheus"]),
    room("report", true, &["units", "planner", "simulator", "decisions", "history"], &["serde_json"]),
    room(
        "server",
        false,
        &["units", "export", "planner", "report", "decisions", "history"],
        &[
            "arc_swap",
            "axum",
            "axum_server",
            "base64",
            "bcrypt",
            "flate2",
            "humantime",
            "rustls",
            "serde",
            "sha2",
            "tokio",
            "tokio_rustls",
            "tower_http",
            "tower_layer",
        ],
    ),
    room("state", false, &["units", "files", "planner"], &["serde", "serde_json", "sha2", "thiserror"]),
    room("record", false, &["units", "planner"], &["flate2", "serde", "serde_json"]),
];

/// Rooms that may use everything.
const FREE_ROOMS: &[&str] = &["app", "cli"];

/// What a pure room never mentions.
const IMPURE: &[&str] = &[
    "tokio::",
    "std::fs",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "std::env",
    "std::thread",
    "Instant::now",
    "SystemTime",
    "HashMap",
    "HashSet",
    "println!",
    "eprintln!",
    "tracing::",
    "reqwest",
    "thread_rng",
    "rand::",
];

/// Engines' spellings: they occur in `engines` only.
const ENGINE_SPELLINGS: &[&str] =
    &["\"vllm:", "\"infera_", "sglang:", "dynamo_frontend", "trtllm_", "\"tgi_", "llamacpp:", "llm_d_epp", "inference_pool_"];

const MOST_CODE_LINES: usize = 400;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The program text of a file: without comments and without its tests.
fn program(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_test_file(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
        || path.file_stem().is_some_and(|stem| stem == "tests" || stem.to_string_lossy().ends_with("_tests"))
}

/// The first path segments after `marker`, with `marker::{a, b}` taken apart.
fn after(text: &str, marker: &str) -> BTreeSet<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(marker) {
        let rest = &text[at + marker.len()..];
        match rest.strip_prefix('{') {
            None => drop(found.insert(word(rest))),
            Some(group) => {
                let mut depth = 0;
                let mut start = true;
                for (i, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        c if start && !c.is_whitespace() => {
                            found.insert(word(&group[i..]));
                            start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    found.remove("");
    found
}

/// The crates of Cargo.toml, as they are spelled in paths.
fn crates() -> BTreeSet<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let section = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let names = section.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    names.map(|(name, _)| name.trim().replace('-', "_")).collect()
}

fn uses_crate(program: &str, name: &str) -> bool {
    let path = format!("{name}::");
    program.match_indices(&path).any(|(at, _)| !program[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
        || program.contains(&format!("use {name};"))
}

fn breaches(room: &Room, path: &Path, text: &str) -> Vec<String> {
    let program = program(text);
    let place = path.strip_prefix(root()).unwrap_or(path).display();
    let mut found = Vec::new();
    for used in after(&program, "crate::") {
        let is_room = ROOMS.iter().any(|room| room.name == used) || FREE_ROOMS.contains(&used.as_str());
        if is_room && used != room.name && !room.rooms.contains(&used.as_str()) {
            found.push(format!("{place}: {} may not use {used}", room.name));
        }
    }
    for name in crates().iter().filter(|name| uses_crate(&program, name)) {
        if !room.crates.contains(&name.as_str()) {
            found.push(format!("{place}: {} may not use the crate {name}", room.name));
        }
    }
    if room.pure {
        found.extend(IMPURE.iter().filter(|token| program.contains(**token)).map(|token| format!("{place}: {token} in a pure room")));
    }
    found
}

fn room_files(name: &str) -> Vec<PathBuf> {
    let folder = root().join("src").join(name);
    if folder.is_dir() { sources(&folder) } else { vec![folder.with_extension("rs")] }
}

#[test]
fn rooms_use_only_what_the_table_allows() {
    let mut found = Vec::new();
    for room in ROOMS {
        for path in room_files(room.name).into_iter().filter(|path| !is_test_file(path)) {
            found.extend(breaches(room, &path, &std::fs::read_to_string(&path).unwrap()));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_crate_that_a_room_may_use_is_used_there() {
    for room in ROOMS {
        let text: String = room_files(room.name).iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        for name in room.crates {
            assert!(uses_crate(&text, name), "{} no longer uses {name}: take it off the table", room.name);
        }
    }
}

#[test]
fn a_breach_of_the_table_is_seen() {
    let planner = ROOMS.iter().find(|room| room.name == "planner").unwrap();
    let path = root().join("src/planner/example.rs");
    for text in [
        "use crate::{units::Replicas, app::clock};",
        "fn f() { crate::scrape::go() }",
        "use tokio::time;",
        "let now = std::time::Instant::now();",
        "use std::collections::HashMap;",
    ] {
        assert!(!breaches(planner, &path, text).is_empty(), "{text}");
    }
    assert_eq!(breaches(planner, &path, "// crate::app\nuse crate::units::Replicas;\n#[cfg(test)] use crate::app;"), Vec::<String>::new());
}

#[test]
fn every_room_is_in_the_table_and_in_the_map() {
    let map = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let mut rooms: BTreeSet<String> = BTreeSet::new();
    for line in map.lines().filter_map(|line| line.strip_prefix("pub mod ")) {
        rooms.insert(line.trim_end_matches(';').to_owned());
    }
    let table: BTreeSet<String> = ROOMS.iter().map(|room| room.name).chain(FREE_ROOMS.iter().copied()).map(str::to_owned).collect();
    assert_eq!(rooms, table);
    for room in ROOMS {
        let line = map
            .lines()
            .find(|line| line.starts_with(&format!("//! | [`{}`]", room.name)))
            .unwrap_or_else(|| panic!("{} is not in the map", room.name));
        let allowed = line.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let expected = if room.rooms.is_empty() { "nothing".to_owned() } else { room.rooms.join(", ") };
        assert_eq!(allowed, expected, "{}", room.name);
    }
}

#[test]
fn engines_metric_spellings_occur_only_in_engines() {
    let mut found = Vec::new();
    for path in sources(&root().join("src")) {
        let in_engines = path.components().any(|part| part.as_os_str() == "engines");
        let text = program(&std::fs::read_to_string(&path).unwrap());
        if !in_engines && !is_test_file(&path) {
            found.extend(
                ENGINE_SPELLINGS
                    .iter()
                    .filter(|spelling| text.contains(**spelling))
                    .map(|spelling| format!("{}: {spelling}", path.display())),
            );
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn every_file_says_what_it_answers_and_is_short_enough_to_read() {
    let mut found = Vec::new();
    for path in sources(&root().join("src")).into_iter().chain(sources(&root().join("tests"))) {
        let text = std::fs::read_to_string(&path).unwrap();
        if !text.starts_with("//!") {
            found.push(format!("{}: no first line that says what it is for", path.display()));
        }
        let lines = program(&text).lines().filter(|line| !line.trim().is_empty()).count();
        if !is_test_file(&path) && lines > MOST_CODE_LINES {
            found.push(format!("{}: {lines} code lines", path.display()));
        }
        let ignored = format!("#[{}", "ignore");
        if text.contains(&ignored) {
            found.push(format!("{}: a test that is switched off", path.display()));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn each_engine_has_a_file_a_table_line_and_recorded_pages() {
    use inference_planner_exporter::engines::ENGINES;
    let names: BTreeMap<&str, bool> =
        ENGINES.iter().map(|engine| (engine.name, root().join("tests/fixtures/engines").join(engine.name).is_dir())).collect();
    assert_eq!(names.len(), ENGINES.len(), "names are unique");
    for (name, has_pages) in names {
        assert!(root().join(format!("src/engines/{name}.rs")).is_file(), "{name} has no file");
        assert!(has_pages, "{name} has no recorded pages");
    }
}
