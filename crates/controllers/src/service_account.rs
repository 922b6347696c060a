//! A `default` service account in each namespace, and `kube-root-ca.crt` beside it.

use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::Key;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use serde_json::{from_value, json};

fn is_active(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_none()
        && namespace.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Terminating")
}

fn namespace_key(namespace: Option<&String>) -> Vec<Key> {
    namespace.map(|ns| Key::new("", ns)).into_iter().collect()
}

/// `serviceaccount-controller`.
pub fn start(env: &Env) -> Vec<Controller> {
    let (namespaces, accounts) = (env.informer::<Namespace>(), env.informer::<ServiceAccount>());
    let builder = Builder::new(env, "serviceaccount-controller", "system:serviceaccount:kube-system:service-account-controller")
        .each(&namespaces)
        .on(&accounts, |a| if is_default(a) { namespace_key(a.metadata.namespace.as_ref()) } else { Vec::new() });
    vec![builder.plan(move |key, _| plan_account(namespaces.get(key).as_deref(), accounts.find(&key.name, "default").as_deref()))]
}

fn is_default(account: &ServiceAccount) -> bool {
    account.metadata.name.as_deref() == Some("default")
}

fn plan_account(namespace: Option<&Namespace>, account: Option<&ServiceAccount>) -> Vec<Action> {
    let Some(namespace) = namespace.filter(|ns| is_active(ns) && account.is_none()) else { return Vec::new() };
    let mut account = ServiceAccount::default();
    account.metadata.namespace = namespace.metadata.name.clone();
    account.metadata.name = Some("default".into());
    vec![Action::create(&account)]
}

const ROOT_CA: &str = "kube-root-ca.crt";

/// `root-ca-certificate-publisher-controller`.
pub fn start_root_ca(env: &Env) -> Vec<Controller> {
    let Some(pem) = env.options.root_ca_pem.clone() else { return Vec::new() };
    let namespaces = env.informer::<Namespace>();
    let maps = env.informers.get_selected::<ConfigMap>("metadata.name=kube-root-ca.crt");
    let user = "system:serviceaccount:kube-system:root-ca-cert-publisher";
    let builder = Builder::new(env, "root-ca-certificate-publisher-controller", user)
        .each(&namespaces)
        .on(&maps, |m| namespace_key(m.metadata.namespace.as_ref()));
    vec![builder.plan(move |key, _| plan_root_ca(namespaces.get(key).as_deref(), maps.find(&key.name, ROOT_CA).as_deref(), &pem))]
}

fn plan_root_ca(namespace: Option<&Namespace>, map: Option<&ConfigMap>, pem: &str) -> Vec<Action> {
    let Some(namespace) = namespace.filter(|ns| is_active(ns)) else { return Vec::new() };
    let data = [("ca.crt".to_owned(), pem.to_owned())].into();
    let Some(map) = map else {
        let map: Result<ConfigMap, _> = from_value(json!({"data": data_of(&data), "metadata": {
            "name": ROOT_CA, "namespace": namespace.metadata.name,
            "annotations": {"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver \
                when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                guaranteed across distributions of Kubernetes clusters."}}}));
        return map.map(|map| vec![Action::create(&map)]).unwrap_or_default();
    };
    if map.data.as_ref() == Some(&data) && map.binary_data.is_none() {
        return Vec::new();
    }
    let mut repaired = map.clone();
    repaired.data = Some(data);
    repaired.binary_data = None;
    vec![Action::update(&repaired)]
}

fn data_of(data: &std::collections::BTreeMap<String, String>) -> serde_json::Value {
    json!(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Verb, Write};

    fn namespace(phase: &str) -> Namespace {
        from_value(json!({"metadata": {"name": "a"}, "status": {"phase": phase}})).unwrap()
    }

    #[test]
    fn each_active_namespace_gets_its_account_once() {
        assert_eq!(plan_account(Some(&namespace("Active")), None).len(), 1);
        assert!(plan_account(Some(&namespace("Terminating")), None).is_empty());
        assert!(plan_account(Some(&namespace("Active")), Some(&ServiceAccount::default())).is_empty());
    }

    #[test]
    fn a_changed_certificate_is_repaired() {
        let active = namespace("Active");
        let map: ConfigMap =
            from_value(json!({"metadata": {"name": ROOT_CA, "namespace": "a"}, "data": {"ca.crt": "old"}})).unwrap();
        let actions = plan_root_ca(Some(&active), Some(&map), "new");
        assert!(
            matches!(&actions[..], [Action::Write(Write { verb: Verb::Update, body, .. })] if body["data"]["ca.crt"] == "new")
        );
        assert!(plan_root_ca(Some(&active), Some(&map), "old").is_empty());
    }
}
