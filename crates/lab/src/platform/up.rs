//! The supervisor: puts the platform up and keeps its processes running.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use atoll_pki::{CertificateAuthority, ClusterEntry, Kubeconfig, LeafSpec, Usages, UserCredentials};
use kube::Client;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tracing::warn;

use super::net::{self, Names, Plan};
use super::process::ProcessSpec;
use super::workers::Machine;
use super::{Dirs, Error, cluster, keeper};

/// How long the management plane may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Port of the management API inside the platform.
const API_PORT: u16 = 6443;

/// What `atoll up` is told.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct UpOptions {
    /// Port of the management API on the host's loopback.
    pub port: u16,
    /// A /16 for the platform's links and Pods.
    pub platform_cidr: String,
    /// Load-balancer addresses.
    pub pool: String,
    /// Name of Atoll's own image.
    pub image: String,
    /// User ids for tenants, first and last.
    pub user_ids: (i64, i64),
}

impl Default for UpOptions {
    fn default() -> Self {
        UpOptions {
            port: 7443,
            platform_cidr: "10.207.0.0/16".to_owned(),
            pool: "10.208.0.0/24".to_owned(),
            image: "atoll".to_owned(),
            user_ids: (300_000, 309_999),
        }
    }
}

/// A platform that answers.
pub struct Platform {
    pub management: Client,
    pub kubeconfig: PathBuf,
}

/// Runs the platform until `shutdown` turns true. What runs keeps running then; `down` ends it. `ready` is called once.
pub async fn up(
    dirs: &Dirs,
    options: &UpOptions,
    ready: impl FnOnce(&Platform),
    shutdown: watch::Receiver<bool>,
) -> Result<(), Error> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::Invalid("the platform needs root for its namespaces and user ids: run it with sudo".to_owned()));
    }
    dirs.create()?;
    let _lock = dirs.lock()?;
    let (plan, names) = (Plan::new(&options.platform_cidr, &options.pool)?, Names::of_dir(dirs.root()));
    net::find_collision(&plan, &names)?;
    let program = super::install_binary(dirs)?;
    net::create_platform(&plan, &names)?;
    net::apply_filters(&plan, &names, &[])?;
    write_options(dirs, options)?;

    check_port(dirs, options.port)?;
    let (stop, stopped) = watch::channel(false);
    let mut tasks = tokio::task::JoinSet::new();
    let management = management_process(dirs, options, &plan, &names, &program);
    let log = management.log(dirs);
    tasks.spawn(keep_management(management, dirs.clone(), options.port, stopped.clone()));
    let platform = wait_for_management(dirs, options.port, &log).await?;
    for object in cluster::platform_objects() {
        cluster::apply(&platform.management, &object).await?;
    }
    let agent = node_process(dirs, options, &plan, &names, &program)?;
    let (place, until) = (dirs.clone(), stopped.clone());
    tasks.spawn(async move { agent.keep(&place, || None, until).await });
    cluster::apply_once_served(&platform.management, &cluster::pool_object(&plan.pool), PATIENCE).await?;
    let machine = Machine {
        dirs: dirs.clone(),
        plan,
        names,
        program,
        image: options.image.clone(),
        management: platform.management.clone(),
    };
    let until = stopped.clone();
    tasks.spawn(async move {
        keeper::run(machine, until).await;
        Ok(())
    });
    ready(&platform);
    let mut shutdown = shutdown;
    tokio::select! {
        _ = shutdown.wait_for(|stop| *stop) => {}
        Some(ended) = tasks.join_next() => {
            if let Ok(Err(error)) = ended {
                let _ = stop.send(true);
                return Err(error);
            }
        }
    }
    let _ = stop.send(true);
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Another program's port is an error at once; the own management plane of an earlier supervisor may hold it.
fn check_port(dirs: &Dirs, port: u16) -> Result<(), Error> {
    let running = super::process::records(dirs).iter().any(|(name, record)| name == "management" && record.is_alive());
    match TcpListener::bind(("127.0.0.1", port)) {
        Err(error) if !running => Err(Error::Invalid(format!(
            "port {port} of 127.0.0.1, for the management API, is not to be had: {error}; choose another with --port"
        ))),
        _ => Ok(()),
    }
}

fn write_options(dirs: &Dirs, options: &UpOptions) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(options).map_err(|e| Error::Invalid(e.to_string()))?;
    std::fs::write(dirs.record(), text).map_err(|e| Error::io(format!("cannot write {}", dirs.record().display()), e))
}

/// The options of the platform in a directory, if there is one.
pub fn read_options(dirs: &Dirs) -> Option<UpOptions> {
    serde_json::from_slice(&std::fs::read(dirs.record()).ok()?).ok()
}

