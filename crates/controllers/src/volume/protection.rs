//! `persistentvolumeclaim-protection-controller` and `persistentvolume-protection-controller`: what is in use is not deleted.

use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::Key;
use crate::workload::pods;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Names of the claims that a Pod mounts (those of generic ephemeral volumes included).
pub(super) fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let claim = |v: &k8s_openapi::api::core::v1::Volume| match (&v.persistent_volume_claim, &v.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{name}-{}", v.name)),
        _ => None,
    };
    volumes.iter().filter_map(claim).collect()
}

fn has(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|f| f == finalizer)
}

fn with(meta: &mut ObjectMeta, finalizer: &str) {
    meta.finalizers.get_or_insert_default().push(finalizer.into());
}

fn without(meta: &mut ObjectMeta, finalizer: &str) {
    meta.finalizers.get_or_insert_default().retain(|f| f != finalizer);
}

/// `persistentvolumeclaim-protection-controller`.
pub fn start_claims(env: &Env) -> Vec<Controller> {
    let (claims, all_pods) = (env.informer::<PersistentVolumeClaim>(), env.informer::<Pod>());
    let user = "system:serviceaccount:kube-system:pvc-protection-controller";
    let builder = Builder::new(env, "persistentvolumeclaim-protection-controller", user).each(&claims).on(&all_pods, |pod| {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        claims_of(pod).into_iter().map(|claim| Key::new(namespace.clone(), claim)).collect()
    });
    vec![builder.plan(move |key, _| {
        let Some(claim) = claims.get(key) else { return Vec::new() };
        let uses = |pod: &Pod| claims_of(pod).contains(&key.name) && holds(pod);
        plan_claim(&claim, &|| all_pods.in_namespace(&key.namespace).iter().any(|pod| uses(pod)))
    })]
}

/// A Pod that never got to a node or has ended uses nothing.
fn holds(pod: &Pod) -> bool {
    let assigned = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).is_some_and(|n| !n.is_empty());
    assigned && !pods::is_finished(pod)
}

fn plan_claim(claim: &PersistentVolumeClaim, in_use: &dyn Fn() -> bool) -> Vec<Action> {
    let mut changed = claim.clone();
    if claim.metadata.deletion_timestamp.is_none() {
        if has(&claim.metadata, CLAIM_FINALIZER) {
            return Vec::new();
        }
        with(&mut changed.metadata, CLAIM_FINALIZER);
    } else {
        if !has(&claim.metadata, CLAIM_FINALIZER) || in_use() {
            return Vec::new();
        }
        without(&mut changed.metadata, CLAIM_FINALIZER);
    }
    vec![Action::update(&changed)]
}

/// `persistentvolume-protection-controller`.
pub fn start_volumes(env: &Env) -> Vec<Controller> {
    let volumes = env.informer::<PersistentVolume>();
    let user = "system:serviceaccount:kube-system:pv-protection-controller";
    let builder = Builder::new(env, "persistentvolume-protection-controller", user).each(&volumes);
    vec![builder.plan(move |key, _| volumes.get(key).map(|volume| plan_volume(&volume)).unwrap_or_default())]
}

fn plan_volume(volume: &PersistentVolume) -> Vec<Action> {
    let bound = volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
    let mut changed = volume.clone();
    match (volume.metadata.deletion_timestamp.is_some(), has(&volume.metadata, VOLUME_FINALIZER)) {
        (false, false) => with(&mut changed.metadata, VOLUME_FINALIZER),
        (true, true) if !bound => without(&mut changed.metadata, VOLUME_FINALIZER),
        _ => return Vec::new(),
    }
    vec![Action::update(&changed)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn a_claim_is_let_go_when_deleted_and_unused() {
        let claim = |meta| from_value::<PersistentVolumeClaim>(json!({"metadata": meta})).unwrap();
        let deleted = claim(json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [CLAIM_FINALIZER]}));
        assert!(plan_claim(&deleted, &|| true).is_empty());
        assert_eq!(plan_claim(&deleted, &|| false).len(), 1);
        assert_eq!(plan_claim(&claim(json!({})), &|| false).len(), 1);
    }
}
