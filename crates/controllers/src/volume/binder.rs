//! `persistentvolume-binder-controller`: claims and volumes find each other; released volumes are reclaimed.

use super::directory::{self, PROVISIONER};
use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::Key;
use crate::quantity;
use crate::selector;
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus, PersistentVolumeStatus,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Resource;
use std::path::PathBuf;
use std::sync::Arc;

/// On a claim: its volume was chosen here, not by its author. On a volume: its `claimRef` was.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a volume: who made it and removes it.
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim: who is to make a volume for it.
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Puts the loop of claims and the loop of volumes together.
pub fn start(env: &Env) -> Vec<Controller> {
    vec![claims(env), volumes(env)]
}

const NAME: &str = "persistentvolume-binder-controller";
const USER: &str = "system:serviceaccount:kube-system:persistent-volume-binder";

fn claim_key(volume: &PersistentVolume) -> Vec<Key> {
    let claim = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    claim.map(|c| Key::new(c.namespace.clone().unwrap_or_default(), c.name.clone().unwrap_or_default())).into_iter().collect()
}

fn claims(env: &Env) -> Controller {
    let (claims, volumes, classes) =
        (env.informer::<PersistentVolumeClaim>(), env.informer::<PersistentVolume>(), env.informer::<StorageClass>());
    let (for_volumes, for_classes) = (claims.clone(), claims.clone());
    let root = env.options.volume_root.clone();
    let builder = Builder::new(env, NAME, USER)
        .each(&claims)
        .on(&volumes, move |volume| {
            let named = claim_key(volume);
            if !named.is_empty() {
                return named;
            }
            // A free volume may be what a waiting claim waits for.
            for_volumes.all().iter().filter(|c| volume_name(c).is_none()).map(|c| Key::of(&c.metadata)).collect()
        })
        .on(&classes, move |_| {
            for_classes.all().iter().filter(|c| volume_name(c).is_none()).map(|c| Key::of(&c.metadata)).collect()
        });
    builder.plan(move |key, _| {
        let Some(claim) = claims.get(key) else { return Vec::new() };
        let class = class_name(&claim).and_then(|name| classes.find("", name));
        plan_claim(&claim, &volumes.all(), class.as_deref(), root.as_ref())
    })
}

fn volumes(env: &Env) -> Controller {
    let (claims, volumes) = (env.informer::<PersistentVolumeClaim>(), env.informer::<PersistentVolume>());
    let for_claims = volumes.clone();
    let root = env.options.volume_root.clone();
    let found_at = env.options.volumes_found_at.clone().or_else(|| root.clone());
    let builder = Builder::new(env, NAME, USER).each(&volumes).on(&claims, move |claim| {
        let key = Key::of(&claim.metadata);
        for_claims.all().iter().filter(|v| claim_key(v).first() == Some(&key)).map(|v| Key::of(&v.metadata)).collect()
    });
    builder.ask(move |key| {
        let volume = volumes.get(&key);
        let claim = volume.as_ref().and_then(|v| claims.get(claim_key(v).first()?));
        let directories = root.clone().zip(found_at.clone());
        async move {
            let Some(volume) = volume else { return Ok(Vec::new()) };
            if is_reclaimable(&volume, claim.as_deref())
                && let Some((root, found_at)) = directories.filter(|_| directory::is_ours(&volume))
            {
                directory::remove(&root, &found_at, &volume).await?;
                return Ok(vec![Action::delete(volume.as_ref())]);
            }
            Ok(plan_volume(&volume, claim.as_deref()))
        }
    })
}

fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

fn class_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}

fn refers_to(reference: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    reference.name == claim.metadata.name
        && reference.namespace == claim.metadata.namespace
        && reference.uid.as_ref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_ref())
}

fn size(volume: &PersistentVolume) -> i128 {
    quantity::of(volume.spec.as_ref().and_then(|s| s.capacity.as_ref()), "storage")
}

/// Whether a free volume would do for the claim.
fn fits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(offer), Some(wish)) = (&volume.spec, &claim.spec) else { return false };
    let class = |name: Option<&String>| name.cloned().unwrap_or_default();
    let modes = |m: &Option<Vec<String>>| m.clone().unwrap_or_default();
    let mode = |m: &Option<String>| m.clone().unwrap_or_else(|| "Filesystem".into());
    let requested = quantity::of(wish.resources.as_ref().and_then(|r| r.requests.as_ref()), "storage");
    offer.claim_ref.as_ref().is_none_or(|r| refers_to(r, claim))
        && volume.metadata.deletion_timestamp.is_none()
        && class(offer.storage_class_name.as_ref()) == class(wish.storage_class_name.as_ref())
        && mode(&offer.volume_mode) == mode(&wish.volume_mode)
        && modes(&wish.access_modes).iter().all(|m| modes(&offer.access_modes).contains(m))
        && size(volume) >= requested
        && wish.selector.as_ref().is_none_or(|s| selector::matches(s, volume.metadata.labels.as_ref()))
}

