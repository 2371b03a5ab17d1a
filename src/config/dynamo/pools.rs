//! Which pools come of a Dynamo planner's mode, and who is asked for their samples?

use super::read::Fields;
use super::roles::{self, Side};
use super::write::{Page, model_name, placeholder};
use crate::config::effective::quoted;
use crate::config::names;
use crate::units::{ModelId, Role};

const URL: &str = "metric_pulling_prometheus_endpoint";
const TOKEN: &str = "metric_pulling_prometheus_token";
const TOKEN_FILE: &str = "metric_pulling_prometheus_token_file";
const VERIFY: &str = "metric_pulling_prometheus_ssl_verify";
const AUTHORITY: &str = "metric_pulling_prometheus_ca_bundle";
const SOURCE: &str = "throughput_metrics_source";

/// Largest count that a pool may be allowed.
const MOST_REPLICAS: i64 = 100_000;

/// The front ends or routers: objectives are measured there, and they know what waits for prefill workers.
pub(super) fn traffic(page: &mut Page<'_>) {
    let mode = roles::mode(page.fields);
    let waits = mode.sides().any(|side| side.role == Role::Prefill);
    if !roles::is_sla(page.fields) && !waits {
        return;
    }
    page.key(2, "traffic:", &[SOURCE]);
    let (who, example) = match page.fields.text(SOURCE) {
        Some("router") => ("Dynamo's routers", "{job=\"dynamo-router\"}"),
        _ => ("Dynamo's front ends", "{job=\"dynamo-frontend\"}"),
    };
    targets(page, 3, who, example, true);
}

/// The pools.
pub(super) fn pools(page: &mut Page<'_>) {
    page.key(2, "pools:", &[]);
    let mode = roles::mode(page.fields);
    let remarked = page_has_traffic(page.fields);
    for (index, side) in mode.sides().enumerate() {
        pool(page, side, mode.role(side), index == 0 && !remarked);
    }
}

fn page_has_traffic(fields: &Fields) -> bool {
    roles::is_sla(fields) || roles::mode(fields).sides().any(|side| side.role == Role::Prefill)
}

fn pool(page: &mut Page<'_>, side: Side, role: Role, first: bool) {
    let name = model_name(page.fields).and_then(|name| names::pool_name(&ModelId::from(name), role).ok());
    let name = name.map_or_else(|| role.as_str().to_owned(), |name| name.as_str().to_owned());
    page.line(3, &format!("- name: {}", quoted(&name)), &[], "what the scaler asks for; any other name will do");
    page.key(4, &format!("role: {role}"), &["mode"]);
    let gpus = match roles::gpus(page.fields, side) {
        Some(gpus) => gpus.to_string(),
        None => placeholder(&format!("the GPUs of one {role} replica, which Dynamo reads from the deployment")),
    };
    page.key(4, &format!("gpus_per_replica: {gpus}"), &[side.gpus]);
    let floor = if page.fields.whole(side.floor).is_some() { side.floor } else { "min_endpoint" };
    page.key(4, &format!("min_replicas: {}", roles::floor(page.fields, side).max(1)), &[floor]);
    match most(page.fields, side) {
        Some(most) => page.line(4, &format!("max_replicas: {most}"), &[], "what max_gpu_budget leaves beside the smallest counts"),
        None => {
            let most = placeholder("the largest count, which Dynamo bounds by GPUs alone, and here by none");
            page.key(4, &format!("max_replicas: {most}"), &["max_gpu_budget"]);
        }
    }
    capabilities(page, role);
    page.key(4, "targets:", &[]);
    let example = format!("{{job=\"dynamo-{}\"}}", role.as_str());
    settings(page, 5, &format!("the {role} workers"), &example, first);
}

/// The most replicas of a side under the ceiling, with all others at their smallest counts.
fn most(fields: &Fields, side: Side) -> Option<i64> {
    let ceiling = fields.whole("max_gpu_budget").filter(|gpus| *gpus >= 0)?;
    let others: i64 =
        roles::mode(fields).sides().filter(|other| other.role != side.role).map(|other| roles::least_gpus(fields, other)).sum();
    Some(((ceiling - others) / roles::gpus(fields, side).unwrap_or(1)).clamp(1, MOST_REPLICAS))
}

/// What Dynamo's workers say of themselves and their metrics do not.
fn capabilities(page: &mut Page<'_>, role: Role) {
    let counts_lengths = matches!(page.fields.text("optimization_target"), Some("throughput" | "latency"));
    if role == Role::Prefill && counts_lengths {
        page.key(4, "capabilities:", &[]);
        let length = placeholder("tokens of the longest request (the engine's max model length), which is no metric");
        page.key(5, &format!("context_length: {length}"), &[]);
    }
}

fn targets(page: &mut Page<'_>, depth: usize, who: &str, example: &str, first: bool) {
    page.key(depth, "targets:", &[]);
    settings(page, depth + 1, who, example, first);
}

/// The Prometheus that Dynamo asks, and how. Remarks stand at the first place only.
fn settings(page: &mut Page<'_>, depth: usize, who: &str, example: &str, first: bool) {
    let from = |name: &'static str| if first { vec![name] } else { Vec::new() };
    let url = page.fields.text(URL).unwrap_or_default().to_owned();
    page.key(depth, "prometheus:", &[]);
    page.key(depth + 1, &format!("url: {}", quoted(&url)), &from(URL));
    let selector = placeholder(&format!("the labels of {who}, as the series `up` has them, such as {example}"));
    page.key(depth + 1, &format!("selector: {selector}"), &[]);
    if let Some(file) = page.fields.text(TOKEN_FILE).map(quoted) {
        page.key(depth, &format!("bearer_token_file: {file}"), &from(TOKEN_FILE));
    } else if page.fields.text(TOKEN).is_some() {
        let file = placeholder("a file with the token, which Dynamo's file holds itself");
        page.key(depth, &format!("bearer_token_file: {file}"), &from(TOKEN));
    }
    if let Some(file) = page.fields.text(AUTHORITY).map(quoted) {
        page.key(depth, &format!("tls: {{ ca_file: {file} }}"), &from(AUTHORITY));
    } else if url.to_ascii_lowercase().starts_with("https://") {
        // Dynamo checks certificates only where it is told to. Where it is told not to, neither do we; its default is not followed.
        let skip = page.fields.is_written(VERIFY) && !page.fields.switch(VERIFY);
        let remark = if page.fields.is_written(VERIFY) || !first { "" } else { "checked here, in Dynamo only where it is told to" };
        page.line(depth, &format!("tls: {{ insecure_skip_verify: {skip} }}"), &from(VERIFY), remark);
    }
}
