//! `endpointslice-controller`: a Service's addresses in slices of at most 100; and `endpointslice-mirroring-controller`:
//! slices for Endpoints that people write by hand.

use super::backend::{self, HEADLESS, Port};
use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::Key;
use crate::workload::{pods, template};
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpointslice-controller.k8s.io";
const MIRRORING: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Endpoints per slice.
const SLICE_CAPACITY: usize = 100;

/// Address type and ports that the endpoints of a slice share.
type Group = (String, Vec<Port>);

fn service_key(slice: &EndpointSlice, manager: &str) -> Vec<Key> {
    let labels = slice.metadata.labels.as_ref();
    let ours = labels.and_then(|l| l.get(MANAGED_BY)).is_some_and(|m| m == manager);
    let name = labels.and_then(|l| l.get(SERVICE_NAME)).filter(|_| ours);
    name.map(|name| Key::new(slice.metadata.namespace.clone().unwrap_or_default(), name)).into_iter().collect()
}

fn slices_of(slices: Vec<Arc<EndpointSlice>>, key: &Key, manager: &str) -> Vec<Arc<EndpointSlice>> {
    slices.into_iter().filter(|slice| service_key(slice, manager).first() == Some(key)).collect()
}

/// `endpointslice-controller`.
pub fn start(env: &Env) -> Vec<Controller> {
    let (services, all_pods, nodes) = (env.informer::<Service>(), env.informer::<Pod>(), env.informer::<Node>());
    let slices = env.informer::<EndpointSlice>();
    let for_pods = services.clone();
    let user = "system:serviceaccount:kube-system:endpointslice-controller";
    let builder = Builder::new(env, "endpointslice-controller", user)
        .each(&services)
        .reads(&nodes)
        .on(&slices, |slice| service_key(slice, CONTROLLER))
        .on(&all_pods, move |pod| {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let selecting = for_pods.in_namespace(namespace).into_iter().filter(|service| backend::selects(service, pod));
            selecting.map(|service| Key::of(&service.metadata)).collect()
        });
    vec![builder.plan(move |key, _| {
        let existing = slices_of(slices.in_namespace(&key.namespace), key, CONTROLLER);
        let Some(service) = services.get(key).filter(|s| backend::has_selector(s)) else {
            // Slices of a deleted Service go with their owner; of one that lost its selector they go here.
            return existing.iter().map(|slice| Action::delete(slice.as_ref())).collect();
        };
        if service.metadata.deletion_timestamp.is_some() {
            return Vec::new();
        }
        let zone = |node: &str| nodes.find("", node).and_then(|n| n.metadata.labels.as_ref()?.get(ZONE).cloned());
        let wanted = wanted(&service, backend::backends(&service, all_pods.in_namespace(&key.namespace)), &zone);
        plan(&Owner::service(&service), wanted, &existing)
    })]
}

/// `endpointslice-mirroring-controller`.
pub fn start_mirroring(env: &Env) -> Vec<Controller> {
    let (services, endpoints, slices) = (env.informer::<Service>(), env.informer::<Endpoints>(), env.informer::<EndpointSlice>());
    let user = "system:serviceaccount:kube-system:endpointslicemirroring-controller";
    let builder = Builder::new(env, "endpointslice-mirroring-controller", user)
        .each(&services)
        .each(&endpoints)
        .on(&slices, |slice| service_key(slice, MIRRORING));
    vec![builder.plan(move |key, _| {
        let existing = slices_of(slices.in_namespace(&key.namespace), key, MIRRORING);
        let service = services.get(key).filter(|s| !backend::has_selector(s));
        match (service, endpoints.get(key).filter(|e| is_mirrored(e))) {
            (Some(_), Some(endpoints)) => plan(&Owner::mirrored(&endpoints), mirrored(&endpoints), &existing),
            _ => existing.iter().map(|slice| Action::delete(slice.as_ref())).collect(),
        }
    })]
}

/// Endpoints that another controller or a leader election keeps are not mirrored.
fn is_mirrored(endpoints: &Endpoints) -> bool {
    let label = |key: &str| endpoints.metadata.labels.as_ref().and_then(|l| l.get(key));
    let annotations = endpoints.metadata.annotations.as_ref();
    label(SKIP_MIRROR).is_none_or(|v| v != "true")
        && label("endpoints.kubernetes.io/managed-by").is_none()
        && annotations.is_none_or(|a| !a.contains_key("control-plane.alpha.kubernetes.io/leader"))
        && endpoints.metadata.deletion_timestamp.is_none()
}

/// What the slices of one Service have in common.
struct Owner {
    name: String,
    namespace: Option<String>,
    reference: OwnerReference,
    labels: BTreeMap<String, String>,
}

