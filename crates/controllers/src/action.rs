//! What a plan asks for: single writes to the API server, and what to say about them.

use crate::error::Result;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Field managers are named after it: what controllers write belongs to the name that clients of Kubernetes expect there.
const USER_AGENT: &str = "kube-controller-manager/v1.36";

/// What a write does, by HTTP method and content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH with `application/merge-patch+json`.
    MergePatch,
    /// PATCH with `application/strategic-merge-patch+json`.
    StrategicPatch,
    /// PATCH with `application/json-patch+json`.
    JsonPatch,
    /// DELETE.
    Delete,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// What it does.
    pub verb: Verb,
    /// Path of the collection (create) or object, with subresource.
    pub path: String,
    /// Body.
    pub body: Value,
    /// The object that the creation or deletion is told about in an Event.
    pub told_about: Option<Box<ObjectReference>>,
}

/// An Event to record.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// What it is about.
    pub regarding: Box<ObjectReference>,
    /// `Warning` if true, else `Normal`.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write to the API server.
    Write(Write),
    /// Record an Event.
    Note(Note),
    /// Look at this key again after a time.
    After(Duration),
}

fn collection<K: Resource<DynamicType = ()>>(object: &K) -> String {
    K::url_path(&(), object.meta().namespace.as_deref().filter(|ns| !ns.is_empty()))
}

fn path<K: Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{}/{}", collection(object), object.meta().name.as_deref().unwrap_or_default())
}

/// Objects of the API always serialise; if one does not, the API server refuses the null in its place.
fn body(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

impl Action {
    /// A write to a path, for kinds that are known only from discovery.
    pub fn write(verb: Verb, path: String, body: Value) -> Self {
        Action::Write(Write { verb, path, body, told_about: None })
    }

    /// Creates an object.
    pub fn create<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Self {
        Self::write(Verb::Create, collection(object), body(object))
    }

    /// Replaces an object; its resourceVersion is the precondition.
    pub fn update<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Self {
        Self::write(Verb::Update, path(object), body(object))
    }

    /// Replaces a subresource (`status`, `approval`, `finalize`) of an object.
    pub fn update_sub<K: Resource<DynamicType = ()> + Serialize>(object: &K, subresource: &str) -> Self {
        Self::write(Verb::Update, format!("{}/{subresource}", path(object)), body(object))
    }

    /// Patches an object. The patch is tied to the object's uid, so that a namesake is left alone.
    pub fn patch<K: Resource<DynamicType = ()>>(object: &K, verb: Verb, patch: Value) -> Self {
        Self::write(verb, path(object), tied(object, verb, patch))
    }

    /// Patches a subresource of an object.
    pub fn patch_sub<K: Resource<DynamicType = ()>>(object: &K, subresource: &str, verb: Verb, patch: Value) -> Self {
        Self::write(verb, format!("{}/{subresource}", path(object)), tied(object, verb, patch))
    }

    /// Deletes exactly this object (its uid is the precondition), dependents in the background.
    pub fn delete<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self::delete_with(object, json!({"propagationPolicy": "Background"}))
    }

    /// Deletes exactly this object with further options.
    pub fn delete_with<K: Resource<DynamicType = ()>>(object: &K, mut options: Value) -> Self {
        options["kind"] = "DeleteOptions".into();
        options["apiVersion"] = "v1".into();
        if let Some(uid) = &object.meta().uid {
            options["preconditions"]["uid"] = uid.clone().into();
        }
        Self::write(Verb::Delete, path(object), options)
    }

    /// Tells about the creation or deletion in an Event on `owner`.
    pub fn told_about(mut self, owner: ObjectReference) -> Self {
        if let Action::Write(write) = &mut self {
            write.told_about = Some(Box::new(owner));
        }
        self
    }

    /// A `Normal` Event.
    pub fn note<K: Resource<DynamicType = ()>>(object: &K, reason: &'static str, message: impl Into<String>) -> Self {
        let regarding = Box::new(object.object_ref(&()));
        Action::Note(Note { regarding, warning: false, reason, message: message.into() })
    }

    /// A `Warning` Event.
    pub fn warn<K: Resource<DynamicType = ()>>(object: &K, reason: &'static str, message: impl Into<String>) -> Self {
        let regarding = Box::new(object.object_ref(&()));
        Action::Note(Note { regarding, warning: true, reason, message: message.into() })
    }
}

fn tied<K: Resource<DynamicType = ()>>(object: &K, verb: Verb, mut patch: Value) -> Value {
    if let (true, Some(uid)) = (verb != Verb::JsonPatch, &object.meta().uid) {
        patch["metadata"]["uid"] = uid.clone().into();
    }
    patch
}

impl Write {
    /// The HTTP request.
    pub fn request(&self) -> Result<http::Request<Vec<u8>>> {
        let (method, content) = match self.verb {
            Verb::Create => ("POST", "application/json"),
            Verb::Update => ("PUT", "application/json"),
            Verb::MergePatch => ("PATCH", "application/merge-patch+json"),
            Verb::StrategicPatch => ("PATCH", "application/strategic-merge-patch+json"),
            Verb::JsonPatch => ("PATCH", "application/json-patch+json"),
            Verb::Delete => ("DELETE", "application/json"),
        };
        let builder = http::Request::builder().method(method).uri(&self.path).header("user-agent", USER_AGENT);
        let builder = builder.header("content-type", content).header("accept", "application/json");
        Ok(builder.body(self.body.to_string().into_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Node, Pod};
    use serde_json::from_value;

    #[test]
    fn writes_name_the_object_and_its_uid() {
        let pod: Pod = from_value(json!({"metadata": {"namespace": "a", "name": "b", "uid": "u"}})).unwrap();
        let Action::Write(delete) = Action::delete(&pod) else { panic!() };
        assert_eq!((delete.path.as_str(), delete.verb), ("/api/v1/namespaces/a/pods/b", Verb::Delete));
        assert_eq!(delete.body["preconditions"]["uid"], "u");
        let node: Node = from_value(json!({"metadata": {"name": "n", "uid": "v"}})).unwrap();
        let Action::Write(patch) = Action::patch_sub(&node, "status", Verb::StrategicPatch, json!({})) else { panic!() };
        assert_eq!((patch.path.as_str(), &patch.body["metadata"]["uid"]), ("/api/v1/nodes/n/status", &json!("v")));
    }
}
