//! Pod network and Services of one node.
//!
//! Two modes. *Routed*: each Pod has a network namespace and a veth pair whose node end carries a /32 route; Services are
//! nftables maps in the node's own namespace. *Loopback*, without root or without the programs `ip` and `nft`: Pods share
//! the node's network and each gets an address of its own in 127.0.0.0/8, on which its programs have to listen.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::paths::{NodePaths, read_record, write_record};
use crate::runtime::{PodKey, Sandbox};
use range::Ipv4Range;

mod proxy;
pub mod range;
pub mod ruleset;
pub mod services;
pub mod tool;

/// How Pods are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkMode {
    /// A namespace and a routed veth pair per Pod.
    Routed,
    /// Addresses in 127.0.0.0/8 on the node's own loopback.
    Loopback,
}

impl NetworkMode {
    /// Routed where it can work: as root, with `ip` and `nft` installed.
    pub fn detect() -> NetworkMode {
        let able = nix::unistd::geteuid().is_root() && tool::find("ip").is_some() && tool::find("nft").is_some();
        if able { NetworkMode::Routed } else { NetworkMode::Loopback }
    }
}

/// Gives Pods their addresses.
pub struct PodNetwork {
    paths: NodePaths,
    program: PathBuf,
    mode: NetworkMode,
    node_ip: Ipv4Addr,
    range: Mutex<Option<Ipv4Range>>,
    used: Mutex<BTreeMap<Ipv4Addr, String>>,
}

const SANDBOX_FILE: &str = "sandbox.json";

