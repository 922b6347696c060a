//! The lab: two tenants on one machine, then tests of what the product promises.
//!
//! Each refusal is paired with the same call succeeding where it should.

mod apart;
mod breaks;
mod fraction;
mod netns;
mod overcommit;
mod plane;
mod planes;
mod pods;
mod processes;
mod quota;
mod report;
mod seam;
mod setup;
mod wait;
mod webhooks;
mod workers;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use kube::Client;

use crate::platform::Dirs;

pub use report::{Outcome, Report, Verdict};
pub use setup::{Options, run};
pub use wait::eventually;

/// A tenant of the lab.
pub struct Tenant {
    pub name: String,
    /// Its administrator's client.
    pub client: Client,
    /// Its administrator's kubeconfig, as text.
    pub kubeconfig: String,
    /// Its load-balancer address.
    pub address: Ipv4Addr,
}

/// What a test works on.
pub struct Lab {
    pub dirs: Dirs,
    pub management: Client,
    pub a: Tenant,
    pub b: Tenant,
    /// Name of Atoll's own image.
    pub image: String,
}

/// Answers the one line of evidence, or why it failed.
type Run = for<'a> fn(&'a Lab) -> BoxFuture<'a, Result<String, String>>;

/// One test.
struct Test {
    number: u8,
    name: &'static str,
    run: Run,
}

/// All tests, in their order. The last one deletes a tenant.
const TESTS: [Test; 8] = [
    Test { number: 1, name: "own control planes", run: |lab| Box::pin(planes::run(lab)) },
    Test { number: 2, name: "own workers", run: |lab| Box::pin(workers::run(lab)) },
    Test { number: 3, name: "the seam", run: |lab| Box::pin(seam::run(lab)) },
    Test { number: 4, name: "a fraction", run: |lab| Box::pin(fraction::run(lab)) },
    Test { number: 5, name: "no over-commit", run: |lab| Box::pin(overcommit::run(lab)) },
    Test { number: 6, name: "quota", run: |lab| Box::pin(quota::run(lab)) },
    Test { number: 7, name: "the seam breaks", run: |lab| Box::pin(breaks::run(lab)) },
    Test { number: 8, name: "data apart", run: |lab| Box::pin(apart::run(lab)) },
];

/// A test that takes longer has failed.
const TEST_TIME_MAX: Duration = Duration::from_secs(180);

async fn run_tests(lab: &Lab, mut print: impl FnMut(&Outcome)) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(TESTS.len());
    for test in TESTS {
        let start = Instant::now();
        let (result, evidence) = match tokio::time::timeout(TEST_TIME_MAX, (test.run)(lab)).await {
            Ok(Ok(evidence)) => (Verdict::Passed, evidence),
            Ok(Err(why)) => (Verdict::Failed, why),
            Err(_) => (Verdict::Failed, format!("not finished within {} s", TEST_TIME_MAX.as_secs())),
        };
        let outcome =
            Outcome { number: test.number, name: test.name, result, evidence, seconds: report::rounded(start.elapsed()) };
        print(&outcome);
        outcomes.push(outcome);
    }
    outcomes
}
