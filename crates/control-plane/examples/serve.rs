//! Runs a bare control plane: `cargo run -p atoll-control-plane --example serve -- DIR ADDRESS:PORT`.

use atoll_control_plane::{ControlPlane, ControlPlaneOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    rustls::crypto::aws_lc_rs::default_provider().install_default().map_err(|_| "a TLS provider was installed before main")?;
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(listen)) = (args.next(), args.next()) else { return Err("usage: serve DIR ADDRESS:PORT".into()) };
    let plane = ControlPlane::start(&ControlPlaneOptions::new(dir, listen.parse()?)).await?;
    println!("ready: https://{} kubeconfig {}", plane.address(), plane.kubeconfig().display());
    plane.serve(std::future::pending()).await?;
    Ok(())
}
