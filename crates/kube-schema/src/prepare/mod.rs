//! What a write means before it is validated: fields that an endpoint does not own go back to what is stored, status starts empty,
//! the generation follows the specification, and a few kinds have fields that the server fills in.
//!
//! The order of a write is: decode, defaults, (mutating admission, decode and defaults again), `prepare_*`, validation.

mod kinds;
mod pods;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::decode::{FieldValidation, decode_built_in};
use crate::registry::{ResourceDef, SchemaSource};

pub use pods::qos_class;

/// Prepares an object that is about to be created. `metadata.name` and `metadata.uid` are already set.
pub fn prepare_create(def: &ResourceDef, object: &mut Value, now: Timestamp) {
    let strategy = &def.strategy;
    // A node's creator is the kubelet, which sends its status along.
    let keeps_status = def.group.is_empty() && def.plural == "nodes";
    if strategy.reset_fields.iter().any(|p| p == "status")
        && !keeps_status
        && let Some(map) = object.as_object_mut()
    {
        match empty_status(def) {
            Some(status) => map.insert("status".to_owned(), status),
            None => map.remove("status"),
        };
    }
    if strategy.sets_generation {
        set_generation(object, 1);
    }
    kinds::create(def, object, now);
}

/// Prepares an object that is about to replace `old`, through the resource itself (empty `subresource`) or a subresource that
/// takes the same kind (`status`, `finalize`, `approval`).
pub fn prepare_update(def: &ResourceDef, subresource: &str, object: &mut Value, old: &Value, now: Timestamp) {
    let generation = generation(old);
    for path in def.reset_fields(subresource) {
        match path.as_str() {
            "*" => reset_all_but_status(object, old),
            "metadata" => reset_metadata(object, old),
            path => copy(object, old, path),
        }
    }
    match generation {
        0 => copy(object, old, "metadata.generation"),
        generation => set_generation(object, generation),
    }
    kinds::update(def, subresource, object, old, now);
    let raises = if def.strategy.generation_follows_all {
        subresource != "status" && differs_beside_metadata(def, object, old)
    } else {
        def.strategy.generation_paths.iter().any(|path| get(object, path) != get(old, path))
    };
    if raises {
        set_generation(object, generation + 1);
    }
}

/// The canonical form of a status in which nothing is set; custom kinds have none.
fn empty_status(def: &ResourceDef) -> Option<Value> {
    let SchemaSource::BuiltIn(node) = &def.schema else { return None };
    let status = node.built_in_field("status")?;
    decode_built_in(status, Value::Null.into(), FieldValidation::Ignore).ok().map(|d| d.value)
}

/// The value at a dotted path.
pub(crate) fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |v, key| v.get(key)).filter(|v| !v.is_null())
}

/// Makes `object` have at a dotted path what `old` has there.
fn copy(object: &mut Value, old: &Value, path: &str) {
    let (parent, last) = path.rsplit_once('.').unwrap_or(("", path));
    let wanted = get(old, path).cloned();
    let mut at = object;
    for key in parent.split('.').filter(|k| !k.is_empty()) {
        let Some(map) = at.as_object_mut() else { return };
        if wanted.is_none() && !map.contains_key(key) {
            return;
        }
        at = map.entry(key.to_owned()).or_insert_with(|| Value::Object(Map::new()));
    }
    let Some(map) = at.as_object_mut() else { return };
    match wanted {
        Some(value) => map.insert(last.to_owned(), value),
        None => map.remove(last),
    };
}

/// Keeps of a status write only the status (and the bookkeeping of the write itself).
fn reset_all_but_status(object: &mut Value, old: &Value) {
    let mut kept = old.clone();
    for path in ["status", "metadata"] {
        copy(&mut kept, object, path);
    }
    *object = kept;
}

/// Metadata that a status write may not change.
fn reset_metadata(object: &mut Value, old: &Value) {
    for key in ["deletionTimestamp", "generation", "selfLink", "labels", "annotations", "finalizers", "ownerReferences"] {
        copy(object, old, &format!("metadata.{key}"));
    }
}

fn generation(value: &Value) -> i64 {
    get(value, "metadata.generation").and_then(Value::as_i64).unwrap_or_default()
}

fn set_generation(object: &mut Value, generation: i64) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("generation".to_owned(), generation.into());
    }
}

