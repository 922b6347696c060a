//! `hami-scheduler`: the `scheduler` crate with its plugin point filled by the ledger.
//!
//! Stand-alone it places Pods itself. As an extender it answers a stock kube-scheduler's `/filter` and `/bind` over the
//! same ledger, fed by the same watches.

mod decision;
mod devices;
mod events;
mod extender;
mod lease;
mod metrics;
mod offered;
mod quotas;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_devices::names::{PodUid, SCHEDULER, resource};
use atoll_devices::selection::{CardPolicy, NodePolicy};
use atoll_devices::{Ledger, RequestDefaults};
use atoll_scheduler::Wake;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use extender::ExtenderOptions;
pub use lease::LeaseOptions;

use crate::error::{Error, Result, call};
use crate::http::{Answer, Handler, Security, serve, text};
use crate::limits;
use devices::Devices;
use events::Events;

/// Who chooses the node.
#[derive(Clone, Debug)]
pub enum Mode {
    /// This process.
    StandAlone,
    /// A stock kube-scheduler that asks this process.
    Extender(ExtenderOptions),
}

/// What the scheduler is run with.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// Pods with this `spec.schedulerName` are placed.
    pub scheduler_name: String,
    /// Who chooses the node.
    pub mode: Mode,
    /// Policy among nodes if a Pod names none.
    pub node_policy: NodePolicy,
    /// Policy among cards if a Pod names none.
    pub card_policy: CardPolicy,
    /// Defaults of requests.
    pub defaults: RequestDefaults,
    /// The Lease whose holder alone places; `None` where nothing else can run.
    pub lease: Option<LeaseOptions>,
    /// Address for `/metrics`, `/healthz` and `/readyz`.
    pub metrics_listen: Option<SocketAddr>,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            scheduler_name: SCHEDULER.to_owned(),
            mode: Mode::StandAlone,
            node_policy: NodePolicy::default(),
            card_policy: CardPolicy::default(),
            defaults: RequestDefaults::default(),
            lease: None,
            metrics_listen: Some(SocketAddr::from(([0, 0, 0, 0], 9395))),
        }
    }
}

/// Schedules until `shutdown` resolves; an error if the Lease is lost, after which this process must not go on.
pub async fn run(options: SchedulerOptions, client: kube::Client, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
    let ledger = Ledger::new(options.defaults, options.card_policy);
    let ready = Arc::new(AtomicBool::new(false));
    let (stop, stopped) = watch::channel(());
    if let Some(address) = options.metrics_listen {
        let listener = TcpListener::bind(address).await.map_err(Error::io(format!("cannot listen on {address}")))?;
        let handler = Arc::new(Metrics { ledger: ledger.clone(), ready: ready.clone() });
        let mut stopped = stopped.clone();
        tokio::spawn(
            async move { serve(listener, Security::Plain, handler, async move { drop(stopped.changed().await) }).await },
        );
    }
    tokio::pin!(shutdown);
    let lease = match options.lease.clone() {
        None => None,
        Some(lease) => tokio::select! {
            held = lease::Held::acquire(client.clone(), lease) => Some(held),
            () = &mut shutdown => return Ok(()),
        },
    };
    let lost = async {
        match &lease {
            Some(lease) => lease.keep().await,
            None => std::future::pending().await,
        }
    };
    // Everything that places is dropped at once when the Lease is lost.
    let outcome = tokio::select! {
        biased;
        () = &mut shutdown => Ok(()),
        error = lost => Err(error),
        ended = place(options, client, ledger, ready) => ended,
    };
    drop(stop);
    if let (Ok(()), Some(lease)) = (&outcome, lease) {
        lease.release().await;
    }
    outcome
}

/// The work of the holder; ends with an error only.
async fn place(options: SchedulerOptions, client: kube::Client, ledger: Ledger, ready: Arc<AtomicBool>) -> Result<()> {
    let wake = Wake::default();
    let devices = Devices {
        ledger: ledger.clone(),
        defaults: options.defaults,
        node_policy: options.node_policy,
        events: Events::start(client.clone(), &options.scheduler_name),
        wake: wake.clone(),
        client: client.clone(),
    };
    let (synced, mut quotas_known) = watch::channel(false);
    let quotas = quotas::follow(client.clone(), ledger.clone(), options.defaults, wake.clone(), synced);
    let placing = async {
        // Without the quotas a Pod could be placed beyond one.
        if quotas_known.wait_for(|known| *known).await.is_err() {
            return Ok(());
        }
        ready.store(true, Ordering::Relaxed);
        crate::say(format_args!("scheduling pods of {}", options.scheduler_name));
        let ignored = resource::ALL.map(str::to_owned).into();
        let mut plugins = atoll_scheduler::plugins::default_profile(ignored);
        plugins.push(Arc::new(devices.clone()));
        plugins.push(Arc::new(offered::Offered));
        // An extender's Pods are placed by the kube-scheduler that asks; the watches are needed all the same.
        let scheduler_names = match &options.mode {
            Mode::StandAlone => BTreeSet::from([options.scheduler_name.clone()]),
            Mode::Extender(_) => BTreeSet::new(),
        };
        let inner = atoll_scheduler::SchedulerOptions { scheduler_names, plugins, wake };
        let watching = atoll_scheduler::run(inner, client.clone(), std::future::pending());
        match options.mode.clone() {
            Mode::StandAlone => watching.await,
            Mode::Extender(extender) => tokio::select! {
                () = watching => {}
                ended = extender::run(extender, devices) => return ended,
            },
        }
        Ok(())
    };
    tokio::select! {
        ended = placing => ended,
        () = quotas => Ok(()),
        () = reconcile(&client, &ledger) => Ok(()),
    }
}

/// Compares the ledger with a listing now and then, should an event ever have been lost (HAMi issue 2923).
async fn reconcile(client: &kube::Client, ledger: &Ledger) {
    loop {
        tokio::time::sleep(limits::RECONCILE_PERIOD).await;
        let since = ledger.generation();
        match call(Api::<Pod>::all(client.clone()).list_metadata(&ListParams::default())).await {
            Ok(pods) => {
                let live: BTreeSet<PodUid> =
                    pods.items.into_iter().filter_map(|pod| pod.metadata.uid).map(PodUid::from).collect();
                let removed = ledger.reconcile(since, &live);
                if removed > 0 {
                    tracing::warn!(removed, "the ledger held what no pod has");
                }
            }
            Err(error) => tracing::warn!(%error, "cannot list pods to compare with"),
        }
    }
}

struct Metrics {
    ledger: Ledger,
    ready: Arc<AtomicBool>,
}

#[async_trait::async_trait]
impl Handler for Metrics {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        match request.uri().path() {
            "/metrics" => text(StatusCode::OK, metrics::render(&self.ledger)),
            "/healthz" => text(StatusCode::OK, "ok"),
            "/readyz" if self.ready.load(Ordering::Relaxed) => text(StatusCode::OK, "ok"),
            "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "the lease is not held, or quotas are not known yet"),
            _ => text(StatusCode::NOT_FOUND, "not found"),
        }
    }
}
