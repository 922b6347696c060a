//! Bearer tokens: those of service accounts, and bootstrap tokens.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header;
use jiff::Timestamp;

use super::rbac::aggregate;
use super::service_account::ServiceAccountTokens;
use super::{AUTHENTICATED_GROUP, Authenticator, Peer, UserInfo, bootstrap_token};
use crate::cluster::Cluster;
use crate::error::{ApiError, Result};

/// Subprotocol by which a browser, which can set no header, sends its token with a WebSocket.
const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// All kinds of token that this server knows.
#[derive(Debug)]
pub struct BearerTokens {
    pub service_accounts: Arc<ServiceAccountTokens>,
}

/// What came of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenVerdict {
    /// The user, and the token's audiences among those asked for.
    Good(UserInfo, Vec<String>),
    /// Why not, as a `TokenReview` tells it.
    Bad(String),
}

impl BearerTokens {
    /// Judges a token for any of `audiences` (empty: this server's own).
    pub async fn judge(&self, token: &str, audiences: &[String], now: Timestamp, cluster: &Cluster) -> TokenVerdict {
        let audiences = if audiences.is_empty() { self.service_accounts.audiences() } else { audiences };
        let mut errors = vec!["invalid bearer token".to_owned()];
        match self.service_accounts.authenticate(token, audiences, now, cluster).await {
            Some(Ok((user, audiences))) => return TokenVerdict::Good(with_authenticated(user), audiences),
            Some(Err(why)) => errors.push(why),
            None => {}
        }
        // A bootstrap token is for this server only.
        if audiences.iter().any(|a| self.service_accounts.audiences().contains(a)) {
            match bootstrap_token::authenticate(token, now, cluster).await {
                Ok(Some(user)) => return TokenVerdict::Good(with_authenticated(user), vec![]),
                Ok(None) => {}
                Err(e) => errors.push(e.to_string()),
            }
        }
        TokenVerdict::Bad(aggregate(&errors))
    }
}

fn with_authenticated(mut user: UserInfo) -> UserInfo {
    user.groups.push(AUTHENTICATED_GROUP.to_owned());
    user
}

/// The token of a request: of its `Authorization` header, else of its WebSocket subprotocol.
fn token_of(headers: &http::HeaderMap) -> Option<String> {
    let authorization = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if let Some((scheme, token)) = authorization.trim().split_once(' ') {
        let token = token.trim();
        return (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned());
    }
    let protocols = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|v| v.to_str().ok());
    let encoded = protocols.flat_map(|v| v.split(',')).find_map(|p| p.trim().strip_prefix(WEBSOCKET_PREFIX))?;
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok().filter(|token| !token.is_empty())
}

#[async_trait]
impl Authenticator for BearerTokens {
    async fn authenticate(&self, parts: &http::request::Parts, _: &Peer, cluster: &Cluster) -> Result<Option<UserInfo>> {
        let Some(token) = token_of(&parts.headers) else { return Ok(None) };
        match self.judge(&token, &[], Timestamp::now(), cluster).await {
            TokenVerdict::Good(user, _) => Ok(Some(user)),
            TokenVerdict::Bad(why) => {
                tracing::debug!(why, "a bearer token was refused");
                Err(ApiError::unauthorized())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, value: &str) -> Option<String> {
        let mut headers = http::HeaderMap::new();
        headers.insert(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        token_of(&headers)
    }

    #[test]
    fn a_token_comes_in_the_header_or_in_a_subprotocol() {
        assert_eq!(token("authorization", "Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("authorization", "bearer  abc ").as_deref(), Some("abc"));
        assert_eq!(token("authorization", "Basic abc"), None);
        let protocols = format!("v5.channel.k8s.io, {WEBSOCKET_PREFIX}{}", URL_SAFE_NO_PAD.encode("abc"));
        assert_eq!(token("sec-websocket-protocol", &protocols).as_deref(), Some("abc"));
    }
}
