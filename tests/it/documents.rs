//! Do the links in what people read lead somewhere? Files and headings that the README and the pages beside it name.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::shipped::{path, text};

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
