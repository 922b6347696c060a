//! `atoll example …`: small programs for guides and tests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use atoll_lab::example::webhook::{self, WebhookOptions};
use clap::Subcommand;

use super::role::{self, ClusterArgs, Error};

/// Run an example program
///
/// Example: atoll example gpu-work
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand, Debug)]
enum Program {
    /// An admission webhook that adds annotations, or holds what it is asked
    ///
    /// It makes its own certificate and writes its authority into the caBundle of the webhook configurations it is given.
    ///
    /// Example: atoll example webhook --annotate team=a --names hook.default.svc --register mutating/hook
    #[command(verbatim_doc_comment)]
    Webhook {
        /// Annotation to add, KEY=VALUE; may be given several times
        #[arg(long, value_parser = parse_pair)]
        annotate: Vec<(String, String)>,
        /// Time to wait before each answer, such as 5s or 250ms
        #[arg(long, value_parser = parse_duration, default_value = "0s")]
        hold: Duration,
        /// Address of the TLS listener
        #[arg(long, default_value = "0.0.0.0:8443")]
        listen: SocketAddr,
        /// Names and addresses of its certificate, such as SERVICE.NAMESPACE.svc
        #[arg(long, value_delimiter = ',', default_value = "localhost,127.0.0.1")]
        names: Vec<String>,
        /// Configuration to register with: mutating/NAME or validating/NAME; may be given several times
        #[arg(long)]
        register: Vec<String>,
    },
    /// Prints what it was given of a card, then waits
    ///
    /// Example: atoll example gpu-work
    #[command(verbatim_doc_comment)]
    GpuWork,
    /// Prints which processes it sees and whether it can read files, then waits
    ///
    /// Each file is tried by its path, and below the root directory of each process.
    ///
    /// Example: atoll example look --read /etc/hostname
    #[command(verbatim_doc_comment)]
    Look {
        /// File to read; may be given several times
        #[arg(long)]
        read: Vec<PathBuf>,
    },
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(k, v)| (k.to_owned(), v.to_owned())).ok_or_else(|| format!("{text:?} is not KEY=VALUE"))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time; write it like 5s or 250ms");
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        _ => Err(wrong()),
    }
}

impl Args {
    pub fn run(self) -> Result<(), Error> {
        role::run(|shutdown| async move {
            match self.program {
                Program::GpuWork => {
                    for line in atoll_lab::example::gpu_work::report(std::env::vars()) {
                        println!("{line}");
                    }
                    role::stopped(shutdown).await;
                }
                Program::Look { read } => {
                    for line in atoll_lab::example::look::report(&read) {
                        println!("{line}");
                    }
                    println!("looked");
                    role::stopped(shutdown).await;
                }
                Program::Webhook { annotate, hold, listen, names, register } => {
                    let client = if register.is_empty() { None } else { Some(self.cluster.client().await?) };
                    let options = WebhookOptions { annotate, hold, listen, names, register };
                    webhook::run(options, client, role::stopped(shutdown)).await?;
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("5s"), Ok(Duration::from_secs(5)));
        for wrong in ["5", "s", "", "5h", "-1s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
