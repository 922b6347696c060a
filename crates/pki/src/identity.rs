//! Reading certificates: who one names, whether it is trusted, when it ends.

use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::{Error, limits};

/// What a certificate says of its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// Common name: the user of a client certificate.
    pub common_name: String,
    /// Organizations in order: the groups of a client certificate.
    pub organizations: Vec<String>,
    /// DNS names and IP addresses.
    pub names: Vec<String>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl CertificateInfo {
    pub fn of_der(der: &[u8]) -> Result<CertificateInfo, Error> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|e| Error::malformed("certificate", e))?;
        let subject = certificate.subject();
        let texts = |it: Vec<&x509_parser::x509::AttributeTypeAndValue<'_>>| -> Vec<String> {
            it.iter().filter_map(|a| a.as_str().ok().map(str::to_owned)).collect()
        };
        let mut names = Vec::new();
        if let Ok(Some(extension)) = certificate.subject_alternative_name() {
            for name in &extension.value.general_names {
                match name {
                    GeneralName::DNSName(dns) => names.push((*dns).to_owned()),
                    GeneralName::IPAddress(bytes) => names.extend(ip_text(bytes)),
                    _ => {}
                }
            }
        }
        let time = |seconds: i64| Timestamp::from_second(seconds).map_err(|e| Error::malformed("certificate", e));
        Ok(CertificateInfo {
            common_name: texts(subject.iter_common_name().collect()).into_iter().next().unwrap_or_default(),
            organizations: texts(subject.iter_organization().collect()),
            names,
            not_before: time(certificate.validity().not_before.timestamp())?,
            not_after: time(certificate.validity().not_after.timestamp())?,
        })
    }

    pub fn of_pem(pem: &str) -> Result<CertificateInfo, Error> {
        let certificates = certificates_of_pem(pem)?;
        let first = certificates.first().ok_or_else(|| Error::malformed("certificate", "no CERTIFICATE block"))?;
        CertificateInfo::of_der(first)
    }
}

pub(crate) fn ip_text(bytes: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(v4).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| std::net::Ipv6Addr::from(v6).to_string())
}

/// All certificates of a PEM text, in order.
pub fn certificates_of_pem(pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| Error::malformed("certificate", format!("{e:?}")))
}

/// Judges a client's chain against the authorities in `ca_pem` and answers what the leaf says of its holder.
/// The TLS layer has checked possession of the key; a chain that is refused here is a 401, not a TLS alert.
pub fn verify_client_chain(chain: &[CertificateDer<'_>], ca_pem: &str, now: Timestamp) -> Result<CertificateInfo, Error> {
    let (leaf, intermediates) = chain.split_first().ok_or_else(|| Error::Untrusted("no certificate".to_owned()))?;
    let mut roots = rustls::RootCertStore::empty();
    for ca in certificates_of_pem(ca_pem)? {
        roots.add(ca).map_err(|e| Error::malformed("CA certificate", e))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|e| Error::malformed("CA certificate", e))?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().max(0) as u64));
    verifier.verify_client_cert(leaf, intermediates, now).map_err(|e| Error::Untrusted(e.to_string()))?;
    CertificateInfo::of_der(leaf)
}

/// Whether the authority whose certificate is `ca_pem` signed the first certificate of `pem` (at any time, for any use).
pub fn is_signed_by(pem: &str, ca_pem: &str) -> bool {
    let (Ok(leaf), Ok(ca)) = (certificates_of_pem(pem), certificates_of_pem(ca_pem)) else { return false };
    let (Some(leaf), Some(ca)) = (leaf.first(), ca.first()) else { return false };
    let (Ok((_, leaf)), Ok((_, ca))) = (X509Certificate::from_der(leaf), X509Certificate::from_der(ca)) else {
        return false;
    };
    let algorithm = &aws_lc_rs::signature::ECDSA_P256_SHA256_ASN1;
    let key = aws_lc_rs::signature::UnparsedPublicKey::new(algorithm, ca.public_key().subject_public_key.data.as_ref());
    key.verify(leaf.tbs_certificate.as_ref(), &leaf.signature_value.data).is_ok()
}

/// SHA-256 of the first certificate's public key info: kubeadm's `sha256:…` pin (lower-case hex, without the prefix).
pub fn spki_sha256(pem: &str) -> Result<String, Error> {
    let certificates = certificates_of_pem(pem)?;
    let first = certificates.first().ok_or_else(|| Error::malformed("certificate", "no CERTIFICATE block"))?;
    let (_, certificate) = X509Certificate::from_der(first).map_err(|e| Error::malformed("certificate", e))?;
    let digest = Sha256::digest(certificate.public_key().raw);
    Ok(digest.iter().map(|b| format!("{b:02x}")).collect())
}

