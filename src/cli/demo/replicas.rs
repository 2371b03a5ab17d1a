//! How do the simulated replicas come and go? Each has a port while it answers, and the exporter is told which of them take requests.
//!
//! | a replica | its port | in the exporter's list |
//! |---|---|---|
//! | starts | refuses connections | no |
//! | takes requests | serves its page | yes |
//! | drains | serves its page | no |
//! | is released | closed | no |
//!
//! So the list is what Kubernetes keeps as the ready endpoints of a Service. It is a part of the exporter's configuration, which is written anew
//! and reloaded by `POST /-/reload`; should that fail, the exporter sees the changed file by itself within some two seconds.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::config::{Files, Listed, POOLS};
use super::{DemoFleet, http_client};
use crate::engines::render::vllm::vllm;
use crate::simulator::fleet::ReplicaId;
use crate::units::Role;

/// How often the fleet is looked at. Short against a scrape interval, so that a new replica is listed before the next round.
const LOOK: Duration = Duration::from_millis(100);

/// The servers of all replicas that answer.
#[derive(Debug, Default)]
pub struct Replicas {
    open: BTreeMap<(Role, ReplicaId), Open>,
    /// Ends with its owner.
    serving: JoinSet<std::io::Result<()>>,
    /// What was written last.
    listed: Listed,
}

#[derive(Debug)]
struct Open {
    address: SocketAddr,
    /// Dropped to close the port.
    _close: oneshot::Sender<()>,
}

impl Replicas {
    /// Opens the ports of replicas that began to answer and closes those of released ones. Answers whether other ones take requests now.
    pub async fn catch_up(&mut self, fleet: &DemoFleet) -> anyhow::Result<bool> {
        let seen = fleet.replicas();
        self.open.retain(|key, _| seen.contains_key(key));
        // What is left of closed servers is not kept.
        while self.serving.try_join_next().is_some() {}
        for &(role, id) in seen.keys() {
            if !self.open.contains_key(&(role, id)) {
                let open = self.open(fleet, role, id).await?;
                self.open.insert((role, id), open);
            }
        }
        let mut listed: Listed = POOLS.map(|(role, _)| (role, Vec::new())).into();
        for (key, open) in &self.open {
            if seen.get(key).is_some_and(|&takes_requests| takes_requests) {
                listed.entry(key.0).or_default().push(open.address);
            }
        }
        let changed = listed != self.listed;
        self.listed = listed;
        Ok(changed)
    }

    /// The addresses of the replicas that take requests.
    pub fn listed(&self) -> &Listed {
        &self.listed
    }

    async fn open(&mut self, fleet: &DemoFleet, role: Role, id: ReplicaId) -> anyhow::Result<Open> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen on loopback")?;
        let address = listener.local_addr().context("listen on loopback")?;
        let fleet = fleet.clone();
        let pages = axum::Router::new().route("/metrics", get(move || std::future::ready(page(&fleet, role, id))));
        let (close, closed) = oneshot::channel::<()>();
        let closing = async {
            // It is never sent, only dropped.
            let _dropped = closed.await;
        };
        self.serving.spawn(axum::serve(listener, pages).with_graceful_shutdown(closing).into_future());
        Ok(Open { address, _close: close })
    }

    /// Keeps ports and configuration up to date, for ever.
    pub async fn tend(mut self, fleet: &DemoFleet, files: &Files, exporter: SocketAddr) -> anyhow::Result<()> {
        let client = http_client()?;
        loop {
            tokio::time::sleep(LOOK).await;
            if !self.catch_up(fleet).await? {
                continue;
            }
            files.write(self.listed())?;
            let answer = client.post(format!("http://{exporter}/-/reload")).send().await;
            if let Err(error) = answer.and_then(reqwest::Response::error_for_status) {
                tracing::warn!("the exporter did not reload when asked to: {error}");
            }
        }
    }
}

fn page(fleet: &DemoFleet, role: Role, id: ReplicaId) -> Response {
    match fleet.page(role, id) {
        Some(page) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], vllm(&page)).into_response(),
        // Released, and its port not yet closed.
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
