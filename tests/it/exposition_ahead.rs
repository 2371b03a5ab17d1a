//! Do the short cuts of the page reader read what the plain way reads? A blank before a line means nothing, and no line that starts with one is
//! like any other, so a page with and without such blanks must say the same.

use inference_planner_exporter::exposition::{Page, Problem, Refusal, Wanted, read};
use proptest::prelude::*;

use crate::exposition_memory::{FORMATS, bounded, edited, edits, pages};

/// The page with a blank before every line. The end of an OpenMetrics page is told by its first byte and stays as it is.
fn indented(body: &[u8]) -> Vec<u8> {
    let lines = body.split_inclusive(|&byte| byte == b'\n');
    let blank = |line: &[u8]| if line.trim_ascii_end() == b"# EOF" { &b""[..] } else { b" " };
    lines.flat_map(|line| [blank(line), line]).collect::<Vec<_>>().concat()
}

/// All that a page says, with values as bits, so that -0 is told from 0, and columns as they are behind `indent` blanks.
fn said(page: &Page<'_>, indent: u32) -> (Vec<String>, Vec<Problem>, [usize; 4]) {
    let mut samples = Vec::new();
    for family in page.families() {
        let head = format!("{} {:?}", family.name, family.kind);
        samples.extend(family.samples().map(|sample| format!("{head} {sample:?} {} {:x}", sample.set(), sample.value.to_bits())));
    }
    let shifted = |problem: &Problem| Problem { column: problem.column.map(|column| column + indent), ..*problem };
    let problems = page.problems.first().iter().map(shifted).collect();
    let lost = page.problems.lines_lost() as usize;
    (samples, problems, [page.lines_seen, page.samples_seen, page.sets(), lost])
}

fn compare(body: &[u8]) -> Result<(), TestCaseError> {
    let plain = indented(body);
    let lists = [
        vec!["g", "h", "s", "a:b", "c"],
        vec!["h_bucket", "c_total", "a_b_created"],
        vec![
            "vllm:e2e_request_latency_seconds",
            "vllm:num_requests_running",
            "vllm:prompt_tokens",
            "sglang:num_requests_total",
            "infera_request_duration_seconds",
        ],
    ];
    for format in FORMATS {
        let told =
            |body: &[u8], indent, wanted: &Wanted| -> Result<_, Refusal> { read(body, format, wanted).map(|page| said(&page, indent)) };
        for wanted in lists.iter().map(|names| Wanted::new(names.iter().copied())) {
            prop_assert_eq!(told(body, 1, &wanted), told(&plain, 0, &wanted));
        }
        // Where everything is wanted, families are declared by lines that start with `#`.
        let untold = String::from_utf8_lossy(body).replace("TYPE", "TIPE").into_bytes();
        prop_assert_eq!(told(&untold, 1, &Wanted::all()), told(&indented(&untold), 0, &Wanted::all()));
    }
    Ok(())
}

/// Comments without the `#`.
const COMMENTS: &[&str] = &[
    "HELP h_sum x",
    "TYPE g gauge",
    "TYPE h histogram",
    "TYPE h_created gauge",
    "TYPE a_b counter",
    "TYPE c_total counter",
    "TYPE c counter",
    "TYPE 1 gauge",
    "TYPE g-1 gauge",
    "TYPE other gauge",
    "EOF",
];
/// Names before the labels.
const NAMES: &[&str] = &[
    "g",
    "h",
    "h_bucket",
    "h_sum",
    "h_count",
    "h_created",
    "a:b",
    "a_b_created",
    "c",
    "c_total",
    "1",
    "g-1",
    "other",
    "other_bucket",
    "h_bucket_total",
    "{\"g\"",
];
/// Label lists without a bound of a bucket.
const LABELS: &[&str] = &[
    "",
    "{}",
    "{a=\"1\"}",
    "{a=\"1\",b=\"2\"}",
    "{b=\"2\",a=\"1\"}",
    "{a=\"\\\\\"}",
    "{le=\"1\"}",
    "{quantile=\"1\"}",
    "{a=\"1\",a=\"1\"}",
    "{a=\"\\q\"}",
    ",a=\"1\"}",
];
/// What stands behind the blank.
const VALUES: &[&str] = &[
    "0",
    "12",
    "12.0",
    "12.50",
    "-1",
    "1e3",
    "NaN",
    "",
    "x",
    "5.",
    "1 1700000000",
    "1 # {} 1",
    "1.7959555371077058e+09",
    "0.1234567890123456",
    "123456789012345.0",
    "1234567890123456",
];

/// A page of lines that are like each other in many ways.
fn similar_lines() -> impl Strategy<Value = Vec<u8>> {
    let comment = prop::sample::select(COMMENTS).prop_map(|text| format!("# {text}"));
    let name = || prop::sample::select(NAMES);
    let labels = prop::sample::select(LABELS);
    let value = || prop::sample::select(VALUES);
    let bound = prop::sample::select(vec!["1", "1.0", "2.5", "0.001", "+Inf", "1e3", "NaN", "x", "1\\n", "-0", "0"]);
    let before = prop::sample::select(vec!["", "a=\"1\",", "a=\"2\","]);
    let behind = prop::sample::select(vec!["", ",b=\"2\"", ",b=\"3\"", ","]);
    let bucket = (name(), before, bound, behind, value())
        .prop_map(|(name, before, bound, behind, value)| format!("{name}{{{before}le=\"{bound}\"{behind}}} {value}"));
    let sample = (name(), labels, value()).prop_map(|(name, labels, value)| format!("{name}{labels} {value}"));
    let line = prop_oneof![2 => comment, 4 => sample, 4 => bucket, 1 => Just(String::new())];
    let lines = prop::collection::vec((line, 1..4_usize), 0..20);
    (lines, prop::sample::select(vec!["\n", "\n", "\r\n"]), any::<bool>()).prop_map(|(lines, end, is_ended)| {
        let lines: Vec<String> = lines.into_iter().flat_map(|(line, times)| vec![line; times]).collect();
        let mut page = lines.join(end);
        page.push_str(if is_ended { end } else { "" });
        page.into_bytes()
    })
}

proptest! {
    #![proptest_config(bounded(3000))]

    #[test]
    fn a_page_of_similar_lines_says_the_same_line_by_line(page in similar_lines(), edits in edits(false)) {
        compare(&page)?;
        compare(&edited(&page, &edits))?;
    }
}

proptest! {
    #![proptest_config(bounded(150))]

    #[test]
    fn a_recorded_page_says_the_same_line_by_line(page in prop::sample::select(pages()), edits in edits(false)) {
        let page = std::fs::read(page).unwrap();
        compare(&page)?;
        compare(&edited(&page, &edits))?;
    }
}
