//! The ways in which the seam between tenant-a's API server and its webhooks is cut, and how each ends.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::lab::netns::{self, API_PORT, TUNNEL_PORT};
use crate::lab::{Lab, processes, webhooks};
use crate::platform::cluster;

type Act = for<'a> fn(&'a Lab) -> BoxFuture<'a, Result<(), String>>;

/// One way to cut.
pub struct Cut {
    /// For people.
    pub name: &'static str,
    /// For names of objects.
    pub slug: &'static str,
    /// The code word of the refusals.
    pub code: &'static str,
    /// How long it is held at least.
    pub hold: Duration,
    pub begin: Act,
    /// What else must be true meanwhile.
    pub check: Act,
    pub end: Act,
}

pub const CUTS: [Cut; 4] = [
    Cut {
        name: "agent away",
        slug: "agent",
        code: "TunnelNoAgent",
        hold: Duration::ZERO,
        begin: |lab| Box::pin(send_agent_away(lab)),
        check: |_| Box::pin(async { Ok(()) }),
        // The operator puts the agent back: nobody else does.
        end: |lab| Box::pin(pause(lab, Value::Null)),
    },
    Cut {
        name: "packets dropped",
        slug: "packets",
        code: "TunnelNoAnswer",
        hold: Duration::from_secs(12),
        begin: |lab| Box::pin(async { netns::drop_packets(lab, &lab.a, TUNNEL_PORT) }),
        check: |lab| Box::pin(tunnel_alone_is_cut(lab)),
        end: |lab| Box::pin(async { netns::pass_packets(lab) }),
    },
    Cut {
        name: "webhooks stopped",
        slug: "stopped",
        code: "WebhookNoAnswer",
        hold: Duration::ZERO,
        begin: |lab| Box::pin(async { signal_webhooks(lab, Signal::SIGSTOP) }),
        check: |_| Box::pin(async { Ok(()) }),
        end: |lab| Box::pin(async { signal_webhooks(lab, Signal::SIGCONT) }),
    },
    Cut {
        name: "webhooks scaled to 0",
        slug: "scaled",
        code: "WebhookNoEndpoint",
        hold: Duration::ZERO,
        begin: |lab| Box::pin(webhooks::scale_gpu(&lab.a, 0)),
        check: |_| Box::pin(async { Ok(()) }),
        end: |lab| Box::pin(webhooks::scale_gpu(&lab.a, 2)),
    },
];

/// Sets or removes the annotation by which the operator leaves tenant-a alone.
async fn pause(lab: &Lab, value: Value) -> Result<(), String> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kamaji.clastix.io", "v1alpha1", "TenantControlPlane"));
    let api: Api<DynamicObject> = Api::namespaced_with(lab.management.clone(), cluster::TENANTS, &resource);
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "kamaji.clastix.io/paused": value } } }));
    api.patch(&lab.a.name, &PatchParams::default(), &patch).await.map(drop).map_err(|e| format!("pause {}: {e}", lab.a.name))
}

async fn send_agent_away(lab: &Lab) -> Result<(), String> {
    pause(lab, json!("true")).await?;
    let sets: Api<DaemonSet> = Api::namespaced(lab.a.client.clone(), "kube-system");
    let nowhere = json!({ "spec": { "template": { "spec": { "nodeSelector": { "atoll.dev/nowhere": "true" } } } } });
    let patched = sets.patch("konnectivity-agent", &PatchParams::default(), &Patch::Merge(nowhere)).await;
    patched.map(drop).map_err(|e| format!("change the agent's node selector: {e}"))
}

/// The worker reaches its API port and not its tunnel port.
async fn tunnel_alone_is_cut(lab: &Lab) -> Result<(), String> {
    let worker = netns::worker(lab, &lab.a)?;
    for (port, wanted) in [(API_PORT, true), (TUNNEL_PORT, false)] {
        let address = SocketAddr::new(lab.a.address.into(), port);
        if netns::connects(&worker, address).await? != wanted {
            let verb = if wanted { "does not reach" } else { "reaches" };
            return Err(format!("the worker {verb} {address}"));
        }
    }
    Ok(())
}

fn signal_webhooks(lab: &Lab, signal: Signal) -> Result<(), String> {
    let mut own = processes::of_worker(lab, &lab.a)?;
    own.retain(|p| p.runs(&["gpu", "webhook"]));
    if own.is_empty() {
        return Err("no webhook runs on the worker".to_owned());
    }
    own.iter().try_for_each(|webhook| webhook.signal(signal))
}
