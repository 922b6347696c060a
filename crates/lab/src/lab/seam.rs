//! Test 3: a GPU Pod is admitted by a webhook on the tenant's worker, called through the tunnel.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::objects::{PATIENCE, create, delete, running, scale_webhook};
use super::{Lab, Tenant, eventually, netns};

pub async fn run(lab: &Lab) -> Result<String, String> {
    let tenant = &lab.a;
    let created = create(lab, tenant, "seam", true).await.map_err(|e| format!("create a GPU Pod: {e}"))?;
    let scheduler = created.spec.and_then(|s| s.scheduler_name).unwrap_or_default();
    if scheduler != "hami-scheduler" {
        return Err(format!("the Pod came back with schedulerName {scheduler:?}"));
    }
    running(tenant, "seam").await?;
    let line = webhook_line(lab, tenant, "default/seam").await?;
    let uid = field(&line, "uid=").ok_or_else(|| format!("no uid in {line:?}"))?;
    let (dial, address) = called(lab, tenant, &uid).await?;
    agent_dialled(lab, tenant, &dial, &address).await?;
    not_direct(lab, tenant, &address).await?;
    cpu_pod_is_not_asked(lab, tenant).await?;
    let refusal = without_webhook(lab, tenant).await;
    scale_webhook(tenant, 2).await?;
    let refusal = refusal?;
    admitted_again(lab, tenant).await?;
    for name in ["seam", "seam-cpu", "seam-again"] {
        delete(tenant, name).await?;
    }
    Ok(format!("review {uid} went as dial {dial} to {address}, not reachable directly; scaled to 0: {refusal}; back: admitted"))
}

/// All log files of Pods under `root` whose directory's name begins with `prefix`.
fn logs(root: &Path, prefix: &str) -> Vec<PathBuf> {
    let below = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>();
    let named = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix));
    let pods = below(&root.join("var/log/pods")).into_iter().filter(named);
    pods.flat_map(|pod| below(&pod)).flat_map(|container| below(&container)).collect()
}

/// A line of these logs that holds all of `words`, once it is there.
async fn line_with(root: PathBuf, prefix: String, words: &[&str]) -> Result<String, String> {
    let what = format!("a line with {words:?} in the log of {prefix}");
    eventually(&what, PATIENCE, || async {
        let texts = logs(&root, &prefix).into_iter().map(|path| std::fs::read_to_string(path).unwrap_or_default());
        let found =
            texts.flat_map(|t| t.lines().map(str::to_owned).collect::<Vec<_>>()).find(|l| words.iter().all(|w| l.contains(w)));
        found.ok_or_else(|| "none".to_owned())
    })
    .await
}

fn worker_root(lab: &Lab, tenant: &Tenant) -> PathBuf {
    lab.dirs.workers().join(format!("{}-worker-1", tenant.name))
}

async fn webhook_line(lab: &Lab, tenant: &Tenant, pod: &str) -> Result<String, String> {
    line_with(worker_root(lab, tenant), "kube-system_hami-webhook".to_owned(), &["admission", &format!("pod={pod} ")]).await
}

/// The value after `key` in a log line, without quotes.
fn field(line: &str, key: &str) -> Option<String> {
    let value = line.split_once(key)?.1.split_whitespace().next()?;
    Some(value.trim_matches('"').to_owned())
}

/// Dial id and address of the call with this uid, from the log of the tenant's API server.
async fn called(lab: &Lab, tenant: &Tenant, uid: &str) -> Result<(String, String), String> {
    let line = line_with(lab.dirs.node(), format!("default_{}-", tenant.name), &["calling webhook", uid]).await?;
    let found = field(&line, "dial_id=").zip(field(&line, "address="));
    found.ok_or_else(|| format!("no dial id and address in {line:?}"))
}

async fn agent_dialled(lab: &Lab, tenant: &Tenant, dial: &str, address: &str) -> Result<(), String> {
    let words = ["tunnel dial", dial, address];
    line_with(worker_root(lab, tenant), "kube-system_konnectivity-agent".to_owned(), &words).await.map(drop)
}

/// The control plane's own network has no way to the webhook; the worker's has.
async fn not_direct(lab: &Lab, tenant: &Tenant, address: &str) -> Result<(), String> {
    let address: SocketAddr = address.parse().map_err(|e| format!("{address:?}: {e}"))?;
    if !netns::connects(&netns::worker(lab, tenant)?, address).await? {
        return Err(format!("the webhook at {address} does not answer on its own worker"));
    }
    if netns::connects(&netns::platform(lab), address).await? {
        return Err(format!("the platform's network reaches the webhook at {address} directly"));
    }
    Ok(())
}

/// A GPU Pod created after the CPU Pod has a line in the webhook's log; the CPU Pod has none.
async fn cpu_pod_is_not_asked(lab: &Lab, tenant: &Tenant) -> Result<(), String> {
    create(lab, tenant, "seam-cpu", false).await.map_err(|e| format!("create a CPU Pod: {e}"))?;
    running(tenant, "seam-cpu").await?;
    let texts = logs(&worker_root(lab, tenant), "kube-system_hami-webhook");
    let asked = texts.iter().any(|path| std::fs::read_to_string(path).is_ok_and(|t| t.contains("pod=default/seam-cpu ")));
    if asked { Err("the webhook was asked about a CPU Pod".to_owned()) } else { Ok(()) }
}

async fn without_webhook(lab: &Lab, tenant: &Tenant) -> Result<&'static str, String> {
    scale_webhook(tenant, 0).await?;
    refused(lab, tenant, "seam-refused", "WebhookNoEndpoint").await?;
    Ok("WebhookNoEndpoint")
}

/// A GPU Pod is refused with this code word, once the cut has come through. The code is also the reason of a cause.
pub async fn refused(lab: &Lab, tenant: &Tenant, name: &str, code: &str) -> Result<(), String> {
    eventually(&format!("a GPU Pod is refused with {code}"), PATIENCE, || async {
        match create(lab, tenant, name, true).await {
            Ok(_) => {
                delete(tenant, name).await?;
                Err("it is admitted".to_owned())
            }
            Err(kube::Error::Api(status)) => {
                let causes = status.details.as_ref().map(|d| d.causes.as_slice()).unwrap_or_default();
                let named = status.message.contains(code) && causes.iter().any(|c| c.reason == code);
                if named { Ok(()) } else { Err(format!("it is refused with {status:?}")) }
            }
            Err(error) => Err(error.to_string()),
        }
    })
    .await
}

async fn admitted_again(lab: &Lab, tenant: &Tenant) -> Result<(), String> {
    eventually("a GPU Pod is admitted again", PATIENCE, || async {
        create(lab, tenant, "seam-again", true).await.map(drop).map_err(|e| e.to_string())
    })
    .await
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
