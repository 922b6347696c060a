//! Volumes that are directories: the provisioner `atoll.dev/directory`.

use super::binder::{PROVISIONED_BY, reference};
use crate::action::Action;
use crate::error::{Error, Result};
use k8s_openapi::api::core::v1::{HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::path::Path;

/// Name of the provisioner in a StorageClass.
pub const PROVISIONER: &str = "atoll.dev/directory";
/// On a claim and then on its volume: the user id that owns the directory. Whoever mounts it there makes it so.
pub const OWNER_UID: &str = "atoll.dev/owner-uid";

/// A volume for the claim. The directory is made where it is first mounted (`DirectoryOrCreate`), which may be elsewhere.
pub(super) fn provision(root: &Path, claim: &PersistentVolumeClaim, class: &StorageClass) -> Action {
    let name = format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default());
    let spec = claim.spec.clone().unwrap_or_default();
    let owner = claim.metadata.annotations.as_ref().and_then(|a| a.get(OWNER_UID));
    let mut annotations: std::collections::BTreeMap<String, String> = [(PROVISIONED_BY.into(), PROVISIONER.into())].into();
    annotations.extend(owner.map(|uid| (OWNER_UID.to_owned(), uid.clone())));
    Action::create(&PersistentVolume {
        metadata: ObjectMeta { name: Some(name.clone()), annotations: Some(annotations), ..ObjectMeta::default() },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: spec.resources.and_then(|r| r.requests),
            claim_ref: Some(reference(claim)),
            host_path: Some(HostPathVolumeSource {
                path: root.join(&name).to_string_lossy().into_owned(),
                type_: Some("DirectoryOrCreate".into()),
            }),
            mount_options: class.mount_options.clone(),
            persistent_volume_reclaim_policy: Some(class.reclaim_policy.clone().unwrap_or_else(|| "Delete".into())),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: spec.volume_mode,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    })
}

/// Whether this provisioner made the volume.
pub(super) fn is_ours(volume: &PersistentVolume) -> bool {
    volume.metadata.annotations.as_ref().and_then(|a| a.get(PROVISIONED_BY)).is_some_and(|by| by == PROVISIONER)
}

/// Removes the directory with all that is in it. Only a directory right below the root, named like its volume, is touched:
/// whoever may write PersistentVolumes must not be able to name others.
/// `found_at` is where the nodes' `root` lies on this machine.
pub(super) async fn remove(root: &Path, found_at: &Path, volume: &PersistentVolume) -> Result<()> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let named = volume.spec.as_ref().and_then(|s| s.host_path.as_ref()).map(|h| h.path.as_str());
    if name.is_empty() || name.contains('/') || named != root.join(name).to_str() {
        return Err(Error::Unfinished(format!("volume {name} is not a directory of this provisioner")));
    }
    let expected = found_at.join(name);
    match tokio::fs::remove_dir_all(&expected).await {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Directory { path: expected.to_string_lossy().into_owned(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn volume(name: &str, path: &Path) -> PersistentVolume {
        from_value(json!({"metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}}, "spec": {"hostPath": {"path": path}}})).unwrap()
    }

    #[tokio::test]
    async fn removes_its_own_directory_and_no_other() {
        let root = std::env::temp_dir().join(format!("atoll-volumes-{}", std::process::id()));
        std::fs::create_dir_all(root.join("pvc-1/data")).unwrap();
        std::fs::create_dir_all(root.join("other")).unwrap();
        assert!(remove(&root, &root, &volume("pvc-1", &root.join("other"))).await.is_err());
        assert!(root.join("other").exists());
        remove(&root, &root, &volume("pvc-1", &root.join("pvc-1"))).await.unwrap();
        remove(&root, &root, &volume("pvc-1", &root.join("pvc-1"))).await.unwrap();
        assert!(!root.join("pvc-1").exists());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
