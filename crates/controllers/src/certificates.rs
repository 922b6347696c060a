//! Certificate signing requests: approval of what nodes may have, signing of what is approved, removal of what is done.

use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::executor::send;
use crate::workload::pods;
use atoll_pki::{CertificateAuthority, CertificateInfo, RequestInfo, Usages};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const LEGACY: &str = "kubernetes.io/legacy-unknown";
const NODES_GROUP: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";
const USER: &str = "system:serviceaccount:kube-system:certificate-controller";
/// Longest life of a signed certificate.
const TTL_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Shortest life that may be asked for.
const TTL_MIN: Duration = Duration::from_secs(600);

fn has(csr: &CertificateSigningRequest, type_: &str) -> bool {
    csr.status.iter().flat_map(|s| s.conditions.iter().flatten()).any(|c| c.type_ == type_)
}

fn is_decided(csr: &CertificateSigningRequest) -> bool {
    has(csr, "Approved") || has(csr, "Denied")
}

fn has_certificate(csr: &CertificateSigningRequest) -> bool {
    csr.status.as_ref().and_then(|s| s.certificate.as_ref()).is_some_and(|c| !c.0.is_empty())
}

fn request_pem(csr: &CertificateSigningRequest) -> String {
    String::from_utf8_lossy(&csr.spec.request.0).into_owned()
}

fn with_condition(
    csr: &CertificateSigningRequest,
    type_: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> CertificateSigningRequest {
    let mut changed = csr.clone();
    changed.status.get_or_insert_default().conditions.get_or_insert_default().push(CertificateSigningRequestCondition {
        type_: type_.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    });
    changed
}

/// `certificatesigningrequest-approving-controller`.
pub fn start_approving(env: &Env) -> Vec<Controller> {
    let (requests, nodes) = (env.informer::<CertificateSigningRequest>(), env.informer::<Node>());
    let for_nodes = requests.clone();
    let builder = Builder::new(env, "certificatesigningrequest-approving-controller", USER)
        .each(&requests)
        // A serving certificate may wait for the node's addresses.
        .on(&nodes, move |_| {
            let waiting = for_nodes.all().into_iter().filter(|csr| csr.spec.signer_name == KUBELET_SERVING && !is_decided(csr));
            waiting.map(|csr| crate::key::Key::of(&csr.metadata)).collect()
        });
    let client = builder.client.clone();
    vec![builder.ask(move |key| {
        let (client, csr, nodes) = (client.clone(), requests.get(&key), nodes.clone());
        async move {
            let Some(csr) = csr.filter(|csr| !is_decided(csr) && !has_certificate(csr)) else { return Ok(Vec::new()) };
            let Ok(info) = RequestInfo::of_pem(&request_pem(&csr)) else { return Ok(Vec::new()) };
            let node = info.common_name.strip_prefix(NODE_PREFIX).and_then(|name| nodes.find("", name));
            let reason = match candidate(&csr, &info, node.as_deref()) {
                None => return Ok(Vec::new()),
                Some(Candidate::Approve(reason)) => reason,
                Some(Candidate::IfAllowed(subresource, reason)) => {
                    if !allowed(&client, &csr, subresource).await? {
                        // The permission may come later; nothing announces it.
                        return Err(Error::Unfinished(format!("the author of {key} may not have it yet")));
                    }
                    reason
                }
            };
            let approved = with_condition(&csr, "Approved", "AutoApproved", reason.into(), Timestamp::now());
            Ok(vec![Action::update_sub(&approved, "approval")])
        }
    })]
}

/// A request that may be approved.
#[derive(Debug, PartialEq)]
enum Candidate {
    /// As it is.
    Approve(&'static str),
    /// If its author may create this subresource of requests.
    IfAllowed(&'static str, &'static str),
}

fn candidate(csr: &CertificateSigningRequest, info: &RequestInfo, node: Option<&Node>) -> Option<Candidate> {
    let is_node = info.organizations == [NODES_GROUP] && info.common_name.starts_with(NODE_PREFIX);
    let own = csr.spec.username.as_deref() == Some(info.common_name.as_str());
    let usages: BTreeSet<&str> = csr.spec.usages.iter().flatten().map(String::as_str).collect();
    let only = |wanted: &str| {
        let rest: BTreeSet<&str> = usages.iter().copied().filter(|u| *u != "key encipherment").collect();
        rest == BTreeSet::from(["digital signature", wanted])
    };
    match csr.spec.signer_name.as_str() {
        KUBELET_CLIENT => {
            let plain = info.dns_names.is_empty() && info.ip_addresses.is_empty() && !info.other_names;
            if !(is_node && plain && only("client auth")) {
                return None;
            }
            Some(if own {
                Candidate::IfAllowed("selfnodeclient", "The node renews its own client certificate.")
            } else {
                Candidate::IfAllowed("nodeclient", "The author may request client certificates for nodes.")
            })
        }
        KUBELET_SERVING => {
            let groups = csr.spec.groups.as_deref().unwrap_or_default();
            let by_node = own && groups.iter().any(|g| g == NODES_GROUP);
            let named = !info.dns_names.is_empty() || !info.ip_addresses.is_empty();
            let fine = is_node && by_node && named && !info.other_names && only("server auth") && names_of(node?).covers(info);
            fine.then_some(Candidate::Approve("All names are addresses of the node's own object."))
        }
        _ => None,
    }
}

/// What a node's own object says it is called.
struct NodeNames {
    dns: BTreeSet<String>,
    ips: BTreeSet<String>,
}

fn names_of(node: &Node) -> NodeNames {
    let mut names = NodeNames { dns: BTreeSet::new(), ips: BTreeSet::new() };
    for address in node.status.iter().flat_map(|s| s.addresses.iter().flatten()) {
        let set = if address.type_.ends_with("IP") { &mut names.ips } else { &mut names.dns };
        set.insert(address.address.clone());
    }
    names
}

impl NodeNames {
    fn covers(&self, info: &RequestInfo) -> bool {
        info.dns_names.iter().all(|n| self.dns.contains(n)) && info.ip_addresses.iter().all(|ip| self.ips.contains(ip))
    }
}

/// Asks whether the author of a request may create this subresource of requests.
async fn allowed(client: &kube::Client, csr: &CertificateSigningRequest, subresource: &str) -> Result<bool> {
    let spec = &csr.spec;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": spec.username, "groups": spec.groups, "uid": spec.uid, "extra": spec.extra,
        "resourceAttributes": {"group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create",
            "version": "*", "subresource": subresource}}});
    let request =
        http::Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews").header("content-type", "application/json");
    let answer = send(client, request.body(review.to_string().into_bytes())?).await?;
    Ok(answer["status"]["allowed"] == true)
}

