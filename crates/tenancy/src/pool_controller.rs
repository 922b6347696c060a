//! Gives addresses of `IPAddressPool`s to LoadBalancer Services, as MetalLB's controller does.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use tracing::{info, warn};

use crate::pool::{self, Pool};
use crate::spec::IPAddressPool;
use crate::{Error, limits};

/// Load-balancer class that this controller serves beside the Services that name none (MetalLB's name).
const CLASS: &str = "metallb";
/// The annotation by which a Service asks for an address.
const WISH: &str = "metallb.io/loadBalancerIPs";

struct Context {
    client: Client,
    recorder: Recorder,
    /// One Service at a time: what is free is read, chosen and written in one turn.
    turn: tokio::sync::Mutex<()>,
}

/// Runs for ever.
pub(crate) async fn run(client: Client) {
    let recorder = Recorder::new(client.clone(), Reporter { controller: "atoll-addresses".into(), instance: None });
    let context = Arc::new(Context { client: client.clone(), recorder, turn: tokio::sync::Mutex::new(()) });
    let services: Api<Service> = Api::all(client.clone());
    let controller = Controller::new(services, watcher::Config::default());
    let known = controller.store();
    controller
        .watches(Api::<IPAddressPool>::all(client), watcher::Config::default(), move |_| {
            // A pool that changed may serve any Service that waits.
            known.state().iter().filter(|s| waits(s)).map(|s| ObjectRef::from_obj(s.as_ref())).collect::<Vec<_>>()
        })
        .run(reconcile, |_, _, _| Action::requeue(limits::RETRY_MIN), context)
        .for_each(|result| async move {
            if let Err(error) = result {
                warn!(%error, "a load-balancer address was not settled");
            }
        })
        .await;
}

fn is_ours(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.as_deref().is_none_or(|c| c == CLASS)
}

fn address_of(service: &Service) -> Option<Ipv4Addr> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    ingress.iter().find_map(|i| i.ip.as_ref()?.parse().ok())
}

fn waits(service: &Service) -> bool {
    is_ours(service) && address_of(service).is_none()
}

fn wish(service: &Service) -> Option<Ipv4Addr> {
    let annotated = service.annotations().get(WISH).and_then(|v| v.split(',').next()).map(str::trim);
    let text = annotated.or_else(|| service.spec.as_ref()?.load_balancer_ip.as_deref())?;
    text.parse().ok()
}

async fn reconcile(service: Arc<Service>, context: Arc<Context>) -> Result<Action, Error> {
    if service.metadata.deletion_timestamp.is_some() || !waits(&service) {
        return Ok(Action::await_change());
    }
    let _turn = context.turn.lock().await;
    let services: Api<Service> = Api::all(context.client.clone());
    let all = services.list(&ListParams::default()).await.map_err(Error::api("list Services"))?;
    let uid = service.uid();
    // The list is newer than the event: another turn may have settled this Service.
    if all.iter().any(|s| s.uid() == uid && !waits(s)) {
        return Ok(Action::await_change());
    }
    let in_use: BTreeSet<Ipv4Addr> = all.iter().filter(|s| s.uid() != uid).filter_map(address_of).collect();
    match pool::assign(&pools(&context.client).await?, &in_use, wish(&service)) {
        Ok(address) => {
            write(&context.client, &service, address).await?;
            info!(service = service.name_any(), %address, "address assigned");
            let note = format!("Assigned IP {address}");
            publish(&context, &service, EventType::Normal, "IPAllocated", note).await;
            Ok(Action::await_change())
        }
        Err(why) => {
            publish(&context, &service, EventType::Warning, "AllocationFailed", why.to_string()).await;
            // A freed address sends no event that names this Service.
            Ok(Action::requeue(limits::RETRY_MAX / 10))
        }
    }
}

async fn pools(client: &Client) -> Result<Vec<Pool>, Error> {
    let api: Api<IPAddressPool> = Api::all(client.clone());
    let mut listed = api.list(&ListParams::default()).await.map_err(Error::api("list IPAddressPools"))?.items;
    listed.sort_by_key(ResourceExt::name_any);
    let mut out = Vec::new();
    for object in listed {
        let spec = &object.spec;
        let auto = spec.auto_assign.unwrap_or(true);
        match Pool::parse(&object.name_any(), auto, spec.avoid_buggy_ips.unwrap_or(false), &spec.addresses) {
            Ok(pool) => out.push(pool),
            Err(error) => warn!(pool = object.name_any(), %error, "an IPAddressPool is left out"),
        }
    }
    Ok(out)
}

async fn write(client: &Client, service: &Service, address: Ipv4Addr) -> Result<(), Error> {
    let api: Api<Service> = Api::namespaced(client.clone(), &service.namespace().unwrap_or_default());
    let ingress = json!([{ "ip": address, "ipMode": "VIP" }]);
    let patch = json!({
        "metadata": { "resourceVersion": service.resource_version() },
        "status": { "loadBalancer": { "ingress": ingress } },
    });
    api.patch_status(&service.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(Error::api(format!("write the address of Service {}", service.name_any())))?;
    Ok(())
}

async fn publish(context: &Context, service: &Service, kind: EventType, reason: &str, note: String) {
    let event = Event { type_: kind, reason: reason.to_owned(), note: Some(note), action: "Assign".to_owned(), secondary: None };
    if let Err(error) = context.recorder.publish(&event, &service.object_ref(&())).await {
        tracing::debug!(%error, "an event was not written");
    }
}
