//! Puts the lab up, runs its tests and takes it down again.

use std::io::{IsTerminal, Write};
use std::net::SocketAddrV4;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use atoll_gpu::ManifestOptions;
use kube::Client;
use tokio::sync::{oneshot, watch};

use super::report::{Report, Verdict, rounded};
use super::{Lab, Outcome, TESTS, Tenant, run_tests, workers};
use crate::platform::{self, Dirs, Error, UpOptions, cluster, gpu, tenants};

/// The tenants and the cards of their workers.
const TENANT_A: (&str, &str) = ("tenant-a", "2xA100-80GB");
const TENANT_B: (&str, &str) = ("tenant-b", "4xT4-16GB");
/// `timeoutSeconds` of the GPU webhook in the lab.
pub(super) const WEBHOOK_SECONDS: u32 = 3;

/// What `atoll lab` is told.
pub struct Options {
    pub dirs: Dirs,
    pub up: UpOptions,
    /// Leave it running.
    pub keep: bool,
    /// Say nothing but the report.
    pub quiet: bool,
}

/// Runs the whole lab. `stop` turning true ends it early; what was made is taken down then too.
pub async fn run(options: Options, mut stop: watch::Receiver<bool>) -> Result<Report, Error> {
    let start = Instant::now();
    if !nix::unistd::geteuid().is_root() {
        return Ok(skipped("needs root for namespaces and user ids: run it with sudo"));
    }
    refuse_second(&options.dirs)?;
    let steps = Steps { quiet: options.quiet };
    let (end, ended) = watch::channel(false);
    let (ready, is_ready) = oneshot::channel();
    let (dirs, up) = (options.dirs.clone(), options.up.clone());
    let mut supervisor = tokio::spawn(async move {
        let told = |p: &platform::Platform| drop(ready.send(p.management.clone()));
        platform::up(&dirs, &up, told, ended).await
    });
    let work = async {
        let management = steps
            .step("management plane and its node agent", async {
                is_ready.await.map_err(|_| Error::Invalid("the platform did not come up".to_owned()))
            })
            .await?;
        let lab = set_up(&options, management, &steps).await?;
        let outcomes = run_tests(&lab, |outcome| steps.say(&outcome.to_string())).await;
        // The last test deletes it.
        if options.keep && cluster::tenant_status(&lab.management, TENANT_B.0).await?.is_none() {
            set_up_tenant(&options, &lab.management, &steps, TENANT_B).await?;
        }
        Ok::<_, Error>(outcomes)
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        early = &mut supervisor => match early {
            Ok(Err(error)) => Err(error),
            _ => Err(Error::Invalid("the supervisor ended".to_owned())),
        },
        _ = stop.wait_for(|stop| *stop) => Err(Error::Invalid("interrupted".to_owned())),
    };
    let _ = end.send(true);
    if !supervisor.is_finished() {
        let _ = supervisor.await;
    }
    if options.keep && outcome.is_ok() {
        keep_running(&options)?;
        steps.say(&how_to_go_on(&options.dirs));
    } else {
        let ended = steps.step("everything down", platform::down(&options.dirs)).await;
        if let (Err(error), true) = (ended, outcome.is_ok()) {
            return Err(error);
        }
    }
    Ok(Report { tests: outcome?, seconds: rounded(start.elapsed()) })
}

/// A running or left-over platform belongs to whoever made it: the lab neither uses nor ends it.
fn refuse_second(dirs: &Dirs) -> Result<(), Error> {
    if !dirs.record().exists() {
        return Ok(());
    }
    drop(dirs.lock()?);
    let dir = dirs.root().display();
    Err(Error::Invalid(format!("{dir} holds an earlier platform: end it with 'atoll down --dir {dir}', or choose another --dir")))
}

fn skipped(why: &str) -> Report {
    let outcome = |test: super::Test| Outcome {
        number: test.number,
        name: test.name,
        result: Verdict::Skipped,
        evidence: why.to_owned(),
        seconds: 0.0,
    };
    Report { tests: TESTS.into_iter().map(outcome).collect(), seconds: 0.0 }
}

