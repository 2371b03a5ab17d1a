//! Does the status page show what the API says, also of the past, of many models and of hostile names?

use std::collections::BTreeMap;
use std::time::Duration;

use inference_planner_exporter::export::snapshot::Snapshot;
use inference_planner_exporter::history::{ModelHistory, SPAN};
use inference_planner_exporter::planner::plan::{Plan, Reason};
use inference_planner_exporter::server::{Server, page};
use inference_planner_exporter::units::{Moment, Replicas, RequestsPerSecond, Seconds};
use serde_json::Value;

use crate::export::fixture;
use crate::server::{Answer, get, settings, state};

const PATIENCE: Duration = Duration::from_secs(30);
pub const ATTACK: &str = "<script>alert(1)</script>";

/// The facts of every row of the page's tables, by the names of their columns, as a reader sees them.
pub fn records(html: &str) -> Vec<BTreeMap<String, String>> {
    let cell = |cell: &str| {
        let (label, rest) = cell.split_once('"')?;
        let content = rest.split_once('>')?.1.split("</td>").next()?;
        Some((text(label), text(content)))
    };
    let rows = html.split("<tr>").filter(|row| row.contains("data-label"));
    rows.map(|row| row.split("<td data-label=\"").skip(1).filter_map(cell).collect()).collect()
}

/// Without markup.
fn text(html: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for character in html.chars() {
        match character {
            '<' => inside = true,
            '>' => inside = false,
            other if !inside => text.push(other),
            _ => {}
        }
    }
    for (entity, character) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")] {
        text = text.replace(entity, character);
    }
    text.trim().to_owned()
}

/// A number of the API as the page writes counts.
fn shown(value: &Value) -> String {
    value.as_u64().map_or_else(|| "–".to_owned(), |count| count.to_string())
}

/// Holds every pool of the page against the API.
pub fn assert_equal(html: &str, plans: &Value) {
    let records = records(html);
    let models = plans["models"].as_array().unwrap();
    assert!(!models.is_empty());
    for pool in models.iter().flat_map(|model| model["pools"].as_array().unwrap()) {
        let name = pool["pool"].as_str().unwrap();
        let row = records.iter().find(|row| row.get("pool").is_some_and(|pool| pool == name) && row.contains_key("planned"));
        let row = row.unwrap_or_else(|| panic!("{name} is not on the page: {records:?}"));
        assert_eq!(row["role"], pool["role"].as_str().unwrap());
        for (label, key) in [("ready", "current_replicas"), ("recommended", "recommended_replicas"), ("planned", "planned_replicas")] {
            assert_eq!(row[label], shown(&pool[key]), "{name}: {label}");
        }
    }
}

/// The answer of a server with this snapshot.
async fn page_of(snapshot: Snapshot, now: Moment, path: &str) -> Answer {
    let server = Server::start(settings(), state(snapshot, now).0).await.unwrap();
    let answer = get(server.addr, path).await;
    server.shutdown().await.unwrap();
    answer
}

/// The fixture with a past: a round every five seconds for so long, up to the fixture's moment; `change` makes each round's plan.
fn with_past(length: u64, change: impl Fn(u64, &mut Plan)) -> Snapshot {
    let mut snapshot = fixture::snapshot();
    let start = Moment { monotonic: Duration::from_secs(100_000), wall: fixture::AT.wall };
    let mut history = ModelHistory::new(SPAN);
    for second in (0..=length).step_by(5) {
        let mut plan = (*snapshot.models[0].plan).clone();
        plan.at = Moment { monotonic: start.monotonic + Duration::from_secs(second), wall: start.wall };
        change(second, &mut plan);
        history.note(&plan, PATIENCE);
    }
    snapshot.models[0].history = history;
    snapshot.at = start.after(Duration::from_secs(length));
    snapshot
}

