//! Has every panel and every alert data under the load of `demo`? The real binary with its simulated servers, a real Prometheus with the rules as
//! they are shipped, and every expression.

use super::*;

/// Families that a demo's policy, configuration and good health leave without series.
const NOT_IN_THE_DEMO: [&str; 2] = ["target_missing_roles", "discovery_refreshes_total"];

impl World {
    /// The demo, which brings its own servers and load.
    async fn demo() -> Self {
        let listen = free_address();
        let arguments = ["demo".to_owned(), "--listen".to_owned(), listen.to_string()];
        let idle = tokio::spawn(std::future::ready(()));
        Self::watched(TempDir::new().unwrap(), &shipped::text(shipped::RULES), (listen, &arguments), Vec::new(), idle)
    }
}

/// What presets of other demos learn has a test of its own.
fn is_shown(expr: &str) -> bool {
    let learned = of_others(expr) && !expr.contains("startup_seconds");
    !learned && !NOT_IN_THE_DEMO.iter().any(|part| expr.contains(part))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_panel_and_alert_has_data_under_the_demos_load() {
    let _serial = ONE_AT_A_TIME.lock().await;
    let world = World::demo().await;
    world.until("both pools are planned", World::planned).await;
    let mut panels = 0;
    for Shipped { place, expr, .. } in dashboards::expressions().into_iter().filter(|shipped| is_shown(&shipped.expr)) {
        let expr = substituted(&expr, true);
        // What shows trouble alone is empty in a fleet that has none; then its series without the condition are looked for.
        let trouble = EMPTY_WHEN_QUIET.iter().any(|name| place.ends_with(&format!(", {name}")));
        let parsed = promql::parse(&expr).unwrap();
        world.data(&place, if trouble { always(&parsed) } else { &expr }, false).await;
        panels += 1;
    }
    assert!(panels > 80, "only {panels} expressions of dashboards were tried");
    for Shipped { place, expr, .. } in shipped::alert_expressions() {
        let parsed = promql::parse(&expr).unwrap();
        world.query(&expr).await.unwrap_or_else(|error| panic!("{place}: {error}"));
        for selector in parsed.all() {
            let Node::Selector { name, .. } = &selector.node else { continue };
            // A recorded series that tells of trouble is empty as its alert is; what it is made of is looked for itself. And a description asks for
            // the pool that its alert names.
            let of_trouble = name == "pool:inference_planner_ceiling_reached:max" || place.ends_with("description");
            let instant = selector.text.split('[').next().unwrap();
            if is_shown(instant) && !of_trouble {
                world.data(&place, instant, false).await;
            }
        }
    }
    let rules = world.api("/api/v1/rules").await.unwrap();
    let rules = rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    for rule in rules {
        assert_eq!((&rule["health"], rule["state"] == "firing"), (&Value::from("ok"), false), "{rule:#}");
    }
}