fn management_process(dirs: &Dirs, options: &UpOptions, plan: &Plan, names: &Names, program: &std::path::Path) -> ProcessSpec {
    let volumes = dirs.volumes_in_node();
    let found_at = dirs.node().join(volumes.strip_prefix("/").unwrap_or(&volumes));
    ProcessSpec {
        name: "management".to_owned(),
        program: program.to_owned(),
        args: vec![
            "management-plane".to_owned(),
            format!("--dir={}", dirs.management().display()),
            format!("--listen={}:{API_PORT}", plan.api()),
            "--listen-stdin".to_owned(),
            format!("--service-cidr={}", net::SERVICES),
            format!("--image={}", options.image),
            format!("--user-ids={}-{}", options.user_ids.0, options.user_ids.1),
            format!("--volume-root={}", volumes.display()),
            format!("--volumes-found-at={}", found_at.display()),
        ],
        namespace: Some(names.platform()),
        environment: Vec::new(),
    }
}

/// The management plane listens inside the platform and on the host's loopback: that socket is made here, in the host's
/// namespace, and handed over as standard input.
async fn keep_management(process: ProcessSpec, dirs: Dirs, port: u16, stop: watch::Receiver<bool>) -> Result<(), Error> {
    let stdin = move || match TcpListener::bind(("127.0.0.1", port)) {
        Ok(listener) => Some(OwnedFd::from(listener)),
        Err(error) => {
            warn!(port, %error, "the management API is not on the host's loopback: another program has the port");
            None
        }
    };
    process.keep(&dirs, stdin, stop).await
}

async fn wait_for_management(dirs: &Dirs, port: u16, log: &std::path::Path) -> Result<Platform, Error> {
    let written = dirs.management().join("admin.kubeconfig");
    let start = std::time::Instant::now();
    while !written.exists() {
        if start.elapsed() > PATIENCE {
            let what = "the management plane".to_owned();
            return Err(Error::NotReady { what, seconds: PATIENCE.as_secs(), log: log.to_owned() });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The same administrator, from the host's side.
    let ca = read(&dirs.management().join("pki/ca.crt"))?;
    let pair = (read(&dirs.management().join("pki/admin.crt"))?, read(&dirs.management().join("pki/admin.key"))?);
    let kubeconfig = Kubeconfig {
        cluster: ClusterEntry {
            name: "management",
            server: &format!("https://127.0.0.1:{port}"),
            ca_pem: &ca,
            tls_server_name: None,
        },
        user_name: "kubernetes-admin",
        credentials: UserCredentials::Certificate { certificate_pem: &pair.0, key_pem: &pair.1 },
        namespace: None,
    };
    let path = dirs.management_kubeconfig();
    write_secret(&path, &kubeconfig.to_yaml())?;
    let management = cluster::client_of_file(&path).await?;
    cluster::wait_ready(&management, "the management plane", log, PATIENCE).await?;
    Ok(Platform { management, kubeconfig: path })
}

fn read(path: &std::path::Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|e| Error::io(format!("cannot read {}", path.display()), e))
}

/// Writes a file that its owner alone can read, whole or not at all.
pub fn write_secret(path: &std::path::Path, text: &str) -> Result<(), Error> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let fresh = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&fresh, path)
    };
    write().map_err(|e| Error::io(format!("cannot write {}", path.display()), e))
}

/// The agent of the management node: tenants' control planes are its Pods.
fn node_process(
    dirs: &Dirs,
    options: &UpOptions,
    plan: &Plan,
    names: &Names,
    program: &std::path::Path,
) -> Result<ProcessSpec, Error> {
    let kubeconfig = dirs.node().join("kubeconfig");
    if !kubeconfig.exists() {
        let failed = |e: atoll_pki::Error| Error::Invalid(format!("cannot make the management node's certificate: {e}"));
        let ca_pem = read(&dirs.management().join("pki/ca.crt"))?;
        let key = read(&dirs.management().join("pki/ca.key"))?;
        let ca = CertificateAuthority::from_pem(&ca_pem, &key).map_err(failed)?;
        let spec = LeafSpec {
            common_name: "system:node:management",
            organizations: &["system:nodes"],
            names: &[],
            usages: Usages::CLIENT,
            ttl: atoll_pki::limits::CA_TTL,
        };
        let pair = ca.issue(&spec, jiff::Timestamp::now()).map_err(failed)?;
        let text = Kubeconfig {
            cluster: ClusterEntry {
                name: "management",
                server: &format!("https://{}:{API_PORT}", plan.api()),
                ca_pem: &ca_pem,
                tls_server_name: None,
            },
            user_name: "system:node:management",
            credentials: UserCredentials::Certificate { certificate_pem: &pair.certificate_pem, key_pem: &pair.key_pem },
            namespace: None,
        }
        .to_yaml();
        write_secret(&kubeconfig, &text)?;
    }
    Ok(ProcessSpec {
        name: "node".to_owned(),
        program: program.to_owned(),
        args: vec![
            "node".to_owned(),
            "--name=management".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--root={}", dirs.node().display()),
            format!("--image={}", options.image),
            format!("--node-ip={}", plan.api()),
            format!("--pod-cidr={}", plan.pods()),
            "--without-masquerade".to_owned(),
        ],
        namespace: Some(names.platform()),
        environment: Vec::new(),
    })
}
