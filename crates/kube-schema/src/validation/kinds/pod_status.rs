//! What a kubelet may say of a pod.

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::formats;
use super::super::path::Path;
use super::super::view::{at, has, int, list, text};

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "pod_status" => |c, _, _| pod_status(c),
        _ => return None,
    };
    Some(rule)
}

fn pod_status(c: &mut Check<'_>) {
    let (pod, old) = (c.write.object, c.old);
    let root = Path::ROOT;
    let path = root.field("status");
    let status = at(pod, "status");
    conditions(c, status, &path);
    if text(pod, "spec.nodeName") != text(old, "spec.nodeName") {
        c.forbidden(&path.field("nodeName"), "may not be changed directly");
    }
    let nominated = text(status, "nominatedNodeName");
    if !nominated.is_empty() && nominated != text(old, "status.nominatedNodeName") {
        c.subdomain(&path.field("nominatedNodeName"), nominated);
        if !text(old, "spec.nodeName").is_empty() {
            c.forbidden(&path.field("nominatedNodeName"), "may not be set on pods that are already bound to a node");
        }
    }
    if int(status, "observedGeneration") < 0 {
        let found = int(status, "observedGeneration");
        c.invalid(&path.field("observedGeneration"), found, "must be a non-negative integer");
    }
    if text(status, "qosClass") != text(old, "status.qosClass") {
        c.invalid(&path.field("qosClass"), text(status, "qosClass"), "field is immutable");
    }
    transitions(c, pod, old, &path);
    claim_statuses(c, pod, &path);
    addresses(c, status, at(old, "status"), &path);
}

fn conditions(c: &mut Check<'_>, status: &Value, path: &Path<'_>) {
    let path = path.field("conditions");
    for (i, condition) in list(status, "conditions").iter().enumerate() {
        let path = path.index(i);
        let generation = int(condition, "observedGeneration");
        if generation < 0 {
            c.invalid(&path.field("observedGeneration"), generation, "must be a non-negative integer");
        }
        let kind = text(condition, "type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            c.qualified_name(&path.field("Type"), kind);
        }
    }
}

/// Whether the container may run again after it ended with this code.
fn may_restart(container: &Value, spec: &Value, exit_code: i64) -> bool {
    for rule in list(container, "restartPolicyRules") {
        let has_code = list(rule, "exitCodes.values").iter().any(|v| v.as_i64() == Some(exit_code));
        let matches = match text(rule, "exitCodes.operator") {
            "In" => has_code,
            "NotIn" => !has_code,
            _ => false,
        };
        if matches {
            return true;
        }
    }
    let policy = match text(container, "restartPolicy") {
        "" => text(spec, "restartPolicy"),
        own => own,
    };
    match policy {
        "OnFailure" => exit_code != 0,
        "Never" => false,
        _ => true,
    }
}

fn transitions(c: &mut Check<'_>, pod: &Value, old: &Value, path: &Path<'_>) {
    let spec = at(old, "spec");
    let restarts_all = ["containers", "initContainers"]
        .iter()
        .flat_map(|f| list(spec, f))
        .flat_map(|o| list(o, "restartPolicyRules"))
        .any(|r| text(r, "action") == "RestartAllContainers");
    for (field, containers) in
        [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers"), ("ephemeralContainerStatuses", "")]
    {
        if restarts_all && !containers.is_empty() {
            continue;
        }
        let path = path.field(field);
        for (i, before) in list(at(old, "status"), field).iter().enumerate() {
            if !has(before, "state.terminated") {
                continue;
            }
            let name = text(before, "name");
            let runs_again =
                list(at(pod, "status"), field).iter().any(|s| text(s, "name") == name && !has(s, "state.terminated"));
            let container = if containers.is_empty() { &[] } else { list(spec, containers) };
            let container = container.iter().find(|o| text(o, "name") == name);
            let is_allowed = container.is_some_and(|o| may_restart(o, spec, int(before, "state.terminated.exitCode")));
            if runs_again && !is_allowed {
                c.forbidden(&path.index(i).field("state"), "may not be transitioned to non-terminated state");
            }
        }
    }
}

fn claim_statuses(c: &mut Check<'_>, pod: &Value, path: &Path<'_>) {
    let path = path.field("resourceClaimStatuses");
    let all = list(pod, "status.resourceClaimStatuses");
    for (i, status) in all.iter().enumerate() {
        let path = path.index(i);
        let name = text(status, "name");
        if !list(pod, "spec.resourceClaims").iter().any(|o| text(o, "name") == name) {
            c.invalid(&path.field("name"), name, "must match the name of an entry in `spec.resourceClaims`");
        }
        if all[..i].iter().any(|o| text(o, "name") == name) {
            c.duplicate(&path.field("name"), name);
        }
        if has(status, "resourceClaimName") {
            c.subdomain(&path.field("resourceClaimName"), text(status, "resourceClaimName"));
        }
    }
}

fn addresses(c: &mut Check<'_>, status: &Value, old: &Value, path: &Path<'_>) {
    for field in ["podIPs", "hostIPs"] {
        let path = path.field(field);
        let ips: Vec<&str> = list(status, field).iter().map(|o| text(o, "ip")).collect();
        if let (Some(first), "hostIPs") = (ips.first(), field)
            && *first != text(status, "hostIP")
        {
            c.invalid(&path.index(0).field("ip"), *first, "must be equal to `hostIP`");
        }
        for (i, ip) in ips.iter().enumerate() {
            if !list(old, field).iter().any(|o| text(o, "ip") == *ip) {
                c.invalid_each(&path.index(i), ip, formats::ip(ip));
            }
        }
        let families = ips.iter().filter_map(|ip| formats::parse_ip(ip)).map(|a| a.is_ipv4());
        let four = families.clone().filter(|f| *f).count();
        let six = families.filter(|f| !*f).count();
        if ips.len() > 1 && (four > 1 || six > 1 || ips.len() > 2) {
            c.invalid(&path, at(status, field).clone(), "may specify no more than one IP for each IP family");
        }
    }
}
