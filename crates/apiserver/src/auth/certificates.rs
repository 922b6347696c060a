//! Admission of certificate requests: whose they are, and who may approve and sign for which signer.

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use super::follow::text;
use super::{Attributes as Question, Authorizers, Decision, MASTERS_GROUP};
use crate::admission::{Attributes, Operation, Plugin};
use crate::cluster::Cluster;
use crate::error::Result;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
/// The signer whose certificates name users of this very server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

fn is_request(write: &Attributes, subresource: &str) -> bool {
    write.group == GROUP && write.resource == REQUESTS && write.subresource == subresource
}

fn signer_of(object: &Value) -> &str {
    object.get("spec").map(|spec| text(spec, "signerName")).unwrap_or_default()
}

/// Writes into a new request who made it, whatever its maker says.
#[derive(Debug, Default)]
pub struct RequestAuthor;

#[async_trait]
impl Plugin for RequestAuthor {
    fn name(&self) -> &'static str {
        "CertificateRequestAuthor"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn admit(&self, write: &mut Attributes, _: &Cluster) -> Result<()> {
        if !is_request(write, "") {
            return Ok(());
        }
        let user = &write.user;
        let mut fields = vec![("username", json!(user.name)), ("uid", json!(user.uid))];
        fields.push(("groups", json!(user.groups)));
        fields.push(("extra", json!(user.extra)));
        let Some(spec) = write.object.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
        for (field, value) in fields {
            let is_empty = value.as_str() == Some("")
                || value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(serde_json::Map::is_empty);
            if is_empty {
                spec.remove(field);
            } else {
                spec.insert(field.to_owned(), value);
            }
        }
        Ok(())
    }
}

/// Refuses client certificates of the group that may do everything.
#[derive(Debug, Default)]
pub struct CertificateSubjectRestriction;

#[async_trait]
impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn validate(&self, write: &Attributes, _: &Cluster) -> Result<()> {
        if !is_request(write, "") || signer_of(&write.object) != CLIENT_SIGNER {
            return Ok(());
        }
        let request = write.object.get("spec").map(|spec| text(spec, "request")).unwrap_or_default();
        match organizations(request) {
            Some(groups) if !groups.iter().any(|group| group == MASTERS_GROUP) => Ok(()),
            Some(_) => Err(write.forbidden(format!("use of {CLIENT_SIGNER} signer with {MASTERS_GROUP} group is not allowed"))),
            None => Err(write.forbidden("failed to parse the certificate request")),
        }
    }
}

/// Organizations that a base64-encoded PEM request names.
fn organizations(encoded: &str) -> Option<Vec<String>> {
    let pem = STANDARD.decode(encoded).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let names = request.certification_request_info.subject.iter_organization();
    Some(names.filter_map(|name| name.as_str().ok()).map(str::to_owned).collect())
}

/// Who approves has to be allowed to `approve` for the request's signer; who signs, to `sign`.
pub struct SignerPermission {
    pub name: &'static str,
    pub subresource: &'static str,
    pub verb: &'static str,
    pub authorizers: Authorizers,
}

impl SignerPermission {
    /// CertificateApproval and CertificateSigning.
    pub fn both(authorizers: &Authorizers) -> [SignerPermission; 2] {
        [("CertificateApproval", "approval", "approve"), ("CertificateSigning", "status", "sign")]
            .map(|(name, subresource, verb)| SignerPermission { name, subresource, verb, authorizers: authorizers.clone() })
    }

    async fn is_allowed(&self, write: &Attributes, signer: &str, cluster: &Cluster) -> bool {
        let question = Question {
            user: write.user.clone(),
            verb: self.verb.to_owned(),
            is_resource: true,
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: "signers".to_owned(),
            name: signer.to_owned(),
            ..Question::default()
        };
        matches!(self.authorizers.authorize(&question, cluster).await, Decision::Allow(_))
    }

    /// A status that leaves certificate and conditions alone signs nothing.
    fn is_concerned(&self, write: &Attributes) -> bool {
        let Some(old) = write.old.as_deref().filter(|_| self.subresource == "status") else { return true };
        let field = |object: &Value, name: &str| object.get("status").and_then(|s| s.get(name)).cloned();
        ["certificate", "conditions"].iter().any(|name| field(old, name) != field(&write.object, name))
    }
}

#[async_trait]
impl Plugin for SignerPermission {
    fn name(&self) -> &'static str {
        self.name
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    async fn validate(&self, write: &Attributes, cluster: &Cluster) -> Result<()> {
        if !is_request(write, self.subresource) || !self.is_concerned(write) {
            return Ok(());
        }
        let signer = signer_of(write.old.as_deref().unwrap_or(&write.object));
        let domain = signer.split('/').next().unwrap_or_default();
        if self.is_allowed(write, signer, cluster).await || self.is_allowed(write, &format!("{domain}/*"), cluster).await {
            return Ok(());
        }
        Err(write.forbidden(format!("user not permitted to {} requests with signerName {signer:?}", self.verb)))
    }
}
