//! `atoll control-plane`: a complete control plane in one process.

use std::net::SocketAddr;
use std::path::PathBuf;

use atoll_control_plane::{Component, ControlPlane, ControlPlaneOptions};
use tokio::signal::unix::{SignalKind, signal};

/// Run a single Kubernetes control plane
///
/// Example: atoll control-plane --dir /tmp/cp --listen 127.0.0.1:6443
///          kubectl --kubeconfig /tmp/cp/admin.kubeconfig get namespaces
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Directory for keys, certificates, data and admin.kubeconfig
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
    /// Issuer of service-account tokens
    #[arg(long, default_value = "https://kubernetes.default.svc")]
    service_account_issuer: String,
    /// Further names and addresses for the serving certificate
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
}

impl Args {
    pub fn run(self) -> Result<(), super::role::Error> {
        let mut options = ControlPlaneOptions::new(self.dir, self.listen);
        options.without = self.without;
        options.service_cidr = self.service_cidr;
        options.service_account_issuer = self.service_account_issuer;
        options.names = self.names;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let plane = ControlPlane::start(&options).await?;
            println!("ready: https://{} kubeconfig {}", plane.address(), plane.kubeconfig().display());
            let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            let stop = async move {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            };
            plane.serve(stop).await?;
            Ok(())
        })
    }
}
