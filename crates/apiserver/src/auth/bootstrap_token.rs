//! Bootstrap tokens: Secrets `kube-system/bootstrap-token-ID` with which a new node asks for its certificate.

use jiff::Timestamp;
use serde_json::Value;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::UserInfo;
use super::follow::meta;
use crate::cluster::{Cluster, Resource};
use crate::error::Result;

const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const BOOTSTRAPPERS_GROUP: &str = "system:bootstrappers";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 16;
const EXTRA_GROUP_BYTES_MAX: usize = 256;

/// Id and secret of a token `id.secret`, if it has that form.
fn split(token: &str) -> Option<(&str, &str)> {
    let is_word = |text: &str, length| text.len() == length && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let (id, secret) = token.split_once('.')?;
    (is_word(id, ID_BYTES) && is_word(secret, SECRET_BYTES)).then_some((id, secret))
}

/// The user of a bootstrap token that is good now.
pub(super) async fn authenticate(token: &str, now: Timestamp, cluster: &Cluster) -> Result<Option<UserInfo>> {
    let Some((id, secret)) = split(token) else { return Ok(None) };
    let stored = cluster.get(Resource::core("secrets"), "kube-system", &format!("bootstrap-token-{id}")).await?;
    Ok(stored.and_then(|stored| user(&stored, id, secret, now)))
}

fn user(stored: &Value, id: &str, secret: &str, now: Timestamp) -> Option<UserInfo> {
    let field = |key: &str| -> String {
        let encoded = stored.get("data").and_then(|data| data.get(key)).and_then(Value::as_str).unwrap_or_default();
        STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    };
    if stored.get("type").and_then(Value::as_str) != Some(SECRET_TYPE) || !meta(stored, "deletionTimestamp").is_empty() {
        return None;
    }
    if field("token-id") != id || !equal_in_constant_time(&field("token-secret"), secret) {
        return None;
    }
    let expiration = field("expiration");
    // An expiration that cannot be read has passed.
    let is_expired = !expiration.is_empty() && !expiration.parse::<Timestamp>().is_ok_and(|end| now < end);
    if is_expired || field("usage-bootstrap-authentication") != "true" {
        return None;
    }
    let mut extra: Vec<String> = field("auth-extra-groups").split(',').filter(|g| !g.is_empty()).map(str::to_owned).collect();
    extra.sort();
    extra.dedup();
    if !extra.iter().all(|group| is_bootstrap_group(group)) {
        return None;
    }
    let mut user = UserInfo::new(format!("system:bootstrap:{id}"), &[BOOTSTRAPPERS_GROUP]);
    user.groups.extend(extra);
    Some(user)
}

/// Tokens give no groups but those below `system:bootstrappers:`.
fn is_bootstrap_group(group: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b':' || b == b'-';
    group.strip_prefix("system:bootstrappers:").is_some_and(|rest| {
        rest.len() <= EXTRA_GROUP_BYTES_MAX
            && rest.bytes().all(is_inner)
            && rest.bytes().last().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    })
}

fn equal_in_constant_time(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secret(pairs: &[(&str, &str)]) -> Value {
        let base = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a"),
        ];
        let data: serde_json::Map<String, Value> =
            base.iter().chain(pairs).map(|(k, v)| ((*k).to_owned(), STANDARD.encode(v).into())).collect();
        json!({"type": SECRET_TYPE, "data": data})
    }

    fn judged(secret: &Value) -> Option<UserInfo> {
        user(secret, "abcdef", "0123456789abcdef", "2026-06-01T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn a_good_token_names_its_id_and_groups() {
        let user = judged(&secret(&[])).unwrap();
        assert_eq!(user.name, "system:bootstrap:abcdef");
        assert_eq!(user.groups, ["system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b"]);
        assert!(judged(&secret(&[("expiration", "2026-06-01T00:00:01Z")])).is_some());
    }

    #[test]
    fn expired_foreign_or_overreaching_tokens_are_nobody() {
        for wrong in [
            ("expiration", "2026-06-01T00:00:00Z"),
            ("expiration", "tomorrow"),
            ("token-secret", "0123456789abcdee"),
            ("token-id", "abcdeg"),
            ("usage-bootstrap-authentication", "false"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:a-"),
        ] {
            assert_eq!(judged(&secret(&[wrong])), None, "{wrong:?}");
        }
        assert_eq!(split("abcdef.0123456789abcdeF"), None);
        assert_eq!(split("abcdef0123456789abcdef"), None);
    }
}
