//! What the logs of Pods on this machine say.

use std::path::{Path, PathBuf};

use crate::lab::pods::PATIENCE;
use crate::lab::{Lab, Tenant, eventually};

/// The root directory of a tenant's first worker.
pub fn worker(lab: &Lab, tenant: &Tenant) -> PathBuf {
    lab.dirs.workers().join(format!("{}-worker-1", tenant.name))
}

/// All lines in logs of Pods under `root` whose directory's name begins with `prefix`.
pub fn lines(root: &Path, prefix: &str) -> Vec<String> {
    let below = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>();
    let named = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix));
    let pods = below(&root.join("var/log/pods")).into_iter().filter(named);
    let files = pods.flat_map(|pod| below(&pod)).flat_map(|container| below(&container));
    let texts = files.map(|path| std::fs::read_to_string(path).unwrap_or_default());
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// A line of these logs that holds all of `words`, once it is there.
pub async fn line_with(root: PathBuf, prefix: &str, words: &[&str]) -> Result<String, String> {
    eventually(&format!("a line with {words:?} in the log of {prefix}"), PATIENCE, || async {
        let found = lines(&root, prefix).into_iter().find(|line| words.iter().all(|w| line.contains(w)));
        found.ok_or_else(|| "none".to_owned())
    })
    .await
}

/// The value after `key` in a log line, without quotes.
pub fn field(line: &str, key: &str) -> Option<String> {
    let value = line.split_once(key)?.1.split_whitespace().next()?;
    Some(value.trim_matches('"').to_owned())
}

/// Dial id and address of the webhook call with this uid, from the log of the tenant's API server, once the log of the agent
/// on the worker has both too.
pub async fn called(lab: &Lab, tenant: &Tenant, uid: &str) -> Result<(String, String), String> {
    let line = line_with(lab.dirs.node(), &format!("default_{}-", tenant.name), &["calling webhook", uid]).await?;
    let found = field(&line, "dial_id=").zip(field(&line, "address="));
    let (dial, address) = found.ok_or_else(|| format!("no dial id and address in {line:?}"))?;
    dialled(lab, tenant, &[&dial, &address]).await?;
    Ok((dial, address))
}

/// A line of the tunnel's agent on the tenant's worker about a dial.
pub async fn dialled(lab: &Lab, tenant: &Tenant, words: &[&str]) -> Result<String, String> {
    line_with(worker(lab, tenant), "kube-system_konnectivity-agent", &[&["tunnel dial"], words].concat()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_with_and_without_quotes() {
        let line = "calling webhook uid=\"u-1\" dial_id=42 address=\"10.0.0.1:8443\"";
        assert_eq!(field(line, "uid="), Some("u-1".to_owned()));
        assert_eq!(field(line, "dial_id="), Some("42".to_owned()));
        assert_eq!(field(line, "address="), Some("10.0.0.1:8443".to_owned()));
        assert_eq!(field(line, "none="), None);
    }
}