#[tokio::test]
async fn the_numbers_of_the_page_are_those_of_the_api() {
    let unknown = |plan: &mut Plan| {
        plan.pools[0].current_replicas = None;
        plan.pools[1].published = None;
    };
    for (snapshot, now) in [
        (fixture::snapshot(), fixture::AT),
        (fixture::snapshot(), fixture::AT.after(fixture::VALID)),
        (fixture::with_plan(unknown), fixture::AT),
    ] {
        let server = Server::start(settings(), state(snapshot, now).0).await.unwrap();
        let plans = serde_json::from_slice(&get(server.addr, "/api/v1/plans").await.body).unwrap();
        assert_equal(get(server.addr, "/").await.text(), &plans);
        server.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn plots_show_the_past_with_its_decisions_and_gaps() {
    let snapshot = with_past(3600, |second, plan| {
        plan.pools[0].recommended_replicas = Some(Replicas(if second < 1800 { 2 } else { 3 }));
        if (2400..3000).contains(&second) {
            plan.reason = Reason::AllTargetsDown;
            plan.pools.iter_mut().for_each(|pool| (pool.held, pool.reason) = (true, plan.reason));
        }
    });
    let now = snapshot.at;
    let answer = page_of(snapshot, now, "/?span=1h").await;
    let html = answer.text();
    for plot in
        ["qwen-prefill, replicas", "qwen-decode, replicas", "TTFT, mean of each window", "ITL, mean of each window", "Requests a second"]
    {
        assert!(html.contains(&format!("aria-label=\"{plot}; ")), "{plot}");
    }
    assert!(
        html.contains("objective 500 ms") && html.contains("qwen-prefill, replicas; recommended: 2 to 3, last 3; ready: 2 to 2, last 2")
    );
    assert!(html.contains("2 → 3\nnone: The value was computed"), "a mark says what happened");
    assert!(html.contains("<rect class=\"alarm\"") && html.contains("all_targets_down from "), "the hold is a strip");
    // The latency has a gap while nothing was seen: two pieces.
    let ttft = html.split("aria-label=\"TTFT").nth(1).unwrap().split("</figure>").next().unwrap();
    let path = ttft.split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(path.matches('M').count(), 2, "{path}");
    // Two changes of each pool's reason, and one of a count.
    assert!(html.contains("5 changes of a count or of the reason"));
}

#[tokio::test]
async fn a_shorter_time_shows_less_of_the_past() {
    let changes = |second: u64, plan: &mut Plan| plan.pools[0].recommended_replicas = Some(Replicas((second / 600) as u32));
    let count = |answer: &Answer| text(answer.text().split("<summary>").nth(1).unwrap().split("</summary>").next().unwrap());
    for (path, changed) in
        [("/", "23 changes"), ("/?span=1h", "6 changes"), ("/?span=15m", "1 change "), ("/?span=%3Cscript%3E", "23 changes")]
    {
        let snapshot = with_past(4 * 3600 - 5, changes);
        let now = snapshot.at;
        let answer = page_of(snapshot, now, path).await;
        assert!(count(&answer).starts_with(changed), "{path}: {}", count(&answer));
    }
}

#[test]
fn six_hours_of_changes_in_every_round_stay_below_45_kilobytes_a_model() {
    let snapshot = with_past(7 * 3600, |second, plan| {
        let (count, rate) = (Replicas((second / 5 % 7) as u32), second as f64);
        for pool in &mut plan.pools {
            (pool.recommended_replicas, pool.current_replicas) = (Some(count), Some(count));
        }
        let seen = plan.observation.as_mut().unwrap();
        seen.ttft_seconds = Some(Seconds(0.1 + rate));
        seen.requests_per_second = Some(RequestsPerSecond(rate));
    });
    let history = &snapshot.models[0].history;
    assert!(history.bytes() < 45_000, "{}", history.bytes());
    let first = history.traffic().next().unwrap();
    let now = snapshot.at.monotonic.as_secs();
    assert!((5 * 3600..=6 * 3600 + 64).contains(&(now - u64::from(first.from))), "{first:?} {now}");
    // A decision every three minutes is remembered one by one.
    let slow = with_past(6 * 3600, |second, plan| plan.pools[0].recommended_replicas = Some(Replicas((second / 180) as u32)));
    assert!(slow.models[0].history.bytes() < 5000, "{}", slow.models[0].history.bytes());
}

fn many(models: usize) -> Snapshot {
    let past = with_past(6 * 3600, |second, plan| plan.pools[0].recommended_replicas = Some(Replicas((second / 30 % 5) as u32)));
    let mut snapshot = past.clone();
    snapshot.models = (0..models)
        .map(|number| {
            let mut model = fixture::model(&format!("org/model {number}&"), [&format!("p{number}"), &format!("d{number}")]);
            model.history = past.models[0].history.clone();
            model
        })
        .collect();
    snapshot
}

#[tokio::test]
async fn a_hundred_models_are_a_short_list_and_each_has_its_page() {
    let snapshot = many(100);
    let now = snapshot.at;
    let list = page_of(snapshot.clone(), now, "/").await;
    assert!(list.body.len() < 300_000, "{}", list.body.len());
    assert!(list.text().contains("100 models, 200 pools") && !list.text().contains("class=\"plot\""));
    let link = "/?model=org%2Fmodel%2042%26";
    assert!(list.text().contains(&format!("<a href=\"{link}\">org/model 42&amp;</a>")));
    let one = page_of(snapshot.clone(), now, link).await;
    assert_eq!(one.text().matches("class=\"plot\"").count(), 5);
    assert!(one.text().contains("p42") && !one.text().contains("p41") && one.text().contains("/?model=org%2Fmodel%2042%26&amp;span=1h"));
    assert_eq!(page_of(snapshot, now, "/?model=other").await.status, 404);
}

#[tokio::test]
async fn a_hostile_name_is_text_wherever_it_stands() {
    let mut snapshot = with_past(600, |second, plan| plan.pools[0].recommended_replicas = Some(Replicas((second / 60) as u32)));
    let mut model = fixture::model(ATTACK, [ATTACK, "decode"]);
    let mut history = ModelHistory::new(SPAN);
    for seconds in [0, 60, 120] {
        let mut plan = (*model.plan).clone();
        plan.at = snapshot.at.after(Duration::from_secs(seconds));
        plan.pools[0].recommended_replicas = Some(Replicas(seconds as u32));
        history.note(&plan, PATIENCE);
    }
    model.history = history;
    model.remarks = vec![ATTACK.to_owned()];
    model.target_namespace = ATTACK.to_owned();
    snapshot.models = vec![model, fixture::model("other", ["a", "b"])];
    let mut target = fixture::target(ATTACK, false);
    (target.engine, target.problem) = (ATTACK.to_owned(), Some(ATTACK.to_owned()));
    snapshot.targets = vec![target];
    let now = snapshot.at.after(Duration::from_secs(121));
    let page = page_of(snapshot.clone(), now, "/").await;
    let file = page::report(&snapshot, now, SPAN, ATTACK);
    for html in [page.text(), &file] {
        assert_eq!(html.matches("<script").count(), 1, "our own");
        assert!(html.contains("aria-label=\"&lt;script&gt;alert(1)&lt;/script&gt;, replicas"));
        assert!(!html.contains("<script>alert"));
    }
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'sha256-") && !policy.contains("script-src 'unsafe"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn a_report_needs_nothing_but_itself() {
    let html = page::report(&many(3), many(1).at, SPAN, "Report");
    for external in ["http://", "https://", "src=", "href=\"/", "@import", "url("] {
        assert!(!html.contains(external), "{external}");
    }
    assert!(html.contains("http-equiv=\"Content-Security-Policy\"") && !html.contains("http-equiv=\"refresh\""));
    assert!(html.contains("href=\"#org%2Fmodel%200%26\"") && html.contains("id=\"org%2Fmodel%200%26\""));
}
