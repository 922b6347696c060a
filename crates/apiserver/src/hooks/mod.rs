//! What some kinds do beyond the columns of their row when they are deleted.

mod namespaces;
mod pods;

use atoll_kube_schema::ResourceDef;
use serde_json::Value;

/// Whether something besides `metadata.finalizers` holds the object although it is being deleted.
pub fn is_held(def: &ResourceDef, object: &Value) -> bool {
    match (def.group.as_str(), def.plural.as_str()) {
        ("", "namespaces") => namespaces::is_held(object),
        _ => false,
    }
}

/// Marks an object whose deletion begins.
pub fn begin_deletion(def: &ResourceDef, object: &mut Value) {
    if let ("", "namespaces") = (def.group.as_str(), def.plural.as_str()) {
        namespaces::begin_deletion(object);
    }
}

/// Objects of the system that nobody may delete.
pub fn is_system(def: &ResourceDef, name: &str) -> bool {
    let is_class = def.group == "scheduling.k8s.io" && def.plural == "priorityclasses";
    is_class && matches!(name, "system-cluster-critical" | "system-node-critical")
}

/// Kinds whose deletion is answered with the object that is gone rather than with a `Status`.
pub fn returns_deleted(def: &ResourceDef) -> bool {
    matches!(
        (def.group.as_str(), def.plural.as_str()),
        (
            "",
            "pods"
                | "services"
                | "serviceaccounts"
                | "podtemplates"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "resourcequotas"
        ) | ("storage.k8s.io", "storageclasses" | "csinodes" | "csidrivers" | "volumeattachments" | "volumeattributesclasses")
            | ("resource.k8s.io", _)
    )
}

/// How long a delete of this object waits, in seconds; 0 for kinds that are not deleted gracefully.
pub fn grace_seconds(def: &ResourceDef, object: &Value, asked: Option<i64>) -> i64 {
    if !def.strategy.is_deleted_gracefully {
        return 0;
    }
    pods::grace_seconds(object, asked)
}

/// A finalizer that the first delete of an object sets.
pub fn deletion_finalizer(def: &ResourceDef) -> Option<&'static str> {
    crate::definitions::is_definition(def).then_some(crate::definitions::FINALIZER)
}

/// Kinds whose deletion is a state of their own (Namespace, definitions): they have no grace period, not even one of zero.
pub fn is_deleted_by_condition(def: &ResourceDef) -> bool {
    (def.group.is_empty() && def.plural == "namespaces") || crate::definitions::is_definition(def)
}
