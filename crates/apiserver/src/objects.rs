//! The one place that holds the store: keys of objects, reads, and the commit of what was admitted.

use std::sync::Arc;

use atoll_kube_schema::ResourceDef;
use atoll_store::{Entry, History, Op, Outcome, Page, Precondition, RangeQuery, Revision, Store, Watcher};

use crate::error::{ApiError, Cause, Details, GroupResource, Result};
use crate::pipeline::draft::Admitted;
use crate::stored;

/// Objects in the store.
#[derive(Clone)]
pub(crate) struct Objects {
    store: Arc<dyn Store>,
}

/// Key prefix of a resource, of one of its namespaces if `namespace` is not empty.
pub(crate) fn prefix(group: &str, plural: &str, namespace: &str) -> String {
    let resource = GroupResource { group, resource: plural };
    if namespace.is_empty() { format!("/registry/{resource}/") } else { format!("/registry/{resource}/{namespace}/") }
}

pub(crate) fn prefix_of(def: &ResourceDef, namespace: &str) -> String {
    prefix(&def.storage.group, &def.storage.plural, namespace)
}

/// Key of an object.
pub(crate) fn key_of(def: &ResourceDef, namespace: &str, name: &str) -> String {
    let namespace = if def.namespaced { namespace } else { "" };
    format!("{}{name}", prefix_of(def, namespace))
}

/// Namespace and name of a key, given the prefix of its whole resource.
pub(crate) fn split_key<'a>(key: &'a str, resource_prefix: &str) -> (&'a str, &'a str) {
    let rest = key.strip_prefix(resource_prefix).unwrap_or(key);
    rest.split_once('/').unwrap_or(("", rest))
}

/// What became of a commit.
pub(crate) enum Committed {
    Done(Revision),
    /// Somebody else wrote in between.
    Raced,
}

impl Objects {
    pub fn new(store: Arc<dyn Store>) -> Objects {
        Objects { store }
    }

    pub fn revision(&self) -> u64 {
        self.store.revision().0
    }

    pub async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.store.get(key).await.map_err(store_error)
    }

    pub async fn range(&self, query: RangeQuery<'_>) -> Result<Page> {
        self.store.range(query).await.map_err(store_error)
    }

    pub async fn watch(&self, prefix: &str, from: u64) -> Result<Box<dyn Watcher>> {
        self.store.watch(prefix, Revision(from)).await.map_err(store_error)
    }

    /// Writes what was admitted, against the very revision that it was admitted for.
    pub async fn commit(&self, admitted: &Admitted) -> Result<Committed> {
        let key = admitted.key().to_owned();
        let precondition = match admitted.base() {
            Some(revision) => Precondition::ModRevision(Revision(revision)),
            None => Precondition::Absent,
        };
        let op = match admitted.object() {
            Some(object) => Op::put(key, stored::to_stored(object)?, precondition),
            None => {
                let history = if admitted.erases_history() { History::Erase } else { History::Keep };
                Op::Delete { key: key.into(), precondition, history }
            }
        };
        match self.store.apply(op).await.map_err(store_error)? {
            Outcome::Applied(applied) => {
                admitted.settle();
                Ok(Committed::Done(applied.revision))
            }
            Outcome::Conflict { .. } => Ok(Committed::Raced),
        }
    }
}

/// The `Status` of a store's error.
pub(crate) fn store_error(error: atoll_store::Error) -> ApiError {
    use atoll_store::Error as E;
    match error {
        E::Compacted { oldest } => {
            ApiError::expired(format!("too old resource version: the oldest that can be read is {oldest}"))
        }
        E::FutureRevision { requested, current } => too_large_revision(requested.0, current.0),
        E::TooLarge { .. } => ApiError::too_large(error.to_string()),
        E::Closed => ApiError::unavailable("the server is shutting down"),
        other => {
            tracing::error!(error = %other, "the store failed");
            ApiError::internal(other)
        }
    }
}

/// 504 of a revision that has not been reached.
pub(crate) fn too_large_revision(requested: u64, current: u64) -> ApiError {
    ApiError::timeout(format!("Too large resource version: {requested}, current: {current}")).with_details(Details {
        retry_after_seconds: 1,
        causes: vec![Cause::new("ResourceVersionTooLarge", "", "Too large resource version")],
        ..Details::default()
    })
}