/// Whether a certificate has lived past [`limits::RENEW_AFTER_PERCENT`] of its time. One that does not parse is to be renewed.
pub fn needs_renewal(certificate_pem: &str, now: Timestamp) -> bool {
    let Ok(info) = CertificateInfo::of_pem(certificate_pem) else { return true };
    let (start, end) = (info.not_before.as_second(), info.not_after.as_second());
    now.as_second() >= start + (end - start) / 100 * limits::RENEW_AFTER_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CertificateAuthority, LeafSpec, ServiceAccountKey, Usages, certificate_request};

    fn now() -> Timestamp {
        Timestamp::from_second(1_790_000_000).expect("a valid time")
    }

    fn leaf(ca: &CertificateAuthority, usages: Usages) -> crate::KeyPair {
        let spec = LeafSpec {
            common_name: "jane",
            organizations: &["team-a", "team-b"],
            names: &["127.0.0.1".to_owned(), "api.example.com".to_owned()],
            usages,
            ttl: Duration::from_secs(1000),
        };
        ca.issue(&spec, now()).expect("a leaf")
    }

    #[test]
    fn a_leaf_names_its_user_and_groups_and_is_trusted_by_its_own_ca_only() {
        let (ours, other) = (
            CertificateAuthority::generate("kubernetes", now()).expect("ca"),
            CertificateAuthority::generate("kubernetes", now()).expect("ca"),
        );
        let pair = leaf(&ours, Usages::CLIENT);
        let chain = certificates_of_pem(&pair.certificate_pem).expect("pem");
        let info = verify_client_chain(&chain, ours.certificate_pem(), now()).expect("trusted");
        assert_eq!((info.common_name.as_str(), info.organizations.len()), ("jane", 2));
        assert_eq!(info.names, ["127.0.0.1", "api.example.com"]);
        assert!(verify_client_chain(&chain, other.certificate_pem(), now()).is_err(), "a foreign CA");
        let late = Timestamp::from_second(now().as_second() + 2000).expect("time");
        assert!(verify_client_chain(&chain, ours.certificate_pem(), late).is_err(), "expired");
        let server = leaf(&ours, Usages::SERVER);
        let chain = certificates_of_pem(&server.certificate_pem).expect("pem");
        assert!(verify_client_chain(&chain, ours.certificate_pem(), now()).is_err(), "a server certificate is no client's");
    }

    #[test]
    fn an_authority_survives_its_pem_form_and_signs_requests() {
        let ca = CertificateAuthority::generate("kubernetes", now()).expect("ca");
        let again = CertificateAuthority::from_pem(ca.certificate_pem(), &ca.key_pem()).expect("reloaded");
        let (csr, _key) = certificate_request("system:node:n", &["system:nodes"], &[]).expect("request");
        let signed = again.sign_request(&csr, Usages::CLIENT, Duration::from_secs(1000), now()).expect("signed");
        let chain = certificates_of_pem(&signed).expect("pem");
        let info = verify_client_chain(&chain, ca.certificate_pem(), now()).expect("trusted");
        assert_eq!(info.organizations, ["system:nodes"]);
        assert!(!needs_renewal(&signed, now()));
        assert!(needs_renewal(&signed, Timestamp::from_second(now().as_second() + 900).expect("time")));
        assert!(again.sign_request("nonsense", Usages::CLIENT, Duration::from_secs(1), now()).is_err());
    }

    #[test]
    fn a_request_with_more_groups_than_can_be_signed_is_refused_not_cut() {
        let ca = CertificateAuthority::generate("kubernetes", now()).expect("ca");
        let (csr, _key) = certificate_request("jane", &["a", "b"], &[]).expect("request");
        let error = ca.sign_request(&csr, Usages::CLIENT, Duration::from_secs(1000), now()).expect_err("refused");
        assert!(error.to_string().contains("more than one organization"), "{error}");
    }

    #[test]
    fn a_service_account_key_survives_its_pem_form() {
        let key = ServiceAccountKey::generate().expect("key");
        let again = ServiceAccountKey::from_pem(&key.private_pem()).expect("reloaded");
        assert_eq!(again.public_pem(), key.public_pem());
        assert_eq!(key.public_point().len(), 65);
    }
}
