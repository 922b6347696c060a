//! `atoll lab`: two tenants on this machine, and the tests of what they promise each other.

use std::process::ExitCode;

use atoll_lab::lab::{self, Options};
use atoll_lab::platform::UpOptions;

use super::platform::DirArgs;
use super::role::{self, Error};

/// Two tenants with GPU workers on this machine, tested end to end
///
/// Exit code 0: all tests passed; 1: one failed; 3: none failed and at least one did not run.
///
/// Example: sudo atoll lab --keep
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    dir: DirArgs,
    /// Leave it running; 'atoll down' ends it
    #[arg(long)]
    keep: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Port of the management API on the host's loopback
    #[arg(long, default_value_t = UpOptions::default().port)]
    port: u16,
    /// A /16 for the platform's links and Pods
    #[arg(long, default_value_t = UpOptions::default().platform_cidr)]
    platform_cidr: String,
    /// Load-balancer addresses: the host gets a route to them
    #[arg(long, default_value_t = UpOptions::default().pool)]
    pool: String,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Text,
    Json,
}

impl Args {
    pub fn run(self) -> Result<ExitCode, Error> {
        let mut code = ExitCode::FAILURE;
        role::run(|shutdown| async {
            let up = UpOptions { port: self.port, platform_cidr: self.platform_cidr, pool: self.pool, ..UpOptions::default() };
            let json = self.output == Output::Json;
            let options = Options { dirs: self.dir.dirs()?, up, keep: self.keep, quiet: json };
            let report = lab::run(options, shutdown).await?;
            if json {
                println!("{}", report.to_json());
            } else {
                println!("{}", report.summary());
            }
            code = ExitCode::from(report.exit_code());
            Ok(())
        })?;
        Ok(code)
    }
}
