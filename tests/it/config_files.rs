//! Are the files that a configuration names and requests need usable? What `check` says of them, and what `run` does without them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use inference_planner_exporter::config::{self, Inputs, Loaded, Problem, SourceText};

use crate::service::{Exporter, Router, Site, run, text, until};

const AUTHORITY: &str = include_str!("../fixtures/tls/authority.pem");
const CLIENT: &str = include_str!("../fixtures/tls/client.pem");
const CLIENT_KEY: &str = include_str!("../fixtures/tls/client.key");
const SERVER_KEY: &str = include_str!("../fixtures/tls/server.key");

fn secured(access: &str) -> String {
    format!(
        "models:\n  - name: m\n    planner: {{ preset: dynamo }}\n    pools:\n      \
         - {{ name: p, role: aggregated, max_replicas: 4, targets: {{ static: ['http://h:1'], {access} }} }}\n"
    )
}

fn load(text: &str, files: &[(&str, Result<&str, &str>)]) -> Result<Loaded, Vec<Problem>> {
    let draft = config::read(Inputs { file: Some(SourceText { path: "c.yaml".into(), text: text.to_owned() }), ..Inputs::default() });
    let own = |text: &Result<&str, &str>| text.map(ToOwned::to_owned).map_err(ToOwned::to_owned);
    let files: BTreeMap<PathBuf, _> = files.iter().map(|(path, text)| (PathBuf::from(path), own(text))).collect();
    draft.finish(&files)
}

/// What is wrong with files that requests need, without its place.
fn unready(text: &str, files: &[(&str, Result<&str, &str>)]) -> Vec<String> {
    let loaded = load(text, files).unwrap_or_else(|problems| panic!("{problems:?}"));
    loaded
        .unready
        .iter()
        .map(|problem| format!("{}: {}", problem.key.rsplit("targets.").next().unwrap_or_default(), problem.message))
        .collect()
}

const TLS: &str = "tls: { ca_file: ca, cert_file: cert, key_file: key }";

#[test]
fn good_files_are_not_mentioned() {
    assert_eq!(unready(&secured("bearer_token_file: t"), &[("t", Ok("token\n"))]), [""; 0]);
    assert_eq!(unready(&secured("basic_auth: { username: u, password_file: p }"), &[("p", Ok("p\u{e4}ss\n"))]), [""; 0]);
    let chain = format!("{CLIENT}{AUTHORITY}");
    assert_eq!(unready(&secured(TLS), &[("ca", Ok(AUTHORITY)), ("cert", Ok(&chain)), ("key", Ok(CLIENT_KEY))]), [""; 0]);
}

#[test]
fn files_that_are_missing_empty_or_unreadable_are_told_together() {
    let text = secured(&format!("bearer_token_file: t, {TLS}"));
    assert_eq!(
        unready(&text, &[("ca", Ok(" \n")), ("cert", Err("permission denied")), ("key", Ok(""))]),
        [
            "bearer_token_file: t does not exist",
            "tls.ca_file: expected certificates as PEM in ca, got nothing",
            "tls.cert_file: cert cannot be read: permission denied",
            "tls.key_file: expected a private key as PEM, without a passphrase, in key, got none",
        ]
    );
    let refused = |access: &str, content: &str| unready(&secured(access), &[("f", Ok(content))]).concat();
    assert_eq!(refused("bearer_token_file: f", "\n"), "bearer_token_file: expected a secret in f, got nothing");
    assert!(
        refused("bearer_token_file: f", "hunter2\nhunter2").starts_with("bearer_token_file: expected a token in f that a header can hold")
    );
    assert!(!refused("bearer_token_file: f", "hunter2\nhunter2").contains("hunter2"));
    assert_eq!(
        refused("basic_auth: { username: u, password_file: f }", ""),
        "basic_auth.password_file: expected a secret in f, got nothing"
    );
}

#[test]
fn certificates_that_are_none_and_keys_of_others_are_told() {
    let cut = &AUTHORITY[..AUTHORITY.len() - 40];
    let told = |ca: &str, cert: &str, key: &str| unready(&secured(TLS), &[("ca", Ok(ca)), ("cert", Ok(cert)), ("key", Ok(key))]).join("\n");
    assert_eq!(told(CLIENT_KEY, CLIENT, CLIENT_KEY), "tls.ca_file: expected certificates as PEM in ca, got none");
    assert_eq!(told(cut, CLIENT, CLIENT_KEY), "tls.ca_file: expected certificates as PEM in ca, got a section that is broken");
    let nonsense = "-----BEGIN CERTIFICATE-----\naHVudGVyMg==\n-----END CERTIFICATE-----\n";
    assert_eq!(told(nonsense, CLIENT, CLIENT_KEY), "tls.ca_file: expected certificates of authorities in ca, got one that cannot be read");
    assert_eq!(told(AUTHORITY, CLIENT, SERVER_KEY), "tls.cert_file: the certificate in cert and the key in key do not belong together");
    assert_eq!(told(AUTHORITY, "", CLIENT_KEY), "tls.cert_file: expected a certificate as PEM in cert, got nothing");
}

