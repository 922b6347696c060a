//! Cells that need more than a path.

use jiff::Timestamp;
use serde_json::Value;

use super::{at, human_duration, int, list, pods, since, text, workloads};

/// The cell that a row of the column table names.
pub(super) fn cell(name: &str, object: &Value, now: Timestamp) -> Value {
    match name {
        "pod-ready" => pods::ready(object).into(),
        "pod-status" => pods::status(object).into(),
        "pod-restarts" => pods::restarts(object, now).into(),
        "pod-gates" => pods::readiness_gates(object).into(),
        "job-status" => workloads::job_status(object).into(),
        "job-completions" => workloads::job_completions(object).into(),
        "job-duration" => workloads::job_duration(object, now).into(),
        "cronjob-suspend" => workloads::cron_job_suspend(object).into(),
        "cronjob-last" => workloads::cron_job_last(object, now).into(),
        "autoscaler-targets" => workloads::autoscaler_targets(object).into(),
        "autoscaler-reference" => {
            format!("{}/{}", text(object, "spec.scaleTargetRef.kind"), text(object, "spec.scaleTargetRef.name")).into()
        }
        _ if name.starts_with("event-") => event(name, object, now),
        _ if name.starts_with("node-") => node(name, object).into(),
        _ if name.starts_with("subjects-") => subjects(name, object).into(),
        _ if name.starts_with("component-") => component(name, object).into(),
        _ => other(name, object).into(),
    }
}

fn first_non_empty<'a>(object: &'a Value, paths: &[&str]) -> &'a str {
    paths.iter().map(|p| text(object, p)).find(|t| !t.is_empty()).unwrap_or_default()
}

fn event(name: &str, event: &Value, now: Timestamp) -> Value {
    let age = |time: &str| since(time, now);
    let first = || first_non_empty(event, &["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"]);
    match name {
        "event-first" => age(first()).into(),
        "event-last" => {
            let series = text(event, "series.lastObservedTime");
            let last = first_non_empty(event, &["lastTimestamp", "deprecatedLastTimestamp"]);
            match (series, last) {
                ("", "") => age(first()),
                ("", last) => age(last),
                (series, _) => age(series),
            }
            .into()
        }
        "event-object" => {
            let at_path =
                |member: &str| first_non_empty(event, &[&format!("involvedObject.{member}"), &format!("regarding.{member}")]);
            let kind = at_path("kind").to_lowercase();
            match at_path("name") {
                "" => kind.into(),
                name => format!("{kind}/{name}").into(),
            }
        }
        "event-source" => {
            let component = first_non_empty(
                event,
                &["source.component", "deprecatedSource.component", "reportingComponent", "reportingController"],
            );
            match first_non_empty(event, &["source.host", "deprecatedSource.host", "reportingInstance"]) {
                "" => component.into(),
                host => format!("{component}, {host}").into(),
            }
        }
        "event-message" => first_non_empty(event, &["message", "note"]).trim().into(),
        _ => {
            let count = int(event, "series.count").max(int(event, "count")).max(int(event, "deprecatedCount"));
            let series = at(event, "series.count").as_i64();
            series.unwrap_or(if count == 0 { 1 } else { count }).into()
        }
    }
}

