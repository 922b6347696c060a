//! Pods and pod templates: what spans the parts of a spec.

use serde_json::Value;

use super::super::check::{Check, Hook, PodFrame};
use super::super::path::Path;
use super::super::view::{at, entries, flag, has, int, list, text, texts};
use super::super::{meta, selectors};

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const DNS_NAMESERVERS_MAX: usize = 3;
const DNS_SEARCHES_MAX: usize = 32;
const DNS_SEARCH_CHARS_MAX: usize = 2048;

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "pod" => pod,
        "template_labels" => template_labels,
        "template_annotations" => template_annotations,
        "template_annotations_of_pod" => |c, v, p| {
            c.pod = PodFrame { spec: at(v, "spec"), volumes: Vec::new(), is_pod: false };
            pod_annotations(c, at(v, "metadata"), v, &p.field("annotations"));
        },
        "pod_claims" => pod_claims,
        "host_network_ports" => host_network_ports,
        "dns_config" => dns_config,
        "scheduling_gates" => scheduling_gates,
        "host_users" => host_users,
        "hostname_override" => hostname_override,
        "pod_os" => pod_os,
        "scheduling_group" => scheduling_group,
        "ip_address" => |c, v, p| {
            let text = v.as_str().unwrap_or_default();
            c.invalid_each(p, text, super::super::formats::ip(text));
        },
        "label_name" => |c, v, p| c.qualified_name(p, v.as_str().unwrap_or_default()),
        "secret_name" => |c, v, p| c.subdomain(p, v.as_str().unwrap_or_default()),
        "node_selector" => |c, v, p| selectors::node_selector(c, v, p),
        _ => return None,
    };
    Some(rule)
}

/// A pod as it is created, or as any update leaves it.
pub fn pod<'a>(c: &mut Check<'a>, pod: &'a Value, root: &Path<'_>) {
    metadata_and_spec(c, pod, root);
    if c.is_update() {
        return super::pod_update::pod_update(c, pod, root);
    }
    if !list(pod, "spec.ephemeralContainers").is_empty() {
        c.forbidden(&root.field("spec.ephemeralContainers"), "cannot be set on create");
    }
    if !text(pod, "spec.nodeName").is_empty() && !list(pod, "spec.schedulingGates").is_empty() {
        c.forbidden(&root.field("spec.nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
    super::security::profiles_match(c, pod, root);
}

/// The rules that every write of a pod must keep.
pub fn metadata_and_spec<'a>(c: &mut Check<'a>, pod: &'a Value, root: &Path<'_>) {
    pod_annotations(c, at(pod, "metadata"), pod, &root.field("metadata.annotations"));
    let spec = at(pod, "spec");
    let spec_path = root.field("spec");
    c.pod = PodFrame { spec, volumes: Vec::new(), is_pod: true };
    c.section("PodSpec", spec, &spec_path);
    if text(spec, "serviceAccountName").is_empty() {
        let volumes = spec_path.field("volumes");
        for (i, volume) in list(spec, "volumes").iter().enumerate() {
            for (j, source) in list(volume, "projected.sources").iter().enumerate() {
                if has(source, "serviceAccountToken") {
                    let volume = volumes.index(i);
                    let sources = volume.field("projected.sources");
                    let detail = "must not be specified when serviceAccountName is not set";
                    c.forbidden(&sources.index(j).field("serviceAccountToken"), detail);
                }
            }
        }
    }
    for field in ["containers", "initContainers"] {
        let path = spec_path.field(field);
        for (i, container) in list(spec, field).iter().enumerate() {
            untrimmed_image(c, container, &path.index(i));
        }
    }
}

/// Whitespace around an image: an error in pods, not in templates.
pub fn untrimmed_image(c: &mut Check<'_>, container: &Value, path: &Path<'_>) {
    let image = text(container, "image");
    if image.trim() != image {
        c.invalid(&path.field("image"), image, "must not have leading or trailing whitespace");
    }
}

fn template_labels<'a>(c: &mut Check<'a>, labels: &'a Value, path: &Path<'_>) {
    // The path leaves `metadata` out, as upstream's does.
    let path = path.to_string().replace(".metadata.labels", ".labels");
    c.errors.extend(meta::labels(labels, &path));
}

fn template_annotations<'a>(c: &mut Check<'a>, annotations: &'a Value, path: &Path<'_>) {
    let path = path.to_string().replace(".metadata.annotations", ".annotations");
    c.errors.extend(meta::annotations(annotations, &path));
}

