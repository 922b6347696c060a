//! Namespaces and links of the one-machine platform.
//!
//! The platform (management plane, its node agent, tenants' control planes) has a namespace of its own without a default route.
//! The host reaches the load-balancer pool alone; a worker reaches its tenant's ports alone.

use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::Error;

/// Addresses of the platform, cut from one /16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    base: u32,
    /// Load-balancer addresses, as a CIDR.
    pub pool: String,
}

/// Cluster addresses of the management plane's Services.
pub const SERVICES: &str = "10.96.0.0/16";
/// The gateway that every worker sees on its link.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

impl Plan {
    /// `platform` must be a /16 of IPv4, `pool` any CIDR outside of it.
    pub fn new(platform: &str, pool: &str) -> Result<Plan, Error> {
        let base = parse_cidr(platform)
            .filter(|(_, bits)| *bits == 16)
            .ok_or_else(|| Error::Invalid(format!("--platform-cidr {platform:?} must be a /16 of IPv4 addresses")))?;
        let (pool_base, bits) = parse_cidr(pool)
            .filter(|(_, bits)| (16..=30).contains(bits))
            .ok_or_else(|| Error::Invalid(format!("--pool {pool:?} must be a CIDR of IPv4 addresses from /16 to /30")))?;
        if pool_base & 0xffff_0000 == base.0 {
            return Err(Error::Invalid(format!("--pool {pool} lies inside --platform-cidr {platform}: choose another")));
        }
        Ok(Plan { base: base.0, pool: format!("{}/{bits}", Ipv4Addr::from(pool_base)) })
    }

    fn at(&self, third: u8, fourth: u8) -> Ipv4Addr {
        Ipv4Addr::from(self.base | (u32::from(third) << 8) | u32::from(fourth))
    }

    pub fn platform_cidr(&self) -> String {
        format!("{}/16", Ipv4Addr::from(self.base))
    }
    fn host_link(&self) -> Ipv4Addr {
        self.at(0, 1)
    }
    fn platform_link(&self) -> Ipv4Addr {
        self.at(0, 2)
    }
    /// Where the management API listens inside the platform; also the management node's address.
    pub fn api(&self) -> Ipv4Addr {
        self.at(0, 10)
    }
    /// Pods of the management node.
    pub fn pods(&self) -> String {
        format!("{}/17", self.at(128, 0))
    }
    /// Address of worker `index`.
    pub fn worker(&self, index: u16) -> Ipv4Addr {
        Ipv4Addr::from(self.base | (2 << 8) | u32::from(index))
    }
}

/// A CIDR as `(network, bits)`; host bits are cut off.
pub fn parse_cidr(text: &str) -> Option<(u32, u32)> {
    let (address, bits) = text.split_once('/')?;
    let (address, bits): (Ipv4Addr, u32) = (address.parse().ok()?, bits.parse().ok()?);
    let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
    (bits <= 32).then(|| (u32::from(address) & mask, bits))
}

/// Names of what the platform makes in the kernel. The tag tells platforms of different state directories apart.
#[derive(Clone, Debug)]
pub struct Names {
    pub tag: String,
}

impl Names {
    pub fn of_dir(dir: &std::path::Path) -> Names {
        let hash =
            dir.as_os_str().as_encoded_bytes().iter().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193));
        Names { tag: format!("{:04x}", (hash ^ (hash >> 16)) & 0xffff) }
    }
    pub fn platform(&self) -> String {
        format!("atoll-{}", self.tag)
    }
    fn host_link(&self) -> String {
        format!("at{}h", self.tag)
    }
    fn platform_link(&self) -> String {
        format!("at{}p", self.tag)
    }
    fn worker_link(&self, index: u16) -> String {
        format!("at{}w{index}", self.tag)
    }
}

/// Runs a program to its end; its standard error becomes the error.
pub fn tool(program: &'static str, args: &[&str], input: Option<&str>) -> Result<String, Error> {
    let package = match program {
        "nft" => "nftables",
        "nsenter" => "util-linux",
        _ => "iproute2",
    };
    let mut child = Command::new(program)
        .args(args)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::Missing(program, package),
            _ => Error::io(format!("cannot run {program}"), e),
        })?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(text.as_bytes()).map_err(|e| Error::io(format!("cannot write to {program}"), e))?;
    }
    let output = child.wait_with_output().map_err(|e| Error::io(format!("cannot wait for {program}"), e))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Tool { program: format!("{program} {}", args.join(" ")), why })
}

fn ip(args: &[&str]) -> Result<String, Error> {
    tool("ip", args, None)
}