fn node(name: &str, node: &Value) -> String {
    let address = |kind: &str| {
        let found = list(node, "status.addresses").iter().find(|a| text(a, "type") == kind).map(|a| text(a, "address"));
        found.unwrap_or("<none>").to_owned()
    };
    match name {
        "node-internal" => address("InternalIP"),
        "node-external" => address("ExternalIP"),
        "node-status" => {
            let ready = list(node, "status.conditions").iter().find(|c| text(c, "type") == "Ready");
            let mut words = vec![match ready {
                Some(condition) if text(condition, "status") == "True" => "Ready",
                Some(_) => "NotReady",
                None => "Unknown",
            }];
            if at(node, "spec.unschedulable") == true {
                words.push("SchedulingDisabled");
            }
            words.join(",")
        }
        "node-kernel" => {
            let kernel = Some(text(node, "status.nodeInfo.kernelVersion")).filter(|k| !k.is_empty()).unwrap_or("<unknown>");
            match text(node, "status.nodeInfo.architecture") {
                "" => kernel.to_owned(),
                architecture => format!("{kernel} ({architecture})"),
            }
        }
        _ => {
            let labels = at(node, "metadata.labels").as_object();
            let mut roles: Vec<&str> = labels
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                    Some(role) => Some(role),
                    None if key == "kubernetes.io/role" => value.as_str(),
                    None => None,
                })
                .filter(|role| !role.is_empty())
                .collect();
            roles.sort_unstable();
            roles.dedup();
            if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
        }
    }
}

fn subjects(name: &str, binding: &Value) -> String {
    let kind = match name {
        "subjects-users" => "User",
        "subjects-groups" => "Group",
        _ => "ServiceAccount",
    };
    let of_kind = list(binding, "subjects").iter().filter(|s| text(s, "kind") == kind);
    let shown: Vec<String> = of_kind
        .map(|s| match kind {
            "ServiceAccount" => format!("{}/{}", text(s, "namespace"), text(s, "name")),
            _ => text(s, "name").to_owned(),
        })
        .collect();
    shown.join(", ")
}

fn component(name: &str, status: &Value) -> String {
    let healthy = list(status, "conditions").iter().find(|c| text(c, "type") == "Healthy").unwrap_or(&Value::Null);
    match (name, text(healthy, "status")) {
        ("component-status", "True") => "Healthy".to_owned(),
        ("component-status", "") => "Unknown".to_owned(),
        ("component-status", _) => "Unhealthy".to_owned(),
        ("component-message", _) => text(healthy, "message").to_owned(),
        _ => text(healthy, "error").to_owned(),
    }
}

/// At most three entries and how many more there are.
fn few(entries: &[String], empty: &str) -> String {
    const SHOWN_MAX: usize = 3;
    let shown = entries.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join(",");
    match entries.len() {
        0 => empty.to_owned(),
        count if count > SHOWN_MAX => format!("{shown} + {} more...", count - SHOWN_MAX),
        _ => shown,
    }
}

