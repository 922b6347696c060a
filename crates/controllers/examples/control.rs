//! The controllers alone against the cluster of the current kubeconfig, each under its own name by impersonation:
//! `cargo run -p atoll-controllers --example control [--ca ca.crt ca.key] [CONTROLLER]...`

use atoll_controllers::{ClientFor, ControllersOptions, run};
use std::sync::Arc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let mut options = ControllersOptions::default();
    if names.first().is_some_and(|first| first == "--ca") {
        let (certificate, key) = (std::fs::read_to_string(&names[1])?, std::fs::read_to_string(&names[2])?);
        options.signing_ca = Some(Arc::new(atoll_pki::CertificateAuthority::from_pem(&certificate, &key)?));
        options.root_ca_pem = Some(certificate);
        names.drain(..3);
    }
    options.controllers = names;
    let config = kube::Config::infer().await?;
    let clients: ClientFor = Arc::new(move |user| {
        let mut config = config.clone();
        config.auth_info.impersonate = Some(user.to_owned());
        kube::Client::try_from(config).expect("the client was made from the same configuration before")
    });
    run(options, clients, std::future::pending()).await;
    Ok(())
}
