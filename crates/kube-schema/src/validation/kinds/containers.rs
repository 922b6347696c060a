//! Containers of all three lists, their ports and mounts.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::formats;
use super::super::path::Path;
use super::super::view::{at, flag, has, int, is_empty, list, text};

const RESTART_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "pod_containers" => pod_containers,
        "container_ports" => container_ports,
        "volume_mounts" => volume_mounts,
        "volume_devices" => volume_devices,
        _ => return None,
    };
    Some(rule)
}

/// Every container of a spec with its path: init, regular, ephemeral.
pub fn visit<'a>(spec: &'a Value, path: &Path<'_>, see: &mut dyn FnMut(&'a Value, &Path<'_>)) {
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        let path = path.field(field);
        for (i, container) in list(spec, field).iter().enumerate() {
            see(container, &path.index(i));
        }
    }
}

/// Whether an init container keeps running beside the others.
pub fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

fn pod_containers<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    regular(c, spec, &path.field("containers"));
    init(c, spec, &path.field("initContainers"));
    ephemeral(c, spec, &path.field("ephemeralContainers"));
}

fn regular<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let containers = list(spec, "containers");
    if containers.is_empty() {
        return c.required(path, "");
    }
    for (i, container) in containers.iter().enumerate() {
        let path = path.index(i);
        c.section("Container", container, &path);
        let name = text(container, "name");
        if containers[..i].iter().any(|o| text(o, "name") == name) {
            c.duplicate(&path.field("name"), name);
        }
        lifecycle_and_probes(c, container, &path);
        restart_policy(c, container, &path);
    }
    host_port_conflicts(c, containers, path);
}

fn lifecycle_and_probes<'a>(c: &mut Check<'a>, container: &'a Value, path: &Path<'_>) {
    let lifecycle = at(container, "lifecycle");
    if !lifecycle.is_null() {
        c.section("Lifecycle", lifecycle, &path.field("lifecycle"));
    }
    super::probes::container_probes(c, container, path);
}

fn init<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let mut names: BTreeSet<&str> = list(spec, "containers").iter().map(|o| text(o, "name")).collect();
    for (i, container) in list(spec, "initContainers").iter().enumerate() {
        let list_path = path;
        let path = path.index(i);
        c.section("Container", container, &path);
        restart_policy(c, container, &path);
        let name = text(container, "name");
        if names.contains(name) {
            c.duplicate(&path.field("name"), name);
        } else if !name.is_empty() {
            names.insert(name);
        }
        host_port_conflicts(c, std::slice::from_ref(container), list_path);
        if is_sidecar(container) {
            lifecycle_and_probes(c, container, &path);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if has(container, field) {
                    c.forbidden(&path.field(field), "may not be set for init containers without restartPolicy=Always");
                }
            }
            let policies = path.field("resizePolicy");
            for (j, policy) in list(container, "resizePolicy").iter().enumerate() {
                if text(policy, "restartPolicy") == "RestartContainer" {
                    let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    c.invalid(&policies.index(j).field("restartPolicy"), "RestartContainer", detail);
                }
            }
        }
    }
}

fn ephemeral<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    const ALLOWED: [&str; 16] = [
        "name",
        "image",
        "command",
        "args",
        "workingDir",
        "env",
        "envFrom",
        "volumeMounts",
        "volumeDevices",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "imagePullPolicy",
        "securityContext",
        "stdin",
        "stdinOnce",
        "tty",
    ];
    let others: BTreeSet<&str> =
        ["containers", "initContainers"].iter().flat_map(|f| list(spec, f)).map(|o| text(o, "name")).collect();
    let mut names = others.clone();
    for (i, container) in list(spec, "ephemeralContainers").iter().enumerate() {
        let path = path.index(i);
        c.section("Container", container, &path);
        super::pod::untrimmed_image(c, container, &path);
        let name = text(container, "name");
        if !names.insert(name) {
            c.duplicate(&path.field("name"), name);
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            c.not_found(&path.field("targetContainerName"), target);
        }
        const DETAIL: &str = "cannot be set for an Ephemeral Container";
        // In the order of the Go struct.
        for field in [
            "ports",
            "resources",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
        ] {
            if !ALLOWED.contains(&field) && !is_empty(at(container, field)) {
                c.forbidden(&path.field(field), DETAIL);
            }
        }
        let mounts = path.field("volumeMounts");
        for (j, mount) in list(container, "volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !text(mount, field).is_empty() {
                    c.forbidden(&mounts.index(j).field(field), DETAIL);
                }
            }
        }
    }
}

