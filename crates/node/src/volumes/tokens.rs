//! Service-account tokens for Pods, asked for by TokenRequest and kept until they are due for a new one.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::limits;

/// Pod UID, audience, path.
type Key = (String, String, String);

/// Tokens of this node's Pods.
#[derive(Clone, Default)]
pub struct Tokens {
    kept: Arc<Mutex<BTreeMap<Key, Token>>>,
}

#[derive(Clone)]
struct Token {
    text: String,
    renew_at: Timestamp,
}

impl Tokens {
    /// The token for a projection: the kept one while it is young, a new one otherwise.
    pub async fn get(&self, client: &Client, pod: &Pod, projection: &ServiceAccountTokenProjection) -> Result<String> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let key = (uid, projection.audience.clone().unwrap_or_default(), projection.path.clone());
        let now = Timestamp::now();
        if let Some(token) = self.kept.lock().get(&key).filter(|t| now < t.renew_at) {
            return Ok(token.text.clone());
        }
        let token = request(client, pod, projection, now).await?;
        let text = token.text.clone();
        self.kept.lock().insert(key, token);
        Ok(text)
    }

    /// Forgets the tokens of a Pod that is gone.
    pub fn forget(&self, uid: &str) {
        self.kept.lock().retain(|(owner, _, _), _| owner != uid);
    }
}

async fn request(client: &Client, pod: &Pod, projection: &ServiceAccountTokenProjection, now: Timestamp) -> Result<Token> {
    let meta = &pod.metadata;
    let account = pod.spec.as_ref().and_then(|s| s.service_account_name.clone()).filter(|n| !n.is_empty());
    let account = account.unwrap_or_else(|| "default".to_owned());
    let seconds = projection.expiration_seconds.unwrap_or(limits::TOKEN_SECONDS);
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
    };
    let spec = TokenRequestSpec {
        audiences: projection.audience.clone().filter(|a| !a.is_empty()).map(|a| vec![a]),
        bound_object_ref: Some(bound),
        expiration_seconds: Some(seconds),
    };
    let body = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let answer: TokenRequest = accounts.create_subresource("token", &account, &PostParams::default(), &body).await?;
    let status = answer.status.ok_or_else(|| Error::Volume("the token request has no answer".to_owned()))?;
    let expires = status.expiration_timestamp.map_or(now, |t| t.0);
    Ok(Token { text: status.token.unwrap_or_default(), renew_at: renew_at(now, expires.duration_since(now)) })
}

/// At four fifths of its life, or after a day.
fn renew_at(now: Timestamp, life: SignedDuration) -> Timestamp {
    let day = SignedDuration::from_hours(24);
    now + (life * 4 / 5).min(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_renewed_well_before_they_expire() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(renew_at(now, SignedDuration::from_secs(3600)), now + SignedDuration::from_secs(2880));
        assert_eq!(renew_at(now, SignedDuration::from_hours(1000)), now + SignedDuration::from_hours(24));
    }
}
