//! Between the version of a request and the version in which an object is stored.

use atoll_kube_schema::{Registry, ResourceDef, convert};
use serde_json::Value;

use crate::stored::api_version;

/// Whether requests of this row see exactly what is stored.
pub fn is_stored_as_served(def: &ResourceDef) -> bool {
    def.version == def.storage.version && def.group == def.storage.group
}

/// From the row's version to the storage version. A storage version that is not served (custom kinds) differs in name alone.
pub fn to_storage(registry: &Registry, def: &ResourceDef, object: Value) -> Value {
    match registry.storage_row(def) {
        Some(row) => convert(def, row, object),
        None => renamed(object, &api_version(&def.storage.group, &def.storage.version), &def.storage.kind),
    }
}

/// From the storage version to the row's version.
pub fn from_storage(registry: &Registry, def: &ResourceDef, object: Value) -> Value {
    match registry.storage_row(def) {
        Some(row) => convert(row, def, object),
        None => renamed(object, &def.api_version(), &def.kind),
    }
}

fn renamed(mut object: Value, api_version: &str, kind: &str) -> Value {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object
}
