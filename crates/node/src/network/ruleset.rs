//! Services as an nftables ruleset: pure text from what Services and EndpointSlices say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::range::Ipv4Range;

/// Transport protocol of a Service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    fn of(word: Option<&str>) -> Option<Protocol> {
        match word {
            None | Some("TCP") => Some(Protocol::Tcp),
            Some("UDP") => Some(Protocol::Udp),
            Some(_) => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }
}

/// An address that clients call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frontend {
    pub address: Ipv4Addr,
    pub protocol: Protocol,
    pub port: u16,
}

/// An address that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Backend {
    pub address: Ipv4Addr,
    pub port: u16,
}

/// Who answers for each frontend.
pub type Table = BTreeMap<Frontend, BTreeSet<Backend>>;

/// The table of all Services. `slices` are those of one Service each.
pub fn table<'a>(services: impl Iterator<Item = (&'a Service, Vec<&'a EndpointSlice>)>, node_ip: Ipv4Addr) -> Table {
    let mut table = Table::new();
    for (service, slices) in services {
        let Some(spec) = &service.spec else { continue };
        let cluster = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
        let ingress = service.status.iter().flat_map(|s| &s.load_balancer).flat_map(|l| l.ingress.iter().flatten());
        let ingress: Vec<&String> = ingress.filter_map(|i| i.ip.as_ref()).collect();
        let external = spec.external_ips.iter().flatten().chain(ingress);
        let addresses: BTreeSet<Ipv4Addr> = cluster.chain(external).filter_map(|a| a.parse().ok()).collect();
        for port in spec.ports.iter().flatten() {
            let Some(protocol) = Protocol::of(port.protocol.as_deref()) else { continue };
            let backends = backends(port, &slices);
            let number = |n: i32| u16::try_from(n).ok();
            for address in &addresses {
                let Some(port) = number(port.port) else { continue };
                table.insert(Frontend { address: *address, protocol, port }, backends.clone());
            }
            if let Some(port) = port.node_port.and_then(number).filter(|p| *p > 0) {
                table.insert(Frontend { address: node_ip, protocol, port }, backends.clone());
            }
        }
    }
    table
}

fn backends(port: &ServicePort, slices: &[&EndpointSlice]) -> BTreeSet<Backend> {
    let mut backends = BTreeSet::new();
    for slice in slices.iter().filter(|s| s.address_type == "IPv4") {
        // A slice names its ports as the Service does; a single one may have no name.
        let named = slice.ports.iter().flatten().find(|p| {
            p.name.as_deref().unwrap_or("") == port.name.as_deref().unwrap_or("")
                && Protocol::of(p.protocol.as_deref()) == Protocol::of(port.protocol.as_deref())
        });
        let target = match (&port.target_port, named.and_then(|p| p.port)) {
            (_, Some(number)) => number,
            (Some(IntOrString::Int(number)), None) => *number,
            _ => continue,
        };
        let Ok(target) = u16::try_from(target) else { continue };
        if named.is_none() {
            continue;
        }
        for endpoint in slice.endpoints.iter().flatten() {
            let ready = endpoint.conditions.as_ref().and_then(|c| c.ready) != Some(false);
            let addresses = endpoint.addresses.iter().filter_map(|a| a.parse().ok());
            backends.extend(addresses.filter(|_| ready).map(|address| Backend { address, port: target }));
        }
    }
    backends
}

/// The whole ruleset, to be applied in one transaction. Pods of `masquerade` leave the node under the node's address.
pub fn render(table: &Table, masquerade: Option<Ipv4Range>) -> String {
    let mut chains = String::new();
    let (mut frontends, mut empty) = (Vec::new(), Vec::new());
    let mut numbers: BTreeMap<&BTreeSet<Backend>, usize> = BTreeMap::new();
    for (frontend, backends) in table {
        let key = format!("{} . {} . {}", frontend.address, frontend.protocol.word(), frontend.port);
        if backends.is_empty() {
            empty.push(key);
            continue;
        }
        let next = numbers.len();
        let number = *numbers.entry(backends).or_insert_with(|| {
            let _ = writeln!(chains, "  chain to-{next} {{ {}; }}", dnat(backends));
            next
        });
        frontends.push(format!("{key} : goto to-{number}"));
    }
    let itself: BTreeSet<Ipv4Addr> = table.values().flatten().map(|b| b.address).collect();
    let itself: Vec<String> = itself.iter().map(|a| format!("{a} . {a}")).collect();
    let leave = masquerade.map_or(String::new(), |range| format!("ip saddr {range} ip daddr != {range} masquerade;"));
    format!(
        "table ip atoll\ndelete table ip atoll\ntable ip atoll {{\n{chains}\
         \x20 map frontends {{ type ipv4_addr . inet_proto . inet_service : verdict; {} }}\n\
         \x20 set empty {{ type ipv4_addr . inet_proto . inet_service; {} }}\n\
         \x20 set itself {{ type ipv4_addr . ipv4_addr; {} }}\n\
         \x20 chain services {{ ip daddr . meta l4proto . th dport vmap @frontends; }}\n\
         \x20 chain prerouting {{ type nat hook prerouting priority -100; jump services; }}\n\
         \x20 chain output {{ type nat hook output priority -100; jump services; }}\n\
         \x20 chain postrouting {{ type nat hook postrouting priority 100; ip saddr . ip daddr @itself masquerade; {leave} }}\n\
         \x20 chain refuse {{ ip daddr . meta l4proto . th dport @empty reject; }}\n\
         \x20 chain refuse-forward {{ type filter hook forward priority -10; jump refuse; }}\n\
         \x20 chain refuse-output {{ type filter hook output priority -10; jump refuse; }}\n\
         \x20 chain refuse-input {{ type filter hook input priority -10; jump refuse; }}\n}}\n",
        elements(&frontends),
        elements(&empty),
        elements(&itself),
    )
}

