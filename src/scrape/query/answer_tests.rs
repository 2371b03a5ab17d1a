//! Do pages come out of Prometheus' answers as they went in?

use super::super::super::lower::families;
use super::*;
use crate::exposition::{Format, Part, Wanted, read};

const MOMENT: f64 = 1_700_000_000.123;

/// An answer of the API.
fn body(kind: &str, result: &str) -> Vec<u8> {
    format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":[{result}]}}}}"#).into_bytes()
}

/// Targets of job `j`, each with the moment of its last scrape.
fn targets(list: &[(&str, f64)]) -> Vec<Listed> {
    let one = |(name, scraped): &(&str, f64)| {
        format!(r#"{{"metric":{{"instance":"{name}","job":"j","pod":"p-{name}"}},"value":[1700000005.5,"{scraped}"]}}"#)
    };
    let body = body("vector", &list.iter().map(one).collect::<Vec<_>>().join(","));
    listed(&body, "instance").unwrap().0
}

/// A series of target `a`; `samples` are offsets from the moment with values.
fn line(name: &str, labels: &str, samples: &[(f64, &str)]) -> String {
    let samples: Vec<_> = samples.iter().map(|(offset, value)| format!(r#"[{:.3},"{value}"]"#, MOMENT + offset)).collect();
    format!(r#"{{"metric":{{"__name__":"{name}","instance":"a","job":"j","pod":"p-a"{labels}}},"values":[{}]}}"#, samples.join(","))
}

fn page(lines: &[String]) -> Scrape {
    let body = body("matrix", &lines.join(","));
    scrapes(&body, &targets(&[("a", MOMENT)]), "instance").unwrap().remove(0)
}

#[test]
fn a_histogram_comes_back_without_the_labels_of_prometheus() {
    let le = |bound: &str| format!(r#","le":"{bound}","model_name":"m""#);
    let scrape = page(&[
        line("up", "", &[(-15.0, "0"), (0.0, "1")]),
        line("vllm:e2e_bucket", &le("1.0"), &[(-15.0, "1"), (0.0, "3")]),
        line("vllm:e2e_bucket", &le("+Inf"), &[(0.0, "4")]),
        line("vllm:e2e_sum", r#","model_name":"m""#, &[(0.0, "2.5")]),
        line("vllm:e2e_count", r#","model_name":"m""#, &[(0.0, "4")]),
        line("vllm:requests_total", r#","exported_job":"own","model_name":"m\"\\\n""#, &[(0.0, "1.7e+06")]),
        line("process_start_time_seconds", "", &[(0.0, "1.699e+09")]),
    ]);
    assert_eq!(scrape.up, Some(true));
    assert_eq!(
        scrape.page,
        "vllm:e2e_bucket{le=\"1.0\",model_name=\"m\"} 3\nvllm:e2e_bucket{le=\"+Inf\",model_name=\"m\"} 4\nvllm:e2e_sum{model_name=\"m\"} 2.5\n\
         vllm:e2e_count{model_name=\"m\"} 4\nvllm:requests_total{job=\"own\",model_name=\"m\\\"\\\\\\n\"} 1.7e+06\nprocess_start_time_seconds 1.699e+09\n"
    );
    let page = read(scrape.page.as_bytes(), Format::Text, &Wanted::all()).unwrap();
    let parts: Vec<_> = page.family("vllm:e2e").unwrap().samples().map(|sample| (sample.part, sample.value)).collect();
    assert_eq!(parts, [(Part::Bucket(1.0), 3.0), (Part::Bucket(f64::INFINITY), 4.0), (Part::Sum, 2.5), (Part::Count, 4.0)]);
    assert_eq!(page.family("vllm:requests").unwrap().samples().next().unwrap().label("model_name"), Some("m\"\\\n"));
}

#[test]
fn only_samples_of_the_last_scrape_are_on_the_page() {
    let scrape = page(&[
        line("kept", "", &[(-15.0, "1"), (0.0, "2")]),
        line("dropped", "", &[(-30.0, "1"), (-15.0, "2")]),
        line("of_the_next_scrape_as_well", "", &[(-15.0, "1"), (0.0, "2"), (15.0, "3")]),
        line("native", "", &[]),
    ]);
    assert_eq!((scrape.page.as_str(), scrape.up), ("kept 2\nof_the_next_scrape_as_well 2\n", None));
}

#[test]
fn numbers_that_are_none_reach_the_reader_of_pages_as_text() {
    let scrape = page(&[line("gauge", "", &[(0.0, "NaN")]), line("huge", "", &[(0.0, "+Inf")]), line("low", "", &[(0.0, "-Inf")])]);
    assert_eq!(scrape.page, "gauge NaN\nhuge +Inf\nlow -Inf\n");
    let page = read(scrape.page.as_bytes(), Format::Text, &Wanted::all()).unwrap();
    assert_eq!((page.families().len(), page.problems.counts().map(|(_, count)| count).sum::<u32>()), (0, 3));
}

#[test]
fn each_target_has_its_own_page_and_its_own_moment() {
    let other = line("f", "", &[(1.0, "9"), (0.0, "8")]).replace("\"a\"", "\"b\"").replace("p-a", "p-b");
    let stranger = line("f", "", &[(0.0, "7")]).replace("\"a\"", "\"c\"");
    let body = body("matrix", &[line("f", "", &[(0.0, "1"), (1.0, "2")]), other, stranger].join(","));
    let pages = scrapes(&body, &targets(&[("b", MOMENT + 1.0), ("a", MOMENT)]), "instance").unwrap();
    assert_eq!(pages.iter().map(|scrape| scrape.page.as_str()).collect::<Vec<_>>(), ["f 1\n", "f 9\n"]);
}

#[test]
fn a_label_of_the_page_that_wins_over_prometheus_stays() {
    let honoured = line("f", "", &[(0.0, "1")]).replace(r#""pod":"p-a""#, r#""pod":"own""#);
    assert_eq!(page(&[honoured]).page, "f{pod=\"own\"} 1\n");
    let quoted = line("f", r#","a.b":"c""#, &[(0.0, "1")]).replace(r#""f""#, r#""d.e""#);
    assert_eq!(page(&[quoted]).page, "{\"d.e\",\"a.b\"=\"c\"} 1\n");
}

#[test]
fn two_targets_of_one_name_have_no_page() {
    let list = targets(&[("a", MOMENT), ("a", MOMENT), ("b", MOMENT)]);
    assert_eq!(list.iter().map(|target| (target.name.as_str(), target.namesakes)).collect::<Vec<_>>(), [("a", 2), ("b", 1)]);
    let body = body("matrix", &line("f", "", &[(0.0, "1")]));
    assert_eq!(scrapes(&body, &list, "instance").unwrap(), [Scrape::default(), Scrape::default()]);
}

#[test]
fn what_is_no_whole_answer_is_refused_in_words() {
    let error = |body: &str| listed(body.as_bytes(), "instance").unwrap_err();
    assert_eq!(error(r#"{"status":"error","errorType":"bad_data","error":"parse\nerror"}"#), "bad_data: parse error");
    assert_eq!(error("<html>"), "expected an answer of Prometheus' API in JSON; line 1, column 1");
    assert!(error(r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#).contains("type vector"));
    assert!(error(r#"{"status":"success"}"#).contains("type vector"));
    assert!(error(r#"{"status":"success","data":{"resultType":"vector","result":[]}} x"#).contains("in JSON"));
    assert!(error(r#"{"status":"error","errorType":"internal","error":"e","data":null}"#).contains("internal: e"));
    let partial = r#"{"status":"success","warnings":["store is down"],"data":{"resultType":"vector","result":[]}}"#;
    assert!(error(partial).ends_with("store is down"));
    let nameless = body("vector", r#"{"metric":{"job":"j"},"value":[1,"1"]}"#);
    assert!(listed(&nameless, "instance").unwrap_err().contains("label instance"));
}

#[test]
fn questions_name_every_spelling_of_a_family() {
    assert_eq!(list_query("job=\"j\""), "timestamp(up{job=\"j\"})");
    assert_eq!(
        samples_query("job=\"j\"", &["a:b_total", "c.\"d", "x_y"], 16),
        "{__name__=~\"up|(?:a:b|a:b_total|a_b|a_b_total|c..d|x:y|x_y)(?:_total|_bucket|_sum|_count|_created)?\",job=\"j\"}[16s]"
    );
    assert!(samples_query("job=\"j\"", &families(None), 1).len() < 64 << 10);
}
