//! Probes of containers: by command, HTTP and TCP.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::time::{Instant, sleep};

pub mod action;
pub mod http;

/// Which of a container's three probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl ProbeKind {
    /// As in the kubelet's events.
    pub fn word(self) -> &'static str {
        match self {
            ProbeKind::Startup => "Startup",
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
        }
    }

    /// The container's probe of this kind.
    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            ProbeKind::Startup => container.startup_probe.as_ref(),
            ProbeKind::Liveness => container.liveness_probe.as_ref(),
            ProbeKind::Readiness => container.readiness_probe.as_ref(),
        }
    }
}

/// When and how often a probe runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub initial_delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
    pub success_threshold: u32,
    pub failure_threshold: u32,
}

impl Schedule {
    /// The schedule of a probe with Kubernetes' defaults.
    pub fn of(probe: &Probe) -> Schedule {
        let number =
            |value: Option<i32>, default: u32| value.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default);
        Schedule {
            initial_delay: Duration::from_secs(u64::from(probe.initial_delay_seconds.unwrap_or(0).max(0).unsigned_abs())),
            period: Duration::from_secs(u64::from(number(probe.period_seconds, 10))),
            timeout: Duration::from_secs(u64::from(number(probe.timeout_seconds, 1))),
            success_threshold: number(probe.success_threshold, 1),
            failure_threshold: number(probe.failure_threshold, 3),
        }
    }
}

/// What a series of probes says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has become good.
    Passed,
    /// It has become bad.
    Failed,
}

/// Counts results; a pure state machine.
#[derive(Debug)]
pub struct Series {
    schedule: Schedule,
    successes: u32,
    failures: u32,
    verdict: Option<Verdict>,
}

impl Series {
    /// A series that has seen nothing.
    pub fn new(schedule: Schedule) -> Series {
        Series { schedule, successes: 0, failures: 0, verdict: None }
    }

    /// Takes one result; the verdict if it changed.
    pub fn take(&mut self, good: bool) -> Option<Verdict> {
        let verdict = if good {
            self.failures = 0;
            self.successes += 1;
            (self.successes >= self.schedule.success_threshold).then_some(Verdict::Passed)
        } else {
            self.successes = 0;
            self.failures += 1;
            (self.failures >= self.schedule.failure_threshold).then_some(Verdict::Failed)
        };
        if verdict.is_none() || verdict == self.verdict {
            return None;
        }
        self.verdict = verdict;
        verdict
    }
}

/// First pause of a probe that waits for a program to come up.
const EARLY_PAUSE: Duration = Duration::from_millis(50);

/// Probes for ever. `check` is one probe; `report` gets each failure's text and each change of the verdict.
///
/// A program is up long before the second period: until its first success a startup or readiness probe is tried again
/// after a short, growing pause. Such an early failure counts once per period only, so thresholds keep their meaning.
pub async fn run<C, F, R, G>(kind: ProbeKind, schedule: Schedule, check: C, report: R)
where
    C: Fn() -> F,
    F: Future<Output = Result<(), String>>,
    R: Fn(Option<Verdict>, Option<String>) -> G,
    G: Future<Output = ()>,
{
    sleep(schedule.initial_delay).await;
    let mut series = Series::new(schedule);
    let mut early = kind != ProbeKind::Liveness;
    let mut pause = EARLY_PAUSE;
    let mut next_count = Instant::now() + schedule.period;
    loop {
        let result = match tokio::time::timeout(schedule.timeout, check()).await {
            Ok(result) => result,
            Err(_) => Err(format!("probe timed out after {}s", schedule.timeout.as_secs())),
        };
        let good = result.is_ok();
        early &= !good;
        let counts = !early || Instant::now() >= next_count;
        if counts {
            next_count = Instant::now() + schedule.period;
            let verdict = series.take(good);
            if verdict.is_some() || result.is_err() {
                report(verdict, result.err()).await;
            }
        }
        if early {
            sleep(pause.min(schedule.period)).await;
            pause = pause * 3 / 2;
        } else {
            sleep(schedule.period).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn schedule(failures: u32) -> Schedule {
        Schedule::of(&Probe { failure_threshold: Some(failures as i32), ..Probe::default() })
    }

    #[test]
    fn thresholds_count_in_a_row_and_verdicts_do_not_repeat() {
        let mut series = Series::new(schedule(2));
        let seen: Vec<_> = [true, true, false, true, false, false, false, true].map(|good| series.take(good)).to_vec();
        let expected = [Some(Verdict::Passed), None, None, None, None, Some(Verdict::Failed), None, Some(Verdict::Passed)];
        assert_eq!(seen, expected);
    }

    #[tokio::test]
    async fn a_program_that_comes_up_is_seen_at_once() {
        let tries = Cell::new(0);
        let start = Instant::now();
        let check = || {
            tries.set(tries.get() + 1);
            let up = start.elapsed() > Duration::from_millis(180);
            async move { if up { Ok(()) } else { Err("refused".to_owned()) } }
        };
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let probing = run(ProbeKind::Readiness, schedule(3), check, |verdict, error| {
            tell.send((verdict, error, start.elapsed())).unwrap();
            std::future::ready(())
        });
        let (verdict, error, after) = tokio::select! {
            _ = probing => unreachable!(),
            told = told.recv() => told.unwrap(),
        };
        assert_eq!((verdict, error), (Some(Verdict::Passed), None));
        assert!(after < Duration::from_secs(1), "{after:?}");
    }
}
