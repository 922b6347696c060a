//! Kamaji's names of what belongs to a tenant, its labels and annotations.

/// Group and version of Kamaji's kinds.
pub const API_VERSION: &str = "kamaji.clastix.io/v1alpha1";
/// The operator's field manager.
pub const FIELD_MANAGER: &str = "atoll-operator";

pub const FINALIZER: &str = "finalizer.kamaji.clastix.io";
pub const PAUSED: &str = "kamaji.clastix.io/paused";
pub const CHECKSUM: &str = "kamaji.clastix.io/checksum";
pub const ROTATE: &str = "certs.kamaji.clastix.io/rotate";
pub const LABEL_NAME: &str = "kamaji.clastix.io/name";
pub const LABEL_PROJECT: &str = "kamaji.clastix.io/project";
pub const LABEL_COMPONENT: &str = "kamaji.clastix.io/component";
/// The user id that a tenant's process and data have (Atoll's own).
pub const USER_ID: &str = "atoll.dev/user-id";

/// On a data claim: the user id that owns its directory (the directory provisioner's annotation).
pub const OWNER_UID: &str = "atoll.dev/owner-uid";

/// Names derived from one TenantControlPlane.
#[derive(Clone, Debug)]
pub struct Names {
    pub tenant: String,
    pub namespace: String,
}

impl Names {
    pub fn new(namespace: &str, tenant: &str) -> Names {
        Names { tenant: tenant.to_owned(), namespace: namespace.to_owned() }
    }

    fn with(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.tenant)
    }

    pub fn ca(&self) -> String {
        self.with("ca")
    }
    pub fn front_proxy_ca(&self) -> String {
        self.with("front-proxy-ca-certificate")
    }
    pub fn service_account(&self) -> String {
        self.with("sa-certificate")
    }
    pub fn api_server(&self) -> String {
        self.with("api-server-certificate")
    }
    pub fn kubelet_client(&self) -> String {
        self.with("api-server-kubelet-client-certificate")
    }
    pub fn front_proxy_client(&self) -> String {
        self.with("front-proxy-client-certificate")
    }
    pub fn admin_kubeconfig(&self) -> String {
        self.with("admin-kubeconfig")
    }
    pub fn controller_manager_kubeconfig(&self) -> String {
        self.with("controller-manager-kubeconfig")
    }
    pub fn scheduler_kubeconfig(&self) -> String {
        self.with("scheduler-kubeconfig")
    }
    pub fn konnectivity(&self) -> String {
        self.with("konnectivity-certificate")
    }
    pub fn data_claim(&self) -> String {
        self.with("data")
    }
    /// The name under which the API server is reached inside the management cluster.
    pub fn service_host(&self) -> String {
        format!("{}.{}.svc", self.tenant, self.namespace)
    }

    /// Every Secret that the operator makes for a tenant.
    pub fn secrets(&self) -> Vec<String> {
        vec![
            self.ca(),
            self.front_proxy_ca(),
            self.service_account(),
            self.api_server(),
            self.kubelet_client(),
            self.front_proxy_client(),
            self.konnectivity(),
            self.admin_kubeconfig(),
            self.controller_manager_kubeconfig(),
            self.scheduler_kubeconfig(),
        ]
    }
}
