//! Test 8: what belongs to one tenant is closed to the other, and gone when its tenant is deleted.

mod access;
mod search;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::{NamespaceResourceScope, Resource};
use kube::api::{ListParams, LogParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::netns::{self, API_PORT};
use super::plane::Plane;
use super::pods::{self, PATIENCE};
use super::{Lab, Tenant, eventually, processes};
use crate::platform::{cluster, process, tenants};
use search::{Found, Search};

/// In both tenants.
const NAMESPACE: &str = "lab-apart";
/// Of the ConfigMap and the Secret in both tenants.
const NAME: &str = "content";
/// How long a deleted Secret may stay in files.
const ERASED_WITHIN: Duration = Duration::from_secs(5);

pub async fn run(lab: &Lab) -> Result<String, String> {
    let nonces = [nonce(), nonce()];
    let (a, b) = tokio::try_join!(pods::open(&lab.a.client, NAMESPACE), pods::open(&lab.b.client, NAMESPACE))?;
    plant(lab, &nonces).await?;
    let (plane_a, plane_b) = tokio::try_join!(Plane::of(lab, &lab.a), Plane::of(lab, &lab.b))?;
    access::by_user_id(&plane_a, &plane_b)?;
    let (seen, ()) = tokio::try_join!(root_pod(lab, &a, &plane_b), leave_traces(lab, &b, &nonces[1]))?;
    let erased = delete(lab, &plane_a, &plane_b, &nonces[1]).await?;
    untouched(lab, &a, &plane_a, &nonces[0]).await?;
    pods::close(&lab.a.client, NAMESPACE).await?;
    Ok(format!(
        "{NAMESPACE}/{NAME} differs in the two; user {} opens its own data file and process, not those of user {}; root in a \
         privileged Pod with hostPID and hostPath / saw {seen} processes of its worker and no other, and not tenant-b's file; \
         tenant-b deleted: {erased}; tenant-a untouched",
        plane_a.process.user, plane_b.process.user
    ))
}

fn nonce() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn reading<T>(name: &str) -> impl Fn(kube::Error) -> String {
    let kind = std::any::type_name::<T>().rsplit("::").next().unwrap_or_default();
    move |e| format!("{kind} {name}: {e}")
}

/// Writes each tenant's nonce under the same names and reads it back.
async fn plant(lab: &Lab, nonces: &[String; 2]) -> Result<(), String> {
    for (tenant, nonce) in [&lab.a, &lab.b].into_iter().zip(nonces) {
        let metadata = json!({ "name": NAME, "namespace": NAMESPACE });
        for object in [
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "nonce": nonce } }),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": { "nonce": nonce } }),
        ] {
            cluster::apply(&tenant.client, &object).await.map_err(|e| e.to_string())?;
        }
    }
    for (tenant, nonce) in [&lab.a, &lab.b].into_iter().zip(nonces) {
        holds(tenant, nonce).await?;
    }
    Ok(())
}

/// The tenant's ConfigMap and Secret hold its nonce.
async fn holds(tenant: &Tenant, nonce: &str) -> Result<(), String> {
    let maps: Api<ConfigMap> = Api::namespaced(tenant.client.clone(), NAMESPACE);
    let secrets: Api<Secret> = Api::namespaced(tenant.client.clone(), NAMESPACE);
    let map = maps.get(NAME).await.map_err(reading::<ConfigMap>(NAME))?.data.unwrap_or_default();
    let secret = secrets.get(NAME).await.map_err(reading::<Secret>(NAME))?.data.unwrap_or_default();
    let is = map.get("nonce").is_some_and(|n| n == nonce) && secret.get("nonce").is_some_and(|n| n.0 == nonce.as_bytes());
    if is { Ok(()) } else { Err(format!("{NAMESPACE}/{NAME} of {} does not hold what was written", tenant.name)) }
}

/// A Pod that looks at these files; `spec` and `container` add to it.
fn looking(lab: &Lab, files: &[PathBuf], volume: serde_json::Value, security: serde_json::Value) -> Result<Pod, String> {
    let mut command = vec!["atoll".to_owned(), "example".to_owned(), "look".to_owned()];
    command.extend(files.iter().map(|file| format!("--read={}", file.display())));
    let privileged = !security.is_null();
    pods::object(json!({
        "metadata": { "name": "look" },
        "spec": {
            "hostPID": privileged, "terminationGracePeriodSeconds": 0, "volumes": [volume],
            "containers": [{
                "name": "work", "image": lab.image, "command": command, "securityContext": security,
                "volumeMounts": [{ "name": "seen", "mountPath": "/seen" }],
            }],
        },
    }))
}

