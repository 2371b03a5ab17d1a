//! Does a memory of an earlier page ever change what a page says? Pages read cold and with memories of all kinds must be equal.

use std::path::{Path, PathBuf};

use inference_planner_exporter::exposition::{Format, Memory, Wanted, read};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::RngSeed;

pub const FORMATS: [Format; 2] = [Format::Text, Format::OpenMetrics];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// All recorded pages, those with oddities among them.
pub fn pages() -> Vec<PathBuf> {
    let entries = |folder: &Path| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let engines = entries(&folder().join("engines")).into_iter().filter(|path| path.is_dir()).flat_map(|path| entries(&path));
    let mut found: Vec<_> = ["edge", "pages"].iter().flat_map(|name| entries(&folder().join(name))).chain(engines).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "prom" || extension == "txt"));
    found.sort();
    found
}

fn wanted() -> Vec<Wanted> {
    let some =
        ["vllm:e2e_request_latency_seconds", "vllm:num_requests_running", "vllm:prompt_tokens", "sglang:num_requests_total", "g", "h"];
    let others = ["vllm:num_requests_running", "infera_request_duration_seconds", "s", "vllm.num.requests"];
    vec![Wanted::all(), Wanted::new(some), Wanted::new(others)]
}

fn memory(body: &[u8], format: Format, wanted: &Wanted) -> Option<Memory> {
    Memory::of(body, format, wanted, &read(body, format, wanted).ok()?)
}

/// How many of the readings with a memory of one of `earlier` had something to say.
fn compare(earlier: &[&[u8]], body: &[u8]) -> Result<usize, TestCaseError> {
    let mut used = 0;
    for format in FORMATS {
        for (place, wanted) in wanted().iter().enumerate() {
            let cold = read(body, format, wanted);
            for earlier in earlier {
                let remembered = memory(earlier, format, wanted);
                if let Some(page) = remembered.as_ref().and_then(|memory| memory.read(body, format, wanted)) {
                    used += 1;
                    prop_assert_eq!(Ok(&page), cold.as_ref());
                    // Bits, so that -0 is told from 0.
                    let bits = |page: &inference_planner_exporter::exposition::Page<'_>| {
                        page.families().flat_map(|family| family.samples()).map(|sample| sample.value.to_bits()).collect::<Vec<_>>()
                    };
                    prop_assert_eq!(cold.as_ref().map(bits), Ok(bits(&page)));
                    prop_assert!(page.sets() == cold.as_ref().unwrap().sets());
                }
                // Read for other families or in another format, a page is not the same.
                let other = &self::wanted()[(place + 1) % 3];
                prop_assert!(remembered.as_ref().is_none_or(|memory| memory.read(body, format, other).is_none()));
                let format = FORMATS[usize::from(format == FORMATS[0])];
                prop_assert!(remembered.as_ref().is_none_or(|memory| memory.read(body, format, wanted).is_none()));
            }
        }
    }
    Ok(used)
}

/// A change of a byte, of a line, or of a value.
#[derive(Clone, Debug)]
pub enum Edit {
    Set(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    /// One line stands where another is, the other behind it, or nowhere.
    Move(Index, Index),
    Double(Index),
    Drop(Index),
    /// What is behind the last blank of a line.
    Value(Index, &'static str),
}

const VALUES: [&str; 16] = [
    "0",
    "-0",
    "12",
    "12.0",
    "1.5",
    "1e3",
    "NaN",
    "+Inf",
    "x",
    "",
    "1 1700000000000",
    "1 # {a=\"}\"} 2",
    "1\r",
    "1 1 1",
    "12345678901234567",
    "0x1",
];

pub fn edits(values_only: bool) -> impl Strategy<Value = Vec<Edit>> {
    let place = any::<Index>;
    let byte = || prop_oneof![any::<u8>(), prop::sample::select(b"{}\",=\\ \t\r\n#:_1eNaN+-.".to_vec())];
    let value = (place(), prop::sample::select(VALUES.to_vec())).prop_map(|(line, value)| Edit::Value(line, value));
    let any = prop_oneof![
        (place(), byte()).prop_map(|(place, byte)| Edit::Set(place, byte)),
        (place(), byte()).prop_map(|(place, byte)| Edit::Insert(place, byte)),
        place().prop_map(Edit::Remove),
        (place(), place()).prop_map(|(from, to)| Edit::Move(from, to)),
        place().prop_map(Edit::Double),
        place().prop_map(Edit::Drop),
        (place(), prop::sample::select(VALUES.to_vec())).prop_map(|(line, value)| Edit::Value(line, value)),
    ];
    prop::collection::vec(if values_only { value.boxed() } else { any.boxed() }, 0..5)
}

pub fn edited(body: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut body = body.to_vec();
    for edit in edits.iter().filter(|_| !body.is_empty()).cloned().collect::<Vec<_>>() {
        let mut lines: Vec<Vec<u8>> = body.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
        let (bytes, count) = (body.len(), lines.len());
        if count == 0 {
            continue;
        }
        match edit {
            Edit::Set(place, byte) => body[place.index(bytes)] = byte,
            Edit::Insert(place, byte) => body.insert(place.index(bytes), byte),
            Edit::Remove(place) => drop(body.remove(place.index(bytes))),
            Edit::Move(from, to) => {
                let line = lines.remove(from.index(count));
                lines.insert(to.index(count), line);
                body = lines.concat();
            }
            Edit::Double(place) => {
                let line = lines[place.index(count)].clone();
                lines.insert(place.index(count), line);
                body = lines.concat();
            }
            Edit::Drop(place) => {
                lines.remove(place.index(count));
                body = lines.concat();
            }
            Edit::Value(place, value) => {
                let line = &mut lines[place.index(count)];
                let blank = line.iter().rposition(|&byte| byte == b' ').map_or(0, |blank| blank + 1);
                line.truncate(blank);
                line.extend(value.bytes().chain(*b"\n"));
                body = lines.concat();
            }
        }
    }
    body
}

/// A short page of the kinds of lines that a memory takes apart.
fn short_page() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "# HELP g Words.",
        "# TYPE g gauge",
        "# TYPE h histogram",
        "# TYPE h counter",
        "g 1",
        "g{a=\"1\"} 2 1700000000",
        "g{a=\"\\q\"} 2",
        "g{b=\"2\",a=\"1\"} 3",
        "  g{a=\"3\"}4",
        "h_bucket{le=\"1\"} 1",
        "h_bucket{le=\"2.50\"} 2",
        "h_bucket{le=\"+Inf\"} 2 # {trace=\"a b\"} 1",
        "h_bucket{a=\"1\",le=\"1\",b=\"2\"} 7.0",
        "h_bucket{a=\"1\",le=\"2\",b=\"2\"} 8.0",
        "h_bucket{a=\"1\",le=\"NaN\",b=\"2\"} 8.0",
        "h_sum{a=\"1\",b=\"2\"} 0.25",
        "h_count{a=\"1\",b=\"2\"} 9",
        "h_count{le=\"1\"} 9",
        "s{quantile=\"0.5\"} NaN",
        "s{quantile=\"0.9\"} 3",
        "s{le=\"0.9\"} 3",
        "{\"g\",a=\"7\"} 1",
        "other 5",
        "other{le=\"1\"} 5",
        "other{broken 5",
        "other",
        "gg 6",
        "",
        "# EOF",
        "\u{e9} 1",
    ]);
    prop::collection::vec((line, prop::sample::select(vec!["\n", "\n", "\n", "\r\n"])), 0..14)
        .prop_map(|lines| lines.into_iter().flat_map(|(line, end)| [line, end]).collect::<String>().into_bytes())
}

