//! Are the dashboards complete, and what do they ask? Panels, annotations and variables of `dashboards/`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::shipped::{Shipped, array, between, files, string, text};

/// The dashboards, with their files.
pub fn all() -> Vec<(String, Value)> {
    let named = files("dashboards").into_iter().filter(|name| name.ends_with(".json"));
    named.map(|name| (name.clone(), serde_json::from_str(&text(&name)).unwrap_or_else(|error| panic!("{name}: {error}")))).collect()
}

/// Every expression of the dashboards: panels, annotations, variables.
pub fn expressions() -> Vec<Shipped> {
    all().iter().flat_map(|(name, dashboard)| of_dashboard(name, dashboard)).collect()
}

fn of_dashboard(name: &str, dashboard: &Value) -> Vec<Shipped> {
    let mut found = Vec::new();
    for panel in array(&dashboard["panels"]) {
        for target in array(&panel["targets"]) {
            let place = format!("{name}, {} {}", string(&panel["title"]), string(&target["refId"]));
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            let prints = between(legend, "{{", "}}").into_iter().map(|label| label.trim().to_owned()).collect();
            found.push(Shipped { place, expr: string(&target["expr"]).to_owned(), prints });
        }
    }
    for annotation in array(&dashboard["annotations"]["list"]).iter().filter(|annotation| annotation["expr"].is_string()) {
        let prints = string(&annotation["tagKeys"]).split(',').map(str::to_owned).collect();
        let place = format!("{name}, annotation {}", string(&annotation["name"]));
        found.push(Shipped { place, expr: string(&annotation["expr"]).to_owned(), prints });
    }
    for variable in array(&dashboard["templating"]["list"]).iter().filter(|variable| variable["type"] == "query") {
        let query = string(&variable["query"]["query"]);
        let (selector, label) =
            query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap().rsplit_once(", ").unwrap();
        let place = format!("{name}, variable {}", string(&variable["name"]));
        found.push(Shipped { place, expr: selector.to_owned(), prints: vec![label.to_owned()] });
    }
    found
}

#[test]
fn dashboards_are_complete_and_their_panels_lie_side_by_side() {
    let uids: BTreeSet<String> = all().iter().map(|(_, dashboard)| string(&dashboard["uid"]).to_owned()).collect();
    assert_eq!(uids.len(), 3, "fleet, one model, the exporter");
    for (name, dashboard) in all() {
        is_complete(&name, &dashboard);
    }
}

fn is_complete(name: &str, dashboard: &Value) {
    assert!(dashboard.get("__inputs").is_none(), "provisioning does not fill in inputs");
    let variables = array(&dashboard["templating"]["list"]);
    assert!(variables.iter().any(|variable| variable["type"] == "datasource" && variable["name"] == "datasource"));
    for variable in variables.iter().filter(|variable| variable["type"] == "query") {
        assert_eq!(variable["datasource"]["uid"], "${datasource}");
    }
    let mut ids = BTreeSet::new();
    let mut taken: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for panel in array(&dashboard["panels"]) {
        let id = panel["id"].as_u64().unwrap();
        assert!(ids.insert(id), "{name}: panel {id} occurs twice");
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + width <= 24, "{name}: panel {id} is wider than the grid");
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            let other = taken.insert(cell, id);
            assert!(other.is_none(), "{name}: panels {id} and {other:?} overlap");
        }
        if panel["type"] == "row" {
            continue;
        }
        let title = string(&panel["title"]);
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{title} has no description");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        // States have words in a unit's place.
        let defaults = &panel["fieldConfig"]["defaults"];
        assert!(
            defaults["unit"].is_string() || panel["type"] == "state-timeline" && !array(&defaults["mappings"]).is_empty(),
            "{title} has no unit"
        );
        let refs: BTreeSet<_> = array(&panel["targets"]).iter().map(|target| string(&target["refId"])).collect();
        assert!(!refs.is_empty() && refs.len() == array(&panel["targets"]).len(), "{title}");
        assert!(array(&panel["targets"]).iter().all(|target| target["datasource"]["uid"] == "${datasource}"), "{title}");
    }
}

#[test]
fn variables_in_expressions_are_those_of_the_dashboard() {
    for (name, dashboard) in all() {
        let known: BTreeSet<_> = array(&dashboard["templating"]["list"]).iter().map(|variable| string(&variable["name"])).collect();
        for Shipped { place, expr, .. } in of_dashboard(&name, &dashboard) {
            for rest in expr.split('$').skip(1) {
                let used = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
                assert!(known.contains(used), "{place}: ${used}");
            }
        }
    }
}

/// A single value is put into an expression as it is, unless the variable may stand for all: then what a regular expression would read is
/// escaped. Every matcher of a variable is a regular expression.
#[test]
fn values_of_variables_are_escaped_for_the_matchers_that_take_them() {
    for (name, dashboard) in all() {
        for variable in array(&dashboard["templating"]["list"]).iter().filter(|variable| variable["type"] == "query") {
            assert_eq!(variable["includeAll"], true, "{name}, {}", variable["name"]);
        }
        for Shipped { place, expr, .. } in of_dashboard(&name, &dashboard) {
            assert!(!expr.contains("=\"$"), "{place}: {expr}");
        }
    }
}
