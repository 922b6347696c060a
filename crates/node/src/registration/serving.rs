//! The certificate of the kubelet API: asked for from the cluster, self-signed until it is there.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::csr::{self, Issued};
use crate::error::{Error, Result};
use crate::limits;
use crate::paths::{NodePaths, write_atomic};

/// The certificate in use; may be replaced while the server runs.
#[derive(Debug)]
pub struct Serving {
    current: RwLock<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }
}

impl Serving {
    /// Starts with the certificate of last time, else with a self-signed one.
    pub fn load(paths: &NodePaths, names: &[String]) -> Result<(Arc<Serving>, Option<String>)> {
        if let Some(issued) = read(paths) {
            let fresh = atoll_pki::CertificateInfo::of_pem(&issued.certificate_pem).is_ok_and(|i| i.not_after > Timestamp::now());
            if let (true, Ok(key)) = (fresh, certified(&issued)) {
                return Ok((Arc::new(Serving { current: RwLock::new(Arc::new(key)) }), Some(issued.certificate_pem)));
            }
        }
        let key = certified(&self_signed(names)?)?;
        Ok((Arc::new(Serving { current: RwLock::new(Arc::new(key)) }), None))
    }

    /// Asks for a certificate when there is none or it is due, for ever. A cluster that approves none keeps the
    /// self-signed one in use.
    pub async fn keep(&self, client: Client, node: String, names: Vec<String>, paths: NodePaths, mut have: Option<String>) {
        loop {
            let due = have.as_ref().is_none_or(|pem| atoll_pki::needs_renewal(pem, Timestamp::now()));
            if due {
                match self.renew(&client, &node, &names, &paths).await {
                    Ok(pem) => have = Some(pem),
                    Err(e) => tracing::warn!("serving certificate: {e}"),
                }
            }
            tokio::time::sleep(limits::STATUS_FORCED).await;
        }
    }

    async fn renew(&self, client: &Client, node: &str, names: &[String], paths: &NodePaths) -> Result<String> {
        let issued = csr::request(client, node, csr::SERVING_SIGNER, names).await?;
        *self.current.write() = Arc::new(certified(&issued)?);
        write_atomic(&paths.pki().join("kubelet-server.key"), issued.key_pem.as_bytes(), 0o600)?;
        write_atomic(&paths.pki().join("kubelet-server.crt"), issued.certificate_pem.as_bytes(), 0o644)?;
        Ok(issued.certificate_pem)
    }
}

fn read(paths: &NodePaths) -> Option<Issued> {
    let text = |name: &str| std::fs::read_to_string(paths.pki().join(name)).ok();
    Some(Issued { certificate_pem: text("kubelet-server.crt")?, key_pem: text("kubelet-server.key")? })
}

fn self_signed(names: &[String]) -> Result<Issued> {
    let now = Timestamp::now();
    let authority = atoll_pki::CertificateAuthority::generate("kubelet-self-signed", now)?;
    let spec = atoll_pki::LeafSpec {
        common_name: "kubelet-self-signed",
        organizations: &[],
        names,
        usages: atoll_pki::Usages::SERVER,
        ttl: std::time::Duration::from_secs(SignedDuration::from_hours(24 * 365).as_secs().unsigned_abs()),
    };
    let pair = authority.issue(&spec, now)?;
    Ok(Issued { certificate_pem: pair.certificate_pem, key_pem: pair.key_pem })
}

fn certified(issued: &Issued) -> Result<CertifiedKey> {
    let wrong = |e: String| Error::Option(format!("serving certificate: {e}"));
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(issued.certificate_pem.as_bytes())
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| wrong(e.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).map_err(|e| wrong(e.to_string()))?;
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).map_err(|e| wrong(e.to_string()))?;
    Ok(CertifiedKey::new(chain, key))
}
