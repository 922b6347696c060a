//! What all roles share: a client of some cluster, a runtime, and the signals that end it.

use std::path::PathBuf;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The error of a command; its text is the one line that the user sees.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The cluster that a role speaks to.
#[derive(clap::Args, Debug, Clone)]
pub struct ClusterArgs {
    /// Kubeconfig of the cluster [default: the Pod's service account, else $KUBECONFIG or ~/.kube/config]
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
}

impl ClusterArgs {
    pub async fn config(&self) -> Result<kube::Config, Error> {
        let Some(path) = &self.kubeconfig else {
            return kube::Config::infer().await.map_err(|e| format!("no cluster to speak to: {e}; give --kubeconfig").into());
        };
        let file = kube::config::Kubeconfig::read_from(path)
            .map_err(|e| format!("cannot use the kubeconfig {}: {e}", path.display()))?;
        kube::Config::from_custom_kubeconfig(file, &Default::default())
            .await
            .map_err(|e| format!("cannot use the kubeconfig {}: {e}", path.display()).into())
    }

    pub async fn client(&self) -> Result<kube::Client, Error> {
        let config = self.config().await?;
        kube::Client::try_from(config).map_err(|e| format!("cannot make a client: {e}").into())
    }
}

/// Runs a role on a small runtime. The receiver turns true at SIGINT or SIGTERM.
pub fn run<F, Fut>(role: F) -> Result<(), Error>
where
    F: FnOnce(watch::Receiver<bool>) -> Fut,
    Fut: Future<Output = Result<(), Error>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            let _ = stop.send(true);
        });
        role(stopped).await
    })
}

/// Resolves when the role is to end.
pub async fn stopped(mut shutdown: watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|stop| *stop).await;
}