/// Binds the claim to the volume it names or the smallest that fits, or has one made.
fn plan_claim(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    class: Option<&StorageClass>,
    root: Option<&PathBuf>,
) -> Vec<Action> {
    let annotations = claim.metadata.annotations.as_ref();
    if annotations.is_some_and(|a| a.contains_key(BIND_COMPLETED)) {
        return plan_bound(claim, volumes);
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    if let Some(name) = volume_name(claim) {
        let named = volumes.iter().find(|v| v.metadata.name.as_deref() == Some(name));
        return match named {
            Some(volume) if volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref()).is_none_or(|r| refers_to(r, claim)) => {
                bind(claim, volume)
            }
            _ => pending(claim),
        };
    }
    let prebound = |v: &PersistentVolume| v.spec.as_ref().is_some_and(|s| s.claim_ref.is_some());
    let fitting = volumes.iter().filter(|v| fits(v, claim));
    if let Some(volume) = fitting.min_by_key(|v| (!prebound(v), size(v), v.metadata.name.clone())) {
        return bind(claim, volume);
    }
    let mut actions = pending(claim);
    let Some(class) = class else { return actions };
    let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    if waits && !annotations.is_some_and(|a| a.contains_key(SELECTED_NODE)) && class.provisioner != PROVISIONER {
        actions.push(Action::note(claim, "WaitForFirstConsumer", "waiting for first consumer to be created before binding"));
        return actions;
    }
    match root {
        Some(root) if class.provisioner == PROVISIONER => actions.push(directory::provision(root, claim, class)),
        _ if annotations.and_then(|a| a.get(STORAGE_PROVISIONER)) != Some(&class.provisioner) => {
            let mut asking = claim.clone();
            asking.metadata.annotations.get_or_insert_default().insert(STORAGE_PROVISIONER.into(), class.provisioner.clone());
            actions.push(Action::update(&asking));
        }
        _ => {}
    }
    actions
}

fn pending(claim: &PersistentVolumeClaim) -> Vec<Action> {
    if claim.status.as_ref().is_some_and(|s| s.phase.is_some()) {
        return Vec::new();
    }
    let status = PersistentVolumeClaimStatus { phase: Some("Pending".into()), ..PersistentVolumeClaimStatus::default() };
    vec![Action::update_sub(&PersistentVolumeClaim { status: Some(status), ..claim.clone() }, "status")]
}

/// The claim as a volume refers to it.
pub(super) fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference { resource_version: claim.metadata.resource_version.clone(), ..claim.object_ref(&()) }
}

/// The volume gets its `claimRef` first: of two claims that want it the API server lets one write through.
fn bind(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Vec<Action> {
    let complete = |r: &ObjectReference| r.uid == claim.metadata.uid;
    if !volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref()).is_some_and(complete) {
        let mut taken = volume.clone();
        let ours = taken.spec.as_ref().is_some_and(|s| s.claim_ref.is_none());
        if ours {
            taken.metadata.annotations.get_or_insert_default().insert(BOUND_BY_CONTROLLER.into(), "yes".into());
        }
        if let Some(spec) = &mut taken.spec {
            spec.claim_ref = Some(reference(claim));
        }
        // The claim follows when the volume's change shows.
        return vec![Action::update(&taken)];
    }
    let mut bound = claim.clone();
    let annotations = bound.metadata.annotations.get_or_insert_default();
    annotations.insert(BIND_COMPLETED.into(), "yes".into());
    if volume_name(claim).is_none() {
        annotations.insert(BOUND_BY_CONTROLLER.into(), "yes".into());
    }
    if let Some(spec) = &mut bound.spec {
        spec.volume_name = volume.metadata.name.clone();
    }
    vec![Action::update(&bound)]
}

