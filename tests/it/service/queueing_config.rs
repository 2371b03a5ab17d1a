//! Is llm-d's ConfigMap followed while the exporter runs, whole or not at all?

use std::path::Path;

use super::{Exporter, Site, until};
use crate::fake::{Behaviour, FakeServer};

const ENTRY: &str = "model_id: org/m\nnamespace: prod\ntargetTTFT: 500.0\ntargetITL: 50.0\n";

/// Mounts a version of the ConfigMap as the kubelet does: a new folder, a swapped link, and a link for each file.
fn mount(folder: &Path, version: &str, entries: &[(&str, &str)]) {
    std::fs::create_dir_all(folder.join(version)).unwrap();
    for (name, text) in entries {
        std::fs::write(folder.join(version).join(name), text).unwrap();
    }
    std::os::unix::fs::symlink(version, folder.join("..data_tmp")).unwrap();
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    for (name, _) in entries {
        // The links of the version before are there already.
        let _there = std::os::unix::fs::symlink(format!("..data/{name}"), folder.join(name));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_config_map_is_re_read_and_a_bad_entry_keeps_what_runs() {
    let server = FakeServer::start(Behaviour::Refuse).await;
    let site = Site::new();
    let map = site.path("map");
    mount(&map, "..2026_01", &[("default", "sloMultiplier: 3.0\n")]);
    let config = site.write(
        "config.yaml",
        &format!(
            "server: {{ listen: \"127.0.0.1:0\" }}\nscrape: {{ interval: 100ms, timeout: 100ms }}\nqueueing_config: map\nmodels:\n  - name: org/m\n    target_namespace: prod\n    pools: [{{ name: m-agg, role: aggregated, max_replicas: 4, targets: {{ static: [\"{}\"] }} }}]\n",
            server.url()
        ),
    );
    let exporter = Exporter::start(&config);
    let target = || exporter.metrics().value("slo_ttft_seconds", &[("model", "org/m")]);
    let good = || exporter.metrics().value("config_last_reload_successful", &[]) == Some(1.0);
    assert_ne!(target(), Some(0.5));
    assert!(exporter.metrics().0.contains("preset=\"wva\""), "it is chosen by the ConfigMap");

    mount(&map, "..2026_02", &[("default", "sloMultiplier: 3.0\n"), ("llama", ENTRY)]);
    std::fs::remove_dir_all(map.join("..2026_01")).unwrap();
    until("the new entry is seen", || (target() == Some(0.5)).then_some(()));
    mount(&map, "..2026_03", &[("default", "sloMultiplier: 3.0\n"), ("llama", &ENTRY.replace("500.0", "250.0"))]);
    until("the changed entry is seen", || (target() == Some(0.25)).then_some(()));

    std::fs::write(map.join("other"), ENTRY).unwrap();
    until("a second entry for the model is refused", || (!good()).then_some(()));
    let log = exporter.process.log();
    assert!(log.contains("map/llama is for model") && log.contains("keep one"), "{log}");
    assert_eq!(target(), Some(0.25));
    // Nothing but the refused file changes: the folder's own time stays.
    std::fs::write(map.join("other"), ENTRY.replace("org/m", "org/n")).unwrap();
    until("the mended entry is seen", || good().then_some(()));
    assert_eq!(target(), Some(0.25));
}
