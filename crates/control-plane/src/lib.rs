//! The process of one cluster: store, API server and, later, everything else that speaks the Kubernetes API, put together.
//!
//! Owns the directory of a control plane: its keys and certificates under `pki/`, its data, `admin.kubeconfig`. What is missing
//! is made on the first start; what is there is used.
//!
//! Invariants: the directory belongs to one process at a time (the store's lock); components get the API through the in-process
//! service of their own identity, never through a socket and never around RBAC.
//!
//! It deliberately does not know tenants, nodes or how it is supervised.

mod components;
mod error;
mod files;
mod run;
mod tunnel;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

pub use components::{ComponentContext, FurtherComponent};
pub use error::{Error, Result};
pub use files::Files;
pub use run::ControlPlane;

/// Parts of a control plane that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    Scheduler,
    Controllers,
}

impl std::str::FromStr for Component {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "scheduler" => Ok(Component::Scheduler),
            "controllers" => Ok(Component::Controllers),
            other => Err(format!("there is no component {other:?}; there are: scheduler, controllers")),
        }
    }
}

/// How a control plane is to run.
#[derive(Clone, Debug)]
pub struct ControlPlaneOptions {
    /// Keys, certificates, data and the admin's kubeconfig.
    pub dir: PathBuf,
    pub listen: SocketAddr,
    /// Further names and addresses of the serving certificate.
    pub names: Vec<String>,
    /// Address under which clients reach it, where that is not `listen`'s.
    pub advertise: Option<IpAddr>,
    /// Components that are not started.
    pub without: Vec<Component>,
    /// Range of the cluster addresses of Services.
    pub service_cidr: String,
    /// Directory with keys and certificates that somebody else made and renews (a tenancy operator); `None`: `dir/pki`, made and
    /// renewed here.
    pub pki: Option<PathBuf>,
    /// Port under which clients reach it, where that is not `listen`'s.
    pub advertise_port: Option<u16>,
    /// Where tunnel agents connect; the cluster is then reached through them and in no other way.
    pub tunnel_listen: Option<SocketAddr>,
    pub cluster_domain: String,
    /// `iss` of service-account tokens; kubeadm and Kamaji write `https://kubernetes.default.svc.cluster.local`.
    pub service_account_issuer: String,
    /// Admission plugins by upstream's names; `None`: those that are on by default.
    pub admission_plugins: Option<Vec<String>>,
    /// Controllers by name, `*` for all; empty means `*`.
    pub controllers: Vec<String>,
    /// Root, as nodes see it, of directory volumes, and where it lies on this machine.
    pub volume_root: Option<PathBuf>,
    pub volumes_found_at: Option<PathBuf>,
}

impl ControlPlaneOptions {
    /// A control plane in `dir` that listens on `listen`, with Kubernetes' usual ranges.
    pub fn new(dir: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        ControlPlaneOptions {
            dir: dir.into(),
            listen,
            names: Vec::new(),
            advertise: None,
            without: Vec::new(),
            service_cidr: "10.96.0.0/12".to_owned(),
            pki: None,
            advertise_port: None,
            tunnel_listen: None,
            cluster_domain: "cluster.local".to_owned(),
            service_account_issuer: "https://kubernetes.default.svc".to_owned(),
            admission_plugins: None,
            controllers: Vec::new(),
            volume_root: None,
            volumes_found_at: None,
        }
    }
}