impl Owner {
    fn new(meta: &ObjectMeta, reference: OwnerReference, manager: &str) -> Self {
        let name = meta.name.clone().unwrap_or_default();
        let mut labels = meta.labels.clone().unwrap_or_default();
        labels.remove(HEADLESS);
        labels.insert(SERVICE_NAME.into(), name.clone());
        labels.insert(MANAGED_BY.into(), manager.into());
        Self { name, namespace: meta.namespace.clone(), reference, labels }
    }

    fn service(service: &Service) -> Self {
        let mut owner = Self::new(&service.metadata, template::controller_ref(service), CONTROLLER);
        if backend::is_headless(service) {
            owner.labels.insert(HEADLESS.into(), String::new());
        }
        owner
    }

    fn mirrored(endpoints: &Endpoints) -> Self {
        Self::new(&endpoints.metadata, template::controller_ref(endpoints), MIRRORING)
    }
}

/// The endpoints a Service should have, by group. A family without any has one empty group.
fn wanted(
    service: &Service,
    pods_behind: Vec<Arc<Pod>>,
    zone: &dyn Fn(&str) -> Option<String>,
) -> BTreeMap<Group, Vec<Endpoint>> {
    let families = service.spec.as_ref().and_then(|s| s.ip_families.clone()).unwrap_or_else(|| vec!["IPv4".into()]);
    let unready_too = backend::publishes_unready(service);
    let mut groups: BTreeMap<Group, Vec<Endpoint>> = BTreeMap::new();
    for family in &families {
        let v6 = family == "IPv6";
        let mut any = false;
        for pod in &pods_behind {
            let Some(status) = &pod.status else { continue };
            let mut all = status.pod_ips.iter().flatten().map(|ip| &ip.ip).chain(&status.pod_ip);
            let Some(ip) = all.find(|ip| ip.contains(':') == v6) else { continue };
            let terminating = pod.metadata.deletion_timestamp.is_some();
            let serving = pods::is_ready(pod);
            let node = pod.spec.as_ref().and_then(|s| s.node_name.clone());
            let mut target = pod.object_ref(&());
            target.api_version = None;
            target.resource_version = None;
            let endpoint = Endpoint {
                addresses: vec![ip.clone()],
                conditions: Some(EndpointConditions {
                    ready: Some(unready_too || (serving && !terminating)),
                    serving: Some(serving),
                    terminating: Some(terminating),
                }),
                hostname: backend::hostname(service, pod),
                zone: node.as_deref().and_then(zone),
                node_name: node,
                target_ref: Some(target),
                ..Endpoint::default()
            };
            groups.entry((family.clone(), backend::ports(service, pod))).or_default().push(endpoint);
            any = true;
        }
        if !any {
            groups.insert((family.clone(), Vec::new()), Vec::new());
        }
    }
    groups
}

/// The endpoints of a hand-written object, by group.
fn mirrored(endpoints: &Endpoints) -> BTreeMap<Group, Vec<Endpoint>> {
    let mut groups: BTreeMap<Group, Vec<Endpoint>> = BTreeMap::new();
    for subset in endpoints.subsets.iter().flatten() {
        let port = |p: &k8s_openapi::api::core::v1::EndpointPort| Port {
            name: p.name.clone().unwrap_or_default(),
            protocol: p.protocol.clone().unwrap_or_else(|| "TCP".into()),
            number: p.port,
            app_protocol: p.app_protocol.clone(),
        };
        let mut ports: Vec<Port> = subset.ports.iter().flatten().map(port).collect();
        ports.sort();
        for (addresses, ready) in [(&subset.addresses, true), (&subset.not_ready_addresses, false)] {
            for address in addresses.iter().flatten() {
                let family = if address.ip.contains(':') { "IPv6" } else { "IPv4" };
                let endpoint = Endpoint {
                    addresses: vec![address.ip.clone()],
                    conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
                    hostname: address.hostname.clone(),
                    node_name: address.node_name.clone(),
                    target_ref: address.target_ref.clone(),
                    ..Endpoint::default()
                };
                groups.entry((family.into(), ports.clone())).or_default().push(endpoint);
            }
        }
    }
    groups
}

fn group_of(slice: &EndpointSlice) -> Group {
    let port = |p: &EndpointPort| Port {
        name: p.name.clone().unwrap_or_default(),
        protocol: p.protocol.clone().unwrap_or_else(|| "TCP".into()),
        number: p.port.unwrap_or(0),
        app_protocol: p.app_protocol.clone(),
    };
    let mut ports: Vec<Port> = slice.ports.iter().flatten().map(port).collect();
    ports.sort();
    (slice.address_type.clone(), ports)
}

fn slice_ports(ports: &[Port]) -> Option<Vec<EndpointPort>> {
    let port = |p: &Port| EndpointPort {
        name: Some(p.name.clone()),
        protocol: Some(p.protocol.clone()),
        port: Some(p.number),
        app_protocol: p.app_protocol.clone(),
    };
    (!ports.is_empty()).then(|| ports.iter().map(port).collect())
}

