//! Workers: declared as ConfigMaps in the management cluster, made and kept by the supervisor.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::time::Duration;

use atoll_node::worker::{self, Worker, WorkerSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::watch;
use tracing::{info, warn};

use super::cluster::{self, NAMESPACE};
use super::net::{self, Names, Permit, Plan};
use super::process::ProcessSpec;
use super::{Dirs, Error};

/// Label of the ConfigMaps that declare workers.
pub const LABEL: &str = "atoll.dev/worker";
/// Workers on one machine.
pub const WORKERS_MAX: u16 = 250;
/// First user id of the first worker; each has a range of its own.
const FIRST_ID: u32 = 1_000_000;
/// Between two looks at what a worker waits for.
const LOOK: Duration = Duration::from_millis(100);
/// Before a worker that could not be made is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How long the kernel may take to end a worker's processes.
const END_PATIENCE: Duration = Duration::from_secs(10);
const END_LOOK: Duration = Duration::from_millis(10);
/// Life of a worker's bootstrap token in seconds.
const TOKEN_SECONDS: i64 = 3600;

/// One worker as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Number on this machine: its address, ids and namespace follow from it.
    pub index: u16,
    /// Name of the Node.
    pub name: String,
    pub tenant: String,
    /// Simulated cards, such as `2xA100-80GB`.
    pub cards: Option<String>,
    pub simulate: bool,
}

impl Declaration {
    fn to_config_map(&self) -> ConfigMap {
        let mut data = BTreeMap::from([
            ("name".to_owned(), self.name.clone()),
            ("tenant".to_owned(), self.tenant.clone()),
            ("simulate".to_owned(), self.simulate.to_string()),
        ]);
        if let Some(cards) = &self.cards {
            data.insert("cards".to_owned(), cards.clone());
        }
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(format!("worker-{}", self.index)),
                labels: Some(BTreeMap::from([(LABEL.to_owned(), self.tenant.clone())])),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        }
    }

    /// Reads a declaration; one that does not parse is nobody's worker.
    pub fn of(config_map: &ConfigMap) -> Option<Declaration> {
        let index = config_map.metadata.name.as_ref()?.strip_prefix("worker-")?.parse().ok()?;
        let data = config_map.data.as_ref()?;
        Some(Declaration {
            index,
            name: data.get("name")?.clone(),
            tenant: data.get("tenant")?.clone(),
            cards: data.get("cards").cloned(),
            simulate: data.get("simulate").is_some_and(|s| s == "true"),
        })
    }

    fn first_id(&self) -> u32 {
        FIRST_ID + u32::from(self.index) * worker::IDS
    }
}

/// All declared workers, by number.
pub async fn declared(management: &Client) -> Result<Vec<Declaration>, Error> {
    let api: Api<ConfigMap> = Api::namespaced(management.clone(), NAMESPACE);
    let listed = api.list(&ListParams::default().labels(LABEL)).await.map_err(Error::api("list workers"))?;
    let mut found: Vec<Declaration> = listed.iter().filter_map(Declaration::of).collect();
    found.sort_by_key(|d| d.index);
    Ok(found)
}

/// Declares a worker under the lowest free number.
pub async fn declare(management: &Client, tenant: &str, cards: Option<&str>, simulate: bool) -> Result<Declaration, Error> {
    let api: Api<ConfigMap> = Api::namespaced(management.clone(), NAMESPACE);
    for index in 1..=WORKERS_MAX {
        let known = declared(management).await?;
        if known.iter().any(|d| d.index == index) {
            continue;
        }
        let number = known.iter().filter(|d| d.tenant == tenant).count() + 1;
        let declaration = Declaration {
            index,
            name: format!("{tenant}-worker-{number}"),
            tenant: tenant.to_owned(),
            cards: cards.map(str::to_owned),
            simulate,
        };
        match api.create(&PostParams::default(), &declaration.to_config_map()).await {
            Ok(_) => return Ok(declaration),
            // Somebody was faster: the next number.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Error::api("declare a worker")(error)),
        }
    }
    Err(Error::Invalid(format!("there are {WORKERS_MAX} workers already")))
}

/// What the supervisor knows about the machine.
#[derive(Clone)]
pub struct Machine {
    pub dirs: Dirs,
    pub plan: Plan,
    pub names: Names,
    pub program: PathBuf,
    pub image: String,
    pub management: Client,
}

impl Machine {
    fn root_of(&self, declaration: &Declaration) -> PathBuf {
        self.dirs.workers().join(&declaration.name)
    }

    fn record_of(&self, declaration: &Declaration) -> PathBuf {
        self.dirs.processes().join(format!("{}.worker", declaration.name))
    }
}

