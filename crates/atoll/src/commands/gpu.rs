//! `atoll gpu …`: HAMi's components.

use std::net::SocketAddr;
use std::path::PathBuf;

use atoll_devices::selection::{CardPolicy, NodePolicy};
use atoll_gpu::plugin::{PluginOptions, run_annotation, run_mock};
use atoll_gpu::scheduler::{ExtenderOptions, LeaseOptions, Mode, SchedulerOptions};
use atoll_gpu::webhook::WebhookOptions;
use clap::{Subcommand, ValueEnum};

use super::role::{self, ClusterArgs, Error};

/// Run one of the components that slice cards
///
/// Example: atoll gpu scheduler --kubeconfig tenant-a.kubeconfig --gpu-scheduler-policy binpack
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand, Debug)]
enum Role {
    /// The admission webhook that completes and checks Pods that ask for cards
    ///
    /// Example: atoll gpu webhook --kubeconfig tenant-a.kubeconfig
    #[command(verbatim_doc_comment)]
    Webhook {
        /// Address of the TLS listener
        #[arg(long, default_value = "0.0.0.0:8443")]
        listen: SocketAddr,
        /// Address of the listener for /healthz and /readyz
        #[arg(long, default_value = "0.0.0.0:8081")]
        health_listen: SocketAddr,
    },
    /// The scheduler that places Pods on slices of cards
    ///
    /// Example: atoll gpu scheduler --kubeconfig tenant-a.kubeconfig --gpu-scheduler-policy binpack
    #[command(verbatim_doc_comment)]
    Scheduler {
        /// Pods with this schedulerName are placed
        #[arg(long, default_value = "hami-scheduler")]
        scheduler_name: String,
        /// Among nodes, if a Pod names no policy: binpack or spread
        #[arg(long)]
        node_scheduler_policy: Option<NodePolicy>,
        /// Among cards, if a Pod names no policy: binpack, spread or mutex
        #[arg(long)]
        gpu_scheduler_policy: Option<CardPolicy>,
        /// Holder of the Lease kube-system/hami-scheduler
        #[arg(long, env = "POD_NAME", default_value = "atoll")]
        identity: String,
        /// Place without a Lease: only where nothing else can place
        #[arg(long)]
        without_lease: bool,
        /// Answer a stock kube-scheduler's /filter and /bind on this address instead of placing
        #[arg(long)]
        extender_listen: Option<SocketAddr>,
        /// Address for /metrics, /healthz and /readyz
        #[arg(long, default_value = "0.0.0.0:9395")]
        metrics_listen: SocketAddr,
        /// MiB that one unit of nvidia.com/gpumem stands for
        #[arg(long, default_value_t = 1)]
        memory_factor: u64,
    },
    /// The device plugin for nvidia.com/gpu
    ///
    /// Example: atoll gpu device-plugin --mode annotation --node-name worker-1 --kubeconfig tenant-a.kubeconfig
    #[command(verbatim_doc_comment)]
    DevicePlugin {
        /// Where the cards come from
        #[arg(long, value_enum)]
        mode: PluginMode,
        #[command(flatten)]
        plugin: PluginArgs,
    },
    /// The device plugin for nvidia.com/gpumem, gpucores and gpumem-percentage
    ///
    /// Example: atoll gpu mock-device-plugin --node-name worker-1 --kubeconfig tenant-a.kubeconfig
    #[command(verbatim_doc_comment)]
    MockDevicePlugin {
        #[command(flatten)]
        plugin: PluginArgs,
    },
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum PluginMode {
    /// The node's annotation hami.io/node-nvidia-register
    Annotation,
}

#[derive(clap::Args, Debug)]
struct PluginArgs {
    /// The node that this runs on
    #[arg(long, env = "NODE_NAME")]
    node_name: String,
    /// Directory with the kubelet's socket
    #[arg(long, default_value = "/var/lib/kubelet/device-plugins")]
    socket_directory: PathBuf,
    /// MiB that one unit of nvidia.com/gpumem stands for: raise it where the kubelet refuses messages past 4 MiB
    #[arg(long, default_value_t = 1)]
    memory_factor: u64,
}

impl PluginArgs {
    fn options(self) -> PluginOptions {
        PluginOptions {
            socket_directory: self.socket_directory,
            memory_factor: self.memory_factor,
            ..PluginOptions::for_node(self.node_name)
        }
    }
}

impl Args {
    pub fn run(self) -> Result<(), Error> {
        role::run(|shutdown| async move {
            let client = self.cluster.client().await?;
            let shutdown = role::stopped(shutdown);
            match self.role {
                Role::Webhook { listen, health_listen } => {
                    let options = WebhookOptions { listen, health_listen: Some(health_listen), ..WebhookOptions::default() };
                    atoll_gpu::webhook::run(options, client, shutdown).await?;
                }
                Role::Scheduler {
                    scheduler_name,
                    node_scheduler_policy,
                    gpu_scheduler_policy,
                    identity,
                    without_lease,
                    extender_listen,
                    metrics_listen,
                    memory_factor,
                } => {
                    let mut options = SchedulerOptions {
                        scheduler_name,
                        node_policy: node_scheduler_policy.unwrap_or_default(),
                        card_policy: gpu_scheduler_policy.unwrap_or_default(),
                        lease: (!without_lease).then(|| LeaseOptions::of_identity(identity)),
                        metrics_listen: Some(metrics_listen),
                        ..SchedulerOptions::default()
                    };
                    options.defaults.memory_factor = memory_factor;
                    if let Some(listen) = extender_listen {
                        options.mode = Mode::Extender(ExtenderOptions { listen, ..ExtenderOptions::default() });
                    }
                    atoll_gpu::scheduler::run(options, client, shutdown).await?;
                }
                Role::DevicePlugin { mode: PluginMode::Annotation, plugin } => {
                    run_annotation(plugin.options(), client, shutdown).await?;
                }
                Role::MockDevicePlugin { plugin } => run_mock(plugin.options(), client, shutdown).await?,
            }
            Ok(())
        })
    }
}
