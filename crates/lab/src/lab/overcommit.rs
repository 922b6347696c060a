//! Test 5: whatever happens to the scheduler, no card is given away twice.

mod hold;
mod ledger;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, WatchEvent, WatchParams};

use super::pods;
use super::{Lab, eventually};
use ledger::{Card, Ledger};

const NAMESPACE: &str = "lab-overcommit";
const PODS: u64 = 40;
/// Of tenant-a's cards, each.
const CARD: Card = Card { memory_mib: 81_920, cores: 100, slots: 10 };
/// Pod i asks for `SMALLEST_MIB + i * STEP_MIB`: any eight fit on a card, no nine do.
const SMALLEST_MIB: u64 = 9200;
const STEP_MIB: u64 = 25;
const CORES: u64 = 10;
/// Two cards with eight each.
const FIT: usize = 16;
/// Bound before the scheduler is killed for the first time.
const BEFORE_KILL: usize = 10;
/// How long a killed scheduler may take until all is placed again: its restart waits.
const PATIENCE: Duration = Duration::from_secs(60);
const REPLACED_WITHIN: Duration = Duration::from_secs(2);
const WATCH_SECONDS: u32 = 280;

type Shared = Arc<Mutex<Ledger>>;

pub async fn run(lab: &Lab) -> Result<String, String> {
    let outcome = no_overcommit(lab).await;
    pods::close(&lab.a.client, NAMESPACE).await?;
    hold::remove(lab).await?;
    outcome
}

fn read(shared: &Shared) -> MutexGuard<'_, Ledger> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn no_overcommit(lab: &Lab) -> Result<String, String> {
    let api = pods::open(&lab.a.client, NAMESPACE).await?;
    let webhook = hold::install(lab, NAMESPACE).await?;
    let shared = Shared::default();
    let watcher = tokio::spawn(watch(api.clone(), shared.clone()));
    let outcome = scenario(lab, &api, &webhook, &shared).await;
    watcher.abort();
    let ledger = read(&shared);
    if let Some(why) = &ledger.violation {
        return Err(why.clone());
    }
    let took = outcome?;
    Ok(format!(
        "{FIT} of {PODS} Pods run, none restarted, {} CardInsufficientMemory; scheduler killed after {BEFORE_KILL} were bound and while a bind \
         was held; no card over at any of {} revisions; the next placed {} ms after a removal",
        PODS as usize - FIT,
        ledger.revisions,
        took.as_millis()
    ))
}

/// Reads every revision of every Pod, from before the first.
async fn watch(api: Api<Pod>, shared: Shared) {
    let start = match api.list(&ListParams::default()).await {
        Ok(list) => list.metadata.resource_version.unwrap_or_default(),
        Err(error) => return read(&shared).fail(format!("list before the watch: {error}")),
    };
    let stream = match api.watch(&WatchParams::default().timeout(WATCH_SECONDS), &start).await {
        Ok(stream) => stream.boxed(),
        Err(error) => return read(&shared).fail(format!("begin the watch: {error}")),
    };
    tokio::pin!(stream);
    loop {
        let event = stream.try_next().await;
        let mut ledger = read(&shared);
        match event {
            Ok(Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod))) => ledger.saw(&pod, CARD, Instant::now()),
            Ok(Some(WatchEvent::Deleted(pod))) => ledger.lost(&pod, Instant::now()),
            Ok(Some(WatchEvent::Bookmark(_))) => {}
            Ok(Some(WatchEvent::Error(status))) => return ledger.fail(format!("the watch failed: {status:?}")),
            Ok(None) => return ledger.fail("the watch ended early".to_owned()),
            Err(error) => return ledger.fail(format!("the watch failed: {error}")),
        }
    }
}

