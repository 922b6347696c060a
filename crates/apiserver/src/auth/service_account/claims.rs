//! The claims of service-account tokens.

use serde::{Deserialize, Deserializer, Serialize};

pub const USER_PREFIX: &str = "system:serviceaccount:";
const GROUP: &str = "system:serviceaccounts";

/// Issuer of the old tokens that live in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// A named object of which one life is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRef {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The claim `kubernetes.io`: whose token it is and what it dies with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubernetes {
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<ObjectRef>,
    pub serviceaccount: ObjectRef,
    /// When a client that still uses the token should have got a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// All claims; times in seconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    #[serde(default, deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub aud: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iat: Option<i64>,
    pub iss: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jti: String,
    #[serde(rename = "kubernetes.io", default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
    pub sub: String,
    #[serde(flatten)]
    pub legacy: LegacyClaims,
}

/// Claims of the old tokens that live in Secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyClaims {
    #[serde(rename = "kubernetes.io/serviceaccount/namespace", default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name", default, skip_serializing_if = "String::is_empty")]
    pub secret_name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name", default, skip_serializing_if = "String::is_empty")]
    pub account_name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid", default, skip_serializing_if = "String::is_empty")]
    pub account_uid: String,
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::One(audience) => vec![audience],
        Either::Many(audiences) => audiences,
    })
}

/// The user that a service account's tokens name.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("{USER_PREFIX}{namespace}:{name}")
}

/// Namespace and name of the service account that a user name means.
pub fn split_user_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(USER_PREFIX)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// The groups of every service account of a namespace.
pub fn groups(namespace: &str) -> Vec<String> {
    vec![GROUP.to_owned(), format!("{GROUP}:{namespace}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_name_means_a_service_account_only_if_it_has_both_parts() {
        assert_eq!(split_user_name("system:serviceaccount:a:b"), Some(("a", "b")));
        for other in ["system:serviceaccount:a", "system:serviceaccount:a:", "system:serviceaccount:a:b:c", "jane"] {
            assert_eq!(split_user_name(other), None, "{other}");
        }
    }
}
