//! `serviceaccount-token-controller`: Secrets of type `kubernetes.io/service-account-token` are filled, and go with their
//! account.

use crate::action::Action;
use crate::controller::{Builder, Controller};
use crate::env::{Env, LegacyTokens};
use crate::error::{Error, Result};
use crate::key::Key;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use serde_json::json;
use std::sync::Arc;

const TYPE: &str = "type=kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// Tokens signed with an ECDSA P-256 key.
pub struct EcTokens {
    key: jsonwebtoken::EncodingKey,
    key_id: String,
}

impl EcTokens {
    /// From the PEM of a PKCS#8 key and the id under which the API server knows it.
    pub fn new(key_pem: &str, key_id: String) -> Result<Self> {
        let key = jsonwebtoken::EncodingKey::from_ec_pem(key_pem.as_bytes()).map_err(|e| Error::Token(e.to_string()))?;
        Ok(Self { key, key_id })
    }
}

impl LegacyTokens for EcTokens {
    fn token(&self, namespace: &str, account: &str, account_uid: &str, secret: &str) -> Result<String, String> {
        let claims = json!({
            "iss": "kubernetes/serviceaccount",
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/service-account.name": account,
            "kubernetes.io/serviceaccount/service-account.uid": account_uid,
            "kubernetes.io/serviceaccount/secret.name": secret,
        });
        let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::ES256);
        header.kid = Some(self.key_id.clone());
        jsonwebtoken::encode(&header, &claims, &self.key).map_err(|e| e.to_string())
    }
}

/// Puts the controller together; without a signer there is none.
pub fn start(env: &Env) -> Vec<Controller> {
    let Some(tokens) = env.options.legacy_tokens.clone() else { return Vec::new() };
    let ca = env.options.root_ca_pem.clone();
    let secrets = env.informers.get_selected::<Secret>(TYPE);
    let accounts = env.informer::<ServiceAccount>();
    let for_accounts = secrets.clone();
    let builder = Builder::new(env, "serviceaccount-token-controller", "system:kube-controller-manager").each(&secrets).on(
        &accounts,
        move |account| {
            let here = for_accounts.in_namespace(account.metadata.namespace.as_deref().unwrap_or_default());
            here.iter().filter(|s| named(s) == account.metadata.name).map(|s| Key::of(&s.metadata)).collect()
        },
    );
    vec![builder.ask(move |key| {
        let secret = secrets.get(&key);
        let account = secret.as_ref().and_then(|s| accounts.find(&key.namespace, &named(s)?));
        let (tokens, ca) = (tokens.clone(), ca.clone());
        async move {
            let Some(secret) = secret else { return Ok(Vec::new()) };
            plan(&secret, account.as_deref(), &tokens, ca.as_deref())
        }
    })]
}

fn annotation(secret: &Secret, name: &str) -> Option<String> {
    secret.metadata.annotations.as_ref()?.get(name).cloned()
}

fn named(secret: &Secret) -> Option<String> {
    annotation(secret, ACCOUNT)
}

/// Fills what is missing; deletes a Secret whose account is gone or another one.
fn plan(
    secret: &Secret,
    account: Option<&ServiceAccount>,
    tokens: &Arc<dyn LegacyTokens>,
    ca: Option<&str>,
) -> Result<Vec<Action>> {
    let uid = annotation(secret, ACCOUNT_UID);
    let account = account.filter(|a| uid.is_none() || uid == a.metadata.uid);
    let Some(account) = account else { return Ok(vec![Action::delete(secret)]) };
    let text = |v: &Option<String>| v.clone().unwrap_or_default();
    let (namespace, name) = (text(&secret.metadata.namespace), text(&account.metadata.name));
    let mut filled = secret.clone();
    filled.metadata.annotations.get_or_insert_default().insert(ACCOUNT_UID.into(), text(&account.metadata.uid));
    let data = filled.data.get_or_insert_default();
    if let Some(ca) = ca {
        data.insert("ca.crt".into(), ByteString(ca.as_bytes().to_vec()));
    }
    data.insert("namespace".into(), ByteString(namespace.as_bytes().to_vec()));
    if data.get("token").is_none_or(|token| token.0.is_empty()) {
        let secret_name = text(&secret.metadata.name);
        let token = tokens.token(&namespace, &name, &text(&account.metadata.uid), &secret_name).map_err(Error::Token)?;
        data.insert("token".into(), ByteString(token.into_bytes()));
    }
    Ok(if filled == *secret { Vec::new() } else { vec![Action::update(&filled)] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Verb, Write};
    use serde_json::from_value;

    #[test]
    fn a_secret_is_filled_once_and_goes_with_its_account() {
        let key = atoll_pki::ServiceAccountKey::generate().unwrap();
        let tokens: Arc<dyn LegacyTokens> = Arc::new(EcTokens::new(&key.private_pem(), "k".into()).unwrap());
        let secret: Secret =
            from_value(json!({"metadata": {"name": "s", "namespace": "a", "annotations": {ACCOUNT: "b"}}})).unwrap();
        let account: ServiceAccount = from_value(json!({"metadata": {"name": "b", "namespace": "a", "uid": "u"}})).unwrap();
        let actions = plan(&secret, Some(&account), &tokens, Some("ca")).unwrap();
        let [Action::Write(Write { body, verb: Verb::Update, .. })] = &actions[..] else { panic!() };
        let filled: Secret = from_value(body.clone()).unwrap();
        assert_eq!(filled.data.as_ref().unwrap().keys().collect::<Vec<_>>(), ["ca.crt", "namespace", "token"]);
        assert!(plan(&filled, Some(&account), &tokens, Some("ca")).unwrap().is_empty());
        assert!(matches!(plan(&filled, None, &tokens, None).unwrap()[..], [Action::Write(Write { verb: Verb::Delete, .. })]));
    }
}
