//! Defaults that are one value of one field of one type.

use serde_json::Value;

use super::Object;
use crate::table::Node;

const API: &str = "io.k8s.api.";

/// Type below [`API`] (or whole), field, JSON value. Sorted by type.
const ROWS: &[(&str, &str, &str)] = &[
    ("admissionregistration.v1.MatchResources", "matchPolicy", "\"Equivalent\""),
    ("admissionregistration.v1.MatchResources", "namespaceSelector", "{}"),
    ("admissionregistration.v1.MatchResources", "objectSelector", "{}"),
    ("admissionregistration.v1.MutatingAdmissionPolicySpec", "failurePolicy", "\"Fail\""),
    ("admissionregistration.v1.MutatingWebhook", "failurePolicy", "\"Fail\""),
    ("admissionregistration.v1.MutatingWebhook", "matchPolicy", "\"Equivalent\""),
    ("admissionregistration.v1.MutatingWebhook", "namespaceSelector", "{}"),
    ("admissionregistration.v1.MutatingWebhook", "objectSelector", "{}"),
    ("admissionregistration.v1.MutatingWebhook", "reinvocationPolicy", "\"Never\""),
    ("admissionregistration.v1.MutatingWebhook", "timeoutSeconds", "10"),
    ("admissionregistration.v1.NamedRuleWithOperations", "scope", "\"*\""),
    ("admissionregistration.v1.RuleWithOperations", "scope", "\"*\""),
    ("admissionregistration.v1.ServiceReference", "port", "443"),
    ("admissionregistration.v1.ValidatingAdmissionPolicySpec", "failurePolicy", "\"Fail\""),
    ("admissionregistration.v1.ValidatingWebhook", "failurePolicy", "\"Fail\""),
    ("admissionregistration.v1.ValidatingWebhook", "matchPolicy", "\"Equivalent\""),
    ("admissionregistration.v1.ValidatingWebhook", "namespaceSelector", "{}"),
    ("admissionregistration.v1.ValidatingWebhook", "objectSelector", "{}"),
    ("admissionregistration.v1.ValidatingWebhook", "timeoutSeconds", "10"),
    ("apps.v1.DaemonSetSpec", "revisionHistoryLimit", "10"),
    ("apps.v1.DeploymentSpec", "progressDeadlineSeconds", "600"),
    ("apps.v1.DeploymentSpec", "replicas", "1"),
    ("apps.v1.DeploymentSpec", "revisionHistoryLimit", "10"),
    ("apps.v1.ReplicaSetSpec", "replicas", "1"),
    ("apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy", "whenDeleted", "\"Retain\""),
    ("apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy", "whenScaled", "\"Retain\""),
    ("apps.v1.StatefulSetSpec", "persistentVolumeClaimRetentionPolicy", "{}"),
    ("apps.v1.StatefulSetSpec", "podManagementPolicy", "\"OrderedReady\""),
    ("apps.v1.StatefulSetSpec", "replicas", "1"),
    ("apps.v1.StatefulSetSpec", "revisionHistoryLimit", "10"),
    ("authentication.v1.TokenRequestSpec", "expirationSeconds", "3600"),
    ("autoscaling.v1.HorizontalPodAutoscalerSpec", "minReplicas", "1"),
    ("autoscaling.v2.HorizontalPodAutoscalerSpec", "minReplicas", "1"),
    ("batch.v1.CronJobSpec", "concurrencyPolicy", "\"Allow\""),
    ("batch.v1.CronJobSpec", "failedJobsHistoryLimit", "1"),
    ("batch.v1.CronJobSpec", "successfulJobsHistoryLimit", "3"),
    ("batch.v1.CronJobSpec", "suspend", "false"),
    ("batch.v1.PodFailurePolicyOnPodConditionsPattern", "status", "\"True\""),
    ("core.v1.AzureDiskVolumeSource", "cachingMode", "\"ReadWrite\""),
    ("core.v1.AzureDiskVolumeSource", "fsType", "\"ext4\""),
    ("core.v1.AzureDiskVolumeSource", "kind", "\"Shared\""),
    ("core.v1.AzureDiskVolumeSource", "readOnly", "false"),
    ("core.v1.ConfigMapVolumeSource", "defaultMode", "420"),
    ("core.v1.Container", "terminationMessagePath", "\"/dev/termination-log\""),
    ("core.v1.Container", "terminationMessagePolicy", "\"File\""),
    ("core.v1.ContainerPort", "protocol", "\"TCP\""),
    ("core.v1.DownwardAPIVolumeSource", "defaultMode", "420"),
    ("core.v1.EndpointPort", "protocol", "\"TCP\""),
    ("core.v1.EphemeralContainer", "terminationMessagePath", "\"/dev/termination-log\""),
    ("core.v1.EphemeralContainer", "terminationMessagePolicy", "\"File\""),
    ("core.v1.FileKeySelector", "optional", "false"),
    ("core.v1.GRPCAction", "service", "\"\""),
    ("core.v1.HTTPGetAction", "path", "\"/\""),
    ("core.v1.HTTPGetAction", "scheme", "\"HTTP\""),
    ("core.v1.HostPathVolumeSource", "type", "\"\""),
    ("core.v1.ISCSIPersistentVolumeSource", "iscsiInterface", "\"default\""),
    ("core.v1.ISCSIVolumeSource", "iscsiInterface", "\"default\""),
    ("core.v1.NamespaceStatus", "phase", "\"Active\""),
    ("core.v1.ObjectFieldSelector", "apiVersion", "\"v1\""),
    ("core.v1.PersistentVolumeClaimSpec", "volumeMode", "\"Filesystem\""),
    ("core.v1.PersistentVolumeClaimStatus", "phase", "\"Pending\""),
    ("core.v1.PersistentVolumeSpec", "persistentVolumeReclaimPolicy", "\"Retain\""),
    ("core.v1.PersistentVolumeSpec", "volumeMode", "\"Filesystem\""),
    ("core.v1.PersistentVolumeStatus", "phase", "\"Pending\""),
    ("core.v1.PodSpec", "dnsPolicy", "\"ClusterFirst\""),
    ("core.v1.PodSpec", "restartPolicy", "\"Always\""),
    ("core.v1.PodSpec", "schedulerName", "\"default-scheduler\""),
    ("core.v1.PodSpec", "securityContext", "{}"),
    ("core.v1.PodSpec", "terminationGracePeriodSeconds", "30"),
    ("core.v1.Probe", "failureThreshold", "3"),
    ("core.v1.Probe", "periodSeconds", "10"),
    ("core.v1.Probe", "successThreshold", "1"),
    ("core.v1.Probe", "timeoutSeconds", "1"),
    ("core.v1.ProjectedVolumeSource", "defaultMode", "420"),
    ("core.v1.RBDPersistentVolumeSource", "keyring", "\"/etc/ceph/keyring\""),
    ("core.v1.RBDPersistentVolumeSource", "pool", "\"rbd\""),
    ("core.v1.RBDPersistentVolumeSource", "user", "\"admin\""),
    ("core.v1.RBDVolumeSource", "keyring", "\"/etc/ceph/keyring\""),
    ("core.v1.RBDVolumeSource", "pool", "\"rbd\""),
    ("core.v1.RBDVolumeSource", "user", "\"admin\""),
    ("core.v1.ReplicationControllerSpec", "replicas", "1"),
    ("core.v1.ScaleIOPersistentVolumeSource", "fsType", "\"xfs\""),
    ("core.v1.ScaleIOPersistentVolumeSource", "storageMode", "\"ThinProvisioned\""),
    ("core.v1.ScaleIOVolumeSource", "fsType", "\"xfs\""),
    ("core.v1.ScaleIOVolumeSource", "storageMode", "\"ThinProvisioned\""),
    ("core.v1.Secret", "type", "\"Opaque\""),
    ("core.v1.SecretVolumeSource", "defaultMode", "420"),
    ("core.v1.ServiceAccountTokenProjection", "expirationSeconds", "3600"),
    ("core.v1.ServicePort", "protocol", "\"TCP\""),
    ("core.v1.ServiceSpec", "sessionAffinity", "\"None\""),
    ("core.v1.ServiceSpec", "type", "\"ClusterIP\""),
    ("discovery.v1.EndpointPort", "name", "\"\""),
    ("discovery.v1.EndpointPort", "protocol", "\"TCP\""),
    ("flowcontrol.v1.ExemptPriorityLevelConfiguration", "lendablePercent", "0"),
    ("flowcontrol.v1.ExemptPriorityLevelConfiguration", "nominalConcurrencyShares", "0"),
    ("flowcontrol.v1.FlowSchemaSpec", "matchingPrecedence", "1000"),
    ("flowcontrol.v1.LimitedPriorityLevelConfiguration", "lendablePercent", "0"),
    ("flowcontrol.v1.LimitedPriorityLevelConfiguration", "nominalConcurrencyShares", "30"),
    ("flowcontrol.v1.QueuingConfiguration", "handSize", "8"),
    ("flowcontrol.v1.QueuingConfiguration", "queueLengthLimit", "50"),
    ("flowcontrol.v1.QueuingConfiguration", "queues", "64"),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec",
        "conversion",
        "{\"strategy\":\"None\"}",
    ),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference", "port", "443"),
    ("io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference", "port", "443"),
    ("networking.v1.IngressClassParametersReference", "scope", "\"Cluster\""),
    ("networking.v1.NetworkPolicyPort", "protocol", "\"TCP\""),
    ("rbac.v1.RoleRef", "apiGroup", "\"rbac.authorization.k8s.io\""),
    ("resource.v1.DeviceSubRequest", "allocationMode", "\"ExactCount\""),
    ("resource.v1.DeviceToleration", "operator", "\"Equal\""),
    ("resource.v1.ExactDeviceRequest", "allocationMode", "\"ExactCount\""),
    ("resource.v1.NodeAllocatableResourceMapping", "allocationMultiplier", "\"1\""),
    ("scheduling.v1.PriorityClass", "preemptionPolicy", "\"PreemptLowerPriority\""),
    ("storage.v1.CSIDriverSpec", "attachRequired", "true"),
    ("storage.v1.CSIDriverSpec", "fsGroupPolicy", "\"ReadWriteOnceWithFSType\""),
    ("storage.v1.CSIDriverSpec", "podInfoOnMount", "false"),
    ("storage.v1.CSIDriverSpec", "requiresRepublish", "false"),
    ("storage.v1.CSIDriverSpec", "seLinuxMount", "false"),
    ("storage.v1.CSIDriverSpec", "storageCapacity", "false"),
    ("storage.v1.CSIDriverSpec", "volumeLifecycleModes", "[\"Persistent\"]"),
    ("storage.v1.StorageClass", "reclaimPolicy", "\"Delete\""),
    ("storage.v1.StorageClass", "volumeBindingMode", "\"Immediate\""),
];

