//! Where the webhook's certificate comes from: files, or a Secret that it keeps itself.
//!
//! The Secret holds an authority besides the leaf. All replicas read the same Secret; whichever finds it missing or due
//! writes it, under the API server's compare-and-set, and the others take what was written. The authority's certificate is
//! put into the webhook configuration, so no cert-manager is needed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use atoll_pki::{CertificateAuthority, CertificateInfo, LeafSpec, Usages, needs_renewal};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use crate::error::{Error, Result, call};
use crate::tls::CurrentCertificate;

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// PEM files that somebody else renews.
    Files {
        /// The chain.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// A Secret that the webhook makes and renews.
    SelfManaged(SelfManaged),
}

/// Names of what a self-managed certificate touches.
#[derive(Clone, Debug)]
pub struct SelfManaged {
    /// Namespace of Secret and Service.
    pub namespace: String,
    /// The Secret.
    pub secret: String,
    /// The Service by which the API server calls the webhook.
    pub service: String,
    /// MutatingWebhookConfiguration whose `caBundle`s are set.
    pub configuration: String,
    /// Further names or addresses that the certificate holds, for a webhook that is registered by URL.
    pub further_names: Vec<String>,
}

impl Default for SelfManaged {
    fn default() -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            secret: "hami-scheduler-tls".to_owned(),
            service: "hami-scheduler".to_owned(),
            configuration: "hami-webhook".to_owned(),
            further_names: Vec::new(),
        }
    }
}

impl SelfManaged {
    /// Names that the certificate must hold.
    fn names(&self) -> Vec<String> {
        let Self { service, namespace, .. } = self;
        let names = ["", ".svc", ".svc.cluster.local"].map(|suffix| format!("{service}.{namespace}{suffix}"));
        names.into_iter().chain(self.further_names.iter().cloned()).collect()
    }
}

/// Brings `current` up to date with the source; says whether that changed it.
pub async fn refresh(source: &CertificateSource, client: &kube::Client, current: &CurrentCertificate) -> Result<bool> {
    match source {
        CertificateSource::Files { certificate, key } => {
            let read = |path: &PathBuf| {
                let path = path.clone();
                async move { tokio::fs::read(&path).await.map_err(Error::io(path.display().to_string())) }
            };
            current.set(&read(certificate).await?, &read(key).await?)
        }
        CertificateSource::SelfManaged(names) => {
            let material = secret(names, client).await?;
            let changed = current.set(material.certificate.as_bytes(), material.key.as_bytes())?;
            trust(names, client, &material.authority).await?;
            Ok(changed)
        }
    }
}

struct Material {
    authority: String,
    certificate: String,
    key: String,
}

/// The Secret's content, made or renewed if need be.
async fn secret(names: &SelfManaged, client: &kube::Client) -> Result<Material> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &names.namespace);
    let found = call(api.get_opt(&names.secret)).await?;
    let now = Timestamp::now();
    if let Some(material) = found.as_ref().and_then(|secret| usable(secret, names, now)) {
        return Ok(material);
    }
    let (material, authority_key) = issue(names, found.as_ref(), now)?;
    let data = [
        ("ca.crt", &material.authority),
        ("ca.key", &authority_key),
        ("tls.crt", &material.certificate),
        ("tls.key", &material.key),
    ];
    let data: BTreeMap<String, ByteString> =
        data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value.clone().into_bytes()))).collect();
    let mut secret = found.clone().unwrap_or_else(|| Secret {
        metadata: ObjectMeta { name: Some(names.secret.clone()), ..ObjectMeta::default() },
        type_: Some("kubernetes.io/tls".to_owned()),
        ..Secret::default()
    });
    secret.data = Some(data);
    let params = PostParams::default();
    let written = match found {
        // The object read carries its resourceVersion, so of two replicas one gets a conflict and reads anew.
        Some(_) => call(api.replace(&names.secret, &params, &secret)).await,
        None => call(api.create(&params, &secret)).await,
    };
    written?;
    tracing::info!(secret = names.secret, "certificate issued");
    Ok(material)
}

fn field(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.0.clone()).ok()
}

fn usable(secret: &Secret, names: &SelfManaged, now: Timestamp) -> Option<Material> {
    let authority = field(secret, "ca.crt")?;
    let (certificate, key) = (field(secret, "tls.crt")?, field(secret, "tls.key")?);
    let info = CertificateInfo::of_pem(&certificate).ok()?;
    let complete = names.names().iter().all(|name| info.names.contains(name));
    (complete && !needs_renewal(&certificate, now)).then_some(Material { authority, certificate, key })
}