/// What the looking Pod printed, once it has printed all.
async fn looked(api: &Api<Pod>, pod: &Pod) -> Result<Vec<String>, String> {
    api.create(&PostParams::default(), pod).await.map_err(|e| format!("create the Pod that looks: {e}"))?;
    pods::running(api, "look").await?;
    eventually("the Pod has looked", PATIENCE, || async {
        let log = api.logs("look", &LogParams::default()).await.map_err(|e| e.to_string())?;
        let lines: Vec<String> = log.lines().map(str::to_owned).collect();
        if lines.last().is_some_and(|l| l == "looked") { Ok(lines) } else { Err(format!("it says {log:?}")) }
    })
    .await
}

/// Root with all that a Pod can have, on tenant-a's worker. Answers how many processes it saw.
async fn root_pod(lab: &Lab, api: &Api<Pod>, other: &Plane) -> Result<usize, String> {
    let own = Path::new("/etc/kubernetes/bootstrap.kubeconfig");
    let below = |path: &Path| Path::new("/seen").join(path.strip_prefix("/").unwrap_or(path));
    let closed = [below(&other.data_file), other.data_file.clone()];
    let open = [below(own), own.to_owned()];
    let volume = json!({ "name": "seen", "hostPath": { "path": "/" } });
    let pod = looking(lab, &[&open[..], &closed[..]].concat(), volume, json!({ "privileged": true, "runAsUser": 0 }))?;
    let lines = looked(api, &pod).await?;
    let opened = |path: &Path| {
        let suffix = path.display().to_string();
        lines.iter().any(|l| {
            let way = l.strip_prefix("read ").and_then(|l| l.split_once(": "));
            way.is_some_and(|(way, what)| way.ends_with(&suffix) && !what.starts_with("failed: "))
        })
    };
    // By hostPath, and by the root of a process of the worker.
    if !opened(&open[0]) || !opened(Path::new(&format!("/root{}", own.display()))) {
        return Err(format!("root in a Pod does not open its own worker's {}", own.display()));
    }
    if !other.data_file.exists() || opened(&other.data_file) {
        return Err(format!("root in a Pod opens {}", other.data_file.display()));
    }
    let seen: Vec<(String, &str)> = lines.iter().filter_map(|l| process_line(l)).collect();
    let inside = processes::of_worker(lab, &lab.a)?;
    let known = |p: &processes::Process| seen.contains(&(p.started.to_string(), p.arguments.join(" ").as_str()));
    if !inside.iter().any(|p| p.runs(&["node"]) && known(p)) {
        return Err("root in a Pod with hostPID does not see its worker's agent".to_owned());
    }
    let outside = processes::all().into_iter().filter(|p| !p.arguments.is_empty() && !inside.contains(p));
    match outside.into_iter().find(known) {
        Some(process) => Err(format!("root in a Pod sees process {} outside its worker", process.pid)),
        None => Ok(seen.len()),
    }
}

/// Start time and command of `process ID started TICKS: COMMAND`.
fn process_line(line: &str) -> Option<(String, &str)> {
    let (head, command) = line.strip_prefix("process ")?.split_once(": ")?;
    Some((head.split_once(" started ")?.1.to_owned(), command))
}

/// A Pod of tenant-b reads the nonce from its Secret and logs it.
async fn leave_traces(lab: &Lab, api: &Api<Pod>, nonce: &str) -> Result<(), String> {
    let volume = json!({ "name": "seen", "secret": { "secretName": NAME } });
    let pod = looking(lab, &[PathBuf::from("/seen/nonce")], volume, serde_json::Value::Null)?;
    let lines = looked(api, &pod).await?;
    if lines.iter().any(|l| l.ends_with(nonce)) { Ok(()) } else { Err(format!("the Pod of tenant-b read {lines:?}")) }
}

