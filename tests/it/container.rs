//! Does the image hold what is expected of it, and do the files for one machine fit it? The Containerfile (only a build can say more, and the
//! file makes it check the binary), the unit of systemd, and the compose file.

use std::collections::BTreeMap;

use inference_planner_exporter::config::{self, Inputs, SourceText};
use serde_json::{Value, json};

use crate::shipped::{array, documents, path, string, text};

/// An instruction and its arguments, its lines joined.
fn instructions() -> Vec<(String, String)> {
    let text = text("deploy/Containerfile");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let parts = joined.lines().filter_map(|line| line.split_once(' '));
    parts.map(|(name, rest)| (name.to_owned(), rest.split_whitespace().collect::<Vec<_>>().join(" "))).collect()
}

/// The values of the arguments before the first stage.
fn arguments(instructions: &[(String, String)]) -> BTreeMap<&str, &str> {
    let outside = instructions.iter().take_while(|(name, _)| name == "ARG");
    outside.filter_map(|(_, argument)| argument.split_once('=')).collect()
}

fn cargo() -> toml_edit::DocumentMut {
    text("Cargo.toml").parse().unwrap()
}

#[test]
fn the_last_stage_is_the_binary_and_nothing_else() {
    let instructions = instructions();
    let bases = arguments(&instructions);
    let last = instructions.iter().rposition(|(name, _)| name == "FROM").unwrap();
    assert_eq!(instructions[last].1, "${BASE}");
    assert!(bases["BASE"].contains("distroless/static"), "no shell and no library: {}", bases["BASE"]);
    let names: Vec<&str> = instructions[last..].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["FROM", "COPY", "COPY", "EXPOSE", "USER", "ENTRYPOINT", "CMD"]);
    let of = |wanted: &str| instructions[last..].iter().find(|(name, _)| name == wanted).unwrap().1.as_str();
    let binary = "/usr/local/bin/inference-planner-exporter";
    assert_eq!(of("COPY"), format!("--from=build /inference-planner-exporter {binary}"));
    let [entry, command] = ["ENTRYPOINT", "CMD"].map(|name| serde_json::from_str::<Value>(of(name)).expect("a list: there is no shell"));
    assert_eq!(entry, json!([binary]));
    let pod = &documents("deploy/kubernetes/deployment.yaml")[0]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(command, container["args"]);
    assert_eq!(of("EXPOSE"), container["ports"][0]["containerPort"].to_string());
    let context = &pod["securityContext"];
    let user = format!("{}:{}", context["runAsUser"], context["runAsGroup"]);
    assert_eq!(of("USER"), user);
    let state = &array(&container["volumeMounts"]).iter().find(|mount| mount["name"] == "state").unwrap()["mountPath"];
    assert_eq!(instructions[last + 2].1, format!("--from=build --chown={user} /state {}", string(state)), "a volume has to be writable");
    let version = cargo()["package"]["version"].as_str().unwrap().to_owned();
    assert_eq!(container["image"], format!("inference-planner-exporter:{version}"));
}

#[test]
fn what_is_built_is_locked_static_and_small() {
    let instructions = instructions();
    let rust = cargo()["package"]["rust-version"].as_str().unwrap().to_owned();
    assert_eq!(arguments(&instructions)["BUILDER"], format!("docker.io/library/rust:{rust}-bookworm"));
    let runs: Vec<&str> = instructions.iter().filter(|(name, _)| name == "RUN").map(|(_, command)| command.as_str()).collect();
    let build = runs.iter().find(|run| run.contains("cargo build")).unwrap();
    assert!(build.contains("--release --locked --features kubernetes"), "{build}");
    assert!(runs[0].contains("x86_64-unknown-linux-musl") && runs[0].contains("aarch64-unknown-linux-musl"));
    let last = runs.last().unwrap();
    assert!(last.contains("! readelf --dynamic") && last.contains("-lt 25000000"), "{last}");
    let ignored = text("deploy/Containerfile.dockerignore");
    assert!(["target", ".git"].iter().all(|folder| ignored.lines().any(|line| line == *folder)), "they would change every build");
}

