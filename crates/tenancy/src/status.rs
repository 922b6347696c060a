//! A tenant's status in Kamaji's words, computed from what was observed. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};

/// What was observed of a tenant.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub generation: i64,
    pub replicas_wanted: i32,
    pub version: String,
    /// `host:port`, once an address is there.
    pub endpoint: Option<String>,
    pub names: Option<crate::names::Names>,
    /// `(name, checksum)` of each Secret that is there.
    pub secrets: Vec<(String, String)>,
    pub deployment: Option<k8s_openapi::api::apps::v1::Deployment>,
    pub service: Option<k8s_openapi::api::core::v1::Service>,
    /// Whether a request to the tenant's `/readyz` went through just now.
    pub answers: bool,
    pub konnectivity: Option<bool>,
    pub core_dns: bool,
    pub kube_proxy: bool,
    /// Findings that the user should see, as `(condition type, status, reason, message)`.
    pub findings: Vec<Finding>,
}

/// One condition as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: &'static str,
    pub is_true: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Observed {
    /// Kamaji's word for the state.
    pub fn word(&self) -> &'static str {
        let ready = self.deployment.as_ref().and_then(|d| d.status.as_ref()).and_then(|s| s.ready_replicas).unwrap_or(0);
        if self.replicas_wanted == 0 {
            "Sleeping"
        } else if self.deployment.is_none() {
            "Provisioning"
        } else if ready > 0 && self.answers {
            "Ready"
        } else if self.was_ready_once() {
            "NotReady"
        } else {
            "Provisioning"
        }
    }

    fn was_ready_once(&self) -> bool {
        let conditions = self.deployment.as_ref().and_then(|d| d.status.as_ref()).and_then(|s| s.conditions.as_ref());
        conditions
            .is_some_and(|c| c.iter().any(|c| c.type_ == "Progressing" && c.reason.as_deref() == Some("NewReplicaSetAvailable")))
    }

    fn ready_finding(&self) -> Finding {
        let (is_true, reason, message) = match self.word() {
            "Ready" => (true, "TenantAnswers", "the tenant's API server answered /readyz".to_owned()),
            "Sleeping" => (false, "Sleeping", "scaled to 0; scale to 1 to wake it with its data intact".to_owned()),
            _ if self.endpoint.is_none() => {
                (false, "NoAddress", "the Service has no address yet: see its events (kubectl describe service)".to_owned())
            }
            _ => (false, "NoAnswer", "the tenant's API server does not answer /readyz: see its Pod's events and log".to_owned()),
        };
        Finding { kind: "Ready", is_true, reason, message }
    }

    /// The status object. `previous` gives the transition times of conditions that did not change.
    pub fn status(&self, previous: &Value, now: Timestamp) -> Value {
        let secret = |name: String| {
            let found = self.secrets.iter().find(|(n, _)| *n == name);
            found.map(|(name, checksum)| json!({ "secretName": name, "checksum": checksum }))
        };
        let mut status = json!({
            "observedGeneration": self.generation,
            "storage": { "driver": "embedded", "dataStoreName": "embedded" },
            "kubernetesResources": { "version": { "status": self.word() } },
        });
        let version = match self.word() {
            "Ready" | "Sleeping" => Some(self.version.clone()),
            _ => previous.pointer("/kubernetesResources/version/version").and_then(Value::as_str).map(str::to_owned),
        };
        if let Some(version) = version {
            status["kubernetesResources"]["version"]["version"] = json!(version);
        }
        if let Some(names) = &self.names {
            let pairs = [
                ("certificates", "ca", secret(names.ca())),
                ("certificates", "apiServer", secret(names.api_server())),
                ("certificates", "apiServerKubeletClient", secret(names.kubelet_client())),
                ("certificates", "frontProxyCA", secret(names.front_proxy_ca())),
                ("certificates", "frontProxyClient", secret(names.front_proxy_client())),
                ("certificates", "sa", secret(names.service_account())),
                ("kubeconfig", "admin", secret(names.admin_kubeconfig())),
                ("kubeconfig", "controllerManager", secret(names.controller_manager_kubeconfig())),
                ("kubeconfig", "scheduler", secret(names.scheduler_kubeconfig())),
            ];
            for (group, field, value) in pairs {
                if let Some(value) = value {
                    status[group][field] = value;
                }
            }
        }
        if let Some(endpoint) = &self.endpoint {
            status["controlPlaneEndpoint"] = json!(endpoint);
        }
        self.workload(&mut status);
        let mut findings = vec![self.ready_finding()];
        findings.extend(self.findings.iter().cloned());
        status["conditions"] = conditions(&findings, previous, self.generation, now);
        status["addons"] = json!({
            "coreDNS": { "enabled": false },
            "kubeProxy": { "enabled": false },
            "konnectivity": { "enabled": self.konnectivity.unwrap_or(false) },
        });
        status
    }

    fn workload(&self, status: &mut Value) {
        if let Some(deployment) = &self.deployment {
            let mut value = serde_json::to_value(deployment.status.clone().unwrap_or_default()).unwrap_or_default();
            let replicas = deployment.status.as_ref().and_then(|s| s.replicas).unwrap_or(0);
            value["replicas"] = json!(replicas);
            value["name"] = json!(deployment.metadata.name);
            value["namespace"] = json!(deployment.metadata.namespace);
            if let Some(name) = &deployment.metadata.name {
                value["selector"] = json!(format!("{}={name}", crate::names::LABEL_NAME));
            }
            status["kubernetesResources"]["deployment"] = value;
        }
        if let Some(service) = &self.service {
            let mut value = serde_json::to_value(service.status.clone().unwrap_or_default()).unwrap_or_default();
            value["name"] = json!(service.metadata.name);
            value["namespace"] = json!(service.metadata.namespace);
            let port = service.spec.as_ref().and_then(|s| s.ports.as_ref()).and_then(|p| p.first()).map(|p| p.port);
            value["port"] = json!(port);
            status["kubernetesResources"]["service"] = value;
        }
    }
}

