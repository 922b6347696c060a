//! Admission of storage: `DefaultStorageClass`, `StorageObjectInUseProtection`, `PersistentVolumeClaimResize`; and
//! `DefaultIngressClass`, which chooses by the same rule.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Attributes, Operation, Plugin};
use crate::cluster::{Cluster, Resource};
use crate::error::Result;

const STORAGE_CLASSES: Resource<'static> = Resource::new("storage.k8s.io", "storageclasses");
const INGRESS_CLASSES: Resource<'static> = Resource::new("networking.k8s.io", "ingressclasses");

/// The newest class with a true annotation; of equally old ones the first by name.
async fn default_class(cluster: &Cluster, classes: Resource<'_>, annotations: &[&str]) -> Result<Option<String>> {
    let listed = cluster.list(classes, "").await?;
    let is_default = |class: &Value| {
        annotations.iter().any(|key| class["metadata"]["annotations"].get(*key).and_then(Value::as_str) == Some("true"))
    };
    let mut found: Vec<(&str, &str)> = listed
        .items
        .iter()
        .filter(|c| is_default(c))
        .map(|c| {
            let meta = &c["metadata"];
            (meta["creationTimestamp"].as_str().unwrap_or_default(), meta["name"].as_str().unwrap_or_default())
        })
        .collect();
    found.sort_by(|a, b| b.0.cmp(a.0).then(a.1.cmp(b.1)));
    Ok(found.first().map(|(_, name)| (*name).to_owned()))
}

#[derive(Debug, Default)]
pub struct DefaultStorageClass;

#[async_trait]
impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn admit(&self, attributes: &mut Attributes, cluster: &Cluster) -> Result<()> {
        let spec = &attributes.object["spec"];
        // An empty name is an answer too: no class.
        let has_class = spec.get("storageClassName").is_some()
            || attributes.object["metadata"]["annotations"].get("volume.beta.kubernetes.io/storage-class").is_some();
        if !attributes.is_resource("", "persistentvolumeclaims") || has_class {
            return Ok(());
        }
        let keys = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        if let Some(name) = default_class(cluster, STORAGE_CLASSES, &keys).await? {
            attributes.object["spec"]["storageClassName"] = json!(name);
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub struct DefaultIngressClass;

#[async_trait]
impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn admit(&self, attributes: &mut Attributes, cluster: &Cluster) -> Result<()> {
        let has_class = attributes.object["spec"].get("ingressClassName").is_some()
            || attributes.object["metadata"]["annotations"].get("kubernetes.io/ingress.class").is_some();
        if !attributes.is_resource("networking.k8s.io", "ingresses") || has_class {
            return Ok(());
        }
        if let Some(name) = default_class(cluster, INGRESS_CLASSES, &["ingressclass.kubernetes.io/is-default-class"]).await? {
            attributes.object["spec"]["ingressClassName"] = json!(name);
        }
        Ok(())
    }
}

/// Volumes and claims in use are deleted only when they are no longer used: a finalizer from the start.
#[derive(Debug, Default)]
pub struct StorageObjectInUseProtection;

#[async_trait]
impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn admit(&self, attributes: &mut Attributes, _cluster: &Cluster) -> Result<()> {
        let finalizer = match (attributes.group.as_str(), attributes.resource.as_str()) {
            _ if !attributes.subresource.is_empty() => return Ok(()),
            ("", "persistentvolumeclaims") => "kubernetes.io/pvc-protection",
            ("", "persistentvolumes") => "kubernetes.io/pv-protection",
            ("storage.k8s.io", "volumeattributesclasses") => "kubernetes.io/vac-protection",
            _ => return Ok(()),
        };
        let finalizers = &mut attributes.object["metadata"]["finalizers"];
        match finalizers.as_array_mut() {
            Some(list) if list.iter().any(|f| f == finalizer) => {}
            Some(list) => list.push(json!(finalizer)),
            None => *finalizers = json!([finalizer]),
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub struct PersistentVolumeClaimResize;

#[async_trait]
impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    async fn validate(&self, attributes: &Attributes, cluster: &Cluster) -> Result<()> {
        if !attributes.is_resource("", "persistentvolumeclaims") {
            return Ok(());
        }
        let size = |claim: &Value| {
            let text = claim.pointer("/spec/resources/requests/storage").and_then(Value::as_str)?.to_owned();
            atoll_kube_schema::quantity::Quantity::parse(&text).ok()
        };
        let Some(old) = attributes.old.as_deref() else { return Ok(()) };
        if size(&attributes.object) <= size(old) {
            return Ok(());
        }
        if old.pointer("/status/phase").and_then(Value::as_str) != Some("Bound") {
            return Err(attributes.forbidden("Only bound persistent volume claims can be expanded"));
        }
        let class = attributes.object["spec"]["storageClassName"].as_str().unwrap_or_default();
        let class = match class {
            "" => None,
            name => cluster.get(STORAGE_CLASSES, "", name).await?,
        };
        match class {
            Some(class) if class["allowVolumeExpansion"] == json!(true) => Ok(()),
            _ => Err(attributes.forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
            )),
        }
    }
}

/// `RuntimeClass`: a Pod's overhead is its class's.
#[derive(Debug, Default)]
pub struct RuntimeClass;

#[async_trait]
impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn admit(&self, attributes: &mut Attributes, cluster: &Cluster) -> Result<()> {
        let name = attributes.object["spec"]["runtimeClassName"].as_str().unwrap_or_default().to_owned();
        if !attributes.is_resource("", "pods") || name.is_empty() {
            return Ok(());
        }
        let Some(class) = cluster.get(Resource::new("node.k8s.io", "runtimeclasses"), "", &name).await? else {
            let why = format!("pod rejected: RuntimeClass \"{name}\" not found");
            return Err(attributes.forbidden(why));
        };
        if let Some(overhead) = class.pointer("/overhead/podFixed") {
            let given = &attributes.object["spec"]["overhead"];
            if !given.is_null() && given != overhead {
                let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
                return Err(attributes.forbidden(why));
            }
            attributes.object["spec"]["overhead"] = overhead.clone();
        } else if !attributes.object["spec"]["overhead"].is_null() {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            return Err(attributes.forbidden(why));
        }
        merge_scheduling(&mut attributes.object, &class["scheduling"]);
        Ok(())
    }
}

/// A class's node selector and tolerations join the Pod's.
fn merge_scheduling(pod: &mut Value, scheduling: &Value) {
    if let Some(selector) = scheduling["nodeSelector"].as_object() {
        if !pod["spec"]["nodeSelector"].is_object() {
            pod["spec"]["nodeSelector"] = json!({});
        }
        for (key, value) in selector {
            pod["spec"]["nodeSelector"][key] = value.clone();
        }
    }
    if let Some(added) = scheduling["tolerations"].as_array() {
        if !pod["spec"]["tolerations"].is_array() {
            pod["spec"]["tolerations"] = json!([]);
        }
        if let Some(list) = pod["spec"]["tolerations"].as_array_mut() {
            let fresh: Vec<Value> = added.iter().filter(|t| !list.contains(t)).cloned().collect();
            list.extend(fresh);
        }
    }
}