/// Annotations that mean something for the pod. `holder` has the spec.
pub fn pod_annotations(c: &mut Check<'_>, metadata: &Value, holder: &Value, path: &Path<'_>) {
    let all = entries(metadata, "annotations");
    let value = |key: &str| all.iter().find(|(k, _)| *k == key).and_then(|(_, v)| v.as_str());
    if let Some(mirror) = value(MIRROR)
        && text(holder, "spec.nodeName").is_empty()
    {
        c.invalid(&path.key(MIRROR), mirror, "must set spec.nodeName if mirror pod annotation is set");
    }
    if let Some(cost) = value(DELETION_COST) {
        let is_number = cost.parse::<i32>().is_ok_and(|n| {
            !cost.starts_with('+') && (cost == "0" || !cost.trim_start_matches('-').starts_with('0')) && (n != 0 || cost == "0")
        });
        if !is_number {
            c.invalid(&path.key(DELETION_COST), cost, "must be a 32bit integer");
        }
    }
    super::security::profile_annotations(c, &all, at(holder, "spec"), path);
}

fn pod_claims<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let path = path.field("resourceClaims");
    let claims = list(spec, "resourceClaims");
    for (i, claim) in claims.iter().enumerate() {
        let path = path.index(i);
        let name = text(claim, "name");
        if name.is_empty() {
            c.required(&path.field("name"), "");
        } else if claims[..i].iter().any(|o| text(o, "name") == name) {
            c.duplicate(&path.field("name"), name);
        } else {
            c.label(&path.field("name"), name);
        }
        match (has(claim, "resourceClaimName"), has(claim, "resourceClaimTemplateName")) {
            (true, true) => {
                let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                c.invalid(&path, claim.clone(), detail);
            }
            (false, false) => {
                let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                c.invalid(&path, claim.clone(), detail);
            }
            _ => {}
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            if has(claim, field) {
                c.subdomain(&path.field(field), text(claim, field));
            }
        }
    }
}

fn host_network_ports<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    if !flag(spec, "hostNetwork") {
        return;
    }
    let path = path.field("containers");
    for (i, container) in list(spec, "containers").iter().enumerate() {
        let container_path = path.index(i);
        let ports = container_path.field("ports");
        for (j, port) in list(container, "ports").iter().enumerate() {
            let host_port = int(port, "hostPort");
            if (c.pod.is_pod || host_port != 0) && host_port != int(port, "containerPort") {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                c.invalid(&ports.index(j).field("hostPort"), host_port, detail);
            }
        }
    }
}

