//! One role alone against the cluster of the current kubeconfig:
//! `cargo run -p atoll-gpu --example role webhook|scheduler|extender|device-plugin|mock-device-plugin NAME [SOCKET_DIRECTORY]`.
//! NAME is the holder of the Lease or the node; the webhook is registered for https://127.0.0.1:8443/webhook.

use std::error::Error;

use atoll_gpu::plugin::{PluginOptions, run_annotation, run_mock};
use atoll_gpu::scheduler::{ExtenderOptions, LeaseOptions, Mode, SchedulerOptions};
use atoll_gpu::webhook::{CertificateSource, SelfManaged, WebhookOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    rustls::crypto::aws_lc_rs::default_provider().install_default().map_err(|_| "TLS provider")?;
    let mut args = std::env::args().skip(1);
    let role = args.next().ok_or("which role?")?;
    let name = args.next().unwrap_or_else(|| "example".to_owned());
    let client = kube::Client::try_default().await?;
    let shutdown = async { drop(tokio::signal::ctrl_c().await) };
    let mut plugin = PluginOptions::for_node(&name);
    if let Some(directory) = args.next() {
        plugin.socket_directory = directory.into();
    }
    match role.as_str() {
        "webhook" => {
            let names = SelfManaged { further_names: vec!["127.0.0.1".to_owned()], ..SelfManaged::default() };
            let certificate = CertificateSource::SelfManaged(names);
            atoll_gpu::webhook::run(WebhookOptions { certificate, ..WebhookOptions::default() }, client, shutdown).await?;
        }
        "scheduler" | "extender" => {
            let extender = Mode::Extender(ExtenderOptions::default());
            let options = SchedulerOptions {
                lease: Some(LeaseOptions::of_identity(name)),
                mode: if role == "extender" { extender } else { Mode::StandAlone },
                card_policy: "binpack".parse()?,
                ..SchedulerOptions::default()
            };
            atoll_gpu::scheduler::run(options, client, shutdown).await?;
        }
        "device-plugin" => run_annotation(plugin, client, shutdown).await?,
        "mock-device-plugin" => run_mock(plugin, client, shutdown).await?,
        other => return Err(format!("unknown role {other}").into()),
    }
    Ok(())
}
