//! Keeping up with a resource without a task of its own.
//!
//! What authorization knows of roles, bindings and Pods is brought up to date when it is asked, from the store's event log in
//! memory: a request sees every write that was acknowledged before it came, and an idle server does nothing.

use std::sync::Arc;

use futures::FutureExt;
use serde_json::Value;

use crate::cluster::{Change, Changes, Cluster, Resource};
use crate::error::Result;

/// What happened since the last look.
#[derive(Debug)]
pub(super) enum News {
    /// Everything there is; what was known before is void.
    All(Vec<Arc<Value>>),
    Changed(Change),
}

/// A cursor over one resource.
pub(super) struct Follower {
    resource: Resource<'static>,
    changes: Option<Box<dyn Changes>>,
}

impl Follower {
    pub fn new(resource: Resource<'static>) -> Follower {
        Follower { resource, changes: None }
    }

    /// All that is known now and was not told before. Does not wait for anything to happen.
    pub async fn news(&mut self, cluster: &Cluster) -> Result<Vec<News>> {
        let mut news = Vec::new();
        while let Some(changes) = &mut self.changes {
            // Unconstrained: tokio's fairness budget must not make the log look empty.
            match tokio::task::unconstrained(changes.next()).now_or_never() {
                None => return Ok(news),
                Some(Ok(batch)) => news.extend(batch.into_iter().map(News::Changed)),
                // The log no longer reaches back to this cursor: begin again.
                Some(Err(_)) => self.changes = None,
            }
        }
        let listed = cluster.list(self.resource, "").await?;
        self.changes = Some(cluster.watch(self.resource, listed.revision).await?);
        Ok(vec![News::All(listed.items)])
    }
}

/// The text at `key`, empty if there is none.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The text at `metadata.KEY`.
pub(super) fn meta<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get("metadata").map(|m| text(m, key)).unwrap_or_default()
}
