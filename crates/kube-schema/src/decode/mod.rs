//! From bytes to the canonical object: what is stored and returned is what upstream would store and return.
//!
//! [`parse_json`] and [`parse_yaml`] give a value and the duplicate keys in it; [`decode`] checks it against the kind's schema,
//! drops (and reports) unknown fields, refuses values of a wrong type, and brings the rest into canonical form: empty values left
//! out or filled in as the kind's Go type does, quantities and times normalised. Decoding a canonical object changes nothing.

mod built_in;
mod custom;
mod parse;

use serde_json::{Map, Value};

pub use parse::{Parsed, parse_json, parse_yaml};

use crate::limits;
use crate::quantity::QuantityError;
use crate::registry::{ResourceDef, SchemaSource};
use crate::table;
use crate::timestamp::TimeError;

/// What happens with unknown and duplicate fields (`fieldValidation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// A body that cannot be decoded. All are 400 `BadRequest`; upstream puts `KIND in version "V" cannot be handled as a KIND: ` in
/// front of all but `Syntax`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    #[error("{0}")]
    Syntax(String),
    #[error("json: cannot unmarshal {found} into Go {place} of type {wanted}")]
    Type { found: String, place: String, wanted: String },
    #[error("{0}")]
    Quantity(#[from] QuantityError),
    #[error("{0}")]
    Time(#[from] TimeError),
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
}

/// A canonical object and the warnings to send with the answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    pub value: Value,
    pub warnings: Vec<String>,
}

/// Decodes an object of `def`'s kind.
pub fn decode(def: &ResourceDef, parsed: Parsed, validation: FieldValidation) -> Result<Decoded, DecodeError> {
    match &def.schema {
        SchemaSource::BuiltIn(node) => decode_built_in(*node, parsed, validation),
        SchemaSource::Custom(schema) => {
            let (value, unknown) = custom::prune(Some(schema), parsed.value)?;
            report(value, parsed.duplicates, unknown, validation)
        }
        SchemaSource::None => {
            let (value, unknown) = custom::prune(None, parsed.value)?;
            report(value, parsed.duplicates, unknown, validation)
        }
    }
}

/// Decodes a value of a built-in type that is no resource of its own (`Scale`, `Binding`, `DeleteOptions`).
pub fn decode_built_in(node: table::Node, parsed: Parsed, validation: FieldValidation) -> Result<Decoded, DecodeError> {
    let mut walk = built_in::Walk::default();
    let value = walk.root(node, parsed.value)?;
    report(value, parsed.duplicates, walk.unknown, validation)
}

/// Brings a value of `def`'s kind into canonical form without a word about unknown fields (after patches and mutations).
pub fn canonicalise(def: &ResourceDef, value: Value) -> Result<Value, DecodeError> {
    decode(def, value.into(), FieldValidation::Ignore).map(|d| d.value)
}

fn report(
    value: Value,
    duplicates: Vec<String>,
    unknown: Vec<String>,
    validation: FieldValidation,
) -> Result<Decoded, DecodeError> {
    let duplicates = duplicates.iter().map(|path| format!("duplicate field {path:?}"));
    let unknown = unknown.iter().map(|path| format!("unknown field {path:?}"));
    let found: Vec<String> = match validation {
        FieldValidation::Ignore => Vec::new(),
        _ => duplicates.chain(unknown).take(limits::STRICT_ERRORS_MAX).collect(),
    };
    if validation == FieldValidation::Strict && !found.is_empty() {
        return Err(DecodeError::Strict(found));
    }
    Ok(Decoded { value, warnings: found })
}

fn json_type(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(n) if n.is_f64() => format!("number {n}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

/// The map of an object; null is an empty one, as in Go.
fn object(value: Value, wanted: &str) -> Result<Map<String, Value>, DecodeError> {
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other => Err(DecodeError::Type { found: json_type(&other), place: "value".to_owned(), wanted: wanted.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    fn run(group: &str, plural: &str, value: Value, validation: FieldValidation) -> Result<Decoded, DecodeError> {
        let registry = Registry::builtin();
        decode(registry.get(group, "v1", plural).unwrap(), value.into(), validation)
    }

    #[test]
    fn empty_values_are_written_as_upstream_writes_them() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {}}, "spec": {
            "hostNetwork": false, "shareProcessNamespace": false, "nodeName": "", "volumes": [],
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "1000m", "memory": 1073741824}},
                "ports": [{"hostPort": 0}], "stdin": null}]}});
        let got = run("", "pods", pod, FieldValidation::Strict).unwrap().value;
        let want = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": {}, "spec": {
            "shareProcessNamespace": false,
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1073741824"}},
                "ports": [{"containerPort": 0}]}]}});
        assert_eq!(got, want);
        let again = run("", "pods", got.clone(), FieldValidation::Strict).unwrap().value;
        assert_eq!(again, got);
    }

    #[test]
    fn required_lists_are_null_when_empty() {
        let role = json!({"metadata": {"name": "a"}, "rules": []});
        let got = run("rbac.authorization.k8s.io", "clusterroles", role, FieldValidation::Strict).unwrap().value;
        assert_eq!(got, json!({"metadata": {"name": "a"}, "rules": null}));
    }

    #[test]
    fn unknown_fields_are_reported_by_path() {
        let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "c", "imag": "x"}], "nodename": "x"}});
        let error = run("", "pods", pod.clone(), FieldValidation::Strict).unwrap_err();
        let text = "strict decoding error: unknown field \"spec.containers[0].imag\", unknown field \"spec.nodename\"";
        assert_eq!(error.to_string(), text);
        assert_eq!(run("", "pods", pod.clone(), FieldValidation::Warn).unwrap().warnings.len(), 2);
        assert!(run("", "pods", pod, FieldValidation::Ignore).unwrap().warnings.is_empty());
    }

    #[test]
    fn wrong_types_are_refused() {
        for (value, text) in [
            (json!({"data": {"a": 1}}), "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
            (json!({"immutable": "x"}), "json: cannot unmarshal string into Go struct field ConfigMap.immutable of type bool"),
            (json!({"binaryData": {"a": "%"}}), "illegal base64 data at input byte 0"),
            (json!([]), "json: cannot unmarshal array into Go value of type v1.ConfigMap"),
        ] {
            assert_eq!(run("", "configmaps", value, FieldValidation::Warn).unwrap_err().to_string(), text);
        }
        let pod = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "1x"}}}]}});
        assert!(matches!(run("", "pods", pod, FieldValidation::Warn), Err(DecodeError::Quantity(_))));
        let pod = json!({"spec": {"priority": 3_000_000_000_u64}});
        assert!(matches!(run("", "pods", pod, FieldValidation::Warn), Err(DecodeError::Type { .. })));
    }
}