pub fn bounded(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(0x5eed), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(bounded(150))]

    #[test]
    fn a_recorded_page_says_the_same_with_a_memory_of_it_of_another_and_of_a_changed_one(
        page in prop::sample::select(pages()), other in prop::sample::select(pages()), edits in edits(false), values in edits(true)
    ) {
        let (page, other) = (std::fs::read(page).unwrap(), std::fs::read(other).unwrap());
        let changed = edited(&page, &edits);
        let moved = edited(&page, &values);
        for body in [&page, &changed, &moved] {
            compare(&[&page, &other, &changed, &moved], body)?;
        }
    }
}

proptest! {
    #![proptest_config(bounded(1500))]

    #[test]
    fn a_short_page_says_the_same_whatever_is_remembered(page in short_page(), edits in edits(false), values in edits(true)) {
        let changed = edited(&page, &edits);
        let moved = edited(&page, &values);
        for body in [&page, &changed, &moved] {
            compare(&[&page, &changed, &moved], body)?;
        }
    }

    #[test]
    fn a_line_says_the_same_behind_any_others(page in short_page()) {
        // What is shared between lines within one page must not show: each line alone says what it says on the page.
        let wanted = Wanted::new(["g", "h", "s"]);
        let Ok(whole) = read(&page, Format::Text, &wanted) else { return Ok(()) };
        let lines: Vec<&[u8]> = page.split_inclusive(|&byte| byte == b'\n').collect();
        for family in whole.families() {
            for sample in family.samples() {
                let alone = read(lines[sample.line as usize - 1], Format::Text, &wanted).unwrap();
                let twin = alone.families().flat_map(|family| family.samples()).next().unwrap();
                prop_assert_eq!((twin.part, twin.labels, twin.value), (sample.part, sample.labels, sample.value));
            }
        }
        // And none is lost: the others had a problem of their own, or repeat a series.
        let kept: usize = whole.families().map(|family| family.samples().len()).sum();
        let alone = lines.iter().filter_map(|line| read(line, Format::Text, &wanted).ok());
        let all: usize = alone.map(|page| page.families().map(|family| family.samples().len()).sum::<usize>()).sum();
        prop_assert_eq!(kept + whole.problems.count(inference_planner_exporter::exposition::ProblemKind::DuplicateSeries) as usize, all);
    }
}

#[test]
fn a_page_whose_values_alone_changed_is_read_from_memory() {
    let body = std::fs::read(folder().join("pages/vllm-0.33-scrape1.prom")).unwrap();
    let text = String::from_utf8(body.clone()).unwrap();
    let moved: String = text
        .lines()
        .map(|line| match line.rsplit_once(' ') {
            Some((series, value)) if !line.starts_with('#') => format!("{series} {}\n", value.parse::<f64>().unwrap() * 1.5 + 1.0),
            _ => format!("{line}\n"),
        })
        .collect();
    for wanted in wanted() {
        let memory = memory(&body, Format::Text, &wanted).unwrap();
        let page = memory.read(moved.as_bytes(), Format::Text, &wanted).unwrap();
        assert_eq!(page, read(moved.as_bytes(), Format::Text, &wanted).unwrap());
        assert_ne!(page, read(&body, Format::Text, &wanted).unwrap());
        assert!(memory.size() < 2 * body.len());
    }
}

#[test]
fn recorded_pages_can_be_remembered() {
    let (mut pages_read, mut used) = (0, 0);
    for path in pages() {
        let body = std::fs::read(path).unwrap();
        pages_read += usize::from(read(&body, Format::Text, &Wanted::all()).is_ok());
        used += usize::from(compare(&[&body], &body).unwrap() > 0);
    }
    assert!(used * 10 > pages_read * 8, "{used} of {pages_read}");
}
