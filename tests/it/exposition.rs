//! Does the reader get out of every page in `tests/fixtures` what the page means, and never more?

use std::fmt::Write;
use std::path::Path;

use inference_planner_exporter::exposition::{Family, Format, Kind, Page, Part, ProblemKind, Refusal, Wanted, read};

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The page as text with everything wanted.
fn all(body: &[u8]) -> Page<'_> {
    read(body, Format::Text, &Wanted::all()).expect("a page")
}

/// The page as text with one family wanted.
fn one<'a>(body: &'a [u8], name: &str) -> Page<'a> {
    read(body, Format::Text, &Wanted::new([name])).expect("a page")
}

fn refusal(body: &[u8], format: Format) -> Refusal {
    for wanted in [Wanted::all(), Wanted::new(["vllm:num_requests_running"])] {
        read(body, format, &wanted).expect_err("a refusal");
    }
    read(body, format, &Wanted::all()).expect_err("a refusal")
}

fn values(family: Family<'_>) -> Vec<f64> {
    family.samples().map(|sample| sample.value).collect()
}

fn parts(family: Family<'_>) -> Vec<(Part, f64)> {
    family.samples().map(|sample| (sample.part, sample.value)).collect()
}

fn labels(family: Family<'_>, sample: usize) -> Vec<(&str, &str)> {
    family.samples().nth(sample).unwrap().labels.iter().map(|(name, value)| (&**name, &**value)).collect()
}

const RUNNING: &str = "vllm:num_requests_running";

#[test]
fn one_carriage_return_before_the_line_end_is_not_part_of_the_line() {
    let body = fixture("edge/01-crlf.prom");
    let page = one(&body, RUNNING);
    let family = page.family(RUNNING).unwrap();
    assert_eq!((family.kind, values(family)), (Kind::Gauge, vec![3.0]));
    assert!(page.problems.is_empty());
}

#[test]
fn a_last_line_without_line_end_is_still_a_line() {
    let body = fixture("edge/02-no-final-newline.prom");
    assert_eq!(values(one(&body, RUNNING).family(RUNNING).unwrap()), [3.0]);
}

#[test]
fn a_label_list_may_end_with_a_comma() {
    let body = fixture("edge/03-trailing-comma.prom");
    let page = all(&body);
    assert_eq!(labels(page.family(RUNNING).unwrap(), 0), [("engine", "0"), ("model_name", "m")]);
}