fn elements(list: &[String]) -> String {
    if list.is_empty() { String::new() } else { format!("elements = {{ {} }};", list.join(", ")) }
}

fn dnat(backends: &BTreeSet<Backend>) -> String {
    let all: Vec<&Backend> = backends.iter().collect();
    if let [only] = all.as_slice() {
        return format!("meta l4proto {{ tcp, udp }} dnat to {}:{}", only.address, only.port);
    }
    let choices: Vec<String> = all.iter().enumerate().map(|(i, b)| format!("{i} : {} . {}", b.address, b.port)).collect();
    let count = choices.len();
    format!("meta l4proto {{ tcp, udp }} dnat to numgen random mod {count} map {{ {} }}", choices.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(value: serde_json::Value) -> Service {
        serde_json::from_value(value).unwrap()
    }

    fn slice(value: serde_json::Value) -> EndpointSlice {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn every_address_of_a_service_leads_to_its_ready_endpoints() {
        let service = service(serde_json::json!({
            "metadata": {"name": "s"},
            "spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ports": [
                {"name": "a", "port": 80, "targetPort": 8080, "nodePort": 30080}, {"name": "b", "port": 81, "protocol": "UDP"}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "10.200.0.1"}]}}
        }));
        let slice = slice(serde_json::json!({
            "addressType": "IPv4", "metadata": {}, "ports": [{"name": "a", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.1.0.2"]}, {"addresses": ["10.1.0.3"], "conditions": {"ready": false}}]
        }));
        let table = table([(&service, vec![&slice])].into_iter(), Ipv4Addr::new(10, 0, 0, 1));
        let to = BTreeSet::from([Backend { address: Ipv4Addr::new(10, 1, 0, 2), port: 8080 }]);
        let tcp = |a: [u8; 4], port| Frontend { address: a.into(), protocol: Protocol::Tcp, port };
        for frontend in [tcp([10, 96, 0, 9], 80), tcp([10, 200, 0, 1], 80), tcp([10, 0, 0, 1], 30080)] {
            assert_eq!(table[&frontend], to, "{frontend:?}");
        }
        let udp = Frontend { protocol: Protocol::Udp, ..tcp([10, 96, 0, 9], 81) };
        assert!(table[&udp].is_empty());
    }

    #[test]
    fn a_ruleset_shares_chains_and_refuses_what_has_no_endpoint() {
        let b = |last| Backend { address: Ipv4Addr::new(10, 1, 0, last), port: 80 };
        let f = |last, port| Frontend { address: Ipv4Addr::new(10, 96, 0, last), protocol: Protocol::Tcp, port };
        let two = BTreeSet::from([b(1), b(2)]);
        let table = Table::from([(f(1, 80), two.clone()), (f(2, 80), two), (f(3, 80), BTreeSet::new())]);
        let text = render(&table, Some("10.1.0.0/24".parse().unwrap()));
        assert_eq!(text.matches("chain to-").count(), 1);
        assert!(text.contains("dnat to numgen random mod 2 map { 0 : 10.1.0.1 . 80, 1 : 10.1.0.2 . 80 }"), "{text}");
        assert!(text.contains("set empty { type ipv4_addr . inet_proto . inet_service; elements = { 10.96.0.3 . tcp . 80 }; }"));
        assert!(text.contains("ip saddr 10.1.0.0/24 ip daddr != 10.1.0.0/24 masquerade"));
    }
}
