//! A client of a tenant's API, as its super admin.

use k8s_openapi::api::core::v1::Service;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::names::Names;
use crate::{Error, limits};

/// Builds a client from the Secret's `super-admin.svc`. The Service is reached by its address: names of Services need a cluster
/// DNS, which the management cluster may not have, so the certificate is checked against the name all the same.
pub async fn tenant_client(names: &Names, kubeconfig: &str, service: &Service, port: i32) -> Result<Client, Error> {
    let unusable = |why: String| Error::Tenant(names.tenant.clone(), why);
    let parsed: Kubeconfig = serde_saphyr::from_str(kubeconfig).map_err(|e| unusable(e.to_string()))?;
    let mut config =
        Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.map_err(|e| unusable(e.to_string()))?;
    let address = service
        .spec
        .as_ref()
        .and_then(|s| s.cluster_ip.clone())
        .filter(|ip| !ip.is_empty() && ip != "None")
        .ok_or_else(|| unusable("its Service has no cluster IP".to_owned()))?;
    config.cluster_url = format!("https://{address}:{port}").parse().map_err(|_| unusable(format!("address {address}")))?;
    config.tls_server_name = Some(names.service_host());
    config.connect_timeout = Some(limits::TENANT_TIMEOUT);
    // Between two requests a connection may rest; a watch is silent between two bookmarks, one a minute.
    config.read_timeout = Some(limits::WATCH_SILENCE_MAX);
    config.reset_reader_on_write = true;
    Client::try_from(config).map_err(|e| unusable(e.to_string()))
}

/// Whether the tenant's `/readyz` answers.
pub async fn answers(client: &Client) -> bool {
    let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else { return false };
    let call = client.request_text(request);
    matches!(tokio::time::timeout(limits::TENANT_TIMEOUT, call).await, Ok(Ok(_)))
}