#[test]
fn label_values_are_unescaped_and_everything_in_quotes_is_data() {
    let body = fixture("edge/04-escaped-label-values.prom");
    let page = all(&body);
    let family = page.family(RUNNING).unwrap();
    assert_eq!(values(family), [1.0, 2.0, 3.0, 4.0]);
    let models: Vec<_> = family.samples().filter_map(|sample| sample.label("model_name")).collect();
    assert_eq!(models, [r#"C:\models\llama "q4""#, r#"a}b,c="d"{e} # f"#, "line1\nline2", r"ends with backslash\"]);
    assert!(page.problems.is_empty());
}

#[test]
fn an_unknown_escape_is_kept_as_it_is_and_noted_once_a_sample() {
    let page = one(
        br#"g{path="C:\models\new\llama\q4"} 1
"#,
        "g",
    );
    assert_eq!(page.family("g").unwrap().samples().next().unwrap().label("path"), Some("C:\\models\new\\llama\\q4"));
    assert_eq!(page.problems.count(ProblemKind::UnknownEscape), 1);
    assert_eq!((page.problems.first()[0].line, page.problems.first()[0].column), (1, Some(11)));
    assert_eq!(page.problems.lines_lost(), 0);
}

#[test]
fn timestamps_are_ignored_and_never_read_as_the_value() {
    let body = fixture("edge/06-timestamps.prom");
    assert_eq!(values(all(&body).family(RUNNING).unwrap()), [3.0, 4.0]);
    assert_eq!(values(all(b"g 1 1795954000.123\n").family("g").unwrap()), [1.0]);
}

#[test]
fn a_line_with_two_values_is_not_a_sample() {
    let page = one(b"g 1\ng{a=\"1\"} 1 2 3\ng{a=\"2\"} 1 b\ng{a=\"3\"} 1 NaN\n", "g");
    assert_eq!(values(page.family("g").unwrap()), [1.0]);
    assert_eq!(page.problems.count(ProblemKind::BadTimestamp), 3);
}

#[test]
fn exemplars_are_cut_in_text_too() {
    let body = fixture("edge/07-exemplar-in-text.prom");
    let page = all(&body);
    let expected = [(Part::Bucket(0.3), 2.0), (Part::Bucket(f64::INFINITY), 2.0), (Part::Sum, 0.4), (Part::Count, 2.0)];
    assert_eq!(parts(page.family("vllm:e2e_request_latency_seconds").unwrap()), expected);
    assert!(page.problems.is_empty());
}

#[test]
fn an_openmetrics_page_gives_counters_creation_times_and_buckets() {
    let body = fixture("edge/08-openmetrics.txt");
    for wanted in [Wanted::all(), Wanted::new(["sglang:num_requests_total", "sglang:ttft_seconds"])] {
        let page = read(&body, Format::OpenMetrics, &wanted).unwrap();
        let counter = page.family("sglang:num_requests").unwrap();
        assert_eq!(counter.kind, Kind::Counter);
        assert_eq!(parts(counter), [(Part::Total, 12.0), (Part::Created, 1_795_954_000.0)]);
        let expected = [(Part::Bucket(0.1), 4.0), (Part::Bucket(f64::INFINITY), 4.0), (Part::Count, 4.0), (Part::Sum, 0.2)];
        assert_eq!(parts(page.family("sglang:ttft_seconds").unwrap()), expected);
    }
}

#[test]
fn an_openmetrics_page_ends_with_exactly_one_eof() {
    assert!(read(b"g 1\n# EOF\n", Format::OpenMetrics, &Wanted::all()).is_ok());
    assert!(read(b"g 1\r\n# EOF\r\n\r\n", Format::OpenMetrics, &Wanted::all()).is_ok());
    assert!(read(b"g 1\n# EOF", Format::OpenMetrics, &Wanted::all()).is_ok());
    assert_eq!(refusal(b"g 1\n", Format::OpenMetrics), Refusal::MissingEof);
    assert_eq!(refusal(b"g 1\n# EO", Format::OpenMetrics), Refusal::MissingEof);
    assert_eq!(refusal(b"g 1\n# EOF\n# EOF\n", Format::OpenMetrics), Refusal::TextAfterEof { line: 3 });
    assert_eq!(refusal(&fixture("edge/30-text-after-eof.txt"), Format::OpenMetrics), Refusal::TextAfterEof { line: 4 });
}

#[test]
fn eof_is_a_comment_in_text() {
    let page = one(b"# TYPE g gauge\ng 1\n# EOF\ng{a=\"1\"} 2\n", "g");
    assert_eq!(values(page.family("g").unwrap()), [1.0, 2.0]);
    let body = fixture("edge/30-text-after-eof.txt");
    assert_eq!(one(&body, "g").problems.count(ProblemKind::DuplicateSeries), 1, "the page repeats its only series");
}

#[test]
fn values_that_are_not_finite_leave_no_sample_and_hexadecimal_is_refused() {
    let body = fixture("edge/10-nan-inf.prom");
    let page = one(&body, "g");
    let family = page.family("g").unwrap();
    assert_eq!((labels(family, 0), values(family)), (vec![("k", "f")], vec![1e6]));
    assert_eq!(page.problems.count(ProblemKind::NotFinite), 5);
    assert_eq!(page.problems.count(ProblemKind::BadValue), 1);
    assert_eq!(page.problems.lines_lost(), 1);
    assert!(page.problems.first().iter().any(|problem| problem.to_string() == "line 8, column 10: bad_value: expected a decimal number"));
}

#[test]
fn a_windows_nan_costs_its_own_sample_only() {
    let body = fixture("edge/11-windows-nan.prom");
    let page = all(&body);
    assert_eq!(page.families().len(), 1);
    assert_eq!(values(page.family("llamacpp:requests_processing").unwrap()), [2.0]);
    assert_eq!(page.problems.count(ProblemKind::NotFinite), 2);
    assert_eq!(page.samples_seen, 3);
}

#[test]
fn the_first_of_equal_series_counts_and_they_are_never_added() {
    let body = fixture("edge/12-duplicate-series.prom");
    let page = all(&body);
    assert_eq!(values(page.family(RUNNING).unwrap()), [3.0]);
    assert_eq!(page.problems.count(ProblemKind::DuplicateSeries), 1);
    assert_eq!(page.problems.first()[0].line, 4);
}

#[test]
fn series_are_compared_after_unescaping_and_by_number() {
    let page = one(
        b"h_bucket{le=\"1\",a=\"\\\\x\"} 1\nh_bucket{le=\"1.0\",a=\"\\x\"} 2\nh_bucket{a=\"\\\\x\",le=\"10e-1\"} 3\nh_sum{a=\"\\\\x\"} 4\n",
        "h",
    );
    assert_eq!(parts(page.family("h").unwrap()), [(Part::Bucket(1.0), 1.0), (Part::Sum, 4.0)]);
    assert_eq!(page.problems.count(ProblemKind::DuplicateSeries), 2);
}

#[test]
fn repeated_metadata_never_fails_a_page() {
    let body = fixture("edge/13-duplicate-metadata.prom");
    let page = all(&body);
    assert_eq!(values(page.family(RUNNING).unwrap()), [3.0, 4.0]);
    assert!(page.problems.is_empty());
}

#[test]
fn the_first_type_wins_and_a_different_later_one_is_noted() {
    let page = one(b"# TYPE g gauge\n# TYPE g gauge\n# TYPE g counter\n# HELP\n# TYPE g\n# TYPE\ng 1\n", "g");
    assert_eq!(page.family("g").unwrap().kind, Kind::Gauge);
    assert_eq!(page.problems.count(ProblemKind::ConflictingType), 1);
    assert_eq!(page.problems.first()[0].line, 3);
}

#[test]
fn a_family_is_collected_from_all_over_the_page() {
    let body = b"h_count 2\ng 1\nh_sum 3\n# TYPE h histogram\ng{a=\"b\"} 2\nh_bucket{le=\"+Inf\"} 2\n# TYPE g gauge\n";
    for wanted in [Wanted::all(), Wanted::new(["g", "h"])] {
        let page = read(body, Format::Text, &wanted).unwrap();
        assert_eq!(page.families().map(|family| family.name).collect::<Vec<_>>(), ["h", "g"]);
        assert_eq!(parts(page.family("h").unwrap()), [(Part::Count, 2.0), (Part::Sum, 3.0), (Part::Bucket(f64::INFINITY), 2.0)]);
        assert_eq!((page.family("h").unwrap().kind, page.family("g").unwrap().kind), (Kind::Histogram, Kind::Gauge));
        assert_eq!(values(page.family("g").unwrap()), [1.0, 2.0]);
    }
}

#[test]
fn quoted_metric_and_label_names_are_read() {
    let body = fixture("edge/15-utf8-names.prom");
    for wanted in [Wanted::all(), Wanted::new(["vllm.num.requests"])] {
        let page = read(&body, Format::Text, &wanted).unwrap();
        let family = page.family("vllm.num.requests").unwrap();
        assert_eq!((family.kind, values(family)), (Kind::Gauge, vec![3.0, 4.0]));
        assert_eq!(labels(family, 1), [("k8s.pod", "p")]);
        assert!(page.problems.is_empty());
    }
    assert_eq!(values(one(br#"{ "a\"b" } 5"#, "a\"b").family("a\"b").unwrap()), [5.0]);
}

#[test]
fn blanks_around_tokens_mean_nothing() {
    let body = fixture("edge/16-spaces-and-tabs.prom");
    let page = one(&body, "g");
    assert_eq!(values(page.family("g").unwrap()), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(labels(page.family("g").unwrap(), 1), [("a", "2"), ("b", "x")]);
    assert!(page.problems.is_empty());
}

#[test]
fn blank_lines_and_comments_are_nothing() {
    let body = fixture("edge/17-comments-and-blanks.prom");
    let page = all(&body);
    assert_eq!((values(page.family("g").unwrap()), page.families().len()), (vec![1.0], 1));
    assert_eq!((page.lines_seen, page.samples_seen), (9, 1));
    assert!(page.problems.is_empty());
}

#[test]
fn samples_without_metadata_are_untyped() {
    let body = fixture("edge/18-no-metadata.prom");
    let page = all(&body);
    assert_eq!(parts(page.family("infera_router_active_workers").unwrap()), [(Part::Value, 5.0)]);
    let trips = page.family("infera_router_worker_breaker_trips_total").unwrap();
    assert_eq!((trips.kind, parts(trips)), (Kind::Untyped, vec![(Part::Total, 3.0)]));
    let histogram = all(b"h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n");
    assert_eq!(histogram.families().map(|family| (family.name, family.samples().len())).collect::<Vec<_>>(), [("h", 4)]);
}

#[test]
fn buckets_that_fall_are_passed_on_for_the_caller_to_judge() {
    let body = fixture("edge/20-nonmonotone-buckets.prom");
    let expected =
        [(Part::Bucket(0.5), 5.0), (Part::Bucket(1.0), 4.0), (Part::Bucket(f64::INFINITY), 9.0), (Part::Sum, 3.0), (Part::Count, 9.0)];
    assert_eq!(parts(all(&body).family("h").unwrap()), expected);
}

#[test]
fn web_pages_json_and_other_texts_are_refused_by_name() {
    assert_eq!(refusal(&fixture("edge/22-html-error.txt"), Format::Text), Refusal::Html);
    assert_eq!(refusal(b"\r\n <html>\nerror 404\n</html>\n", Format::Text), Refusal::Html);
    assert_eq!(refusal(&fixture("edge/23-json-body.txt"), Format::Text), Refusal::Json);
    for json in ["[{\"iter\": 1}]", "{}", " {\n}\n", "{\"detail\":\"Not Found\"}", "{\n  \"detail\" : 1\n}"] {
        assert_eq!(refusal(json.as_bytes(), Format::Text), Refusal::Json, "{json}");
    }
    assert!(Refusal::Json.to_string().contains("/prometheus/metrics"));
    assert_eq!(refusal(br##""# TYPE g gauge\ng 1\n""##, Format::Text), Refusal::JsonString);
    for text in ["Not Found", "404 page not found\n", "Internal Server Error\n", "g\n", "g one\n", "{\"g\"\n", "g{} 0x10\n"] {
        assert_eq!(refusal(text.as_bytes(), Format::Text), Refusal::NotExposition, "{text}");
    }
}

#[test]
fn a_page_without_any_sample_is_refused_as_empty() {
    for text in ["", "\n\r\n \t\n", "# TYPE g gauge\n", "# EOF\n"] {
        assert_eq!(refusal(text.as_bytes(), Format::Text), Refusal::Empty, "{text:?}");
        assert_eq!(refusal(text.as_bytes(), Format::OpenMetrics), Refusal::Empty, "{text:?}");
    }
    assert_eq!(refusal(&fixture("edge/24-empty.prom"), Format::Text), Refusal::Empty);
}

#[test]
fn a_page_of_other_families_is_not_refused() {
    let page = one(b"other 1\nother{a=\"b\"} 2\n", "g");
    assert_eq!((page.families().len(), page.samples_seen), (0, 2));
    assert!(page.family("g").is_none());
}

#[test]
fn a_page_that_ends_inside_a_line_is_refused_whoever_the_line_belongs_to() {
    assert_eq!(refusal(&fixture("edge/25-truncated-line.prom"), Format::Text), Refusal::CutShort { line: 4 });
    assert_eq!(refusal(b"g 1\nother{a=\"b", Format::Text), Refusal::CutShort { line: 2 });
    assert_eq!(refusal(b"g 1\nother", Format::Text), Refusal::CutShort { line: 2 });
    assert_eq!(refusal(b"# TYPE g gauge\ng{a", Format::Text), Refusal::CutShort { line: 2 });
}

#[test]
fn a_line_that_cannot_be_read_costs_that_line_and_is_reported() {
    let body = "# TYPE g gauge\ng{a=\"0\"} 1\ng{a=\"1\"b=\"2\"} 2\ng{a=\"un\"quoted\"} 3\ng{a=1} 4\ng{a=\"2\"}\ng{a=\"3\",,} 5\ng{1=\"4\"} 6\ng{a=\"5\"} 7\n";
    let page = one(body.as_bytes(), "g");
    assert_eq!(values(page.family("g").unwrap()), [1.0, 7.0]);
    assert_eq!((page.problems.count(ProblemKind::BadLabels), page.problems.count(ProblemKind::BadValue)), (5, 1));
    let first = page.problems.first()[0];
    assert_eq!((first.line, first.column), (3, Some(8)));
    assert_eq!(page.samples_seen, 2);
}

#[test]
fn a_broken_line_of_an_unwanted_family_is_nobodys_problem() {
    let page = one(b"g 1\nother{a= 2\nother x\n", "g");
    assert!(page.problems.is_empty());
}

#[test]
fn a_line_whose_name_cannot_be_read_is_reported_whatever_is_wanted() {
    let page = one(b"g 1\ng\xe8h 2\n1g 3\n{a=\"b\"} 4\n", "g");
    assert_eq!(page.problems.count(ProblemKind::BadName), 3);
    assert_eq!(page.problems.first().iter().map(|problem| problem.line).collect::<Vec<_>>(), [2, 3, 4]);
}

#[test]
fn a_label_value_that_is_not_utf8_is_repaired_and_noted() {
    let body = fixture("edge/27-latin1-label.prom");
    let page = one(&body, RUNNING);
    assert_eq!(page.family(RUNNING).unwrap().samples().next().unwrap().label("model_name"), Some("mod\u{fffd}le"));
    assert_eq!(page.problems.count(ProblemKind::InvalidUtf8), 1);
    assert_eq!(page.problems.lines_lost(), 0);
}

#[test]
fn bytes_that_are_not_utf8_outside_of_label_values_cost_the_line() {
    let page = one(b"g 1\ng{\"\xe8\"=\"a\"} 2\ng{\xe8=\"a\"} 3\ng{a=\"b\"} \xe8\n# HELP g \xe8\n", "g");
    assert_eq!(values(page.family("g").unwrap()), [1.0]);
    assert_eq!(page.problems.lines_lost(), 3);
}

#[test]
fn quantiles_without_observations_are_absent() {
    let body = fixture("edge/29-summary-nan.prom");
    assert_eq!(parts(all(&body).family("s").unwrap()), [(Part::Sum, 0.0), (Part::Count, 0.0)]);
    assert_eq!(parts(one(b"s{quantile=\"0.5\",a=\"b\"} 2\n", "s").family("s").unwrap()), [(Part::Quantile(0.5), 2.0)]);
}

#[test]
fn a_bucket_needs_a_bound_that_is_a_number() {
    let page = one(b"h_bucket{le=\"+Inf\"} 1\nh_bucket 2\nh_bucket{le=\"x\"} 3\nh_bucket{le=\"NaN\"} 4\nh_bucket{le=\"-Inf\"} 5\n", "h");
    assert_eq!(parts(page.family("h").unwrap()), [(Part::Bucket(f64::INFINITY), 1.0)]);
    assert_eq!(page.problems.count(ProblemKind::BadBound), 4);
}

#[test]
fn a_label_name_that_occurs_twice_costs_the_line() {
    let page = one(b"g{a=\"1\",b=\"2\",a=\"3\"} 1\nh_bucket{le=\"1\",le=\"2\"} 2\n", "g");
    assert_eq!(page.problems.count(ProblemKind::RepeatedLabel), 1);
    assert_eq!(one(b"h_bucket{le=\"1\",le=\"2\"} 2\n", "h").problems.count(ProblemKind::RepeatedLabel), 1);
}

#[test]
fn a_creation_time_is_kept_apart_although_text_declares_it_as_a_gauge() {
    let body = b"# TYPE c_total counter\nc_total 5\n# TYPE c_created gauge\nc_created 1.7e+09\n";
    for wanted in [Wanted::all(), Wanted::new(["c"]), Wanted::new(["c_total"])] {
        let page = read(body, Format::Text, &wanted).unwrap();
        assert_eq!(page.families().len(), 1);
        assert_eq!(page.family("c").unwrap().kind, Kind::Counter);
        assert_eq!(parts(page.family("c").unwrap()), [(Part::Total, 5.0), (Part::Created, 1.7e9)]);
        assert!(page.problems.is_empty());
    }
    assert_eq!(parts(all(b"# TYPE job_created gauge\njob_created 1\n").family("job_created").unwrap()), [(Part::Value, 1.0)]);
}

#[test]
fn the_content_type_decides_between_the_formats_and_nothing_else() {
    let text = [
        None,
        Some(""),
        Some("text/plain"),
        Some("text/plain; version=0.0.4"),
        Some("text/plain; version=1.0.0; charset=utf-8"),
        Some("text/html"),
    ];
    assert!(text.into_iter().all(|header| Format::from_content_type(header) == Format::Text));
    for header in ["application/openmetrics-text", "Application/OpenMetrics-Text ; version=1.0.0; charset=utf-8"] {
        assert_eq!(Format::from_content_type(Some(header)), Format::OpenMetrics);
    }
}

#[test]
fn a_whole_vllm_page_gives_the_numbers_on_it() {
    let body = fixture("pages/vllm-0.33-scrape1.prom");
    let names =
        [RUNNING, "vllm:num_requests_waiting", "vllm:prompt_tokens", "vllm:iteration_tokens_total", "vllm:time_to_first_token_seconds"];
    let page = read(&body, Format::Text, &Wanted::new(names)).unwrap();
    assert_eq!((page.families().len(), page.lines_seen, page.samples_seen), (5, 678, 476));
    assert!(page.problems.is_empty());
    assert_eq!(values(page.family(RUNNING).unwrap()), [16.0]);
    assert_eq!(values(page.family("vllm:num_requests_waiting").unwrap()), [2.0], "without waiting_by_reason");
    let prompt = page.family("vllm_prompt_tokens_total").unwrap();
    assert_eq!(parts(prompt), [(Part::Total, 3_325_656.0), (Part::Created, 1.795_955_537_107_288_6e9)]);
    let iteration = page.family("vllm:iteration_tokens_total").unwrap();
    assert_eq!((iteration.kind, iteration.samples().len()), (Kind::Histogram, 17));
    assert!(parts(iteration).contains(&(Part::Sum, 2_917_395.0)) && parts(iteration).contains(&(Part::Count, 10_129.0)));
    let ttft = page.family("vllm:time_to_first_token_seconds").unwrap();
    for part in
        [(Part::Bucket(0.25), 2454.0), (Part::Bucket(f64::INFINITY), 3748.0), (Part::Count, 3748.0), (Part::Sum, 894.931_851_816_463_2)]
    {
        assert!(parts(ttft).contains(&part), "{part:?}");
    }
    assert_eq!(labels(ttft, 0), [("engine", "0"), ("model_name", "meta-llama/Llama-3.1-8B-Instruct")]);
}

#[test]
fn a_family_reads_the_same_whether_it_or_everything_is_wanted() {
    for name in
        ["vllm-0.33-scrape1.prom", "infera-sla-model-label-routerA-scrape1.prom", "sglang-0.5.23-scrape2.openmetrics-1.0-underscores.txt"]
    {
        let body = fixture(&format!("pages/{name}"));
        let everything = all(&body);
        let kept: usize = everything.families().map(|family| family.samples().len()).sum();
        let absent = everything.problems.count(ProblemKind::NotFinite) as usize;
        assert_eq!((kept + absent, everything.problems.lines_lost()), (everything.samples_seen, 0), "{name}");
        for family in everything.families() {
            assert_eq!(one(&body, family.name).family(family.name), Some(family), "{name}");
        }
    }
}

#[test]
fn openmetrics_samples_with_underscores_belong_to_their_declaration_with_a_colon() {
    let body = fixture("pages/sglang-0.5.23-scrape2.openmetrics-1.0-underscores.txt");
    let names = ["sglang:num_requests_total", "sglang:num_running_reqs", "sglang:time_to_first_token_seconds", "sglang:fwd_occupancy"];
    let page = read(&body, Format::OpenMetrics, &Wanted::new(names)).unwrap();
    assert_eq!(page.samples_seen, 548);
    let requests = page.family("sglang:num_requests_total").unwrap();
    assert_eq!((requests.name, requests.kind), ("sglang:num_requests", Kind::Counter));
    assert_eq!(parts(requests), [(Part::Total, 2189.0), (Part::Total, 700.0)]);
    assert_eq!(values(page.family("sglang:num_running_reqs").unwrap()), [43.0]);
    let ttft = page.family("sglang:time_to_first_token_seconds").unwrap();
    let counts: Vec<_> =
        ttft.samples().filter(|sample| sample.part == Part::Count).map(|sample| (sample.label("is_streaming"), sample.value)).collect();
    assert_eq!(counts, [(Some("true"), 2214.0), (Some("false"), 698.0)]);
    assert!(page.family("sglang:fwd_occupancy").is_none(), "its only sample is NaN");
    assert_eq!((page.problems.count(ProblemKind::NotFinite), page.problems.first()[0].line), (1, 225));
    assert_eq!(read(&body, Format::OpenMetrics, &Wanted::all()).unwrap().families().len(), 79);
}

#[test]
fn a_whole_infera_page_gives_the_numbers_on_it() {
    let body = fixture("pages/infera-sla-model-label-routerA-scrape1.prom");
    let page = all(&body);
    assert_eq!(page.samples_seen, 257);
    assert!(page.problems.is_empty());
    let picks = page.family("infera_router_picks").unwrap();
    let totals: Vec<_> = picks.samples().filter(|sample| sample.part == Part::Total).map(|sample| sample.value).collect();
    assert_eq!(totals, [440.0, 293.0, 439.0, 293.0, 293.0]);
    assert_eq!(labels(picks, 0), [("role", "prefill"), ("worker_id", "pf-0")]);
    assert!(parts(page.family("infera_time_to_first_token_seconds").unwrap()).contains(&(Part::Bucket(0.1), 394.0)));
    assert!(page.family("infera_migrations_total").is_none(), "declared, but absent is not zero");
}

#[test]
fn many_samples_and_many_duplicates_are_told_apart() {
    let mut body = String::new();
    for index in 0..20_000 {
        let _ = writeln!(body, "g{{pod=\"{}\",zone=\"z\"}} {index}", index % 10_000);
    }
    let page = one(body.as_bytes(), "g");
    let family = page.family("g").unwrap();
    assert_eq!((family.samples().len(), page.problems.count(ProblemKind::DuplicateSeries)), (10_000, 10_000));
    assert!(values(family).into_iter().eq((0..10_000).map(f64::from)), "the first of each, in the order of the page");
}

/// Pages of some megabytes each that would take minutes if any step were quadratic.
#[test]
fn hostile_pages_are_read_in_linear_time() {
    let million = 1_000_000;
    let distinct: String = (0..million).fold(String::from("g{"), |mut line, index| {
        let _ = write!(line, "l{index}=\"\",");
        line
    });
    let scattered = (0..million / 10).fold(String::new(), |mut body, index| {
        let _ = writeln!(body, "f{index}_total 1");
        body
    });
    let bodies = [
        format!("{distinct}}} 1\n"),
        format!("{distinct}}} 1\n{}", "g{a=\"\"} x\n".repeat(million / 10)),
        format!("g{{{}}} 1\n", "a=\"\",".repeat(million)),
        format!("g{{a=\"{}\"}} 1\n", "\\\\".repeat(million)),
        format!("g{{a=\"{}\"}} 1\n", "\\\"".repeat(million)),
        format!("g{}1\n", " ".repeat(million)),
        format!("{} 1\n", "g".repeat(million)),
        format!("{{\"{}\"}} 1\n", "g".repeat(million)),
        format!("g 1 # {}\n", "{".repeat(million)),
        format!("g 1{}\n", "0".repeat(million)),
        format!("g 1\n{}", "g{a=\"\n".repeat(million)),
        format!("g 1\n{}", "\0\n".repeat(million)),
        format!("g 1\n{}", "g 1\n".repeat(million / 2)),
        format!("g 1\n{}", "\r".repeat(million)),
        format!("g 1\n# TYPE {}\n", " ".repeat(million)),
        format!("{{{}", "\"".repeat(million)),
        scattered,
    ];
    for body in bodies {
        for wanted in [Wanted::all(), Wanted::new(["g"])] {
            let _ = read(body.as_bytes(), Format::Text, &wanted);
        }
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    const PAGES: [&str; 12] = [
        "edge/01-crlf.prom",
        "edge/02-no-final-newline.prom",
        "edge/04-escaped-label-values.prom",
        "edge/07-exemplar-in-text.prom",
        "edge/08-openmetrics.txt",
        "edge/10-nan-inf.prom",
        "edge/13-duplicate-metadata.prom",
        "edge/15-utf8-names.prom",
        "edge/16-spaces-and-tabs.prom",
        "edge/25-truncated-line.prom",
        "edge/27-latin1-label.prom",
        "edge/29-summary-nan.prom",
    ];

    fn names() -> Vec<&'static str> {
        vec![RUNNING, "g", "s", "vllm.num.requests", "sglang:ttft_seconds", "sglang:num_requests_total", "vllm:e2e_request_latency_seconds"]
    }

    /// A page with some of its bytes replaced, inserted or cut off: near enough to an exposition to reach every corner of the reader.
    fn mutated_page() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![any::<u8>(), prop::sample::select(b"{}\",=\\ \t\r\n#:_1eNaN+-.".to_vec())];
        let edits = prop::collection::vec((any::<prop::sample::Index>(), byte, 0..3_u8), 0..8);
        (prop::sample::select(PAGES.to_vec()), edits).prop_map(|(name, edits)| {
            let mut body = fixture(name);
            for (place, byte, edit) in edits {
                let place = place.index(body.len().max(1));
                match edit {
                    0 if place < body.len() => body[place] = byte,
                    1 if place < body.len() => drop(body.remove(place)),
                    _ => body.insert(place, byte),
                }
            }
            body
        })
    }

    fn any_page() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![4 => mutated_page(), 1 => prop::collection::vec(any::<u8>(), 0..200), 1 => "(g(_total|_sum)?[{ ]?(a=\"[^\"]{0,3}\",?)?}? [0-9]{0,3}\n?){0,9}".prop_map(String::into_bytes)]
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_every_value_is_finite_and_every_family_is_sound(body in any_page(), openmetrics: bool) {
            let format = if openmetrics { Format::OpenMetrics } else { Format::Text };
            for wanted in [Wanted::all(), Wanted::new(names())] {
                let Ok(page) = read(&body, format, &wanted) else { continue };
                prop_assert!(page.samples_seen > 0 && page.samples_seen <= page.lines_seen);
                for family in page.families() {
                    prop_assert!(family.samples().next().is_some());
                    for sample in family.samples() {
                        prop_assert!(sample.value.is_finite());
                        prop_assert!(sample.labels.is_sorted_by(|left, right| left.0 < right.0));
                        prop_assert!(!matches!(sample.part, Part::Bucket(bound) | Part::Quantile(bound) if bound.is_nan()));
                    }
                    prop_assert!(family.samples().is_sorted_by(|left, right| left.line < right.line));
                }
            }
        }

        #[test]
        fn a_family_more_at_the_end_changes_nothing_for_the_others(body in any_page()) {
            let longer = [&body[..], b"\n# TYPE unrelated histogram\nunrelated_bucket{le=\"1\"} 1\nunrelated_sum{} NaN\n"].concat();
            let wanted = Wanted::new(names());
            if let Ok(page) = read(&body, Format::Text, &wanted) {
                let longer = read(&longer, Format::Text, &wanted);
                prop_assert!(longer.is_ok_and(|longer| longer.families().eq(page.families()) && longer.problems == page.problems));
            }
        }

        #[test]
        fn type_lines_change_no_sample_that_is_read(body in any_page()) {
            let untold: Vec<u8> = String::from_utf8_lossy(&body).replace("TYPE", "TIPE").into_bytes();
            let told = String::from_utf8_lossy(&body).into_owned();
            let wanted = Wanted::new(names());
            if let (Ok(told), Ok(untold)) = (read(told.as_bytes(), Format::Text, &wanted), read(&untold, Format::Text, &wanted)) {
                let samples = |page: &Page<'_>| -> Vec<String> {
                    page.families().flat_map(|family| family.samples().map(move |sample| format!("{} {sample:?}", family.name)).collect::<Vec<_>>()).collect()
                };
                prop_assert_eq!(samples(&told), samples(&untold));
                prop_assert_eq!((told.samples_seen, told.lines_seen), (untold.samples_seen, untold.lines_seen));
            }
        }

        #[test]
        fn a_page_cut_off_anywhere_is_refused_or_holds_only_true_samples(length in any::<prop::sample::Index>()) {
            let body = fixture("pages/vllm-0.33-scrape1.prom");
            let length = length.index(body.len());
            let whole = all(&body);
            if let Ok(cut) = read(&body[..length], Format::Text, &Wanted::all()) {
                let last = u32::try_from(cut.lines_seen).unwrap();
                for family in cut.families() {
                    for sample in family.samples().filter(|sample| sample.line < last) {
                        let twin = whole.families().flat_map(|family| family.samples()).find(|twin| twin.line == sample.line);
                        prop_assert_eq!(Some((sample.labels, sample.value)), twin.map(|twin| (twin.labels, twin.value)));
                    }
                }
            }
        }
    }
}
