//! Service-account tokens: made with the cluster's key, and checked against it and against the objects that they are bound to.

mod check;
mod claims;
mod request;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

pub use claims::{Claims, Kubernetes, LEGACY_ISSUER, LegacyClaims, ObjectRef, groups, split_user_name, user_name};
pub(crate) use request::request_token;

use crate::error::{ApiError, Result};

/// Path of the key set.
pub const JWKS_PATH: &str = "/openid/v1/jwks";

/// Issues and checks the tokens of one cluster (ES256).
pub struct ServiceAccountTokens {
    issuer: String,
    /// Audiences that this server answers to: of a token that names none on request, and of one that is to be accepted.
    audiences: Vec<String>,
    encoding: EncodingKey,
    decoding: DecodingKey,
    /// Base64url of the SHA-256 of the public key's DER form, as upstream names its keys.
    key_id: String,
    /// `x` and `y` of the public key.
    point: (String, String),
}

impl ServiceAccountTokens {
    /// `audiences` may be empty: then it is the issuer.
    pub fn new(key: &atoll_pki::ServiceAccountKey, issuer: &str, audiences: &[String]) -> Result<Self> {
        let public_pem = key.public_pem();
        let der: String = public_pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let der = STANDARD.decode(der.trim()).map_err(ApiError::internal)?;
        let point = key.public_point();
        let audiences = if audiences.is_empty() { vec![issuer.to_owned()] } else { audiences.to_vec() };
        Ok(ServiceAccountTokens {
            issuer: issuer.to_owned(),
            audiences,
            encoding: EncodingKey::from_ec_pem(key.private_pem().as_bytes()).map_err(ApiError::internal)?,
            decoding: DecodingKey::from_ec_pem(public_pem.as_bytes()).map_err(ApiError::internal)?,
            key_id: URL_SAFE_NO_PAD.encode(Sha256::digest(der)),
            point: (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..65])),
        })
    }

    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Signs claims; `iss` becomes this issuer's.
    pub fn sign(&self, mut claims: Claims) -> Result<String> {
        claims.iss = self.issuer.clone();
        self.encode(&claims)
    }

    /// The token of a Secret of type `kubernetes.io/service-account-token`.
    pub fn legacy_token(&self, namespace: &str, account: &ObjectRef, secret_name: &str) -> Result<String> {
        self.encode(&Claims {
            iss: LEGACY_ISSUER.to_owned(),
            sub: user_name(namespace, &account.name),
            legacy: LegacyClaims {
                namespace: namespace.to_owned(),
                secret_name: secret_name.to_owned(),
                account_name: account.name.clone(),
                account_uid: account.uid.clone(),
            },
            ..Claims::default()
        })
    }

    fn encode(&self, claims: &Claims) -> Result<String> {
        let header = Header { typ: None, kid: Some(self.key_id.clone()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &self.encoding).map_err(ApiError::internal)
    }

    /// The claims of a token that this cluster's key signed; times and audiences are not judged here.
    fn verified(&self, token: &str) -> Option<Claims> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        jsonwebtoken::decode::<Claims>(token, &self.decoding, &validation).ok().map(|data| data.claims)
    }

    /// `/.well-known/openid-configuration`. `server` is the server's own `https://HOST:PORT`.
    pub fn discovery_document(&self, server: &str) -> Value {
        json!({
            "issuer": self.issuer,
            "jwks_uri": format!("{server}{JWKS_PATH}"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// `/openid/v1/jwks`.
    pub fn key_set(&self) -> Value {
        let (x, y) = &self.point;
        json!({"keys": [{"use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256", "x": x, "y": y}]})
    }
}

impl std::fmt::Debug for ServiceAccountTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceAccountTokens").field("issuer", &self.issuer).field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::testing::FakeCluster;
    use crate::auth::{BearerTokens, TokenVerdict};
    use jiff::Timestamp;
    use std::sync::Arc;

    fn tokens() -> BearerTokens {
        let key = atoll_pki::ServiceAccountKey::generate().unwrap();
        BearerTokens { service_accounts: Arc::new(ServiceAccountTokens::new(&key, "https://issuer", &[]).unwrap()) }
    }

    fn cluster() -> FakeCluster {
        let cluster = FakeCluster::default();
        cluster.put("", "serviceaccounts", json!({"metadata": {"namespace": "a", "name": "bot", "uid": "u1"}}));
        cluster.put("", "nodes", json!({"metadata": {"name": "n", "uid": "u3"}}));
        let pod = json!({
            "metadata": {"namespace": "a", "name": "p", "uid": "u2"},
            "spec": {"serviceAccountName": "bot", "nodeName": "n"},
        });
        cluster.put("", "pods", pod);
        cluster
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    async fn requested(tokens: &BearerTokens, cluster: &FakeCluster, spec: Value) -> Result<String> {
        let request = json!({"metadata": {}, "spec": spec});
        let answer = request_token(&tokens.service_accounts, request, "a", "bot", at(1_000_000), cluster).await?;
        Ok(answer["status"]["token"].as_str().unwrap_or_default().to_owned())
    }

    async fn error(tokens: &BearerTokens, cluster: &FakeCluster, token: &str, audiences: &[&str], now: i64) -> String {
        let audiences: Vec<String> = audiences.iter().map(|a| (*a).to_owned()).collect();
        match tokens.judge(token, &audiences, at(now), cluster).await {
            TokenVerdict::Bad(why) => why,
            TokenVerdict::Good(user, _) => panic!("{user:?}"),
        }
    }

    #[tokio::test]
    async fn a_token_is_good_for_its_time_its_audience_and_the_life_of_what_it_is_bound_to() {
        let (tokens, cluster) = (tokens(), cluster());
        let spec = json!({"expirationSeconds": 600, "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}});
        let token = requested(&tokens, &cluster, spec).await.unwrap();
        let TokenVerdict::Good(user, audiences) = tokens.judge(&token, &[], at(1_000_599), &cluster).await else {
            panic!("refused");
        };
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:a:bot", "u1"));
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]);
        assert_eq!(user.extra["authentication.kubernetes.io/pod-uid"], ["u2"]);
        assert_eq!(user.extra["authentication.kubernetes.io/node-name"], ["n"]);
        assert_eq!(audiences, ["https://issuer"]);
        let why = error(&tokens, &cluster, &token, &[], 1_000_600).await;
        assert_eq!(why, "[invalid bearer token, service account token has expired]");
        assert!(error(&tokens, &cluster, &token, &["vault"], 1_000_001).await.contains("is invalid for the target audiences"));
        cluster.put("", "pods", json!({"metadata": {"namespace": "a", "name": "p", "uid": "u9"}}));
        assert!(error(&tokens, &cluster, &token, &[], 1_000_001).await.contains("pods \"p\""));
        cluster.remove("", "serviceaccounts", "a", "bot");
        let why = error(&tokens, &cluster, &token, &[], 1_000_001).await;
        assert_eq!(why, "[invalid bearer token, serviceaccounts \"bot\" not found]");
    }

    #[tokio::test]
    async fn a_token_of_another_cluster_is_nobodys() {
        let (ours, other, cluster) = (tokens(), tokens(), cluster());
        let token = requested(&other, &cluster, json!({})).await.unwrap();
        assert_eq!(error(&ours, &cluster, &token, &[], 1_000_001).await, "invalid bearer token");
        assert_eq!(error(&ours, &cluster, "a.b.c", &[], 1_000_001).await, "invalid bearer token");
    }

    #[tokio::test]
    async fn a_token_of_a_secret_is_good_while_the_secret_holds_it() {
        let (tokens, cluster) = (tokens(), cluster());
        let account = ObjectRef { name: "bot".into(), uid: "u1".into() };
        let token = tokens.service_accounts.legacy_token("a", &account, "s").unwrap();
        let secret = json!({"metadata": {"namespace": "a", "name": "s"}, "data": {"token": STANDARD.encode(&token)}});
        cluster.put("", "secrets", secret);
        assert!(matches!(tokens.judge(&token, &[], at(1_000_000), &cluster).await, TokenVerdict::Good(..)));
        cluster.remove("", "secrets", "a", "s");
        assert!(error(&tokens, &cluster, &token, &[], 1_000_000).await.contains("secrets \"s\" not found"));
    }

    #[tokio::test]
    async fn a_request_out_of_bounds_or_for_a_foreign_pod_is_refused() {
        let (tokens, cluster) = (tokens(), cluster());
        let code = async |spec: Value| requested(&tokens, &cluster, spec).await.unwrap_err().code;
        assert_eq!(code(json!({"expirationSeconds": 599})).await, 422);
        assert_eq!(code(json!({"expirationSeconds": (1_i64 << 32) + 1})).await, 422);
        let bound = |kind: &str, name: &str, uid: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}});
        assert_eq!(code(bound("Pod", "none", "")).await, 404);
        assert_eq!(code(bound("Pod", "p", "other")).await, 409);
        assert_eq!(code(bound("ConfigMap", "p", "")).await, 400);
        let foreign = json!({"metadata": {"namespace": "a", "name": "q", "uid": "u4"}, "spec": {"serviceAccountName": "other"}});
        cluster.put("", "pods", foreign);
        assert_eq!(code(bound("Pod", "q", "")).await, 400);
    }
}