fn restart_policy<'a>(c: &mut Check<'a>, container: &'a Value, path: &Path<'_>) {
    const POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
    let rules = list(container, "restartPolicyRules");
    let policy_path = path.field("restartPolicy");
    let is_init_without = !has(container, "restartPolicy");
    if is_init_without {
        if rules.is_empty() {
            return;
        }
        c.required(&policy_path, "must specify restartPolicy when restart rules are used");
    } else if !POLICIES.contains(&text(container, "restartPolicy")) {
        c.not_supported(&policy_path, text(container, "restartPolicy"), &POLICIES);
    }
    let rules_path = path.field("restartPolicyRules");
    if rules.len() > RESTART_RULES_MAX {
        c.too_many(&rules_path, rules.len(), RESTART_RULES_MAX);
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = rules_path.index(i);
        let action = text(rule, "action");
        if !matches!(action, "Restart" | "RestartAllContainers") {
            c.not_supported(&path.field("action"), action, &["Restart", "RestartAllContainers"]);
        }
        if !has(rule, "exitCodes") {
            c.required(&path.field("exitCodes"), "must be specified");
            continue;
        }
        let operator = text(rule, "exitCodes.operator");
        if !matches!(operator, "In" | "NotIn") {
            c.not_supported(&path.field("exitCodes.operator"), operator, &["In", "NotIn"]);
        }
        let count = list(rule, "exitCodes.values").len();
        if count > EXIT_CODES_MAX {
            c.too_many(&path.field("exitCodes.values"), count, EXIT_CODES_MAX);
        }
    }
}

fn host_port_conflicts(c: &mut Check<'_>, containers: &[Value], path: &Path<'_>) {
    let mut seen = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        let container_path = path.index(i);
        let ports = container_path.field("ports");
        for (j, port) in list(container, "ports").iter().enumerate().filter(|(_, p)| int(p, "hostPort") != 0) {
            let key = format!("{}/{}/{}", text(port, "protocol"), text(port, "hostIP"), int(port, "hostPort"));
            if !seen.insert(key.clone()) {
                c.duplicate(&ports.index(j).field("hostPort"), key);
            }
        }
    }
}

/// A transport protocol, which is demanded.
pub fn protocol(c: &mut Check<'_>, value: &str, path: &Path<'_>) {
    if value.is_empty() {
        c.required(path, "");
    } else if !PROTOCOLS.contains(&value) {
        c.not_supported(path, value, &PROTOCOLS);
    }
}

/// A number that a port can have.
pub fn port_number(c: &mut Check<'_>, value: i64, path: &Path<'_>) {
    if !(1..=65535).contains(&value) {
        c.invalid(path, value, "must be between 1 and 65535, inclusive");
    }
}

fn container_ports<'a>(c: &mut Check<'a>, ports: &'a Value, path: &Path<'_>) {
    let mut names = BTreeSet::new();
    for (i, port) in ports.as_array().into_iter().flatten().enumerate() {
        let path = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            let problems = formats::port_name(name);
            if problems.is_empty() && !names.insert(name) {
                c.duplicate(&path.field("name"), name);
            }
            c.invalid_each(&path.field("name"), name, problems);
        }
        match int(port, "containerPort") {
            0 => c.required(&path.field("containerPort"), ""),
            number => port_number(c, number, &path.field("containerPort")),
        }
        if int(port, "hostPort") != 0 {
            port_number(c, int(port, "hostPort"), &path.field("hostPort"));
        }
        protocol(c, text(port, "protocol"), &path.field("protocol"));
    }
}

