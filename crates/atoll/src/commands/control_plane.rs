//! `atoll control-plane`: a complete control plane in one process; and `management-plane`, the one with the tenancy operator.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;

use atoll_control_plane::{Component, ControlPlane, ControlPlaneOptions, FurtherComponent};
use atoll_tenancy::OperatorOptions;

use super::role::{self, Error};

/// Run a single Kubernetes control plane
///
/// Example: atoll control-plane --dir /tmp/cp --listen 127.0.0.1:6443
///          kubectl --kubeconfig /tmp/cp/admin.kubeconfig get namespaces
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Directory for data, and for keys, certificates and admin.kubeconfig unless --pki is given
    #[arg(long)]
    dir: PathBuf,
    /// Address and port to serve on
    #[arg(long, default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Components to leave out: scheduler, controllers
    #[arg(long, value_delimiter = ',')]
    without: Vec<Component>,
    /// Range of the cluster addresses of Services
    #[arg(long, default_value = "10.96.0.0/12")]
    service_cidr: String,
    /// Further names and addresses for the serving certificate
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Directory with keys and certificates that somebody else keeps, in kubeadm's layout
    #[arg(long)]
    pki: Option<PathBuf>,
    /// Address under which clients reach it, where that is not the one to serve on
    #[arg(long)]
    advertise_address: Option<IpAddr>,
    /// Port under which clients reach it, where that is not the one to serve on
    #[arg(long)]
    advertise_port: Option<u16>,
    /// Where tunnel agents connect; nodes, Pods and webhooks are then reached through them alone
    #[arg(long)]
    tunnel_listen: Option<SocketAddr>,
    /// Issuer of service-account tokens
    #[arg(long, default_value = "https://kubernetes.default.svc")]
    service_account_issuer: String,
    /// DNS domain of the cluster
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,
    /// Admission plugins, in place of those that are on by default
    #[arg(long, value_delimiter = ',')]
    enable_admission_plugins: Option<Vec<String>>,
    /// Controllers to run: names, * for all that are on by default, -NAME to leave one out
    #[arg(long, value_delimiter = ',', default_value = "*")]
    controllers: Vec<String>,
    /// Root, as nodes see it, under which the directory provisioner makes volumes
    #[arg(long)]
    volume_root: Option<PathBuf>,
    /// Where that root lies on this machine
    #[arg(long, requires = "volume_root")]
    volumes_found_at: Option<PathBuf>,
    /// Serve also on the listening socket that is standard input
    #[arg(long, hide = true)]
    listen_stdin: bool,
}

impl Args {
    pub fn run(self) -> Result<(), Error> {
        self.run_with(Vec::new())
    }

    fn run_with(self, further: Vec<FurtherComponent>) -> Result<(), Error> {
        let inherited = if self.listen_stdin {
            let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
            Some(std::net::TcpListener::from(socket))
        } else {
            None
        };
        let options = ControlPlaneOptions {
            names: self.names,
            advertise: self.advertise_address,
            without: self.without,
            service_cidr: self.service_cidr,
            pki: self.pki,
            advertise_port: self.advertise_port,
            tunnel_listen: self.tunnel_listen,
            cluster_domain: self.cluster_domain,
            service_account_issuer: self.service_account_issuer,
            admission_plugins: self.enable_admission_plugins,
            controllers: self.controllers,
            volume_root: self.volume_root,
            volumes_found_at: self.volumes_found_at,
            ..ControlPlaneOptions::new(self.dir, self.listen)
        };
        role::run(|shutdown| async move {
            let plane = ControlPlane::start(&options, inherited).await?;
            let kubeconfig = plane.kubeconfig().map(|k| format!(" kubeconfig {}", k.display())).unwrap_or_default();
            println!("ready: https://{}{kubeconfig}", plane.address());
            plane.serve(further, role::stopped(shutdown)).await?;
            Ok(())
        })
    }
}

/// Run the management plane of the one-machine platform: a control plane with the tenancy operator in it
#[derive(clap::Args, Debug)]
pub struct ManagementArgs {
    #[command(flatten)]
    plane: Args,
    /// Image of Atoll, for control planes and tunnel agents
    #[arg(long)]
    image: String,
    /// User ids for tenants, FIRST-LAST
    #[arg(long, value_parser = super::operator::parse_range)]
    user_ids: std::ops::RangeInclusive<i64>,
}

impl ManagementArgs {
    pub fn run(self) -> Result<(), Error> {
        let options = OperatorOptions {
            image: self.image,
            user_ids: self.user_ids,
            storage_class: None,
            storage_size: "1Gi".to_owned(),
            install_crds: true,
            assign_addresses: true,
        };
        let operator: FurtherComponent = Box::new(move |context| {
            Box::pin(async move {
                // The operator makes Roles, Secrets and Deployments for every tenant: it is an administrator of this plane.
                let client = context.client_in_groups("system:serviceaccount:kube-system:atoll-operator", &["system:masters"]);
                if let Err(error) = atoll_tenancy::run(options, client, context.shutdown).await {
                    tracing::error!(%error, "the tenancy operator ended");
                }
            })
        });
        self.plane.run_with(vec![operator])
    }
}