/// `certificatesigningrequest-signing-controller`.
pub fn start_signing(env: &Env) -> Vec<Controller> {
    let Some(authority) = env.options.signing_ca.clone() else { return Vec::new() };
    let requests = env.informer::<CertificateSigningRequest>();
    let builder = Builder::new(env, "certificatesigningrequest-signing-controller", USER).each(&requests);
    vec![builder.plan(move |key, now| {
        let Some(csr) = requests.get(key) else { return Vec::new() };
        if !has(&csr, "Approved") || has(&csr, "Denied") || has(&csr, "Failed") || has_certificate(&csr) {
            return Vec::new();
        }
        sign(&csr, &authority, now)
    })]
}

/// What the signer of this name puts into certificates, if the request is one that it signs.
fn signable(csr: &CertificateSigningRequest, info: &RequestInfo) -> Result<Option<Usages>, &'static str> {
    let wants = |usage: &str| csr.spec.usages.iter().flatten().any(|u| u == usage);
    let is_node = info.organizations == [NODES_GROUP] && info.common_name.starts_with(NODE_PREFIX);
    match csr.spec.signer_name.as_str() {
        CLIENT if !wants("client auth") || wants("server auth") => Err("usages are not those of a client"),
        CLIENT => Ok(Some(Usages::CLIENT)),
        KUBELET_CLIENT if is_node && wants("client auth") && !wants("server auth") => Ok(Some(Usages::CLIENT)),
        KUBELET_CLIENT => Err("subject or usages are not those of a kubelet client"),
        KUBELET_SERVING if is_node && wants("server auth") && !wants("client auth") => Ok(Some(Usages::SERVER)),
        KUBELET_SERVING => Err("subject or usages are not those of a kubelet's server"),
        LEGACY => Ok(Some(Usages { client: wants("client auth"), server: wants("server auth") })),
        _ => Ok(None),
    }
}

fn sign(csr: &CertificateSigningRequest, authority: &CertificateAuthority, now: Timestamp) -> Vec<Action> {
    let pem = request_pem(csr);
    let fail =
        |why: String| vec![Action::update_sub(&with_condition(csr, "Failed", "SignerValidationFailure", why, now), "status")];
    let info = match RequestInfo::of_pem(&pem) {
        Ok(info) => info,
        Err(error) => return fail(error.to_string()),
    };
    let usages = match signable(csr, &info) {
        Ok(Some(usages)) => usages,
        Ok(None) => return Vec::new(),
        Err(why) => return fail(why.to_owned()),
    };
    let asked = csr.spec.expiration_seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs);
    let ttl = asked.map_or(TTL_MAX, |asked| asked.clamp(TTL_MIN, TTL_MAX));
    match authority.sign_request(&pem, usages, ttl, now) {
        Err(error) => fail(error.to_string()),
        Ok(certificate) => {
            let mut signed = csr.clone();
            signed.status.get_or_insert_default().certificate = Some(ByteString(certificate.into_bytes()));
            vec![Action::update_sub(&signed, "status")]
        }
    }
}