/// Whether a custom object changed anywhere but in its metadata (and its status, where that has its own endpoint).
fn differs_beside_metadata(def: &ResourceDef, object: &Value, old: &Value) -> bool {
    let rest = |value: &Value| -> Map<String, Value> {
        let has_status = def.subresource("status").is_some();
        let map = value.as_object().cloned().unwrap_or_default();
        map.into_iter().filter(|(k, _)| k != "metadata" && k != "apiVersion" && !(has_status && k == "status")).collect()
    };
    rest(object) != rest(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    fn update(group: &str, plural: &str, subresource: &str, mut new: Value, old: &Value) -> Value {
        let registry = Registry::builtin();
        let def = registry.get(group, "v1", plural).unwrap();
        prepare_update(def, subresource, &mut new, old, Timestamp::UNIX_EPOCH);
        new
    }

    #[test]
    fn each_endpoint_keeps_what_is_not_its_own() {
        let old = json!({"metadata": {"name": "d", "generation": 3, "labels": {"a": "1"}}, "spec": {"replicas": 1}, "status": {"x": 1}});
        let new = json!({"metadata": {"name": "d", "labels": {"a": "2"}}, "spec": {"replicas": 2}, "status": {"x": 2}});
        let got = update("apps", "deployments", "", new.clone(), &old);
        let meta = json!({"name": "d", "generation": 4, "labels": {"a": "2"}});
        assert_eq!(got, json!({"metadata": meta, "spec": {"replicas": 2}, "status": {"x": 1}}));
        let got = update("apps", "deployments", "status", new, &old);
        let meta = json!({"name": "d", "generation": 3, "labels": {"a": "1"}});
        assert_eq!(got, json!({"metadata": meta, "spec": {"replicas": 1}, "status": {"x": 2}}));
    }

    #[test]
    fn a_custom_status_write_changes_the_status_alone() {
        let crd = json!({"spec": {"group": "e.io", "scope": "Cluster", "names": {"plural": "ws", "kind": "W"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}}]}});
        let def = &ResourceDef::from_crd(&crd).unwrap()[0];
        let old = json!({"metadata": {"name": "w", "generation": 1}, "spec": {"a": 1}, "more": 1});
        let mut new =
            json!({"metadata": {"name": "w", "labels": {"x": "y"}, "managedFields": [1]}, "spec": {"a": 2}, "status": {"s": 1}});
        prepare_update(def, "status", &mut new, &old, Timestamp::UNIX_EPOCH);
        let meta = json!({"name": "w", "generation": 1, "managedFields": [1]});
        assert_eq!(new, json!({"metadata": meta, "spec": {"a": 1}, "more": 1, "status": {"s": 1}}));
        let mut new = json!({"metadata": {"name": "w"}, "spec": {"a": 2}, "more": 1, "status": {"s": 1}});
        prepare_update(def, "", &mut new, &old, Timestamp::UNIX_EPOCH);
        assert_eq!(new["metadata"]["generation"], 2);
        assert!(new.get("status").is_none());
        let mut scaled = json!({"metadata": {"name": "w"}, "spec": {"a": 1, "replicas": 2}, "more": 1});
        prepare_update(def, "scale", &mut scaled, &old, Timestamp::UNIX_EPOCH);
        assert_eq!(scaled["metadata"]["generation"], 2);
    }

    #[test]
    fn fields_of_features_that_are_off_are_dropped_and_local_apis_are_available() {
        let registry = Registry::builtin();
        let mut lease = json!({"metadata": {"name": "l"}, "spec": {"strategy": "OldestEmulationVersion", "holderIdentity": "a"}});
        prepare_create(registry.get("coordination.k8s.io", "v1", "leases").unwrap(), &mut lease, Timestamp::UNIX_EPOCH);
        assert_eq!(lease["spec"], json!({"holderIdentity": "a"}));
        let def = registry.get("apiregistration.k8s.io", "v1", "apiservices").unwrap();
        let mut service = json!({"metadata": {"name": "v1.apps"}, "spec": {"group": "apps", "version": "v1"}});
        prepare_create(def, &mut service, Timestamp::UNIX_EPOCH);
        assert_eq!(service["status"]["conditions"][0]["reason"], "Local");
        let mut remote = json!({"metadata": {"name": "v1.x"}, "spec": {"group": "x", "service": {"name": "s"}}});
        prepare_create(def, &mut remote, Timestamp::UNIX_EPOCH);
        assert_eq!(remote["status"].get("conditions"), None);
    }

    #[test]
    fn a_namespace_gets_its_finalizer_and_a_pod_its_status() {
        let registry = Registry::builtin();
        let mut namespace = json!({"metadata": {"name": "n"}, "spec": {}, "status": {"phase": "Terminating"}});
        prepare_create(registry.get("", "v1", "namespaces").unwrap(), &mut namespace, Timestamp::UNIX_EPOCH);
        let want = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        assert_eq!(namespace, want);
        let mut pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Running"}, "spec": {"schedulingGates": [{"name": "g"}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        prepare_create(registry.get("", "v1", "pods").unwrap(), &mut pod, Timestamp::UNIX_EPOCH);
        assert_eq!(pod["status"]["phase"], "Pending");
        assert_eq!(pod["status"]["qosClass"], "Burstable");
        assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
        assert_eq!(pod["metadata"]["generation"], 1);
    }
}
