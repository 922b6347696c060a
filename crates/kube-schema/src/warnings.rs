//! What is accepted and yet worth a word: fields that do nothing any more, definitions that hide each other. The texts go into
//! `Warning` headers after validation.

use serde_json::Value;

use crate::print::{at, int, list, text};
use crate::quantity::Quantity;
use crate::registry::ResourceDef;

/// Labels of nodes that have new names.
const OLD_NODE_LABELS: [(&str, &str); 6] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    ("failure-domain.beta.kubernetes.io/region", "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// Volume sources that are gone or going.
const OLD_VOLUMES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Warnings of a write that was found valid; an update warns of what is new only where upstream does so (`old` then matters).
pub fn warnings(def: &ResourceDef, object: &Value, old: Option<&Value>) -> Vec<String> {
    let template = match (def.group.as_str(), def.plural.as_str()) {
        ("", "pods") => "",
        ("", "podtemplates") => "template",
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "daemonsets" | "replicasets" | "statefulsets")
        | ("batch", "jobs") => "spec.template",
        ("batch", "cronjobs") => "spec.jobTemplate.spec.template",
        ("", "services") => return service(object),
        ("", "persistentvolumes") => return persistent_volume(object),
        _ => return Vec::new(),
    };
    let pod = if template.is_empty() { object } else { at(object, template) };
    // Pods say it once; templates again only when they change.
    let is_repeated = old.is_some_and(|old| template.is_empty() || at(old, template) == pod);
    if is_repeated { Vec::new() } else { pod_warnings(pod, template) }
}

fn join(prefix: &str, path: &str) -> String {
    if prefix.is_empty() { path.to_owned() } else { format!("{prefix}.{path}") }
}

fn pod_warnings(pod: &Value, prefix: &str) -> Vec<String> {
    let mut out = Vec::new();
    let spec = join(prefix, "spec");
    for (label, words) in OLD_NODE_LABELS {
        if at(pod, "spec.nodeSelector").get(label).is_some() {
            out.push(format!("{spec}.nodeSelector[{label}]: {words}"));
        }
    }
    for (index, constraint) in list(pod, "spec.topologySpreadConstraints").iter().enumerate() {
        let path = format!("{spec}.topologySpreadConstraints[{index}]");
        let key = text(constraint, "topologyKey");
        if let Some((_, words)) = OLD_NODE_LABELS.iter().find(|(label, _)| *label == key) {
            out.push(format!("{path}.topologyKey: {key} is {words}"));
        }
        if at(constraint, "labelSelector").is_null() {
            out.push(format!("{path}.labelSelector: a null labelSelector results in matching no pod"));
        }
    }
    for (index, volume) in list(pod, "spec.volumes").iter().enumerate() {
        let sources = OLD_VOLUMES.iter().filter(|(source, _)| at(volume, source).is_object());
        out.extend(sources.map(|(source, words)| format!("{spec}.volumes[{index}].{source}: {words}")));
    }
    duplicates(pod, &spec, "hostAliases", "ip", &mut out);
    duplicates(pod, &spec, "imagePullSecrets", "name", &mut out);
    for (index, secret) in list(pod, "spec.imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            out.push(format!("{spec}.imagePullSecrets[{index}].name: invalid empty name \"\""));
        }
    }
    if int(pod, "spec.terminationGracePeriodSeconds") < 0 {
        out.push(format!(
            "{spec}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in list(pod, &format!("spec.{kind}")).iter().enumerate() {
            container_warnings(container, &format!("{spec}.{kind}[{index}]"), &mut out);
        }
    }
    out
}

fn duplicates(pod: &Value, spec: &str, field: &str, key: &str, out: &mut Vec<String>) {
    let all = list(pod, &format!("spec.{field}"));
    for (index, item) in all.iter().enumerate() {
        let value = text(item, key);
        if !value.is_empty() && all[..index].iter().any(|other| text(other, key) == value) {
            out.push(format!("{spec}.{field}[{index}].{key}: duplicate {key} {value:?}"));
        }
    }
}

fn container_warnings(container: &Value, path: &str, out: &mut Vec<String>) {
    for (side, name) in
        [("limits", "memory"), ("requests", "memory"), ("limits", "ephemeral-storage"), ("requests", "ephemeral-storage")]
    {
        let amount = at(container, "resources").get(side).and_then(|s| s.get(name)).and_then(Value::as_str);
        if let Some(amount) = amount
            && Quantity::parse(amount).is_ok_and(|q| q.nano() % 1_000_000_000 != 0)
        {
            out.push(format!("{path}.resources.{side}[{name}]: fractional byte value {amount:?} is invalid, must be an integer"));
        }
    }
    let env = list(container, "env");
    for (index, item) in env.iter().enumerate() {
        let name = text(item, "name");
        // A value that refers to the earlier one of its name is meant.
        let refers = text(item, "value").contains(&format!("$({name})"));
        if !refers && env[..index].iter().any(|other| text(other, "name") == name) {
            out.push(format!(
                "{path}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
    let ports = list(container, "ports");
    for (index, port) in ports.iter().enumerate() {
        let same = |other: &&Value| {
            ["containerPort", "protocol", "hostPort", "hostIP"].iter().all(|key| at(other, key) == at(port, key))
        };
        if let Some(first) = ports[..index].iter().position(|other| same(&other)) {
            out.push(format!("{path}.ports[{index}]: duplicate port definition with {path}.ports[{first}]"));
        }
    }
}

fn service(object: &Value) -> Vec<String> {
    let mut out = Vec::new();
    if text(object, "spec.type") == "ExternalName" && !list(object, "spec.externalIPs").is_empty() {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if text(object, "spec.clusterIP") == "None" {
        if !text(object, "spec.loadBalancerIP").is_empty() {
            out.push("spec.loadBalancerIP is ignored when spec.clusterIP is \"None\"".to_owned());
        }
        if !list(object, "spec.externalIPs").is_empty() {
            out.push("spec.externalIPs is ignored when spec.clusterIP is \"None\"".to_owned());
        }
        if text(object, "spec.sessionAffinity") == "ClientIP" {
            out.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    out
}

fn persistent_volume(object: &Value) -> Vec<String> {
    let mut out = Vec::new();
    if text(object, "spec.persistentVolumeReclaimPolicy") == "Recycle" {
        let words = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        out.push(format!("spec.persistentVolumeReclaimPolicy: {words}"));
    }
    let sources = OLD_VOLUMES.iter().filter(|(source, _)| at(object, &format!("spec.{source}")).is_object());
    out.extend(sources.map(|(source, words)| format!("spec.{source}: {words}")));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    #[test]
    fn a_pod_hears_of_what_does_nothing() {
        let registry = Registry::builtin();
        let def = registry.get("", "v1", "pods").unwrap();
        let pod = json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "imagePullSecrets": [{}],
            "topologySpreadConstraints": [{"topologyKey": "z"}],
            "containers": [{"name": "c", "env": [{"name": "A"}, {"name": "A"}, {"name": "A", "value": "$(A)x"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"memory": "100m"}}}]}});
        assert_eq!(warnings(def, &pod, None).len(), 6, "{:?}", warnings(def, &pod, None));
        assert!(warnings(def, &pod, Some(&pod)).is_empty());
        assert!(warnings(def, &json!({"spec": {"containers": [{"name": "c"}]}}), None).is_empty());
    }
}