impl PodNetwork {
    /// The network of a node; addresses of Pods that are there already are found in their records.
    pub fn new(paths: NodePaths, program: PathBuf, mode: NetworkMode, node_ip: Ipv4Addr) -> Result<Self> {
        let mut used = BTreeMap::new();
        for entry in fs::read_dir(paths.pods()).into_iter().flatten().flatten() {
            let sandbox: Option<Sandbox> = read_record(&entry.path().join(SANDBOX_FILE))?;
            if let Some(address) = sandbox.and_then(|s| s.ip.parse().ok()).filter(|a| *a != node_ip) {
                used.insert(address, entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(PodNetwork { paths, program, mode, node_ip, range: Mutex::new(None), used: Mutex::new(used) })
    }

    /// How Pods are connected here.
    pub fn mode(&self) -> NetworkMode {
        self.mode
    }

    /// Address of the node itself.
    pub fn node_ip(&self) -> Ipv4Addr {
        self.node_ip
    }

    /// The addresses that Pods get, once known.
    pub fn range(&self) -> Option<Ipv4Range> {
        *self.range.lock()
    }

    /// Sets the range (from a flag or the Node's `podCIDR`) and makes sure that what it does not hold leads nowhere.
    pub async fn set_range(&self, range: Ipv4Range) -> Result<()> {
        let before = self.range.lock().replace(range);
        if before == Some(range) || self.mode == NetworkMode::Loopback {
            return Ok(());
        }
        let forward = "/proc/sys/net/ipv4/ip_forward";
        fs::write(forward, "1").map_err(Error::file(forward))?;
        tool::ip(&format!("route replace unreachable {range}\n")).await
    }

    /// Connects a Pod, or says how it is connected already.
    pub async fn attach(&self, pod: &PodKey, host_network: bool) -> Result<Sandbox> {
        let record = self.paths.pod(&pod.uid).join(SANDBOX_FILE);
        if let Some(sandbox) = read_record::<Sandbox>(&record)?
            && self.is_intact(&sandbox)
        {
            return Ok(sandbox);
        }
        if host_network {
            let sandbox = Sandbox { ip: self.node_ip.to_string(), netns: None };
            write_record(&record, &sandbox)?;
            return Ok(sandbox);
        }
        let ip = self.allocate(&pod.uid)?;
        let netns = match self.mode {
            NetworkMode::Loopback => None,
            NetworkMode::Routed => Some(self.paths.netns(&pod.uid)),
        };
        let sandbox = Sandbox { ip: ip.to_string(), netns };
        write_record(&record, &sandbox)?;
        if let Some(netns) = &sandbox.netns {
            self.connect(pod, ip, netns).await?;
        }
        Ok(sandbox)
    }

    /// A boot takes namespaces away but leaves records.
    fn is_intact(&self, sandbox: &Sandbox) -> bool {
        sandbox.netns.as_deref().is_none_or(is_netns)
    }

    fn allocate(&self, uid: &str) -> Result<Ipv4Addr> {
        let range = self.range().ok_or_else(|| Error::Config("the node has no Pod address range yet".to_owned()))?;
        let mut used = self.used.lock();
        if let Some((address, _)) = used.iter().find(|(a, owner)| *owner == uid && range.contains(**a)) {
            return Ok(*address);
        }
        let free = range.hosts().find(|a| !used.contains_key(a) && *a != self.node_ip);
        let address = free.ok_or_else(|| Error::Config(format!("no Pod address is free in {range}")))?;
        used.insert(address, uid.to_owned());
        Ok(address)
    }

    async fn connect(&self, pod: &PodKey, ip: Ipv4Addr, netns: &Path) -> Result<()> {
        let link = link_name(&pod.uid);
        if !is_netns(netns) {
            tool::run(&self.program, &["node-launch", "netns", &netns.to_string_lossy()], None).await?;
        }
        let _ = tool::ip(&format!("link del {link}\n")).await;
        let path = netns.display();
        let node = self.node_ip;
        tool::ip(&format!(
            "link add {link} type veth peer name eth0 netns {path}\n\
             link set {link} up\n\
             route replace {ip}/32 dev {link} src {node}\n"
        ))
        .await?;
        // The node's address is the gateway: the node answers for it on every link, and no address is spent.
        let inside = format!(
            "link set lo up\nlink set eth0 up\naddr add {ip}/32 dev eth0\n\
             route add {node}/32 dev eth0 scope link\nroute add default via {node} dev eth0\n"
        );
        let path = netns.to_string_lossy();
        let ip_program = tool::require("ip")?;
        let args = ["node-launch", "in-netns", &path, &ip_program.to_string_lossy(), "-batch", "-"];
        tool::run(&self.program, &args, Some(&inside)).await.map(drop)
    }

    /// Disconnects a Pod and frees its address.
    pub async fn detach(&self, pod: &PodKey) -> Result<()> {
        let record = self.paths.pod(&pod.uid).join(SANDBOX_FILE);
        let sandbox: Option<Sandbox> = read_record(&record)?;
        if let Some(netns) = sandbox.and_then(|s| s.netns) {
            let _ = tool::ip(&format!("link del {}\n", link_name(&pod.uid))).await;
            let _ = nix::mount::umount2(&netns, nix::mount::MntFlags::MNT_DETACH);
            let _ = fs::remove_file(&netns);
        }
        let _ = fs::remove_file(record);
        self.used.lock().retain(|_, owner| *owner != pod.uid);
        Ok(())
    }
}

/// Name of the node end of a Pod's veth pair: at most 15 bytes, the same after a restart.
fn link_name(uid: &str) -> String {
    // FNV-1a; a name has room for 44 bits, and a collision among a node's Pods is refused by the kernel.
    let hash = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("pod{:011x}", hash >> 20)
}

/// Whether a network namespace is mounted on this file.
fn is_netns(path: &Path) -> bool {
    nix::sys::statfs::statfs(path).is_ok_and(|s| s.filesystem_type() == nix::sys::statfs::NSFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> PodKey {
        PodKey { namespace: "d".into(), name: uid.into(), uid: uid.into() }
    }

    #[tokio::test]
    async fn loopback_pods_get_distinct_addresses_that_survive_a_restart() {
        let root = tempfile::tempdir().unwrap();
        let paths = NodePaths::new(root.path());
        paths.create().unwrap();
        let make = || PodNetwork::new(paths.clone(), "/none".into(), NetworkMode::Loopback, Ipv4Addr::LOCALHOST).unwrap();
        let network = make();
        network.set_range("127.70.0.0/30".parse().unwrap()).await.unwrap();
        for uid in ["a", "b", "c"] {
            crate::paths::make_dir(&paths.pod(uid), 0o755).unwrap();
        }
        let a = network.attach(&pod("a"), false).await.unwrap();
        let b = network.attach(&pod("b"), false).await.unwrap();
        assert_ne!(a.ip, b.ip);
        assert!(network.attach(&pod("c"), false).await.is_err(), "a /30 has two usable addresses");
        let network = make();
        network.set_range("127.70.0.0/30".parse().unwrap()).await.unwrap();
        assert_eq!(network.attach(&pod("a"), false).await.unwrap(), a);
        network.detach(&pod("b")).await.unwrap();
        assert_eq!(network.attach(&pod("c"), false).await.unwrap().ip, b.ip);
        assert_eq!(network.attach(&pod("b"), true).await.unwrap().ip, "127.0.0.1");
    }

    #[test]
    fn link_names_fit_the_kernel() {
        assert_eq!(link_name("0b7f3a52-5a3c-4b8e-9d7c-1a2b3c4d5e6f").len(), 14);
        assert_ne!(link_name("a"), link_name("b"));
    }
}
