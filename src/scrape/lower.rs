//! What does this page say in the planner's terms? From bytes to a reading or a typed failure. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::engines::{Dialect, ENGINES};
use crate::exposition::{Format, Memory, Page, Refusal, Wanted, read};
use crate::planner::input::FailureKind;

use super::failure::failure;
use super::memories::{Earlier, Used};
use super::report::{Failure, Scraped};

/// The families of all engines. Put together once, as those of each: that takes as long as reading a short page.
static ALL_FAMILIES: LazyLock<Wanted> = LazyLock::new(|| Wanted::new(families(None)));
static FAMILIES: LazyLock<BTreeMap<&str, Wanted>> =
    LazyLock::new(|| ENGINES.iter().map(|engine| (engine.name, Wanted::new(engine.family_names()))).collect());

/// Reads a whole page.
///
/// `engine`: the dialect, or `None` to recognise it among all that are known. `keep`: whether the lines that were used are wanted as text,
/// so that the page can be read again later with the same result.
pub fn lower(body: &[u8], content_type: Option<&str>, engine: Option<Dialect>, keep: bool) -> Result<Scraped, Failure> {
    lower_with(body, content_type, engine, keep, &Earlier::default()).0
}

/// As [`lower`], with what is known of earlier pages, which changes nothing but the time it takes. Also gives what was used of it.
pub(super) fn lower_with(
    body: &[u8],
    content_type: Option<&str>,
    engine: Option<Dialect>,
    keep: bool,
    earlier: &Earlier,
) -> (Result<Scraped, Failure>, Used) {
    if body.starts_with(&[0x1f, 0x8b]) {
        let twice = failure(FailureKind::Parse, "the page is compressed twice; expected text inside the gzip stream");
        return (Err(twice), Used::None(None));
    }
    let wanted = match &engine {
        None => Cow::Borrowed(&*ALL_FAMILIES),
        Some(engine) => FAMILIES.get(engine.name()).map_or_else(|| Cow::Owned(Wanted::new(engine.family_names())), Cow::Borrowed),
    };
    let format = Format::from_content_type(content_type);
    let remembered =
        earlier.known.iter().enumerate().find_map(|(place, known)| Some((known.memory.read(body, format, &wanted)?, Used::Earlier(place))));
    let (page, used) = match remembered.map_or_else(|| read(body, format, &wanted).map(|page| (page, Used::None(None))), Ok) {
        Ok((page, Used::None(_))) if earlier.learns => {
            let memory = Memory::of(body, format, &wanted, &page);
            (page, Used::None(memory))
        }
        Ok(read) => read,
        Err(refusal) => return (Err(refused(refusal)), Used::None(None)),
    };
    (scraped(body, &page, engine, keep), used)
}

fn refused(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Empty => failure(FailureKind::Empty, refusal.to_string()),
        _ => failure(FailureKind::Parse, refusal.to_string()),
    }
}

fn scraped(body: &[u8], page: &Page<'_>, engine: Option<Dialect>, keep: bool) -> Result<Scraped, Failure> {
    let engine = engine.or_else(|| recognised(page)).ok_or_else(|| unknown(page))?;
    let reading = engine.read(page);
    if reading.models.is_empty() {
        let message = format!("{} samples, none that engine {} knows; expected a server of that kind", page.samples_seen, engine.name());
        return Err(failure(FailureKind::Empty, message));
    }
    Ok(Scraped {
        engine: engine.name(),
        reading,
        problems: page.problems.counts().map(|(_, count)| count as usize).sum(),
        first_problem: page.problems.first().first().map(ToString::to_string),
        page: keep.then(|| used_lines(body, page, &engine)),
    })
}

/// The families that a page is read for: those of the engine, or of all.
pub(super) fn families(engine: Option<&Dialect>) -> Vec<&str> {
    engine.map_or_else(|| ENGINES.iter().flat_map(|engine| engine.family_names()).collect(), Dialect::family_names)
}

fn recognised(page: &Page<'_>) -> Option<Dialect> {
    ENGINES.iter().copied().find(|engine| (engine.recognise)(page)).map(Dialect::Known)
}

fn unknown(page: &Page<'_>) -> Failure {
    let names: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
    let message = format!("{} samples, but of no known engine; expected one of {}", page.samples_seen, names.join(", "));
    failure(FailureKind::Empty, message)
}

