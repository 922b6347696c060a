//! `serviceaccounts/NAME/token`: a token on request.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Claims, Kubernetes, ObjectRef, ServiceAccountTokens, user_name};
use crate::auth::follow::{meta, text};
use crate::cluster::{Cluster, Resource};
use crate::error::{ApiError, Cause, GroupResource, Result};
use crate::limits;

const GROUP: &str = "authentication.k8s.io";

fn invalid(name: &str, field: &str, value: impl std::fmt::Display, why: &str) -> ApiError {
    let cause = Cause::new("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"));
    ApiError::invalid(GROUP, "TokenRequest", name, vec![cause])
}

/// Fills a decoded `TokenRequest` for the account `namespace`/`name` with a token.
pub(crate) async fn request_token(
    tokens: &ServiceAccountTokens,
    mut request: Value,
    namespace: &str,
    name: &str,
    now: Timestamp,
    cluster: &Cluster,
) -> Result<Value> {
    let account = get(cluster, "serviceaccounts", namespace, name).await?;
    let asked = meta(&request, "name");
    if !asked.is_empty() && asked != name {
        return Err(invalid(name, "metadata.name", format!("{asked:?}"), "must match the service account name if specified"));
    }
    let spec = request.get("spec").cloned().unwrap_or_else(|| json!({}));
    let seconds = expiration_seconds(&spec)?;
    let mut audiences: Vec<String> =
        spec.get("audiences").and_then(|list| serde_json::from_value(list.clone()).ok()).unwrap_or_default();
    if audiences.is_empty() {
        audiences = tokens.audiences.clone();
    }
    let bound = spec.get("boundObjectRef").filter(|reference| !reference.is_null());
    let mut kubernetes = match bound {
        Some(reference) => bind(cluster, reference, namespace, name).await?,
        None => Kubernetes::default(),
    };
    kubernetes.namespace = namespace.to_owned();
    kubernetes.serviceaccount = reference_to(&account);
    let issued = now.as_second();
    let mut lifetime = seconds;
    // Clients from before rotation ask for exactly this long and never again: they get a year and are told by the audit log.
    let is_for_server = audiences.iter().all(|a| tokens.audiences.contains(a));
    if seconds == limits::ROTATION_UNAWARE_TOKEN_SECONDS && kubernetes.pod.is_some() && is_for_server {
        lifetime = limits::EXTENDED_TOKEN_SECONDS;
        kubernetes.warnafter = Some(issued + seconds);
    }
    let token = tokens.sign(Claims {
        aud: audiences.clone(),
        exp: Some(issued + lifetime),
        iat: Some(issued),
        nbf: Some(issued),
        jti: uuid::Uuid::new_v4().to_string(),
        sub: user_name(namespace, name),
        kubernetes: Some(kubernetes),
        ..Claims::default()
    })?;
    let expires = Timestamp::from_second(issued).and_then(|t| t.checked_add(SignedDuration::from_secs(seconds)));
    let expires = expires.map_err(ApiError::internal)?;
    let shown_bound = bound.cloned().unwrap_or(Value::Null);
    request["spec"] = json!({"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": shown_bound});
    request["status"] = json!({"token": token, "expirationTimestamp": expires.to_string()});
    let created = Timestamp::from_second(issued).map_err(ApiError::internal)?.to_string();
    for (field, value) in
        [("name", name), ("namespace", namespace), ("uid", meta(&account, "uid")), ("creationTimestamp", &created)]
    {
        request["metadata"][field] = value.into();
    }
    Ok(request)
}

fn expiration_seconds(spec: &Value) -> Result<i64> {
    let seconds = spec.get("expirationSeconds").and_then(Value::as_i64).unwrap_or(limits::TOKEN_SECONDS_DEFAULT);
    let field = "spec.expirationSeconds";
    if seconds < limits::TOKEN_SECONDS_MIN {
        return Err(invalid("", field, seconds, "may not specify a duration less than 10 minutes"));
    }
    if seconds > limits::TOKEN_SECONDS_MAX {
        return Err(invalid("", field, seconds, "may not specify a duration larger than 2^32 seconds"));
    }
    Ok(seconds)
}

async fn get(cluster: &Cluster, plural: &'static str, namespace: &str, name: &str) -> Result<std::sync::Arc<Value>> {
    let found = cluster.get(Resource::core(plural), namespace, name).await?;
    found.ok_or_else(|| ApiError::not_found(GroupResource { group: "", resource: plural }, name))
}

fn reference_to(object: &Value) -> ObjectRef {
    ObjectRef { name: meta(object, "name").to_owned(), uid: meta(object, "uid").to_owned() }
}

/// The claims of a token that dies with the object that `reference` names.
async fn bind(cluster: &Cluster, reference: &Value, namespace: &str, account: &str) -> Result<Kubernetes> {
    let (api_version, kind, name) = (text(reference, "apiVersion"), text(reference, "kind"), text(reference, "name"));
    let mut claims = Kubernetes::default();
    match (api_version, kind) {
        ("v1", "Pod") => {
            let pod = same_life(cluster, "pods", namespace, name, reference).await?;
            let spec = pod.get("spec").unwrap_or(&Value::Null);
            if text(spec, "serviceAccountName") != account {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                )));
            }
            let node = text(spec, "nodeName");
            if !node.is_empty() {
                let found = cluster.get(Resource::core("nodes"), "", node).await?;
                let uid = found.map(|n| meta(&n, "uid").to_owned()).unwrap_or_default();
                claims.node = Some(ObjectRef { name: node.to_owned(), uid });
            }
            claims.pod = Some(reference_to(&pod));
        }
        ("v1", "Secret") => {
            claims.secret = Some(reference_to(&*same_life(cluster, "secrets", namespace, name, reference).await?))
        }
        ("v1", "Node") => claims.node = Some(reference_to(&*same_life(cluster, "nodes", "", name, reference).await?)),
        _ => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            return Err(ApiError::bad_request(format!("cannot bind token to object of type {group}/{version}, Kind={kind}")));
        }
    }
    Ok(claims)
}

/// The object, if its uid is the one that the reference states (or it states none).
async fn same_life(
    cluster: &Cluster,
    plural: &'static str,
    namespace: &str,
    name: &str,
    reference: &Value,
) -> Result<std::sync::Arc<Value>> {
    let found = get(cluster, plural, namespace, name).await?;
    let (stated, uid) = (text(reference, "uid"), meta(&found, "uid"));
    if !stated.is_empty() && stated != uid {
        let kind = text(reference, "kind");
        return Err(ApiError::conflict(
            GroupResource { group: "", resource: kind },
            name,
            format!(
                "the UID in the bound object reference ({stated}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            ),
        ));
    }
    Ok(found)
}
