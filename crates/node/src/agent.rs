//! The node agent: puts the parts together and runs them.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use parking_lot::{Mutex, RwLock};

use crate::devices::Devices;
use crate::error::{Error, Result};
use crate::events::{Events, Severity};
use crate::limits;
use crate::network::range::Ipv4Range;
use crate::network::services::Services;
use crate::network::{NetworkMode, PodNetwork};
use crate::options::NodeOptions;
use crate::paths::NodePaths;
use crate::pods::context::Node;
use crate::pods::downward::Allocatable;
use crate::pods::resources::millis;
use crate::registration::credentials::{self, Access};
use crate::registration::machine::{self, Machine};
use crate::registration::serving::Serving;
use crate::registration::status::{self, Facts};
use crate::registration::{lease, node as node_object};
use crate::runtime::Runtime;
use crate::runtime::host::HostRuntime;
use crate::runtime::host::cgroup::Cgroups;
use crate::server::Server;
use crate::volumes::{Tokens, Volumes};

/// Runs the node agent until `shutdown`. Containers go on running; the next agent takes them up.
///
/// The process must have started without [`crate::hidden_main`] asking for another role, and rustls' provider must be
/// installed.
pub async fn run(options: NodeOptions, shutdown: impl Future<Output = ()>) -> Result<()> {
    let options = NodeOptions { program: present(options.program), ..options };
    let paths = NodePaths::new(&options.root);
    paths.create()?;
    let _lock = lock(&paths)?;
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            ended = run_once(&options, &paths) => match ended {
                Ok(()) => {
                    tracing::info!("connecting again: the client certificate is renewed or the Node is gone");
                    tokio::time::sleep(limits::POD_RETRY).await;
                }
                // An API that is not there yet, or not any more, is waited for; containers go on meanwhile.
                Err(e @ (Error::Api(_) | Error::CertificateRequest { .. })) => {
                    tracing::warn!("{e}; trying again");
                    tokio::time::sleep(limits::POD_RETRY).await;
                }
                Err(e) => return Err(e),
            },
        }
    }
}

/// A program whose file was replaced outside a worker calls itself deleted, but is still mounted where it was.
fn present(program: PathBuf) -> PathBuf {
    let stripped = program.to_str().and_then(|p| p.strip_suffix(" (deleted)")).map(PathBuf::from);
    stripped.filter(|p| p.exists()).unwrap_or(program)
}

/// Two agents on one root would start everything twice.
fn lock(paths: &NodePaths) -> Result<nix::fcntl::Flock<std::fs::File>> {
    let path = paths.run().join("agent.lock");
    let file = std::fs::File::create(&path).map_err(Error::file(&path))?;
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock)
        .map_err(|_| Error::Option(format!("another node agent runs on {}", paths.root().display())))
}

/// Runs until the client certificate has been renewed or something fails.
async fn run_once(options: &NodeOptions, paths: &NodePaths) -> Result<()> {
    let access = credentials::connect(&options.credentials, &options.name, paths).await?;
    let node_ip = node_ip(options, &access)?;
    let mode = options.network.unwrap_or_else(NetworkMode::detect);
    let network = Arc::new(PodNetwork::new(paths.clone(), options.program.clone(), mode, node_ip)?);
    let cgroups = Cgroups::detect(&options.cgroup_parent);
    let runtime = HostRuntime::new(
        paths.clone(),
        options.program.clone(),
        options.image.clone(),
        options.simulate,
        cgroups,
        network.clone(),
    )?;
    let system = machine::system_info(runtime.version());
    let object = node_object::register(&access.client, options, &system.architecture).await?;
    node_object::register_csi(&access.client, &object).await?;

    let names = vec![node_ip.to_string(), options.name.clone()];
    let (serving, certificate) = Serving::load(paths, &names)?;
    let server = Server::bind(options.port, serving.clone(), node_ip).await?;
    let facts = Facts {
        name: options.name.clone(),
        node_ip,
        port: server.port(),
        machine: Machine::read(paths.root()),
        system,
        image: options.image.clone(),
        pods_max: options.pods_max,
        capacity: options.capacity.clone(),
        limits_memory: runtime.limits_memory(),
    };
    let node = context(options, paths, &access, &network, runtime, &facts)?;
    node.events.node(&options.name, Severity::Normal, "Starting", "Starting kubelet.");
    let pods = node.clone();
    let active = Arc::new(move || {
        let pods = pods.pods.lock();
        pods.values().filter(|p| p.active).map(|p| p.pod.clone()).collect()
    });
    let client_ca = match &options.client_ca {
        Some(path) => std::fs::read_to_string(path).map_err(Error::file(path))?,
        None => access.ca_pem.clone(),
    };
    let services = async {
        if options.services || mode == NetworkMode::Loopback {
            node.services.clone().run(access.client.clone(), network.clone(), options.masquerade).await;
        } else {
            node.services.clone().read(access.client.clone()).await;
        }
    };
    let run_pods = async {
        set_range(options, &network, &access).await?;
        node.services.refresh();
        crate::pods::run(node.clone()).await;
        Ok::<(), Error>(())
    };
    let first = object.status.clone().unwrap_or_default();
    tokio::select! {
        () = credentials::keep_fresh(&access, &options.name, paths) => Ok(()),
        () = lease::keep(access.client.clone(), object) => Ok(()),
        () = status::keep(node.clone(), facts, first) => Ok(()),
        () = serving.keep(access.client.clone(), options.name.clone(), names, paths.clone(), certificate) => Ok(()),
        () = services => Ok(()),
        ended = run_pods => ended,
        ended = node.devices.clone().serve() => ended,
        ended = node.devices.clone().serve_pod_resources(active) => ended,
        () = server.serve(node.clone(), client_ca) => Ok(()),
    }
}

