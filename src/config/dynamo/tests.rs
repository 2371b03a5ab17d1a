//! Is every field of Dynamo's translated or explained, and every mistake told?

use super::fields::{FIELDS, Field, Kind};
use super::*;

fn source(name: &str, text: &str) -> SourceText {
    SourceText { path: name.into(), text: text.to_owned() }
}

fn good(text: &str) -> String {
    translate(&source("d.yaml", text)).unwrap_or_else(|problems| panic!("{text}: {problems:?}"))
}

fn problems(text: &str) -> Vec<String> {
    translate(&source("d.yaml", text)).expect_err("mistakes").iter().map(ToString::to_string).collect()
}

/// A value of the field's kind that is not its default.
fn example(field: &Field) -> String {
    match field.kind {
        Kind::Whole(least, most) => {
            [7, 9, least, most].iter().find(|value| value.to_string() != field.default).map(ToString::to_string).unwrap_or_default()
        }
        Kind::Positive | Kind::Range(..) => "0.5".to_owned(),
        Kind::Switch => (field.default != "true").to_string(),
        Kind::Text | Kind::Secret => "https://somewhere".to_owned(),
        Kind::Choice(words) => (*words.last().expect("a word")).to_owned(),
        Kind::Structure => "{ prefill_pick: { tp: 1 }, decode_pick: { tp: 1 } }".to_owned(),
        Kind::Section => "{}".to_owned(),
    }
}

#[test]
fn every_field_that_is_written_is_found_again_in_the_answer() {
    let fields = FIELDS.iter().filter(|field| !matches!(field.kind, Kind::Section) && !field.name.starts_with("scheduling."));
    for field in fields {
        for name in field.names() {
            for value in [example(field)].into_iter().chain(field.nullable.then(|| "null".to_owned())) {
                // What some fields need beside them; none of it is the field itself.
                let beside = match field.name {
                    "environment" => "global_planner_namespace: g\n",
                    "enable_power_awareness" => "total_gpu_power_limit: 9\n",
                    "fpm_sample_bucket_size" => continue,
                    "load_min_observations" => "max_num_fpm_samples: 64\n",
                    "enable_throughput_scaling" => "enable_load_scaling: true\n",
                    "decode_min_endpoint" => "mode: decode\n",
                    "min_gpu_budget" | "min_endpoint" | "prefill_engine_num_gpu" | "decode_engine_num_gpu" | "prefill_min_endpoint" => {
                        "max_gpu_budget: 64\n"
                    }
                    _ => "",
                };
                for target in ["throughput", "sla"] {
                    let written = format!("{name}: {value}\n");
                    let target =
                        if field.name == "optimization_target" { String::new() } else { format!("optimization_target: {target}\n") };
                    let answer = match translate(&source("d.yaml", &format!("{target}{beside}{written}"))) {
                        Ok(answer) => answer,
                        Err(problems) => panic!("{written}: {problems:?}"),
                    };
                    assert!(answer.lines().any(|line| line.contains(name)), "{name} is lost with {target}{beside}{written}:\n{answer}");
                }
            }
        }
    }
}

#[test]
fn a_field_without_a_key_says_why() {
    let answer = good(
        "namespace: prod\nreport_interval_hours: null\nkalman_r: 3\nscheduling: { gateway: { enabled: true } }\nno_correction: true\n",
    );
    for line in [
        "# - namespace: prod. targets are chosen by selectors",
        "# - report_interval_hours: null. would be report.interval; nothing is said",
        "# - kalman_r: 3. would be planner.kalman_r; read only by predictor kalman",
        "# - scheduling.gateway: {...}. stages are part of one process",
        "# - no_correction: true. Dynamo itself no longer reads it",
    ] {
        assert!(answer.contains(line), "{line}\n{answer}");
    }
}

