//! Who owns whom, across all kinds. Pure.
//!
//! To stay small it keeps full nodes only for objects that have owners or are being deleted with dependents in mind; of all
//! others it knows that they exist.

use crate::key::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Finalizer of an owner whose dependents are deleted first.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner whose dependents are set free first.
pub const ORPHAN: &str = "orphan";

/// Index into the list of kinds.
pub type KindId = usize;

/// An object that matters to others.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its kind.
    pub kind: KindId,
    /// Its key.
    pub key: Key,
    /// Its owners.
    pub owners: Vec<OwnerReference>,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// Its dependents are to be deleted first.
    pub foreground: bool,
    /// Its dependents are to be set free first.
    pub orphan: bool,
}

/// What to look at after a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Look {
    /// Whether the object with this uid is to be deleted.
    Delete(Arc<str>),
    /// Setting free the dependents of the object with this uid.
    Orphan(Arc<str>),
}

/// The graph.
#[derive(Debug, Default)]
pub struct Graph {
    present: HashMap<Arc<str>, KindId>,
    nodes: HashMap<Arc<str>, Node>,
    dependents: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
}

fn node_of(kind: KindId, meta: &ObjectMeta) -> Node {
    let deleting = meta.deletion_timestamp.is_some();
    let has = |finalizer: &str| deleting && meta.finalizers.iter().flatten().any(|f| f == finalizer);
    Node {
        kind,
        key: Key::of(meta),
        owners: meta.owner_references.clone().unwrap_or_default(),
        deleting,
        foreground: has(FOREGROUND),
        orphan: has(ORPHAN),
    }
}

impl Graph {
    /// The object as known, if it matters.
    pub fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Whether an object with this uid is known to exist.
    pub fn exists(&self, uid: &str) -> bool {
        self.present.contains_key(uid)
    }

    /// Uids of the objects that name this one as owner.
    pub fn dependents(&self, uid: &str) -> Vec<Arc<str>> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// The dependents that hold up the owner's deletion.
    pub fn blocking(&self, uid: &str) -> Vec<Arc<str>> {
        let blocks = |dependent: &Arc<str>| {
            let owners = self.nodes.get(dependent).map(|n| n.owners.as_slice()).unwrap_or_default();
            owners.iter().any(|o| o.uid == uid && o.block_owner_deletion == Some(true))
        };
        self.dependents(uid).into_iter().filter(blocks).collect()
    }

    /// An object appeared or changed.
    pub fn set(&mut self, kind: KindId, meta: &ObjectMeta) -> Vec<Look> {
        let Some(uid) = meta.uid.as_deref() else { return Vec::new() };
        let uid = self.shared(uid);
        self.present.insert(uid.clone(), kind);
        let node = node_of(kind, meta);
        let old = self.nodes.get(&uid);
        let mut looks = Vec::new();
        if old == Some(&node) {
            return looks;
        }
        let left = old.into_iter().flat_map(|old| &old.owners).filter(|o| !node.owners.iter().any(|n| n.uid == o.uid));
        looks.extend(left.filter(|o| self.awaits(&o.uid)).map(|o| Look::Delete(o.uid.as_str().into())));
        self.unlink(&uid);
        for owner in &node.owners {
            let owner_uid = self.shared(&owner.uid);
            self.dependents.entry(owner_uid).or_default().insert(uid.clone());
            if !self.exists(&owner.uid) || self.awaits(&owner.uid) {
                looks.push(Look::Delete(uid.clone()));
            }
        }
        if node.orphan {
            looks.push(Look::Orphan(uid.clone()));
        }
        if node.foreground {
            looks.push(Look::Delete(uid.clone()));
            looks.extend(self.dependents(&uid).into_iter().map(Look::Delete));
        }
        if node.owners.is_empty() && !node.foreground && !node.orphan {
            self.nodes.remove(&uid);
        } else {
            self.nodes.insert(uid, node);
        }
        looks
    }

    /// An object is gone.
    pub fn remove(&mut self, uid: &str) -> Vec<Look> {
        self.present.remove(uid);
        self.unlink(uid);
        let mut looks: Vec<Look> = self.dependents(uid).into_iter().map(Look::Delete).collect();
        if let Some(node) = self.nodes.remove(uid) {
            looks.extend(node.owners.iter().filter(|o| self.awaits(&o.uid)).map(|o| Look::Delete(o.uid.as_str().into())));
        }
        looks
    }

    /// Everything that a first look has to judge.
    pub fn all(&self) -> Vec<Look> {
        let orphaning = self.nodes.iter().filter(|(_, n)| n.orphan).map(|(uid, _)| Look::Orphan(uid.clone()));
        let orphaned = |n: &Node| n.owners.iter().any(|o| !self.exists(&o.uid) || self.awaits(&o.uid));
        let judged = self.nodes.iter().filter(|(_, n)| n.foreground || orphaned(n));
        orphaning.chain(judged.map(|(uid, _)| Look::Delete(uid.clone()))).collect()
    }