/// `certificatesigningrequest-cleaner-controller`.
pub fn start_cleaner(env: &Env) -> Vec<Controller> {
    let requests = env.informer::<CertificateSigningRequest>();
    let builder = Builder::new(env, "certificatesigningrequest-cleaner-controller", USER).each(&requests);
    vec![builder.plan(move |key, now| requests.get(key).map(|csr| clean(&csr, now)).unwrap_or_default())]
}

/// Seconds that a request is kept: pending ones a day, decided ones an hour, those with an expired certificate not at all.
fn clean(csr: &CertificateSigningRequest, now: Timestamp) -> Vec<Action> {
    let created = csr.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
    let certificate =
        csr.status.as_ref().and_then(|s| s.certificate.as_ref()).map(|c| String::from_utf8_lossy(&c.0).into_owned());
    let expired = certificate.and_then(|pem| CertificateInfo::of_pem(&pem).ok()).is_some_and(|info| info.not_after < now);
    let keep = if is_decided(csr) || has(csr, "Failed") { 3600 } else { 24 * 3600 };
    match pods::until(created, keep, now) {
        Some(left) if !expired => vec![Action::After(left)],
        _ => vec![Action::delete(csr)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value};

    fn csr(signer: &str, user: &str, names: &[&str], usages: Value) -> (CertificateSigningRequest, RequestInfo) {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let (pem, _) = atoll_pki::certificate_request("system:node:n1", &[NODES_GROUP], &names).unwrap();
        let mut csr: CertificateSigningRequest =
            from_value(json!({"metadata": {"name": "c"}, "spec": {"signerName": signer, "request": "",
            "username": user, "groups": [NODES_GROUP], "usages": usages}}))
            .unwrap();
        csr.spec.request = ByteString(pem.clone().into_bytes());
        (csr, RequestInfo::of_pem(&pem).unwrap())
    }

    #[test]
    fn a_serving_certificate_only_for_the_nodes_own_addresses() {
        let node: Node = from_value(json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "Hostname", "address": "n1"}]}}))
        .unwrap();
        let usages = json!(["digital signature", "server auth"]);
        let judge = |user: &str, names: &[&str], node: Option<&Node>| {
            let (csr, info) = csr(KUBELET_SERVING, user, names, usages.clone());
            candidate(&csr, &info, node).is_some()
        };
        assert!(judge("system:node:n1", &["n1", "10.0.0.1"], Some(&node)));
        assert!(!judge("system:node:n1", &["n1", "10.0.0.2"], Some(&node)));
        assert!(!judge("system:node:n2", &["n1"], Some(&node)) && !judge("system:node:n1", &["n1"], None));
    }

    #[test]
    fn a_client_certificate_by_permission() {
        let usages = json!(["digital signature", "client auth"]);
        let (first, info) = csr(KUBELET_CLIENT, "system:bootstrap:abcdef", &[], usages.clone());
        assert!(matches!(candidate(&first, &info, None), Some(Candidate::IfAllowed("nodeclient", _))));
        let (renewal, info) = csr(KUBELET_CLIENT, "system:node:n1", &[], usages);
        assert!(matches!(candidate(&renewal, &info, None), Some(Candidate::IfAllowed("selfnodeclient", _))));
        let (named, info) = csr(KUBELET_CLIENT, "system:node:n1", &["n1"], json!(["digital signature", "client auth"]));
        assert_eq!(candidate(&named, &info, None), None);
    }

    #[test]
    fn signs_what_the_signer_signs() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let authority = CertificateAuthority::generate("ca", now).unwrap();
        let (request, _) = csr(KUBELET_CLIENT, "system:node:n1", &[], json!(["digital signature", "client auth"]));
        let actions = sign(&request, &authority, now);
        let [Action::Write(write)] = &actions[..] else { panic!() };
        assert!(write.body["status"]["certificate"].is_string());
        let (wrong, _) = csr(KUBELET_CLIENT, "system:node:n1", &[], json!(["digital signature", "server auth"]));
        let [Action::Write(write)] = &sign(&wrong, &authority, now)[..] else { panic!() };
        assert_eq!(write.body["status"]["conditions"][0]["type"], "Failed");
    }
}
