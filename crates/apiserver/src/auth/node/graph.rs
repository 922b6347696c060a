//! Which objects a node has to do with: what the Pods bound to it use.

use std::collections::HashMap;

use serde_json::Value;

use crate::auth::follow::{News, meta, text};
use crate::cluster::Change;

/// Annotation of a Pod that a kubelet reports rather than runs on request.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// What a Pod may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Secret,
    ConfigMap,
    Claim,
    ServiceAccount,
    ResourceClaim,
}

type Name = (String, String);
type Used = (Kind, String, String);

#[derive(Debug, Default)]
struct PodEdges {
    node: String,
    uses: Vec<Used>,
}

/// Pods of nodes and what they use.
#[derive(Debug, Default)]
pub struct PodGraph {
    pods: HashMap<Name, PodEdges>,
    /// How many Pods of a node use an object.
    users: HashMap<Used, HashMap<String, usize>>,
}

impl PodGraph {
    pub fn apply(&mut self, news: News) {
        match news {
            News::All(pods) => {
                *self = PodGraph::default();
                pods.iter().for_each(|pod| self.put(pod));
            }
            News::Changed(Change { object: Some(pod), .. }) => self.put(&pod),
            News::Changed(Change { namespace, name, .. }) => self.remove(&(namespace, name)),
        }
    }

    fn put(&mut self, pod: &Value) {
        let name = (meta(pod, "namespace").to_owned(), meta(pod, "name").to_owned());
        self.remove(&name);
        let node = pod.get("spec").map(|spec| text(spec, "nodeName")).unwrap_or_default().to_owned();
        if node.is_empty() {
            return;
        }
        let annotations = pod.get("metadata").and_then(|m| m.get("annotations"));
        let is_mirror = annotations.is_some_and(|a| a.get(MIRROR_ANNOTATION).is_some());
        // A node makes its mirror Pods itself: they must not give it anything.
        let uses = if is_mirror { vec![] } else { uses_of(pod, &name.0) };
        for used in &uses {
            *self.users.entry(used.clone()).or_default().entry(node.clone()).or_default() += 1;
        }
        self.pods.insert(name, PodEdges { node, uses });
    }

    fn remove(&mut self, name: &Name) {
        let Some(edges) = self.pods.remove(name) else { return };
        for used in edges.uses {
            let Some(nodes) = self.users.get_mut(&used) else { continue };
            if let Some(count) = nodes.get_mut(&edges.node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&edges.node);
                }
            }
            if nodes.is_empty() {
                self.users.remove(&used);
            }
        }
    }

    /// Whether a Pod of the node uses the object.
    pub fn is_used_on(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        self.users.get(&(kind, namespace.to_owned(), name.to_owned())).is_some_and(|nodes| nodes.contains_key(node))
    }

    /// Whether the Pod is bound to the node.
    pub fn is_on(&self, node: &str, namespace: &str, name: &str) -> bool {
        self.pods.get(&(namespace.to_owned(), name.to_owned())).is_some_and(|pod| pod.node == node)
    }
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Everything that a Pod's spec names, each once.
fn uses_of(pod: &Value, namespace: &str) -> Vec<Used> {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let mut uses = Vec::new();
    let mut add = |kind: Kind, name: &str| {
        let used = (kind, namespace.to_owned(), name.to_owned());
        if !name.is_empty() && !uses.contains(&used) {
            uses.push(used);
        }
    };
    add(Kind::ServiceAccount, text(spec, "serviceAccountName"));
    for secret in items(spec, "imagePullSecrets") {
        add(Kind::Secret, text(secret, "name"));
    }
    for volume in items(spec, "volumes") {
        volume_uses(pod, volume, &mut add);
    }
    for container in ["initContainers", "containers", "ephemeralContainers"].iter().flat_map(|list| items(spec, list)) {
        for source in items(container, "envFrom").iter().chain(items(container, "env").iter().filter_map(|e| e.get("valueFrom")))
        {
            for (field, kind) in [
                ("secretRef", Kind::Secret),
                ("secretKeyRef", Kind::Secret),
                ("configMapRef", Kind::ConfigMap),
                ("configMapKeyRef", Kind::ConfigMap),
            ] {
                source.get(field).into_iter().for_each(|reference| add(kind, text(reference, "name")));
            }
        }
    }
    for claim in items(spec, "resourceClaims") {
        add(Kind::ResourceClaim, text(claim, "resourceClaimName"));
    }
    for claim in pod.get("status").map(|s| items(s, "resourceClaimStatuses")).unwrap_or_default() {
        add(Kind::ResourceClaim, text(claim, "resourceClaimName"));
    }
    uses
}

fn volume_uses(pod: &Value, volume: &Value, add: &mut dyn FnMut(Kind, &str)) {
    if let Some(source) = volume.get("secret") {
        add(Kind::Secret, text(source, "secretName"));
    }
    if let Some(source) = volume.get("configMap") {
        add(Kind::ConfigMap, text(source, "name"));
    }
    if let Some(source) = volume.get("persistentVolumeClaim") {
        add(Kind::Claim, text(source, "claimName"));
    }
    if volume.get("ephemeral").is_some() {
        add(Kind::Claim, &format!("{}-{}", meta(pod, "name"), text(volume, "name")));
    }
    for source in volume.get("projected").map(|p| items(p, "sources")).unwrap_or_default() {
        source.get("secret").into_iter().for_each(|s| add(Kind::Secret, text(s, "name")));
        source.get("configMap").into_iter().for_each(|s| add(Kind::ConfigMap, text(s, "name")));
    }
    if let Some(source) = volume.get("azureFile") {
        add(Kind::Secret, text(source, "secretName"));
    }
    // All other kinds of volume name their Secret in one of these fields.
    for source in volume.as_object().into_iter().flat_map(|fields| fields.values()) {
        for field in ["secretRef", "nodePublishSecretRef"] {
            source.get(field).into_iter().for_each(|reference| add(Kind::Secret, text(reference, "name")));
        }
    }
}

