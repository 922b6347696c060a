//! `atoll up`, `down` and `status`: the platform on one machine.

use std::path::PathBuf;

use atoll_lab::platform::{self, Dirs, UpOptions, cluster, process, tenants};
use comfy_table::Table;
use comfy_table::presets::NOTHING;

use super::role::{self, Error};

/// The state directory that a command works on.
#[derive(clap::Args, Debug, Clone)]
pub struct DirArgs {
    /// State directory [default: /var/lib/atoll as root, else the user's state directory]
    #[arg(long, global = true)]
    dir: Option<PathBuf>,
}

impl DirArgs {
    pub fn dirs(&self) -> Result<Dirs, Error> {
        let root = self.dir.clone().unwrap_or_else(Dirs::default_root);
        let absolute = std::path::absolute(&root).map_err(|e| format!("{}: {e}", root.display()))?;
        Ok(Dirs::new(absolute))
    }

    /// A client of the platform that runs in this directory.
    pub async fn management(&self) -> Result<(Dirs, kube::Client), Error> {
        let dirs = self.dirs()?;
        let path = dirs.management_kubeconfig();
        if !path.exists() {
            return Err(format!("no platform runs in {}: start one with 'atoll up'", dirs.root().display()).into());
        }
        let client = cluster::client_of_file(&path).await?;
        Ok((dirs, client))
    }
}

/// Put the platform up on this machine and keep it running
///
/// Needs root. Ctrl-C ends the supervisor alone: what runs keeps running, and 'atoll up' takes it up again.
///
/// Example: sudo atoll up --pool 10.208.0.0/24
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct UpArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Port of the management API on the host's loopback
    #[arg(long, default_value_t = UpOptions::default().port)]
    port: u16,
    /// A /16 for the platform's links and Pods
    #[arg(long, default_value_t = UpOptions::default().platform_cidr)]
    platform_cidr: String,
    /// Load-balancer addresses: the host gets a route to them
    #[arg(long, default_value_t = UpOptions::default().pool)]
    pool: String,
    /// User ids for tenants, FIRST-LAST
    #[arg(long, default_value = "300000-309999", value_parser = super::operator::parse_range)]
    user_ids: std::ops::RangeInclusive<i64>,
}

impl UpArgs {
    pub fn run(self) -> Result<(), Error> {
        role::run(|shutdown| async move {
            let options = UpOptions {
                port: self.port,
                platform_cidr: self.platform_cidr,
                pool: self.pool,
                user_ids: (*self.user_ids.start(), *self.user_ids.end()),
                ..UpOptions::default()
            };
            let dirs = self.dir.dirs()?;
            platform::up(&dirs, &options, |p| println!("ready: KUBECONFIG={}", p.kubeconfig.display()), shutdown).await?;
            Ok(())
        })
    }
}

/// End the platform: every process, namespace, address, rule and file it made
///
/// Example: sudo atoll down
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct DownArgs {
    #[command(flatten)]
    dir: DirArgs,
}

impl DownArgs {
    pub fn run(self) -> Result<(), Error> {
        role::run(|_| async move {
            let dirs = self.dir.dirs()?;
            let ended = platform::down(&dirs).await?;
            if ended.is_empty() {
                println!("nothing was there in {}", dirs.root().display());
            }
            for line in ended {
                println!("ended {line}");
            }
            Ok(())
        })
    }
}

/// Show the platform: processes, tenants, addresses, logs and kubeconfigs
///
/// Example: atoll status
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct StatusArgs {
    #[command(flatten)]
    dir: DirArgs,
}

impl StatusArgs {
    pub fn run(self) -> Result<(), Error> {
        role::run(|_| async move {
            let (dirs, client) = self.dir.management().await?;
            println!("state       {}", dirs.root().display());
            println!("logs        {}", dirs.logs().display());
            println!("kubeconfig  {}", dirs.management_kubeconfig().display());
            if let Some(options) = platform::read_options(&dirs) {
                println!("management  https://127.0.0.1:{}   pool {}", options.port, options.pool);
            }
            let mut processes = table(&["PROCESS", "PID", "STATE"]);
            for (name, record) in process::records(&dirs) {
                let state = if record.is_alive() { "running" } else { "ended" };
                processes.add_row([name, record.pid.to_string(), state.to_owned()]);
            }
            println!("\n{processes}\n");
            println!("{}", tenant_table(&tenants::list(&client).await?));
            println!("\nno controller yet for: {}", atoll_controllers::MISSING.join(", "));
            Ok(())
        })
    }
}

pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header.iter().copied());
    table
}

pub fn tenant_table(rows: &[tenants::Row]) -> Table {
    let mut out = table(&["TENANT", "STATUS", "ENDPOINT", "WORKERS"]);
    for row in rows {
        out.add_row([&row.name, &row.status, &row.endpoint, &row.workers.join(",")]);
    }
    out
}