fn modes(list: &[Value]) -> String {
    let short = [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let shown: Vec<&str> = short.iter().filter(|(mode, _)| list.iter().any(|m| m == mode)).map(|(_, s)| *s).collect();
    shown.join(",")
}

fn balancer(object: &Value) -> String {
    let ingress = list(object, "status.loadBalancer.ingress");
    let mut addresses: Vec<&str> =
        ingress.iter().map(|i| first_non_empty(i, &["ip", "hostname"])).filter(|a| !a.is_empty()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",")
}

fn marked_default(object: &Value, annotations: &[&str]) -> String {
    let name = text(object, "metadata.name");
    let all = at(object, "metadata.annotations");
    let is_default = annotations.iter().any(|a| all.get(*a).and_then(Value::as_str) == Some("true"));
    if is_default { format!("{name} (default)") } else { name.to_owned() }
}

fn other(name: &str, object: &Value) -> String {
    match name {
        "phase" if !text(object, "metadata.deletionTimestamp").is_empty() => "Terminating".to_owned(),
        "phase" => text(object, "status.phase").to_owned(),
        "endpoints" => endpoints(object),
        "slice-ports" => slice_ports(object),
        "slice-endpoints" => {
            let all = list(object, "endpoints").iter().flat_map(|e| list(e, "addresses"));
            few(&all.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>(), "<unset>")
        }
        "service-external" => service_external(object),
        "service-ports" => service_ports(object),
        "balancer-addresses" => balancer(object),
        "ingress-hosts" => {
            let rules = list(object, "spec.rules");
            let hosts = rules.iter().map(|r| text(r, "host")).filter(|h| !h.is_empty());
            few(&hosts.map(str::to_owned).collect::<Vec<_>>(), "*")
        }
        "ingress-ports" if list(object, "spec.tls").is_empty() => "80".to_owned(),
        "ingress-ports" => "80, 443".to_owned(),
        "ingress-class-parameters" => ingress_class_parameters(object),
        "default-ingress-class" => marked_default(object, &["ingressclass.kubernetes.io/is-default-class"]),
        "default-storage-class" => marked_default(
            object,
            &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"],
        ),
        "storage-class" => {
            let old = at(object, "metadata.annotations").get("volume.beta.kubernetes.io/storage-class").and_then(Value::as_str);
            old.unwrap_or_else(|| text(object, "spec.storageClassName")).to_owned()
        }
        "claim-capacity" if text(object, "spec.volumeName").is_empty() => String::new(),
        "claim-capacity" => at(object, "status.capacity").get("storage").and_then(Value::as_str).unwrap_or("0").to_owned(),
        "claim-modes" if text(object, "spec.volumeName").is_empty() => String::new(),
        "claim-modes" => modes(list(object, "status.accessModes")),
        "volume-modes" => modes(list(object, "spec.accessModes")),
        "volume-claim" => match at(object, "spec.claimRef") {
            Value::Object(_) => format!("{}/{}", text(object, "spec.claimRef.namespace"), text(object, "spec.claimRef.name")),
            _ => String::new(),
        },
        "quota-requests" => quota(object, false),
        "quota-limits" => quota(object, true),
        "role-reference" => format!("{}/{}", text(object, "roleRef.kind"), text(object, "roleRef.name")),
        "request-duration" => at(object, "spec.expirationSeconds").as_i64().map_or_else(|| "<none>".to_owned(), human_duration),
        "request-condition" => request_condition(object),
        "address-parent" => address_parent(object),
        "driver-audiences" => match at(object, "spec.tokenRequests") {
            Value::Array(requests) => requests.iter().map(|r| text(r, "audience")).collect::<Vec<_>>().join(","),
            _ => "<unset>".to_owned(),
        },
        "resource-claim-state" => resource_claim_state(object),
        "flow-dangling" => {
            let dangling = list(object, "status.conditions").iter().find(|c| text(c, "type") == "Dangling");
            dangling.map_or("?", |c| text(c, "status")).to_owned()
        }
        "controller" => controller(object),
        "policy-param-kind" => match at(object, "spec.paramKind") {
            Value::Object(_) => format!("{}/{}", text(object, "spec.paramKind.apiVersion"), text(object, "spec.paramKind.kind")),
            _ => "<unset>".to_owned(),
        },
        "policy-param-reference" => param_reference(object),
        "apiservice-service" => match at(object, "spec.service") {
            Value::Object(_) => format!("{}/{}", text(object, "spec.service.namespace"), text(object, "spec.service.name")),
            _ => "Local".to_owned(),
        },
        "apiservice-available" => available(object),
        _ => String::new(),
    }
}

fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in list(object, "subsets") {
        let addresses = list(subset, "addresses").iter().map(|a| text(a, "ip"));
        let ports = list(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses.map(str::to_owned));
            continue;
        }
        for port in ports {
            for address in list(subset, "addresses").iter().map(|a| text(a, "ip")) {
                let port = int(port, "port");
                all.push(if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") });
            }
        }
    }
    few(&all, "<none>")
}

fn slice_ports(object: &Value) -> String {
    let port = |p: &Value| match (at(p, "port").as_i64(), text(p, "name")) {
        (Some(number), _) => number.to_string(),
        (None, "") => "*".to_owned(),
        (None, name) => name.to_owned(),
    };
    few(&list(object, "ports").iter().map(port).collect::<Vec<_>>(), "<unset>")
}

