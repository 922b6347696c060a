//! Runs `ip`, `nft` and the binary's own launcher, with errors that say what is missing.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::error::{Error, Result};
use crate::limits;

const DIRS: [&str; 6] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin"];

/// Where a program is, whatever PATH says.
pub fn find(name: &str) -> Option<PathBuf> {
    DIRS.iter().map(|dir| Path::new(dir).join(name)).find(|p| p.is_file())
}

/// As [`find`], with an error that names the package.
pub fn require(name: &str) -> Result<PathBuf> {
    let package = if name == "nft" { "nftables" } else { "iproute2" };
    find(name).ok_or_else(|| Error::Tool { program: name.to_owned(), why: format!("not found; install package {package}") })
}

/// Runs a program to its end and returns what it printed.
pub async fn run(program: &Path, args: &[&str], input: Option<&str>) -> Result<String> {
    let failed = |why: String| Error::Tool { program: format!("{} {}", program.display(), args.join(" ")), why };
    let mut command = Command::new(program);
    command.args(args).kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
    let stdin = child.stdin.take();
    let finish = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            stdin.write_all(input.as_bytes()).await?;
        }
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(limits::TOOL_TIMEOUT, finish).await;
    let output = output.map_err(|_| failed("no answer in time".to_owned()))?.map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs lines of `ip -batch` in the node's own namespace.
pub async fn ip(lines: &str) -> Result<()> {
    run(&require("ip")?, &["-batch", "-"], Some(lines)).await.map(drop)
}

/// Applies a ruleset in one transaction.
pub async fn nft(ruleset: &str) -> Result<()> {
    run(&require("nft")?, &["-f", "-"], Some(ruleset)).await.map(drop)
}
