//! Owners of `spec.replicas` as the `scale` subresource sees them.
//!
//! A write of `scale` is an [`super::update`] or [`super::apply`] of the `Scale` object with the entries of
//! [`scale_to_subresource`]; [`scale_to_parent`] then brings what became of them back to the scaled object.

use serde_json::Value;

use super::element::PathElement;
use super::managed::{Managers, Owned};
use super::set::FieldSet;

const SCALE_VERSION: &str = "autoscaling/v1";

/// Where a version of the scaled kind has its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicasPath {
    pub api_version: String,
    /// `None` for a version of a custom kind without `scale`.
    pub path: Option<Vec<PathElement>>,
}

impl ReplicasPath {
    /// From plain field names such as `["spec", "replicas"]`.
    pub fn of_fields(api_version: &str, names: &[&str]) -> Self {
        ReplicasPath { api_version: api_version.to_owned(), path: Some(names.iter().map(|n| PathElement::field(*n)).collect()) }
    }
}

fn replicas_in_scale() -> FieldSet {
    FieldSet::of_fields(&[&["spec", "replicas"]])
}

fn path_in<'p>(paths: &'p [ReplicasPath], api_version: &str) -> Option<&'p Option<Vec<PathElement>>> {
    paths.iter().find(|p| p.api_version == api_version).map(|p| &p.path)
}

/// The `managedFields` of the `Scale` of an object with these entries; `None` if nobody owns its replicas.
pub fn scale_to_subresource(parent: Option<&Value>, paths: &[ReplicasPath]) -> Result<Option<Value>, String> {
    let parent = Managers::from_json(parent)?;
    let mut out = Managers::default();
    for (id, owned) in parent.0 {
        let Some(Some(path)) = path_in(paths, &owned.api_version) else { continue };
        if owned.set.has(path) {
            let entry = Owned { set: replicas_in_scale(), api_version: SCALE_VERSION.to_owned(), time: owned.time };
            out.0.insert(id, entry);
        }
    }
    Ok(out.to_json())
}

/// The `managedFields` of the object after its `Scale` was written. `api_version` is the object's version at this endpoint.
pub fn scale_to_parent(
    parent: Option<&Value>,
    scale: Option<&Value>,
    api_version: &str,
    paths: &[ReplicasPath],
) -> Result<Option<Value>, String> {
    let parent = Managers::from_json(parent)?;
    let mut scale = Managers::from_json(scale)?;
    let times: std::collections::BTreeMap<_, _> = parent.0.iter().map(|(id, o)| (id.clone(), o.time.clone())).collect();
    let mut out = Managers::default();
    for (id, mut owned) in parent.0 {
        let Some(path) = path_in(paths, &owned.api_version) else { continue };
        if let Some(path) = path
            && owned.set.has(path)
            && scale.0.remove(&id).is_none()
        {
            // Somebody took the replicas through `scale`.
            let mut gone = FieldSet::new();
            gone.insert(path.iter().cloned());
            owned.set.subtract(&gone);
            if owned.set.is_empty() {
                continue;
            }
        }
        out.0.insert(id, owned);
    }
    let Some(Some(path)) = path_in(paths, api_version) else { return Ok(out.to_json()) };
    let replicas = [PathElement::field("spec"), PathElement::field("replicas")];
    for (id, owned) in scale.0 {
        if owned.set.has(&replicas) {
            let mut set = FieldSet::new();
            set.insert(path.iter().cloned());
            // As upstream: who comes to own the replicas through `scale` alone has no time.
            let time = times.get(&id).cloned().flatten();
            out.0.insert(id, Owned { set, api_version: api_version.to_owned(), time });
        }
    }
    Ok(out.to_json())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(manager: &str, operation: &str, version: &str, subresource: &str, fields: Value) -> Value {
        let mut out = json!({"manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields});
        if !subresource.is_empty() {
            out["subresource"] = subresource.into();
        }
        out
    }

    #[test]
    fn replicas_move_to_the_one_who_scaled() {
        let paths = [ReplicasPath::of_fields("apps/v1", &["spec", "replicas"])];
        let parent = json!([entry("a", "Apply", "apps/v1", "", json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}))]);
        let seen = scale_to_subresource(Some(&parent), &paths).expect("entries");
        assert_eq!(seen, Some(json!([entry("a", "Apply", "autoscaling/v1", "", json!({"f:spec": {"f:replicas": {}}}))])));
        let scaled = json!([entry("s", "Update", "autoscaling/v1", "scale", json!({"f:spec": {"f:replicas": {}}}))]);
        assert_eq!(
            scale_to_parent(Some(&parent), Some(&scaled), "apps/v1", &paths),
            Ok(Some(json!([
                entry("a", "Apply", "apps/v1", "", json!({"f:spec": {"f:paused": {}}})),
                entry("s", "Update", "apps/v1", "scale", json!({"f:spec": {"f:replicas": {}}})),
            ])))
        );
        assert_eq!(scale_to_parent(Some(&parent), seen.as_ref(), "apps/v1", &paths), Ok(Some(parent.clone())));
    }
}
