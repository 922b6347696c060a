//! One sample per kind of rule: what clients get to see.

use serde_json::{Value, json};

use super::{validate_create, validate_update};
use crate::registry::Registry;

fn findings(group: &str, version: &str, plural: &str, object: Value, old: Option<Value>) -> Vec<String> {
    let registry = Registry::builtin();
    let def = registry.get(group, version, plural).unwrap();
    let full = |mut value: Value| {
        value["metadata"]["name"] = "n".into();
        if def.namespaced {
            value["metadata"]["namespace"] = "ns".into();
        }
        value["kind"] = def.kind.as_str().into();
        crate::apply_defaults(def, &mut value);
        value
    };
    let errors = match old {
        None => validate_create(def, &full(object)),
        Some(old) => {
            let mut object = full(object);
            object["metadata"]["resourceVersion"] = "1".into();
            let mut old = full(old);
            old["metadata"]["resourceVersion"] = "1".into();
            validate_update(def, "", &object, &old)
        }
    };
    errors.iter().map(|e| format!("{} {}", e.reason.as_str(), e.field)).collect()
}

fn pod(spec: Value) -> Vec<String> {
    let mut spec = spec;
    spec["serviceAccountName"] = "default".into();
    findings("", "v1", "pods", json!({"spec": spec}), None)
}

#[test]
fn pods_are_judged_in_depth() {
    assert!(pod(json!({"containers": [{"name": "c", "image": "x"}]})).is_empty());
    let container = json!({"name": "c", "image": "x", "ports": [{"containerPort": 80}, {"containerPort": 70_000, "name": "_"}],
        "env": [{"name": "A", "valueFrom": {}}], "volumeMounts": [{"name": "v", "mountPath": "/a"}],
        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}});
    let found = pod(json!({"containers": [container], "restartPolicy": "Often"}));
    assert_eq!(
        found,
        [
            "FieldValueInvalid spec.containers[0].ports[1].name",
            "FieldValueInvalid spec.containers[0].ports[1].name",
            "FieldValueInvalid spec.containers[0].ports[1].containerPort",
            "FieldValueInvalid spec.containers[0].env[0].valueFrom",
            "FieldValueNotFound spec.containers[0].volumeMounts[0].name",
            "FieldValueInvalid spec.containers[0].resources.requests",
            "FieldValueNotSupported spec.restartPolicy",
        ]
    );
}

#[test]
fn volumes_have_one_source() {
    let volumes = json!([{"name": "a", "emptyDir": {}, "hostPath": {"path": "/"}}, {"name": "c", "secret": {}}]);
    let found = pod(json!({"containers": [{"name": "c", "image": "x"}], "volumes": volumes}));
    assert_eq!(found, ["FieldValueForbidden spec.volumes[0].hostPath", "FieldValueRequired spec.volumes[1].secret.secretName",]);
}

#[test]
fn a_pod_changes_its_image_and_little_else() {
    let spec = |image: &str, extra: &str| json!({"spec": {"containers": [{"name": "c", "image": image}], "serviceAccountName": "d", "nodeName": extra}});
    assert!(findings("", "v1", "pods", spec("y", "n"), Some(spec("x", "n"))).is_empty());
    assert_eq!(findings("", "v1", "pods", spec("x", "m"), Some(spec("x", "n"))), ["FieldValueForbidden spec"]);
}

#[test]
fn workloads_select_their_templates() {
    let deployment = |selector: &str, label: &str| {
        json!({"spec": {"selector": {"matchLabels": {"a": selector}}, "template": {"metadata": {"labels": {"a": label}},
            "spec": {"containers": [{"name": "c", "image": "x"}]}}}})
    };
    let found = |new, old| findings("apps", "v1", "deployments", new, old);
    assert!(found(deployment("b", "b"), None).is_empty());
    assert_eq!(found(deployment("b", "c"), None), ["FieldValueInvalid spec.template.metadata.labels"]);
    assert_eq!(found(deployment("c", "c"), Some(deployment("b", "b"))), ["FieldValueInvalid spec.selector"]);
}

#[test]
fn services_keep_their_addresses() {
    let service = |ip: &str| json!({"spec": {"clusterIP": ip, "ports": [{"port": 80}]}});
    assert_eq!(findings("", "v1", "services", service("10.0.0.x"), None), ["FieldValueInvalid spec.clusterIPs[0]"]);
    let found = findings("", "v1", "services", service("10.0.0.2"), Some(service("10.0.0.1")));
    assert_eq!(found, ["FieldValueInvalid spec.clusterIPs[0]"]);
}

#[test]
fn data_that_is_immutable_stays() {
    let map = |value: &str| json!({"immutable": true, "data": {"k": value}});
    assert_eq!(findings("", "v1", "configmaps", map("b"), Some(map("a"))), ["FieldValueForbidden data"]);
    assert_eq!(findings("", "v1", "configmaps", json!({"data": {"a/b": ""}}), None), ["FieldValueInvalid data[a/b]"]);
}

#[test]
fn definitions_are_structural() {
    let definition = |schema: Value| {
        json!({"spec": {"group": "n", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
    };
    let found = findings(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        definition(json!({"type": "object", "properties": {"a": {"type": "string", "default": 5}, "b": {"type": "odd"}}})),
        None,
    );
    assert_eq!(
        found,
        [
            "FieldValueInvalid metadata.name",
            "FieldValueInvalid spec.group",
            "FieldValueTypeInvalid spec.validation.openAPIV3Schema.properties[a].default",
            "FieldValueNotSupported spec.validation.openAPIV3Schema.properties[b].type",
        ]
    );
}
