//! The kinds that controllers cache, and what they keep of them.

use crate::informer::Cached;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
    ResourceQuota, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::storage::v1::StorageClass;

macro_rules! whole {
    ($($kind:ty),* $(,)?) => { $(impl Cached for $kind {})* };
}

whole!(
    ConfigMap,
    ControllerRevision,
    CronJob,
    DaemonSet,
    Deployment,
    Endpoints,
    EndpointSlice,
    CertificateSigningRequest,
    ClusterRole,
    HorizontalPodAutoscaler,
    Job,
    Lease,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    ResourceQuota,
    Secret,
    Service,
    ServiceAccount,
    StatefulSet,
    StorageClass,
);

/// Pods are never written back whole: what containers run is dropped, what they request and listen on is kept.
impl Cached for Pod {
    fn slim(&mut self) {
        self.metadata.managed_fields = None;
        let Some(spec) = &mut self.spec else { return };
        let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
        for container in containers {
            slim_container(container);
        }
        for volume in spec.volumes.iter_mut().flatten() {
            volume.projected = None;
            volume.config_map = None;
            volume.secret = None;
            volume.downward_api = None;
        }
    }
}

fn slim_container(container: &mut Container) {
    *container = Container {
        name: std::mem::take(&mut container.name),
        image: container.image.take(),
        ports: container.ports.take(),
        resources: container.resources.take(),
        restart_policy: container.restart_policy.take(),
        ..Container::default()
    };
}

/// Nodes are never written back whole either.
impl Cached for Node {
    fn slim(&mut self) {
        self.metadata.managed_fields = None;
        if let Some(status) = &mut self.status {
            status.images = None;
            status.volumes_in_use = None;
        }
    }
}
