//! Security contexts: profiles, sysctls, and what belongs to one operating system.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::formats;
use super::super::path::Path;
use super::super::view::{at, flag, has, is_empty, map, text, texts};

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// Prefix of the deprecated annotations that name AppArmor profiles.
pub const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const APP_ARMOR_PROFILE_BYTES_MAX: usize = 4095;
const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const SYSCTL_CHARS_MAX: usize = 253;

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "share_process_namespace" => share_process_namespace,
        "sysctls" => sysctls,
        "seccomp_profile" => seccomp_profile,
        "app_armor_profile" => app_armor_profile,
        "windows_options" => windows_options,
        "proc_mount" => proc_mount,
        "privilege_escalation" => privilege_escalation,
        "windows_host_process" => windows_host_process,
        "profiles_match" => profiles_match,
        _ => return None,
    };
    Some(rule)
}

fn share_process_namespace<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    if has(spec, "securityContext") && flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        c.invalid(&path.field("securityContext.shareProcessNamespace"), true, detail);
    }
}

fn is_sysctl_name(name: &str) -> bool {
    let is_edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_segment = |s: &str| {
        let bytes = s.as_bytes();
        matches!((bytes.first(), bytes.last()), (Some(&a), Some(&z)) if is_edge(a) && is_edge(z))
            && bytes.iter().all(|&b| is_edge(b) || b == b'-' || b == b'_')
    };
    name.len() <= SYSCTL_CHARS_MAX && name.split(['.', '/']).all(is_segment)
}

/// The kernel namespace of a sysctl: `net` or `ipc`, if it has one.
fn sysctl_namespace(name: &str) -> &'static str {
    let name = name.replace('/', ".");
    if name.starts_with("net.") {
        "net"
    } else if name.starts_with("fs.mqueue.")
        || ["kernel.shm", "kernel.msg"].iter().any(|p| name.starts_with(p))
        || name == "kernel.sem"
    {
        "ipc"
    } else {
        ""
    }
}

fn sysctls<'a>(c: &mut Check<'a>, sysctls: &'a Value, path: &Path<'_>) {
    let all = sysctls.as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, sysctl) in all.iter().enumerate() {
        let path = path.index(i);
        let path = path.field("name");
        let name = text(sysctl, "name");
        if name.is_empty() {
            c.required(&path, "");
        } else if !is_sysctl_name(name) {
            let detail = format!(
                "must have at most {SYSCTL_CHARS_MAX} characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            );
            c.invalid(&path, name, detail);
        } else if all[..i].iter().any(|o| text(o, "name") == name) {
            c.duplicate(&path, name);
        }
        match sysctl_namespace(name) {
            "net" if flag(c.pod.spec, "hostNetwork") => c.invalid(&path, name, "may not be specified when 'hostNetwork' is true"),
            "ipc" if flag(c.pod.spec, "hostIPC") => c.invalid(&path, name, "may not be specified when 'hostIPC' is true"),
            _ => {}
        }
    }
}

fn seccomp_profile<'a>(c: &mut Check<'a>, profile: &'a Value, path: &Path<'_>) {
    let kind = text(profile, "type");
    match kind {
        "" => c.required(&path.field("type"), "type is required when seccompProfile is set"),
        _ if !TYPES.contains(&kind) => c.not_supported(&path.field("type"), kind, &TYPES),
        _ => {}
    }
    let place = path.field("localhostProfile");
    match (kind == "Localhost", profile.get("localhostProfile").and_then(Value::as_str)) {
        (true, None) => c.required(&place, "must be set when seccomp type is Localhost"),
        (true, Some(file)) => c.invalid_each(&place, file, formats::descending_path(file)),
        (false, Some(_)) => c.invalid(&place, profile.clone(), "can only be set when seccomp type is Localhost"),
        (false, None) => {}
    }
}

fn app_armor_profile<'a>(c: &mut Check<'a>, profile: &'a Value, path: &Path<'_>) {
    let place = path.field("localhostProfile");
    let local = profile.get("localhostProfile").and_then(Value::as_str);
    match (text(profile, "type"), local) {
        ("Localhost", None) => c.required(&place, "must be set when AppArmor type is Localhost"),
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                c.invalid(&place, name, "must not be padded with whitespace");
            } else if name.is_empty() {
                c.required(&place, "must be set when AppArmor type is Localhost");
            }
            if name.len() > APP_ARMOR_PROFILE_BYTES_MAX {
                c.too_long(&place, APP_ARMOR_PROFILE_BYTES_MAX);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            c.invalid(&place, name, "can only be set when AppArmor type is Localhost")
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => c.required(&path.field("type"), "type is required when appArmorProfile is set"),
        (other, _) => c.not_supported(&path.field("type"), other, &TYPES),
    }
}