/// The rows of one type.
fn rows_of(type_name: &str) -> &'static [(&'static str, &'static str, &'static str)] {
    let short = type_name.strip_prefix(API).unwrap_or(type_name);
    let start = ROWS.partition_point(|(ty, ..)| *ty < short);
    let end = ROWS.partition_point(|(ty, ..)| *ty <= short);
    &ROWS[start..end]
}

/// Whether the field's value is the zero of a type in which zero means absent.
fn is_zero(node: Node, value: &Value) -> bool {
    !node.is_pointer()
        && match value {
            Value::String(text) => text.is_empty(),
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::Array(list) => list.is_empty(),
            _ => false,
        }
}

/// Whether upstream states the default of a field in its schemas as well (most are code there); types below [`API`].
fn is_stated(short: &str, field: &str) -> bool {
    matches!(
        (short.strip_prefix("core.v1.").unwrap_or(short), field),
        ("ContainerPort" | "ServicePort", "protocol")
            | ("FileKeySelector", "optional")
            | ("GRPCAction", "service")
            | ("ReplicationControllerSpec", "replicas")
            | ("resource.v1.DeviceToleration", "operator")
    ) || ["AzureDisk", "ISCSI", "RBD", "ScaleIO"].iter().any(|p| short.starts_with(&format!("core.v1.{p}")))
}