async fn scenario(lab: &Lab, api: &Api<Pod>, webhook: &hold::Webhook, shared: &Shared) -> Result<Duration, String> {
    let wanted: Vec<Pod> = (0..PODS)
        .map(|i| {
            let limits = [("gpu", 1), ("gpumem", SMALLEST_MIB + i * STEP_MIB), ("gpucores", CORES)];
            pods::gpu_pod(&lab.image, &format!("part-{i:02}"), "binpack", &limits)
        })
        .collect::<Result<_, _>>()?;
    let create = join_all(wanted.iter().map(|pod| pods::create(api, pod)));
    let kill = async {
        eventually("ten are bound", PATIENCE, || async { at_least(read(shared).bound(), BEFORE_KILL) }).await?;
        hold::kill_scheduler(lab)
    };
    let (created, killed) = tokio::join!(create, kill);
    for outcome in created {
        outcome.map_err(|e| format!("one of the Pods is not admitted: {e}"))?;
    }
    let first = killed?;
    settled(shared).await?;
    // The next bind is one that the webhook holds: place is made for it.
    webhook.hold().await?;
    delete_one(api, shared).await?;
    webhook.holds().await?;
    let second = hold::kill_scheduler(lab)?;
    webhook.release().await?;
    if first == second {
        return Err(format!("the scheduler's process {first} was not replaced"));
    }
    settled(shared).await?;
    waiting(lab, shared).await?;
    delete_one(api, shared).await?;
    settled(shared).await?;
    counted(api).await?;
    let ledger = read(shared);
    let removed = ledger.removed_at.ok_or("no Pod was seen to go")?;
    let placed = ledger.bound_at.values().max().ok_or("no Pod was bound")?;
    let took = placed.saturating_duration_since(removed);
    if took > REPLACED_WITHIN {
        return Err(format!("the next Pod was placed {} ms after the removal", took.as_millis()));
    }
    Ok(took)
}

/// Exactly as many run as fit, none of them ever restarted; no other has a node.
async fn counted(api: &Api<Pod>) -> Result<(), String> {
    let listed = api.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
    let runs = |pod: &&Pod| {
        let statuses = pod.status.as_ref().and_then(|s| s.container_statuses.as_deref()).unwrap_or_default();
        let whole = |s: &ContainerStatus| s.restart_count == 0 && s.state.as_ref().is_some_and(|s| s.running.is_some());
        pods::phase(pod) == "Running" && !statuses.is_empty() && statuses.iter().all(whole)
    };
    let running = listed.iter().filter(runs).count();
    let placed = listed.iter().filter(|p| p.spec.as_ref().is_some_and(|s| s.node_name.is_some())).count();
    if (running, placed) == (FIT, FIT) { Ok(()) } else { Err(format!("{running} run without a restart, {placed} have a node")) }
}

fn at_least(found: usize, wanted: usize) -> Result<(), String> {
    if found >= wanted { Ok(()) } else { Err(format!("{found} are")) }
}

/// Waits until as many run as fit.
async fn settled(shared: &Shared) -> Result<(), String> {
    eventually(&format!("{FIT} Pods run"), PATIENCE, || async {
        let ledger = read(shared);
        let (bound, running) = (ledger.bound(), ledger.running().len());
        if bound == FIT && running == FIT { Ok(()) } else { Err(format!("{bound} are bound, {running} run")) }
    })
    .await
}

/// Deletes one that runs and waits until it is gone.
async fn delete_one(api: &Api<Pod>, shared: &Shared) -> Result<(), String> {
    let name = read(shared).running().first().cloned().ok_or("no Pod runs")?;
    api.delete(&name, &DeleteParams::default()).await.map_err(|e| format!("delete {name}: {e}"))?;
    eventually(&format!("{name} is gone"), PATIENCE, || async {
        if read(shared).running().contains(&name) { Err("it is still there".to_owned()) } else { Ok(()) }
    })
    .await
}

/// All others are Pending and their events say why.
async fn waiting(lab: &Lab, shared: &Shared) -> Result<(), String> {
    let api: Api<Pod> = Api::namespaced(lab.a.client.clone(), NAMESPACE);
    let events: Api<Event> = Api::namespaced(lab.a.client.clone(), NAMESPACE);
    eventually("those that do not fit say CardInsufficientMemory", PATIENCE, || async {
        let listed = api.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let told = events.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let running = read(shared).running().clone();
        for pod in listed {
            let name = pod.metadata.name.clone().unwrap_or_default();
            if running.contains(&name) {
                continue;
            }
            let said = told.iter().any(|e| {
                e.involved_object.name.as_deref() == Some(&name)
                    && e.message.as_deref().is_some_and(|m| m.contains("CardInsufficientMemory"))
            });
            if pods::phase(&pod) != "Pending" || !said {
                return Err(format!("{name} is {}, event seen: {said}", pods::phase(&pod)));
            }
        }
        Ok(())
    })
    .await
}
