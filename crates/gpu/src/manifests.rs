//! The objects of `deploy/gpu`, ready to be applied: the files as they stand, with image and parameters put in.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::{Error, Result};

/// In the order in which they are applied: accounts and Service first, the webhook configuration with its Deployment.
const FILES: [&str; 4] = [
    include_str!("../../../deploy/gpu/rbac.yaml"),
    include_str!("../../../deploy/gpu/webhook.yaml"),
    include_str!("../../../deploy/gpu/scheduler.yaml"),
    include_str!("../../../deploy/gpu/device-plugins.yaml"),
];

/// The image that the files name.
const PLACEHOLDER: &str = "atoll";

/// What can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestOptions {
    /// `timeoutSeconds` of the webhook, 1 to 30.
    pub webhook_timeout_seconds: u32,
    /// Labels of the nodes that get the device plugins; none means all nodes (HAMi's chart: `gpu: "on"`).
    pub plugin_node_selector: BTreeMap<String, String>,
    /// `imagePullPolicy` of all containers.
    pub image_pull_policy: Option<String>,
    /// Further arguments of the scheduler, say `--gpu-scheduler-policy binpack`.
    pub scheduler_arguments: Vec<String>,
    /// MiB that one unit of `nvidia.com/gpumem` stands for, in the device plugins and the scheduler.
    pub memory_factor: u64,
}

impl Default for ManifestOptions {
    fn default() -> Self {
        Self {
            webhook_timeout_seconds: 10,
            plugin_node_selector: BTreeMap::new(),
            image_pull_policy: None,
            scheduler_arguments: Vec::new(),
            memory_factor: 1,
        }
    }
}

/// All objects, with `image` in every container.
pub fn manifests(image: &str, options: &ManifestOptions) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for file in FILES {
        let parsed: Vec<Value> =
            serde_saphyr::from_multiple(file).map_err(|error| Error::Option(format!("a manifest does not parse: {error}")))?;
        objects.extend(parsed);
    }
    for object in &mut objects {
        fill(object, image, options);
    }
    Ok(objects)
}

fn fill(object: &mut Value, image: &str, options: &ManifestOptions) {
    for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        webhook["timeoutSeconds"] = json!(options.webhook_timeout_seconds);
    }
    if object["kind"] == "DaemonSet" && !options.plugin_node_selector.is_empty() {
        object["spec"]["template"]["spec"]["nodeSelector"] = json!(options.plugin_node_selector);
    }
    let Some(containers) = object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut) else { return };
    for container in containers {
        if container["image"] == PLACEHOLDER {
            container["image"] = json!(image);
        }
        if let Some(policy) = &options.image_pull_policy {
            container["imagePullPolicy"] = json!(policy);
        }
        let role = container["args"][1].as_str().unwrap_or_default().to_owned();
        let Some(arguments) = container["args"].as_array_mut() else { continue };
        if role == "scheduler" {
            arguments.extend(options.scheduler_arguments.iter().map(|argument| json!(argument)));
        }
        if role != "webhook" && options.memory_factor > 1 {
            arguments.extend([json!("--memory-factor"), json!(options.memory_factor.to_string())]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
        objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap()
    }

    #[test]
    fn hamis_names_are_there_and_every_container_has_the_image() {
        let objects =
            manifests("atoll:1", &ManifestOptions { webhook_timeout_seconds: 3, ..ManifestOptions::default() }).unwrap();
        for (kind, name) in [
            ("Deployment", "hami-webhook"),
            ("Deployment", "hami-scheduler"),
            ("DaemonSet", "hami-device-plugin"),
            ("DaemonSet", "hami-mock-device-plugin-daemonset"),
        ] {
            let object = find(&objects, kind, name);
            assert_eq!(object["metadata"]["namespace"], "kube-system");
            assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["image"], "atoll:1");
            assert_eq!(object["spec"]["selector"]["matchLabels"], object["spec"]["template"]["metadata"]["labels"]);
        }
        let webhook = &find(&objects, "MutatingWebhookConfiguration", "hami-webhook")["webhooks"][0];
        assert_eq!((&webhook["name"], &webhook["timeoutSeconds"]), (&json!("vgpu.hami.io"), &json!(3)));
        assert_eq!(webhook["clientConfig"]["service"]["name"], find(&objects, "Service", "hami-scheduler")["metadata"]["name"]);
    }

    #[test]
    fn the_names_in_the_manifests_are_those_that_the_code_uses() {
        let objects = manifests("i", &ManifestOptions::default()).unwrap();
        let names = crate::webhook::SelfManaged::default();
        find(&objects, "Service", &names.service);
        find(&objects, "MutatingWebhookConfiguration", &names.configuration);
        let role = &find(&objects, "Role", "hami-webhook")["rules"][1];
        assert_eq!(role["resourceNames"], json!([names.secret]));
        let condition =
            find(&objects, "MutatingWebhookConfiguration", "hami-webhook")["webhooks"][0]["matchConditions"][1].to_string();
        for user in crate::webhook::Rules::default().trusted_users {
            assert!(condition.contains(&user), "{user}");
        }
        let created =
            find(&objects, "MutatingWebhookConfiguration", "hami-webhook")["webhooks"][0]["matchConditions"][0].to_string();
        for resource in atoll_devices::names::resource::ALL {
            assert_eq!(created.matches(&format!("'{resource}'")).count(), 4, "{resource}");
        }
    }

    #[test]
    fn parameters_reach_their_containers() {
        let options = ManifestOptions {
            plugin_node_selector: [("gpu".to_owned(), "on".to_owned())].into(),
            scheduler_arguments: vec!["--gpu-scheduler-policy".into(), "binpack".into()],
            memory_factor: 256,
            ..ManifestOptions::default()
        };
        let objects = manifests("i", &options).unwrap();
        let pod = |kind, name| find(&objects, kind, name)["spec"]["template"]["spec"].clone();
        assert_eq!(
            pod("Deployment", "hami-scheduler")["containers"][0]["args"],
            json!(["gpu", "scheduler", "--gpu-scheduler-policy", "binpack", "--memory-factor", "256"])
        );
        assert_eq!(pod("Deployment", "hami-webhook")["containers"][0]["args"], json!(["gpu", "webhook"]));
        assert_eq!(pod("DaemonSet", "hami-device-plugin")["nodeSelector"], json!({"gpu": "on"}));
    }
}
