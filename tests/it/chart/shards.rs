//! Do several shards of a chart's installation plan every model once, apart from each other and seen by everybody?

use std::collections::BTreeSet;

use inference_planner_exporter::config::Flags;
use serde_json::json;

use super::{NEW, ask, made, values, with};
use crate::shipped::{array, string};

#[test]
fn shards_plan_every_model_once_and_have_a_state_each() {
    let shards = made("shards");
    let (mut models, mut claims) = (Vec::new(), BTreeSet::new());
    for (index, deployment) in shards.objects("Deployment").into_iter().enumerate() {
        let template = &deployment["spec"]["template"];
        let arguments: Vec<&str> = array(&template["spec"]["containers"][0]["args"]).iter().map(string).collect();
        assert_eq!(arguments[3..], ["--shard", &format!("{index}/3")], "{deployment}");
        assert_eq!(deployment["spec"]["selector"]["matchLabels"], template["metadata"]["labels"], "no Deployment may take another's pods");
        assert_eq!(template["metadata"]["labels"]["app.kubernetes.io/component"], format!("shard-{index}"));
        assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
        let state = array(&template["spec"]["volumes"]).iter().find(|volume| volume["name"] == "state").unwrap();
        claims.insert(string(&state["persistentVolumeClaim"]["claimName"]));
        let flags = Flags { shard: Some(arguments[4].to_owned()), ..Flags::default() };
        models.extend(shards.loaded_with(flags).config.models.into_iter().map(|model| format!("{:?}", model.selector)));
        assert!(shards.notes().contains(&format!("deployment/{}", string(&deployment["metadata"]["name"]))));
    }
    models.sort();
    let all: BTreeSet<String> = shards.loaded().config.models.iter().map(|model| format!("{:?}", model.selector)).collect();
    assert_eq!(models, all.into_iter().collect::<Vec<_>>());
    let made_claims: BTreeSet<&str> =
        shards.objects("PersistentVolumeClaim").iter().map(|claim| string(&claim["metadata"]["name"])).collect();
    assert_eq!((claims.len(), &made_claims), (3, &claims));
}

#[test]
fn all_shards_are_scraped_admitted_and_drained_one_at_a_time() {
    let shards = made("shards");
    let selectors = [
        &shards.object("Service")["spec"]["selector"],
        &shards.object("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        &shards.object("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ];
    for deployment in shards.objects("Deployment") {
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        for (key, value) in selectors.iter().flat_map(|selector| selector.as_object().unwrap()) {
            assert_eq!(&labels[key], value);
        }
    }
    assert_eq!(shards.object("PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
    // Of a single shard nothing has a number, so that it is the installation of before.
    let one = ask(&[json!({ "render": with(values("shards"), &[("shards", json!(1))]), "kubernetes": NEW })]).remove(0);
    assert!(!one["objects"].to_string().contains("shard"), "{}", one["objects"]);
}
