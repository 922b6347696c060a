//! The files of a control plane: made on the first start, read on the next ones.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_pki::{
    CertificateAuthority, ClusterEntry, KeyPair, Kubeconfig, LeafSpec, ServiceAccountKey, Usages, UserCredentials, limits,
    needs_renewal,
};

use crate::{ControlPlaneOptions, Error, Result};

/// Keys and certificates of a cluster.
pub struct Files {
    pub ca: Arc<CertificateAuthority>,
    pub serving: KeyPair,
    pub service_account: ServiceAccountKey,
    /// Certificate of the tunnel server.
    pub tunnel: KeyPair,
    /// Client certificate of the administrator, `system:masters`; none where somebody else makes the keys.
    pub admin: Option<KeyPair>,
    /// Client certificate of the API server towards kubelets.
    pub kubelet_client: KeyPair,
}

/// First address of a range: that of the Service `kubernetes`.
fn kubernetes_service_ip(cidr: &str) -> Option<String> {
    let network: std::net::Ipv4Addr = cidr.split('/').next()?.parse().ok()?;
    Some(std::net::Ipv4Addr::from(u32::from(network) + 1).to_string())
}

/// Names under which a server is reached from inside the cluster and from its own machine.
fn serving_names(options: &ControlPlaneOptions) -> Vec<String> {
    let mut names: Vec<String> =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"].map(str::to_owned).to_vec();
    names.push(format!("kubernetes.default.svc.{}", options.cluster_domain));
    names.push("127.0.0.1".to_owned());
    names.extend(kubernetes_service_ip(&options.service_cidr));
    names.extend(options.advertise.map(|a| a.to_string()));
    if !options.listen.ip().is_unspecified() {
        names.push(options.listen.ip().to_string());
    }
    names.extend(options.names.iter().cloned());
    names.sort();
    names.dedup();
    names
}

impl Files {
    /// Loads what is there and makes what is missing or has to be renewed.
    pub fn open(options: &ControlPlaneOptions) -> Result<Files> {
        match &options.pki {
            Some(directory) => Files::read(&Dir(directory.clone())),
            None => Files::make(options),
        }
    }

    /// Reads what an operator made, in kubeadm's layout.
    fn read(pki: &Dir) -> Result<Files> {
        let ca = pki.require_pair("ca")?;
        let serving = pki.require_pair("apiserver")?;
        let tunnel = pki.pair("konnectivity-server")?.unwrap_or_else(|| serving.clone());
        Ok(Files {
            ca: Arc::new(CertificateAuthority::from_pem(&ca.certificate_pem, &ca.key_pem)?),
            service_account: ServiceAccountKey::from_pem(&pki.require("sa.key")?)?,
            serving,
            tunnel,
            admin: None,
            kubelet_client: pki.require_pair("apiserver-kubelet-client")?,
        })
    }

    fn make(options: &ControlPlaneOptions) -> Result<Files> {
        let pki = Dir(options.dir.join("pki"));
        pki.create()?;
        let now = jiff::Timestamp::now();
        let ca = match pki.pair("ca")? {
            Some(pair) => CertificateAuthority::from_pem(&pair.certificate_pem, &pair.key_pem)?,
            None => {
                let ca = CertificateAuthority::generate("kubernetes", now)?;
                pki.write_pair("ca", &KeyPair { certificate_pem: ca.certificate_pem().to_owned(), key_pem: ca.key_pem() })?;
                ca
            }
        };
        let names = serving_names(options);
        let serving = LeafSpec {
            common_name: "kube-apiserver",
            organizations: &[],
            names: &names,
            usages: Usages::SERVER,
            ttl: limits::LEAF_TTL,
        };
        let admin = LeafSpec {
            common_name: "kubernetes-admin",
            organizations: &["system:masters"],
            names: &[],
            usages: Usages::CLIENT,
            ttl: limits::LEAF_TTL,
        };
        let kubelet_client = LeafSpec { common_name: "kube-apiserver-kubelet-client", ..admin.clone() };
        let serving = pki.leaf("apiserver", &ca, &serving, now)?;
        let kubelet_client = pki.leaf("apiserver-kubelet-client", &ca, &kubelet_client, now)?;
        let admin = pki.leaf("admin", &ca, &admin, now)?;
        let service_account = match pki.read("sa.key")? {
            Some(pem) => ServiceAccountKey::from_pem(&pem)?,
            None => {
                let key = ServiceAccountKey::generate()?;
                pki.write("sa.key", &key.private_pem())?;
                pki.write("sa.pub", &key.public_pem())?;
                key
            }
        };
        Ok(Files { ca: Arc::new(ca), tunnel: serving.clone(), serving, service_account, admin: Some(admin), kubelet_client })
    }