/// A route of the host that a range would shadow or be shadowed by. The platform's own link is no collision.
pub fn find_collision(plan: &Plan, names: &Names) -> Result<(), Error> {
    let routes = ip(&["-4", "route", "show"])?;
    let own = names.host_link();
    let ranges = [(plan.platform_cidr(), "--platform-cidr"), (plan.pool.clone(), "--pool")];
    for line in routes.lines().filter(|l| !l.starts_with("default") && !l.contains(&own)) {
        let destination = line.split_whitespace().find(|w| w.chars().next().is_some_and(|c| c.is_ascii_digit()));
        let Some(destination) = destination else { continue };
        let destination = if destination.contains('/') { destination.to_owned() } else { format!("{destination}/32") };
        for (range, flag) in &ranges {
            if overlap(&destination, range) {
                return Err(Error::RouteTaken { range: range.clone(), route: line.trim().to_owned(), flag });
            }
        }
    }
    Ok(())
}

fn overlap(a: &str, b: &str) -> bool {
    let (Some((a, a_bits)), Some((b, b_bits))) = (parse_cidr(a), parse_cidr(b)) else { return false };
    let mask = u32::MAX.checked_shl(32 - a_bits.min(b_bits)).unwrap_or(0);
    a & mask == b & mask
}

fn exists(namespace: &str) -> Result<bool, Error> {
    Ok(ip(&["netns", "list"])?.lines().any(|l| l.split_whitespace().next() == Some(namespace)))
}

/// Makes the platform's namespace and its link to the host, if they are not there.
pub fn create_platform(plan: &Plan, names: &Names) -> Result<(), Error> {
    let namespace = names.platform();
    if exists(&namespace)? {
        return Ok(());
    }
    let (host, inside) = (names.host_link(), names.platform_link());
    ip(&["netns", "add", &namespace])?;
    let inner = |args: &[&str]| ip(&[&["-n", namespace.as_str()], args].concat());
    inner(&["link", "set", "lo", "up"])?;
    inner(&["addr", "add", &format!("{}/32", plan.api()), "dev", "lo"])?;
    ip(&["link", "add", &host, "type", "veth", "peer", "name", &inside, "netns", &namespace])?;
    let (host_address, platform_address) = (plan.host_link().to_string(), plan.platform_link().to_string());
    ip(&["addr", "add", &host_address, "peer", &format!("{platform_address}/32"), "dev", &host])?;
    ip(&["link", "set", &host, "up"])?;
    inner(&["addr", "add", &platform_address, "peer", &format!("{host_address}/32"), "dev", &inside])?;
    inner(&["link", "set", &inside, "up"])?;
    ip(&["route", "replace", &plan.pool, "via", &platform_address, "dev", &host])?;
    // Addresses of Services are mapped on their way out, which needs a route to begin with: there is no default one.
    for services in [SERVICES, &plan.pool] {
        inner(&["route", "replace", services, "dev", "lo", "src", &plan.api().to_string()])?;
    }
    forward_in(&namespace)
}

fn forward_in(namespace: &str) -> Result<(), Error> {
    ip(&["netns", "exec", namespace, "sysctl", "-qw", "net.ipv4.ip_forward=1"]).map(drop)
}

/// Links a worker, whose process 1 is `pid`, to the platform: one pair, a gateway on the platform's end, nothing else.
pub fn attach_worker(plan: &Plan, names: &Names, index: u16, pid: i32) -> Result<(), Error> {
    let platform = names.platform();
    let link = names.worker_link(index);
    let address = plan.worker(index).to_string();
    let gateway = GATEWAY.to_string();
    let pid = pid.to_string();
    let outer = |args: &[&str]| ip(&[&["-n", platform.as_str()], args].concat());
    let inside = format!("--net=/proc/{pid}/ns/net");
    let inner = |args: &[&str]| tool("nsenter", &[&[inside.as_str(), "ip"], args].concat(), None);
    // One that a worker of this number left behind.
    if outer(&["link", "show", "dev", &link]).is_ok() {
        outer(&["link", "delete", &link])?;
    }
    outer(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &pid])?;
    outer(&["addr", "add", &format!("{gateway}/32"), "dev", &link])?;
    outer(&["link", "set", &link, "up"])?;
    outer(&["route", "replace", &format!("{address}/32"), "dev", &link])?;
    inner(&["link", "set", "lo", "up"])?;
    inner(&["addr", "add", &format!("{address}/32"), "dev", "eth0"])?;
    inner(&["link", "set", "eth0", "up"])?;
    inner(&["route", "add", &gateway, "dev", "eth0"])?;
    inner(&["route", "add", "default", "via", &gateway, "dev", "eth0"])?;
    tool("nsenter", &[&inside, "sysctl", "-qw", "net.ipv4.ip_forward=1"], None).map(drop)
}