/// Volumes, the claims that they are bound to and the Secrets that they are mounted with.
#[derive(Debug, Default)]
pub struct VolumeGraph {
    /// Claim of a volume, and the Secrets it names.
    volumes: HashMap<String, (Name, Vec<Name>)>,
}

impl VolumeGraph {
    pub fn apply(&mut self, news: News) {
        match news {
            News::All(volumes) => {
                self.volumes.clear();
                volumes.iter().for_each(|volume| self.put(volume));
            }
            News::Changed(Change { object: Some(volume), .. }) => self.put(&volume),
            News::Changed(Change { name, .. }) => {
                self.volumes.remove(&name);
            }
        }
    }

    fn put(&mut self, volume: &Value) {
        let spec = volume.get("spec").unwrap_or(&Value::Null);
        let Some(claim) = spec.get("claimRef") else {
            self.volumes.remove(meta(volume, "name"));
            return;
        };
        let full = |reference: &Value| (text(reference, "namespace").to_owned(), text(reference, "name").to_owned());
        let mut secrets = Vec::new();
        for source in spec.as_object().into_iter().flat_map(|fields| fields.values()) {
            for field in ["secretRef", "nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"] {
                secrets.extend(source.get(field).map(full));
            }
        }
        self.volumes.insert(meta(volume, "name").to_owned(), (full(claim), secrets));
    }

    /// Namespace and name of the claim that a volume is bound to.
    pub fn claim_of(&self, volume: &str) -> Option<&Name> {
        self.volumes.get(volume).map(|(claim, _)| claim)
    }

    /// Claims of the volumes that are mounted with a Secret.
    pub fn claims_with<'a>(&'a self, namespace: &'a str, secret: &'a str) -> impl Iterator<Item = &'a Name> {
        self.volumes.values().filter(move |(_, s)| s.iter().any(|(ns, n)| ns == namespace && n == secret)).map(|(claim, _)| claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn pod(name: &str, node: &str, mirror: bool) -> Value {
        let annotations = if mirror { json!({MIRROR_ANNOTATION: "x"}) } else { json!({}) };
        json!({
            "metadata": {"namespace": "a", "name": name, "annotations": annotations},
            "spec": {
                "nodeName": node,
                "serviceAccountName": "bot",
                "imagePullSecrets": [{"name": "pull"}],
                "volumes": [
                    {"name": "v", "secret": {"secretName": "s"}},
                    {"name": "p", "projected": {"sources": [{"configMap": {"name": "root"}}, {"secret": {"name": "ps"}}]}},
                    {"name": "e", "ephemeral": {}},
                    {"name": "c", "csi": {"nodePublishSecretRef": {"name": "csi"}}},
                ],
                "containers": [{
                    "envFrom": [{"secretRef": {"name": "ef"}}],
                    "env": [{"name": "x", "valueFrom": {"configMapKeyRef": {"name": "ek", "key": "k"}}}],
                }],
            },
        })
    }

    #[test]
    fn a_node_reaches_what_its_pods_use_while_they_are_there() {
        let mut graph = PodGraph::default();
        graph.apply(News::All(vec![Arc::new(pod("p", "n1", false)), Arc::new(pod("q", "n1", false))]));
        let reached = [
            (Kind::Secret, "pull"),
            (Kind::Secret, "s"),
            (Kind::Secret, "ps"),
            (Kind::Secret, "csi"),
            (Kind::Secret, "ef"),
            (Kind::ConfigMap, "root"),
            (Kind::ConfigMap, "ek"),
            (Kind::Claim, "p-e"),
            (Kind::ServiceAccount, "bot"),
        ];
        for (kind, name) in reached {
            assert!(graph.is_used_on("n1", kind, "a", name), "{name}");
            assert!(!graph.is_used_on("n2", kind, "a", name), "{name}");
            assert!(!graph.is_used_on("n1", kind, "b", name), "{name}");
        }
        let gone = |name: &str| News::Changed(Change { namespace: "a".into(), name: name.into(), revision: 2, object: None });
        graph.apply(gone("p"));
        assert!(graph.is_used_on("n1", Kind::Secret, "a", "s"), "the other Pod still uses it");
        assert!(!graph.is_on("n1", "a", "p"));
        graph.apply(gone("q"));
        assert!(!graph.is_used_on("n1", Kind::Secret, "a", "s"));
        assert!(graph.users.is_empty() && graph.pods.is_empty());
    }

    #[test]
    fn a_mirror_pod_gives_its_node_nothing() {
        let mut graph = PodGraph::default();
        graph.apply(News::All(vec![Arc::new(pod("p", "n1", true))]));
        assert!(graph.is_on("n1", "a", "p"));
        assert!(!graph.is_used_on("n1", Kind::Secret, "a", "s"));
    }
}