#[test]
fn mistakes_of_such_files_stand_beside_all_others() {
    let text = secured("bearer_token_file: t").replace("max_replicas: 4", "max_replicas: many");
    let problems = load(&text, &[]).expect_err("two mistakes");
    let told: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(told, ["models[0].pools[0].max_replicas", "models[0].pools[0].targets.bearer_token_file"]);
}

#[test]
fn a_target_list_that_is_not_there_yet_is_a_note() {
    let text = |way: &str| secured("").replace("static: ['http://h:1'], ", way);
    let notes = |way: &str, files: &[(&str, Result<&str, &str>)]| {
        let loaded = load(&text(way), files).unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(loaded.unready, []);
        // Lists are followed by their own search: a change is no reload.
        assert_eq!(loaded.config.files, [Path::new("c.yaml")]);
        loaded.notes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let place = "models[0].pools[0].targets.file_sd";
    let [note] = &notes("file_sd: list.json", &[])[..] else { panic!("one note") };
    assert!(note.ends_with(&format!("{place}: list.json does not exist yet: there are no targets until it is written")), "{note}");
    assert_eq!(notes("file_sd: list.json", &[("list.json", Ok("[]"))]), [""; 0]);
    let [note] = &notes("file_sd: lists/*.json", &[])[..] else { panic!("one note") };
    assert!(note.contains("the folder lists does not exist yet"), "{note}");
    assert_eq!(notes("file_sd: lists/*.json", &[("lists", Err("expected a file, got something else"))]), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_refuses_a_missing_token_and_run_waits_for_it() {
    let router = Router::start("m", 25.0).await;
    let site = Site::new();
    let config = site.write(
        "config.yaml",
        &format!(
            "server: {{ listen: \"127.0.0.1:0\" }}\nscrape: {{ interval: 100ms, timeout: 100ms }}\nmodels:\n  - name: m\n    \
             planner: {{ preset: infera, profile: profile.json, adjustment_interval: 1s, hold_for: 60s }}\n    \
             traffic: {{ targets: {{ static: [\"{}\"], bearer_token_file: token }} }}\n    \
             pools:\n      - {{ name: m-prefill, role: prefill, max_replicas: 16 }}\n      \
             - {{ name: m-decode, role: decode, max_replicas: 16, replicas_from: metric, targets: {{ file_sd: later.json }} }}\n",
            router.server.url(),
        ),
    );
    tokio::task::block_in_place(|| {
        let (code, shown, said) = run(&["check", "--config", text(&config)]);
        assert_eq!((code, shown.as_str()), (Some(64), ""), "{said}");
        assert!(said.contains("models[0].traffic.targets.bearer_token_file: ") && said.contains("token does not exist"), "{said}");
        let exporter = Exporter::start(&config);
        until("the missing token is told", || exporter.process.log().contains("token does not exist").then_some(()));
        site.write("token", "good\n");
        until("the first decision", || exporter.recommended("m-prefill"));
        let (code, shown, said) = run(&["check", "--config", text(&config)]);
        assert_eq!(code, Some(0), "{said}");
        assert!(shown.starts_with("ok: ") && said.contains("note: ") && said.contains("later.json does not exist yet"), "{said}");
    });
}

#[test]
fn the_help_of_run_knows_every_preset_and_when_an_objective_counts() {
    let (code, help, _) = run(&["run", "--help"]);
    assert_eq!(code, Some(0));
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for preset in inference_planner_exporter::planner::policy::Preset::ALL {
        assert!(words.contains(preset.as_str()), "{words}");
    }
    assert!(words.contains("first token, with a profile") && words.contains("default with a profile: 500"), "{words}");
}

fn packed(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_warm_up_trace_may_be_packed_and_a_broken_or_bottomless_one_is_refused() {
    let site = Site::new();
    let config = site.write(
        "c.yaml",
        "models:\n  - name: m\n    slo: { ttft: 500ms }\n    planner: { preset: dynamo, predictor: kalman, warmup_trace: trace.csv.gz }\n    \
         pools: [{ name: p, role: decode, max_replicas: 1, targets: { static: ['http://h:1'] } }]\n",
    );
    let check = |bytes: &[u8]| {
        std::fs::write(site.path("trace.csv.gz"), bytes).unwrap();
        let (code, _, said) = run(&["check", text(&config)]);
        (code, said)
    };
    let trace = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:13.9799600,4808,10\n";
    let whole = packed(trace);
    assert_eq!(check(&whole).0, Some(0));
    assert_eq!(check(trace.as_bytes()).0, Some(0), "what is in it counts, and not its name");
    let (code, said) = check(&whole[..whole.len() - 12]);
    assert!(code == Some(64) && said.contains("warmup_trace: ") && said.contains("trace.csv.gz cannot be read: "), "{said}");
    let (code, said) = check(&packed(&"a".repeat(20 << 20)));
    assert!(code == Some(64) && said.contains("at most 16777216 bytes when unpacked, got more"), "{said}");
}
