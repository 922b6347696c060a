//! ResourceQuotas, followed into the ledger: on a cluster whose API server does not count HAMi's names this is what
//! holds a namespace to its limits.

use std::collections::{BTreeMap, BTreeSet};

use atoll_devices::pod::Amount;
use atoll_devices::quota::QuotaLimits;
use atoll_devices::{Ledger, RequestDefaults};
use atoll_scheduler::Wake;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;

/// Follows the quotas for as long as it is polled; sets `synced` once all are known.
pub async fn follow(client: kube::Client, ledger: Ledger, defaults: RequestDefaults, wake: Wake, synced: watch::Sender<bool>) {
    let mut events = watcher(Api::<ResourceQuota>::all(client), watcher::Config::default()).default_backoff().boxed();
    let mut known = BTreeSet::new();
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let changed = match event {
            Ok(Event::Apply(quota)) => set(&ledger, &defaults, &quota, &mut known),
            Ok(Event::InitApply(quota)) => {
                listed.insert(key(&quota));
                set(&ledger, &defaults, &quota, &mut known)
            }
            Ok(Event::Delete(quota)) => forget(&ledger, &key(&quota), &mut known),
            Ok(Event::Init) => {
                listed.clear();
                false
            }
            Ok(Event::InitDone) => {
                let gone: Vec<_> = known.difference(&listed).cloned().collect();
                let changed = gone.iter().map(|key| forget(&ledger, key, &mut known)).fold(false, |any, one| any | one);
                synced.send_replace(true);
                changed
            }
            Err(error) => {
                tracing::warn!(%error, "watch of resource quotas");
                false
            }
        };
        if changed {
            wake.wake();
        }
    }
}

type Key = (String, String);

fn key(quota: &ResourceQuota) -> Key {
    (quota.metadata.namespace.clone().unwrap_or_default(), quota.metadata.name.clone().unwrap_or_default())
}

fn set(ledger: &Ledger, defaults: &RequestDefaults, quota: &ResourceQuota, known: &mut BTreeSet<Key>) -> bool {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    let hard: BTreeMap<String, Amount> =
        hard.into_iter().flatten().map(|(name, quantity)| (name.clone(), Amount::Text(quantity.0.clone()))).collect();
    let limits = QuotaLimits::of_hard(&hard, defaults);
    let key = key(quota);
    if limits == QuotaLimits::default() {
        return forget(ledger, &key, known);
    }
    let changed = ledger.set_quota(&key.0, &key.1, Some(limits));
    known.insert(key);
    changed
}

fn forget(ledger: &Ledger, key: &Key, known: &mut BTreeSet<Key>) -> bool {
    known.remove(key) && ledger.set_quota(&key.0, &key.1, None)
}
