//! `atoll node`: the node agent.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use atoll_devices::cards::CardSpec;
use atoll_devices::{inventory, names};
use atoll_node::{Credentials, Ipv4Range, NetworkMode, NodeOptions};

use super::role::{self, Error};

/// Run the node agent: this machine, or a part of it, becomes a node of a cluster
///
/// Example: atoll node --name worker-1 --bootstrap-kubeconfig bootstrap.kubeconfig --root /var/lib/worker-1 --image atoll
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Name of the Node
    #[arg(long)]
    name: String,
    /// Kubeconfig of the node's own
    #[arg(long, required_unless_present = "bootstrap_kubeconfig")]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig with a bootstrap token: the agent asks for a certificate with it
    #[arg(long, conflicts_with = "kubeconfig")]
    bootstrap_kubeconfig: Option<PathBuf>,
    /// Everything the agent writes, and what hostPath shows, lies below this directory
    #[arg(long)]
    root: PathBuf,
    /// Where paths of hostPath and PersistentVolumes start [default: the root]
    #[arg(long)]
    host_root: Option<PathBuf>,
    /// Exact name of the one image that runs: this program
    #[arg(long, default_value = "atoll")]
    image: String,
    /// Containers of other images count as running without a process
    #[arg(long)]
    simulate: bool,
    /// Address of the node [default: that of the route to the API]
    #[arg(long)]
    node_ip: Option<Ipv4Addr>,
    /// Port of the kubelet API; 0 takes a free one
    #[arg(long, default_value_t = 10250)]
    port: u16,
    /// Addresses of Pods, as a CIDR [default: the Node's podCIDR]
    #[arg(long)]
    pod_cidr: Option<Ipv4Range>,
    /// Pods keep their own addresses when they leave the node
    #[arg(long)]
    without_masquerade: bool,
    /// Leave Services to another service proxy
    #[arg(long)]
    without_services: bool,
    /// Pods share the node's network on 127.0.0.0/8, as without root
    #[arg(long)]
    loopback: bool,
    /// Label of the Node, KEY=VALUE; may be given several times
    #[arg(long = "label", value_parser = parse_pair)]
    labels: Vec<(String, String)>,
    /// Simulated cards, such as 2xA100-80GB: written once into the node's register annotation
    #[arg(long)]
    cards: Option<CardSpec>,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    text.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).ok_or_else(|| format!("{text:?} is not KEY=VALUE"))
}

impl Args {
    pub fn run(self) -> Result<(), Error> {
        let credentials = match (self.kubeconfig, self.bootstrap_kubeconfig) {
            (Some(path), _) => Credentials::Kubeconfig(path),
            (None, Some(path)) => Credentials::Bootstrap(path),
            (None, None) => return Err("give --kubeconfig or --bootstrap-kubeconfig".into()),
        };
        let program = std::env::current_exe()?;
        let mut options = NodeOptions::new(&self.name, credentials, self.root, program, &self.image);
        options.host_root = self.host_root;
        options.simulate = self.simulate;
        options.node_ip = self.node_ip;
        options.port = self.port;
        options.pod_cidr = self.pod_cidr;
        options.masquerade = !self.without_masquerade;
        options.services = !self.without_services;
        if self.loopback {
            options.network = Some(NetworkMode::Loopback);
        }
        options.labels.extend(self.labels);
        if let Some(cards) = &self.cards {
            let text = inventory::encode(&cards.cards(&self.name));
            options.annotations.insert(names::annotation::NODE_REGISTER.to_owned(), text);
        }
        role::run(|shutdown| async move { Ok(atoll_node::run(options, role::stopped(shutdown)).await?) })
    }
}
