//! Objects as bytes with a known head.
//!
//! A stored object is JSON that begins with exactly `{"kind":K,"apiVersion":V,"metadata":{`, in its storage version and without a
//! resourceVersion (that is the store's revision). So an answer is spliced from it: the head is written anew, the rest copied.

use atoll_kube_schema::StorageIdentity;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{ApiError, Result};

/// The head with which all stored objects of one kind begin.
#[derive(Clone, Debug)]
pub struct Layout {
    head: String,
    /// Whether items of a list carry `kind` and `apiVersion` (custom kinds).
    pub items_are_typed: bool,
}

impl Layout {
    pub fn new(storage: &StorageIdentity, items_are_typed: bool) -> Layout {
        let api_version = api_version(&storage.group, &storage.version);
        Layout { head: head(&storage.kind, &api_version), items_are_typed }
    }

    /// Appends a whole object at `revision`. False if the bytes do not begin as they should: then they have to be parsed.
    pub fn splice(&self, stored: &[u8], revision: u64, out: &mut Vec<u8>) -> bool {
        self.splice_after(self.head.as_bytes(), stored, revision, out)
    }

    /// Appends an item of a list.
    pub fn splice_item(&self, stored: &[u8], revision: u64, out: &mut Vec<u8>) -> bool {
        let head: &[u8] = if self.items_are_typed { self.head.as_bytes() } else { b"{\"metadata\":{" };
        self.splice_after(head, stored, revision, out)
    }

    fn splice_after(&self, head: &[u8], stored: &[u8], revision: u64, out: &mut Vec<u8>) -> bool {
        let Some(rest) = stored.strip_prefix(self.head.as_bytes()) else { return false };
        out.reserve(head.len() + rest.len() + 40);
        out.extend_from_slice(head);
        out.extend_from_slice(b"\"resourceVersion\":\"");
        out.extend_from_slice(revision.to_string().as_bytes());
        out.extend_from_slice(if rest.first() == Some(&b'}') { b"\"" } else { b"\"," });
        out.extend_from_slice(rest);
        true
    }

    /// The metadata that selectors look at, without parsing the object.
    pub fn metadata(&self, stored: &[u8]) -> Option<HeadMetadata> {
        // One byte back: the brace that opens the metadata.
        let start = self.head.len() - 1;
        if !stored.starts_with(self.head.as_bytes()) {
            return None;
        }
        let mut deserializer = serde_json::Deserializer::from_slice(&stored[start..]);
        HeadMetadata::deserialize(&mut deserializer).ok()
    }
}

/// What of an object's metadata is read without parsing the object.
#[derive(Debug, Deserialize)]
pub struct HeadMetadata {
    #[serde(default)]
    pub labels: Map<String, Value>,
}

/// `group/version`, or the version alone for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn head(kind: &str, api_version: &str) -> String {
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{")
}

/// Writes an object, in its storage version, in the form in which it is stored.
pub fn to_stored(object: &Value) -> Result<Bytes> {
    let map = object.as_object().ok_or_else(|| ApiError::internal("an object is not a JSON object"))?;
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut out = head(text("kind"), text("apiVersion")).into_bytes();
    if let Some(metadata) = map.get("metadata").and_then(Value::as_object) {
        // managedFields last: it is most of the metadata and nobody selects by it.
        let order = |key: &&String| (key.as_str() == "managedFields") as u8;
        let mut keys: Vec<&String> = metadata.keys().filter(|k| *k != "resourceVersion" && *k != "selfLink").collect();
        keys.sort_by_key(order);
        write_entries(metadata, &keys, &mut out)?;
    }
    out.push(b'}');
    let keys: Vec<&String> = map.keys().filter(|k| !matches!(k.as_str(), "kind" | "apiVersion" | "metadata")).collect();
    if !keys.is_empty() {
        out.push(b',');
        write_entries(map, &keys, &mut out)?;
    }
    out.push(b'}');
    out.shrink_to_fit();
    Ok(Bytes::from(out))
}

fn write_entries(map: &Map<String, Value>, keys: &[&String], out: &mut Vec<u8>) -> Result<()> {
    for (i, key) in keys.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, key).map_err(ApiError::internal)?;
        out.push(b':');
        serde_json::to_writer(&mut *out, &map[key.as_str()]).map_err(ApiError::internal)?;
    }
    Ok(())
}

/// Parses a stored object and gives it its resourceVersion.
pub fn from_stored(bytes: &[u8], revision: u64) -> Result<Value> {
    let mut object: Value =
        serde_json::from_slice(bytes).map_err(|e| ApiError::internal(format!("a stored object is damaged: {e}")))?;
    set_resource_version(&mut object, revision);
    Ok(object)
}

pub fn set_resource_version(object: &mut Value, revision: u64) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn layout() -> Layout {
        let storage = StorageIdentity {
            group: "apps".into(),
            plural: "deployments".into(),
            version: "v1".into(),
            kind: "Deployment".into(),
        };
        Layout::new(&storage, false)
    }

    #[test]
    fn a_spliced_object_is_the_stored_one_with_its_revision() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "managedFields": [], "uid": "u", "labels": {"a": "b\"c"}, "resourceVersion": "3"},
            "spec": {"replicas": 1}});
        let stored = to_stored(&object).unwrap();
        let mut out = Vec::new();
        assert!(layout().splice(&stored, 7, &mut out));
        let mut want = object.clone();
        want["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), want);
        assert_eq!(from_stored(&stored, 7).unwrap(), want);
        out.clear();
        assert!(layout().splice_item(&stored, 7, &mut out));
        assert!(serde_json::from_slice::<Value>(&out).unwrap().get("kind").is_none());
        assert_eq!(layout().metadata(&stored).unwrap().labels["a"], "b\"c");
    }

    #[test]
    fn bytes_with_another_head_are_not_spliced() {
        assert!(!layout().splice(b"{\"kind\":\"Pod\"}", 1, &mut Vec::new()));
    }
}