#[test]
fn reports_are_translated_where_the_file_speaks_of_them() {
    let section =
        |text: &str| good(text).split_once("report:\n").map(|(_, rest)| rest.lines().take(2).map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(section("mode: agg\n"), None);
    assert_eq!(section("report_interval_hours: null\nreport_output_dir: r\n"), None);
    let both = [
        "  dir: \"/data/r\"  # report_output_dir; a relative path starts at the folder of this file",
        "  interval: 12h  # report_interval_hours: 12",
    ];
    assert_eq!(section("report_interval_hours: 12\nreport_output_dir: /data/r\n").unwrap(), both);
    let clamped = section("report_interval_hours: 0.001\n").unwrap();
    assert!(
        clamped[0].contains("./planner_reports") && clamped[1].contains("interval: 1m  #") && clamped[1].contains("from a minute"),
        "{clamped:?}"
    );
    let longest = section("report_interval_hours: 1e30\n").unwrap();
    assert!(longest[1].contains("to 366 days here"), "{longest:?}");
    let answer = good("report_interval_hours: 1\nreport_filename: f\nreport_write_gzip_log: false\n");
    assert!(
        answer.contains("# - report_filename: f. each report's name says")
            && answer.contains("# - report_write_gzip_log: false. where reports")
    );
}

#[test]
fn every_mistake_is_told_at_once_with_its_place() {
    let text = "\
optimization_target: thruput
ttft: -1
ttft_ms: 3
max_gpu_budgets: 4
load_min_observations: 90
throughput_adjustment_interval: 180
load_adjustment_interval: 5.5
scheduling: { scale_interval: 3 }
metric_pulling_prometheus_endpoint: 'http://user:hunter2@h:1'
metric_pulling_prometheus_token: [hunter2]
mode: agg
prefill_min_endpoint: 2
aic_perf_model: {}
";
    assert_eq!(
        problems(text),
        [
            "d.yaml:1:22: optimization_target: expected throughput, latency, load or sla, got thruput; did you mean throughput?",
            "d.yaml:2:7: ttft: expected a number above 0, got -1",
            "d.yaml:3:1: ttft_ms: the same field as ttft, which is written as well; keep one",
            "d.yaml:4:1: max_gpu_budgets: Dynamo's planner has no such field; did you mean max_gpu_budget?",
            "d.yaml:5:24: load_min_observations: expected at most max_num_fpm_samples (64), got 90",
            "d.yaml:7:27: load_adjustment_interval: expected a whole number of at least 1, got 5.5",
            "d.yaml:8:15: scheduling.scale_interval: Dynamo's planner has no such field; did you mean scale_interval_seconds?",
            "d.yaml:9:37: metric_pulling_prometheus_endpoint: credentials in a URL are not supported, got \"http://hidden@h:1\"",
            "d.yaml:10:34: metric_pulling_prometheus_token: expected a text, or null, got (hidden)",
            "d.yaml:12:23: prefill_min_endpoint: not with mode agg; write min_endpoint",
            "d.yaml:13:17: aic_perf_model: needs decode_pick in mode agg",
        ]
    );
}

#[test]
fn fields_that_do_not_agree_are_told() {
    for (text, message) in [
        ("optimization_target: sla\nenable_throughput_scaling: false\n", "enable_throughput_scaling or enable_load_scaling, got neither"),
        ("fpm_sample_bucket_size: 15\n", "expected the square of a whole number, got 15"),
        ("enable_power_awareness: true\n", "needs total_gpu_power_limit"),
        ("enable_power_awareness: true\ntotal_gpu_power_limit: 5\nenvironment: virtual\n", "needs environment kubernetes"),
        ("environment: global-planner\n", "global-planner needs global_planner_namespace"),
        (
            "optimization_target: load\nmode: decode\ndecode_scale_up_kv_rate: 80\n",
            "decode_scale_down_kv_rate: required with optimization_target load",
        ),
        (
            "optimization_target: load\nmode: prefill\nprefill_scale_up_queue_tokens: 5\nprefill_scale_down_queue_tokens: 5\n",
            "expected more than prefill_scale_down_queue_tokens (5), got 5",
        ),
        (
            "optimization_target: sla\nenable_load_scaling: yes\nload_adjustment_interval_seconds: 180\n",
            "expected less than throughput_adjustment_interval_seconds (180), got 180",
        ),
        ("scheduling: { scale_interval_seconds: 3 }\n", "expected a number that divides load_adjustment_interval_seconds (5), got 3"),
        ("max_gpu_budget: 3\ndecode_engine_num_gpu: 4\n", "expected at least the 5 GPUs of the smallest counts, got 3"),
        ("max_gpu_budget: 8\nmin_gpu_budget: 9\n", "expected at most max_gpu_budget (8), got 9"),
        ("mode: decode\nprefill_min_endpoint: 1\n", "not with mode decode; write min_endpoint"),
        ("min_endpoint: null\n", "expected a whole number of at least 0, got null"),
        ("- a\n", "expected the fields of Dynamo's planner configuration"),
        (
            "apiVersion: v1\nkind: ConfigMap\ndata: {}\n",
            "got kind \"ConfigMap\" without it; the configuration is the text of one of its keys",
        ),
        (
            "spec: { features: { planner: { modes: agg } } }\n",
            "spec.features.planner.modes: Dynamo's planner has no such field; did you mean mode?",
        ),
        ("ttft: 3\nttft: 4\n", "written twice"),
        ("ttft: [\n", "not readable as YAML"),
    ] {
        let told = problems(text);
        assert!(told.len() == 1 && told[0].contains(message), "{text}: {told:?}");
    }
}

#[test]
fn a_request_for_a_deployment_gives_its_planner_and_its_model() {
    let planner = "mode: agg\n        ttft_ms: 300\n";
    for text in [
        format!(
            "kind: DynamoGraphDeploymentRequest\napiVersion: a/v1\nspec:\n  model: a/b\n  image: i\n  features:\n    planner:\n        {planner}"
        ),
        format!("model: a/b\nimage: i\nfeatures:\n    planner:\n        {planner}"),
    ] {
        let answer = good(&text);
        assert!(answer.contains("- name: \"a/b\"  # the request's model\n") && answer.contains("name: \"b-agg\""), "{answer}");
        assert!(answer.contains("# Not the planner's, and not read: ") && answer.contains("image"), "{answer}");
    }
    let own = good("spec: { model: a/b, features: { planner: { model_name: c/d } } }\n");
    assert!(own.contains("- name: \"c/d\"  # model_name\n"), "{own}");
}

#[test]
fn json_and_files_without_an_ending_are_read() {
    let text = "{\"mode\": \"agg\", \"max_gpu_budget\": \"12\", \"advisory\": \"on\"}";
    for name in ["d.json", "d.YAML", "planner-config", "d.conf"] {
        let answer = translate(&source(name, text)).unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
        assert!(answer.contains("max_gpu_budget: 12\n") && answer.contains("mode: shadow"), "{name}: {answer}");
    }
    assert!(good("").contains("max_gpu_budget: 8  # Dynamo's default; leave the key out for no ceiling\n"));
}

#[test]
fn no_secret_and_no_line_break_reaches_the_answer() {
    let answer = good(
        "metric_pulling_prometheus_token: hunter2\nmetric_pulling_prometheus_extra_query_params: { token: hunter2 }\n\
         plugin_registration: { auth: { static_secrets: [hunter2] } }\nnamespace: \"a\\nmodels: []\\u2028b\"\nlog_dir: \"\\e[2J\"\n",
    );
    assert!(!answer.contains("hunter2"), "{answer}");
    assert!(answer.contains("# metric_pulling_prometheus_token: (hidden)"), "{answer}");
    assert!(answer.contains("# - namespace: \"a\\nmodels: []\\u{2028}b\". ") && !answer.contains('\u{1b}'), "{answer}");
}

#[test]
fn the_budget_leaves_each_pool_what_the_other_does_not_need() {
    let answer = good("max_gpu_budget: 20\nprefill_engine_num_gpu: 2\ndecode_engine_num_gpu: 4\nprefill_min_endpoint: 3\n");
    let counts: Vec<&str> = answer.lines().filter_map(|line| line.trim().strip_prefix("max_replicas: ")?.split(' ').next()).collect();
    assert_eq!(counts, ["8", "3"], "(20 - 4) / 2 and (20 - 6) / 4");
    let answer = good("max_gpu_budget: -1\n");
    assert!(!answer.contains("  max_gpu_budget: ") && answer.contains("max_replicas: \"FILL_IN: the largest count"), "{answer}");
}

#[test]
fn rounds_are_as_frequent_as_the_fastest_loop() {
    let scrape = |text: &str| {
        good(text).split_once("scrape:\n").map(|(_, rest)| {
            rest.lines().take(2).map(|line| line.trim().split(' ').nth(1).unwrap_or_default().to_owned()).collect::<Vec<_>>()
        })
    };
    assert_eq!(scrape(""), Some(vec!["5s".to_owned(), "4s".to_owned()]));
    assert_eq!(scrape("load_adjustment_interval: 2\n"), Some(vec!["2s".to_owned(), "2s".to_owned()]));
    assert_eq!(scrape("metric_pulling_prometheus_request_timeout_seconds: 1.5\n"), Some(vec!["5s".to_owned(), "1s".to_owned()]));
    assert!(
        good("metric_pulling_prometheus_request_timeout_seconds: 10\n").contains("would be scrape.timeout; longer than a scrape interval")
    );
}
