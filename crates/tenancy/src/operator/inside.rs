//! What the operator made inside a tenant, watched there: a change by another hand is repaired at once.
//!
//! Only the tunnel agent is: without it the tenant's API server reaches nothing on its workers. The other objects are repaired
//! at the next resync.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedSender;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::AbortHandle;
use tracing::{debug, info};

use super::context::Context;
use crate::addons::AGENT;
use crate::spec::TenantControlPlane;

/// Where tenants to look at are sent.
pub(super) type Changed = UnboundedSender<ObjectRef<TenantControlPlane>>;

/// A watch inside one tenant; dropping it ends it.
pub(super) struct Watch {
    /// Kind of the workload that is watched.
    pub(super) mode: String,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Watches the tunnel agent's workload, of the kind that `mode` names.
pub(super) fn watch_agent(context: &Arc<Context>, tenant: &TenantControlPlane, client: Client, mode: &str) -> Watch {
    let (context, owner) = (context.clone(), ObjectRef::from_obj(tenant));
    let task = match mode {
        "Deployment" => tokio::spawn(follow::<Deployment>(context, owner, client)),
        _ => tokio::spawn(follow::<DaemonSet>(context, owner, client)),
    };
    Watch { mode: mode.to_owned(), task: task.abort_handle() }
}

async fn follow<K>(context: Arc<Context>, owner: ObjectRef<TenantControlPlane>, client: Client)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::namespaced(client, "kube-system");
    let config = watcher::Config::default().fields(&format!("metadata.name={AGENT}"));
    let mut events = watch(api, config).default_backoff().boxed();
    let mut known = Known::default();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) if known.is_news(&event) => {
                info!(tenant = %owner, "the tunnel agent was changed, it is looked at again");
                context.forget_addons(&owner);
            }
            Ok(_) => {}
            Err(error) => debug!(tenant = %owner, %error, "the tunnel agent cannot be watched, tried again"),
        }
    }
}

/// The generation of the workload as it was last seen; its status does not count.
#[derive(Default)]
struct Known {
    /// `None`: not seen yet; `Some(None)`: not there.
    generation: Option<Option<i64>>,
    /// Seen in the listing that is under way.
    listed: Option<i64>,
}

impl Known {
    /// Whether the workload is another than before.
    fn is_news<K>(&mut self, event: &Event<PartialObjectMeta<K>>) -> bool {
        let found = match event {
            Event::Init => {
                self.listed = None;
                return false;
            }
            Event::InitApply(object) => {
                self.listed = object.metadata.generation;
                return false;
            }
            Event::InitDone => self.listed,
            Event::Apply(object) => object.metadata.generation,
            Event::Delete(_) => None,
        };
        let before = self.generation.replace(found);
        before.is_some_and(|before| before != found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(generation: i64) -> PartialObjectMeta<DaemonSet> {
        let mut object = PartialObjectMeta::default();
        object.metadata.generation = Some(generation);
        object
    }

    #[test]
    fn a_changed_spec_and_an_end_are_news_and_a_status_is_not() {
        let mut known = Known::default();
        assert!(!known.is_news::<DaemonSet>(&Event::Init));
        assert!(!known.is_news(&Event::InitApply(at(1))));
        assert!(!known.is_news::<DaemonSet>(&Event::InitDone), "the first sight is no change");
        assert!(!known.is_news(&Event::Apply(at(1))), "a status");
        assert!(known.is_news(&Event::Apply(at(2))));
        assert!(known.is_news(&Event::Delete(at(2))));
        assert!(known.is_news(&Event::Apply(at(1))), "made anew");
    }

    #[test]
    fn what_happened_while_the_watch_was_broken_is_news() {
        let mut known = Known::default();
        known.is_news(&Event::Apply(at(1)));
        assert!(!known.is_news::<DaemonSet>(&Event::Init));
        assert!(known.is_news::<DaemonSet>(&Event::InitDone), "it is gone");
        assert!(!known.is_news::<DaemonSet>(&Event::Init));
        assert!(!known.is_news(&Event::InitApply(at(3))));
        assert!(known.is_news::<DaemonSet>(&Event::InitDone), "it is back");
    }
}
