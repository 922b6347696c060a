//! Shared caches: one watch per kind for all controllers, started when the first of them asks.

use crate::key::{Key, controller_of};
use crate::queue::WorkQueue;
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::Resource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;
use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::sync::watch;

/// A kind that can be cached.
pub trait Cached: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static {
    /// Drops what no controller reads. Objects that are written back whole must keep everything.
    fn slim(&mut self) {
        self.meta_mut().managed_fields = None;
    }
}

type Handler<K> = Box<dyn Fn(Option<&K>, Option<&K>) + Send + Sync>;

#[derive(Debug)]
struct State<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// Keys by the uid of the controlling owner.
    owned: HashMap<String, BTreeSet<Key>>,
    /// Keys of the list under way.
    listing: HashSet<Key>,
    seen_version: u64,
}

/// The cache of one kind.
pub struct Informer<K> {
    state: RwLock<State<K>>,
    handlers: RwLock<Vec<Handler<K>>>,
    synced: watch::Sender<bool>,
    changes: watch::Sender<u64>,
}

fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

impl<K: Cached> Informer<K> {
    fn new() -> Self {
        let state = State { objects: BTreeMap::new(), owned: HashMap::new(), listing: HashSet::new(), seen_version: 0 };
        Self {
            state: RwLock::new(state),
            handlers: RwLock::new(Vec::new()),
            synced: watch::Sender::new(false),
            changes: watch::Sender::new(0),
        }
    }

    fn read<T>(&self, f: impl FnOnce(&State<K>) -> T) -> T {
        f(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read(|s| s.objects.get(key).cloned())
    }

    /// One object by namespace and name.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get(&Key::new(namespace, name))
    }

    /// All objects, by key.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read(|s| s.objects.values().cloned().collect())
    }

    /// The objects of one namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let start = Key::new(namespace, "");
        self.read(|s| {
            let range = s.objects.range((Bound::Included(start), Bound::Unbounded));
            range.take_while(|(key, _)| key.namespace == namespace).map(|(_, object)| object.clone()).collect()
        })
    }

    /// The objects that the owner with this uid controls, by key.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.read(|s| s.owned.get(uid).into_iter().flatten().filter_map(|key| s.objects.get(key).cloned()).collect())
    }

    /// Puts the keys that `keys` names for the old and the new state of each changed object into `queue`.
    pub fn feed(&self, queue: &Arc<WorkQueue>, keys: impl Fn(&K) -> Vec<Key> + Send + Sync + 'static) {
        let queue = queue.clone();
        self.on_change(move |old, new| {
            let mut all: Vec<Key> = old.map(&keys).unwrap_or_default();
            all.extend(new.map(&keys).unwrap_or_default());
            all.sort();
            all.dedup();
            all.into_iter().for_each(|key| queue.add(key));
        });
    }

    /// Calls `handler` with the old and the new state of each changed object; at first with those that exist.
    pub fn on_change(&self, handler: impl Fn(Option<&K>, Option<&K>) + Send + Sync + 'static) {
        let mut handlers = self.handlers.write().unwrap_or_else(PoisonError::into_inner);
        self.all().iter().for_each(|object| handler(None, Some(object)));
        handlers.push(Box::new(handler));
    }

    fn apply(&self, event: Event<K>) {
        match event {
            Event::Init => self.write(|s| s.listing.clear()),
            Event::InitApply(mut object) => {
                object.slim();
                self.write(|s| s.listing.insert(Key::of(object.meta())));
                self.set(object);
            }
            Event::Apply(mut object) => {
                object.slim();
                self.set(object);
            }
            Event::Delete(object) => self.remove(&Key::of(object.meta()), version(object.meta())),
            Event::InitDone => {
                let gone: Vec<Key> = self.write(|s| {
                    let listing = std::mem::take(&mut s.listing);
                    s.objects.keys().filter(|key| !listing.contains(key)).cloned().collect()
                });
                gone.iter().for_each(|key| self.remove(key, 0));
                self.synced.send_replace(true);
            }
        }
        self.changes.send_modify(|n| *n += 1);
    }

    fn write<T>(&self, f: impl FnOnce(&mut State<K>) -> T) -> T {
        f(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, object: K) {
        let (key, object) = (Key::of(object.meta()), Arc::new(object));
        let old = self.write(|s| {
            s.seen_version = s.seen_version.max(version(object.meta()));
            let old = s.objects.insert(key.clone(), object.clone());
            if let Some(owner) = old.as_ref().and_then(|old| controller_of(old.meta())) {
                s.disown(&owner.uid, &key);
            }
            if let Some(owner) = controller_of(object.meta()) {
                s.owned.entry(owner.uid.clone()).or_default().insert(key);
            }
            old
        });
        self.call(old.as_deref(), Some(&object));
    }

    fn remove(&self, key: &Key, version: u64) {
        let old = self.write(|s| {
            s.seen_version = s.seen_version.max(version);
            let old = s.objects.remove(key)?;
            if let Some(owner) = controller_of(old.meta()) {
                s.disown(&owner.uid, key);
            }
            Some(old)
        });
        if let Some(old) = old {
            self.call(Some(&old), None);
        }
    }

    fn call(&self, old: Option<&K>, new: Option<&K>) {
        let handlers = self.handlers.read().unwrap_or_else(PoisonError::into_inner);
        handlers.iter().for_each(|handler| handler(old, new));
    }

    async fn run(self: Arc<Self>, api: Api<K>, fields: &'static str) {
        let mut config = watcher::Config::default();
        if !fields.is_empty() {
            config = config.fields(fields);
        }
        let mut events = Box::pin(watcher(api, config).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.apply(event),
                Err(error) => tracing::debug!(kind = %K::kind(&()), %error, "watch"),
            }
        }
    }
}