/// Status of a claim that is bound, or has lost its volume.
fn plan_bound(claim: &PersistentVolumeClaim, volumes: &[Arc<PersistentVolume>]) -> Vec<Action> {
    let volume = volumes.iter().find(|v| v.metadata.name.as_deref() == volume_name(claim));
    let mine = volume.filter(|v| v.spec.as_ref().and_then(|s| s.claim_ref.as_ref()).is_some_and(|r| refers_to(r, claim)));
    let mut status = claim.status.clone().unwrap_or_default();
    match mine {
        None => status.phase = Some("Lost".into()),
        Some(volume) => {
            status.phase = Some("Bound".into());
            status.access_modes = volume.spec.as_ref().and_then(|s| s.access_modes.clone());
            if status.capacity.is_none() {
                status.capacity = volume.spec.as_ref().and_then(|s| s.capacity.clone());
            }
        }
    }
    if claim.status.as_ref() == Some(&status) {
        return Vec::new();
    }
    vec![Action::update_sub(&PersistentVolumeClaim { status: Some(status), ..claim.clone() }, "status")]
}

/// Whether the claim that the volume was bound to is gone.
fn is_released(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> bool {
    let reference = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    reference
        .is_some_and(|r| r.uid.as_ref().is_some_and(|uid| !uid.is_empty()) && !claim.is_some_and(|claim| refers_to(r, claim)))
}

fn is_reclaimable(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> bool {
    let policy = volume.spec.as_ref().and_then(|s| s.persistent_volume_reclaim_policy.as_deref());
    is_released(volume, claim) && policy == Some("Delete") && volume.metadata.deletion_timestamp.is_none()
}

/// Phase of a volume.
fn plan_volume(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> Vec<Action> {
    let reference = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    let phase = if is_released(volume, claim) {
        "Released"
    } else if reference
        .is_some_and(|r| claim.is_some_and(|c| r.uid == c.metadata.uid && volume_name(c) == volume.metadata.name.as_deref()))
    {
        "Bound"
    } else {
        "Available"
    };
    let known = volume.status.as_ref().and_then(|s| s.phase.as_deref());
    if known == Some(phase) || (phase == "Available" && known == Some("Bound")) {
        return Vec::new();
    }
    let status = PersistentVolumeStatus { phase: Some(phase.into()), ..volume.status.clone().unwrap_or_default() };
    vec![Action::update_sub(&PersistentVolume { status: Some(status), ..volume.clone() }, "status")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Write;
    use serde_json::{Value, from_value, json};

    fn volume(name: &str, storage: &str, reference: Value) -> Arc<PersistentVolume> {
        Arc::new(
            from_value(
                json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "s", "claimRef": reference}}),
            )
            .unwrap(),
        )
    }

    fn claim(annotations: Value, volume: Option<&str>) -> PersistentVolumeClaim {
        from_value(json!({"metadata": {"name": "c", "namespace": "a", "uid": "u", "annotations": annotations}, "status": {"phase": "Pending"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "s", "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}}))
        .unwrap()
    }

    fn write(actions: Vec<Action>) -> (String, Value) {
        let Some(Action::Write(Write { path, body, .. })) = actions.into_iter().next() else { panic!() };
        (path, body)
    }

    #[test]
    fn the_smallest_fitting_volume_is_taken_then_the_claim_follows() {
        let volumes =
            [volume("small", "512Mi", Value::Null), volume("big", "5Gi", Value::Null), volume("right", "2Gi", Value::Null)];
        let (path, body) = write(plan_claim(&claim(json!({}), None), &volumes, None, None));
        assert_eq!((path.as_str(), &body["spec"]["claimRef"]["uid"]), ("/api/v1/persistentvolumes/right", &json!("u")));
        let taken = [volume("right", "2Gi", json!({"name": "c", "namespace": "a", "uid": "u"}))];
        let (_, body) = write(plan_claim(&claim(json!({}), None), &taken, None, None));
        assert_eq!(
            (&body["spec"]["volumeName"], &body["metadata"]["annotations"][BIND_COMPLETED]),
            (&json!("right"), &json!("yes"))
        );
        let (path, body) = write(plan_claim(&claim(json!({BIND_COMPLETED: "yes"}), Some("right")), &taken, None, None));
        assert_eq!((path.ends_with("/status"), &body["status"]["phase"]), (true, &json!("Bound")));
    }

    #[test]
    fn phases_follow_the_claim() {
        let taken = volume("v", "2Gi", json!({"name": "c", "namespace": "a", "uid": "u"}));
        let phase = |c: Option<&PersistentVolumeClaim>| write(plan_volume(&taken, c)).1["status"]["phase"].clone();
        assert_eq!((phase(Some(&claim(json!({}), Some("v")))), phase(None)), (json!("Bound"), json!("Released")));
    }
}
