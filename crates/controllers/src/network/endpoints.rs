//! `endpoints-controller`: the older form of a Service's addresses, at most 1,000 of them.

use super::backend::{self, HEADLESS, Port};
use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::Key;
use crate::workload::pods;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use std::collections::BTreeMap;
use std::sync::Arc;

const MANAGED_BY: (&str, &str) = ("endpoints.kubernetes.io/managed-by", "endpoint-controller");
/// Addresses per object; past it the object is cut and says so.
const CAPACITY: usize = 1000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// Puts the controller together.
pub fn start(env: &Env) -> Vec<Controller> {
    let (services, all_pods, endpoints) = (env.informer::<Service>(), env.informer::<Pod>(), env.informer::<Endpoints>());
    let for_pods = services.clone();
    let user = "system:serviceaccount:kube-system:endpoint-controller";
    let builder = Builder::new(env, "endpoints-controller", user).each(&services).each(&endpoints).on(&all_pods, move |pod| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let selecting = for_pods.in_namespace(namespace).into_iter().filter(|service| backend::selects(service, pod));
        selecting.map(|service| Key::of(&service.metadata)).collect()
    });
    vec![builder.plan(move |key, _| {
        let (service, current) = (services.get(key), endpoints.get(key));
        plan(service.as_deref(), current.as_deref(), &mut || all_pods.in_namespace(&key.namespace))
    })]
}

fn is_ours(endpoints: &Endpoints) -> bool {
    endpoints.metadata.labels.as_ref().and_then(|l| l.get(MANAGED_BY.0)).is_some_and(|v| v == MANAGED_BY.1)
}

/// Makes the object of a Service what its Pods say; deletes it with the Service.
pub fn plan(
    service: Option<&Service>,
    current: Option<&Endpoints>,
    namespace_pods: &mut dyn FnMut() -> Vec<Arc<Pod>>,
) -> Vec<Action> {
    let Some(service) = service else {
        return current.filter(|e| is_ours(e)).map(|e| vec![Action::delete(e)]).unwrap_or_default();
    };
    if !backend::has_selector(service) || service.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let (subsets, cut) = subsets(service, backend::backends(service, namespace_pods()));
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(MANAGED_BY.0.into(), MANAGED_BY.1.into());
    if backend::is_headless(service) {
        labels.insert(HEADLESS.into(), String::new());
    } else {
        labels.remove(HEADLESS);
    }
    let mut wanted = current.cloned().unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        subsets: None,
    });
    wanted.metadata.labels = Some(labels);
    if cut {
        wanted.metadata.annotations.get_or_insert_default().insert(OVER_CAPACITY.into(), "truncated".into());
    } else if let Some(annotations) = &mut wanted.metadata.annotations {
        annotations.remove(OVER_CAPACITY);
    }
    wanted.subsets = (!subsets.is_empty()).then_some(subsets);
    match current {
        None => vec![Action::create(&wanted)],
        Some(current) if *current == wanted => Vec::new(),
        Some(_) => vec![Action::update(&wanted)],
    }
}

/// Addresses grouped by the ports they share, both sorted, so that the same Pods give the same object.
fn subsets(service: &Service, pods_behind: Vec<Arc<Pod>>) -> (Vec<EndpointSubset>, bool) {
    let unready_too = backend::publishes_unready(service);
    let family = service.spec.as_ref().and_then(|s| s.ip_families.as_ref()).and_then(|f| f.first());
    let v6 = family.is_some_and(|f| f == "IPv6");
    let mut groups: BTreeMap<Vec<Port>, (Vec<EndpointAddress>, Vec<EndpointAddress>)> = BTreeMap::new();
    let mut left = CAPACITY;
    let mut cut = false;
    for pod in pods_behind {
        if pod.metadata.deletion_timestamp.is_some() && !unready_too {
            continue;
        }
        let Some(address) = address(service, &pod, v6) else { continue };
        if left == 0 {
            cut = true;
            break;
        }
        left -= 1;
        let ports = backend::ports(service, &pod);
        if ports.is_empty() && !backend::is_headless(service) {
            continue;
        }
        let (ready, unready) = groups.entry(ports).or_default();
        if unready_too || pods::is_ready(&pod) { ready.push(address) } else { unready.push(address) }
    }
    let subsets = groups.into_iter().map(|(ports, (mut ready, mut unready))| {
        ready.sort_by(|a, b| a.ip.cmp(&b.ip));
        unready.sort_by(|a, b| a.ip.cmp(&b.ip));
        EndpointSubset {
            addresses: (!ready.is_empty()).then_some(ready),
            not_ready_addresses: (!unready.is_empty()).then_some(unready),
            ports: (!ports.is_empty()).then(|| ports.into_iter().map(port).collect()),
        }
    });
    (subsets.collect(), cut)
}

fn port(port: Port) -> EndpointPort {
    EndpointPort {
        name: Some(port.name).filter(|name| !name.is_empty()),
        port: port.number,
        protocol: Some(port.protocol),
        app_protocol: port.app_protocol,
    }
}

fn address(service: &Service, pod: &Pod, v6: bool) -> Option<EndpointAddress> {
    let status = pod.status.as_ref()?;
    let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).chain(status.pod_ip.clone());
    let ip = all.into_iter().find(|ip| ip.contains(':') == v6)?;
    let mut target = pod.object_ref(&());
    target.api_version = None;
    target.resource_version = None;
    let node = pod.spec.as_ref().and_then(|s| s.node_name.clone());
    Some(EndpointAddress { ip, hostname: backend::hostname(service, pod), node_name: node, target_ref: Some(target) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Verb, Write};
    use serde_json::{from_value, json};

    fn service() -> Service {
        from_value(
            json!({"metadata": {"name": "s", "namespace": "a"}, "spec": {"selector": {"app": "x"}, "clusterIP": "10.0.0.1",
            "ports": [{"name": "http", "port": 80, "targetPort": "web"}]}}),
        )
        .unwrap()
    }

    fn pod(name: &str, ip: &str, ready: &str) -> Arc<Pod> {
        Arc::new(
            from_value(json!({"metadata": {"name": name, "namespace": "a", "labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
            "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": ready}]}}))
            .unwrap(),
        )
    }

    #[test]
    fn ready_and_unready_pods_under_resolved_ports() {
        let mut pods = || vec![pod("p", "10.1.0.2", "True"), pod("q", "10.1.0.1", "False"), pod("r", "", "True")];
        let actions = plan(Some(&service()), None, &mut pods);
        let [Action::Write(Write { verb: Verb::Create, body, .. })] = &actions[..] else { panic!() };
        let subset = &body["subsets"][0];
        assert_eq!(subset["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
        assert_eq!(
            (&subset["addresses"][0]["ip"], &subset["notReadyAddresses"][0]["ip"]),
            (&json!("10.1.0.2"), &json!("10.1.0.1"))
        );
        let created: Endpoints = from_value(body.clone()).unwrap();
        assert!(plan(Some(&service()), Some(&created), &mut pods).is_empty());
        assert_eq!(plan(None, Some(&created), &mut pods).len(), 1);
    }
}
