//! Users by client certificate: common name and organizations of a leaf of the cluster's own authority.

use async_trait::async_trait;

use super::{Authenticator, Peer, UserInfo};
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
        if peer.certificates.is_empty() {
            return Ok(None);
        }
        let info = atoll_pki::verify_client_chain(&peer.certificates, &self.ca_pem, jiff::Timestamp::now())
            .map_err(|_| ApiError::unauthorized())?;
        if info.common_name.is_empty() {
            return Ok(None);
        }
        Ok(Some(UserInfo { name: info.common_name, groups: info.organizations, ..UserInfo::default() }))
    }
}
