//! Conversion between versions of one object. Each pair is lossless both ways; a custom kind's versions differ in `apiVersion`
//! alone (conversion by webhook is the API server's).

mod autoscaler;

use serde_json::{Map, Value};

use crate::registry::ResourceDef;

/// Fields of an Event that have other names in `events.k8s.io/v1` (core name first).
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts an object in canonical form from one row's version to another's. Rows of different storage are not converted.
pub fn convert(from: &ResourceDef, to: &ResourceDef, mut value: Value) -> Value {
    if let Some(map) = value.as_object_mut() {
        if from.api_version() != to.api_version() {
            match (to.kind.as_str(), from.group.as_str(), to.group.as_str()) {
                ("Event", "", "events.k8s.io") => {
                    rename(map, |(core, events)| (core, events));
                    // Only the core form writes these when they are empty.
                    for key in ["reportingController", "reportingInstance"] {
                        if map.get(key).is_some_and(|v| v == "") {
                            map.remove(key);
                        }
                    }
                }
                ("Event", "events.k8s.io", "") => rename(map, |(core, events)| (events, core)),
                ("HorizontalPodAutoscaler", "autoscaling", "autoscaling") => match (from.version.as_str(), to.version.as_str()) {
                    ("v1", "v2") => autoscaler::v1_to_v2(map),
                    ("v2", "v1") => autoscaler::v2_to_v1(map),
                    _ => {}
                },
                _ => {}
            }
        }
        map.insert("apiVersion".to_owned(), Value::String(to.api_version()));
        map.insert("kind".to_owned(), Value::String(to.kind.clone()));
    }
    value
}

fn rename(map: &mut Map<String, Value>, direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    for pair in EVENT_FIELDS {
        let (from, to) = direction(pair);
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::canonicalise;
    use crate::registry::Registry;
    use serde_json::json;

    fn there_and_back(from: (&str, &str, &str), to: (&str, &str, &str), value: Value) -> Value {
        let registry = Registry::builtin();
        let (from, to) = (registry.get(from.0, from.1, from.2).unwrap().clone(), registry.get(to.0, to.1, to.2).unwrap().clone());
        let value = canonicalise(&from, value).unwrap();
        let there = convert(&from, &to, value.clone());
        let there = canonicalise(&to, there).unwrap();
        let back = canonicalise(&from, convert(&to, &from, there.clone())).unwrap();
        assert_eq!(back, value);
        there
    }

    #[test]
    fn events_of_both_groups_are_one_object() {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"}, "count": 2, "message": "m",
            "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet"}, "reportingComponent": "k",
            "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-02T00:00:00Z", "type": "Normal", "reason": "R"});
        let other = there_and_back(("", "v1", "events"), ("events.k8s.io", "v1", "events"), event);
        assert_eq!(other["regarding"]["name"], "p");
        assert_eq!(other.get("reportingInstance"), None);
        assert_eq!(other["deprecatedCount"], 2);
        assert_eq!(other["apiVersion"], "events.k8s.io/v1");
    }

    #[test]
    fn an_autoscaler_keeps_all_of_v2_in_v1() {
        let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h", "annotations": {"a": "b"}},
            "spec": {"maxReplicas": 3, "minReplicas": 1, "scaleTargetRef": {"kind": "Deployment", "name": "d"},
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60, "selectPolicy": "Max",
                "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}},
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
                {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "hits"},
                    "target": {"type": "Value", "value": "5"}}},
                {"type": "External", "external": {"metric": {"name": "q", "selector": {"matchLabels": {"x": "y"}}},
                    "target": {"type": "AverageValue", "averageValue": "30"}}},
                {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "app",
                    "target": {"type": "Utilization", "averageUtilization": 50}}},
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]},
            "status": {"desiredReplicas": 1, "currentReplicas": 1,
                "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z", "reason": "r"}],
                "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "1", "averageUtilization": 7}}}]}});
        let v2 = ("autoscaling", "v2", "horizontalpodautoscalers");
        let v1 = there_and_back(v2, ("autoscaling", "v1", "horizontalpodautoscalers"), hpa);
        assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 80);
        assert_eq!(v1["status"]["currentCPUUtilizationPercentage"], 7);
        assert!(v1["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"].is_string());
    }
}
