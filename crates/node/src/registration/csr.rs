//! Certificate requests of the node.

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::error::{Error, Result};
use crate::limits;

/// Signer of the node's client certificate.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of the kubelet API's serving certificate.
pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// A certificate with its key, PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    pub certificate_pem: String,
    pub key_pem: String,
}

/// Asks for a certificate of `system:node:NAME` and waits until it is issued.
pub async fn request(client: &Client, node: &str, signer: &str, names: &[String]) -> Result<Issued> {
    let (request, key_pem) = atoll_pki::certificate_request(&format!("system:node:{node}"), &["system:nodes"], names)?;
    let usage = if signer == SERVING_SIGNER { "server auth" } else { "client auth" };
    let object = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: signer.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), usage.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let created = api.create(&PostParams::default(), &object).await?;
    let name = created.metadata.name.unwrap_or_default();
    let certificate_pem = tokio::time::timeout(limits::CSR_WAIT, issued(&api, &name))
        .await
        .map_err(|_| Error::CertificateRequest { name, why: "nobody approved it in time".to_owned() })??;
    Ok(Issued { certificate_pem, key_pem })
}

async fn issued(api: &Api<CertificateSigningRequest>, name: &str) -> Result<String> {
    loop {
        let status = api.get(name).await?.status.unwrap_or_default();
        let verdict = status.conditions.iter().flatten().find(|c| matches!(c.type_.as_str(), "Denied" | "Failed"));
        if let Some(condition) = verdict {
            let why = format!("{}: {}", condition.type_, condition.message.as_deref().unwrap_or("no reason given"));
            return Err(Error::CertificateRequest { name: name.to_owned(), why });
        }
        if let Some(certificate) = status.certificate {
            return String::from_utf8(certificate.0)
                .map_err(|e| Error::CertificateRequest { name: name.to_owned(), why: e.to_string() });
        }
        tokio::time::sleep(limits::CSR_POLL).await;
    }
}
