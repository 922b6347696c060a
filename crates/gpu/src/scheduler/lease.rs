//! The Lease whose holder alone places.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use crate::error::{Error, Result, call};
use crate::limits;

/// Which Lease, and as whom.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The holder. A Pod's name: a container that is started again after a kill takes its own Lease up at once, and in one
    /// Pod the old process is gone before the new one starts.
    pub identity: String,
}

impl LeaseOptions {
    /// HAMi's Lease.
    pub fn of_identity(identity: impl Into<String>) -> Self {
        Self { namespace: "kube-system".to_owned(), name: "hami-scheduler".to_owned(), identity: identity.into() }
    }
}

/// Another holder's Lease as it was seen last: it has run out when nothing changed for its own duration, by this
/// process's clock, so that clocks need not agree.
#[derive(Debug)]
struct Seen {
    version: Option<String>,
    since: Instant,
}

/// A Lease that this process holds or tries for.
pub struct Held {
    options: LeaseOptions,
    api: Api<Lease>,
}

impl Held {
    /// Waits until the Lease is this process's.
    pub async fn acquire(client: kube::Client, options: LeaseOptions) -> Self {
        let api = Api::namespaced(client, &options.namespace);
        let held = Self { options, api };
        let mut seen: Option<Seen> = None;
        let mut told = false;
        loop {
            match held.attempt(&mut seen).await {
                Ok(true) => return held,
                Ok(false) if !told => {
                    tracing::info!(lease = held.options.name, "another process holds the lease; waiting");
                    told = true;
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "cannot read or write the lease"),
            }
            tokio::time::sleep(limits::LEASE_RETRY_PERIOD).await;
        }
    }

    /// Renews the Lease for as long as it is polled; returns when it is lost.
    pub async fn keep(&self) -> Error {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(limits::LEASE_RETRY_PERIOD).await;
            match self.attempt(&mut None).await {
                Ok(true) => renewed = Instant::now(),
                Ok(false) => return Error::LeaseLost(self.options.name.clone()),
                Err(error) => tracing::warn!(%error, "cannot renew the lease"),
            }
            if renewed.elapsed() > limits::LEASE_RENEW_DEADLINE {
                return Error::LeaseLost(self.options.name.clone());
            }
        }
    }

    /// Gives the Lease back, so that a successor need not wait for it to run out.
    pub async fn release(self) {
        let given_back = async {
            let mut lease = call(self.api.get(&self.options.name)).await?;
            if holder(&lease) == Some(self.options.identity.as_str())
                && let Some(spec) = &mut lease.spec
            {
                spec.holder_identity = None;
                call(self.api.replace(&self.options.name, &PostParams::default(), &lease)).await?;
            }
            Ok::<(), Error>(())
        };
        if let Err(error) = given_back.await {
            tracing::debug!(%error, "the lease was not given back");
        }
    }

    /// Takes or renews the Lease if it is free, run out or already this process's.
    async fn attempt(&self, seen: &mut Option<Seen>) -> Result<bool> {
        let found = call(self.api.get_opt(&self.options.name)).await?;
        let mine = found.as_ref().and_then(holder).is_none_or(|holder| holder == self.options.identity);
        if !mine && !found.as_ref().is_some_and(|lease| has_run_out(lease, seen, Instant::now())) {
            return Ok(false);
        }
        let written = match found {
            None => call(self.api.create(&PostParams::default(), &self.lease(None))).await,
            Some(lease) => {
                let name = &self.options.name;
                call(self.api.replace(name, &PostParams::default(), &self.lease(Some(lease)))).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            // Somebody was faster; whether that was a rival is seen at the next look.
            Err(error) if error.is_status(409) => {
                let now = call(self.api.get(&self.options.name)).await?;
                Ok(holder(&now) == Some(self.options.identity.as_str()))
            }
            Err(error) => Err(error),
        }
    }

    fn lease(&self, old: Option<Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let mut lease = old.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.options.name.clone()), ..ObjectMeta::default() },
            ..Lease::default()
        });
        let same = holder(&lease) == Some(self.options.identity.as_str());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if !same {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(-1).saturating_add(1));
        }
        spec.holder_identity = Some(self.options.identity.clone());
        spec.lease_duration_seconds = i32::try_from(limits::LEASE_DURATION.as_secs()).ok();
        spec.renew_time = Some(now);
        lease
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

fn has_run_out(lease: &Lease, seen: &mut Option<Seen>, now: Instant) -> bool {
    let version = lease.metadata.resource_version.clone();
    let duration = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
    let duration = duration.map_or(limits::LEASE_DURATION, Duration::from_secs);
    match seen {
        Some(seen) if seen.version == version => now.duration_since(seen.since) > duration,
        _ => {
            *seen = Some(Seen { version, since: now });
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(version: &str) -> Lease {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "l", "resourceVersion": version},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15}
        }))
        .unwrap()
    }

    #[test]
    fn a_lease_has_run_out_when_nothing_changed_for_its_duration() {
        let (mut seen, now) = (None, Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        assert!(!has_run_out(&lease("1"), &mut seen, now));
        assert!(!has_run_out(&lease("2"), &mut seen, after(14)));
        assert!(!has_run_out(&lease("2"), &mut seen, after(28)));
        assert!(has_run_out(&lease("2"), &mut seen, after(30)));
    }
}
