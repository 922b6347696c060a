//! Defaults: what an object has in fields that were left out.
//!
//! Built-in kinds: rows (`type.field = value`) that hold wherever the type occurs, and rules where a default spans fields. Parents
//! come before children, so a child that a default creates gets its own. Custom kinds: the `default` of their schema. Fields
//! that upstream's round trip through its internal types keeps in step (`serviceAccount`, `podIP`) are filled in here too.

mod custom;
mod pods;
mod rows;
mod rules;
mod services;
pub(crate) mod workloads;

use serde_json::{Map, Value};

use crate::quantity::{Format, Quantity};
use crate::registry::{ResourceDef, SchemaSource};
use crate::table::{Kind, Node};

/// An object or a struct inside one.
pub(crate) type Object = Map<String, Value>;

/// Applies the defaults of `def`'s kind. The object is in canonical form before and after.
pub fn apply_defaults(def: &ResourceDef, value: &mut Value) {
    match &def.schema {
        SchemaSource::BuiltIn(node) => apply_built_in(*node, value),
        SchemaSource::Custom(schema) => custom::apply(schema, value),
        SchemaSource::None => {}
    }
}

/// Applies the defaults of a built-in type to a value of it.
pub fn apply_built_in(node: Node, value: &mut Value) {
    match (node.kind(), value) {
        (Kind::Struct, Value::Object(map)) => {
            let name = node.type_name().unwrap_or_default();
            rules::apply(name, map);
            rows::apply(name, node, map);
            for field in node.built_in_fields() {
                if matches!(field.kind(), Kind::Struct | Kind::List | Kind::Map)
                    && let Some(child) = map.get_mut(field.name())
                {
                    apply_built_in(field, child);
                }
            }
        }
        (Kind::List, Value::Array(list)) => {
            if let Some(element) = node.element().filter(|e| matches!(e.kind(), Kind::Struct | Kind::List | Kind::Map)) {
                list.iter_mut().for_each(|item| apply_built_in(element, item));
            }
        }
        (Kind::Map, Value::Object(map)) => {
            let Some(element) = node.element() else { return };
            match element.kind() {
                Kind::Quantity => map.values_mut().for_each(round_to_milli),
                Kind::Struct | Kind::List | Kind::Map => map.values_mut().for_each(|v| apply_built_in(element, v)),
                _ => {}
            }
        }
        _ => {}
    }
}

/// A default that upstream states in its schemas (most others are code there): what OpenAPI shows.
pub(crate) fn stated_default(type_name: &str, field: &str) -> Option<Value> {
    rows::stated(type_name, field)
}

/// Resource lists have a precision of a thousandth; finer values are rounded up (kubernetes issue 18538).
fn round_to_milli(value: &mut Value) {
    let Some(quantity) = value.as_str().and_then(|text| Quantity::parse(text).ok()) else { return };
    if quantity.nano() % 1_000_000 != 0 {
        let milli = quantity.milli();
        if let Ok(rounded) = Quantity::parse(&format!("{milli}m")) {
            let rounded = if quantity.format() == Format::Exponent { format!("{milli}e-3") } else { rounded.to_string() };
            *value = Value::String(rounded);
        }
    }
}

/// The text of a field, empty if it is absent.
pub(crate) fn text<'a>(map: &'a Object, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a field is absent, null or empty.
pub(crate) fn is_unset(map: &Object, key: &str) -> bool {
    match map.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}

/// Sets a field unless it has a value.
pub(crate) fn set_default(map: &mut Object, key: &str, value: impl Into<Value>) {
    if matches!(map.get(key), None | Some(Value::Null)) || map.get(key).and_then(Value::as_str) == Some("") {
        map.insert(key.to_owned(), value.into());
    }
}