async fn set_up(options: &Options, management: Client, steps: &Steps) -> Result<Lab, Error> {
    let a = set_up_tenant(options, &management, steps, TENANT_A).await?;
    let b = set_up_tenant(options, &management, steps, TENANT_B).await?;
    for (tenant, cards) in [(&a, TENANT_A.1), (&b, TENANT_B.1)] {
        let worker = workers::node_name(tenant);
        steps.step(&format!("GPU parts of {}", tenant.name), gpu::wait_ready(&tenant.kubeconfig, &worker, cards)).await?;
    }
    Ok(Lab { dirs: options.dirs.clone(), management, a, b, image: options.up.image.clone() })
}

async fn set_up_tenant(
    options: &Options,
    management: &Client,
    steps: &Steps,
    (name, cards): (&str, &str),
) -> Result<Tenant, Error> {
    let kubeconfig = steps.step(&format!("control plane of {name}"), tenants::create(management, name)).await?;
    tenants::write_kubeconfig(&options.dirs, name, &kubeconfig)?;
    steps.step(&format!("worker of {name} with {cards}"), tenants::add_worker(management, name, Some(cards), false)).await?;
    let gpu = ManifestOptions { webhook_timeout_seconds: WEBHOOK_SECONDS, ..ManifestOptions::default() };
    gpu::install(&kubeconfig, &options.up.image, &gpu).await?;
    let status = cluster::tenant_status(management, name).await?.unwrap_or_default();
    let endpoint = status["controlPlaneEndpoint"].as_str().and_then(|e| e.parse::<SocketAddrV4>().ok());
    let endpoint = endpoint.ok_or_else(|| Error::Invalid(format!("tenant {name} has no address in its status: {status}")))?;
    let client = cluster::client_of(&kubeconfig).await?;
    Ok(Tenant { name: name.to_owned(), client, kubeconfig, address: *endpoint.ip() })
}

/// Hands the platform over to a supervisor of its own, which adopts what runs.
fn keep_running(options: &Options) -> Result<(), Error> {
    let program = std::env::current_exe().map_err(|e| Error::io("cannot find this program", e))?;
    let path = options.dirs.logs().join("supervisor.log");
    let log = std::fs::File::create(&path).map_err(|e| Error::io(format!("cannot make {}", path.display()), e))?;
    let up = &options.up;
    Command::new(program)
        .arg("up")
        .arg(format!("--dir={}", options.dirs.root().display()))
        .arg(format!("--port={}", up.port))
        .arg(format!("--platform-cidr={}", up.platform_cidr))
        .arg(format!("--pool={}", up.pool))
        .arg(format!("--user-ids={}-{}", up.user_ids.0, up.user_ids.1))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0)
        .spawn()
        .map(drop)
        .map_err(|e| Error::io("cannot start the supervisor that keeps it running", e))
}

fn how_to_go_on(dirs: &Dirs) -> String {
    let root = dirs.root().display();
    format!(
        "\nIt keeps running. Go on with:\n  \
         kubectl --kubeconfig {root}/tenant-a.kubeconfig get nodes,pods -A\n  \
         kubectl --kubeconfig {root}/tenant-b.kubeconfig get nodes,pods -A\n  \
         kubectl --kubeconfig {root}/management.kubeconfig get tenantcontrolplanes,pods -A\n  \
         atoll status --dir {root}\n  \
         atoll down --dir {root}"
    )
}

/// Prints steps as they happen, each with its time.
struct Steps {
    quiet: bool,
}

impl Steps {
    fn say(&self, line: &str) {
        if !self.quiet {
            println!("{line}");
        }
    }

    async fn step<T>(&self, what: &str, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let start = Instant::now();
        let spinning = !self.quiet && std::io::stdout().is_terminal();
        tokio::pin!(work);
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        let mut frame = 0;
        let result = loop {
            tokio::select! {
                result = &mut work => break result,
                _ = ticks.tick(), if spinning => {
                    frame = (frame + 1) % FRAMES.len();
                    print!("\r{} {what} {:.1} s", FRAMES[frame], start.elapsed().as_secs_f64());
                    let _ = std::io::stdout().flush();
                }
            }
        };
        let mark = if result.is_ok() { "✓" } else { "✗" };
        let clear = if spinning { "\r\x1b[K" } else { "" };
        self.say(&format!("{clear}{mark} {what} ({:.2} s)", start.elapsed().as_secs_f64()));
        result
    }
}

const FRAMES: [char; 4] = ['|', '/', '-', '\\'];
