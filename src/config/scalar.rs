//! What does one value mean? Durations, sizes, addresses, URLs and names, each with the sentence that refuses it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use url::{Host, Url};

use super::TargetConfig;
use crate::units::TargetId;

/// The longest span of time that is accepted anywhere. Sums of a few of them stay far from the end of every clock.
pub(super) const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// What a value begins with that somebody has still to write, as in a translated configuration. What belongs there follows.
pub(super) const PLACEHOLDER: &str = "FILL_IN";

/// Longest Kubernetes label value.
const LABEL_LENGTH: usize = 63;

/// A span of time with its unit, above zero.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let bare = text.trim().parse::<f64>().is_ok();
    let refused = || format!("expected a duration {}such as 500ms, got {text:?}", if bare { "with its unit " } else { "" });
    let span = humantime::parse_duration(text.trim()).map_err(|_| refused())?;
    bounded(span, text)
}

/// The same, where less would make no sense.
pub(super) fn span_of_at_least(text: &str, least: Duration) -> Result<Duration, String> {
    let span = span(text)?;
    if span < least {
        return Err(format!("expected at least {}, got {text:?}", humantime::format_duration(least)));
    }
    Ok(span)
}

fn bounded(span: Duration, text: &str) -> Result<Duration, String> {
    if span.is_zero() {
        return Err(format!("expected a duration above zero, got {text:?}"));
    }
    if span > LONGEST { Err(format!("expected at most 366 days, got {text:?}")) } else { Ok(span) }
}

/// Reads the value of `--ttft` and `--itl`: a bare number is milliseconds, everything else a duration with its unit.
pub fn parse_millis_flag(text: &str) -> Result<Duration, String> {
    bare_or_span(text, 1e-3, "milliseconds, or a duration such as 500ms")
}

/// Reads the value of a flag for an interval: a bare number is seconds, everything else a duration with its unit.
pub fn parse_seconds_flag(text: &str) -> Result<Duration, String> {
    bare_or_span(text, 1.0, "seconds, or a duration such as 3m")
}

/// The same, of a delay: it may be zero.
pub fn parse_delay_flag(text: &str) -> Result<Duration, String> {
    if text.trim().parse() == Ok(0.0) || humantime::parse_duration(text.trim()).is_ok_and(|delay| delay.is_zero()) {
        return Ok(Duration::ZERO);
    }
    parse_seconds_flag(text)
}

fn bare_or_span(text: &str, unit: f64, expected: &str) -> Result<Duration, String> {
    let refused = || format!("expected a number of {expected}, got {text:?}");
    match text.trim().parse::<f64>() {
        Ok(number) => {
            let span = Duration::try_from_secs_f64(number * unit).map_err(|_| refused())?;
            bounded(span, text)
        }
        Err(_) => {
            let span = humantime::parse_duration(text.trim()).map_err(|_| refused())?;
            bounded(span, text)
        }
    }
}

/// A number of bytes: `1048576`, `1024KiB`, `1 MiB`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let refused = || format!("expected a number of bytes such as 8388608 or 8MiB, got {text:?}");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| refused())?;
    let factor = match text[digits..].trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return Err(refused()),
    };
    number.checked_mul(factor).ok_or_else(refused)
}

/// The shortest text that [`bytes`] reads as that number.
pub(super) fn bytes_text(bytes: u64) -> String {
    [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
        .into_iter()
        .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit))
        .map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// An address and a port to listen on.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.trim().parse().map_err(|_| {
        let hint = if text.starts_with(':') { format!("; for all interfaces write 0.0.0.0{text}") } else { String::new() };
        format!("expected an IP address and a port such as 0.0.0.0:10877, got {text:?}{hint}")
    })
}

/// A legal, non-empty Kubernetes label value: what a pool or namespace may be called.
pub(super) fn label_value(text: &str) -> Result<String, String> {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let legal = text.len() <= LABEL_LENGTH
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && edge(text.chars().next())
        && edge(text.chars().next_back());
    if legal {
        return Ok(text.to_owned());
    }
    Err(format!(
        "expected a Kubernetes label value (at most {LABEL_LENGTH} letters, digits, '-', '_' or '.', a letter or digit at both ends), got {text:?}"
    ))
}

/// A URL, or what was meant as one, with the credentials in front of its host hidden.
pub(super) fn hide_userinfo(text: &str) -> String {
    let (scheme, rest) = text.find("://").map_or(("", text), |at| text.split_at(at + 3));
    let authority = &rest[..rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len())];
    match authority.rfind('@') {
        Some(at) => format!("{scheme}hidden@{}", &rest[at + 1..]),
        None => text.to_owned(),
    }
}

/// The same, with the query hidden as well: it may be a token.
pub(super) fn hide_secrets(text: &str) -> String {
    let text = hide_userinfo(text);
    match text.split_once('?') {
        Some((page, _)) => format!("{page}?hidden"),
        None => text,
    }
}