fn proc_mount<'a>(c: &mut Check<'a>, context: &'a Value, path: &Path<'_>) {
    let has_host_users = c.pod.spec.get("hostUsers") != Some(&Value::Bool(false));
    if has_host_users && text(context, "procMount") == "Unmasked" {
        c.invalid(&path.field("procMount"), "Unmasked", "`hostUsers` must be false to use `Unmasked`");
    }
}

fn privilege_escalation<'a>(c: &mut Check<'a>, context: &'a Value, path: &Path<'_>) {
    if context.get("allowPrivilegeEscalation") != Some(&Value::Bool(false)) {
        return;
    }
    if flag(context, "privileged") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        c.invalid(path, context.clone(), detail);
    }
    if texts(context, "capabilities.add").contains(&"CAP_SYS_ADMIN") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        c.invalid(path, context.clone(), detail);
    }
}

fn windows_options<'a>(c: &mut Check<'a>, options: &'a Value, path: &Path<'_>) {
    if has(options, "gmsaCredentialSpecName") {
        c.subdomain(&path.field("gmsaCredentialSpecName"), text(options, "gmsaCredentialSpecName"));
    }
    if let Some(spec) = options.get("gmsaCredentialSpec").and_then(Value::as_str) {
        let place = path.field("gmsaCredentialSpec");
        if spec.is_empty() {
            c.invalid(&place, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > 64 * 1024 {
            c.invalid(&place, spec, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if let Some(name) = options.get("runAsUserName").and_then(Value::as_str) {
        for detail in windows_user(name) {
            c.invalid(&path.field("runAsUserName"), name, detail);
        }
    }
}

fn windows_user(name: &str) -> Vec<&'static str> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string"];
    }
    if name.chars().any(char::is_control) {
        return vec!["runAsUserName cannot contain control characters"];
    }
    if name.matches('\\').count() > 1 {
        return vec!["runAsUserName cannot contain more than one backslash"];
    }
    let mut out = Vec::new();
    let (domain, user) = name.split_once('\\').map_or((None, name), |(d, u)| (Some(d), u));
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            out.push("runAsUserName's Domain length must be under 256 characters");
        }
        let is_net_bios = (1..=15).contains(&domain.chars().count())
            && !domain.starts_with('.')
            && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|']);
        let is_dns =
            domain.split('.').all(|label| label.len() <= 63 && super::super::names::dns_label(&label.to_lowercase()).is_empty());
        if !is_net_bios && !is_dns {
            out.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        out.push("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        out.push("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|ch| ch == '.' || ch == ' ') {
        out.push("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        out.push("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
    out
}

fn windows_host_process<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    let host_process = |holder: &Value| at(holder, "securityContext.windowsOptions.hostProcess").as_bool();
    let of_pod = host_process(spec);
    let (mut count, mut host_count) = (0, 0);
    super::containers::visit(spec, path, &mut |container, path| {
        count += 1;
        let own = host_process(container);
        if let (Some(pod), Some(own)) = (of_pod, own)
            && pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            c.invalid(&path.field("securityContext.windowsOptions.hostProcess"), own, detail);
        }
        host_count += usize::from(own.or(of_pod) == Some(true));
    });
    if host_count == 0 {
        return;
    }
    if host_count != count {
        c.invalid(path, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers");
    }
    if !flag(spec, "hostNetwork") {
        c.invalid(&path.field("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers");
    }
}

/// What a pod for Linux may not have.
pub fn linux_only<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    const DETAIL: &str = "windows options cannot be set for a linux pod";
    const FIELD: &str = "securityContext.windowsOptions";
    if has(spec, FIELD) {
        c.forbidden(&path.field(FIELD), DETAIL);
    }
    super::containers::visit(spec, path, &mut |container, path| {
        if has(container, FIELD) {
            c.forbidden(&path.field(FIELD), DETAIL);
        }
    });
}

/// What a pod for Windows may not have.
pub fn windows_only<'a>(c: &mut Check<'a>, spec: &'a Value, path: &Path<'_>) {
    const POD: &str = "securityContext.appArmorProfile securityContext.seLinuxOptions hostUsers hostPID hostIPC \
        securityContext.seccompProfile securityContext.fsGroup securityContext.fsGroupChangePolicy securityContext.sysctls \
        shareProcessNamespace securityContext.runAsUser securityContext.runAsGroup securityContext.supplementalGroups \
        securityContext.supplementalGroupsPolicy securityContext.seLinuxChangePolicy";
    const CONTAINER: &str = "appArmorProfile seLinuxOptions seccompProfile capabilities readOnlyRootFilesystem privileged \
        allowPrivilegeEscalation procMount runAsUser runAsGroup";
    const DETAIL: &str = "cannot be set for a windows pod";
    for field in POD.split(' ') {
        let value = at(spec, field);
        let is_unset = value.is_null()
            || (is_empty(value) && value.is_array())
            || (matches!(field, "hostPID" | "hostIPC") && *value == Value::Bool(false));
        if !is_unset {
            c.forbidden(&path.field(field), DETAIL);
        }
    }
    super::containers::visit(spec, path, &mut |container, path| {
        let path = path.field("securityContext");
        for field in CONTAINER.split(' ') {
            if has(at(container, "securityContext"), field) {
                c.forbidden(&path.field(field), DETAIL);
            }
        }
    });
}

/// Deprecated annotations that name profiles.
pub fn profile_annotations(c: &mut Check<'_>, annotations: &[(&str, &Value)], spec: &Value, path: &Path<'_>) {
    let mut containers = BTreeSet::new();
    super::containers::visit(spec, path, &mut |container, _| {
        containers.insert(text(container, "name"));
    });
    for (key, value) in annotations {
        let value = value.as_str().unwrap_or_default();
        if *key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            let place = path.field(key);
            match value.strip_prefix("localhost/") {
                Some(file) => c.invalid_each(&place, file, formats::descending_path(file)),
                None if !matches!(value, "runtime/default" | "docker/default" | "unconfined") => {
                    c.invalid(&place, value, "must be a valid seccomp profile");
                }
                None => {}
            }
        }
    }
    for (key, value) in annotations {
        let Some(name) = key.strip_prefix(APP_ARMOR) else { continue };
        let value = value.as_str().unwrap_or_default();
        if !containers.contains(name) {
            c.invalid(&path.key(key), name, "container not found");
        }
        if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with("localhost/") {
            c.invalid(&path.key(key), value, format!("invalid AppArmor profile name: {value:?}"));
        }
    }
}

/// Profiles by field and by annotation must say the same, on create.
pub fn profiles_match<'a>(c: &mut Check<'a>, holder: &'a Value, path: &Path<'_>) {
    let spec = at(holder, "spec");
    let annotations = map(holder, "metadata.annotations");
    let annotation = |key: &str| annotations.and_then(|a| a.get(key)).and_then(Value::as_str);
    let path = path.field("spec");
    const SECCOMP: &str = "securityContext.seccompProfile";
    if let Some(value) = annotation(SECCOMP_POD).filter(|_| has(spec, SECCOMP)) {
        matches_field(c, "seccomp", value, at(spec, SECCOMP), &path.field(SECCOMP));
    }
    super::containers::visit(spec, &path, &mut |container, path| {
        let name = text(container, "name");
        let key = format!("{SECCOMP_CONTAINER}{name}");
        if let Some(value) = annotation(&key).filter(|_| has(container, SECCOMP)) {
            matches_field(c, "seccomp", value, at(container, SECCOMP), &path.field(SECCOMP));
        }
    });
    if text(spec, "os.name") == "windows" {
        return;
    }
    const ARMOR: &str = "securityContext.appArmorProfile";
    super::containers::visit(spec, &path, &mut |container, path| {
        let own = at(container, ARMOR);
        let profile = if own.is_null() { at(spec, ARMOR) } else { own };
        let key = format!("{APP_ARMOR}{}", text(container, "name"));
        if let Some(value) = annotation(&key).filter(|_| !is_empty(profile)) {
            matches_field(c, "apparmor", value, profile, &path.field(ARMOR));
        }
    });
}

fn matches_field(c: &mut Check<'_>, what: &str, annotation: &str, profile: &Value, path: &Path<'_>) {
    let is_same_type = match text(profile, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default"),
        "Localhost" => annotation.starts_with("localhost/"),
        _ => true,
    };
    if !is_same_type {
        c.forbidden(&path.field("type"), format!("{what} type in annotation and field must match"));
    } else if let Some(file) = annotation.strip_prefix("localhost/").filter(|_| text(profile, "type") == "Localhost")
        && profile.get("localhostProfile").and_then(Value::as_str) != Some(file)
    {
        c.forbidden(&path.field("localhostProfile"), format!("{what} profile in annotation and field must match"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sysctls_and_users() {
        assert!(is_sysctl_name("net.ipv4/conf.a-b") && !is_sysctl_name("net..a") && !is_sysctl_name("Net.a"));
        assert_eq!(sysctl_namespace("kernel.shmmax"), "ipc");
        assert!(windows_user("NT AUTHORITY\\SYSTEM").is_empty());
        assert_eq!(windows_user("a\\b\\c").len(), 1);
    }
}
