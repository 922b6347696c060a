//! The loop around [`crate::desired`]: observe a tenant, apply what is missing, say what was seen.

mod cleanup;
mod context;
mod inside;
mod reconcile;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::spec::TenantControlPlane;
use crate::{Error, crd, limits, names};
use context::Context;

/// What the operator is told.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// Atoll's own image, for control planes and tunnel agents.
    pub image: String,
    /// User ids to hand out, one a tenant.
    pub user_ids: RangeInclusive<i64>,
    /// Class of the tenants' data volumes; `None`: the cluster's default.
    pub storage_class: Option<String>,
    pub storage_size: String,
    /// Whether to install the CRDs first.
    pub install_crds: bool,
    /// Whether to give addresses to LoadBalancer Services (a cluster may have another provider for that).
    pub assign_addresses: bool,
}

/// Runs the operator until `shutdown` turns true.
pub async fn run(options: OperatorOptions, client: Client, mut shutdown: watch::Receiver<bool>) -> Result<(), Error> {
    if options.install_crds {
        crd::install(&client).await?;
    }
    let stopped = async move {
        let _ = shutdown.wait_for(|stop| *stop).await;
    };
    let pools = async {
        if options.assign_addresses {
            crate::pool_controller::run(client.clone()).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = stopped => Ok(()),
        () = tenants(options.clone(), client.clone()) => Ok(()),
        () = pools => Ok(()),
    }
}

async fn tenants(options: OperatorOptions, client: Client) {
    let owned = watcher::Config::default().labels(&format!("{}=kamaji", names::LABEL_PROJECT));
    let (changed, changes) = futures::channel::mpsc::unbounded();
    let context = Arc::new(Context::new(options, client.clone(), changed));
    Controller::new(Api::<TenantControlPlane>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Deployment>::all(client.clone()), owned.clone())
        .owns(Api::<Service>::all(client.clone()), owned.clone())
        .owns(Api::<Secret>::all(client), owned)
        .reconcile_on(changes)
        .with_config(Config::default().concurrency(limits::CONCURRENCY))
        .run(reconcile, on_error, context)
        .for_each(|result| async move {
            match result {
                Ok((tenant, _)) => tracing::trace!(%tenant, "reconciled"),
                Err(error) => warn!(%error, "a tenant was not reconciled"),
            }
        })
        .await;
}

async fn reconcile(tenant: Arc<TenantControlPlane>, context: Arc<Context>) -> Result<Action, Error> {
    let result = if tenant.metadata.deletion_timestamp.is_some() {
        cleanup::run(&tenant, &context).await
    } else if tenant.annotations().contains_key(names::PAUSED) {
        info!(tenant = tenant.name_any(), "paused");
        context.pause(&tenant);
        Ok(Action::await_change())
    } else {
        reconcile::run(&tenant, &context).await
    };
    if result.is_ok() {
        context.forget_failures(&tenant);
    }
    result
}

fn on_error(tenant: Arc<TenantControlPlane>, error: &Error, context: Arc<Context>) -> Action {
    let failures = context.count_failure(&tenant);
    let wait = limits::RETRY_MIN.saturating_mul(1 << failures.min(10)).min(limits::RETRY_MAX);
    warn!(tenant = tenant.name_any(), %error, retry_in = ?wait, "reconcile failed");
    Action::requeue(Duration::max(wait, limits::RETRY_MIN))
}
