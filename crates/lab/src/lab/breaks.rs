//! Test 7: each way in which the seam can break is named, harms nobody else, and heals.

mod cuts;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;

use super::processes::{self, Process};
use super::setup::WEBHOOK_SECONDS;
use super::{Lab, pods};
use cuts::{CUTS, Cut};

const NAMESPACE: &str = "lab-breaks";
/// What a GPU Pod of this test asks for.
const SLICE: [(&str, u64); 2] = [("gpu", 1), ("gpumem", 100)];
/// The webhook's timeout; a refusal comes within it.
const REFUSED_WITHIN: Duration = Duration::from_secs(WEBHOOK_SECONDS as u64);
/// After a cut's end.
const HEALED_WITHIN: Duration = Duration::from_secs(5);
/// Between two Pods that are tried.
const PAUSE: Duration = Duration::from_millis(100);

pub async fn run(lab: &Lab) -> Result<String, String> {
    let outcome = cut_by_cut(lab).await;
    let (a, b) = tokio::join!(pods::close(&lab.a.client, NAMESPACE), pods::close(&lab.b.client, NAMESPACE));
    let evidence = outcome?;
    a.and(b).map(|()| evidence)
}

async fn cut_by_cut(lab: &Lab) -> Result<String, String> {
    let (a, b) = tokio::try_join!(pods::open(&lab.a.client, NAMESPACE), pods::open(&lab.b.client, NAMESPACE))?;
    create(lab, &a, "steady").await.map_err(|e| format!("create a GPU Pod: {e}"))?;
    pods::running(&a, "steady").await?;
    let steady = Steady::of(lab, &a).await?;
    let mut told = Vec::new();
    let mut slowest_elsewhere = Duration::ZERO;
    for cut in &CUTS {
        let named = |why: String| format!("{}: {why}", cut.name);
        let begun = (cut.begin)(lab).await;
        let seen = match begun {
            Ok(()) => during(lab, cut, &a, &b).await,
            Err(why) => Err(why),
        };
        let kept = steady.goes_on(lab, &a).await;
        (cut.end)(lab).await.map_err(named)?;
        let ended = Instant::now();
        let seen = seen.and_then(|seen| kept.map(|()| seen)).map_err(named)?;
        let healed = heals(lab, cut, &a, ended).await.map_err(named)?;
        steady.goes_on(lab, &a).await.map_err(named)?;
        slowest_elsewhere = slowest_elsewhere.max(seen.elsewhere);
        told.push(format!(
            "{} {}× {}, slowest {:.2} s, healed in {:.2} s",
            cut.name,
            seen.refusals,
            cut.code,
            seen.slowest.as_secs_f64(),
            healed.as_secs_f64()
        ));
    }
    Ok(format!(
        "{}; a CPU Pod ran in each; the GPU Pod that ran is still process {}; tenant-b admitted a GPU Pod in each, within {} ms",
        told.join("; "),
        steady.process.pid,
        slowest_elsewhere.as_millis()
    ))
}

async fn create(lab: &Lab, api: &Api<Pod>, name: &str) -> Result<Pod, kube::Error> {
    let pod = pods::gpu_pod(&lab.image, name, "binpack", &SLICE).unwrap_or_default();
    pods::create(api, &pod).await
}

/// What was seen in one cut.
struct Seen {
    refusals: u32,
    /// The refusal that took longest.
    slowest: Duration,
    /// How long tenant-b took to admit a GPU Pod.
    elsewhere: Duration,
}

async fn during(lab: &Lab, cut: &Cut, a: &Api<Pod>, b: &Api<Pod>) -> Result<Seen, String> {
    let begun = Instant::now();
    let ((refusals, slowest), (), elsewhere, ()) =
        tokio::try_join!(refusals(lab, cut, a, begun), cpu_pod(lab, cut, a), elsewhere(lab, cut, b), (cut.check)(lab))?;
    Ok(Seen { refusals, slowest, elsewhere })
}

