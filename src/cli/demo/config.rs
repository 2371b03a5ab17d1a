//! With what does the exporter of the demonstration run? Its configuration, written anew whenever a replica comes or goes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::simulator::scenario::{self, ITL_TARGET, TTFT_TARGET};
use crate::units::Role;

/// The served model.
pub const MODEL: &str = "demo/model-8b";
/// The pools, in the order in which they are shown.
pub const POOLS: [(Role, &str); 2] = [(Role::Prefill, "demo-prefill"), (Role::Decode, "demo-decode")];
/// The name by which the configuration refers to the profile.
pub const PROFILE_FILE: &str = "demo-profile.json";
/// The name of the configuration.
const CONFIG_FILE: &str = "config.yaml";

/// A pool is never smaller, so that one failure does not end its service.
const MIN_REPLICAS: u32 = 2;
/// A pool is never larger.
const MAX_REPLICAS: u32 = 16;

/// The addresses of the replicas that take requests, by role.
pub type Listed = BTreeMap<Role, Vec<SocketAddr>>;

/// The exporter's configuration where these replicas take requests: YAML that names the profile [`PROFILE_FILE`].
pub fn yaml(listed: &Listed, listen: SocketAddr) -> String {
    let (ttft, itl) = (TTFT_TARGET.get() * 1000.0, ITL_TARGET.get() * 1000.0);
    let pool = |(role, name): &(Role, &str)| {
        let urls = listed.get(role).into_iter().flatten().map(|address| format!("\"http://{address}/metrics\""));
        let urls = urls.collect::<Vec<_>>().join(", ");
        format!(
            "      - name: {name}\n\
             \x20       role: {role}\n\
             \x20       gpus_per_replica: 1\n\
             \x20       min_replicas: {MIN_REPLICAS}\n\
             \x20       max_replicas: {MAX_REPLICAS}\n\
             \x20       targets: {{ static: [{urls}] }}\n"
        )
    };
    let pools: String = POOLS.iter().map(pool).collect();
    format!(
        "server: {{ listen: \"{listen}\", enable_lifecycle: true }}\n\
         scrape: {{ interval: 1s, timeout: 900ms }}\n\
         models:\n\
         \x20 - name: {MODEL}\n\
         \x20   target_namespace: demo\n\
         \x20   engine: vllm\n\
         \x20   slo: {{ ttft: {ttft:.0}ms, itl: {itl:.0}ms, statistic: mean }}\n\
         \x20   planner: {{ preset: infera, profile: {PROFILE_FILE}, adjustment_interval: 4s, hold_for: 2m, warm_up: 1s }}\n\
         \x20   pools:\n{pools}"
    )
}

/// The text of the profile.
pub fn profile_json() -> anyhow::Result<String> {
    serde_json::to_string_pretty(&scenario::profile()).context("write the profile")
}

/// The files that the exporter reads.
#[derive(Clone, Debug)]
pub struct Files {
    folder: PathBuf,
    listen: SocketAddr,
}

impl Files {
    /// Files in a folder that exists, for an exporter that listens there. Writes the profile; the configuration is still missing.
    pub fn new(folder: &Path, listen: SocketAddr) -> anyhow::Result<Self> {
        std::fs::write(folder.join(PROFILE_FILE), profile_json()?).context("write the demonstration's profile")?;
        Ok(Self { folder: folder.to_owned(), listen })
    }

    /// Where the configuration is.
    pub fn config(&self) -> PathBuf {
        self.folder.join(CONFIG_FILE)
    }

    /// Writes the configuration for these replicas. Who reads finds the old one or the new one, whole.
    pub fn write(&self, listed: &Listed) -> anyhow::Result<()> {
        let draft = self.folder.join("config.yaml.new");
        std::fs::write(&draft, yaml(listed, self.listen)).context("write the demonstration's configuration")?;
        std::fs::rename(&draft, self.config()).context("write the demonstration's configuration")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::model::envelope::ProfileDocument;

    #[test]
    fn the_configuration_names_the_objectives_and_all_replicas() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let listed = BTreeMap::from([(Role::Prefill, vec![address(1), address(2)]), (Role::Decode, vec![address(3)])]);
        let value: serde_json::Value = serde_saphyr::from_str(&yaml(&listed, address(0))).unwrap();
        let model = &value["models"][0];
        assert_eq!((model["slo"]["ttft"].as_str(), model["slo"]["itl"].as_str()), (Some("800ms"), Some("40ms")));
        assert_eq!(model["pools"][0]["targets"]["static"][1], "http://127.0.0.1:2/metrics");
        assert_eq!(model["pools"][1]["name"], "demo-decode");
        assert_eq!(model["pools"][1]["targets"]["static"].as_array().map(Vec::len), Some(1));
        let profile: ProfileDocument = serde_json::from_str(&profile_json().unwrap()).unwrap();
        assert_eq!(profile, scenario::profile());
    }
}
