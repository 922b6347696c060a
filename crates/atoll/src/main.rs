//! The command line of Atoll.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A Kubernetes API for every GPU team, and a fraction of a GPU
#[derive(Parser, Debug)]
#[command(name = "atoll", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Lab(commands::lab::Args),
    Up(commands::platform::UpArgs),
    Down(commands::platform::DownArgs),
    Status(commands::platform::StatusArgs),
    Tenant(commands::tenant::TenantArgs),
    Worker(commands::tenant::WorkerArgs),
    ControlPlane(commands::control_plane::Args),
    #[command(hide = true)]
    ManagementPlane(commands::control_plane::ManagementArgs),
    Controllers(commands::controllers::Args),
    Scheduler(commands::scheduler::Args),
    Operator(commands::operator::Args),
    Node(commands::node::Args),
    TunnelAgent(commands::tunnel_agent::Args),
    Gpu(commands::gpu::Args),
    Example(commands::example::Args),
}

fn main() -> ExitCode {
    // Roles that enter namespaces must do so before any thread exists.
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = atoll_node::hidden_main(&words) {
        return u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from);
    }
    // One TLS provider for the whole process; nothing else may have chosen before.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("atoll: a TLS provider was installed before main");
        return ExitCode::FAILURE;
    }
    let filter = tracing_subscriber::EnvFilter::try_from_env("ATOLL_LOG").unwrap_or_else(|_| quietest(&words).into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .init();
    let outcome = match Cli::parse().command {
        Command::Lab(args) => match args.run() {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Up(args) => args.run(),
        Command::Down(args) => args.run(),
        Command::Status(args) => args.run(),
        Command::Tenant(args) => args.run(),
        Command::Worker(args) => args.run(),
        Command::ControlPlane(args) => args.run(),
        Command::ManagementPlane(args) => args.run(),
        Command::Controllers(args) => args.run(),
        Command::Scheduler(args) => args.run(),
        Command::Operator(args) => args.run(),
        Command::Node(args) => args.run(),
        Command::TunnelAgent(args) => args.run(),
        Command::Gpu(args) => args.run(),
        Command::Example(args) => args.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The lab prints its own steps: of the parts inside it only errors are news.
fn quietest(words: &[String]) -> &'static str {
    if words.first().is_some_and(|w| w == "lab") { "error,kube_client=off" } else { "info" }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Names of the commands below one whose help has no example.
    fn without_example(command: &clap::Command, path: &str) -> Vec<String> {
        let path = format!("{path} {}", command.get_name());
        let mut below: Vec<String> =
            command.get_subcommands().filter(|c| !c.is_hide_set()).flat_map(|c| without_example(c, &path)).collect();
        let help = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
        if !command.has_subcommands() && !help.contains("Example: ") {
            below.push(path);
        }
        below
    }

    #[test]
    fn the_help_of_every_command_has_an_example() {
        assert_eq!(without_example(&Cli::command(), ""), Vec::<String>::new());
    }
}
