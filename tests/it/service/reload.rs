//! Does a changed file change the running exporter, whole or not at all?

use super::{Exporter, FLAT_PROFILE, Model, Router, Site, until};

const LIFECYCLE: &str = "server: { listen: \"127.0.0.1:0\", enable_lifecycle: true }\n";

#[tokio::test(flavor = "multi_thread")]
async fn limits_bind_at_once_and_a_bad_file_changes_nothing_but_the_gauge() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let model = Model::of("m", &routers);
    let exporter = Exporter::start(&site.config(LIFECYCLE, std::slice::from_ref(&model)));
    exporter.settle(&["m"], 3.0);
    // Nobody answers any more: what is published from here on is held.
    routers.iter().for_each(|router| router.server.set(crate::fake::Behaviour::Refuse));
    until("held", || (exporter.metrics().reason("m-decode") == "all_targets_down").then_some(()));

    site.config(LIFECYCLE, &[Model { limits: (5, 8), ..model.clone() }]);
    assert_eq!(exporter.ask("POST /-/reload").0, 200);
    let page = exporter.metrics();
    assert_eq!((page.recommended("m-decode"), page.value("replicas_min", &[("pool", "m-decode")])), (Some(5.0), Some(5.0)));
    site.config(LIFECYCLE, &[Model { limits: (1, 4), ..model.clone() }]);
    exporter.process.signal("HUP");
    until("the maximum binds", || (exporter.recommended("m-decode") == Some(4.0)).then_some(()));

    let good = std::fs::read_to_string(site.path("config.yaml")).unwrap();
    site.write("config.yaml", &good.replace("mode: publish", "moed: publish").replace("max_replicas: 4", "max_replicas: none"));
    let (status, _, body) = exporter.ask("POST /-/reload");
    assert!(status >= 400, "{status}");
    for problem in ["moed", "did you mean mode?", "pools[0].max_replicas", "pools[1].max_replicas"] {
        assert!(body.contains(problem), "{problem} in {body}");
        until("the log names the problem", || exporter.process.log().contains(problem).then_some(()));
    }
    let page = exporter.metrics();
    assert_eq!((page.recommended("m-decode"), page.value("config_last_reload_successful", &[])), (Some(4.0), Some(0.0)));

    // Saving a good file again is enough.
    site.write("config.yaml", &good.replace("max_replicas: 4", "max_replicas: 2"));
    until("the change of the file is seen", || (exporter.recommended("m-decode") == Some(2.0)).then_some(()));
    assert_eq!(exporter.metrics().value("config_last_reload_successful", &[]), Some(1.0));
    let log = exporter.process.log();
    let line = log.lines().find(|line| line.contains("configuration reloaded")).unwrap();
    assert!(line.contains("before=") && line.contains("config=") && line.contains("version="), "{line}");
    assert!(line.contains("model m in default: pool m-decode limits 5 to 8; model m in default: pool m-prefill limits 5 to 8"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_over_http_needs_the_lifecycle_switch() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let exporter = Exporter::start(&site.config("", &[Model::of("m", &routers)]));
    assert_eq!(exporter.ask("POST /-/reload").0, 403);
    assert_eq!(exporter.ask("GET /-/reload").0, 405);
    assert!(!exporter.process.log().contains("configuration reloaded"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_config_map_is_followed_through_its_links_and_what_it_drops_ends() {
    let (stays, goes) = (Router::pair("stays").await, Router::pair("goes").await);
    let (site, elsewhere) = (Site::new(), Site::new());
    let models = [Model::of("stays", &stays), Model::of("goes", &goes)];
    let publish = |version: &str, models: &[Model]| {
        let folder = site.path(version);
        std::fs::create_dir(&folder).unwrap();
        std::fs::rename(elsewhere.config("", models), folder.join("config.yaml")).unwrap();
        std::fs::write(folder.join("profile.json"), FLAT_PROFILE).unwrap();
        std::os::unix::fs::symlink(version, site.path("..data_tmp")).unwrap();
        std::fs::rename(site.path("..data_tmp"), site.path("..data")).unwrap();
    };
    publish("..2026_01", &models);
    std::fs::remove_file(site.path("profile.json")).unwrap();
    for name in ["config.yaml", "profile.json"] {
        std::os::unix::fs::symlink(format!("..data/{name}"), site.path(name)).unwrap();
    }
    let config = site.path("config.yaml");
    let exporter = Exporter::start(&config);
    exporter.settle(&["stays", "goes"], 3.0);

    // The kubelet writes a new folder, swaps the link, and removes the old folder.
    publish("..2026_02", &models[..1]);
    std::fs::remove_dir_all(site.path("..2026_01")).unwrap();
    until("the removed pool's series end", || {
        let page = exporter.metrics();
        assert_eq!(page.recommended("stays-decode"), Some(3.0));
        (!page.0.contains("pool=\"goes-decode\"") && !page.0.contains("model=\"goes\"")).then_some(())
    });
    assert_eq!(exporter.status("/metrics/pool/goes-decode"), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_profile_is_picked_up_and_the_next_window_uses_it() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let exporter = Exporter::start(&site.config("", &[Model::of("m", &routers)]));
    exporter.settle(&["m"], 3.0);
    // A replica is worth twice as much: 1.25 replicas' worth of load.
    site.write("profile.json", &FLAT_PROFILE.replace("1000", "2000"));
    until("the new profile counts", || {
        let page = exporter.metrics();
        let replicas = page.recommended("m-decode");
        assert!(replicas == Some(3.0) || replicas == Some(2.0), "{replicas:?}");
        (replicas == Some(2.0)).then_some(())
    });
    // One that cannot be used stays out.
    site.write("profile.json", &FLAT_PROFILE.replace("[10, 10]", "[10, 0]"));
    until("the broken profile is refused", || {
        let page = exporter.metrics();
        assert_eq!(page.recommended("m-decode"), Some(2.0));
        (page.value("config_last_reload_successful", &[]) == Some(0.0)).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn new_targets_are_scraped_without_waiting_for_the_old_ones_that_hang() {
    let hung = crate::fake::FakeServer::start(crate::fake::Behaviour::Hang).await;
    let routers = Router::pair("m").await;
    let site = Site::new();
    let settings = "scrape: { interval: 60s, timeout: 60s }\n";
    let model = Model { interval: "60s", hold_for: "10m", ..Model::new("m", [hung.url()]) };
    let exporter = Exporter::start(&site.config(settings, std::slice::from_ref(&model)));
    until("the first round is under way", || (hung.requests() > 0).then_some(()));
    let urls = routers.iter().map(|router| router.server.url()).collect();
    site.config(settings, &[Model { urls, ..model }]);
    exporter.process.signal("HUP");
    let page = until("the new targets are up", || {
        let page = exporter.metrics();
        // No round is planned with targets of which it knows nothing.
        assert_eq!(page.value("windows_skipped_total", &[("reason", "no_targets")]), Some(0.0));
        (page.sum("target_up", &[]) == 2.0).then_some(page)
    });
    assert_eq!(page.reason("m-decode"), "baseline");
    assert_eq!(page.value("current_replicas", &[("pool", "m-decode"), ("state", "ready")]), Some(5.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_in_the_place_of_a_file_stops_neither_planning_nor_the_end_of_the_process() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let config = site.config(LIFECYCLE, &[Model::of("m", &routers)]);
    let mut exporter = Exporter::start(&config);
    exporter.settle(&["m"], 3.0);
    std::fs::remove_file(&config).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&config).status().unwrap().success());
    let (status, _, body) = exporter.ask("POST /-/reload");
    assert!(status >= 400 && body.contains("expected a file"), "{status} {body}");
    let decided = |page: &super::Metrics| page.sum("decisions_total", &[("model", "m")]);
    let before = decided(&exporter.metrics());
    until("decisions go on", || (decided(&exporter.metrics()) >= before + 2.0).then_some(()));
    exporter.process.signal("TERM");
    assert_eq!(exporter.process.ended(), Some(0));
}
