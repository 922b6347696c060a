//! The scheduler alone against the cluster of the current kubeconfig: `cargo run -p atoll-scheduler --example schedule [NAME]`.

use atoll_scheduler::{SchedulerOptions, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = SchedulerOptions::default();
    if let Some(name) = std::env::args().nth(1) {
        options.scheduler_names = [name].into();
    }
    let client = kube::Client::try_default().await?;
    run(options, client, std::future::pending()).await;
    Ok(())
}
