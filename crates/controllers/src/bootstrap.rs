//! Bootstrap tokens: `bootstrap-signer-controller` signs `kube-public/cluster-info` with each, `token-cleaner-controller`
//! removes those that have expired.

use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::Env;
use crate::key::Key;
use crate::workload::pods;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

const TYPE: &str = "type=bootstrap.kubernetes.io/token";
const CLUSTER_INFO: &str = "cluster-info";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

fn field(secret: &Secret, name: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(name)?;
    String::from_utf8(bytes.0.clone()).ok()
}

/// When the token ends, if it does.
fn expiration(secret: &Secret) -> Option<Timestamp> {
    field(secret, "expiration")?.parse().ok()
}

/// `token-cleaner-controller`.
pub fn start_cleaner(env: &Env) -> Vec<Controller> {
    let secrets = env.informers.get_selected_in::<Secret>("kube-system", TYPE);
    let user = "system:serviceaccount:kube-system:token-cleaner";
    let builder = Builder::new(env, "token-cleaner-controller", user).each(&secrets);
    vec![builder.plan(move |key, now| secrets.get(key).map(|secret| clean(&secret, now)).unwrap_or_default())]
}

fn clean(secret: &Secret, now: Timestamp) -> Vec<Action> {
    let Some(end) = expiration(secret) else { return Vec::new() };
    match pods::until(end, 0, now) {
        Some(left) => vec![Action::After(left)],
        None => vec![Action::delete(secret)],
    }
}

/// `bootstrap-signer-controller`.
pub fn start_signer(env: &Env) -> Vec<Controller> {
    let secrets = env.informers.get_selected_in::<Secret>("kube-system", TYPE);
    let maps = env.informers.get_selected_in::<ConfigMap>("kube-public", "metadata.name=cluster-info");
    let user = "system:serviceaccount:kube-system:bootstrap-signer";
    let builder = Builder::new(env, "bootstrap-signer-controller", user)
        .each(&maps)
        .on(&secrets, |_| vec![Key::new("kube-public", CLUSTER_INFO)]);
    vec![builder.plan(move |key, now| maps.get(key).map(|map| plan(&map, &secrets.all(), now)).unwrap_or_default())]
}

/// Brings the signatures to those of the tokens that may sign.
fn plan(map: &ConfigMap, secrets: &[Arc<Secret>], now: Timestamp) -> Vec<Action> {
    let Some(kubeconfig) = map.data.as_ref().and_then(|d| d.get("kubeconfig")) else { return Vec::new() };
    let mut data: BTreeMap<String, String> = map.data.clone().unwrap_or_default();
    data.retain(|name, _| !name.starts_with(SIGNATURE_PREFIX));
    let signing = |s: &&Arc<Secret>| {
        field(s, "usage-bootstrap-signing").as_deref() == Some("true") && expiration(s).is_none_or(|end| end > now)
    };
    for secret in secrets.iter().filter(signing) {
        let (Some(id), Some(key)) = (field(secret, "token-id"), field(secret, "token-secret")) else { continue };
        if secret.metadata.name.as_deref() != Some(format!("bootstrap-token-{id}").as_str()) {
            continue;
        }
        if let Some(signature) = detached(kubeconfig, &id, &key) {
            data.insert(format!("{SIGNATURE_PREFIX}{id}"), signature);
        }
    }
    if map.data.as_ref() == Some(&data) {
        return Vec::new();
    }
    vec![Action::update(&ConfigMap { data: Some(data), ..map.clone() })]
}

/// A JWS over `content` by HS256 with its payload left out (RFC 7515, appendix F).
fn detached(content: &str, id: &str, key: &str) -> Option<String> {
    use base64::Engine as _;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let header = encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{id}\"}}").as_bytes());
    let signed = format!("{header}.{}", encode(content.as_bytes()));
    let key = jsonwebtoken::EncodingKey::from_secret(key.as_bytes()).ok()?;
    let signature = jsonwebtoken::crypto::sign(signed.as_bytes(), &key, jsonwebtoken::Algorithm::HS256).ok()?;
    Some(format!("{header}..{signature}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn token(id: &str, expiration: Option<&str>) -> Arc<Secret> {
        let mut secret = Secret::default();
        secret.metadata.name = Some(format!("bootstrap-token-{id}"));
        let mut data: BTreeMap<String, ByteString> = BTreeMap::new();
        for (name, value) in [
            ("token-id", Some(id)),
            ("token-secret", Some("0123456789abcdef")),
            ("usage-bootstrap-signing", Some("true")),
            ("expiration", expiration),
        ] {
            data.extend(value.map(|v| (name.to_owned(), ByteString(v.as_bytes().to_vec()))));
        }
        secret.data = Some(data);
        Arc::new(secret)
    }

    #[test]
    fn living_tokens_sign_and_others_lose_their_signature() {
        let data = [("kubeconfig".to_owned(), "k".to_owned()), ("jws-kubeconfig-gone".to_owned(), "x".to_owned())];
        let map = ConfigMap { data: Some(data.into()), ..ConfigMap::default() };
        let now = "2026-06-01T00:00:00Z".parse().unwrap();
        let secrets = [token("abcdef", None), token("012345", Some("2026-01-01T00:00:00Z"))];
        let actions = plan(&map, &secrets, now);
        let [Action::Write(write)] = &actions[..] else { panic!() };
        let names: Vec<&String> = write.body["data"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["jws-kubeconfig-abcdef", "kubeconfig"]);
        let signature = write.body["data"]["jws-kubeconfig-abcdef"].as_str().unwrap();
        assert_eq!(signature.split('.').map(str::len).collect::<Vec<_>>(), [40, 0, 43]);
        assert_eq!(clean(&secrets[1], now).len(), 1);
    }
}
