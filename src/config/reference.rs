//! Which keys may a file hold, in words? The reference, rendered from the table; `README.md` in this folder is its text.

use std::fmt::Write as _;

use super::check;
use super::dynamo;
use super::layers;
use super::schema::{ENTRY_KEYS, Fallback, KEYS, Key, Kind, OVERRIDE_KEYS, WEB_KEYS};

const INTRODUCTION: &str = "\
# The configuration

This page is made from the table in `schema.rs`; do not edit it. `UPDATE_REFERENCES=1 cargo test --test it config` writes it anew.

A configuration file is YAML (`.yaml`, `.yml`), TOML (`.toml`) or JSON (`.json`).
Values come from four layers, the later winning: defaults, the file, environment variables, flags.
`inference-planner-exporter check --config FILE` prints every problem at once, with file, line, column and key.

- A duration is written with its unit: `500ms`, `5s`, `1m 30s`. A bare number is refused; on flags it is milliseconds for `--ttft` and `--itl`, and seconds for intervals.
- A relative path in the file starts at the file's folder; in a variable or flag, where the process runs.
- A key that is not in the tables below is refused, and so is a key that is written twice.
- A section without content (`slo:` alone) counts as not written.
- Credentials in target URLs are not supported.

";

const OVERRIDES: &str = "\
## The overrides file

A list of pins, in the file that `overrides_file` names. A pin is published from the first round on, without any scrape, and never expires before `until`.
A file that does not exist pins nothing, so that it can be created when it is needed; one that cannot be read or has problems is refused as a whole.

```yaml
- { pool: qwen3-8b-decode, replicas: 6, until: \"2026-01-31T18:00:00+02:00\", reason: \"launch\" }
```

";

const WEB: &str = "\
## The file of `server.web_config_file`

Certificates and passwords of our own port, in the format of Prometheus' `--web.config.file`; `promtool check web-config` reads it as well. YAML. It is checked with the configuration, and a reload refuses both or takes both.
`/-/healthy` and `/-/ready` ask for neither password nor certificate, so that a kubelet can probe them. A password that was right is remembered until the next reload; wrong ones are checked two at a time. Connections that were made under other settings are answered once more, then closed.
Not in this format: `rate_limit`, versions before TLS 1.2, and client certificates that nobody verifies.

```yaml
tls_server_config: { cert_file: tls.crt, key_file: tls.key, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt }
basic_auth_users: { prometheus: $2y$10$... }   # htpasswd -nB prometheus
```

";

const CONFIG_MAP: &str = "\
## The ConfigMap of `queueing_config`

llm-d's ConfigMap `wva-queueing-model-config`, mounted as a folder: a file for each of its keys, YAML. `default` must be there and is for all models; every other file is for the model that it names, at most one a model. Files whose names begin with a dot do not count. They are read again when they change, appear or go.
Only models of preset wva read it. The pair of targets and the multiplier each come from the first that has them: the model's own `slo` and `planner.slo_multiplier`, its file, `default`. `check` says where both speak, and which files no model reads. The targets of `default`, which the original drops, count.

";

const PROFILE: &str = "\
## The profile

`planner.profile` names a profile.json: a prompt curve (`prefill`: `isl`, `ttft_ms`, `thpt_per_gpu`) and a generation surface (`decode`: `kv_usage`, `context_length`, `itl_ms`, `thpt_per_gpu`, `max_kv_tokens`), with `prefill_engine_num_gpu` and `decode_engine_num_gpu` (1 if absent).
Every series is complete, finite and positive, axes strictly increase, the surface is a full rectangle; a problem names the cell. Unknown keys are skipped, and a number may stand in quotes.

It may also name what Dynamo's profiler wrote, as it is: a folder with `selected_prefill_interpolation/raw_data.npz` or `prefill_raw_data.json` and `selected_decode_interpolation/raw_data.npz` or `decode_raw_data.json` (the first that is there counts), or one JSON document with the arrays of both. They are read again when they change. A problem names file, array and index. The data say nothing of GPUs: write `gpus_per_replica` at pools with more than one.
Their points lie where the load was. On the surface, contexts within 1 % of each other are one row, columns are all KV usages that were measured, and a row is linear between its own points; beyond its first and last point it has the values of the nearest, so that nothing unmeasured is promised. A place that was measured twice counts as the mean. Points of which no two share a context make no surface, and are refused.
";

const DYNAMO: &str = "\
## Dynamo's planner configuration

`inference-planner-exporter check --from-dynamo FILE` translates it, or a DynamoGraphDeploymentRequest that holds it under `spec.features.planner`. Fields are checked as Dynamo checks them; a misspelt one is refused. What the file does not say is written as `FILL_IN: ...`, which `check` refuses until somebody has written it: the model where it is null, GPUs of a replica where they are null, selectors, the largest count without a GPU budget.

";

/// The text of `README.md`.
pub fn render() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("## Keys\n\n");
    table(&mut page, KEYS);
    page.push_str("\n## Environment variables\n\nThe name is the key's path in capitals, parts joined by two underscores. No variable sets a list.\n\n");
    for path in layers::open_to_variables() {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "- `{}`", layers::variable(path));
    }
    page.push('\n');
    page.push_str(OVERRIDES);
    table(&mut page, OVERRIDE_KEYS);
    page.push('\n');
    page.push_str(WEB);
    table(&mut page, WEB_KEYS);
    page.push('\n');
    page.push_str(CONFIG_MAP);
    table(&mut page, ENTRY_KEYS);
    page.push('\n');
    page.push_str(PROFILE);
    page.push('\n');
    page.push_str(DYNAMO);
    page.push_str(&dynamo::table());
    page.push_str("\n## Known names that this version does not support yet\n\n");
    for key in KEYS.iter().filter(|key| matches!(key.kind, Kind::Later)) {
        let _ = writeln!(page, "- `{}`", key.path);
    }
    for key in KEYS {
        if let Kind::Choice(_, later) = key.kind {
            for name in later {
                let _ = writeln!(page, "- `{}: {name}`", key.path);
            }
        }
    }
    page
}

fn table(page: &mut String, keys: &[Key]) {
    page.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for key in keys.iter().filter(|key| !matches!(key.kind, Kind::Later)) {
        let value = match key.kind {
            Kind::Section => String::new(),
            Kind::Engine => "auto, custom, or a dialect: the files of `src/engines` are named after them".to_owned(),
            kind => check::expected(kind),
        };
        let default = match key.fallback {
            Fallback::Required => "required".to_owned(),
            Fallback::Value(text) => format!("`{text}`"),
            Fallback::Derived(sentence) => sentence.to_owned(),
        };
        let path = if key.path.is_empty() { "(the file)".to_owned() } else { format!("`{}`", key.path) };
        let _ = writeln!(page, "| {path} | {value} | {default} | {} |", key.doc);
    }
}