/// The default of a field as schemas show it.
pub(super) fn stated(type_name: &str, field: &str) -> Option<Value> {
    let short = type_name.strip_prefix(API).unwrap_or(type_name);
    // A reference by name has the empty name where it is inlined as well.
    let is_reference = matches!(
        short,
        "core.v1.LocalObjectReference"
            | "core.v1.ConfigMapEnvSource"
            | "core.v1.ConfigMapKeySelector"
            | "core.v1.ConfigMapProjection"
            | "core.v1.ConfigMapVolumeSource"
            | "core.v1.SecretEnvSource"
            | "core.v1.SecretKeySelector"
            | "core.v1.SecretProjection"
    );
    if is_reference && field == "name" {
        return Some(Value::String(String::new()));
    }
    if (short == "core.v1.ReplicationControllerSpec" && field == "minReadySeconds")
        || (short == "autoscaling.v1.ScaleSpec" && field == "replicas")
    {
        return Some(0.into());
    }
    let row = rows_of(type_name).iter().find(|(_, name, _)| *name == field)?;
    is_stated(short, field).then(|| serde_json::from_str(row.2).ok()).flatten()
}

pub(super) fn apply(type_name: &str, node: Node, map: &mut Object) {
    for (_, name, json) in rows_of(type_name) {
        let Some(field) = node.built_in_field(name) else { continue };
        if map.get(*name).is_none_or(|v| v.is_null() || is_zero(field, v))
            && let Ok(value) = serde_json::from_str(json)
        {
            map.insert((*name).to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn every_row_names_a_field_and_rows_are_sorted() {
        assert!(ROWS.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
        for (ty, field, json) in ROWS {
            let name = if ty.starts_with("io.") { (*ty).to_owned() } else { format!("{API}{ty}") };
            let node = table::type_named(&name).unwrap_or_else(|| panic!("{name}"));
            assert!(node.built_in_field(field).is_some(), "{ty}.{field}");
            serde_json::from_str::<Value>(json).unwrap();
        }
    }
}
