//! From a container of a Pod to what a runtime starts: environment, mounts, ids, generated files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec, Secret};
use kube::Api;

use super::context::Node;
use super::downward::{Addresses, Allocatable};
use super::env::{self, Sources};
use super::resources;
use crate::error::{Error, Result};
use crate::paths::{make_dir, write_atomic};
use crate::runtime::host::capabilities;
use crate::runtime::host::spec::{BindMount, DeviceNode, Identity};
use crate::runtime::{ContainerSpec, RunKey, Runtime, Sandbox};
use crate::volumes::Source;

/// Where a container leaves its last words, unless it says otherwise.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Everything about a Pod that the start of one of its containers needs.
pub struct Start<'a, R: Runtime> {
    pub node: &'a Node<R>,
    pub pod: &'a Pod,
    pub sandbox: &'a Sandbox,
    pub volumes: &'a BTreeMap<String, Source>,
}

impl<R: Runtime> Start<'_, R> {
    /// The container as the runtime starts it.
    pub async fn container(&self, container: &Container, key: RunKey) -> Result<ContainerSpec> {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let devices = self.node.devices.allocation(&key.pod.uid, &container.name);
        let mut env = self.environment(container).await?;
        env.extend(devices.env.clone());
        let lookup = |name: &str| env.iter().rev().find(|(k, _)| k == name).map(|(_, v)| v.clone());
        let words =
            |list: &Option<Vec<String>>| -> Vec<String> { list.iter().flatten().map(|word| env::expand(word, lookup)).collect() };
        let (command, args) = (words(&container.command), words(&container.args));
        let mut mounts = self.generated(container, &key, &spec)?;
        mounts.extend(self.mounts(container, &env)?);
        mounts.extend(devices.mounts.clone());
        // A mount point inside another mount has to come after it.
        mounts.sort_by_key(|m| m.target.matches('/').count());
        let context = container.security_context.as_ref();
        Ok(ContainerSpec {
            command,
            args,
            env,
            working_dir: container.working_dir.clone().filter(|d| !d.is_empty()),
            hostname: self.hostname(&spec),
            sandbox: self.sandbox.clone(),
            mounts,
            devices: devices.devices.iter().map(device).collect(),
            user: identity(&spec, container)?,
            capabilities: capabilities::of(context),
            no_new_privileges: context.and_then(|c| c.allow_privilege_escalation) == Some(false),
            privileged: context.and_then(|c| c.privileged) == Some(true),
            host_network: spec.host_network == Some(true),
            host_pid: spec.host_pid == Some(true),
            annotations: devices.annotations.clone(),
            limits: resources::limits(container.resources.as_ref()),
            stdin: container.stdin == Some(true),
            stdin_once: container.stdin_once == Some(true),
            tty: container.tty == Some(true),
            key,
        })
    }

    fn hostname(&self, spec: &PodSpec) -> String {
        if spec.host_network == Some(true) {
            return self.node.name.clone();
        }
        let name = spec.hostname.clone().filter(|h| !h.is_empty()).or_else(|| self.pod.metadata.name.clone());
        let mut name = name.unwrap_or_default();
        name.truncate(63);
        name.trim_end_matches(['-', '.']).to_owned()
    }

    async fn environment(&self, container: &Container) -> Result<Vec<(String, String)>> {
        let (config_maps, secrets) = env::references(container);
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut sources = Sources {
            addresses: self.addresses(),
            allocatable: self.allocatable(),
            services: self.node.services.environment(namespace, self.links(), self.node.api_address.as_ref()),
            ..Sources::default()
        };
        let maps: Api<ConfigMap> = Api::namespaced(self.node.client.clone(), namespace);
        for name in config_maps {
            if let Some(map) = maps.get_opt(&name).await? {
                sources.config_maps.insert(name, map);
            }
        }
        let api: Api<Secret> = Api::namespaced(self.node.client.clone(), namespace);
        for name in secrets {
            if let Some(secret) = api.get_opt(&name).await? {
                sources.secrets.insert(name, secret);
            }
        }
        env::build(self.pod, container, &sources).map_err(Error::Config)
    }

    fn links(&self) -> bool {
        self.pod.spec.as_ref().and_then(|s| s.enable_service_links) != Some(false)
    }

    fn addresses(&self) -> Addresses {
        Addresses { pod_ip: self.sandbox.ip.clone(), host_ip: self.node.host_ip.clone() }
    }

    fn allocatable(&self) -> Allocatable {
        self.node.allocatable.read().clone()
    }

    /// The mounts that the container asks for.
    fn mounts(&self, container: &Container, env: &[(String, String)]) -> Result<Vec<BindMount>> {
        let lookup = |name: &str| env.iter().rev().find(|(k, _)| k == name).map(|(_, v)| v.clone());
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let source = self.volumes.get(&mount.name);
            let source = source.ok_or_else(|| Error::Config(format!("there is no volume {:?}", mount.name)))?;
            let sub_path = match &mount.sub_path_expr {
                Some(text) if !text.is_empty() => env::expand(text, lookup),
                _ => mount.sub_path.clone().unwrap_or_default(),
            };
            if !sub_path.is_empty() && !crate::volumes::is_inside(&sub_path) {
                return Err(Error::Config(format!("subPath {sub_path:?} leads out of volume {:?}", mount.name)));
            }
            let separator = if source.path.is_empty() || sub_path.is_empty() { "" } else { "/" };
            mounts.push(BindMount {
                base: source.base.clone(),
                path: format!("{}{separator}{sub_path}", source.path),
                target: mount.mount_path.clone(),
                read_only: source.read_only || mount.read_only == Some(true),
                create: source.create || !sub_path.is_empty() && !source.read_only,
            });
        }
        Ok(mounts)
    }

    /// `/etc/hosts`, `/etc/hostname`, `/etc/resolv.conf` and the file for last words.
    fn generated(&self, container: &Container, key: &RunKey, spec: &PodSpec) -> Result<Vec<BindMount>> {
        let directory = self.node.paths.pod(&key.pod.uid);
        let hostname = self.hostname(spec);
        let hosts = hosts(spec, &self.sandbox.ip, &hostname, &self.node.cluster_domain, &key.pod.namespace);
        let taken = |target: &str| container.volume_mounts.iter().flatten().any(|m| m.mount_path == target);
        let mut mounts = Vec::new();
        for (name, content) in
            [("hosts", hosts), ("hostname", format!("{hostname}\n")), ("resolv.conf", self.resolv_conf(spec, &key.pod.namespace))]
        {
            let path = directory.join(name);
            if !path.exists() {
                write_atomic(&path, content.as_bytes(), 0o644)?;
            }
            let target = format!("/etc/{name}");
            if !taken(&target) {
                mounts.push(file_mount(&directory, name, &target));
            }
        }
        let run = self.node.paths.container(&key.pod.uid, &key.container, key.attempt);
        make_dir(&run, 0o755)?;
        let words = termination_log(&run);
        write_atomic(&words, b"", 0o666)?;
        fs::set_permissions(&words, fs::Permissions::from_mode(0o666)).map_err(Error::file(&words))?;
        let target = container.termination_message_path.as_deref().filter(|p| !p.is_empty()).unwrap_or(TERMINATION_LOG);
        mounts.push(BindMount { read_only: false, ..file_mount(&run, "termination-log", target) });
        Ok(mounts)
    }

    fn resolv_conf(&self, spec: &PodSpec, namespace: &str) -> String {
        let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
        let cluster = policy == "ClusterFirstWithHostNet" || policy == "ClusterFirst" && spec.host_network != Some(true);
        let own = || fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let domain = &self.node.cluster_domain;
        let mut text = match policy {
            "None" => String::new(),
            _ if cluster && !self.node.dns.is_empty() => {
                let servers: String = self.node.dns.iter().map(|s| format!("nameserver {s}\n")).collect();
                format!("search {namespace}.svc.{domain} svc.{domain} {domain}\n{servers}options ndots:5\n")
            }
            _ => own(),
        };
        if let Some(config) = &spec.dns_config {
            for server in config.nameservers.iter().flatten() {
                text.push_str(&format!("nameserver {server}\n"));
            }
            if let Some(searches) = config.searches.as_ref().filter(|s| !s.is_empty()) {
                text.push_str(&format!("search {}\n", searches.join(" ")));
            }
            for option in config.options.iter().flatten() {
                let value = option.value.as_ref().map(|v| format!(":{v}")).unwrap_or_default();
                text.push_str(&format!("options {}{value}\n", option.name.as_deref().unwrap_or_default()));
            }
        }
        text
    }
}