fn http_url(text: &str, example: &str) -> Result<Url, String> {
    let refused = |why: &str| format!("expected a URL such as {example}, got {:?}{why}", hide_secrets(text));
    if text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '\\') {
        return Err(refused(": it holds a space, a backslash or a control character"));
    }
    // The reader of URLs also accepts `http:host`; nobody writes that on purpose.
    let lower = text.to_ascii_lowercase();
    if !lower.starts_with("http://") && !lower.starts_with("https://") {
        let hint = if text.contains("://") { ": only http and https are read" } else { ": it has no http:// or https:// in front" };
        return Err(refused(hint));
    }
    let after = text.split_once("://").map_or("", |(_, rest)| rest);
    if after.is_empty() || after.starts_with(['/', '?', '#', ':']) {
        return Err(refused(": it has no host"));
    }
    let url = Url::parse(text).map_err(|error| refused(&format!(": {error}")))?;
    if url.port() == Some(0) {
        return Err(refused(": nothing listens on port 0"));
    }
    Ok(url)
}

/// An endpoint to scrape. An empty path becomes `/metrics`, a missing port the scheme's.
pub(super) fn target(text: &str) -> Result<TargetConfig, String> {
    let mut url = http_url(text, "http://10.0.0.11:8000/metrics")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("credentials in a URL are not supported, got {:?}; write basic_auth beside the targets", hide_secrets(text)));
    }
    if url.fragment().is_some() {
        return Err(format!("expected a URL without a fragment ('#...'), got {:?}", hide_secrets(text)));
    }
    if url.path() == "/" {
        url.set_path("/metrics");
    }
    // Both are there: the scheme is http or https and the host was checked.
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    let target = TargetId::from(format!("{host}:{port}{}", url.path()));
    Ok(TargetConfig { target, url: url.to_string() })
}

/// A server that is asked for something; it carries no credentials.
pub(super) fn plain_url(text: &str) -> Result<String, String> {
    let url = http_url(text, "http://inventory.internal/targets")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("credentials in a URL are not supported, got {:?}", hide_secrets(text)));
    }
    Ok(text.to_owned())
}

/// A proxy; it may carry credentials.
pub(super) fn proxy(text: &str) -> Result<String, String> {
    http_url(text, "http://proxy.internal:3128").map(|_| text.to_owned())
}

/// Whether a target is on this machine only.
pub(super) fn is_loopback(target: &TargetConfig) -> bool {
    match Url::parse(&target.url).ok().as_ref().and_then(Url::host) {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_they_are_read() {
        // humantime's months and years are not whole days; nanoseconds must survive as well.
        for nanos in [1, 999, 1_000_000_007, 2_630_016_000_000_000, 31_557_600_000_000_000, LONGEST.as_nanos() as u64] {
            for nanos in [nanos, nanos / 3 * 2 + 1, nanos / 7 + 1] {
                let duration = Duration::from_nanos(nanos);
                assert_eq!(span(&humantime::format_duration(duration).to_string()), Ok(duration), "{nanos}");
            }
        }
    }

    #[test]
    fn a_span_without_its_unit_is_told_so() {
        assert_eq!(span("1"), Err("expected a duration with its unit such as 500ms, got \"1\"".to_owned()));
        assert_eq!(span("fast"), Err("expected a duration such as 500ms, got \"fast\"".to_owned()));
    }

    #[test]
    fn sizes_are_written_as_they_are_read() {
        for size in [0, 1, 1023, 1024, 1025, 8 << 20, (8 << 20) + 1, 3 << 30] {
            assert_eq!(bytes(&bytes_text(size)), Ok(size), "{size}");
        }
        assert_eq!((bytes("1 MB"), bytes("2 KiB")), (Ok(1_000_000), Ok(2048)));
        for text in ["", "MiB", "-1", "1.5MiB", "1 mib", "99999999999GiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn credentials_are_hidden_however_they_are_written() {
        for (text, hidden) in [
            ("http://u:p@h:1/x", "http://hidden@h:1/x"),
            ("u:p@h:1", "hidden@h:1"),
            ("http://u:p@q@h", "http://hidden@h"),
            ("http://h/a@b", "http://h/a@b"),
            ("plain", "plain"),
        ] {
            assert_eq!(hide_userinfo(text), hidden);
        }
    }

    #[test]
    fn targets_are_named_by_host_port_and_path() {
        for (text, name, url) in [
            ("http://H.example", "h.example:80/metrics", "http://h.example/metrics"),
            ("https://h/", "h:443/metrics", "https://h/metrics"),
            ("http://[2001:db8::1]:8000/a/b?c=d", "[2001:db8::1]:8000/a/b", "http://[2001:db8::1]:8000/a/b?c=d"),
            ("HTTP://h:80", "h:80/metrics", "http://h/metrics"),
        ] {
            let found = target(text);
            assert_eq!(found, Ok(TargetConfig { target: TargetId::from(name), url: url.to_owned() }), "{text}");
        }
    }
}