/// Changes as few slices as possible: an endpoint stays in its slice, new ones fill gaps, empty slices go.
fn plan(owner: &Owner, wanted: BTreeMap<Group, Vec<Endpoint>>, existing: &[Arc<EndpointSlice>]) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut used: BTreeSet<Option<String>> = BTreeSet::new();
    for (group, endpoints) in wanted {
        let slices: Vec<&Arc<EndpointSlice>> = existing.iter().filter(|slice| group_of(slice) == group).collect();
        let mut open: BTreeMap<String, Endpoint> =
            endpoints.into_iter().filter_map(|e| Some((e.addresses.first()?.clone(), e))).collect();
        let mut kept: Vec<Vec<Endpoint>> = Vec::new();
        for slice in &slices {
            let here = slice.endpoints.iter().flatten().filter_map(|e| open.remove(e.addresses.first()?));
            kept.push(here.collect());
        }
        let mut rest = open.into_values();
        for (slice, mut endpoints) in slices.iter().zip(kept) {
            endpoints.extend(rest.by_ref().take(SLICE_CAPACITY.saturating_sub(endpoints.len())));
            let placeholder = group.1.is_empty() && used.is_empty();
            if endpoints.is_empty() && !placeholder {
                continue;
            }
            used.insert(slice.metadata.name.clone());
            actions.extend(update(owner, slice, endpoints));
        }
        let mut rest: Vec<Endpoint> = rest.collect();
        let mut missing_placeholder = slices.is_empty() && rest.is_empty();
        while !rest.is_empty() || std::mem::take(&mut missing_placeholder) {
            let tail = rest.split_off(rest.len().min(SLICE_CAPACITY));
            actions.push(create(owner, &group, std::mem::replace(&mut rest, tail)));
        }
    }
    let left_over = existing.iter().filter(|slice| !used.contains(&slice.metadata.name));
    actions.extend(left_over.map(|slice| Action::delete(slice.as_ref())));
    actions
}

fn update(owner: &Owner, slice: &EndpointSlice, endpoints: Vec<Endpoint>) -> Option<Action> {
    let mut changed = slice.clone();
    changed.endpoints = Some(endpoints);
    changed.metadata.labels = Some(owner.labels.clone());
    (changed != *slice).then(|| Action::update(&changed))
}

fn create(owner: &Owner, (family, ports): &Group, endpoints: Vec<Endpoint>) -> Action {
    Action::create(&EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", owner.name)),
            namespace: owner.namespace.clone(),
            labels: Some(owner.labels.clone()),
            owner_references: Some(vec![owner.reference.clone()]),
            ..ObjectMeta::default()
        },
        address_type: family.clone(),
        endpoints: Some(endpoints),
        ports: slice_ports(ports),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Verb, Write};
    use serde_json::{from_value, json};

    fn owner() -> Owner {
        let service: Service = from_value(json!({"metadata": {"name": "s", "namespace": "a", "uid": "u"}})).unwrap();
        Owner::service(&service)
    }

    fn endpoints(range: std::ops::Range<usize>) -> BTreeMap<Group, Vec<Endpoint>> {
        let port = Port { name: String::new(), protocol: "TCP".into(), number: 80, app_protocol: None };
        let endpoint = |i| Endpoint { addresses: vec![format!("10.0.0.{i}")], ..Endpoint::default() };
        [(("IPv4".to_owned(), vec![port]), range.map(endpoint).collect())].into()
    }

    fn done(actions: &[Action]) -> Vec<(Verb, usize)> {
        let of = |a: &Action| match a {
            Action::Write(Write { verb, body, .. }) => Some((*verb, body["endpoints"].as_array().map_or(0, Vec::len))),
            _ => None,
        };
        actions.iter().filter_map(of).collect()
    }

    fn created(actions: &[Action]) -> Vec<Arc<EndpointSlice>> {
        let of = |(i, a): (usize, &Action)| match a {
            Action::Write(Write { verb: Verb::Create, body, .. }) => {
                let mut slice: EndpointSlice = from_value(body.clone()).unwrap();
                slice.metadata.name = Some(format!("s-{i}"));
                Some(Arc::new(slice))
            }
            _ => None,
        };
        actions.iter().enumerate().filter_map(of).collect()
    }

    #[test]
    fn slices_are_filled_and_touched_as_little_as_possible() {
        let first = plan(&owner(), endpoints(0..150), &[]);
        assert_eq!(done(&first), [(Verb::Create, 100), (Verb::Create, 50)]);
        let slices = created(&first);
        assert!(plan(&owner(), endpoints(0..150), &slices).is_empty());
        assert_eq!(done(&plan(&owner(), endpoints(0..160), &slices)), [(Verb::Update, 60)]);
        let none: BTreeMap<Group, Vec<Endpoint>> = [(("IPv4".to_owned(), vec![]), vec![])].into();
        assert_eq!(done(&plan(&owner(), none, &slices)), [(Verb::Create, 0), (Verb::Delete, 0), (Verb::Delete, 0)]);
    }
}
