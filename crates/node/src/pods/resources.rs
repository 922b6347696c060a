//! Quantities and what a Pod asks for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::runtime::host::cgroup::Limits;

/// A quantity in thousandths, rounded up; `None` if it does not parse.
pub fn millis(quantity: &str) -> Option<i128> {
    let text = quantity.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || fraction.len() > 18 {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (numerator, denominator) = factor(suffix)?;
    let scale = 10_i128.checked_pow(fraction.len() as u32)?.checked_mul(denominator)?;
    let value = digits.checked_mul(numerator)?;
    let rounded = value.div_euclid(scale) + i128::from(value.rem_euclid(scale) != 0);
    Some(if negative { -rounded } else { rounded })
}

/// The suffix as a fraction, already multiplied by 1000.
fn factor(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| Some((1000 << (10 * power), 1));
    let decimal = |power: u32| Some((1000 * 1000_i128.pow(power), 1));
    match suffix {
        "n" => Some((1, 1_000_000)),
        "u" => Some((1, 1000)),
        "m" => Some((1, 1)),
        "" => Some((1000, 1)),
        "k" => decimal(1),
        "M" => decimal(2),
        "G" => decimal(3),
        "T" => decimal(4),
        "P" => decimal(5),
        "E" => decimal(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let magnitude = 10_i128.checked_pow(power.unsigned_abs())?;
            if power >= 0 { Some((1000 * magnitude, 1)) } else { Some((1000, magnitude)) }
        }
    }
}

type Amounts = BTreeMap<String, Quantity>;

fn amount(amounts: &Option<Amounts>, name: &str) -> Option<i128> {
    millis(&amounts.as_ref()?.get(name)?.0)
}

/// A limit of a container in thousandths.
pub fn limit(resources: Option<&ResourceRequirements>, name: &str) -> Option<i128> {
    amount(&resources?.limits, name)
}

/// A request of a container in thousandths; a limit stands in for a missing request.
pub fn request(resources: Option<&ResourceRequirements>, name: &str) -> Option<i128> {
    amount(&resources?.requests, name).or_else(|| limit(resources, name))
}

/// What control groups enforce for a container.
pub fn limits(resources: Option<&ResourceRequirements>) -> Limits {
    let positive = |value: Option<i128>| value.and_then(|v| u64::try_from(v).ok()).filter(|v| *v > 0);
    Limits {
        memory_bytes: positive(limit(resources, "memory").map(|m| m / 1000)),
        cpu_millis: positive(limit(resources, "cpu")),
        cpu_request_millis: positive(request(resources, "cpu")),
    }
}

/// All containers of a Pod, init containers first.
pub fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.as_ref();
    spec.into_iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers))
}

/// Whether an init container keeps running beside the main ones.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// What a Pod takes of one resource, in thousandths: the larger of all running containers and any init step.
pub fn pod_request(pod: &Pod, name: &str) -> i128 {
    let Some(spec) = &pod.spec else { return 0 };
    let of = |c: &Container| request(c.resources.as_ref(), name).unwrap_or(0);
    let (mut sidecars, mut peak) = (0, 0);
    for container in spec.init_containers.iter().flatten() {
        if is_sidecar(container) {
            sidecars += of(container);
            peak = peak.max(sidecars);
        } else {
            peak = peak.max(sidecars + of(container));
        }
    }
    let running: i128 = spec.containers.iter().map(of).sum::<i128>() + sidecars;
    let overhead = amount(&spec.overhead, name).unwrap_or(0);
    running.max(peak) + overhead
}

/// The Pod's quality of service class.
pub fn qos_class(pod: &Pod) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    for container in containers(pod) {
        let resources = container.resources.as_ref();
        for name in ["cpu", "memory"] {
            let (request, limit) = (request(resources, name), limit(resources, name));
            any |= request.is_some_and(|v| v > 0) || limit.is_some_and(|v| v > 0);
            guaranteed &= limit.is_some_and(|v| v > 0) && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_as_kubernetes_writes_them() {
        for (text, value) in [
            ("100m", 100),
            ("1", 1000),
            ("0.5", 500),
            ("1.5Gi", 1_610_612_736_000),
            ("2k", 2_000_000),
            ("1e3", 1_000_000),
            ("12E", 12_000_000_000_000_000_000_000),
            ("1n", 1),
            ("-2", -2000),
        ] {
            assert_eq!(millis(text), Some(value), "{text}");
        }
        for wrong in ["", "x", "1.2.3", "1Kb", "."] {
            assert_eq!(millis(wrong), None, "{wrong}");
        }
    }

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_sidecar_counts_beside_the_main_containers() {
        let c = |name: &str, cpu: &str| serde_json::json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = c("s", "1");
        sidecar["restartPolicy"] = "Always".into();
        let pod = pod(serde_json::json!({"initContainers": [c("i", "2"), sidecar, c("j", "3")], "containers": [c("m", "1")]}));
        assert_eq!(pod_request(&pod, "cpu"), 4000);
    }

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let with = |resources| pod(serde_json::json!({"containers": [{"name": "c", "resources": resources}]}));
        let full = serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        assert_eq!(qos_class(&with(full)), "Guaranteed");
        assert_eq!(qos_class(&with(serde_json::json!({"requests": {"cpu": "1"}}))), "Burstable");
        assert_eq!(qos_class(&with(serde_json::json!({}))), "BestEffort");
    }
}