fn dns_config<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let path = path.field("dnsConfig");
    let config = at(spec, "dnsConfig");
    let nameservers = texts(config, "nameservers");
    if text(spec, "dnsPolicy") == "None" {
        if config.is_null() {
            return c.required(&path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if nameservers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return c.required(&path.field("nameservers"), detail);
        }
    }
    let servers_path = path.field("nameservers");
    if nameservers.len() > DNS_NAMESERVERS_MAX {
        let detail = format!("must not have more than {DNS_NAMESERVERS_MAX} nameservers");
        c.invalid(&servers_path, at(config, "nameservers").clone(), detail);
    }
    for (i, server) in nameservers.iter().enumerate() {
        c.invalid_each(&servers_path.index(i), server, super::super::formats::ip(server));
    }
    let searches = texts(config, "searches");
    let searches_path = path.field("searches");
    if searches.len() > DNS_SEARCHES_MAX {
        let detail = format!("must not have more than {DNS_SEARCHES_MAX} search paths");
        c.invalid(&searches_path, at(config, "searches").clone(), detail);
    }
    if searches.join(" ").len() > DNS_SEARCH_CHARS_MAX {
        let detail = format!("must not have more than {DNS_SEARCH_CHARS_MAX} characters (including spaces) in the search list");
        c.invalid(&searches_path, at(config, "searches").clone(), detail);
    }
    for (i, search) in searches.iter().enumerate().filter(|(_, s)| **s != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        // Underscores are let through besides what a subdomain may have.
        let problems = super::super::names::dns_subdomain(&without_underscores(search)).into_iter().map(with_underscores);
        c.invalid_each(&searches_path.index(i), search, problems.collect());
    }
    let options = path.field("options");
    for (i, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            c.required(&options.index(i), "must not be empty");
        }
    }
}

/// The sentence on subdomains, where underscores are fine too.
fn with_underscores(sentence: String) -> String {
    if !sentence.contains("regex") {
        return sentence;
    }
    super::super::names::pattern_text(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
        "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
        &["example.com"],
    )
}

/// Underscores where the relaxed syntax has them (first in a label, or inside of it) read as letters.
fn without_underscores(search: &str) -> String {
    let labels = search.split('.').map(|label| {
        let label = label.strip_prefix('_').unwrap_or(label);
        let inner = label.trim_end_matches('_').len();
        label.char_indices().map(|(i, ch)| if ch == '_' && i > 0 && i < inner { 'a' } else { ch }).collect::<String>()
    });
    labels.collect::<Vec<_>>().join(".")
}

fn scheduling_gates<'a>(c: &mut Check<'a>, gates: &'a Value, path: &Path<'_>) {
    let gates = gates.as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, gate) in gates.iter().enumerate() {
        let name = text(gate, "name");
        c.qualified_name(&path.index(i), name);
        if gates[..i].iter().any(|o| text(o, "name") == name) {
            c.duplicate(&path.index(i), name);
        }
    }
}

fn host_users<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    if spec.get("hostUsers") != Some(&Value::Bool(false)) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if flag(spec, field) {
            c.forbidden(&path.field(shown), "when `hostUsers` is false");
        }
    }
    super::containers::visit(spec, path, &mut |container, path| {
        if !list(container, "volumeDevices").is_empty() {
            c.forbidden(&path.field("volumeDevices"), "when `hostUsers` is false");
        }
    });
}

fn hostname_override<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    if !has(spec, "hostnameOverride") {
        return;
    }
    let path = path.field("hostnameOverride");
    let name = text(spec, "hostnameOverride");
    if flag(spec, "setHostnameAsFQDN") {
        c.forbidden(&path, "may not be specified when setHostnameAsFQDN is true");
    }
    if flag(spec, "hostNetwork") {
        c.forbidden(&path, "may not be specified when hostNetwork is true");
    }
    if name.len() > 64 {
        c.too_long(&path, 64);
    }
    c.subdomain(&path, name);
}

fn pod_os<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    if !has(spec, "os") {
        return;
    }
    match text(spec, "os.name") {
        "" => c.required(&path.field("os.name"), ""),
        "linux" => super::security::linux_only(c, spec, path),
        "windows" => super::security::windows_only(c, spec, path),
        other => c.not_supported(&path.field("os"), other, &["linux", "windows"]),
    }
}

fn scheduling_group<'a>(c: &mut Check<'a>, group: &'a Value, path: &Path<'_>) {
    let path = path.field("podGroupName");
    match group.get("podGroupName").and_then(Value::as_str) {
        Some(name) => c.subdomain(&path, name),
        None => c.invalid(&path, Value::Null, "must specify one of: `podGroupName`"),
    }
}