/// Shells of the build are POSIX's, whatever `sh` is; `sh -n` reads without running.
#[test]
fn the_commands_are_read_by_a_shell() {
    for (_, command) in instructions().iter().filter(|(name, _)| name == "RUN") {
        let read = std::process::Command::new("sh").args(["-n", "-c", command]).output().unwrap();
        assert!(read.status.success(), "{command}: {}", String::from_utf8_lossy(&read.stderr));
    }
}

#[test]
fn the_unit_starts_what_the_image_starts_and_keeps_its_state() {
    let unit = text("deploy/systemd/inference-planner-exporter.service");
    let set: BTreeMap<&str, &str> = unit.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('=')).collect();
    let pod = &documents("deploy/kubernetes/deployment.yaml")[0]["spec"]["template"]["spec"]["containers"][0];
    let arguments: Vec<&str> = array(&pod["args"]).iter().map(string).collect();
    assert_eq!(set["ExecStart"], format!("/usr/local/bin/inference-planner-exporter {}", arguments.join(" ")));
    assert_eq!(set["RestartPreventExitStatus"], "64", "bad usage or configuration");
    assert_eq!(set["StateDirectory"], "inference-planner", "below /var/lib");
    assert!(text("deploy/kubernetes/configmap.yaml").contains("state_file: /var/lib/inference-planner/"));
    for (key, value) in [("DynamicUser", "yes"), ("ProtectSystem", "strict"), ("NoNewPrivileges", "yes"), ("CapabilityBoundingSet", "")] {
        assert_eq!(set[key], value, "{key}");
    }
    assert!(set["RestrictAddressFamilies"].contains("AF_INET6"));
}

#[test]
fn the_compose_file_mounts_what_is_there_and_its_parts_find_each_other() {
    let compose = documents("deploy/compose/compose.yaml").remove(0);
    let services = &compose["services"];
    for volume in services.as_object().unwrap().values().flat_map(|service| array(&service["volumes"])) {
        let source = string(volume).split(':').next().unwrap();
        let named = compose["volumes"].get(source).is_some();
        assert!(named || path(&format!("deploy/compose/{source}")).exists(), "{volume}");
    }
    for port in services.as_object().unwrap().values().flat_map(|service| array(&service["ports"])) {
        assert!(string(port).starts_with("127.0.0.1:"), "{port}: for this machine only");
    }
    let config = SourceText { path: "/etc/inference-planner/config.yaml".into(), text: text("deploy/compose/exporter/config.yaml") };
    let loaded = config::read(Inputs { file: Some(config), ..Inputs::default() }).finish(&BTreeMap::new()).unwrap();
    assert_eq!(loaded.config.server.listen.port(), 10877);
    assert_eq!(loaded.config.state_file.as_deref(), Some(std::path::Path::new("/var/lib/inference-planner/state.json")));
    let scraped = &documents("deploy/compose/prometheus.yml")[0]["scrape_configs"][0];
    assert_eq!(scraped["job_name"], "inference-planner-exporter", "what the alerts look for");
    assert_eq!(scraped["static_configs"][0]["targets"], json!(["exporter:10877"]));
    assert_eq!(documents("deploy/compose/grafana/datasource.yaml")[0]["datasources"][0]["url"], "http://prometheus:9090");
    let folder = &documents("deploy/compose/grafana/dashboards.yaml")[0]["providers"][0]["options"]["path"];
    let home = &services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"];
    assert_eq!(home, &json!(format!("{}/overview.json", string(folder))));
    assert_eq!(
        services["exporter"]["image"],
        documents("deploy/kubernetes/deployment.yaml")[0]["spec"]["template"]["spec"]["containers"][0]["image"]
    );
}

/// With the rules where this machine has them.
#[cfg(feature = "real-programs")]
#[test]
fn prometheus_own_tool_takes_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prometheus.yml");
    let text = text("deploy/compose/prometheus.yml").replace("/etc/prometheus/alerts", path("alerts").to_str().unwrap());
    std::fs::write(&file, text).unwrap();
    let output = std::process::Command::new("promtool").args(["check", "config"]).arg(&file).output();
    let output = output.unwrap_or_else(|error| panic!("promtool: {error}; tests/run installs it"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("21 rules found"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
