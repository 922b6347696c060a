//! The Node object: made once, its labels kept.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec};
use k8s_openapi::api::storage::v1::{CSINode, CSINodeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};

use crate::error::Result;
use crate::options::NodeOptions;

/// Label of a node whose containers of foreign images are not run.
pub const SIMULATED_LABEL: &str = "atoll.dev/containers";

/// Labels that every node of this kind has.
pub fn labels(options: &NodeOptions, architecture: &str) -> BTreeMap<String, String> {
    let mut labels = options.labels.clone();
    for prefix in ["kubernetes.io", "beta.kubernetes.io"] {
        labels.insert(format!("{prefix}/os"), "linux".to_owned());
        labels.insert(format!("{prefix}/arch"), architecture.to_owned());
    }
    labels.insert("kubernetes.io/hostname".to_owned(), options.name.clone());
    if options.simulate {
        labels.insert(SIMULATED_LABEL.to_owned(), "Simulated".to_owned());
    }
    labels
}

/// Creates the Node, or takes the one that is there and sets its labels. Returns it.
pub async fn register(client: &Client, options: &NodeOptions, architecture: &str) -> Result<Node> {
    let api: Api<Node> = Api::all(client.clone());
    let mut annotations = options.annotations.clone();
    annotations.insert("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned());
    let labels = labels(options, architecture);
    let node = Node {
        metadata: ObjectMeta {
            name: Some(options.name.clone()),
            labels: Some(labels.clone()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec { taints: (!options.taints.is_empty()).then(|| options.taints.clone()), ..NodeSpec::default() }),
        status: None,
    };
    match api.create(&PostParams::default(), &node).await {
        Ok(node) => return Ok(node),
        // A node may not create what is there already, and is told so in either way.
        Err(kube::Error::Api(e)) if matches!(e.code, 403 | 409) => {}
        Err(e) => return Err(e.into()),
    }
    api.get(&options.name).await?;
    let change = serde_json::json!({ "metadata": { "labels": labels } });
    Ok(api.patch(&options.name, &PatchParams::default(), &Patch::Strategic(change)).await?)
}

/// Creates the CSINode, which says that the node has no volume drivers; schedulers and controllers look for it.
pub async fn register_csi(client: &Client, node: &Node) -> Result<()> {
    let name = node.metadata.name.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.clone(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let object = CSINode {
        metadata: ObjectMeta { name: Some(name), owner_references: Some(vec![owner]), ..ObjectMeta::default() },
        spec: CSINodeSpec::default(),
    };
    match Api::<CSINode>::all(client.clone()).create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(e)) if e.code == 409 => Ok(()),
        Err(e) => Err(e.into()),
    }
}