/// Deletes tenant-b. What it was is searched before and after.
async fn delete(lab: &Lab, plane_a: &Plane, plane_b: &Plane, nonce: &str) -> Result<String, String> {
    let key = key_fragment(lab, &lab.b).await?;
    let der = STANDARD_NO_PAD.decode(&key).map_err(|e| format!("the CA key's PEM: {e}"))?;
    let search = Search::new(&[nonce.as_bytes(), key.as_bytes(), &der]);
    let before = everywhere(lab, &search)?;
    let log = lab.dirs.workers().join(format!("{}-worker-1/var/log", lab.b.name));
    for (what, holders) in ["nonce", "fragment of its CA key", "fragment of its CA key in DER"].into_iter().zip(&before.holders) {
        if holders.is_empty() {
            return Err(format!("the {what} is in no file before the deletion: the search does not work"));
        }
    }
    if !before.holders[0].iter().any(|path| path.starts_with(&log)) {
        return Err(format!("the nonce is in no log of tenant-b before the deletion, but in {:?}", before.holders[0]));
    }
    let address = SocketAddr::new(lab.b.address.into(), API_PORT);
    if !netns::connects(Path::new("/proc/self/ns/net"), address).await? {
        return Err(format!("{address} does not answer before the deletion"));
    }
    let own = processes::of_worker(lab, &lab.b)?;
    tenants::delete(&lab.dirs, &lab.management, &lab.b.name).await.map_err(|e| e.to_string())?;
    let deleted = Instant::now();
    let left: Vec<i32> = own.iter().chain([&plane_b.process]).filter(|p| p.is_alive()).map(|p| p.pid).collect();
    if !left.is_empty() {
        return Err(format!("processes {left:?} of tenant-b are left"));
    }
    if netns::connects(Path::new("/proc/self/ns/net"), address).await? {
        return Err(format!("{address} answers after the deletion"));
    }
    none_left::<Secret>(&lab.management, &lab.b.name).await?;
    none_left::<Service>(&lab.management, &lab.b.name).await?;
    none_left::<Deployment>(&lab.management, &lab.b.name).await?;
    none_left::<Pod>(&lab.management, &lab.b.name).await?;
    none_left::<PersistentVolumeClaim>(&lab.management, &lab.b.name).await?;
    if !plane_a.process.is_alive() {
        return Err("tenant-a's process ended with tenant-b's".to_owned());
    }
    let after = eventually("nothing of tenant-b is in any file", ERASED_WITHIN, || async {
        let found = everywhere(lab, &search)?;
        if found.holders.iter().all(Vec::is_empty) { Ok(found) } else { Err(format!("found in {:?}", found.holders)) }
    })
    .await?;
    Ok(format!(
        "its {} processes, address, Secrets and data are gone; nonce and CA key, in {} and {} files before, are in none of {} \
         {:.1} s later",
        own.len() + 1,
        before.holders[0].len(),
        before.holders[1].len(),
        after.files,
        deleted.elapsed().as_secs_f64()
    ))
}

/// A line of the tenant's CA key as PEM has it.
async fn key_fragment(lab: &Lab, tenant: &Tenant) -> Result<String, String> {
    let name = format!("{}-ca", tenant.name);
    let secrets: Api<Secret> = Api::namespaced(lab.management.clone(), cluster::TENANTS);
    let data: BTreeMap<_, _> = secrets.get(&name).await.map_err(reading::<Secret>(&name))?.data.unwrap_or_default();
    let pem = data.get("ca.key").map(|key| String::from_utf8_lossy(&key.0).into_owned()).unwrap_or_default();
    // The first line is the same in every key of its kind.
    let line = pem.lines().filter(|l| !l.starts_with("-----")).nth(1).unwrap_or_default();
    if line.len() < 32 { Err(format!("{name} holds no key")) } else { Ok(line[..32].to_owned()) }
}

/// Every file below the state directory, as this process and as the management node's agent, who may have mounted more, see it.
fn everywhere(lab: &Lab, search: &Search) -> Result<Found, String> {
    let root = lab.dirs.root().canonicalize().map_err(|e| format!("{}: {e}", lab.dirs.root().display()))?;
    let records = process::records(&lab.dirs);
    let agent = records.iter().find(|(name, _)| name == "node").ok_or("there is no record of the management node's agent")?;
    let mounted = Path::new("/proc").join(agent.1.pid.to_string()).join("root").join(root.strip_prefix("/").unwrap_or(&root));
    search.below(&[root, mounted])
}

/// No object of the tenant's control plane is in the management cluster.
async fn none_left<K>(management: &Client, tenant: &str) -> Result<(), String>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope>
        + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(management.clone(), cluster::TENANTS);
    let own = ListParams::default().labels(&format!("kamaji.clastix.io/name={tenant}"));
    let left = api.list(&own).await.map_err(|e| format!("list {}: {e}", <K as Resource>::KIND))?.items.len();
    if left == 0 { Ok(()) } else { Err(format!("{left} {} of {tenant} are left", <K as Resource>::KIND)) }
}

/// Same process, same content, and a GPU Pod runs.
async fn untouched(lab: &Lab, api: &Api<Pod>, plane: &Plane, nonce: &str) -> Result<(), String> {
    holds(&lab.a, nonce).await?;
    let pod = pods::gpu_pod(&lab.image, "untouched", "binpack", &[("gpu", 1), ("gpumem", 100)])?;
    pods::create(api, &pod).await.map_err(|e| format!("tenant-a refuses a GPU Pod: {e}"))?;
    pods::running(api, "untouched").await?;
    if plane.process.is_alive() { Ok(()) } else { Err("tenant-a's process was replaced".to_owned()) }
}