/// A new leaf, from the authority in the Secret as long as that one serves.
fn issue(names: &SelfManaged, found: Option<&Secret>, now: Timestamp) -> Result<(Material, String)> {
    let kept = found.and_then(|secret| Some((field(secret, "ca.crt")?, field(secret, "ca.key")?)));
    let kept = kept.filter(|(certificate, _)| !needs_renewal(certificate, now));
    let authority = match kept.and_then(|(certificate, key)| CertificateAuthority::from_pem(&certificate, &key).ok()) {
        Some(authority) => authority,
        None => CertificateAuthority::generate("hami-webhook-ca", now)?,
    };
    let common_name = format!("{}.{}.svc", names.service, names.namespace);
    let leaf = LeafSpec {
        common_name: &common_name,
        organizations: &[],
        names: &names.names(),
        usages: Usages::SERVER,
        ttl: atoll_pki::limits::LEAF_TTL,
    };
    let pair = authority.issue(&leaf, now)?;
    let material =
        Material { authority: authority.certificate_pem().to_owned(), certificate: pair.certificate_pem, key: pair.key_pem };
    Ok((material, authority.key_pem()))
}

/// Puts the authority into the webhook configuration where it is missing.
async fn trust(names: &SelfManaged, client: &kube::Client, authority: &str) -> Result<()> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let Some(mut configuration) = call(api.get_opt(&names.configuration)).await? else {
        return Err(Error::Option(format!("MutatingWebhookConfiguration {} does not exist yet", names.configuration)));
    };
    let wanted = ByteString(authority.as_bytes().to_vec());
    let mut changed = false;
    for webhook in configuration.webhooks.iter_mut().flatten() {
        if webhook.client_config.ca_bundle.as_ref() != Some(&wanted) {
            webhook.client_config.ca_bundle = Some(wanted.clone());
            changed = true;
        }
    }
    if changed {
        call(api.replace(&names.configuration, &PostParams::default(), &configuration)).await?;
        tracing::info!(configuration = names.configuration, "authority written into the webhook configuration");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_790_000_000).unwrap()
    }

    fn as_secret(material: &Material, authority_key: &str) -> Secret {
        let data = [
            ("ca.crt", material.authority.as_str()),
            ("ca.key", authority_key),
            ("tls.crt", &material.certificate),
            ("tls.key", &material.key),
        ];
        let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec()))).into();
        Secret { data: Some(data), ..Secret::default() }
    }

    #[test]
    fn a_leaf_is_kept_until_it_is_due_and_renewed_from_the_same_authority() {
        let names = SelfManaged::default();
        let (first, key) = issue(&names, None, now()).unwrap();
        let secret = as_secret(&first, &key);
        assert!(usable(&secret, &names, now()).is_some());
        let late = now() + jiff::SignedDuration::from_hours(24 * 300);
        assert!(usable(&secret, &names, late).is_none());
        let (second, _) = issue(&names, Some(&secret), late).unwrap();
        assert_eq!(second.authority, first.authority);
        assert_ne!(second.certificate, first.certificate);
    }

    #[test]
    fn a_secret_for_other_names_or_with_parts_missing_is_not_used() {
        let names = SelfManaged::default();
        let (material, key) = issue(&names, None, now()).unwrap();
        let other = SelfManaged { service: "other".to_owned(), ..SelfManaged::default() };
        assert!(usable(&as_secret(&material, &key), &other, now()).is_none());
        let mut broken = as_secret(&material, &key);
        broken.data.as_mut().unwrap().remove("tls.key");
        assert!(usable(&broken, &names, now()).is_none());
    }

    #[test]
    fn a_new_certificate_replaces_the_served_one_and_a_wrong_key_does_not() {
        let (first, _) = issue(&SelfManaged::default(), None, now()).unwrap();
        let (second, _) = issue(&SelfManaged::default(), None, now()).unwrap();
        let current = CurrentCertificate::default();
        assert!(current.set(first.certificate.as_bytes(), first.key.as_bytes()).unwrap());
        assert!(!current.set(first.certificate.as_bytes(), first.key.as_bytes()).unwrap());
        assert!(current.set(second.certificate.as_bytes(), first.key.as_bytes()).is_err());
        assert!(current.set(second.certificate.as_bytes(), second.key.as_bytes()).unwrap());
    }
}
