//! A server certificate that is replaced while connections are served (HAMi issue 1572).

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::error::{Error, Result};

/// The certificate that new connections get; none until the first is set.
#[derive(Debug, Default)]
pub struct CurrentCertificate {
    key: RwLock<Option<Arc<CertifiedKey>>>,
}

impl CurrentCertificate {
    /// Takes the chain and key for all further connections. Says whether they differ from what was served.
    pub fn set(&self, certificate_pem: &[u8], key_pem: &[u8]) -> Result<bool> {
        let tls = |what: &str, error: &dyn std::fmt::Display| Error::Tls(format!("{what}: {error}"));
        let chain = CertificateDer::pem_slice_iter(certificate_pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| tls("certificate", &error))?;
        if chain.is_empty() {
            return Err(Error::Tls("certificate: no CERTIFICATE block".to_owned()));
        }
        let private = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| tls("key", &error))?;
        let signer = rustls::crypto::aws_lc_rs::sign::any_supported_type(&private).map_err(|error| tls("key", &error))?;
        let key = CertifiedKey::new(chain, signer);
        key.keys_match().map_err(|error| tls("key", &error))?;
        let mut current = self.key.write();
        let changed = current.as_ref().is_none_or(|current| current.cert != key.cert);
        *current = Some(Arc::new(key));
        Ok(changed)
    }

    /// The server side that serves it.
    pub fn server_config(self: &Arc<Self>) -> Result<Arc<ServerConfig>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Tls(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key.read().clone()
    }
}