/// The struct in a field, made if it is absent.
pub(crate) fn child<'a>(map: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    let value = map.entry(key.to_owned()).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// The structs of a list field.
pub(crate) fn items<'a>(map: &'a mut Object, key: &str) -> impl Iterator<Item = &'a mut Object> {
    map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::canonicalise;
    use crate::registry::Registry;
    use serde_json::json;

    fn defaulted(group: &str, version: &str, plural: &str, value: Value) -> Value {
        let registry = Registry::builtin();
        let def = registry.get(group, version, plural).unwrap();
        let mut value = canonicalise(def, value).unwrap();
        apply_defaults(def, &mut value);
        let again = canonicalise(def, value.clone()).unwrap();
        assert_eq!(again, value, "defaults leave the canonical form alone");
        value
    }

    #[test]
    fn a_pod_gets_its_defaults() {
        let pod = defaulted(
            "",
            "v1",
            "pods",
            json!({"metadata": {"name": "p"}, "spec": {
            "serviceAccountName": "robot", "hostNetwork": true, "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}],
            "containers": [{"name": "c", "image": "a/b:1", "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1"}}, "livenessProbe": {"httpGet": {"port": 80}}},
                {"name": "d", "image": "a/b"}]}}),
        );
        let spec = &pod["spec"];
        assert_eq!(spec["restartPolicy"], "Always");
        assert_eq!(spec["serviceAccount"], "robot");
        assert_eq!(spec["enableServiceLinks"], true);
        assert_eq!(spec["securityContext"], json!({}));
        assert_eq!(spec["volumes"][0]["emptyDir"], json!({}));
        assert_eq!(spec["volumes"][1]["secret"]["defaultMode"], 420);
        let container = &spec["containers"][0];
        assert_eq!(container["resources"]["requests"], json!({"cpu": "1"}));
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(container["ports"][0], json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"}));
        assert_eq!(container["livenessProbe"]["periodSeconds"], 10);
        assert_eq!(container["livenessProbe"]["httpGet"], json!({"path": "/", "port": 80, "scheme": "HTTP"}));
        assert_eq!(spec["containers"][1]["imagePullPolicy"], "Always");
    }

    #[test]
    fn a_deployment_gets_its_defaults_and_no_pod_ones() {
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "x:latest", "resources": {"limits": {"cpu": "1"}}}]}}});
        let value = defaulted("apps", "v1", "deployments", json!({"metadata": {"name": "d"}, "spec": spec}));
        assert_eq!(value["spec"]["replicas"], 1);
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
        assert_eq!(value["spec"]["strategy"], rolling);
        let template = &value["spec"]["template"]["spec"];
        assert_eq!(template["containers"][0]["resources"], json!({"limits": {"cpu": "1"}}));
        assert!(template.get("enableServiceLinks").is_none());
    }

    #[test]
    fn services_default_by_type() {
        let service = |spec: Value| defaulted("", "v1", "services", json!({"metadata": {"name": "s"}, "spec": spec}));
        let plain = service(json!({"ports": [{"port": 80}]}));
        assert_eq!(plain["spec"]["ports"][0], json!({"port": 80, "protocol": "TCP", "targetPort": 80}));
        assert_eq!(plain["spec"]["internalTrafficPolicy"], "Cluster");
        assert!(plain["spec"].get("externalTrafficPolicy").is_none());
        let balanced = service(json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP", "ports": [{"port": 80}]}));
        assert_eq!(balanced["spec"]["externalTrafficPolicy"], "Cluster");
        assert_eq!(balanced["spec"]["allocateLoadBalancerNodePorts"], true);
        assert_eq!(balanced["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"], 10800);
    }

    #[test]
    fn a_secrets_text_becomes_data() {
        let value = json!({"metadata": {"name": "s"}, "data": {"a": "eA==", "b": "eA=="}, "stringData": {"a": "y"}});
        let value = defaulted("", "v1", "secrets", value);
        assert_eq!(value["data"], json!({"a": "eQ==", "b": "eA=="}));
        assert!(value.get("stringData").is_none());
        assert_eq!(value["type"], "Opaque");
    }

    #[test]
    fn resource_lists_round_up_to_a_thousandth() {
        let value = json!({"metadata": {"name": "q"}, "spec": {"hard": {"cpu": "1.0001", "memory": "1Gi"}}});
        let value = defaulted("", "v1", "resourcequotas", value);
        assert_eq!(value["spec"]["hard"], json!({"cpu": "1001m", "memory": "1Gi"}));
    }
}
