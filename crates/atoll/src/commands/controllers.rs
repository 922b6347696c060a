//! `atoll controllers`: the control loops alone.

use std::path::PathBuf;
use std::sync::Arc;

use atoll_controllers::{ClientFor, ControllersOptions};

use super::role::{self, ClusterArgs, Error};

/// Run the controllers against any cluster
///
/// Each acts under its own name by impersonation, so the kubeconfig's user must be allowed to impersonate.
///
/// Example: atoll controllers --kubeconfig admin.kubeconfig --controllers '*,-job' --ca-cert ca.crt --ca-key ca.key
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Controllers to run: names, * for all that are on by default, -NAME to leave one out
    #[arg(long, value_delimiter = ',', default_value = "*")]
    controllers: Vec<String>,
    /// Certificate of the cluster's CA: published to namespaces, signs certificate requests
    #[arg(long, requires = "ca_key")]
    ca_cert: Option<PathBuf>,
    /// Key of the cluster's CA
    #[arg(long, requires = "ca_cert")]
    ca_key: Option<PathBuf>,
}

impl Args {
    pub fn run(self) -> Result<(), Error> {
        role::run(|shutdown| async move {
            let mut options = ControllersOptions { controllers: self.controllers, ..ControllersOptions::default() };
            if let (Some(certificate), Some(key)) = (&self.ca_cert, &self.ca_key) {
                let read =
                    |path: &PathBuf| std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()));
                let (certificate, key) = (read(certificate)?, read(key)?);
                options.signing_ca = Some(Arc::new(atoll_pki::CertificateAuthority::from_pem(&certificate, &key)?));
                options.root_ca_pem = Some(certificate);
            }
            let config = self.cluster.config().await?;
            kube::Client::try_from(config.clone()).map_err(|e| format!("cannot make a client: {e}"))?;
            let clients: ClientFor = Arc::new(move |user| {
                let mut config = config.clone();
                config.auth_info.impersonate = Some(user.to_owned());
                kube::Client::try_from(config).expect("the same configuration gave a client before")
            });
            atoll_controllers::run(options, clients, role::stopped(shutdown)).await;
            Ok(())
        })
    }
}
