//! Namespaces: held by `spec.finalizers`, which only the `finalize` endpoint changes.

use serde_json::Value;

use crate::path::{get, set};

pub fn is_held(object: &Value) -> bool {
    get(object, "spec.finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
}

pub fn begin_deletion(object: &mut Value) {
    set(object, "status.phase", "Terminating".into());
}
