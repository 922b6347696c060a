//! Certificates, keys and kubeconfigs: bytes in, bytes out.
//!
//! Owns certificate authorities, leaves, signing of certificate requests, service-account keys, kubeconfig files and the rule
//! when a certificate is to be renewed. All keys are ECDSA P-256: an RSA key costs 130 ms of CPU and a tenant needs about ten.
//!
//! Invariants: no IO and no clock (`now` is passed in); a private key leaves this crate only as PEM that the caller asked for.
//! It deliberately does not know files, Secrets, tenants or who may have what.

mod authority;
mod identity;
mod kubeconfig;
pub mod limits;
mod request;
mod service_account;

pub use authority::{CertificateAuthority, KeyPair, LeafSpec, Usages, certificate_request};
pub use identity::{CertificateInfo, certificates_of_pem, is_signed_by, needs_renewal, spki_sha256, verify_client_chain};
pub use kubeconfig::{ClusterEntry, Kubeconfig, UserCredentials};
pub use request::RequestInfo;
pub use service_account::ServiceAccountKey;

/// What can go wrong with keys and certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key or certificate could not be generated.
    #[error("cannot generate a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// A PEM text holds no such block or its content does not parse.
    #[error("not a valid {what} in PEM form: {why}")]
    Malformed { what: &'static str, why: String },
    /// A requested name is not an IP address or DNS name.
    #[error("{0:?} is neither an IP address nor a DNS name")]
    InvalidName(String),
    /// The certificate chain does not lead to the authority, is expired or may not be used by a client.
    #[error("the client certificate is not accepted: {0}")]
    Untrusted(String),
}

impl Error {
    pub(crate) fn malformed(what: &'static str, why: impl ToString) -> Error {
        Error::Malformed { what, why: why.to_string() }
    }
}
