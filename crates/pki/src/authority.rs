//! Certificate authorities and what they sign.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyUsagePurpose, SanType,
};

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use crate::{Error, limits};

/// A certificate with its private key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    pub certificate_pem: String,
    pub key_pem: String,
}

/// What a leaf may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usages {
    pub client: bool,
    pub server: bool,
}

impl Usages {
    pub const CLIENT: Usages = Usages { client: true, server: false };
    pub const SERVER: Usages = Usages { client: false, server: true };
    pub const BOTH: Usages = Usages { client: true, server: true };
}

/// A leaf to be issued. In a client certificate `common_name` is the user and `organization` its group.
#[derive(Clone, Debug)]
pub struct LeafSpec<'a> {
    pub common_name: &'a str,
    pub organizations: &'a [&'a str],
    /// IP addresses and DNS names.
    pub names: &'a [String],
    pub usages: Usages,
    pub ttl: Duration,
}

/// A certificate authority with its key.
#[derive(Debug)]
pub struct CertificateAuthority {
    certificate_pem: String,
    issuer: Issuer<'static, rcgen::KeyPair>,
}

impl CertificateAuthority {
    /// A new self-signed authority, valid for [`limits::CA_TTL`].
    pub fn generate(common_name: &str, now: Timestamp) -> Result<Self, Error> {
        let key = rcgen::KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.subject_alt_names = vec![SanType::DnsName(dns_name(common_name)?)];
        set_validity(&mut params, now, limits::CA_TTL)?;
        let certificate_pem = params.self_signed(&key)?.pem();
        Ok(CertificateAuthority { certificate_pem, issuer: Issuer::new(params, key) })
    }

    /// Loads an authority from its PEM files.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, Error> {
        let key = rcgen::KeyPair::from_pem(key_pem).map_err(|e| Error::malformed("private key", e))?;
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, key).map_err(|e| Error::malformed("CA certificate", e))?;
        Ok(CertificateAuthority { certificate_pem: certificate_pem.to_owned(), issuer })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a leaf with a new key.
    pub fn issue(&self, spec: &LeafSpec<'_>, now: Timestamp) -> Result<KeyPair, Error> {
        let key = rcgen::KeyPair::generate()?;
        let mut params = leaf_params(spec)?;
        set_validity(&mut params, now, spec.ttl)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(KeyPair { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// Signs a PKCS#10 request as it stands, with the given usages and life. Who may have it is the caller's decision.
    pub fn sign_request(&self, csr_pem: &str, usages: Usages, ttl: Duration, now: Timestamp) -> Result<String, Error> {
        refuse_repeated_organizations(csr_pem)?;
        let mut csr =
            CertificateSigningRequestParams::from_pem(csr_pem).map_err(|e| Error::malformed("certificate request", e))?;
        csr.params.is_ca = IsCa::ExplicitNoCa;
        csr.params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        csr.params.extended_key_usages = extended_usages(usages);
        csr.params.use_authority_key_identifier_extension = true;
        set_validity(&mut csr.params, now, ttl)?;
        Ok(csr.signed_by(&self.issuer)?.pem())
    }
}

/// A new key and a PKCS#10 request for it: `(request PEM, key PEM)`.
pub fn certificate_request(common_name: &str, organizations: &[&str], names: &[String]) -> Result<(String, String), Error> {
    let key = rcgen::KeyPair::generate()?;
    let spec = LeafSpec { common_name, organizations, names, usages: Usages::CLIENT, ttl: limits::LEAF_TTL };
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&spec);
    params.subject_alt_names = alt_names(names)?;
    let request = params.serialize_request(&key)?.pem()?;
    Ok((request, key.serialize_pem()))
}

/// rcgen would keep the last of several organizations and drop the others without a word.
fn refuse_repeated_organizations(csr_pem: &str) -> Result<(), Error> {
    let malformed = |why: String| Error::malformed("certificate request", why);
    let (_, pem) = x509_parser::pem::parse_x509_pem(csr_pem.as_bytes()).map_err(|e| malformed(e.to_string()))?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).map_err(|e| malformed(e.to_string()))?;
    match request.certification_request_info.subject.iter_organization().count() {
        0 | 1 => Ok(()),
        _ => Err(malformed("more than one organization in the subject; send a request with one".to_owned())),
    }
}

fn leaf_params(spec: &LeafSpec<'_>) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(spec);
    params.subject_alt_names = alt_names(spec.names)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = extended_usages(spec.usages);
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// rcgen keeps one value per attribute type. The second organization goes under the same OID spelled as a custom type, which it
/// takes for another attribute; more than two are not needed here.
fn subject(spec: &LeafSpec<'_>) -> DistinguishedName {
    const ORGANIZATION_OID: [u64; 4] = [2, 5, 4, 10];
    let mut name = DistinguishedName::new();
    let mut organizations = spec.organizations.iter();
    if let Some(first) = organizations.next() {
        name.push(DnType::OrganizationName, *first);
    }
    if let Some(second) = organizations.next() {
        name.push(DnType::CustomDnType(ORGANIZATION_OID.to_vec()), *second);
    }
    name.push(DnType::CommonName, spec.common_name);
    name
}

fn alt_names(names: &[String]) -> Result<Vec<SanType>, Error> {
    names
        .iter()
        .map(|name| match name.parse::<IpAddr>() {
            Ok(ip) => Ok(SanType::IpAddress(ip)),
            Err(_) => Ok(SanType::DnsName(dns_name(name)?)),
        })
        .collect()
}

fn dns_name(name: &str) -> Result<rcgen::string::Ia5String, Error> {
    name.try_into().map_err(|_| Error::InvalidName(name.to_owned()))
}

fn extended_usages(usages: Usages) -> Vec<ExtendedKeyUsagePurpose> {
    let mut out = Vec::new();
    if usages.server {
        out.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    if usages.client {
        out.push(ExtendedKeyUsagePurpose::ClientAuth);
    }
    out
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, ttl: Duration) -> Result<(), Error> {
    let at = |seconds: i64| time::OffsetDateTime::from_unix_timestamp(seconds).map_err(|e| Error::malformed("validity", e));
    params.not_before = at(now.as_second() - limits::BACKDATE.as_secs() as i64)?;
    params.not_after = at(now.as_second() + ttl.as_secs() as i64)?;
    Ok(())
}
