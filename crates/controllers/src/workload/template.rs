//! Pod templates: their hash, their equality, the Pod made from one.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The label that carries a template's hash.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Characters of generated suffixes: no vowels, so that no word appears.
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A short text that differs between different values. `collisions` makes another one when a name is taken.
pub fn short_hash(value: &Value, collisions: Option<i32>) -> String {
    let mut hasher = Sha256::new();
    hasher.update(value.to_string());
    if let Some(collisions) = collisions {
        hasher.update(collisions.to_le_bytes());
    }
    hasher.finalize().iter().take(10).map(|byte| char::from(SAFE[usize::from(*byte) % SAFE.len()])).collect()
}

/// The template as a value without the labels that controllers add.
pub fn bare(template: &PodTemplateSpec) -> Value {
    let mut value = serde_json::to_value(template).unwrap_or_default();
    if let Some(labels) = value.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(POD_TEMPLATE_HASH);
    }
    value
}

/// Whether two templates make the same Pods.
pub fn equal(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    bare(a) == bare(b)
}

/// A reference that makes `owner` the controller.
pub fn controller_ref<K: kube::Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The Pod that `owner` makes from its template; its name is generated.
pub fn pod<K: kube::Resource<DynamicType = ()>>(owner: &K, template: &PodTemplateSpec) -> Pod {
    let given = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        generate_name: Some(format!("{}-", owner.meta().name.as_deref().unwrap_or_default())),
        namespace: owner.meta().namespace.clone(),
        labels: given.labels,
        annotations: given.annotations,
        finalizers: given.finalizers,
        owner_references: Some(vec![controller_ref(owner)]),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn the_hash_label_does_not_make_templates_differ() {
        let template = |labels| -> PodTemplateSpec {
            from_value(json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c"}]}})).unwrap()
        };
        let plain = template(json!({"a": "b"}));
        assert!(equal(&plain, &template(json!({"a": "b", "pod-template-hash": "x"}))));
        assert!(!equal(&plain, &template(json!({"a": "c"}))));
        let hash = short_hash(&bare(&plain), None);
        assert_eq!(hash.len(), 10);
        assert_ne!(hash, short_hash(&bare(&plain), Some(1)));
    }
}
