//! Capabilities by name, and what a container's security context leaves of them.

use k8s_openapi::api::core::v1::SecurityContext;

/// Names in the order of the kernel's numbers, from 0.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// What container runtimes leave to root by default.
const DEFAULT: [&str; 13] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SYS_CHROOT",
    "AUDIT_WRITE",
    "SETFCAP",
];

const ALL: u64 = (1 << NAMES.len()) - 1;

fn bit(name: &str) -> u64 {
    let name = name.strip_prefix("CAP_").unwrap_or(name);
    if name == "ALL" {
        return ALL;
    }
    NAMES.iter().position(|n| *n == name).map_or(0, |i| 1 << i)
}

/// Capabilities of a container, one bit each. `add` wins over `drop: [ALL]`.
pub fn of(context: Option<&SecurityContext>) -> u64 {
    let default: u64 = DEFAULT.iter().map(|n| bit(n)).fold(0, |all, b| all | b);
    let Some(context) = context else { return default };
    if context.privileged == Some(true) {
        return ALL;
    }
    let Some(change) = &context.capabilities else { return default };
    let bits = |names: &Option<Vec<String>>| names.iter().flatten().fold(0, |all, name| all | bit(name));
    (default & !bits(&change.drop)) | bits(&change.add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Capabilities;

    #[test]
    fn drop_all_leaves_what_is_added() {
        let capabilities = Capabilities { add: Some(vec!["NET_BIND_SERVICE".into()]), drop: Some(vec!["ALL".into()]) };
        let context = SecurityContext { capabilities: Some(capabilities), ..Default::default() };
        assert_eq!(of(Some(&context)), 1 << 10);
        let privileged = SecurityContext { privileged: Some(true), ..Default::default() };
        assert_eq!(of(Some(&privileged)), ALL);
        assert_eq!(of(None) & bit("SYS_ADMIN"), 0);
    }
}