/// The lines of the page that the reading rests on, word for word, each family's type first.
///
/// Lines are not written anew from what was understood: a recording must show what the server sent.
fn used_lines(body: &[u8], page: &Page<'_>, engine: &Dialect) -> String {
    let mut text = String::new();
    let mut numbers = Vec::new();
    let asked: Vec<_> = engine.family_names().into_iter().filter_map(|name| page.family(name)).map(|family| family.name).collect();
    for family in page.families().filter(|family| asked.iter().any(|asked| std::ptr::eq(*asked, family.name))) {
        // `Kind`'s names are the format's words.
        text.push_str(&format!("# TYPE {} {}\n", family.name, format!("{:?}", family.kind).to_lowercase()));
        numbers.extend(family.samples().map(|sample| sample.line));
    }
    numbers.sort_unstable();
    let mut numbers = numbers.into_iter().peekable();
    for (number, line) in (1..).zip(body.split(|&byte| byte == b'\n')) {
        if numbers.next_if_eq(&number).is_some() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        if numbers.peek().is_none() {
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::{Engine, Reading};

    static ENGINE: Engine = Engine {
        name: "test",
        families: &[&["running", "tokens", "latency"]],
        counts_replicas: false,
        gauges: &[],
        recognise: |page| page.family("running").is_some(),
        read: |page| {
            let mut reading = Reading::default();
            for sample in page.families().flat_map(|family| family.samples()) {
                reading.models.insert(sample.label("model").map(str::to_owned), Default::default());
            }
            reading
        },
    };

    fn kind(body: &str, content_type: Option<&str>) -> Result<usize, FailureKind> {
        lower(body.as_bytes(), content_type, Some(Dialect::Known(&ENGINE)), false)
            .map(|scraped| scraped.problems)
            .map_err(|failure| failure.kind)
    }

    #[test]
    fn refusals_become_kinds() {
        assert_eq!(kind("running 1\n", None), Ok(0));
        assert_eq!(kind("running 1\nrunning x\n", None), Ok(1));
        assert_eq!(kind("", None), Err(FailureKind::Empty));
        assert_eq!(kind("# HELP running Requests.\n", None), Err(FailureKind::Empty));
        assert_eq!(kind("go_threads 1\n", None), Err(FailureKind::Empty));
        assert_eq!(kind("<html></html>", Some("text/html")), Err(FailureKind::Parse));
        assert_eq!(kind("[]", Some("application/json")), Err(FailureKind::Parse));
        assert_eq!(kind("running 1\n", Some("application/openmetrics-text")), Err(FailureKind::Parse));
        assert_eq!(kind("\u{1f}", None), Err(FailureKind::Parse));
    }

    #[test]
    fn a_page_compressed_twice_says_so() {
        let failed = lower(&[0x1f, 0x8b, 8], None, Some(Dialect::Known(&ENGINE)), false);
        assert!(failed.is_err_and(|failure| failure.message.contains("twice")));
    }

    #[test]
    fn the_first_problem_is_told_in_words() {
        let scraped = lower(b"running 1\nrunning x\n", None, Some(Dialect::Known(&ENGINE)), false);
        let first = scraped.ok().and_then(|scraped| scraped.first_problem);
        assert!(first.is_some_and(|words| words.starts_with("line 2")));
    }

    #[test]
    fn kept_lines_read_back_as_the_same_page() {
        let body = "# HELP running Requests.\r\n# TYPE running gauge\r\nrunning{model=\"a \\\"b\\\"\\\\\"} 1 1700000000000\r\nother 3\r\n\
            # TYPE tokens counter\ntokens_total{model=\"a\"} 5e3 # {trace=\"x\"} 1\nrunning{model=\"c\"} NaN\nrunning{model=\"d\",} 0x\n\
            latency_bucket{model=\"a\",le=\"0.5\"} 3\nlatency_bucket{model=\"a\",le=\"+Inf\"} 4\ngo_threads 9\nlatency_sum{model=\"a\"} 2.5\n\
            latency_count{model=\"a\"} 4";
        let kept =
            lower(body.as_bytes(), None, Some(Dialect::Known(&ENGINE)), true).ok().and_then(|scraped| scraped.page).unwrap_or_default();
        let wanted = Wanted::new(ENGINE.family_names());
        let families = |body: &str| {
            let page = read(body.as_bytes(), Format::Text, &wanted).unwrap();
            let sample = |sample: crate::exposition::Sample<'_>| format!("{:?} {:?} {:?}", sample.part, sample.labels, sample.value);
            page.families()
                .map(|family| (family.name.to_string(), family.kind, family.samples().map(sample).collect::<Vec<_>>()))
                .collect::<Vec<_>>()
        };
        assert_eq!(families(&kept), families(body));
        assert_eq!(families(&kept).len(), 3);
        assert!(!kept.contains("other") && !kept.contains("go_threads") && !kept.contains('\r') && !kept.contains("NaN"), "{kept}");
    }
}
