//! From a kubeconfig, or a bootstrap token, to a client of the API.

use std::path::Path;

use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::csr;
use crate::error::{Error, Result};
use crate::limits;
use crate::options::Credentials;
use crate::paths::{NodePaths, write_atomic};

/// A client and what it was made from.
#[derive(Clone)]
pub struct Access {
    pub client: Client,
    /// Host and port of the API.
    pub host: String,
    pub port: u16,
    /// PEM of the API's authority.
    pub ca_pem: String,
    /// Name that the API's certificate is for, where it is not the host.
    pub tls_server_name: Option<String>,
    /// The agent's own client certificate, if it is the agent's to renew.
    pub renewable: Option<String>,
}

/// Connects by what the options name. With a bootstrap token, the first time asks for a certificate and keeps it.
pub async fn connect(credentials: &Credentials, node: &str, paths: &NodePaths) -> Result<Access> {
    match credentials {
        Credentials::Kubeconfig(path) => access(path).await,
        Credentials::Bootstrap(path) => {
            let own = paths.kubelet().join("kubeconfig");
            if own.exists() {
                let mut access = access(&own).await?;
                access.renewable = client_certificate(&own)?;
                let expired = access.renewable.as_deref().is_none_or(is_expired);
                if !expired {
                    return Ok(access);
                }
            }
            let bootstrap = access(path).await?;
            renew(&bootstrap, node, paths).await?;
            let mut access = access(&own).await?;
            access.renewable = client_certificate(&own)?;
            Ok(access)
        }
    }
}

fn is_expired(certificate_pem: &str) -> bool {
    atoll_pki::CertificateInfo::of_pem(certificate_pem).map_or(true, |info| info.not_after <= Timestamp::now())
}

/// Asks for a new client certificate and writes the kubeconfig that holds it.
pub async fn renew(access: &Access, node: &str, paths: &NodePaths) -> Result<()> {
    let issued = csr::request(&access.client, node, csr::CLIENT_SIGNER, &[]).await?;
    let server = format!("https://{}:{}", access.host, access.port);
    let user = format!("system:node:{node}");
    let kubeconfig = atoll_pki::Kubeconfig {
        cluster: atoll_pki::ClusterEntry {
            name: "default",
            server: &server,
            ca_pem: &access.ca_pem,
            tls_server_name: access.tls_server_name.as_deref(),
        },
        user_name: &user,
        credentials: atoll_pki::UserCredentials::Certificate {
            certificate_pem: &issued.certificate_pem,
            key_pem: &issued.key_pem,
        },
        namespace: None,
    };
    write_atomic(&paths.kubelet().join("kubeconfig"), kubeconfig.to_yaml().as_bytes(), 0o600)
}

/// Returns when the agent's own certificate is due for renewal and a new one is written.
pub async fn keep_fresh(access: &Access, node: &str, paths: &NodePaths) {
    let Some(certificate) = &access.renewable else { return std::future::pending().await };
    loop {
        tokio::time::sleep(limits::VOLUME_REFRESH).await;
        if !atoll_pki::needs_renewal(certificate, Timestamp::now()) {
            continue;
        }
        match renew(access, node, paths).await {
            Ok(()) => return,
            Err(e) => tracing::warn!("client certificate not renewed: {e}"),
        }
    }
}

async fn access(path: &Path) -> Result<Access> {
    let failed = |why: String| Error::Kubeconfig { path: path.to_owned(), why };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|e| failed(e.to_string()))?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| failed(e.to_string()))?;
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = config.cluster_url.port_u16().unwrap_or(443);
    let ca_pem: String = config.root_cert.iter().flatten().map(|der| pem(der)).collect();
    let tls_server_name = config.tls_server_name.clone();
    let client = Client::try_from(config).map_err(|e| failed(e.to_string()))?;
    Ok(Access { client, host, port, ca_pem, tls_server_name, renewable: None })
}

fn pem(der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|c| std::str::from_utf8(c).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// PEM of the client certificate in a kubeconfig.
fn client_certificate(path: &Path) -> Result<Option<String>> {
    use base64::Engine;
    let failed = |why: String| Error::Kubeconfig { path: path.to_owned(), why };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|e| failed(e.to_string()))?;
    let data = kubeconfig.auth_infos.iter().find_map(|a| a.auth_info.as_ref()?.client_certificate_data.clone());
    let Some(data) = data else { return Ok(None) };
    let bytes = base64::engine::general_purpose::STANDARD.decode(data).map_err(|e| failed(e.to_string()))?;
    String::from_utf8(bytes).map(Some).map_err(|e| failed(e.to_string()))
}