fn volume_mounts<'a>(c: &mut Check<'a>, container: &'a Value, path: &Path<'_>) {
    let list_path = path.field("volumeMounts");
    let devices = list(container, "volumeDevices");
    let mounts = list(container, "volumeMounts");
    for (i, mount) in mounts.iter().enumerate() {
        let path = list_path.index(i);
        let (name, mount_path) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            c.required(&path.field("name"), "");
        }
        if !c.pod.volumes.iter().any(|(n, _)| *n == name) {
            c.not_found(&path.field("name"), name);
        }
        if mount_path.is_empty() {
            c.required(&path.field("mountPath"), "");
        }
        if mounts[..i].iter().any(|o| text(o, "mountPath") == mount_path) {
            c.invalid(&path.field("mountPath"), mount_path, "must be unique");
        }
        if devices.iter().any(|d| text(d, "name") == name) {
            c.invalid(&path.field("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|d| text(d, "devicePath") == mount_path) {
            c.invalid(&path.field("mountPath"), mount_path, "must not already exist as a path in volumeDevices");
        }
        mount_details(c, mount, container, &list_path, &path);
    }
}

/// These findings name the list, not the element, as upstream's do.
fn mount_details(c: &mut Check<'_>, mount: &Value, container: &Value, list_path: &Path<'_>, path: &Path<'_>) {
    let (sub_path, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    if !sub_path.is_empty() {
        c.invalid_each(&list_path.field("subPath"), sub_path, formats::descending_path(sub_path));
    }
    if !expression.is_empty() {
        if !sub_path.is_empty() {
            c.invalid(&path.field("subPathExpr"), expression, "subPathExpr and subPath are mutually exclusive");
        }
        c.invalid_each(&list_path.field("subPathExpr"), expression, formats::descending_path(expression));
    }
    if has(mount, "mountPropagation") {
        let propagation = text(mount, "mountPropagation");
        let at_path = list_path.field("mountPropagation");
        if !matches!(propagation, "Bidirectional" | "HostToContainer" | "None") {
            c.not_supported(&at_path, propagation, &["Bidirectional", "HostToContainer", "None"]);
        }
        if propagation == "Bidirectional" && !flag(container, "securityContext.privileged") {
            c.forbidden(&at_path, "Bidirectional mount propagation is available only to privileged containers");
        }
    }
    if has(mount, "recursiveReadOnly") {
        let at_path = list_path.field("recursiveReadOnly");
        match text(mount, "recursiveReadOnly") {
            "Disabled" => {}
            "Enabled" | "IfPossible" => {
                if !flag(mount, "readOnly") {
                    c.forbidden(&at_path, "may only be specified when readOnly is true");
                }
                if !matches!(text(mount, "mountPropagation"), "" | "None") {
                    c.forbidden(&at_path, "may only be specified when mountPropagation is None or not specified");
                }
            }
            other => c.not_supported(&at_path, other, &["Disabled", "Enabled", "IfPossible"]),
        }
    }
}

fn volume_devices<'a>(c: &mut Check<'a>, container: &'a Value, path: &Path<'_>) {
    let list_path = path.field("volumeDevices");
    let mounts = list(container, "volumeMounts");
    let devices = list(container, "volumeDevices");
    for (i, device) in devices.iter().enumerate() {
        let path = list_path.index(i);
        let (name, device_path) = (text(device, "name"), text(device, "devicePath"));
        let (name_path, path_path) = (path.field("name"), path.field("devicePath"));
        let volume = c.pod.volumes.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        if name.is_empty() {
            c.required(&name_path, "");
        }
        if devices[..i].iter().any(|o| text(o, "name") == name && !name.is_empty()) {
            c.invalid(&name_path, name, "must be unique");
        }
        match volume {
            None => c.not_found(&name_path, name),
            Some(volume)
                if !has(volume, "persistentVolumeClaim") && !has(volume, "ephemeral") && !c.claim_templates.contains(&name) =>
            {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                c.invalid(&name_path, name, detail);
            }
            Some(_) => {}
        }
        if device_path.is_empty() {
            c.required(&path_path, "");
        }
        if devices[..i].iter().any(|o| text(o, "devicePath") == device_path) {
            c.invalid(&path_path, device_path, "must be unique");
        }
        if !formats::no_backsteps(device_path).is_empty() {
            c.invalid(&path_path, device_path, "can not contain backsteps ('..')");
        }
        if mounts.iter().any(|m| text(m, "name") == name) {
            c.invalid(&name_path, name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|m| text(m, "mountPath") == device_path) {
            c.invalid(&path_path, device_path, "must not already exist as a path in volumeMounts");
        }
    }
}
