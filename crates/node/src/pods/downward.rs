//! Values that a Pod may read of itself: `fieldRef` and `resourceFieldRef`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};

use super::resources::{limit, millis, request};

/// What the node knows that the Pod object may not say yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    pub pod_ip: String,
    pub host_ip: String,
}

/// The value of a field path; an error for one that the downward API does not have.
pub fn field(pod: &Pod, path: &str, addresses: &Addresses) -> Result<String, String> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => meta.labels.as_ref(),
            "metadata.annotations" => meta.annotations.as_ref(),
            _ => return Err(format!("unsupported fieldPath: {path}")),
        };
        return Ok(map.and_then(|m| m.get(key)).cloned().unwrap_or_default());
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    Ok(match path {
        "metadata.name" => text(&meta.name),
        "metadata.namespace" => text(&meta.namespace),
        "metadata.uid" => text(&meta.uid),
        "metadata.labels" => lines(meta.labels.as_ref()),
        "metadata.annotations" => lines(meta.annotations.as_ref()),
        "spec.nodeName" => spec.map(|s| text(&s.node_name)).unwrap_or_default(),
        "spec.serviceAccountName" => spec.map(|s| text(&s.service_account_name)).unwrap_or_default(),
        "status.hostIP" | "status.hostIPs" => addresses.host_ip.clone(),
        "status.podIP" | "status.podIPs" => addresses.pod_ip.clone(),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

/// Splits `metadata.labels['key']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    map.into_iter().flatten().map(|(k, v)| format!("{k}={v:?}")).collect::<Vec<_>>().join("\n")
}

/// What an absent limit stands for: the node's allocatable amounts, in thousandths.
pub type Allocatable = BTreeMap<String, i128>;

/// The value of a resource field, divided and rounded up.
pub fn resource(container: &Container, selector: &ResourceFieldSelector, allocatable: &Allocatable) -> Result<String, String> {
    let path = selector.resource.as_str();
    let (kind, name) = path.split_once('.').ok_or_else(|| format!("unsupported container resource: {path}"))?;
    let resources = container.resources.as_ref();
    let value = match kind {
        "limits" => limit(resources, name).filter(|v| *v > 0).or_else(|| allocatable.get(name).copied()),
        "requests" => request(resources, name),
        _ => return Err(format!("unsupported container resource: {path}")),
    };
    let divisor = selector.divisor.as_ref().and_then(|d| millis(&d.0)).filter(|d| *d > 0).unwrap_or(1000);
    let value = value.unwrap_or(0);
    Ok((value.div_euclid(divisor) + i128::from(value.rem_euclid(divisor) != 0)).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    #[test]
    fn fields_by_path_and_key() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "labels": {"a/b": "c"}}, "spec": {"containers": [], "nodeName": "n"}
        }))
        .unwrap();
        let addresses = Addresses { pod_ip: "10.0.0.2".into(), host_ip: "10.0.0.1".into() };
        let get = |path| field(&pod, path, &addresses);
        assert_eq!(get("metadata.labels['a/b']").unwrap(), "c");
        assert_eq!(get("metadata.labels").unwrap(), "a/b=\"c\"");
        assert_eq!(get("spec.nodeName").unwrap(), "n");
        assert_eq!(get("status.podIP").unwrap(), "10.0.0.2");
        assert!(get("spec.hostname").is_err());
    }

    #[test]
    fn resources_are_divided_and_an_absent_limit_is_the_nodes() {
        let container: Container =
            serde_json::from_value(serde_json::json!({"name": "c", "resources": {"limits": {"cpu": "1500m"}}})).unwrap();
        let selector = |resource: &str, divisor: &str| ResourceFieldSelector {
            resource: resource.into(),
            divisor: Some(Quantity(divisor.into())),
            container_name: None,
        };
        let node = Allocatable::from([("memory".to_owned(), 2_000)]);
        assert_eq!(resource(&container, &selector("limits.cpu", "1"), &node).unwrap(), "2");
        assert_eq!(resource(&container, &selector("limits.cpu", "1m"), &node).unwrap(), "1500");
        assert_eq!(resource(&container, &selector("limits.memory", "1"), &node).unwrap(), "2");
    }
}
