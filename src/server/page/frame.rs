//! What stands around every page? Head, style, scripts and what a browser may do with them, and the facts at the top.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

use super::span;
use crate::export::snapshot::Snapshot;
use crate::report::html::Escaped;
use crate::report::plot::{CURSOR, STYLE};
use crate::units::Moment;

pub(super) const FOOT: &str = "</main>\n</body>\n</html>\n";

/// Between its tags.
static SCRIPT: LazyLock<String> = LazyLock::new(|| format!("\n{CURSOR}{}", include_str!("refresh.js")));

/// What a browser may load, run and send: our own style, exactly our own script, and our own page again.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = base64(&Sha256::digest(SCRIPT.as_bytes()));
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
});

/// The content security policy of a page that is served.
pub(crate) fn policy() -> String {
    format!("{}; frame-ancestors 'none'", *POLICY)
}

/// Until the content begins. `refresh` are the seconds after which the page is shown anew.
pub(super) fn head(title: &str, refresh: Option<u64>) -> String {
    let (title, script, policy) = (Escaped(title), &*SCRIPT, &*POLICY);
    let seconds = refresh.unwrap_or_default();
    // Nothing but the page itself is there to load a file again.
    let (again, links) = match refresh {
        Some(seconds) => (format!("<noscript><meta http-equiv=\"refresh\" content=\"{seconds}\"></noscript>\n"), LINKS),
        None => (format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n", Escaped(policy)), ""),
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\" data-refresh=\"{seconds}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         {again}<link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n<script>{script}</script>\n</head>\n\
         <body>\n<header>\n<h1>{title}</h1>\n{links}</header>\n<p id=\"lost\" class=\"banner alarm\" hidden>\
         The exporter does not answer; what stands here is from before.</p>\n<main>\n"
    )
}

const LINKS: &str = "<nav><a href=\"/metrics\">metrics</a> <a href=\"/api/v1/plans\">plans as JSON</a> \
    <a href=\"/api/v1/decisions\">decisions as JSON</a> <a href=\"/-/healthy\">healthy</a> <a href=\"/-/ready\">ready</a></nav>\n";

/// What is shown, by whom, and how old it is.
pub(super) fn facts(snapshot: &Snapshot, now: Moment) -> String {
    let up = snapshot.targets.iter().filter(|target| target.up).count();
    let facts = [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("configuration", snapshot.config_hash.clone()),
        ("up for", span(now.wall.saturating_sub(snapshot.process_start))),
        ("last round", format!("{} ago", span(now.monotonic.saturating_sub(snapshot.at.monotonic)))),
        ("targets", format!("{up} of {} answer", snapshot.targets.len())),
    ];
    let fact = |(name, fact): &(&str, String)| format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", Escaped(fact));
    format!("<dl class=\"facts line\">\n{}</dl>\n", facts.iter().map(fact).collect::<String>())
}

/// What is wrong with the exporter as a whole.
pub(super) fn banners(snapshot: &Snapshot) -> String {
    let mut html = String::new();
    if !snapshot.ready {
        html.push_str(&banner("wait", "The first scrape round has not ended."));
    }
    if !snapshot.reload.successful {
        let sentence = "The last attempt to load the configuration failed; the old one is in force. The log names every problem.";
        html.push_str(&banner("alarm", sentence));
    }
    html
}

/// A sentence that should not be missed.
pub(super) fn banner(class: &'static str, sentence: &str) -> String {
    format!("<p class=\"banner {class}\">{}</p>\n", Escaped(sentence))
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let number = group.iter().fold(0, |number: u32, byte| number << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy"), ("\u{ff}\u{fe}", "w7/Dvg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn the_script_cannot_end_its_element() {
        assert!(!SCRIPT.contains("</") && !SCRIPT.contains("<!--"));
    }
}