    /// Whether an owner waits for its dependents to go.
    pub fn awaits(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(|n| n.foreground)
    }

    /// Uids of all objects of a kind.
    pub fn uids_of(&self, kind: KindId) -> Vec<Arc<str>> {
        self.present.iter().filter(|(_, known)| **known == kind).map(|(uid, _)| uid.clone()).collect()
    }

    /// The one allocation of a uid.
    fn shared(&self, uid: &str) -> Arc<str> {
        self.present.get_key_value(uid).map_or_else(|| uid.into(), |(uid, _)| uid.clone())
    }

    fn unlink(&mut self, uid: &str) {
        let owners: Vec<String> = self.nodes.get(uid).into_iter().flat_map(|n| &n.owners).map(|o| o.uid.clone()).collect();
        for owner in owners {
            if let Some(set) = self.dependents.get_mut(owner.as_str()) {
                set.remove(uid);
                if set.is_empty() {
                    self.dependents.remove(owner.as_str());
                }
            }
        }
    }
}

/// How an object stands with its owners.
#[derive(Debug, Default, PartialEq)]
pub struct Owners {
    /// They live.
    pub solid: Vec<OwnerReference>,
    /// They are gone.
    pub dangling: Vec<OwnerReference>,
    /// They wait for this object to go.
    pub waiting: Vec<OwnerReference>,
}

/// What to do with an object, given how its owners stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Keep,
    /// Keep it, but drop the references to owners that are gone or wait.
    Release,
    /// Delete it with this propagation policy.
    Delete(&'static str),
}

/// An object stays while one owner lives.
pub fn judge(owners: &Owners, meta: &ObjectMeta, has_dependents: bool) -> Verdict {
    if !owners.solid.is_empty() {
        let loose = !owners.dangling.is_empty() || !owners.waiting.is_empty();
        return if loose { Verdict::Release } else { Verdict::Keep };
    }
    if owners.dangling.is_empty() && owners.waiting.is_empty() {
        return Verdict::Keep;
    }
    let has = |finalizer: &str| meta.finalizers.iter().flatten().any(|f| f == finalizer);
    if !owners.waiting.is_empty() && has_dependents {
        return Verdict::Delete("Foreground");
    }
    Verdict::Delete(if has(ORPHAN) {
        "Orphan"
    } else if has(FOREGROUND) {
        "Foreground"
    } else {
        "Background"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn meta(uid: &str, owners: &[&str], extra: Value) -> ObjectMeta {
        let owners: Vec<Value> = owners
            .iter()
            .map(|o| json!({"uid": o, "kind": "X", "apiVersion": "v1", "name": o, "blockOwnerDeletion": true}))
            .collect();
        let mut value = json!({"uid": uid, "name": uid, "ownerReferences": owners});
        value.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        from_value(value).unwrap()
    }

    fn delete(uid: &str) -> Look {
        Look::Delete(uid.into())
    }

    #[test]
    fn dependents_of_what_goes_are_looked_at() {
        let mut graph = Graph::default();
        assert!(graph.set(0, &meta("o", &[], json!({}))).is_empty());
        assert!(graph.set(0, &meta("d", &["o"], json!({}))).is_empty());
        assert_eq!(graph.remove("o"), [delete("d")]);
        assert_eq!(graph.set(0, &meta("e", &["o"], json!({}))), [delete("e")], "its owner is not known");
    }

    #[test]
    fn a_waiting_owner_is_looked_at_when_a_dependent_leaves() {
        let mut graph = Graph::default();
        let gone = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FOREGROUND]});
        graph.set(0, &meta("d", &["o"], json!({})));
        assert_eq!(graph.set(0, &meta("o", &[], gone)), [delete("o"), delete("d")]);
        assert_eq!(graph.blocking("o").len(), 1);
        assert_eq!(graph.remove("d"), [delete("o")]);
        assert!(graph.blocking("o").is_empty());
    }

    #[test]
    fn verdicts() {
        let owner = |uid: &str| meta("x", &[uid], json!({})).owner_references.unwrap();
        let plain = meta("x", &[], json!({}));
        let gone = Owners { dangling: owner("a"), ..Owners::default() };
        assert_eq!(judge(&gone, &plain, false), Verdict::Delete("Background"));
        assert_eq!(judge(&gone, &meta("x", &[], json!({"finalizers": [ORPHAN]})), false), Verdict::Delete("Orphan"));
        let mixed = Owners { solid: owner("b"), dangling: owner("a"), ..Owners::default() };
        assert_eq!(judge(&mixed, &plain, false), Verdict::Release);
        let waited = Owners { waiting: owner("a"), ..Owners::default() };
        assert_eq!(judge(&waited, &plain, true), Verdict::Delete("Foreground"));
        assert_eq!(judge(&Owners::default(), &plain, true), Verdict::Keep);
    }
}
