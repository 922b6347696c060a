//! A tenant's control plane as this machine has it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use kube::Api;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};

use super::processes::{self, Process};
use super::{Lab, Tenant};
use crate::platform::cluster;

/// Path of the data file in a tenant's volume.
pub const DATA: &str = "data/data.redb";

/// Process and data.
pub struct Plane {
    pub process: Process,
    pub data_file: PathBuf,
    /// Its volume's directory.
    pub volume: PathBuf,
}

impl Plane {
    pub async fn of(lab: &Lab, tenant: &Tenant) -> Result<Plane, String> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kamaji.clastix.io", "v1alpha1", "TenantControlPlane"));
        let api: Api<DynamicObject> = Api::namespaced_with(lab.management.clone(), cluster::TENANTS, &resource);
        let object = api.get(&tenant.name).await.map_err(|e| e.to_string())?;
        let id = object.metadata.annotations.as_ref().and_then(|a| a.get("atoll.dev/user-id")?.parse::<u32>().ok());
        let id = id.ok_or_else(|| format!("{} names no user id", tenant.name))?;
        let of_user = processes::all().into_iter().find(|p| p.user == id && p.runs(&["control-plane"]));
        let process = of_user.ok_or_else(|| format!("user {id} has no control plane"))?;
        let volumes = lab.dirs.node().join("volumes");
        let entries = fs::read_dir(&volumes).map_err(|e| format!("{}: {e}", volumes.display()))?;
        let volume = entries.flatten().find(|e| e.metadata().is_ok_and(|m| m.uid() == id)).map(|e| e.path());
        let volume = volume.ok_or_else(|| format!("user {id} has no volume"))?;
        let volume = volume.canonicalize().map_err(|e| e.to_string())?;
        Ok(Plane { process, data_file: volume.join(DATA), volume })
    }
}
