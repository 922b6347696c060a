//! Test 1: each tenant has a control plane of its own, and no credential or network path leads to another.

mod rbac;
mod tunnel;

use std::net::{IpAddr, SocketAddr};

use futures::future::try_join_all;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::{Kubeconfig, NamedCluster};
use kube::{Api, Client};
use serde_json::json;

use super::netns::{API_PORT as API, TUNNEL_PORT as TUNNEL};
use super::{Lab, Tenant, netns};
use crate::platform::cluster;

/// Port of a worker's agent.
const KUBELET: u16 = 10250;

pub async fn run(lab: &Lab) -> Result<String, String> {
    let certificates = certificates(lab).await?;
    let tokens = service_account_tokens(lab).await?;
    let refused = rbac::run(lab).await?;
    tunnel::run(lab).await?;
    network(lab).await?;
    Ok(format!(
        "{certificates} foreign certificates and {tokens} foreign tokens got 401 and are known at home; \
         alice may get and list configmaps in her namespace, {refused} other calls of hers got 403 and no rule allows her more \
         than a stranger; each worker's tunnel credential is taken at home and UNAUTHENTICATED at the other tunnel; \
         each worker reaches its tenant's {API} and {TUNNEL}, and not the other's, no other worker and no management API"
    ))
}

/// Name and kubeconfig of both tenants and the management plane.
fn planes(lab: &Lab) -> Result<[(String, Kubeconfig); 3], String> {
    let path = lab.dirs.management_kubeconfig();
    let management = std::fs::read_to_string(&path).map_err(|e| format!("read {}: {e}", path.display()))?;
    let parse = |text: &str| Kubeconfig::from_yaml(text).map_err(|e| e.to_string());
    Ok([
        (lab.a.name.clone(), parse(&lab.a.kubeconfig)?),
        (lab.b.name.clone(), parse(&lab.b.kubeconfig)?),
        ("management".to_owned(), parse(&management)?),
    ])
}

/// Asks a cluster who the caller is: everybody who is known may.
async fn whoami(client: &Client) -> Result<String, kube::Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(review.status.and_then(|s| s.user_info).and_then(|u| u.username).unwrap_or_default())
}

async fn client_with(mut own: Kubeconfig, clusters: &[NamedCluster]) -> Result<Client, String> {
    // The other's address and CA under the own cluster's name.
    let other = clusters.first().and_then(|c| c.cluster.clone());
    for named in &mut own.clusters {
        named.cluster.clone_from(&other);
    }
    let text = serde_json::to_string(&own).map_err(|e| e.to_string())?;
    cluster::client_of(&text).await.map_err(|e| e.to_string())
}

/// 401 abroad, known at home. Answers how many foreign calls were refused.
async fn certificates(lab: &Lab) -> Result<usize, String> {
    let planes = planes(lab)?;
    let mut refused = 0;
    for (name, own) in &planes {
        for (there, other) in &planes {
            let client = client_with(own.clone(), &other.clusters).await?;
            refused += usize::from(judge(&format!("the certificate of {name}"), there, name == there, whoami(&client).await)?);
        }
    }
    Ok(refused)
}

/// Whether it was a refusal that had to be one.
fn judge(what: &str, there: &str, at_home: bool, answer: Result<String, kube::Error>) -> Result<bool, String> {
    match answer {
        Ok(_) if at_home => Ok(false),
        Err(kube::Error::Api(status)) if !at_home && status.code == 401 && status.reason == "Unauthorized" => Ok(true),
        Ok(user) => Err(format!("{what} is {user:?} at {there}")),
        Err(error) => Err(format!("{what} at {there}: {error}")),
    }
}

async fn service_account_tokens(lab: &Lab) -> Result<usize, String> {
    let planes = planes(lab)?;
    let mut refused = 0;
    for (name, own) in &planes {
        let home = client_with(own.clone(), &own.clusters).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(home, "default");
        let request = accounts.create_token_request("default", &PostParams::default(), &TokenRequest::default()).await;
        let token = request.map_err(|e| format!("a token of {name}: {e}"))?.status.and_then(|s| s.token).unwrap_or_default();
        for (there, other) in &planes {
            let text = with_secret(own, &token, other)?;
            let client = cluster::client_of(&text).await.map_err(|e| e.to_string())?;
            refused += usize::from(judge(&format!("the token of {name}"), there, name == there, whoami(&client).await)?);
        }
    }
    Ok(refused)
}

/// A kubeconfig of the other's cluster with this token alone.
fn with_secret(own: &Kubeconfig, token: &str, other: &Kubeconfig) -> Result<String, String> {
    let mut value = serde_json::to_value(own).map_err(|e| e.to_string())?;
    value["clusters"][0]["cluster"] = json!(other.clusters.first().and_then(|c| c.cluster.clone()));
    value["users"][0]["user"] = json!({ "token": token });
    Ok(value.to_string())
}

/// Each worker reaches its own tenant and nothing else; every address that is closed to it answers somebody else.
async fn network(lab: &Lab) -> Result<(), String> {
    let plan = netns::plan(lab)?;
    let (on_a, on_b, inside) = (netns::worker(lab, &lab.a)?, netns::worker(lab, &lab.b)?, netns::platform(lab));
    let at = |address: IpAddr, port| SocketAddr::new(address, port);
    let tenant = |t: &Tenant, port| at(t.address.into(), port);
    let (worker_a, worker_b) = (at(plan.worker(1).into(), KUBELET), at(plan.worker(2).into(), KUBELET));
    let management = at(plan.api().into(), API);
    let expected = [
        ("worker-a", &on_a, tenant(&lab.a, API), true),
        ("worker-a", &on_a, tenant(&lab.a, TUNNEL), true),
        ("worker-a", &on_a, tenant(&lab.b, API), false),
        ("worker-a", &on_a, tenant(&lab.b, TUNNEL), false),
        ("worker-a", &on_a, worker_b, false),
        ("worker-a", &on_a, management, false),
        ("worker-b", &on_b, tenant(&lab.b, API), true),
        ("worker-b", &on_b, tenant(&lab.b, TUNNEL), true),
        ("worker-b", &on_b, tenant(&lab.a, API), false),
        ("worker-b", &on_b, tenant(&lab.a, TUNNEL), false),
        ("worker-b", &on_b, worker_a, false),
        ("worker-b", &on_b, management, false),
        ("worker-b", &on_b, worker_b, true),
        ("worker-a", &on_a, worker_a, true),
        ("the platform", &inside, management, true),
    ];
    // What is filtered takes long, so all at once.
    let checks = expected.map(|(from, namespace, to, wanted)| async move {
        if netns::connects(namespace, to).await? == wanted {
            return Ok(());
        }
        let verb = if wanted { "does not reach" } else { "reaches" };
        Err(format!("{from} {verb} {to}"))
    });
    try_join_all(checks).await.map(drop)
}