fn context(
    options: &NodeOptions,
    paths: &NodePaths,
    access: &Access,
    network: &Arc<PodNetwork>,
    runtime: HostRuntime,
    facts: &Facts,
) -> Result<Arc<Node<HostRuntime>>> {
    let client = access.client.clone();
    let loopback = network.mode() == NetworkMode::Loopback;
    let allocatable: Allocatable =
        status::capacity(facts).into_iter().filter_map(|(name, q)| Some((name, millis(&q.0)?))).collect();
    Ok(Arc::new(Node {
        name: options.name.clone(),
        host_ip: facts.node_ip.to_string(),
        client: client.clone(),
        paths: paths.clone(),
        runtime,
        volumes: Volumes {
            client: client.clone(),
            paths: paths.clone(),
            host_root: options.host_root.clone().unwrap_or_else(|| options.root.clone()),
            tokens: Tokens::default(),
        },
        events: Events::start(client, options.name.clone()),
        devices: Devices::load(paths.clone())?,
        services: Services::new(),
        allocatable: RwLock::new(allocatable),
        api_address: loopback.then(|| (access.host.clone(), access.port)),
        dns: options.dns.clone(),
        cluster_domain: options.cluster_domain.clone(),
        pods: Mutex::default(),
    }))
}

/// The address that the route to the API leaves from. No packet is sent for that.
fn node_ip(options: &NodeOptions, access: &Access) -> Result<Ipv4Addr> {
    if let Some(ip) = options.node_ip {
        return Ok(ip);
    }
    let failed = |source| Error::Listen { address: format!("{}:{}", access.host, access.port), source };
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").map_err(failed)?;
    socket.connect((access.host.as_str(), access.port)).map_err(failed)?;
    match socket.local_addr().map_err(failed)?.ip() {
        IpAddr::V4(ip) => Ok(ip),
        IpAddr::V6(ip) => Err(Error::Option(format!("the node's address {ip} is not IPv4; name one with --node-ip"))),
    }
}

/// Sets the Pods' addresses: as told, by name in loopback mode, else as the cluster assigns them to the Node.
async fn set_range(options: &NodeOptions, network: &PodNetwork, access: &Access) -> Result<()> {
    let range = match options.pod_cidr {
        Some(range) => range,
        None if network.mode() == NetworkMode::Loopback => Ipv4Range::loopback_for(&options.name),
        None => assigned_range(access, &options.name).await?,
    };
    network.set_range(range).await
}

async fn assigned_range(access: &Access, name: &str) -> Result<Ipv4Range> {
    let api: Api<NodeObject> = Api::all(access.client.clone());
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut nodes = watcher(api, config).default_backoff().applied_objects().boxed();
    while let Some(node) = nodes.next().await {
        let Ok(node) = node else { continue };
        if let Some(range) = node.spec.and_then(|s| s.pod_cidr) {
            return range.parse();
        }
        tracing::info!("waiting for the Node's podCIDR");
    }
    Err(Error::Option("the Node has no podCIDR; name one with --pod-cidr".to_owned()))
}
