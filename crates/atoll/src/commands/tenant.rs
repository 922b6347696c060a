//! `atoll tenant …` and `atoll worker …`.

use std::time::Duration;

use atoll_devices::cards::CardSpec;
use atoll_lab::platform::{self, cluster, tenants};
use clap::Subcommand;

use super::platform::{DirArgs, tenant_table};
use super::role::{self, Error};

/// Create, list and delete tenants of the platform on this machine
///
/// Example: sudo atoll tenant create team-a --cards 4xT4-16GB
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct TenantArgs {
    #[command(flatten)]
    dir: DirArgs,
    #[command(subcommand)]
    action: TenantAction,
}

#[derive(Subcommand, Debug)]
enum TenantAction {
    /// Control plane, worker and GPU parts in one go
    ///
    /// Example: sudo atoll tenant create team-a --cards 4xT4-16GB
    #[command(verbatim_doc_comment)]
    Create {
        /// Name of the tenant, of its control plane and of its kubeconfig
        name: String,
        /// Simulated cards of its worker, such as 4xT4-16GB
        #[arg(long, value_parser = parse_cards)]
        cards: Option<String>,
        /// Containers of images other than Atoll's count as running without a process
        #[arg(long)]
        simulate: bool,
        /// The control plane alone, without a worker
        #[arg(long, conflicts_with_all = ["cards", "simulate"])]
        without_worker: bool,
    },
    /// The tenants there are
    ///
    /// Example: sudo atoll tenant list
    #[command(verbatim_doc_comment)]
    List,
    /// Print a kubeconfig: the administrator's, or one of a user
    ///
    /// Example: sudo atoll tenant kubeconfig team-a --user ann --group ml --ttl 8h > ann.kubeconfig
    #[command(verbatim_doc_comment)]
    Kubeconfig {
        /// Name of the tenant
        name: String,
        /// User that it names; RBAC says what the user may
        #[arg(long)]
        user: Option<String>,
        /// Group of the user
        #[arg(long, requires = "user")]
        group: Option<String>,
        /// Namespace of its context
        #[arg(long)]
        namespace: Option<String>,
        /// How long it is valid, such as 8h or 30m
        #[arg(long, value_parser = parse_ttl, default_value = "8h")]
        ttl: Duration,
    },
    /// Delete a tenant with its worker, address, Secrets and data
    ///
    /// Example: sudo atoll tenant delete team-a
    #[command(verbatim_doc_comment)]
    Delete {
        /// Name of the tenant
        name: String,
    },
}

/// Checks the form before anything is made; what is kept is the text.
fn parse_cards(text: &str) -> Result<String, String> {
    text.parse::<CardSpec>().map(|_| text.to_owned()).map_err(|e| e.to_string())
}

fn parse_ttl(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time; write it like 8h or 30m");
    let (number, seconds) = match (text.strip_suffix('h'), text.strip_suffix('m')) {
        (Some(hours), _) => (hours, 3600),
        (_, Some(minutes)) => (minutes, 60),
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).filter(|s| (60..=31_536_000).contains(s)).map(Duration::from_secs).ok_or_else(wrong)
}

impl TenantArgs {
    pub fn run(self) -> Result<(), Error> {
        role::run(|_| async move {
            let (dirs, management) = self.dir.management().await?;
            match self.action {
                TenantAction::Create { name, cards, simulate, without_worker } => {
                    let kubeconfig = tenants::create(&management, &name).await?;
                    let path = tenants::write_kubeconfig(&dirs, &name, &kubeconfig)?;
                    if !without_worker {
                        let worker = tenants::add_worker(&management, &name, cards.as_deref(), simulate).await?;
                        if let Some(cards) = &cards {
                            install_gpu(&dirs, &kubeconfig, &worker.name, cards).await?;
                        }
                        println!("worker {} is Ready", worker.name);
                    }
                    println!("tenant {name} is Ready: KUBECONFIG={}", path.display());
                }
                TenantAction::List => println!("{}", tenant_table(&tenants::list(&management).await?)),
                TenantAction::Kubeconfig { name, user, group, namespace, ttl } => {
                    let admin = cluster::tenant_kubeconfig(&management, &name)
                        .await?
                        .ok_or_else(|| format!("there is no tenant {name}: 'atoll tenant list' shows those there are"))?;
                    let text = match user {
                        None => admin,
                        Some(user) => {
                            tenants::user_kubeconfig(
                                &management,
                                &name,
                                &admin,
                                &user,
                                group.as_deref(),
                                namespace.as_deref(),
                                ttl,
                            )
                            .await?
                        }
                    };
                    print!("{text}");
                }
                TenantAction::Delete { name } => {
                    tenants::delete(&dirs, &management, &name).await?;
                    println!("tenant {name} is gone");
                }
            }
            Ok(())
        })
    }
}

/// GPU parts where there are none yet, and the worker's cards ready to be used.
async fn install_gpu(dirs: &platform::Dirs, kubeconfig: &str, worker: &str, cards: &str) -> Result<(), Error> {
    let image = platform::read_options(dirs).unwrap_or_default().image;
    platform::gpu::install_if_missing(kubeconfig, &image).await?;
    Ok(platform::gpu::wait_ready(kubeconfig, worker, cards).await?)
}

/// Add workers to tenants
///
/// Example: sudo atoll worker add --tenant team-a --cards 2xA100-80GB
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct WorkerArgs {
    #[command(flatten)]
    dir: DirArgs,
    #[command(subcommand)]
    action: WorkerAction,
}

#[derive(Subcommand, Debug)]
enum WorkerAction {
    /// Make a worker on this machine and wait until its Node is Ready and its cards can be used
    ///
    /// Example: sudo atoll worker add --tenant team-a --cards 2xA100-80GB
    #[command(verbatim_doc_comment)]
    Add {
        /// Name of the tenant
        #[arg(long)]
        tenant: String,
        /// Simulated cards, such as 2xA100-80GB
        #[arg(long, value_parser = parse_cards)]
        cards: Option<String>,
        /// Containers of images other than Atoll's count as running without a process
        #[arg(long)]
        simulate: bool,
    },
}

impl WorkerArgs {
    pub fn run(self) -> Result<(), Error> {
        role::run(|_| async move {
            let (dirs, management) = self.dir.management().await?;
            let WorkerAction::Add { tenant, cards, simulate } = self.action;
            let worker = tenants::add_worker(&management, &tenant, cards.as_deref(), simulate).await?;
            if let (Some(cards), Some(kubeconfig)) = (&cards, cluster::tenant_kubeconfig(&management, &tenant).await?) {
                install_gpu(&dirs, &kubeconfig, &worker.name, cards).await?;
            }
            println!("worker {} is Ready", worker.name);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_checked_before_a_tenant_is_made() {
        assert_eq!(parse_cards("2xA100-80GB"), Ok("2xA100-80GB".to_owned()));
        for wrong in ["4xT4", "", "x", "0xT4-16GB"] {
            assert!(parse_cards(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_ttl_has_a_unit_and_bounds() {
        assert_eq!(parse_ttl("8h"), Ok(Duration::from_secs(8 * 3600)));
        assert_eq!(parse_ttl("30m"), Ok(Duration::from_secs(1800)));
        for wrong in ["8", "h", "0h", "99999h", "-1h", "1d"] {
            assert!(parse_ttl(wrong).is_err(), "{wrong}");
        }
    }
}