/// A worker and the address of the tenant that it may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    pub index: u16,
    pub tenant_address: Ipv4Addr,
    pub ports: Vec<u16>,
}

/// The platform's filters as one atomic ruleset: a worker reaches its tenant's API and tunnel ports (the load-balancer address,
/// before it is mapped to a Pod) and nothing else; nobody from a Pod or worker reaches the management API; the host reaches
/// load-balancer addresses.
pub fn ruleset(plan: &Plan, names: &Names, permits: &[Permit]) -> String {
    let mut allowed = String::new();
    for permit in permits {
        let ports = permit.ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        allowed.push_str(&format!(
            "    iifname \"{}\" meta l4proto tcp ct original ip daddr {} ct original proto-dst {{ {ports} }} accept\n",
            names.worker_link(permit.index),
            permit.tenant_address,
        ));
    }
    let (inside, pool, api) = (names.platform_link(), &plan.pool, plan.api());
    let pods = plan.pods();
    format!(
        "table inet atoll_platform\n\
         delete table inet atoll_platform\n\
         table inet atoll_platform {{\n  \
           chain forward {{\n    type filter hook forward priority filter; policy drop;\n    \
             ct state established,related accept\n    ct state invalid drop\n{allowed}    \
             iifname \"{inside}\" ct original ip daddr {pool} accept\n  }}\n  \
           chain input {{\n    type filter hook input priority filter; policy accept;\n    \
             ct state established,related accept\n    iifname \"lo\" accept\n    \
             ip daddr {api} drop\n    ip saddr {pods} drop\n    iifname \"at{}w*\" drop\n  }}\n\
         }}\n",
        names.tag
    )
}

/// Loads the filters.
pub fn apply_filters(plan: &Plan, names: &Names, permits: &[Permit]) -> Result<(), Error> {
    let text = ruleset(plan, names, permits);
    tool("ip", &["netns", "exec", &names.platform(), "nft", "-f", "-"], Some(&text)).map(drop)
}

/// Removes every namespace and link of this platform, whatever is there.
pub fn remove(names: &Names) -> Result<(), Error> {
    let prefix = names.platform();
    let listed = ip(&["netns", "list"])?;
    let ours = listed
        .lines()
        .filter_map(|l| l.split_whitespace().next())
        .filter(|n| *n == prefix || n.strip_prefix(&prefix).is_some_and(|rest| rest.starts_with("-w")));
    for namespace in ours {
        ip(&["netns", "delete", namespace])?;
    }
    // The host's end goes with its peer; one without a peer is left over from a crash.
    let host = names.host_link();
    if ip(&["link", "show", "dev", &host]).is_ok() {
        let _ = ip(&["link", "delete", &host]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new("10.207.0.0/16", "10.208.0.0/24").expect("a plan")
    }

    #[test]
    fn ranges_are_checked_and_named() {
        assert!(Plan::new("10.207.0.0/24", "10.208.0.0/24").is_err());
        let inside = Plan::new("10.207.0.0/16", "10.207.9.0/24").expect_err("inside").to_string();
        assert!(inside.contains("--pool"), "{inside}");
        assert_eq!(plan().worker(3), Ipv4Addr::new(10, 207, 2, 3));
        assert_eq!(plan().pods(), "10.207.128.0/17");
    }

    #[test]
    fn overlap_goes_both_ways() {
        assert!(overlap("10.0.0.0/8", "10.207.0.0/16"));
        assert!(overlap("10.207.3.0/24", "10.207.0.0/16"));
        assert!(!overlap("10.206.0.0/16", "10.207.0.0/16"));
    }

    #[test]
    fn a_worker_gets_its_tenants_ports_and_no_other_rule() {
        let names = Names { tag: "abcd".to_owned() };
        let permit = Permit { index: 1, tenant_address: Ipv4Addr::new(10, 208, 0, 1), ports: vec![6443, 8132] };
        let text = ruleset(&plan(), &names, &[permit]);
        let lines: Vec<&str> = text.lines().filter(|l| l.contains("atabcdw1\"")).map(str::trim).collect();
        let ports = "ct original proto-dst { 6443, 8132 } accept";
        let expected = format!("iifname \"atabcdw1\" meta l4proto tcp ct original ip daddr 10.208.0.1 {ports}");
        assert_eq!(lines, [expected]);
        assert!(text.contains("policy drop"));
    }
}
