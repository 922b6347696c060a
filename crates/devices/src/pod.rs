//! The few fields of a Pod that matter here, readable from the object's JSON by whoever has one.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::names::{NodeName, PodUid, annotation};

/// Clients write `null` for 'nothing', which serde's defaults do not cover.
fn null_is_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A Pod, reduced. Unknown fields are ignored, missing ones empty.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodView {
    /// `metadata`.
    #[serde(deserialize_with = "null_is_default")]
    pub metadata: Metadata,
    /// `spec`.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: Spec,
    /// `status`.
    #[serde(deserialize_with = "null_is_default")]
    pub status: Status,
}

/// Part of a Pod's `metadata`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// Namespace.
    #[serde(deserialize_with = "null_is_default")]
    pub namespace: String,
    /// UID.
    #[serde(deserialize_with = "null_is_default")]
    pub uid: String,
    /// Annotations.
    #[serde(deserialize_with = "null_is_default")]
    pub annotations: BTreeMap<String, String>,
    /// Labels.
    #[serde(deserialize_with = "null_is_default")]
    pub labels: BTreeMap<String, String>,
}

/// Part of a Pod's `spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// Init containers, sidecars among them.
    #[serde(deserialize_with = "null_is_default")]
    pub init_containers: Vec<Container>,
    /// Containers.
    #[serde(deserialize_with = "null_is_default")]
    pub containers: Vec<Container>,
    /// The scheduler that is to place the Pod.
    #[serde(deserialize_with = "null_is_default")]
    pub scheduler_name: String,
    /// The node that it is bound to.
    #[serde(deserialize_with = "null_is_default")]
    pub node_name: String,
    /// Labels that its node must have.
    #[serde(deserialize_with = "null_is_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Set if a runtime was asked for.
    pub runtime_class_name: Option<String>,
}

/// Part of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// Resources.
    #[serde(deserialize_with = "null_is_default")]
    pub resources: Resources,
    /// `Always` on an init container makes it a sidecar.
    pub restart_policy: Option<String>,
    /// Security context.
    pub security_context: Option<SecurityContext>,
    /// Environment, names and literal values.
    #[serde(deserialize_with = "null_is_default")]
    pub env: Vec<EnvVar>,
}

/// Part of a container's security context.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SecurityContext {
    /// Whether the container is privileged.
    pub privileged: Option<bool>,
}

/// An environment variable.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EnvVar {
    /// Name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// Literal value.
    #[serde(deserialize_with = "null_is_default")]
    pub value: String,
}

/// Resources of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Limits.
    #[serde(deserialize_with = "null_is_default")]
    pub limits: BTreeMap<String, Amount>,
    /// Requests.
    #[serde(deserialize_with = "null_is_default")]
    pub requests: BTreeMap<String, Amount>,
}

/// A quantity as written; JSON may hold it as a string or a number.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// `"4k"`.
    Text(String),
    /// `4000`.
    Number(serde_json::Number),
}

impl Amount {
    /// The whole number it stands for.
    pub fn whole(&self) -> Option<i64> {
        match self {
            Self::Text(text) => crate::quantity::whole(text),
            Self::Number(number) => crate::quantity::whole(&number.to_string()),
        }
    }
}

/// Part of a Pod's `status`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Phase.
    #[serde(deserialize_with = "null_is_default")]
    pub phase: String,
}

impl PodView {
    /// Reads the fields from a Pod's JSON.
    pub fn from_json(pod: &serde_json::Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(pod)
    }

    /// UID as the ledger's key.
    pub fn uid(&self) -> PodUid {
        PodUid(self.metadata.uid.clone())
    }

    /// An annotation that is there and not empty.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether all its containers have ended for good, so that it holds nothing.
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// The node that it is bound to.
    pub fn bound_node(&self) -> Option<NodeName> {
        Some(self.spec.node_name.as_str()).filter(|name| !name.is_empty()).map(NodeName::from)
    }

    /// The node whose cards its allocation names: the bound one, else the one that the scheduler recorded.
    pub fn device_node(&self) -> Option<NodeName> {
        self.bound_node().or_else(|| self.annotation(annotation::VGPU_NODE).map(NodeName::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_are_read_as_nothing() {
        let pod = serde_json::json!({"metadata": {"name": null, "annotations": null}, "status": null,
            "spec": {"initContainers": null, "containers": [{"name": "c", "resources": {"limits": null}, "env": null}]}});
        let pod = PodView::from_json(&pod).unwrap();
        assert_eq!((pod.spec.containers[0].name.as_str(), pod.spec.containers[0].resources.limits.len()), ("c", 0));
    }
}
