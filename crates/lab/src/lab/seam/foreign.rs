//! Webhooks that are not Atoll's own: one by Service, some by URLs that mean something else on the hosting side.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use futures::future::try_join_all;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::log::{self, field, line_with};
use crate::lab::netns::{self, API_PORT};
use crate::lab::plane::Plane;
use crate::lab::webhooks::{self, Example};
use crate::lab::{Lab, pods};
use crate::platform::cluster;

const NAME: &str = "lab-stamp";
/// Both the Service's webhook and those of URLs are asked about ConfigMaps in namespaces with this label.
const LABEL: &str = "lab.atoll.dev/stamp";
/// What is stamped.
const ANNOTATION: &str = "lab.atoll.dev/nonce";
const URLS: &str = "lab-urls";

fn example(arguments: &[String]) -> Example<'_> {
    Example { name: NAME, mutating: true, resource: "configmaps", label: LABEL, arguments }
}

pub async fn run(lab: &Lab, namespace: &str) -> Result<String, String> {
    let nonce = format!("{:016x}", rand::random::<u64>());
    example(&[format!("--annotate={ANNOTATION}={nonce}")]).install(&lab.a.client, &lab.image).await?;
    webhooks::label(&lab.a.client, namespace, LABEL, json!("true")).await?;
    let maps: Api<ConfigMap> = Api::namespaced(lab.a.client.clone(), namespace);
    let stamped = maps.create(&PostParams::default(), &map("stamped")).await.map_err(|e| format!("create a ConfigMap: {e}"))?;
    let found = stamped.metadata.annotations.as_ref().and_then(|a| a.get(ANNOTATION));
    if found != Some(&nonce) {
        return Err(format!("the foreign webhook stamps {nonce}, the ConfigMap came back with {found:?}"));
    }
    let line = line_with(log::worker(lab, &lab.a), &format!("{NAME}_{NAME}"), &["AdmissionReview uid="]).await?;
    let uid = field(&line, "uid=").ok_or_else(|| format!("no uid in {line:?}"))?;
    let (dial, _) = log::called(lab, &lab.a, &uid).await?;
    let urls = urls(lab, &maps).await?;
    Ok(format!("a foreign webhook stamped {nonce} through dial {dial}; {urls}"))
}

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

/// URLs of the hosting side's loopback, of the management API and of tenant-b: each is dialled by the agent on the worker.
async fn urls(lab: &Lab, maps: &Api<ConfigMap>) -> Result<String, String> {
    let plane = Plane::of(lab, &lab.a).await?;
    let inside = PathBuf::from(format!("/proc/{}/ns/net", plane.process.pid));
    // Whoever dialled loopback in the control plane's own network would be heard here.
    let ear = netns::within(&inside, async { TcpListener::bind("127.0.0.1:0") }).await?.map_err(|e| e.to_string())?;
    let loopback = ear.local_addr().map_err(|e| e.to_string())?;
    ear.set_nonblocking(true).map_err(|e| e.to_string())?;
    if !netns::connects(&inside, loopback).await? || ear.accept().is_err() {
        return Err(format!("{loopback} in the control plane's own network does not hear"));
    }
    let at = |address: std::net::Ipv4Addr| SocketAddr::new(address.into(), API_PORT);
    let targets = [("loopback", loopback), ("management", at(netns::plan(lab)?.api())), ("tenant-b", at(lab.b.address))];
    cluster::apply(&lab.a.client, &configuration(&targets)).await.map_err(|e| e.to_string())?;
    try_join_all(targets.iter().map(|(name, address)| async move {
        match maps.create(&PostParams::default(), &map(name)).await {
            Ok(_) => Err(format!("a webhook at https://{address} was not asked")),
            Err(kube::Error::Api(status)) if ["TunnelRefused", "DialTimeout"].iter().any(|w| pods::names_cause(&status, w)) => {
                log::dialled(lab, &lab.a, &[&address.to_string()]).await.map(drop)
            }
            Err(error) => Err(format!("a webhook at https://{address}: {error:?}")),
        }
    }))
    .await?;
    if ear.accept().is_ok() {
        return Err(format!("{loopback} was dialled in the control plane's own network"));
    }
    Ok("webhooks at loopback, the management API and tenant-b were dialled by the worker's agent and reached nothing".to_owned())
}

/// A webhook for each target, asked about the ConfigMap of its name.
fn configuration(targets: &[(&str, SocketAddr)]) -> Value {
    let webhooks: Vec<Value> = targets
        .iter()
        .map(|(name, address)| {
            json!({
                "name": format!("{name}.lab.atoll.dev"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "timeoutSeconds": 1, "clientConfig": { "url": format!("https://{address}/") },
                "namespaceSelector": { "matchLabels": { LABEL: "true" } },
                "matchConditions": [{ "name": "own", "expression": format!("object.metadata.name == '{name}'") }],
                "rules": [{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }],
            })
        })
        .collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": URLS }, "webhooks": webhooks,
    })
}

/// Removes what `run` made.
pub async fn remove(lab: &Lab) -> Result<(), String> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(lab.a.client.clone());
    match configurations.delete(URLS, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => drop(other.map_err(|e| format!("remove {URLS}: {e}"))?),
    }
    example(&[]).remove(&lab.a.client).await
}