/// GPU Pods are refused by the cut's code word, from its first effect until it has been held long enough.
async fn refusals(lab: &Lab, cut: &Cut, api: &Api<Pod>, begun: Instant) -> Result<(u32, Duration), String> {
    let (mut count, mut slowest) = (0, Duration::ZERO);
    for number in 0.. {
        let name = format!("{}-refused-{number}", cut.slug);
        let asked = Instant::now();
        let answer = create(lab, api, &name).await;
        let took = asked.elapsed();
        match answer {
            // The cut comes through when what it ends has ended.
            Ok(_) if count == 0 && begun.elapsed() < pods::PATIENCE => {
                api.delete(&name, &DeleteParams::default()).await.map_err(|e| format!("delete Pod {name}: {e}"))?;
            }
            Ok(_) => return Err("a GPU Pod is admitted".to_owned()),
            Err(kube::Error::Api(status)) if pods::names_cause(&status, cut.code) => {
                if took > REFUSED_WITHIN {
                    return Err(format!("a GPU Pod is refused after {:.2} s only", took.as_secs_f64()));
                }
                slowest = slowest.max(took);
                count += 1;
                if begun.elapsed() >= cut.hold {
                    break;
                }
            }
            Err(error) => return Err(format!("not refused by {}: {error:?}", cut.code)),
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok((count, slowest))
}

async fn cpu_pod(lab: &Lab, cut: &Cut, api: &Api<Pod>) -> Result<(), String> {
    let name = format!("{}-cpu", cut.slug);
    pods::create(api, &pods::cpu_pod(&lab.image, &name)?).await.map_err(|e| format!("create a CPU Pod: {e}"))?;
    pods::running(api, &name).await.map(drop)
}

/// Tenant-b notices nothing. Answers how long it took to admit a GPU Pod.
async fn elsewhere(lab: &Lab, cut: &Cut, api: &Api<Pod>) -> Result<Duration, String> {
    let asked = Instant::now();
    create(lab, api, cut.slug).await.map_err(|e| format!("tenant-b refuses a GPU Pod: {e}"))?;
    let took = asked.elapsed();
    pods::running(api, cut.slug).await.map_err(|e| format!("tenant-b: {e}"))?;
    Ok(took)
}

/// A GPU Pod is admitted again soon, and runs. Answers how soon.
async fn heals(lab: &Lab, cut: &Cut, api: &Api<Pod>, ended: Instant) -> Result<Duration, String> {
    let name = format!("{}-healed", cut.slug);
    let healed = loop {
        let answer = create(lab, api, &name).await;
        let took = ended.elapsed();
        match answer {
            Ok(_) if took <= HEALED_WITHIN => break took,
            Ok(_) => return Err(format!("healed after {:.2} s only", took.as_secs_f64())),
            Err(error) if took > HEALED_WITHIN => {
                return Err(format!("not healed after {:.2} s: {error}", took.as_secs_f64()));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    };
    pods::running(api, &name).await?;
    Ok(healed)
}

/// A GPU Pod that ran before the first cut, as it was then.
struct Steady {
    container: (String, i32),
    process: Process,
}

impl Steady {
    async fn of(lab: &Lab, api: &Api<Pod>) -> Result<Steady, String> {
        let process = work(lab)?.pop().ok_or("the GPU Pod has no process")?;
        Ok(Steady { container: container(api).await?, process })
    }

    async fn goes_on(&self, lab: &Lab, api: &Api<Pod>) -> Result<(), String> {
        let now = container(api).await?;
        if now != self.container {
            return Err(format!("the container that ran was {:?} and is {now:?}", self.container));
        }
        if work(lab)?.contains(&self.process) { Ok(()) } else { Err(format!("process {} has ended", self.process.pid)) }
    }
}

/// The processes of GPU Pods on tenant-a's worker, by id.
fn work(lab: &Lab) -> Result<Vec<Process>, String> {
    let all = processes::of_worker(lab, &lab.a)?;
    Ok(all.into_iter().filter(|p| p.runs(&["example", "gpu-work"])).collect())
}

/// Id and restarts of the container that runs.
async fn container(api: &Api<Pod>) -> Result<(String, i32), String> {
    let pod = api.get("steady").await.map_err(|e| e.to_string())?;
    let status = pod.status.and_then(|s| s.container_statuses).and_then(|c| c.into_iter().next());
    let status = status.filter(|s| s.state.as_ref().is_some_and(|s| s.running.is_some())).ok_or("the GPU Pod does not run")?;
    Ok((status.container_id.unwrap_or_default(), status.restart_count))
}
