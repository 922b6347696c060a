//! Whether a token is still good: its times, its audiences, its account and what it is bound to.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Claims, LEGACY_ISSUER, ObjectRef, ServiceAccountTokens, groups, user_name};
use crate::auth::follow::{meta, text};
use crate::auth::{CREDENTIAL_ID, UserInfo};
use crate::cluster::{Cluster, Resource};
use crate::error::{ApiError, GroupResource};
use crate::limits;

const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";

/// A user that a token names, and those audiences of the token that were asked for.
pub type Verdict = (UserInfo, Vec<String>);

impl ServiceAccountTokens {
    /// `None`: no token of this cluster. An error says what is wrong with one that is.
    pub async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
        cluster: &Cluster,
    ) -> Option<Result<Verdict, String>> {
        let claims = self.verified(token)?;
        if claims.iss == LEGACY_ISSUER {
            return Some(self.legacy_user(token, &claims, audiences, cluster).await);
        }
        (claims.iss == self.issuer).then_some(())?;
        Some(user(&claims, audiences, now, cluster).await)
    }

    async fn legacy_user(
        &self,
        token: &str,
        claims: &Claims,
        audiences: &[String],
        cluster: &Cluster,
    ) -> Result<Verdict, String> {
        let legacy = &claims.legacy;
        // A token without audiences is one for this server.
        let accepted = accepted_audiences(&self.audiences, audiences)?;
        let secret = live(cluster, "secrets", &legacy.namespace, &legacy.secret_name).await?;
        let stored = secret.get("data").map(|data| text(data, "token")).unwrap_or_default();
        if STANDARD.decode(stored).ok().as_deref() != Some(token.as_bytes()) {
            return Err("token does not match server's copy".to_owned());
        }
        let account = ObjectRef { name: legacy.account_name.clone(), uid: legacy.account_uid.clone() };
        same_life(cluster, "serviceaccounts", &legacy.namespace, &account).await?;
        Ok((service_account_user(&legacy.namespace, &account, BTreeMap::new()), accepted))
    }
}

async fn user(claims: &Claims, audiences: &[String], now: Timestamp, cluster: &Cluster) -> Result<Verdict, String> {
    let bound = claims.kubernetes.as_ref().ok_or("token could not be validated due to missing claims")?;
    let accepted = accepted_audiences(&claims.aud, audiences)?;
    let now = now.as_second();
    if claims.exp.is_some_and(|exp| now >= exp) {
        return Err("service account token has expired".to_owned());
    }
    if claims.nbf.is_some_and(|nbf| now + limits::TOKEN_CLOCK_SKEW_SECONDS < nbf) {
        return Err("service account token is not valid yet".to_owned());
    }
    let namespace = &bound.namespace;
    if claims.sub != user_name(namespace, &bound.serviceaccount.name) {
        return Err("the token's subject is not its service account".to_owned());
    }
    same_life(cluster, "serviceaccounts", namespace, &bound.serviceaccount).await?;
    let mut extra = BTreeMap::new();
    let mut add = |key: &str, value: &str| extra.insert(key.to_owned(), vec![value.to_owned()]);
    if let Some(secret) = &bound.secret {
        same_life(cluster, "secrets", namespace, secret).await?;
    }
    if let Some(pod) = &bound.pod {
        same_life(cluster, "pods", namespace, pod).await?;
        add(POD_NAME, &pod.name);
        add(POD_UID, &pod.uid);
    }
    if let Some(node) = &bound.node {
        // The node of a Pod is told but may be gone; a token bound to the node itself dies with it.
        if bound.pod.is_none() {
            same_life(cluster, "nodes", "", node).await?;
        }
        add(NODE_NAME, &node.name);
        if !node.uid.is_empty() {
            add(NODE_UID, &node.uid);
        }
    }
    if !claims.jti.is_empty() {
        add(CREDENTIAL_ID, &format!("JTI={}", claims.jti));
    }
    Ok((service_account_user(namespace, &bound.serviceaccount, extra), accepted))
}

fn service_account_user(namespace: &str, account: &ObjectRef, extra: BTreeMap<String, Vec<String>>) -> UserInfo {
    UserInfo { name: user_name(namespace, &account.name), uid: account.uid.clone(), groups: groups(namespace), extra }
}

fn accepted_audiences(token: &[String], asked: &[String]) -> Result<Vec<String>, String> {
    let accepted: Vec<String> = token.iter().filter(|a| asked.contains(a)).cloned().collect();
    if accepted.is_empty() {
        return Err(format!("token audiences {token:?} is invalid for the target audiences {asked:?}"));
    }
    Ok(accepted)
}

async fn live(cluster: &Cluster, plural: &'static str, namespace: &str, name: &str) -> Result<std::sync::Arc<Value>, String> {
    let found = cluster.get(Resource::core(plural), namespace, name).await.map_err(|e| e.to_string())?;
    let found = found.ok_or_else(|| ApiError::not_found(GroupResource { group: "", resource: plural }, name).message)?;
    let deleted: Option<Timestamp> = meta(&found, "deletionTimestamp").parse().ok();
    // A little grace, so that a Pod can finish its last requests.
    let over = |at: Timestamp| at.saturating_add(SignedDuration::from_secs(limits::DELETED_TOKEN_GRACE_SECONDS));
    if deleted.and_then(|at| over(at).ok()).is_some_and(|end| Timestamp::now() > end) {
        return Err(format!("{plural} {name:?} has been deleted"));
    }
    Ok(found)
}

/// Checks that an object exists and is the one that the token means, not a later one of the same name.
async fn same_life(cluster: &Cluster, plural: &'static str, namespace: &str, object: &ObjectRef) -> Result<(), String> {
    let found = live(cluster, plural, namespace, &object.name).await?;
    if meta(&found, "uid") != object.uid {
        return Err(format!(
            "{plural} {:?}: the UID ({}) does not match the claim ({})",
            object.name,
            meta(&found, "uid"),
            object.uid
        ));
    }
    Ok(())
}
