//! Do the links in what people read lead somewhere, and are engines tested in the versions that it names? Files and headings that the README and the
//! pages beside it name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::shipped::{files, path, text};

const PAGES: [&str; 5] = ["README.md", "docs/operating.md", "src/config/README.md", "src/export/README.md", "src/planner/README.md"];

/// The address of a heading, as the usual renderers make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let text = text(page);
    let mut code = false;
    let headings = text.lines().filter(|line| {
        code ^= line.starts_with("```");
        !code && line.starts_with('#')
    });
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// The targets of links to files and headings of ours.
fn links(page: &str) -> Vec<String> {
    let text = text(page);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.contains(' ')).map(str::to_owned).collect()
}

/// A path without `..`, from the folder of the project.
fn resolved(page: &str, target: &str) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in Path::new(page).parent().unwrap().join(target).components() {
        match part {
            Component::ParentDir => assert!(whole.pop(), "{page}: {target} leaves the project"),
            part => whole.push(part),
        }
    }
    whole
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut followed = 0;
    for page in PAGES {
        for link in links(page) {
            let (file, heading) = link.split_once('#').map_or((link.as_str(), None), |(file, heading)| (file, Some(heading)));
            let file = if file.is_empty() { PathBuf::from(page) } else { resolved(page, file) };
            assert!(path(file.to_str().unwrap()).exists(), "{page}: {link}");
            if let Some(heading) = heading {
                assert!(anchors(file.to_str().unwrap()).contains(heading), "{page}: {link}: no such heading");
            }
            followed += 1;
        }
    }
    assert!(followed > 30, "only {followed} links were found");
    assert_eq!(anchor(" The file of `server.web_config_file`"), "the-file-of-serverweb_config_file");
}

/// The version in the name of a recorded page: the first part that begins with a digit, or with the `b` of a build.
fn version(page: &str) -> Option<&str> {
    let is_one = |part: &&str| part.strip_prefix('b').unwrap_or(part).starts_with(|first: char| first.is_ascii_digit());
    page.strip_suffix(".prom").unwrap_or(page).split('-').find(is_one)
}

/// By the beginning of their pages' names: the versions that the table of engines names.
fn versions_named() -> BTreeMap<String, BTreeSet<String>> {
    let text = text("docs/operating.md");
    let table = text.split_once("| engine | pages | versions |").unwrap().1;
    let rows =
        table.lines().skip(2).take_while(|line| line.starts_with('|')).map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let named = |row: Vec<&str>| {
        let versions = row[3].split(", ").filter(|version| *version != "none named").map(str::to_owned).collect();
        (row[2].trim_matches('`').trim_end_matches('*').to_owned(), versions)
    };
    rows.map(named).collect()
}

#[test]
fn engines_are_said_to_be_tested_in_exactly_the_versions_whose_pages_are_read() {
    let named = versions_named();
    let mut read: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files("tests/fixtures/engines").iter().filter(|file| file.ends_with(".prom")) {
        let page = file.rsplit('/').next().unwrap();
        let Some(row) = named.keys().find(|start| page.starts_with(start.as_str())) else { panic!("{page}: no row of docs/operating.md") };
        read.entry(row.clone()).or_default().extend(version(page).map(str::to_owned));
    }
    assert_eq!(named, read);
}
