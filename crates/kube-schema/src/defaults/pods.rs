//! Defaults of Pods and Pod specs that span fields.

use serde_json::{Map, Value};

use super::{Object, child, is_unset, items, text};
use crate::quantity::Quantity;

/// A Pod of its own (not a template): requests follow limits, host network ports follow container ports.
pub(super) fn pod(map: &mut Object) {
    let Some(spec) = child(map, "spec") else { return };
    for list in ["containers", "initContainers"] {
        items(spec, list).for_each(requests_from_limits);
    }
    whole_requests(spec);
    // Of a template the time is judged when a Pod is made from it.
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|s| s < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
    }
    if spec.get("enableServiceLinks").is_none_or(Value::is_null) {
        spec.insert("enableServiceLinks".to_owned(), true.into());
    }
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["containers", "initContainers"] {
            items(spec, list).for_each(host_ports);
        }
    }
}

fn requests_from_limits(container: &mut Object) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let Some(requests) = child(resources, "requests") else { return };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// Sum of one resource over a list of containers; `None` if none of them names it.
fn requested<'a>(containers: impl Iterator<Item = &'a Value>, name: &str) -> Option<Quantity> {
    let amounts = containers.filter_map(|c| c.get("resources")?.get("requests")?.get(name)?.as_str());
    amounts.filter_map(|text| Quantity::parse(text).ok()).reduce(Quantity::plus)
}

/// Requests of the Pod as a whole, where it has limits of its own (KEP-2837): what its containers ask for together, else the limit.
fn whole_requests(spec: &mut Object) {
    let limits = spec.get("resources").and_then(|r| r.get("limits")).and_then(Value::as_object).cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let list = |key: &str| spec.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let (containers, init) = (list("containers"), list("initContainers"));
    let is_sidecar = |c: &&Value| c.get("restartPolicy").and_then(Value::as_str) == Some("Always");
    let mut wanted = Object::new();
    for name in ["cpu", "memory"] {
        let running = requested(containers.iter().chain(init.iter().filter(is_sidecar)), name);
        // An init container runs beside the sidecars that were started before it.
        let starting = init.iter().enumerate().filter(|(_, c)| !is_sidecar(c)).filter_map(|(index, container)| {
            requested(init[..index].iter().filter(is_sidecar).chain(std::iter::once(container)), name)
        });
        if let Some(amount) = starting.chain(running).max() {
            wanted.insert(name.to_owned(), Value::String(amount.to_string()));
        }
    }
    for (name, limit) in limits {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            wanted.entry(name).or_insert(limit);
        }
    }
    let requests = child(spec, "resources").and_then(|r| child(r, "requests"));
    if let Some(requests) = requests {
        wanted.into_iter().for_each(|(name, amount)| {
            requests.entry(name).or_insert(amount);
        });
    }
}

fn host_ports(container: &mut Object) {
    for port in items(container, "ports") {
        if port.get("hostPort").is_none_or(|p| *p == 0)
            && let Some(number) = port.get("containerPort").filter(|p| **p != 0).cloned()
        {
            port.insert("hostPort".to_owned(), number);
        }
    }
}

/// The old name of `serviceAccountName` is kept in step with it.
pub(super) fn spec(map: &mut Object) {
    let name = match (text(map, "serviceAccountName"), text(map, "serviceAccount")) {
        ("", "") => return,
        ("", old) => old,
        (new, _) => new,
    };
    let name = Value::String(name.to_owned());
    map.insert("serviceAccount".to_owned(), name.clone());
    map.insert("serviceAccountName".to_owned(), name);
}

pub(super) fn status(map: &mut Object) {
    sync_first(map, "podIP", "podIPs", Some("ip"));
}

/// Keeps a single value and the first of its list in step: a lone value makes the list, a list names the value, and where they
/// differ the single value wins.
pub(super) fn sync_first(map: &mut Object, one: &str, many: &str, member: Option<&str>) {
    let single = text(map, one).to_owned();
    let first = map.get(many).and_then(Value::as_array).and_then(|l| l.first()).map(|v| match member {
        Some(member) => v.get(member).and_then(Value::as_str).unwrap_or_default().to_owned(),
        None => v.as_str().unwrap_or_default().to_owned(),
    });
    match first {
        Some(first) if single.is_empty() => {
            map.insert(one.to_owned(), Value::String(first));
        }
        Some(first) if first == single => {}
        _ if single.is_empty() => {}
        _ => {
            let element = match member {
                Some(member) => Value::Object(Map::from_iter([(member.to_owned(), Value::String(single))])),
                None => Value::String(single),
            };
            map.insert(many.to_owned(), Value::Array(vec![element]));
        }
    }
}

/// Tag of an image reference; `latest` if it has neither tag nor digest, empty if it has only a digest or cannot be one.
fn image_tag(image: &str) -> &str {
    let (name, digest) = image.split_once('@').unwrap_or((image, ""));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) => tag,
        None if !digest.is_empty() || name.is_empty() || name.contains(char::is_uppercase) => "",
        None => "latest",
    }
}

fn pull_policy(image: &str) -> Value {
    if image_tag(image) == "latest" { "Always".into() } else { "IfNotPresent".into() }
}

pub(super) fn container(map: &mut Object) {
    if is_unset(map, "imagePullPolicy") {
        let policy = pull_policy(text(map, "image"));
        map.insert("imagePullPolicy".to_owned(), policy);
    }
}

/// A volume without a source is an empty directory.
pub(super) fn volume(map: &mut Object) {
    if map.keys().all(|k| k == "name") {
        map.insert("emptyDir".to_owned(), Value::Object(Map::new()));
    }
    if let Some(image) = map.get_mut("image").and_then(Value::as_object_mut)
        && is_unset(image, "pullPolicy")
    {
        let policy = pull_policy(text(image, "reference"));
        image.insert("pullPolicy".to_owned(), policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_with_limits_of_its_own_requests_what_its_containers_do() {
        let mut spec = json!({"resources": {"limits": {"cpu": "4", "memory": "1Gi"}},
            "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "3"}}}],
            "containers": [{"resources": {"requests": {"cpu": "500m"}}}]});
        whole_requests(spec.as_object_mut().unwrap());
        assert_eq!(spec["resources"]["requests"], json!({"cpu": "4", "memory": "1Gi"}));
        let mut spec = json!({"resources": {"requests": {"cpu": "1"}}, "containers": [{}]});
        whole_requests(spec.as_object_mut().unwrap());
        assert_eq!(spec["resources"], json!({"requests": {"cpu": "1"}}));
    }

    #[test]
    fn tags_of_images() {
        for (image, tag) in [
            ("a", "latest"),
            ("a:1", "1"),
            ("host:5000/a", "latest"),
            ("host:5000/a:2", "2"),
            ("a@sha256:0", ""),
            ("a:1@sha256:0", "1"),
            ("", ""),
        ] {
            assert_eq!(image_tag(image), tag, "{image}");
        }
    }

    #[test]
    fn single_and_list_stay_in_step() {
        for (given, wanted) in [
            (json!({"podIP": "1"}), json!({"podIP": "1", "podIPs": [{"ip": "1"}]})),
            (json!({"podIPs": [{"ip": "1"}, {"ip": "2"}]}), json!({"podIP": "1", "podIPs": [{"ip": "1"}, {"ip": "2"}]})),
            (json!({"podIP": "3", "podIPs": [{"ip": "1"}]}), json!({"podIP": "3", "podIPs": [{"ip": "3"}]})),
            (json!({}), json!({})),
        ] {
            let mut value = given;
            status(value.as_object_mut().unwrap());
            assert_eq!(value, wanted);
        }
    }
}
