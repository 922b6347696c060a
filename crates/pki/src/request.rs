//! What a certificate request asks for.

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use crate::Error;
use crate::identity::ip_text;

/// Subject and names of a PKCS#10 request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: Vec<String>,
    /// As text.
    pub ip_addresses: Vec<String>,
    /// Whether names of other kinds (e-mail, URI, …) are asked for.
    pub other_names: bool,
}

impl RequestInfo {
    /// Reads a request. Whether it is signed with its own key is checked when it is signed.
    pub fn of_pem(csr_pem: &str) -> Result<RequestInfo, Error> {
        let malformed = |why: String| Error::malformed("certificate request", why);
        let (_, pem) = x509_parser::pem::parse_x509_pem(csr_pem.as_bytes()).map_err(|e| malformed(e.to_string()))?;
        let (_, request) = X509CertificationRequest::from_der(&pem.contents).map_err(|e| malformed(e.to_string()))?;
        let subject = &request.certification_request_info.subject;
        let text = |a: &x509_parser::x509::AttributeTypeAndValue<'_>| a.as_str().ok().map(str::to_owned);
        let mut info = RequestInfo {
            common_name: subject.iter_common_name().find_map(text).unwrap_or_default(),
            organizations: subject.iter_organization().filter_map(text).collect(),
            ..RequestInfo::default()
        };
        for extension in request.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(dns) => info.dns_names.push((*dns).to_owned()),
                    GeneralName::IPAddress(bytes) => info.ip_addresses.extend(ip_text(bytes)),
                    _ => info.other_names = true,
                }
            }
        }
        Ok(info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_asked_for() {
        let names = ["n1".to_owned(), "10.0.0.7".to_owned()];
        let (pem, _) = crate::certificate_request("system:node:n1", &["system:nodes"], &names).unwrap();
        let info = RequestInfo::of_pem(&pem).unwrap();
        assert_eq!((info.common_name.as_str(), info.organizations), ("system:node:n1", vec!["system:nodes".to_owned()]));
        assert_eq!(
            (info.dns_names, info.ip_addresses, info.other_names),
            (vec!["n1".to_owned()], vec!["10.0.0.7".to_owned()], false)
        );
        assert!(RequestInfo::of_pem("x").is_err());
    }
}