fn service_external(object: &Value) -> String {
    let external: Vec<&str> = list(object, "spec.externalIPs").iter().filter_map(Value::as_str).collect();
    match text(object, "spec.type") {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let balancer = balancer(object);
            let mut all: Vec<&str> = balancer.split(',').filter(|a| !a.is_empty()).collect();
            all.extend(external);
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => text(object, "spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn service_ports(object: &Value) -> String {
    let port = |p: &Value| {
        let (number, node_port, protocol) = (int(p, "port"), int(p, "nodePort"), text(p, "protocol"));
        if node_port > 0 { format!("{number}:{node_port}/{protocol}") } else { format!("{number}/{protocol}") }
    };
    let ports: Vec<String> = list(object, "spec.ports").iter().map(port).collect();
    if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }
}

fn ingress_class_parameters(object: &Value) -> String {
    let parameters = at(object, "spec.parameters");
    if !parameters.is_object() {
        return "<none>".to_owned();
    }
    let group = parameters.get("apiGroup").and_then(Value::as_str).map(|g| format!(".{g}")).unwrap_or_default();
    format!("{}{group}/{}", text(parameters, "kind"), text(parameters, "name"))
}

fn quota(object: &Value, limits: bool) -> String {
    let hard = at(object, "status.hard").as_object();
    let used = at(object, "status.used");
    let shown: Vec<String> = hard
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| {
            let used = used.get(name).and_then(Value::as_str).unwrap_or("0");
            format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
        })
        .collect();
    shown.join(", ")
}

fn request_condition(object: &Value) -> String {
    let has = |kind: &str| list(object, "status.conditions").iter().any(|c| text(c, "type") == kind);
    let mut out = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied".to_owned(),
        (false, true) => "Approved".to_owned(),
        (false, false) => "Pending".to_owned(),
    };
    if has("Failed") {
        out.push_str(",Failed");
    }
    if !text(object, "status.certificate").is_empty() {
        out.push_str(",Issued");
    }
    out
}

fn address_parent(object: &Value) -> String {
    let parent = at(object, "spec.parentRef");
    if !parent.is_object() {
        return "<none>".to_owned();
    }
    let resource = match text(parent, "group") {
        "" => text(parent, "resource").to_owned(),
        group => format!("{}.{group}", text(parent, "resource")),
    };
    let namespace = Some(text(parent, "namespace")).filter(|n| !n.is_empty()).map(|n| format!("/{n}")).unwrap_or_default();
    format!("{}{namespace}/{}", resource.to_lowercase(), text(parent, "name"))
}

fn resource_claim_state(object: &Value) -> String {
    let is_deleted = !text(object, "metadata.deletionTimestamp").is_empty();
    let mut states = Vec::new();
    if is_deleted {
        states.push("deleted");
    }
    if at(object, "status.allocation").is_object() {
        states.push("allocated");
        states.push(if list(object, "status.reservedFor").is_empty() { "" } else { "reserved" });
    } else if !is_deleted {
        states.push("pending");
    }
    states.retain(|s| !s.is_empty());
    states.join(",")
}

fn controller(object: &Value) -> String {
    let owner = list(object, "metadata.ownerReferences").iter().find(|o| at(o, "controller") == true);
    let Some(owner) = owner else { return "<none>".to_owned() };
    let group = text(owner, "apiVersion").split_once('/').map(|(g, _)| format!(".{g}")).unwrap_or_default();
    format!("{}{group}/{}", text(owner, "kind").to_lowercase(), text(owner, "name"))
}

fn param_reference(object: &Value) -> String {
    let reference = at(object, "spec.paramRef");
    if !reference.is_object() {
        return "<unset>".to_owned();
    }
    let name = Some(text(reference, "name")).filter(|n| !n.is_empty()).unwrap_or("*");
    match text(reference, "namespace") {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

fn available(object: &Value) -> String {
    let Some(condition) = list(object, "status.conditions").iter().find(|c| text(c, "type") == "Available") else {
        return "Unknown".to_owned();
    };
    let (status, reason) = (text(condition, "status"), text(condition, "reason"));
    if status == "True" || reason.is_empty() { status.to_owned() } else { format!("{status} ({reason})") }
}
