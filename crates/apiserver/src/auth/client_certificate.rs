//! Users by client certificate: common name and organizations of a leaf of the cluster's own authority.

use std::fmt::Write;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::{Authenticator, CREDENTIAL_ID, Peer, UserInfo};
use crate::cluster::Cluster;
use crate::error::{ApiError, Result};

/// Accepts leaves of the authorities in one PEM bundle.
#[derive(Debug)]
pub struct ClientCertificates {
    pub ca_pem: String,
}

#[async_trait]
impl Authenticator for ClientCertificates {
    async fn authenticate(&self, _: &http::request::Parts, peer: &Peer, _: &Cluster) -> Result<Option<UserInfo>> {
        let Some(leaf) = peer.certificates.first() else { return Ok(None) };
        let now = Timestamp::now();
        let judge = || atoll_pki::verify_client_chain(&peer.certificates, &self.ca_pem, now).ok().map(Arc::new);
        let info = peer.judged.get_or_init(judge).as_ref().ok_or_else(ApiError::unauthorized)?;
        // A connection may outlive its certificate.
        if now < info.not_before || info.not_after < now {
            return Err(ApiError::unauthorized());
        }
        if info.common_name.is_empty() {
            return Ok(None);
        }
        let fingerprint = Sha256::digest(leaf).iter().fold("X509SHA256=".to_owned(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Ok(Some(UserInfo {
            name: info.common_name.clone(),
            groups: info.organizations.clone(),
            extra: [(CREDENTIAL_ID.to_owned(), vec![fingerprint])].into(),
            ..UserInfo::default()
        }))
    }
}
