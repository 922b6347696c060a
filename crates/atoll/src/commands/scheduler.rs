//! `atoll scheduler`: the scheduler alone.

use super::role::{self, ClusterArgs, Error};

/// Run the scheduler against any cluster
///
/// Example: atoll scheduler --kubeconfig admin.kubeconfig --scheduler-name my-scheduler
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Pods with one of these schedulerName are placed
    #[arg(long, value_delimiter = ',', default_value = "default-scheduler")]
    scheduler_name: Vec<String>,
}

impl Args {
    pub fn run(self) -> Result<(), Error> {
        role::run(|shutdown| async move {
            let options = atoll_scheduler::SchedulerOptions {
                scheduler_names: self.scheduler_name.into_iter().collect(),
                ..atoll_scheduler::SchedulerOptions::default()
            };
            atoll_scheduler::run(options, self.cluster.client().await?, role::stopped(shutdown)).await;
            Ok(())
        })
    }
}
