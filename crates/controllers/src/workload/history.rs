//! Revisions of a template, kept as ControllerRevision objects (daemon sets and stateful sets).

use super::template;
use crate::action::Action;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::Resource;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The label of a Pod that says which revision it was made from.
pub const REVISION_HASH: &str = "controller-revision-hash";

/// Where the history of one owner stands.
#[derive(Debug)]
pub struct History {
    /// Hash of the current template.
    pub hash: String,
    /// Name of the revision of the current template.
    pub name: String,
    /// Creates or renumbers it, if needed.
    pub actions: Vec<Action>,
}

/// Finds or makes the revision of `template` among those that `owner` has.
pub fn current<K: Resource<DynamicType = ()>>(
    owner: &K,
    template: &PodTemplateSpec,
    selector: &LabelSelector,
    collisions: Option<i32>,
    revisions: &[Arc<ControllerRevision>],
) -> History {
    let data = data(template);
    let newest = revisions.iter().map(|r| r.revision).max().unwrap_or(0);
    if let Some(known) = revisions.iter().filter(|r| same(r, &data)).max_by_key(|r| r.revision) {
        let mut actions = Vec::new();
        if known.revision < newest {
            // Going back to an earlier template makes it the newest revision.
            let renumbered = ControllerRevision { revision: newest + 1, ..known.as_ref().clone() };
            actions.push(Action::update(&renumbered));
        }
        let hash = known.metadata.labels.as_ref().and_then(|l| l.get(REVISION_HASH)).cloned().unwrap_or_default();
        return History { hash, name: known.metadata.name.clone().unwrap_or_default(), actions };
    }
    let hash = template::short_hash(&data, collisions);
    let name = format!("{}-{hash}", owner.meta().name.as_deref().unwrap_or_default());
    let mut labels = selector.match_labels.clone().unwrap_or_default();
    labels.extend(template.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default());
    labels.insert(REVISION_HASH.into(), hash.clone());
    let revision = ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: owner.meta().namespace.clone(),
            labels: Some(labels),
            annotations: owner.meta().annotations.clone(),
            owner_references: Some(vec![template::controller_ref(owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: newest + 1,
    };
    History { hash, name, actions: vec![Action::create(&revision)] }
}

/// The patch that `kubectl rollout undo` sends to come back to a revision.
fn data(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = "replace".into();
    json!({"spec": {"template": template}})
}

fn same(revision: &ControllerRevision, data: &Value) -> bool {
    revision.data.as_ref().is_some_and(|known| known.0 == *data)
}

/// Deletes the oldest revisions beyond `limit` that no Pod comes from.
pub fn clean_up(revisions: &[Arc<ControllerRevision>], limit: i32, keep: &BTreeSet<String>, current: &str) -> Vec<Action> {
    let hash =
        |r: &ControllerRevision| r.metadata.labels.as_ref().and_then(|l| l.get(REVISION_HASH)).cloned().unwrap_or_default();
    let mut unused: Vec<_> =
        revisions.iter().filter(|r| !keep.contains(&hash(r)) && r.metadata.name.as_deref() != Some(current)).collect();
    unused.sort_by_key(|r| r.revision);
    let surplus = unused.len().saturating_sub(limit.max(0) as usize);
    unused.into_iter().take(surplus).map(|r| Action::delete(r.as_ref())).collect()
}
