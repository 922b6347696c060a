//! `ServiceAccount`: every Pod runs as an account of its namespace, and has that account's token mounted unless it says no.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Attributes, Operation, Plugin};
use crate::cluster::{Cluster, Resource};
use crate::error::Result;

/// Where the token, the CA and the namespace appear in a container.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Prefix of the volume's name; the rest is random.
const VOLUME_PREFIX: &str = "kube-api-access-";
/// Life of a mounted token in seconds. One second over an hour tells such tokens apart from ones that a user asked for.
const TOKEN_SECONDS: i64 = 3607;
/// The annotation that marks a mirror Pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// A mirror Pod must not reach anything that an account gives.
const ENFORCE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

#[derive(Debug, Default)]
pub struct ServiceAccount;

#[async_trait]
impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn admit(&self, attributes: &mut Attributes, cluster: &Cluster) -> Result<()> {
        if !attributes.is_resource("", "pods") {
            return Ok(());
        }
        if is_mirror(&attributes.object) {
            return refuse_mirror(attributes);
        }
        if text(&attributes.object, "/spec/serviceAccountName").is_empty() {
            attributes.object["spec"]["serviceAccountName"] = json!("default");
        }
        let name = text(&attributes.object, "/spec/serviceAccountName").to_owned();
        // The old name of the same field follows it.
        attributes.object["spec"]["serviceAccount"] = json!(name);
        let account = cluster.get(Resource::core("serviceaccounts"), &attributes.namespace, &name).await?;
        let Some(account) = account else {
            let namespace = &attributes.namespace;
            let why = format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found");
            return Err(attributes.forbidden(why));
        };
        refuse_unlisted_secrets(attributes, &account)?;
        if wants_token(&attributes.object, &account) {
            mount_token(&mut attributes.object);
        }
        if is_empty_list(&attributes.object["spec"]["imagePullSecrets"])
            && let Some(secrets) = account.get("imagePullSecrets").filter(|s| !is_empty_list(s))
        {
            attributes.object["spec"]["imagePullSecrets"] = secrets.clone();
        }
        Ok(())
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_none_or(Vec::is_empty)
}

fn is_mirror(pod: &Value) -> bool {
    pod.pointer("/metadata/annotations").and_then(|a| a.get(MIRROR)).is_some()
}

fn refuse_mirror(attributes: &Attributes) -> Result<()> {
    let pod = &attributes.object;
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return Err(attributes.forbidden("a mirror pod may not reference service accounts"));
    }
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let secret = volumes.into_iter().flatten().any(|v| v.get("secret").is_some());
    if secret { Err(attributes.forbidden("a mirror pod may not reference secrets")) } else { Ok(()) }
}

/// An account with the annotation lets its Pods mount only the Secrets it lists.
fn refuse_unlisted_secrets(attributes: &Attributes, account: &Value) -> Result<()> {
    let enforced = account.pointer("/metadata/annotations").and_then(|a| a.get(ENFORCE_SECRETS));
    if enforced.and_then(Value::as_str) != Some("true") {
        return Ok(());
    }
    let listed: Vec<&str> = account["secrets"].as_array().into_iter().flatten().filter_map(|s| s["name"].as_str()).collect();
    let volumes = attributes.object.pointer("/spec/volumes").and_then(Value::as_array);
    for volume in volumes.into_iter().flatten() {
        let secret = text(volume, "/secret/secretName");
        if !secret.is_empty() && !listed.contains(&secret) {
            let name = text(account, "/metadata/name");
            let why = format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {name} does not reference that secret"
            );
            return Err(attributes.forbidden(why));
        }
    }
    Ok(())
}

/// The Pod's own word wins over the account's; silence means yes.
fn wants_token(pod: &Value, account: &Value) -> bool {
    pod.pointer("/spec/automountServiceAccountToken")
        .or_else(|| account.get("automountServiceAccountToken"))
        .and_then(Value::as_bool)
        .unwrap_or(true)
}

fn mount_token(pod: &mut Value) {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let present = volumes.into_iter().flatten().find_map(|v| v["name"].as_str().filter(|n| n.starts_with(VOLUME_PREFIX)));
    let (name, is_new) = match present {
        Some(name) => (name.to_owned(), false),
        None => (format!("{VOLUME_PREFIX}{}", random_suffix()), true),
    };
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let mounts = &mut container["volumeMounts"];
            if mounts.as_array().into_iter().flatten().any(|m| m["mountPath"] == MOUNT_PATH) {
                continue;
            }
            if !mounts.is_array() {
                *mounts = json!([]);
            }
            if let Some(mounts) = mounts.as_array_mut() {
                mounts.push(json!({ "name": name, "readOnly": true, "mountPath": MOUNT_PATH }));
                mounted = true;
            }
        }
        if pod["spec"][list].is_null() {
            pod["spec"].as_object_mut().and_then(|spec| spec.remove(list));
        }
    }
    if !mounted || !is_new {
        return;
    }
    if !pod["spec"]["volumes"].is_array() {
        pod["spec"]["volumes"] = json!([]);
    }
    if let Some(volumes) = pod["spec"]["volumes"].as_array_mut() {
        volumes.push(token_volume(&name));
    }
}

/// Five characters of the alphabet that generated names use: no vowels, nothing that looks alike.
fn random_suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rng = rand::rng();
    (0..crate::limits::GENERATED_SUFFIX_BYTES)
        .map(|_| char::from(ALPHABET[rand::Rng::random_range(&mut rng, 0..ALPHABET.len())]))
        .collect()
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 420,
            "sources": [
                { "serviceAccountToken": { "expirationSeconds": TOKEN_SECONDS, "path": "token" } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "downwardAPI": { "items": [{
                    "path": "namespace",
                    "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" },
                }] } },
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_mounted_once_and_not_where_the_path_is_taken() {
        let mut pod = json!({ "spec": { "containers": [
            { "name": "a" },
            { "name": "b", "volumeMounts": [{ "name": "own", "mountPath": MOUNT_PATH }] },
        ] } });
        mount_token(&mut pod);
        let volume = pod["spec"]["volumes"][0]["name"].as_str().expect("a volume").to_owned();
        assert!(volume.starts_with(VOLUME_PREFIX), "{volume}");
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["name"], volume.as_str());
        assert_eq!(pod["spec"]["containers"][1]["volumeMounts"].as_array().map(Vec::len), Some(1));
        assert!(pod["spec"].get("initContainers").is_none(), "{pod}");
        let before = pod.clone();
        mount_token(&mut pod);
        assert_eq!(pod, before, "a second pass changes nothing");
    }

    #[test]
    fn the_pod_decides_before_its_account() {
        let pod = |v: Value| json!({ "spec": v });
        assert!(wants_token(&pod(json!({})), &json!({})));
        assert!(!wants_token(&pod(json!({})), &json!({ "automountServiceAccountToken": false })));
        let said_yes = pod(json!({ "automountServiceAccountToken": true }));
        assert!(wants_token(&said_yes, &json!({ "automountServiceAccountToken": false })));
    }
}
