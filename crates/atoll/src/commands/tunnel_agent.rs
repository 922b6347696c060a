//! `atoll tunnel-agent`: the worker's end of the tunnel.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_tunnel::agent::{self, AgentOptions};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::role::{self, Error};

/// Run the tunnel's agent: it dials out to the control plane and, on its word, to addresses on this side
///
/// The flags are those of Konnectivity's agent.
///
/// Example: atoll tunnel-agent --proxy-server-host 192.0.2.10 --ca-cert ca.crt --service-account-token-path token
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Host of the tunnel server
    #[arg(long)]
    proxy_server_host: String,
    /// Port of the tunnel server
    #[arg(long, default_value_t = 8132)]
    proxy_server_port: u16,
    /// Authority of the server's certificate
    #[arg(long)]
    ca_cert: PathBuf,
    /// File with a service-account token for the audience system:konnectivity-server
    #[arg(long)]
    service_account_token_path: Option<PathBuf>,
    /// Client certificate, where the server wants one
    #[arg(long, requires = "agent_key")]
    agent_cert: Option<PathBuf>,
    /// Key of the client certificate
    #[arg(long, requires = "agent_cert")]
    agent_key: Option<PathBuf>,
    /// Unique among the agents of a control plane [default: the host's name]
    #[arg(long, env = "NODE_NAME", default_value = "agent")]
    agent_id: String,
    /// Hosts that this agent stands for, such as ipv4=192.0.2.20
    #[arg(long, default_value = "")]
    agent_identifiers: String,
    /// Port for /healthz and /readyz; 0 for none
    #[arg(long, default_value_t = 8134)]
    health_server_port: u16,
    /// Accepted for Konnectivity's manifests; there is no admin server
    #[arg(long, hide = true)]
    admin_server_port: Option<u16>,
}

impl Args {
    pub fn run(self) -> Result<(), Error> {
        role::run(|shutdown| async move {
            let tls = Arc::new(self.tls()?);
            let options = AgentOptions {
                server_host: self.proxy_server_host,
                server_port: self.proxy_server_port,
                tls,
                token_file: self.service_account_token_path,
                agent_id: self.agent_id,
                identifiers: self.agent_identifiers,
            };
            let status = agent::AgentStatus::default();
            if self.health_server_port != 0 {
                let address = SocketAddr::from(([0, 0, 0, 0], self.health_server_port));
                let listener = tokio::net::TcpListener::bind(address)
                    .await
                    .map_err(|e| format!("cannot listen on {address} for health checks: {e}"))?;
                let status = status.clone();
                tokio::spawn(async move { super::health::serve(listener, move || status.is_connected()).await });
            }
            agent::run(options, status, shutdown).await;
            Ok(())
        })
    }

    fn tls(&self) -> Result<rustls::ClientConfig, Error> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in certificates(&self.ca_cert)? {
            roots.add(certificate).map_err(|e| format!("{}: {e}", self.ca_cert.display()))?;
        }
        let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
        let mut config = match (&self.agent_cert, &self.agent_key) {
            (Some(certificate), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(key).map_err(|e| format!("{}: {e}", key.display()))?;
                builder.with_client_auth_cert(certificates(certificate)?, key)?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    atoll_pki::certificates_of_pem(&pem).map_err(|e| format!("{}: {e}", path.display()).into())
}
