//! A cluster of a few objects, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;

use super::follow::meta;
use crate::cluster::{Change, Changes, ClusterApi, Listed, Resource};
use crate::egress::{Direct, SharedDialer};
use crate::error::{ApiError, Result};

type Key = (String, String, String, String);

#[derive(Default)]
struct State {
    objects: BTreeMap<Key, Arc<Value>>,
    log: Vec<(Key, Change)>,
}

/// Objects in memory; every write is one revision.
#[derive(Clone, Default)]
pub struct FakeCluster(Arc<Mutex<State>>);

impl FakeCluster {
    pub fn put(&self, group: &str, plural: &str, object: Value) {
        self.write(group, plural, meta(&object, "namespace"), meta(&object, "name"), Some(Arc::new(object.clone())));
    }

    pub fn remove(&self, group: &str, plural: &str, namespace: &str, name: &str) {
        self.write(group, plural, namespace, name, None);
    }

    fn write(&self, group: &str, plural: &str, namespace: &str, name: &str, object: Option<Arc<Value>>) {
        let mut state = self.0.lock();
        let key: Key = (group.into(), plural.into(), namespace.into(), name.into());
        let revision = state.log.len() as u64 + 1;
        state
            .log
            .push((key.clone(), Change { namespace: namespace.into(), name: name.into(), revision, object: object.clone() }));
        match object {
            Some(object) => state.objects.insert(key, object),
            None => state.objects.remove(&key),
        };
    }
}

struct FakeChanges {
    cluster: FakeCluster,
    resource: (String, String),
    at: usize,
}

#[async_trait]
impl Changes for FakeChanges {
    async fn next(&mut self) -> Result<Vec<Change>> {
        let found: Vec<Change> = {
            let state = self.cluster.0.lock();
            let is_ours = |key: &Key| key.0 == self.resource.0 && key.1 == self.resource.1;
            let found = state.log[self.at..].iter().filter(|(key, _)| is_ours(key)).map(|(_, change)| change.clone()).collect();
            self.at = state.log.len();
            found
        };
        if found.is_empty() { std::future::pending().await } else { Ok(found) }
    }
}

#[async_trait]
impl ClusterApi for FakeCluster {
    async fn get(&self, resource: Resource<'_>, namespace: &str, name: &str) -> Result<Option<Arc<Value>>> {
        let key = (resource.group.to_owned(), resource.plural.to_owned(), namespace.to_owned(), name.to_owned());
        Ok(self.0.lock().objects.get(&key).cloned())
    }

    async fn list(&self, resource: Resource<'_>, _: &str) -> Result<Listed> {
        let state = self.0.lock();
        let is_ours = |key: &Key| key.0 == resource.group && key.1 == resource.plural;
        let items = state.objects.iter().filter(|(key, _)| is_ours(key)).map(|(_, object)| object.clone()).collect();
        Ok(Listed { items, revision: state.log.len() as u64 })
    }

    async fn watch(&self, resource: Resource<'_>, revision: u64) -> Result<Box<dyn Changes>> {
        let resource = (resource.group.to_owned(), resource.plural.to_owned());
        Ok(Box::new(FakeChanges { cluster: self.clone(), resource, at: revision as usize }))
    }

    fn revision(&self) -> Option<u64> {
        Some(self.0.lock().log.len() as u64)
    }

    async fn create(&self, _: Value) -> Result<Value> {
        Err(ApiError::method_not_allowed())
    }

    async fn update(&self, _: Value, _: &str) -> Result<Value> {
        Err(ApiError::method_not_allowed())
    }

    async fn delete(&self, _: Resource<'_>, _: &str, _: &str) -> Result<()> {
        Err(ApiError::method_not_allowed())
    }

    fn dialer(&self) -> SharedDialer {
        Arc::new(Direct)
    }
}
