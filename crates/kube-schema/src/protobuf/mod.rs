//! `application/vnd.kubernetes.protobuf`: built-in objects to and from protobuf, driven by the table.
//!
//! Bytes are those of upstream's generated code: fields in the order of their numbers, values always written unless they are pointers,
//! map entries sorted. What JSON inlines is a message of its own here, and a few scalars are messages.

mod decode;
mod encode;
mod wire;

use serde_json::Value;

use crate::table::Node;
use wire::Reader;
pub(crate) use wire::Writer;

/// First bytes of every body and stored object.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// Bytes that are no object of the wanted kind; 400 `BadRequest`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Magic,
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: illegal wireType {0}")]
    WireType(u8),
    #[error("proto: wrong wireType for field {0}")]
    WrongType(String),
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: messages are nested too deeply")]
    Depth,
    #[error("invalid content of field {0}")]
    Content(String),
}

/// The envelope around an object (`runtime.Unknown`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: String,
    pub kind: String,
    pub raw: &'a [u8],
}

/// Encodes a canonical value of a built-in type, without an envelope.
pub fn encode(node: Node, value: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    encode::message(node, value, &mut out);
    out.bytes
}

/// Decodes a value of a built-in type. The result is not canonical yet: [`crate::decode`] makes it so.
pub fn decode(node: Node, bytes: &[u8]) -> Result<Value, ProtobufError> {
    decode::message(node, bytes, 0)
}

/// Puts an encoded object into its envelope.
pub fn wrap(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut meta = Writer::default();
    meta.text(1, api_version);
    meta.text(2, kind);
    let mut out = Writer { bytes: MAGIC.to_vec() };
    out.block(1, &meta.bytes);
    out.block(2, raw);
    out.text(3, "");
    out.text(4, "");
    out.bytes
}

/// Takes an object out of its envelope.
pub fn unwrap(bytes: &[u8]) -> Result<Envelope<'_>, ProtobufError> {
    let mut reader = Reader::new(bytes.strip_prefix(MAGIC.as_slice()).ok_or(ProtobufError::Magic)?);
    let mut envelope = Envelope::default();
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => {
                let mut meta = Reader::new(field.bytes("typeMeta")?);
                while let Some((number, field)) = meta.next()? {
                    let text = String::from_utf8_lossy(field.bytes("typeMeta")?).into_owned();
                    match number {
                        1 => envelope.api_version = text,
                        2 => envelope.kind = text,
                        _ => {}
                    }
                }
            }
            2 => envelope.raw = field.bytes("raw")?,
            _ => {}
        }
    }
    Ok(envelope)
}

/// Encodes a whole object with its envelope.
pub fn encode_object(node: Node, api_version: &str, kind: &str, value: &Value) -> Vec<u8> {
    wrap(api_version, kind, &encode(node, value))
}

/// Encodes a list from its `ListMeta` and items that are encoded already (without envelopes), without an envelope of its own.
pub fn encode_list<'a>(list_meta: Node, metadata: &Value, items: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Writer::default();
    out.block(1, &encode(list_meta, metadata));
    items.for_each(|item| out.block(2, item));
    out.bytes
}

/// Encodes a watch event around an object with its envelope; events on the wire follow each other behind a length of four bytes.
pub fn encode_watch_event(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Writer::default();
    raw.block(1, object);
    let mut out = Writer::default();
    out.text(1, event_type);
    out.block(2, &raw.bytes);
    out.bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{FieldValidation, decode_built_in};
    use crate::table;
    use serde_json::json;

    fn round_trip(group: &str, version: &str, kind: &str, value: Value) -> Value {
        let node = table::type_of_kind(group, version, kind).unwrap();
        let canonical = |value: Value| decode_built_in(node, value.into(), FieldValidation::Strict).unwrap().value;
        let mut value = canonical(value);
        let bytes = encode(node, &value);
        let back = canonical(decode(node, &bytes).unwrap());
        for key in ["apiVersion", "kind"] {
            value.as_object_mut().unwrap().remove(key);
        }
        assert_eq!(back, value);
        assert_eq!(encode(node, &back), bytes);
        back
    }

    #[test]
    fn a_pod_survives_the_round_trip() {
        round_trip(
            "",
            "v1",
            "Pod",
            json!({"metadata": {"name": "p", "labels": {"b": "2", "a": "1"},
            "creationTimestamp": "2024-01-01T00:00:00Z", "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "n", "uid": "u"}],
            "managedFields": [{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]},
            "spec": {"terminationGracePeriodSeconds": -1, "shareProcessNamespace": false,
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "c", "configMap": {"name": "x", "defaultMode": 420}}],
                "containers": [{"name": "c", "resources": {"limits": {"cpu": "500m"}},
                    "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "n", "key": "k", "optional": true}}}],
                    "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 3},
                    "readinessProbe": {"tcpSocket": {"port": 80}}}]}}),
        );
    }

    #[test]
    fn special_values_survive_the_round_trip() {
        round_trip("", "v1", "Secret", json!({"data": {"a": "AAEC", "b": ""}}));
        round_trip("apps", "v1", "ControllerRevision", json!({"data": {"spec": {"x": [1, "2", null]}}, "revision": 3}));
        round_trip("coordination.k8s.io", "v1", "Lease", json!({"spec": {"renewTime": "2024-01-01T00:00:00.123456Z"}}));
        round_trip(
            "authentication.k8s.io",
            "v1",
            "TokenReview",
            json!({"spec": {"token": "t"}, "status": {"user": {"username": "u", "extra": {"k": ["a", "b"], "l": ["c"]}}}}),
        );
        round_trip(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            json!({"spec": {"group": "g", "scope": "Cluster",
            "names": {"plural": "p", "kind": "K"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "maximum": 1.5, "properties": {"a": {"type": "array", "items": {"type": "string"}, "default": []},
                "b": {"additionalProperties": {"type": "string"}}, "c": {"additionalProperties": true}}}}}]}}),
        );
    }

    #[test]
    fn envelopes_open_and_foreign_bytes_are_refused() {
        let bytes = wrap("v1", "Pod", b"raw");
        let envelope = unwrap(&bytes).unwrap();
        assert_eq!((envelope.api_version.as_str(), envelope.kind.as_str(), envelope.raw), ("v1", "Pod", b"raw".as_slice()));
        assert_eq!(unwrap(b"{}"), Err(ProtobufError::Magic));
        let node = table::type_of_kind("", "v1", "Pod").unwrap();
        assert!(decode(node, &[0x0a, 0xff]).is_err());
        assert!(decode(node, &[0x0f]).is_err());
    }
}