    /// Writes `admin.kubeconfig` for a server at `server` (`https://HOST:PORT`) and answers its path; nothing where somebody else
    /// makes the keys.
    pub fn write_admin_kubeconfig(&self, dir: &Path, server: &str) -> Result<Option<PathBuf>> {
        let Some(admin) = &self.admin else { return Ok(None) };
        let kubeconfig = Kubeconfig {
            cluster: ClusterEntry { name: "atoll", server, ca_pem: self.ca.certificate_pem(), tls_server_name: None },
            user_name: "kubernetes-admin",
            credentials: UserCredentials::Certificate { certificate_pem: &admin.certificate_pem, key_pem: &admin.key_pem },
            namespace: None,
        };
        Dir(dir.to_owned()).write("admin.kubeconfig", &kubeconfig.to_yaml())?;
        Ok(Some(dir.join("admin.kubeconfig")))
    }
}

struct Dir(PathBuf);

impl Dir {
    fn create(&self) -> Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0).map_err(|source| Error::File {
            action: "create",
            path: self.0.clone(),
            source,
        })
    }

    fn read(&self, name: &str) -> Result<Option<String>> {
        let path = self.0.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::File { action: "read", path, source }),
        }
    }

    /// Writes a file that only its owner can read, whole or not at all.
    fn write(&self, name: &str, text: &str) -> Result<()> {
        let (path, temporary) = (self.0.join(name), self.0.join(format!(".{name}.new")));
        let write = || -> std::io::Result<()> {
            let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        };
        write().map_err(|source| Error::File { action: "write", path: path.clone(), source })
    }

    fn require(&self, name: &str) -> Result<String> {
        self.read(name)?.ok_or_else(|| Error::File {
            action: "read",
            path: self.0.join(name),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }

    fn require_pair(&self, name: &str) -> Result<KeyPair> {
        Ok(KeyPair { certificate_pem: self.require(&format!("{name}.crt"))?, key_pem: self.require(&format!("{name}.key"))? })
    }

    fn pair(&self, name: &str) -> Result<Option<KeyPair>> {
        let (certificate, key) = (self.read(&format!("{name}.crt"))?, self.read(&format!("{name}.key"))?);
        Ok(certificate.zip(key).map(|(certificate_pem, key_pem)| KeyPair { certificate_pem, key_pem }))
    }

    fn write_pair(&self, name: &str, pair: &KeyPair) -> Result<()> {
        self.write(&format!("{name}.key"), &pair.key_pem)?;
        self.write(&format!("{name}.crt"), &pair.certificate_pem)
    }

    /// A leaf, issued anew when it is missing, old, of another authority or for other names.
    fn leaf(&self, name: &str, ca: &CertificateAuthority, spec: &LeafSpec<'_>, now: jiff::Timestamp) -> Result<KeyPair> {
        if let Some(pair) = self.pair(name)? {
            let info = atoll_pki::CertificateInfo::of_pem(&pair.certificate_pem)?;
            let covers = spec.names.iter().all(|n| info.names.contains(n));
            if covers && !needs_renewal(&pair.certificate_pem, now) {
                return Ok(pair);
            }
        }
        let pair = ca.issue(spec, now)?;
        self.write_pair(name, &pair)?;
        Ok(pair)
    }
}