fn conditions(findings: &[Finding], previous: &Value, generation: i64, now: Timestamp) -> Value {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let items = findings.iter().map(|finding| {
        let status = if finding.is_true { "True" } else { "False" };
        let old = previous
            .get("conditions")
            .and_then(Value::as_array)
            .and_then(|all| all.iter().find(|c| c["type"] == finding.kind && c["status"] == status));
        let since = old.and_then(|c| c["lastTransitionTime"].as_str()).unwrap_or(&now);
        json!({
            "type": finding.kind,
            "status": status,
            "reason": finding.reason,
            "message": finding.message,
            "observedGeneration": generation,
            "lastTransitionTime": since,
        })
    });
    Value::Array(items.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};

    fn observed(ready: i32, answers: bool) -> Observed {
        Observed {
            replicas_wanted: 1,
            version: "v1.36.2".to_owned(),
            endpoint: Some("192.0.2.1:6443".to_owned()),
            deployment: Some(Deployment {
                status: Some(DeploymentStatus { ready_replicas: Some(ready), ..DeploymentStatus::default() }),
                ..Deployment::default()
            }),
            answers,
            ..Observed::default()
        }
    }

    #[test]
    fn ready_is_said_only_when_a_request_went_through() {
        assert_eq!(observed(1, true).word(), "Ready");
        assert_eq!(observed(1, false).word(), "Provisioning");
        assert_eq!(Observed { replicas_wanted: 0, ..observed(0, false) }.word(), "Sleeping");
        assert_eq!(Observed { deployment: None, ..observed(0, false) }.word(), "Provisioning");
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let at = |s: i64| Timestamp::from_second(s).expect("time");
        let first = observed(1, true).status(&Value::Null, at(1_790_000_000));
        let second = observed(1, true).status(&first, at(1_790_000_100));
        assert_eq!(first, second);
        let third = observed(0, false).status(&second, at(1_790_000_200));
        assert_ne!(third["conditions"][0]["lastTransitionTime"], second["conditions"][0]["lastTransitionTime"]);
        assert_eq!(third["kubernetesResources"]["version"]["version"], "v1.36.2", "what ran last stays known");
    }
}
