//! Do the panels of what preset wva learns show it? A page of ours with all of that on a real Prometheus, since the world of the other tests
//! has another preset.

use super::*;
use crate::queueing_shown::learned;
use crate::server::{settings, state};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panels_of_what_is_learned_have_data() {
    let _serial = ONE_AT_A_TIME.lock().await;
    let server =
        inference_planner_exporter::server::Server::start(settings(), state(learned(), crate::export::fixture::AT).0).await.unwrap();
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("prometheus.yaml");
    let scraped = format!(
        "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms }}\nscrape_configs:\n- job_name: inference-planner-exporter\n  \
         static_configs: [{{ targets: ['{}'] }}]\n",
        server.addr
    );
    std::fs::write(&config, scraped).unwrap();
    let addr = free_address();
    let arguments = [
        format!("--config.file={}", config.display()),
        format!("--web.listen-address={addr}"),
        format!("--storage.tsdb.path={}", folder.path().join("data").display()),
    ];
    let prometheus = Process::start(&program("prometheus"), &arguments, folder.path().join("prometheus.log"));
    let learned: Vec<Shipped> = dashboards::expressions().into_iter().filter(|shipped| of_others(&shipped.expr)).collect();
    assert!(learned.len() >= 7, "{learned:#?}");
    for Shipped { place, expr, prints } in learned {
        let start = Instant::now();
        let series = loop {
            match query(addr, &substituted(&expr, true)).await {
                Ok(series) if !series.is_empty() => break series,
                _ if start.elapsed() < DEADLINE => sleep(POLL).await,
                other => panic!("{place}: {other:?}\n{}", prometheus.log()),
            }
        };
        assert!(prints.iter().all(|label| series[0]["metric"][label].is_string()), "{place}: {series:?}");
    }
    server.shutdown().await.unwrap();
}
