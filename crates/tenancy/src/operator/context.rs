//! What reconciles share: the client, the choice of user ids, clients of tenants.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use kube::api::ListParams;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::OperatorOptions;
use super::inside::{self, Changed, Watch};
use crate::names::{self, Names};
use crate::spec::TenantControlPlane;
use crate::{Error, secrets, tenant_client};

#[derive(Default)]
struct Memory {
    /// Failures in a row, by uid.
    failures: HashMap<String, u32>,
    /// Clients of tenants by uid.
    clients: HashMap<String, Known>,
    /// Which addons were applied last, by uid, and when.
    addons: HashMap<String, (String, std::time::Instant)>,
}

/// A tenant's API as it was reached last.
struct Known {
    /// Of the kubeconfig and the address that the client was made from.
    checksum: String,
    client: Client,
    watch: Option<Watch>,
}

pub(super) struct Context {
    pub(super) client: Client,
    pub(super) options: OperatorOptions,
    pub(super) recorder: Recorder,
    memory: Mutex<Memory>,
    changed: Changed,
    /// Held while a user id is chosen and written down.
    choosing: tokio::sync::Mutex<()>,
}

impl Context {
    /// `changed` is told of tenants inside which something was changed.
    pub(super) fn new(options: OperatorOptions, client: Client, changed: Changed) -> Context {
        let recorder = Recorder::new(client.clone(), Reporter { controller: names::FIELD_MANAGER.into(), instance: None });
        Context { client, options, recorder, memory: Mutex::default(), changed, choosing: tokio::sync::Mutex::new(()) }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count_failure(&self, tenant: &TenantControlPlane) -> u32 {
        let mut memory = self.memory();
        let failures = memory.failures.entry(tenant.uid().unwrap_or_default()).or_default();
        *failures += 1;
        *failures - 1
    }

    pub(super) fn forget_failures(&self, tenant: &TenantControlPlane) {
        self.memory().failures.remove(&tenant.uid().unwrap_or_default());
    }

    /// Drops all that is remembered of a deleted tenant.
    pub(super) fn forget(&self, tenant: &TenantControlPlane) {
        let uid = tenant.uid().unwrap_or_default();
        let mut memory = self.memory();
        memory.failures.remove(&uid);
        memory.clients.remove(&uid);
        memory.addons.remove(&uid);
    }

    /// Whether addons with this checksum were applied within the resync period.
    pub(super) fn addons_are_current(&self, tenant: &TenantControlPlane, checksum: &str) -> bool {
        let memory = self.memory();
        memory
            .addons
            .get(&tenant.uid().unwrap_or_default())
            .is_some_and(|(sum, at)| sum == checksum && at.elapsed() < crate::limits::RESYNC)
    }

    /// Another hand was at a tenant's addons: they are applied anew at the look that follows.
    pub(super) fn forget_addons(&self, tenant: &ObjectRef<TenantControlPlane>) {
        if let Some(uid) = &tenant.extra.uid {
            self.memory().addons.remove(uid);
        }
        let _ = self.changed.unbounded_send(tenant.clone());
    }

    /// Another hand may be at a paused tenant's addons.
    pub(super) fn pause(&self, tenant: &TenantControlPlane) {
        self.memory().addons.remove(&tenant.uid().unwrap_or_default());
    }

    /// Watches the tunnel agent inside a tenant that answers, if it has one.
    pub(super) fn watch(self: &Arc<Self>, tenant: &TenantControlPlane) {
        let mode = tenant.spec.addons.konnectivity.as_ref().map(|k| k.agent.mode.as_str());
        let mut memory = self.memory();
        let Some(known) = memory.clients.get_mut(&tenant.uid().unwrap_or_default()) else { return };
        if known.watch.as_ref().map(|w| w.mode.as_str()) != mode {
            known.watch = mode.map(|mode| inside::watch_agent(self, tenant, known.client.clone(), mode));
        }
    }

    /// A tenant that does not run is not watched.
    pub(super) fn unwatch(&self, tenant: &TenantControlPlane) {
        if let Some(known) = self.memory().clients.get_mut(&tenant.uid().unwrap_or_default()) {
            known.watch = None;
        }
    }

    pub(super) fn addons_applied(&self, tenant: &TenantControlPlane, checksum: String) {
        self.memory().addons.insert(tenant.uid().unwrap_or_default(), (checksum, std::time::Instant::now()));
    }

    /// A client of the tenant's API; the same one as long as its kubeconfig and address stay.
    pub(super) async fn tenant_client(
        &self,
        tenant: &TenantControlPlane,
        names: &Names,
        existing: &secrets::Existing,
        service: &Service,
    ) -> Result<Client, Error> {
        let kubeconfig = secrets::require(existing, &names.admin_kubeconfig(), "super-admin.svc")?;
        let address = service.spec.as_ref().and_then(|s| s.cluster_ip.clone()).unwrap_or_default();
        let checksum = secrets::checksum(&[(address, kubeconfig.clone())]);
        let uid = tenant.uid().unwrap_or_default();
        if let Some(known) = self.memory().clients.get(&uid)
            && known.checksum == checksum
        {
            return Ok(known.client.clone());
        }
        let port = tenant.spec.network_profile.port;
        let client = tenant_client::tenant_client(names, &kubeconfig, service, port).await?;
        self.memory().clients.insert(uid, Known { checksum, client: client.clone(), watch: None });
        Ok(client)
    }

    /// The tenant's user id, chosen and written down with the finalizer if it has none yet. An id is free only when no tenant
    /// and no data volume claim has it: a tenant keeps its finalizer until its data is gone.
    pub(super) async fn claim(&self, tenant: &TenantControlPlane) -> Result<i64, Error> {
        let has_finalizer = tenant.finalizers().iter().any(|f| f == names::FINALIZER);
        let known = tenant.annotations().get(names::USER_ID).and_then(|v| v.parse().ok());
        if let (Some(id), true) = (known, has_finalizer) {
            return Ok(id);
        }
        let _turn = self.choosing.lock().await;
        let id = match known {
            Some(id) => id,
            None => self.free_user_id().await?,
        };
        let mut finalizers = tenant.finalizers().to_vec();
        if !has_finalizer {
            finalizers.push(names::FINALIZER.to_owned());
        }
        let patch = json!({ "metadata": {
            "annotations": { names::USER_ID: id.to_string() },
            "finalizers": finalizers,
            "resourceVersion": tenant.resource_version(),
        } });
        let api: Api<TenantControlPlane> = Api::namespaced(self.client.clone(), &tenant.namespace().unwrap_or_default());
        api.patch(&tenant.name_any(), &Default::default(), &kube::api::Patch::Merge(&patch))
            .await
            .map_err(Error::api("claim the tenant"))?;
        Ok(id)
    }

    async fn free_user_id(&self) -> Result<i64, Error> {
        let parse = |annotations: &std::collections::BTreeMap<String, String>, key: &str| {
            annotations.get(key).and_then(|v| v.parse::<i64>().ok())
        };
        let tenants: Api<TenantControlPlane> = Api::all(self.client.clone());
        let claims: Api<PersistentVolumeClaim> = Api::all(self.client.clone());
        let labelled = ListParams::default().labels(&format!("{}=kamaji", names::LABEL_PROJECT));
        let mut used: BTreeSet<i64> = BTreeSet::new();
        let listed = tenants.list(&ListParams::default()).await.map_err(Error::api("list tenants"))?;
        used.extend(listed.iter().filter_map(|t| parse(t.annotations(), names::USER_ID)));
        let listed = claims.list(&labelled).await.map_err(Error::api("list data claims"))?;
        used.extend(listed.iter().filter_map(|c| parse(c.annotations(), names::OWNER_UID)));
        let mut ids = self.options.user_ids.clone();
        ids.find(|id| !used.contains(id)).ok_or_else(|| {
            Error::Tenant(
                "tenants".to_owned(),
                format!("all user ids of {:?} are in use: widen the range", self.options.user_ids),
            )
        })
    }
}