/// File of a run in which the container leaves its last words.
pub fn termination_log(run: &std::path::Path) -> PathBuf {
    run.join("termination-log")
}

fn file_mount(base: &std::path::Path, path: &str, target: &str) -> BindMount {
    BindMount { base: base.to_owned(), path: path.to_owned(), target: target.to_owned(), read_only: true, create: false }
}

fn device(device: &crate::devices::Device) -> DeviceNode {
    DeviceNode { host_path: device.host_path.clone(), container_path: device.container_path.clone() }
}

fn hosts(spec: &PodSpec, ip: &str, hostname: &str, domain: &str, namespace: &str) -> String {
    let mut text = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n".to_owned();
    match spec.subdomain.as_deref().filter(|s| !s.is_empty()) {
        Some(subdomain) => text.push_str(&format!("{ip}\t{hostname}.{subdomain}.{namespace}.svc.{domain}\t{hostname}\n")),
        None => text.push_str(&format!("{ip}\t{hostname}\n")),
    }
    for alias in spec.host_aliases.iter().flatten() {
        let names = alias.hostnames.clone().unwrap_or_default();
        text.push_str(&format!("{}\t{}\n", alias.ip, names.join("\t")));
    }
    text
}

/// User and groups: the container's own, then the Pod's, then root's.
fn identity(spec: &PodSpec, container: &Container) -> Result<Identity> {
    let pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let id = |value: i64| u32::try_from(value).map_err(|_| Error::Config(format!("{value} is not a user or group id")));
    let uid = id(own.run_as_user.or(pod.run_as_user).unwrap_or(0))?;
    let gid = id(own.run_as_group.or(pod.run_as_group).unwrap_or(0))?;
    if uid == 0 && own.run_as_non_root.or(pod.run_as_non_root) == Some(true) {
        return Err(Error::Config(
            "container has runAsNonRoot and image will run as root (set runAsUser to another user)".to_owned(),
        ));
    }
    let mut groups =
        pod.supplemental_groups.iter().flatten().chain(&pod.fs_group).copied().map(id).collect::<Result<Vec<_>>>()?;
    groups.sort_unstable();
    groups.dedup();
    Ok(Identity { uid, gid, groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(value: serde_json::Value) -> PodSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_containers_own_ids_win_and_root_can_be_forbidden() {
        let spec = spec(serde_json::json!({
            "containers": [{"name": "c", "securityContext": {"runAsUser": 7}}],
            "securityContext": {"runAsUser": 5, "runAsGroup": 6, "fsGroup": 9, "supplementalGroups": [8], "runAsNonRoot": true}
        }));
        let identity_of = identity(&spec, &spec.containers[0]).unwrap();
        assert_eq!(identity_of, Identity { uid: 7, gid: 6, groups: vec![8, 9] });
        let mut root = spec.containers[0].clone();
        root.security_context.as_mut().unwrap().run_as_user = Some(0);
        assert!(identity(&spec, &root).unwrap_err().to_string().contains("runAsNonRoot"));
    }

    #[test]
    fn hosts_name_the_pod_and_its_aliases() {
        let spec = spec(serde_json::json!({"containers": [], "subdomain": "s",
            "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]}));
        let text = hosts(&spec, "10.0.0.2", "p", "cluster.local", "n");
        assert!(text.ends_with("10.0.0.2\tp.s.n.svc.cluster.local\tp\n1.2.3.4\ta\tb\n"), "{text}");
    }
}