impl<K> State<K> {
    fn disown(&mut self, uid: &str, key: &Key) {
        if let Some(keys) = self.owned.get_mut(uid) {
            keys.remove(key);
            if keys.is_empty() {
                self.owned.remove(uid);
            }
        }
    }
}

/// What became of an object by a write.
#[derive(Clone, Debug)]
pub struct Written {
    /// Kind of the object.
    pub kind: String,
    /// Its key.
    pub key: Key,
    /// Its uid.
    pub uid: String,
    /// The version it got, or `None` if it was deleted.
    pub version: Option<u64>,
}

/// A cache as seen by someone who waits for it.
pub trait Observer: Send + Sync {
    /// Changes to true when the first list is complete.
    fn synced(&self) -> watch::Receiver<bool>;
    /// Changes with every event.
    fn changes(&self) -> watch::Receiver<u64>;
    /// Whether the cache has caught up with this write (true for writes of other kinds).
    fn has_seen(&self, written: &Written) -> bool;
}

impl<K: Cached> Observer for Informer<K> {
    fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn has_seen(&self, written: &Written) -> bool {
        if written.kind != K::kind(&()) {
            return true;
        }
        self.read(|s| match (written.version, s.objects.get(&written.key).map(|o| o.meta())) {
            // Versions of one kind are ordered (KEP-5504).
            (Some(version), _) => s.seen_version >= version,
            (None, Some(meta)) => meta.uid.as_ref() != Some(&written.uid) || meta.deletion_timestamp.is_some(),
            (None, None) => true,
        })
    }
}

/// Kind, namespace (empty for all) and field selector of a cache.
type Scope = (TypeId, &'static str, &'static str);

/// All caches of the process.
pub struct Informers {
    client: kube::Client,
    shared: Mutex<HashMap<Scope, Arc<dyn Any + Send + Sync>>>,
    tasks: Mutex<tokio::task::JoinSet<()>>,
}

impl Informers {
    /// No cache yet. `client` is the identity that lists and watches.
    pub fn new(client: kube::Client) -> Self {
        Self { client, shared: Mutex::default(), tasks: Mutex::default() }
    }

    /// The cache of a kind, started now if it is the first time.
    pub fn get<K: Cached>(&self) -> Arc<Informer<K>> {
        self.scoped("", "", Api::all)
    }

    /// The cache of the objects of a kind that a field selector matches.
    pub fn get_selected<K: Cached>(&self, fields: &'static str) -> Arc<Informer<K>> {
        self.scoped("", fields, Api::all)
    }

    /// The cache of the objects of a kind in one namespace.
    pub fn get_in<K: Cached + Resource<Scope = kube::core::NamespaceResourceScope>>(
        &self,
        namespace: &'static str,
    ) -> Arc<Informer<K>> {
        self.get_selected_in(namespace, "")
    }

    /// The cache of the objects of a kind in one namespace that a field selector matches.
    pub fn get_selected_in<K: Cached + Resource<Scope = kube::core::NamespaceResourceScope>>(
        &self,
        namespace: &'static str,
        fields: &'static str,
    ) -> Arc<Informer<K>> {
        self.scoped(namespace, fields, |client| Api::namespaced(client, namespace))
    }

    fn scoped<K: Cached>(
        &self,
        namespace: &'static str,
        fields: &'static str,
        api: impl FnOnce(kube::Client) -> Api<K>,
    ) -> Arc<Informer<K>> {
        let scope = (TypeId::of::<K>(), namespace, fields);
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shared.get(&scope).cloned();
        if let Some(informer) = known.and_then(|any| any.downcast::<Informer<K>>().ok()) {
            return informer;
        }
        let informer = Arc::new(Informer::<K>::new());
        shared.insert(scope, informer.clone());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(informer.clone().run(api(self.client.clone()), fields));
        informer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{from_value, json};

    fn map(namespace: &str, name: &str, version: &str, owner: &str) -> ConfigMap {
        from_value(json!({"metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": version,
            "ownerReferences": [{"uid": owner, "controller": true, "kind": "X", "name": "x", "apiVersion": "v1"}]}}))
        .unwrap()
    }

    fn written(name: &str, version: Option<u64>) -> Written {
        Written { kind: "ConfigMap".into(), key: Key::new("a", name), uid: name.into(), version }
    }

    #[test]
    fn knows_namespaces_owners_and_its_own_writes() {
        let informer = Informer::<ConfigMap>::new();
        let queue = Arc::new(WorkQueue::default());
        informer.feed(&queue, |m| vec![Key::of(&m.metadata)]);
        for event in
            [Event::Init, Event::InitApply(map("a", "x", "5", "o")), Event::InitApply(map("ab", "y", "6", "o")), Event::InitDone]
        {
            informer.apply(event);
        }
        assert_eq!((informer.in_namespace("a").len(), informer.owned_by("o").len()), (1, 2));
        assert!(!informer.has_seen(&written("z", Some(7))) && informer.has_seen(&written("x", Some(5))));
        assert!(!informer.has_seen(&written("x", None)));
        informer.apply(Event::Apply(map("ab", "y", "7", "p")));
        assert!(informer.has_seen(&written("z", Some(7))));
        for event in [Event::Init, Event::InitApply(map("ab", "y", "7", "p")), Event::InitDone] {
            informer.apply(event);
        }
        assert!(informer.has_seen(&written("x", None)));
        assert_eq!((informer.owned_by("o").len(), informer.owned_by("p").len()), (0, 1));
    }
}
