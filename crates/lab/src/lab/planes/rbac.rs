//! A user bound to a Role in one namespace can do what it says there, and nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

use crate::lab::{Lab, pods};
use crate::platform::{cluster, tenants};

/// Where alice is bound, and where she is not.
const HERS: &str = "alices";
const ELSEWHERE: [&str; 2] = ["default", "kube-system"];
/// What she may do there, to configmaps.
const VERBS: [&str; 2] = ["get", "list"];
/// Calls at once.
const CALLS: usize = 16;

/// Answers how many calls were refused.
pub async fn run(lab: &Lab) -> Result<usize, String> {
    for object in objects() {
        cluster::apply(&lab.a.client, &object).await.map_err(|e| e.to_string())?;
    }
    let (alice, stranger) = (client(lab, "alice").await?, client(lab, "mallory").await?);
    rules(&alice, &stranger).await?;
    let mut calls = calls_to_her_map();
    calls.extend(lists(&lab.a.client).await?);
    let outcomes = calls.into_iter().map(|call| judge(&alice, call));
    let refused: Vec<bool> = futures::stream::iter(outcomes).buffer_unordered(CALLS).try_collect().await?;
    Ok(refused.into_iter().filter(|r| *r).count())
}

fn objects() -> [serde_json::Value; 4] {
    let rule = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": VERBS });
    [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HERS } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": "reader", "namespace": HERS }, "rules": [rule],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "reader", "namespace": HERS },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice" }],
        }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m", "namespace": HERS }, "data": { "k": "v" } }),
    ]
}

async fn client(lab: &Lab, user: &str) -> Result<Client, String> {
    let hour = Duration::from_secs(3600);
    let text = tenants::user_kubeconfig(&lab.management, &lab.a.name, &lab.a.kubeconfig, user, None, None, hour).await;
    cluster::client_of(&text.map_err(|e| e.to_string())?).await.map_err(|e| e.to_string())
}

/// By the API server's own word alice has her Role's rule there, and elsewhere no more than a stranger.
async fn rules(alice: &Client, stranger: &Client) -> Result<(), String> {
    for namespace in [HERS].iter().chain(&ELSEWHERE) {
        let (hers, theirs) = (rules_in(alice, namespace).await?, rules_in(stranger, namespace).await?);
        let more: Vec<&String> = hers.difference(&theirs).collect();
        let wanted = if *namespace == HERS { vec![json!([VERBS, [""], ["configmaps"]]).to_string()] } else { Vec::new() };
        if more.iter().map(|r| r.as_str()).ne(wanted.iter().map(String::as_str)) {
            return Err(format!("in {namespace} alice may {more:?} more than a stranger"));
        }
    }
    Ok(())
}

async fn rules_in(client: &Client, namespace: &str) -> Result<BTreeSet<String>, String> {
    let reviews: Api<SelfSubjectRulesReview> = Api::all(client.clone());
    let review = pods::object(json!({ "spec": { "namespace": namespace } }))?;
    let answer = reviews.create(&PostParams::default(), &review).await.map_err(|e| format!("review of rules: {e}"))?;
    let status = answer.status.unwrap_or_default();
    let resources = status.resource_rules.iter().map(|r| json!([r.verbs, r.api_groups, r.resources]).to_string());
    let others = status.non_resource_rules.iter().map(|r| json!([r.verbs, r.non_resource_urls]).to_string());
    Ok(resources.chain(others).collect())
}

/// One request, and whether it is allowed.
struct Call {
    method: &'static str,
    path: String,
    body: serde_json::Value,
    allowed: bool,
}

/// Every verb on configmaps in her namespace and in another.
fn calls_to_her_map() -> Vec<Call> {
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": { "k": "w" } });
    let mut calls = Vec::new();
    for namespace in [HERS, ELSEWHERE[0]] {
        let all = format!("/api/v1/namespaces/{namespace}/configmaps");
        let one = format!("{all}/m");
        let own = namespace == HERS;
        for (method, path, allowed) in [
            ("GET", one.clone(), own),
            ("GET", format!("{all}?watch=true&timeoutSeconds=1"), false),
            ("POST", all.clone(), false),
            ("PUT", one.clone(), false),
            ("PATCH", one.clone(), false),
            ("DELETE", one, false),
            ("DELETE", all, false),
        ] {
            calls.push(Call { method, path, body: map.clone(), allowed });
        }
    }
    calls
}

/// A list of every resource that can be listed, in her namespace or in the whole cluster.
async fn lists(admin: &Client) -> Result<Vec<Call>, String> {
    let failed = |e: kube::Error| format!("discovery: {e}");
    let mut found: Vec<(String, APIResourceList)> = Vec::new();
    found.push(("/api/v1".to_owned(), admin.list_core_api_resources("v1").await.map_err(failed)?));
    for version in admin.list_api_groups().await.map_err(failed)?.groups.iter().flat_map(|g| &g.versions) {
        let served = &version.group_version;
        found.push((format!("/apis/{served}"), admin.list_api_group_resources(served).await.map_err(failed)?));
    }
    let mut calls = Vec::new();
    for (prefix, list) in found {
        for resource in list.resources.into_iter().filter(|r| r.verbs.iter().any(|v| v == "list")) {
            let place = if resource.namespaced { format!("/namespaces/{HERS}") } else { String::new() };
            let path = format!("{prefix}{place}/{}", resource.name);
            let allowed = path == format!("/api/v1/namespaces/{HERS}/configmaps");
            calls.push(Call { method: "GET", path, body: serde_json::Value::Null, allowed });
        }
    }
    Ok(calls)
}

/// Whether the call was refused, as it had to be.
async fn judge(alice: &Client, call: Call) -> Result<bool, String> {
    let kind = if call.method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if call.body.is_null() { Vec::new() } else { call.body.to_string().into_bytes() };
    let request = http::Request::builder().method(call.method).uri(&call.path).header("content-type", kind).body(body);
    let request = request.map_err(|e| e.to_string())?;
    match alice.request_text(request).await {
        Ok(_) if call.allowed => Ok(false),
        Err(kube::Error::Api(status)) if status.code == 403 && !call.allowed => Ok(true),
        Ok(_) => Err(format!("alice may {} {}", call.method, call.path)),
        Err(error) => Err(format!("alice: {} {}: {error}", call.method, call.path)),
    }
}
