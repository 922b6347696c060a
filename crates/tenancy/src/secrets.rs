//! The Secrets of a tenant: which are missing or to be renewed, and their content.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_pki::{
    CertificateAuthority, CertificateInfo, ClusterEntry, Kubeconfig, LeafSpec, ServiceAccountKey, Usages, UserCredentials,
    needs_renewal,
};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest, Sha256};

use crate::Error;
use crate::names::{self, Names};

/// What a tenant's certificates must say.
#[derive(Clone, Debug)]
pub struct Facts {
    pub names: Names,
    pub owner: OwnerReference,
    /// Host and port under which users and workers reach the API.
    pub endpoint_host: String,
    pub endpoint_port: i32,
    /// All names and addresses of the API server's certificate.
    pub sans: Vec<String>,
}

/// The existing Secrets by name.
pub type Existing = BTreeMap<String, Secret>;

/// Lifetime of leaves made here.
const LEAF_TTL: Duration = atoll_pki::limits::LEAF_TTL;

fn text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.0.clone()).ok()
}

/// Reads a key of an existing Secret.
pub fn require(existing: &Existing, name: &str, key: &'static str) -> Result<String, Error> {
    existing.get(name).and_then(|s| text(s, key)).ok_or_else(|| Error::SecretKey(name.to_owned(), key))
}

/// Names and addresses that the API server's certificate must hold.
pub fn api_server_sans(
    names: &Names,
    cluster_domain: &str,
    first_service_ip: &str,
    addresses: &[String],
    extra: &[String],
) -> Vec<String> {
    let mut sans: Vec<String> = [
        "kubernetes".to_owned(),
        "kubernetes.default".to_owned(),
        "kubernetes.default.svc".to_owned(),
        format!("kubernetes.default.svc.{cluster_domain}"),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        first_service_ip.to_owned(),
        names.tenant.clone(),
        names.service_host(),
        format!("{}.cluster.local", names.service_host()),
    ]
    .into();
    sans.extend(addresses.iter().chain(extra).cloned());
    let mut seen = std::collections::BTreeSet::new();
    sans.retain(|s| !s.is_empty() && seen.insert(s.clone()));
    sans
}

/// The Secrets to write so that the tenant has everything it needs. What exists and is good is kept as it is.
pub fn plan(facts: &Facts, existing: &Existing, now: Timestamp) -> Result<Vec<Secret>, Error> {
    let mut plan = Plan { facts, existing, now, writes: Vec::new() };
    let names = &facts.names;
    let ca = plan.authority(&names.ca(), "kubernetes", "ca")?;
    let front_proxy_ca = plan.authority(&names.front_proxy_ca(), "front-proxy-ca", "front-proxy-ca")?;
    plan.service_account()?;
    let server = Leaf { common_name: "kube-apiserver", organizations: &[], names: facts.sans.clone(), usages: Usages::SERVER };
    plan.leaf(&ca, &names.api_server(), "apiserver", &server)?;
    let tunnel = Leaf { common_name: "konnectivity-server", ..server.clone() };
    plan.leaf(&ca, &names.konnectivity(), "konnectivity-server", &tunnel)?;
    let kubelet_client = Leaf::client("kube-apiserver-kubelet-client", &[]);
    plan.leaf(&ca, &names.kubelet_client(), "apiserver-kubelet-client", &kubelet_client)?;
    let front_proxy = Leaf::client("front-proxy-client", &[]);
    plan.leaf(&front_proxy_ca, &names.front_proxy_client(), "front-proxy-client", &front_proxy)?;

    let admin = Leaf::client("kubernetes-admin", &["kubeadm:cluster-admins"]);
    let super_admin = Leaf::client("kubernetes-super-admin", &["system:masters"]);
    plan.kubeconfigs(&ca, &names.admin_kubeconfig(), &[("admin", admin), ("super-admin", super_admin)])?;
    let manager = Leaf::client("system:kube-controller-manager", &[]);
    plan.kubeconfigs(&ca, &names.controller_manager_kubeconfig(), &[("controller-manager", manager)])?;
    let scheduler = Leaf::client("system:kube-scheduler", &[]);
    plan.kubeconfigs(&ca, &names.scheduler_kubeconfig(), &[("scheduler", scheduler)])?;
    Ok(plan.writes)
}

#[derive(Clone)]
struct Leaf {
    common_name: &'static str,
    organizations: &'static [&'static str],
    names: Vec<String>,
    usages: Usages,
}

impl Leaf {
    fn client(common_name: &'static str, organizations: &'static [&'static str]) -> Leaf {
        Leaf { common_name, organizations, names: Vec::new(), usages: Usages::CLIENT }
    }

    fn issue(&self, ca: &CertificateAuthority, now: Timestamp) -> Result<atoll_pki::KeyPair, Error> {
        let spec = LeafSpec {
            common_name: self.common_name,
            organizations: self.organizations,
            names: &self.names,
            usages: self.usages,
            ttl: LEAF_TTL,
        };
        Ok(ca.issue(&spec, now)?)
    }
}

struct Plan<'a> {
    facts: &'a Facts,
    existing: &'a Existing,
    now: Timestamp,
    writes: Vec<Secret>,
}

