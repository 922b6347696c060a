//! Cluster addresses and node ports of Services.
//!
//! What a Service uses is taken before it is validated and given back when the write comes to nothing; what an update or a delete
//! no longer uses is freed after the commit. The pools are filled from the stored Services at start.

mod pool;
mod rules;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::error::Result;
use pool::Pool;

/// Node ports, as upstream's default.
const NODE_PORTS: std::ops::RangeInclusive<u32> = 30000..=32767;

/// Something that a Service holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    Address(u32),
    NodePort(u32),
}

/// The pools of one cluster.
#[derive(Debug)]
pub(crate) struct Services {
    addresses: Pool,
    node_ports: Pool,
}

impl Services {
    /// Pools for a range such as `10.96.0.0/12`; the network's own address and the broadcast address are not handed out.
    pub fn new(cidr: &str) -> Option<Services> {
        let (base, bits) = cidr.split_once('/')?;
        let (base, bits): (Ipv4Addr, u32) = (base.parse().ok()?, bits.parse().ok()?);
        let size = 1_u32.checked_shl(32 - bits).filter(|_| (8..=30).contains(&bits))?;
        let first = u32::from(base) & !(size - 1);
        Some(Services { addresses: Pool::new(first + 1..=first + size - 2), node_ports: Pool::new(NODE_PORTS) })
    }

    /// Takes what a stored Service has.
    pub fn adopt(&self, service: &Value) {
        for claim in rules::claims(service) {
            self.pool(claim).take(number(claim));
        }
    }

    fn pool(&self, claim: Claim) -> &Pool {
        match claim {
            Claim::Address(_) => &self.addresses,
            Claim::NodePort(_) => &self.node_ports,
        }
    }

    /// Fills what a new or changed Service has the server choose.
    pub fn reserve(self: &Arc<Self>, service: &mut Value, old: Option<&Value>, name: &str) -> Result<Reservation> {
        let before = old.map(rules::claims).unwrap_or_default();
        let mut reservation =
            Reservation { services: self.clone(), taken: Vec::new(), before, after: Vec::new(), settled: AtomicBool::new(false) };
        rules::fill(&mut reservation, service, old, name)?;
        reservation.after = rules::claims(service);
        Ok(reservation)
    }

    /// What a Service that goes gives back.
    pub fn release(self: &Arc<Self>, service: &Value) -> Reservation {
        let before = rules::claims(service);
        Reservation { services: self.clone(), taken: Vec::new(), before, after: Vec::new(), settled: AtomicBool::new(false) }
    }
}

fn number(claim: Claim) -> u32 {
    match claim {
        Claim::Address(n) | Claim::NodePort(n) => n,
    }
}

/// What a write has taken. Dropped without [`Reservation::settle`] it gives that back.
#[derive(Debug)]
pub(crate) struct Reservation {
    services: Arc<Services>,
    taken: Vec<Claim>,
    before: Vec<Claim>,
    after: Vec<Claim>,
    settled: AtomicBool,
}

impl Reservation {
    /// Takes a claim for the write; false if somebody else has it.
    fn take(&mut self, claim: Claim) -> bool {
        if self.before.contains(&claim) || self.taken.contains(&claim) {
            return true;
        }
        let got = self.services.pool(claim).take(number(claim));
        if got {
            self.taken.push(claim);
        }
        got
    }

    fn take_address(&mut self) -> Option<u32> {
        let address = self.services.addresses.take_any()?;
        self.taken.push(Claim::Address(address));
        Some(address)
    }

    fn take_node_port(&mut self) -> Option<u32> {
        let port = self.services.node_ports.take_any()?;
        self.taken.push(Claim::NodePort(port));
        Some(port)
    }

    /// The write is committed: what the Service no longer uses is free.
    pub fn settle(&self) {
        self.settled.store(true, Ordering::Release);
        for claim in self.before.iter().filter(|c| !self.after.contains(c)) {
            self.services.pool(*claim).free(number(*claim));
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.settled.load(Ordering::Acquire) {
            for claim in &self.taken {
                self.services.pool(*claim).free(number(*claim));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn services() -> Arc<Services> {
        Arc::new(Services::new("10.96.0.0/24").unwrap())
    }

    #[test]
    fn an_address_is_given_back_when_the_write_comes_to_nothing() {
        let services = services();
        let mut a = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.96.0.9", "selector": {"a": "b"}}});
        let held = services.reserve(&mut a, None, "a").unwrap();
        let error = services.reserve(&mut a.clone(), None, "b").unwrap_err();
        assert_eq!(error.details.unwrap().causes[0].field, "spec.clusterIPs");
        drop(held);
        services.reserve(&mut a, None, "b").unwrap().settle();
        assert_eq!(a["spec"]["clusterIPs"], json!(["10.96.0.9"]));
        assert_eq!(a["spec"]["ipFamilies"], json!(["IPv4"]));
    }

    #[test]
    fn the_single_address_and_the_list_have_to_agree() {
        let services = services();
        let old = json!({"spec": {"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"]}});
        let mut emptied = json!({"spec": {"type": "ClusterIP", "clusterIP": "", "clusterIPs": ["None"]}});
        services.reserve(&mut emptied, Some(&old), "a").unwrap().settle();
        assert_eq!(emptied["spec"]["clusterIP"], "None", "a headless Service stays one");
        let mut both = json!({"spec": {"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["10.96.0.9"]}});
        services.reserve(&mut both, None, "b").unwrap();
        assert_eq!(both["spec"]["clusterIPs"], json!(["10.96.0.9"]), "left for validation to refuse");
    }

    #[test]
    fn node_ports_stay_with_their_port_and_are_freed_with_the_type() {
        let services = services();
        let mut a = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}});
        services.reserve(&mut a, None, "a").unwrap().settle();
        let port = a["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
        let mut b = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}});
        services.reserve(&mut b, Some(&a), "a").unwrap().settle();
        assert_eq!(b["spec"]["ports"][0]["nodePort"], port);
        let mut c = b.clone();
        c["spec"]["type"] = json!("ClusterIP");
        services.reserve(&mut c, Some(&b), "a").unwrap().settle();
        assert!(c["spec"]["ports"][0].get("nodePort").is_none());
        assert!(services.node_ports.take(port as u32));
    }
}
