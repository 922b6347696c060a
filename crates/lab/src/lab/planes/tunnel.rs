//! A worker's tunnel credential is good at its own tenant's tunnel alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_pki::certificates_of_pem;
use atoll_tunnel::agent::{self, AgentError, AgentOptions};

use crate::lab::netns::{self, TUNNEL_PORT};
use crate::lab::{Lab, Tenant, processes};

/// What a tunnel agent has in its Pod.
const TOKEN: &str = "var/run/secrets/tokens/konnectivity-agent-token";
const CA: &str = "var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// Each worker's own token is shown to both tunnels, from a network that reaches the tunnel and with the CA that it trusts.
pub async fn run(lab: &Lab) -> Result<(), String> {
    for holder in [&lab.a, &lab.b] {
        for there in [&lab.a, &lab.b] {
            let what = format!("the tunnel credential of {}'s worker at {}", holder.name, there.name);
            let taken = check(lab, holder, there).await.map_err(|e| format!("{what}: {e}"))?;
            match taken {
                Err(error) if holder.name != there.name && error.is_unauthenticated() => {}
                Ok(_) if holder.name == there.name => {}
                Ok(_) => return Err(format!("{what} is taken")),
                Err(error) => return Err(format!("{what}: {error}")),
            }
        }
    }
    Ok(())
}

/// The root directory of the tunnel agent on a tenant's worker.
fn agent_root(lab: &Lab, tenant: &Tenant) -> Result<PathBuf, String> {
    let own = processes::of_worker(lab, tenant)?;
    let agent = own.iter().find(|p| p.runs(&["tunnel-agent"])).ok_or("no tunnel agent runs")?;
    Ok(Path::new("/proc").join(agent.pid.to_string()).join("root"))
}

async fn check(lab: &Lab, holder: &Tenant, there: &Tenant) -> Result<Result<String, AgentError>, String> {
    let ca = agent_root(lab, there)?.join(CA);
    let pem = std::fs::read_to_string(&ca).map_err(|e| format!("read {}: {e}", ca.display()))?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates_of_pem(&pem).map_err(|e| e.to_string())? {
        roots.add(certificate).map_err(|e| e.to_string())?;
    }
    let mut tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let options = AgentOptions {
        server_host: there.address.to_string(),
        server_port: TUNNEL_PORT,
        tls: Arc::new(tls),
        token_file: Some(agent_root(lab, holder)?.join(TOKEN)),
        agent_id: "lab".to_owned(),
        identifiers: String::new(),
    };
    netns::within(&netns::worker(lab, there)?, async move { agent::check(&options).await }).await
}
