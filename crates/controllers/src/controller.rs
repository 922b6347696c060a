//! The one loop that all controllers share: key in, plan, carry out, wait for the caches to catch up.

use crate::action::Action;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::events::Events;
use crate::executor::{execute, said};
use crate::informer::{Cached, Informer, Observer, Written};
use crate::key::Key;
use crate::limits;
use crate::queue::WorkQueue;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;

type PlanFn = Box<dyn Fn(&Key, Timestamp) -> Vec<Action> + Send + Sync>;
type AskFn = Box<dyn Fn(Key) -> BoxFuture<'static, Result<Vec<Action>>> + Send + Sync>;

/// How a controller comes from a key to actions.
pub enum Work {
    /// From its caches alone.
    Plan(PlanFn),
    /// It has to ask someone first.
    Ask(AskFn),
}

/// What to do about a failed write besides trying again (a condition, for example).
type OnFailure = Box<dyn Fn(&Key, &str, Timestamp) -> Vec<Action> + Send + Sync>;

/// One control loop, ready to run.
pub struct Controller {
    name: &'static str,
    client: kube::Client,
    events: Events,
    queue: Arc<WorkQueue>,
    reads: Vec<Arc<dyn Observer>>,
    work: Work,
    on_failure: Option<OnFailure>,
}

/// A control loop that is being put together.
pub struct Builder {
    /// Its queue, for handlers that need more than `on`.
    pub queue: Arc<WorkQueue>,
    /// Its own client.
    pub client: kube::Client,
    name: &'static str,
    events: Events,
    reads: Vec<Arc<dyn Observer>>,
    on_failure: Option<OnFailure>,
}

impl Builder {
    /// A loop called `name` that acts as `user`.
    pub fn new(env: &Env, name: &'static str, user: &str) -> Self {
        let (client, events) = (env.client(user), env.events.named(name));
        Self { queue: Arc::default(), client, name, events, reads: Vec::new(), on_failure: None }
    }

    /// Objects of this kind are read; each change puts the keys that `keys` names into the queue.
    pub fn on<K: Cached>(mut self, informer: &Arc<Informer<K>>, keys: impl Fn(&K) -> Vec<Key> + Send + Sync + 'static) -> Self {
        informer.feed(&self.queue, keys);
        self.reads.push(informer.clone());
        self
    }

    /// Each object of this kind is a key.
    pub fn each<K: Cached>(self, informer: &Arc<Informer<K>>) -> Self {
        self.on(informer, |object| vec![Key::of(object.meta())])
    }

    /// Objects of this kind are read but wake nobody.
    pub fn reads<K: Cached>(mut self, informer: &Arc<Informer<K>>) -> Self {
        self.reads.push(informer.clone());
        self
    }

    /// What to write after a failure.
    pub fn on_failure(mut self, plan: impl Fn(&Key, &str, Timestamp) -> Vec<Action> + Send + Sync + 'static) -> Self {
        self.on_failure = Some(Box::new(plan));
        self
    }

    /// A loop that plans from its caches.
    pub fn plan(self, plan: impl Fn(&Key, Timestamp) -> Vec<Action> + Send + Sync + 'static) -> Controller {
        self.build(Work::Plan(Box::new(plan)))
    }

    /// A loop that asks before it plans.
    pub fn ask<F>(self, ask: impl Fn(Key) -> F + Send + Sync + 'static) -> Controller
    where
        F: Future<Output = Result<Vec<Action>>> + Send + 'static,
    {
        self.build(Work::Ask(Box::new(move |key| Box::pin(ask(key)))))
    }

    fn build(self, work: Work) -> Controller {
        let Builder { queue, client, name, events, reads, on_failure } = self;
        Controller { name, client, events, queue, reads, work, on_failure }
    }
}

impl Controller {
    /// Runs for ever; ends when dropped.
    pub async fn run(self) {
        for informer in &self.reads {
            // The sender lives in the informer, which `self` holds.
            let _ = informer.synced().wait_for(|synced| *synced).await;
        }
        let mut in_flight = FuturesUnordered::new();
        loop {
            tokio::select! {
                key = self.queue.next(), if in_flight.len() < limits::KEYS_IN_FLIGHT_MAX => in_flight.push(self.round(key)),
                Some(()) = in_flight.next() => {}
            }
        }
    }

    async fn round(&self, key: Key) {
        let failure = match self.actions(&key).await {
            Err(error) => Some(error),
            Ok(actions) => {
                let outcome = execute(&self.client, &self.events, actions).await;
                self.observe(&outcome.written).await;
                if let Some(wait) = outcome.after {
                    self.queue.add_after(key.clone(), wait);
                }
                if let (Some(error), Some(plan)) = (&outcome.failure, &self.on_failure)
                    && !error.is_stale()
                {
                    let told = execute(&self.client, &self.events, plan(&key, &said(error), Timestamp::now())).await;
                    self.observe(&told.written).await;
                }
                outcome.failure
            }
        };
        match failure {
            None => self.queue.done(&key),
            Some(error) => {
                let failures = self.queue.failed(&key);
                if error.is_stale() || matches!(error, Error::Unfinished(_)) {
                    tracing::debug!(controller = self.name, %key, failures, %error, "trying again");
                } else {
                    tracing::warn!(controller = self.name, %key, failures, error = said(&error), "trying again");
                }
            }
        }
    }

    async fn actions(&self, key: &Key) -> Result<Vec<Action>> {
        match &self.work {
            Work::Plan(plan) => Ok(plan(key, Timestamp::now())),
            Work::Ask(ask) => ask(key.clone()).await,
        }
    }

    /// A plan made before the caches show the last plan's writes would make them again.
    async fn observe(&self, written: &[Written]) {
        let all = async {
            for informer in &self.reads {
                let mut changes = informer.changes();
                while !written.iter().all(|w| informer.has_seen(w)) {
                    if changes.changed().await.is_err() {
                        return;
                    }
                }
            }
        };
        if !written.is_empty() && tokio::time::timeout(limits::OBSERVE_TIMEOUT, all).await.is_err() {
            tracing::debug!(controller = self.name, "caches do not show the last writes yet");
        }
    }
}