/// Makes one worker and keeps its agent running until `stop` turns true.
pub async fn keep(machine: &Machine, declaration: &Declaration, stop: watch::Receiver<bool>) {
    let mut stopping = stop.clone();
    loop {
        let made = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return,
            made = make(machine, declaration) => made,
        };
        match made {
            Ok(process) => {
                if let Err(error) = process.keep(&machine.dirs, || None, stop.clone()).await {
                    warn!(worker = declaration.name, %error, "agent");
                }
            }
            Err(error) => warn!(worker = declaration.name, %error, "not made, tried again"),
        }
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

async fn make(machine: &Machine, declaration: &Declaration) -> Result<ProcessSpec, Error> {
    let (kubeconfig, address, ports) = wait_for_tenant(machine, &declaration.tenant).await?;
    let record = machine.record_of(declaration);
    let root = machine.root_of(declaration);
    if living(&record).is_none() {
        let mut spec = WorkerSpec::new(&declaration.name, root.clone(), declaration.first_id(), machine.program.clone());
        // Two platforms on one machine may have workers of the same name.
        spec.cgroup_parent = format!("{}/{}", machine.names.platform(), declaration.name);
        let made = worker::spawn(&spec, &record).map_err(|e| Error::Invalid(format!("worker {}: {e}", declaration.name)))?;
        net::attach_worker(&machine.plan, &machine.names, declaration.index, made.init.pid)?;
        info!(worker = declaration.name, pid = made.init.pid, "worker made");
    }
    let own = Permit { index: declaration.index, tenant_address: address, ports };
    net::apply_filters(&machine.plan, &machine.names, &permits(machine, Some(own)).await?)?;
    let bootstrap = root.join("etc/kubernetes/bootstrap.kubeconfig");
    if !bootstrap.exists() {
        let tenant = cluster::client_of(&kubeconfig).await?;
        let token = make_token(&tenant).await?;
        write_private(&bootstrap, &bootstrap_kubeconfig(&kubeconfig, &token)?, declaration.first_id())?;
    }
    let mut arguments = vec![
        "node".to_owned(),
        format!("--name={}", declaration.name),
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap.kubeconfig".to_owned(),
        "--root=/".to_owned(),
        format!("--image={}", machine.image),
        format!("--node-ip={}", machine.plan.worker(declaration.index)),
        format!("--pod-cidr=10.244.{}.0/24", declaration.index),
    ];
    if let Some(cards) = &declaration.cards {
        arguments.push(format!("--cards={cards}"));
        arguments.push("--label=gpu=on".to_owned());
    }
    if declaration.simulate {
        arguments.push("--simulate".to_owned());
    }
    Ok(ProcessSpec {
        name: declaration.name.clone(),
        program: machine.program.clone(),
        args: Worker::arguments(&record, &arguments),
        namespace: None,
        environment: Vec::new(),
    })
}

fn living(record: &std::path::Path) -> Option<Worker> {
    let worker: Worker = serde_json::from_slice(&std::fs::read(record).ok()?).ok()?;
    worker.is_alive().then_some(worker)
}

/// The tenant's kubeconfig, load-balancer address and ports, once it is Ready.
async fn wait_for_tenant(machine: &Machine, tenant: &str) -> Result<(String, Ipv4Addr, Vec<u16>), Error> {
    loop {
        if let Some(status) = cluster::tenant_status(&machine.management, tenant).await? {
            let ready = status.pointer("/kubernetesResources/version/status").and_then(Value::as_str) == Some("Ready");
            let endpoint = status["controlPlaneEndpoint"].as_str().and_then(|e| e.parse::<std::net::SocketAddrV4>().ok());
            if let (true, Some(endpoint)) = (ready, endpoint)
                && let Some(kubeconfig) = cluster::tenant_kubeconfig(&machine.management, tenant).await?
            {
                return Ok((kubeconfig, *endpoint.ip(), vec![endpoint.port(), TUNNEL_PORT]));
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Port of the tunnel on a tenant's address, Kamaji's default.
const TUNNEL_PORT: u16 = 8132;

/// Loads the filters for the workers that are declared now.
pub async fn filter(machine: &Machine) -> Result<(), Error> {
    net::apply_filters(&machine.plan, &machine.names, &permits(machine, None).await?)
}

/// What each declared worker may reach: its tenant. That of `own` is known already.
async fn permits(machine: &Machine, own: Option<Permit>) -> Result<Vec<Permit>, Error> {
    let own_index = own.as_ref().map(|own| own.index);
    let mut permits = Vec::from_iter(own);
    for other in declared(&machine.management).await?.into_iter().filter(|d| Some(d.index) != own_index) {
        let status = cluster::tenant_status(&machine.management, &other.tenant).await?;
        let endpoint = status.as_ref().and_then(|s| s["controlPlaneEndpoint"].as_str());
        if let Some(endpoint) = endpoint.and_then(|e| e.parse::<std::net::SocketAddrV4>().ok()) {
            let ports = vec![endpoint.port(), TUNNEL_PORT];
            permits.push(Permit { index: other.index, tenant_address: *endpoint.ip(), ports });
        }
    }
    Ok(permits)
}

fn random_text(length: usize) -> String {
    const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut rng = rand::rng();
    (0..length).map(|_| char::from(ALPHABET[rand::Rng::random_range(&mut rng, 0..ALPHABET.len())])).collect()
}

/// A bootstrap token in the tenant: kubeadm's form, for one hour.
async fn make_token(tenant: &Client) -> Result<String, Error> {
    let (id, secret) = (random_text(6), random_text(16));
    let expiration = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() + TOKEN_SECONDS)
        .map_err(|e| Error::Invalid(e.to_string()))?
        .to_string();
    let fields = [
        ("token-id", id.as_str()),
        ("token-secret", &secret),
        ("expiration", &expiration),
        ("usage-bootstrap-authentication", "true"),
        ("usage-bootstrap-signing", "true"),
        ("auth-extra-groups", "system:bootstrappers:kubeadm:default-node-token"),
    ];
    let object = Secret {
        metadata: ObjectMeta { name: Some(format!("bootstrap-token-{id}")), ..ObjectMeta::default() },
        type_: Some("bootstrap.kubernetes.io/token".to_owned()),
        string_data: Some(fields.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()),
        ..Secret::default()
    };
    let api: Api<Secret> = Api::namespaced(tenant.clone(), "kube-system");
    api.create(&PostParams::default(), &object).await.map_err(Error::api("make a bootstrap token"))?;
    Ok(format!("{id}.{secret}"))
}

/// The tenant's kubeconfig with the token in place of the administrator's certificate.
fn bootstrap_kubeconfig(admin: &str, token: &str) -> Result<String, Error> {
    let parsed = kube::config::Kubeconfig::from_yaml(admin).map_err(|e| Error::Invalid(e.to_string()))?;
    let cluster = parsed.clusters.first().and_then(|c| c.cluster.as_ref());
    let server = cluster.and_then(|c| c.server.clone()).unwrap_or_default();
    let ca = cluster.and_then(|c| c.certificate_authority_data.clone()).unwrap_or_default();
    let ca = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, ca)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| Error::Invalid("the tenant's kubeconfig has no CA".to_owned()))?;
    let kubeconfig = atoll_pki::Kubeconfig {
        cluster: atoll_pki::ClusterEntry { name: "tenant", server: &server, ca_pem: &ca, tls_server_name: None },
        user_name: "bootstrap",
        credentials: atoll_pki::UserCredentials::Token(token),
        namespace: None,
    };
    Ok(kubeconfig.to_yaml())
}

/// Writes a file that only the worker's root can read.
fn write_private(path: &std::path::Path, text: &str, owner: u32) -> Result<(), Error> {
    let write = || -> std::io::Result<()> {
        let mut made = Vec::new();
        let mut parent = path.parent();
        while let Some(directory) = parent.filter(|d| !d.exists()) {
            made.push(directory.to_owned());
            parent = directory.parent();
        }
        for directory in made.iter().rev() {
            std::fs::create_dir(directory)?;
            chown(directory, Some(owner), Some(owner))?;
        }
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, text)?;
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
        chown(&fresh, Some(owner), Some(owner))?;
        std::fs::rename(&fresh, path)
    };
    write().map_err(|e| Error::io(format!("cannot write {}", path.display()), e))
}

/// Whether anything of a worker is left on this machine.
pub fn remains(dirs: &Dirs, name: &str) -> bool {
    left_by(dirs, name).iter().any(|path| path.exists())
}

/// Everything that a worker has on this machine. The record of its process 1 is last: while it is there, the rest may be.
fn left_by(dirs: &Dirs, name: &str) -> [PathBuf; 6] {
    let (records, logs) = (dirs.processes(), dirs.logs());
    [
        dirs.workers().join(name),
        records.join(format!("{name}.json")),
        records.join(format!("{name}.spec")),
        logs.join(format!("{name}.log")),
        logs.join(format!("{name}.log.1")),
        records.join(format!("{name}.worker")),
    ]
}

/// Ends a worker's agent and everything in it, and removes its root, its logs and its control groups.
pub async fn remove(dirs: &Dirs, name: &str) -> Result<(), Error> {
    for (process, record) in super::process::records(dirs) {
        if process == name {
            record.end().await;
        }
    }
    let record = dirs.processes().join(format!("{name}.worker"));
    if let Some(worker) = living(&record) {
        end(&worker).await;
    }
    for path in left_by(dirs, name) {
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(format!("cannot remove {}", path.display()), e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Ends all processes of a worker: the kernel lets its process 1 go last. Then nobody writes below its root any more.
async fn end(worker: &Worker) {
    worker.end();
    let deadline = std::time::Instant::now() + END_PATIENCE;
    while worker.is_alive() && std::time::Instant::now() < deadline {
        tokio::time::sleep(END_LOOK).await;
    }
    // Each is `NAME/init`: the worker's own group with those of its Pods goes too.
    for group in worker.cgroups.iter().filter_map(|init| init.parent()) {
        super::down::remove_group(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_survives_its_object() {
        let declaration = Declaration {
            index: 3,
            name: "tenant-a-worker-1".to_owned(),
            tenant: "tenant-a".to_owned(),
            cards: Some("2xA100-80GB".to_owned()),
            simulate: false,
        };
        assert_eq!(Declaration::of(&declaration.to_config_map()), Some(declaration));
        assert_eq!(Declaration::of(&ConfigMap::default()), None);
    }
}