impl Plan<'_> {
    fn existing_text(&self, name: &str, key: &str) -> Option<String> {
        self.existing.get(name).and_then(|s| text(s, key))
    }

    /// A Secret whose rotation the user asked for (`certs.kamaji.clastix.io/rotate` with an empty value).
    fn rotation_asked(&self, name: &str) -> bool {
        let annotations = self.existing.get(name).and_then(|s| s.metadata.annotations.as_ref());
        annotations.and_then(|a| a.get(names::ROTATE)).is_some_and(String::is_empty)
    }

    fn write(&mut self, name: &str, component: &str, data: Vec<(String, String)>) {
        let mut annotations = BTreeMap::from([(names::CHECKSUM.to_owned(), checksum(&data))]);
        if self.rotation_asked(name) {
            annotations.insert(names::ROTATE.to_owned(), self.now.to_string());
        }
        let lifecycle = if component.contains("kubeconfig") { "kubeconfig" } else { "x509" };
        self.writes.push(Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(self.facts.names.namespace.clone()),
                labels: Some(BTreeMap::from([
                    (names::LABEL_PROJECT.to_owned(), "kamaji".to_owned()),
                    (names::LABEL_NAME.to_owned(), self.facts.names.tenant.clone()),
                    (names::LABEL_COMPONENT.to_owned(), component.to_owned()),
                    ("kamaji.clastix.io/certificate_lifecycle_controller".to_owned(), lifecycle.to_owned()),
                ])),
                annotations: Some(annotations),
                owner_references: Some(vec![self.facts.owner.clone()]),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            data: Some(data.into_iter().map(|(k, v)| (k, ByteString(v.into_bytes()))).collect()),
            ..Secret::default()
        });
    }

    /// An authority is made once: replacing it would cut off every worker.
    fn authority(&mut self, name: &str, common_name: &str, stem: &str) -> Result<CertificateAuthority, Error> {
        let (crt, key) = (format!("{stem}.crt"), format!("{stem}.key"));
        if let (Some(certificate), Some(private)) = (self.existing_text(name, &crt), self.existing_text(name, &key)) {
            return Ok(CertificateAuthority::from_pem(&certificate, &private)?);
        }
        let ca = CertificateAuthority::generate(common_name, self.now)?;
        let mut data = vec![(crt, ca.certificate_pem().to_owned()), (key, ca.key_pem())];
        if stem == "ca" {
            // The same pair under the keys that Cluster API reads.
            data.push(("tls.crt".to_owned(), ca.certificate_pem().to_owned()));
            data.push(("tls.key".to_owned(), ca.key_pem()));
        }
        self.write(name, stem, data);
        Ok(ca)
    }

    fn service_account(&mut self) -> Result<(), Error> {
        let name = self.facts.names.service_account();
        if self.existing_text(&name, "sa.key").is_some() && self.existing_text(&name, "sa.pub").is_some() {
            return Ok(());
        }
        let key = ServiceAccountKey::generate()?;
        let data = vec![("sa.key".to_owned(), key.private_pem()), ("sa.pub".to_owned(), key.public_pem())];
        self.write(&name, "sa", data);
        Ok(())
    }

    fn leaf(&mut self, ca: &CertificateAuthority, name: &str, stem: &str, leaf: &Leaf) -> Result<(), Error> {
        let (crt, key) = (format!("{stem}.crt"), format!("{stem}.key"));
        let good = self.existing_text(name, &crt).is_some_and(|pem| self.is_good(ca, &pem, &leaf.names));
        if good && self.existing_text(name, &key).is_some() && !self.rotation_asked(name) {
            return Ok(());
        }
        let pair = leaf.issue(ca, self.now)?;
        self.write(name, stem, vec![(crt, pair.certificate_pem), (key, pair.key_pem)]);
        Ok(())
    }

    /// Signed by this authority, not near its end and holding every name.
    fn is_good(&self, ca: &CertificateAuthority, pem: &str, names: &[String]) -> bool {
        let Ok(info) = CertificateInfo::of_pem(pem) else { return false };
        let signed = atoll_pki::is_signed_by(pem, ca.certificate_pem());
        signed && !needs_renewal(pem, self.now) && names.iter().all(|n| info.names.contains(n))
    }

    /// One Secret with `STEM.conf` (endpoint for users) and, for admins, `STEM.svc` (inside the management cluster).
    fn kubeconfigs(&mut self, ca: &CertificateAuthority, name: &str, users: &[(&str, Leaf)]) -> Result<(), Error> {
        let endpoint = format!("https://{}:{}", self.facts.endpoint_host, self.facts.endpoint_port);
        let current = users.iter().all(|(stem, _)| {
            self.existing_text(name, &format!("{stem}.conf"))
                .is_some_and(|text| text.contains(&format!("\"{endpoint}\"")) && !self.kubeconfig_is_old(ca, &text))
        });
        if current && !self.rotation_asked(name) {
            return Ok(());
        }
        let inside = format!("https://{}:{}", self.facts.names.service_host(), self.facts.endpoint_port);
        let mut data = Vec::new();
        for (stem, leaf) in users {
            let pair = leaf.issue(ca, self.now)?;
            for (suffix, server) in [("conf", &endpoint), ("svc", &inside)] {
                let config = Kubeconfig {
                    cluster: ClusterEntry {
                        name: &self.facts.names.tenant,
                        server,
                        ca_pem: ca.certificate_pem(),
                        tls_server_name: None,
                    },
                    user_name: leaf.common_name,
                    credentials: UserCredentials::Certificate { certificate_pem: &pair.certificate_pem, key_pem: &pair.key_pem },
                    namespace: None,
                };
                data.push((format!("{stem}.{suffix}"), config.to_yaml()));
            }
        }
        self.write(name, "kubeconfig", data);
        Ok(())
    }

    fn kubeconfig_is_old(&self, ca: &CertificateAuthority, text: &str) -> bool {
        let Ok(config) = serde_saphyr::from_str::<kube::config::Kubeconfig>(text) else { return true };
        let certificate = config
            .auth_infos
            .first()
            .and_then(|a| a.auth_info.as_ref())
            .and_then(|a| a.client_certificate_data.as_ref())
            .and_then(|b64| base64::Engine::decode(&base64::engine::general_purpose::STANDARD, b64).ok())
            .and_then(|bytes| String::from_utf8(bytes).ok());
        certificate.is_none_or(|pem| !self.is_good(ca, &pem, &[]))
    }
}

/// A checksum of the content, in hex.
pub fn checksum(data: &[(String, String)]) -> String {
    let mut hash = Sha256::new();
    for (key, value) in data {
        hash.update(key.as_bytes());
        hash.update([0]);
        hash.update(value.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(16).map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(host: &str) -> Facts {
        let names = Names::new("default", "tenant-a");
        let sans = api_server_sans(&names, "cluster.local", "10.96.0.1", &[host.to_owned()], &[]);
        Facts { names, owner: OwnerReference::default(), endpoint_host: host.to_owned(), endpoint_port: 6443, sans }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_790_000_000).expect("time")
    }

    /// Plans and writes; answers the names of what was written.
    fn settle(existing: &mut Existing, host: &str) -> Vec<String> {
        let writes = plan(&facts(host), existing, now()).expect("plan");
        let names = writes.iter().filter_map(|s| s.metadata.name.clone()).collect();
        existing.extend(writes.into_iter().filter_map(|s| Some((s.metadata.name.clone()?, s))));
        names
    }

    #[test]
    fn everything_is_made_once_and_then_kept() {
        let mut existing = Existing::new();
        let made = settle(&mut existing, "192.0.2.1");
        let mut expected = facts("192.0.2.1").names.secrets();
        expected.sort();
        let mut sorted = made;
        sorted.sort();
        assert_eq!(sorted, expected);
        assert!(plan(&facts("192.0.2.1"), &existing, now()).expect("plan").is_empty(), "a second look changes nothing");
        let conf = require(&existing, "tenant-a-admin-kubeconfig", "admin.conf").expect("admin.conf");
        assert!(conf.contains("\"https://192.0.2.1:6443\""), "{conf}");
        for key in ["admin.svc", "super-admin.conf", "super-admin.svc"] {
            require(&existing, "tenant-a-admin-kubeconfig", key).expect(key);
        }
    }

    #[test]
    fn a_new_address_renews_what_names_it_and_keeps_the_authorities() {
        let mut existing = Existing::new();
        let _ = settle(&mut existing, "192.0.2.1");
        let ca = require(&existing, "tenant-a-ca", "ca.crt").expect("ca");
        let mut renewed = settle(&mut existing, "192.0.2.2");
        renewed.sort();
        let expected = [
            "tenant-a-admin-kubeconfig",
            "tenant-a-api-server-certificate",
            "tenant-a-controller-manager-kubeconfig",
            "tenant-a-konnectivity-certificate",
            "tenant-a-scheduler-kubeconfig",
        ];
        assert_eq!(renewed, expected);
        assert_eq!(require(&existing, "tenant-a-ca", "ca.crt").expect("ca"), ca);
    }

    #[test]
    fn leaves_are_renewed_before_they_end_and_when_asked() {
        let mut existing = Existing::new();
        let _ = settle(&mut existing, "192.0.2.1");
        let late = Timestamp::from_second(now().as_second() + 330 * 24 * 3600).expect("time");
        let renewed = plan(&facts("192.0.2.1"), &existing, late).expect("plan");
        assert_eq!(renewed.len(), 7, "all leaves and kubeconfigs, no authority");
        let secret = existing.get_mut("tenant-a-front-proxy-client-certificate").expect("secret");
        secret.metadata.annotations.get_or_insert_default().insert(names::ROTATE.to_owned(), String::new());
        let rotated = settle(&mut existing, "192.0.2.1");
        assert_eq!(rotated, ["tenant-a-front-proxy-client-certificate"]);
        assert!(plan(&facts("192.0.2.1"), &existing, now()).expect("plan").is_empty(), "asked once, done once");
    }
}
