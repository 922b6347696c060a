//! The walk over a value of a built-in type: checks, prunes and canonicalises in one pass.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{DecodeError, json_type, object};
use crate::limits;
use crate::quantity::Quantity;
use crate::table::{self, Kind, Node};
use crate::timestamp;

const SCHEMA_PROPS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

#[derive(Default)]
pub(super) struct Walk {
    /// Path of the value under the walk (`spec.containers[0]`).
    path: String,
    /// Name of the struct that the walk is in.
    owner: &'static str,
    pub(super) unknown: Vec<String>,
}

fn last_segment(name: &'static str) -> &'static str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The Go name of the type at a position, as decoding errors show it.
fn go_type(node: Node) -> String {
    match node.kind() {
        Kind::Struct => {
            let name = node.type_name().unwrap_or_default();
            let mut parts = name.rsplit('.');
            let last = parts.next().unwrap_or_default();
            format!("{}.{last}", parts.next().unwrap_or_default())
        }
        Kind::List => format!("[]{}", node.element().map(go_type).unwrap_or_default()),
        Kind::Map => format!("map[string]{}", node.element().map(go_type).unwrap_or_default()),
        Kind::Int32 | Kind::IntOrString => "int32".to_owned(),
        Kind::Int64 => "int64".to_owned(),
        Kind::Number => "float64".to_owned(),
        Kind::Boolean => "bool".to_owned(),
        Kind::Bytes => "[]uint8".to_owned(),
        _ => "string".to_owned(),
    }
}

impl Walk {
    /// Decodes a whole value of the type at `node`.
    pub(super) fn root(&mut self, node: Node, value: Value) -> Result<Value, DecodeError> {
        let map = object(value, &go_type(node))?;
        self.fields(node, map).map(Value::Object)
    }

    /// Decodes a struct that sits at `path` of a larger value.
    pub(super) fn at(path: &str) -> Walk {
        Walk { path: path.to_owned(), ..Walk::default() }
    }

    fn mismatch<T>(&self, node: Node, value: &Value) -> Result<T, DecodeError> {
        // Go names the fields on the way, not the indices.
        let mut place = String::new();
        let mut depth = 0;
        for c in self.path.chars() {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                c if depth == 0 => place.push(c),
                _ => {}
            }
        }
        let place = format!("struct field {}.{place}", self.owner);
        Err(DecodeError::Type { found: json_type(value), place, wanted: go_type(node) })
    }

    fn within<T>(&mut self, segment: &str, run: impl FnOnce(&mut Walk) -> T) -> T {
        let length = self.path.len();
        if length > 0 && !segment.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(segment);
        let out = run(self);
        self.path.truncate(length);
        out
    }

    fn fields(&mut self, node: Node, mut map: Map<String, Value>) -> Result<Map<String, Value>, DecodeError> {
        let owner = std::mem::replace(&mut self.owner, last_segment(node.type_name().unwrap_or_default()));
        let mut out = Map::new();
        for field in node.built_in_fields() {
            let name = field.name();
            let given = map.remove(name).filter(|v| !v.is_null());
            let value = match given {
                Some(value) => self.within(name, |w| w.given(field, value))?,
                None => self.absent(field)?,
            };
            if let Some(value) = value {
                out.insert(name.to_owned(), value);
            }
        }
        for name in map.keys() {
            if self.unknown.len() < limits::STRICT_ERRORS_MAX {
                let path = if self.path.is_empty() { name.clone() } else { format!("{}.{name}", self.path) };
                self.unknown.push(path);
            }
        }
        self.owner = owner;
        Ok(out)
    }

    fn given(&mut self, field: Node, value: Value) -> Result<Option<Value>, DecodeError> {
        let value = self.value(field, value)?;
        if field.is_pointer() {
            return Ok(Some(value));
        }
        let is_empty = match &value {
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::String(text) => text.is_empty(),
            Value::Bool(flag) => !flag,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::Null => true,
        };
        // A value of struct type is not empty to Go's `omitempty`, whatever it holds.
        let is_struct = !matches!(
            field.kind(),
            Kind::List | Kind::Map | Kind::String | Kind::Bytes | Kind::Int32 | Kind::Int64 | Kind::Number | Kind::Boolean
        );
        if is_empty && !is_struct {
            // An empty list of owners is a request to forget them, which `apply::update` has to see (and never keeps).
            let forgets_owners = value.is_array() && self.path == "metadata.managedFields";
            return if forgets_owners { Ok(Some(value)) } else { self.absent(field) };
        }
        if field.omits_zero() && is_struct && Some(&value) == zero(field, self)?.as_ref() {
            return Ok(None);
        }
        Ok(Some(value))
    }

    /// What stands in the output for a field that was not given.
    fn absent(&mut self, field: Node) -> Result<Option<Value>, DecodeError> {
        if field.is_pointer() {
            return Ok(if field.omits_empty() { None } else { Some(Value::Null) });
        }
        let is_plain = matches!(
            field.kind(),
            Kind::List | Kind::Map | Kind::String | Kind::Bytes | Kind::Int32 | Kind::Int64 | Kind::Number | Kind::Boolean
        );
        if field.omits_zero() || (field.omits_empty() && is_plain) {
            return Ok(None);
        }
        zero(field, self)
    }

    /// Decodes a value that is not null.
    fn value(&mut self, node: Node, value: Value) -> Result<Value, DecodeError> {
        match (node.kind(), value) {
            (Kind::Struct, Value::Object(map)) => self.fields(node, map).map(Value::Object),
            (Kind::List, Value::Array(list)) => self.list(node, list),
            (Kind::Map, Value::Object(map)) => self.map(node, map),
            (Kind::String | Kind::Duration, value @ Value::String(_)) | (Kind::Boolean, value @ Value::Bool(_)) => Ok(value),
            (Kind::Number, value @ Value::Number(_)) => Ok(value),
            (Kind::Int32, Value::Number(n)) => match n.as_i64().and_then(|n| i32::try_from(n).ok()) {
                Some(_) => Ok(Value::Number(n)),
                None => self.mismatch(node, &Value::Number(n)),
            },
            (Kind::Int64, Value::Number(n)) if n.is_i64() => Ok(Value::Number(n)),
            (Kind::IntOrString, value @ Value::String(_)) => Ok(value),
            (Kind::IntOrString, Value::Number(n)) => match n.as_i64().and_then(|n| i32::try_from(n).ok()) {
                Some(_) => Ok(Value::Number(n)),
                None => self.mismatch(node, &Value::Number(n)),
            },
            (Kind::Bytes, Value::String(text)) => bytes(&text),
            (Kind::Quantity, Value::String(text)) => Ok(Value::String(Quantity::parse(text.trim())?.to_string())),
            (Kind::Quantity, Value::Number(n)) => Ok(Value::String(Quantity::parse(&n.to_string())?.to_string())),
            (Kind::Time, Value::String(text)) => Ok(Value::String(timestamp::format_time(timestamp::parse_time(&text)?))),
            (Kind::MicroTime, Value::String(text)) => {
                Ok(Value::String(timestamp::format_micro_time(timestamp::parse_micro_time(&text)?)))
            }
            (Kind::RawExtension | Kind::Fields | Kind::Json, value) => Ok(value),
            (Kind::SchemaOrArray | Kind::SchemaOrBool | Kind::SchemaOrStrings, value) => self.schema_or(node, value),
            (_, value) => self.mismatch(node, &value),
        }
    }

    /// Decodes an element of a list or map, where null is the zero value.
    fn element(&mut self, node: Node, value: Value) -> Result<Value, DecodeError> {
        if value.is_null() {
            return Ok(zero(node, self)?.unwrap_or(Value::Null));
        }
        self.value(node, value)
    }

    fn list(&mut self, node: Node, list: Vec<Value>) -> Result<Value, DecodeError> {
        let Some(element) = node.element() else { return Ok(Value::Array(list)) };
        let mut out = Vec::with_capacity(list.len());
        for (index, value) in list.into_iter().enumerate() {
            out.push(self.within(&format!("[{index}]"), |w| w.element(element, value))?);
        }
        Ok(Value::Array(out))
    }

    fn map(&mut self, node: Node, map: Map<String, Value>) -> Result<Value, DecodeError> {
        let Some(element) = node.element() else { return Ok(Value::Object(map)) };
        if element.kind() == Kind::String && map.values().all(Value::is_string) {
            return Ok(Value::Object(map));
        }
        // Errors name the map's own field; unknown fields inside name the key as well.
        let mut out = Map::new();
        let is_nested = matches!(element.kind(), Kind::Struct | Kind::Map | Kind::List);
        for (key, value) in map {
            let decoded =
                if is_nested { self.within(&key, |w| w.element(element, value))? } else { self.element(element, value)? };
            out.insert(key, decoded);
        }
        Ok(Value::Object(out))
    }

    /// A JSON schema where something simpler may stand as well.
    fn schema_or(&mut self, node: Node, value: Value) -> Result<Value, DecodeError> {
        let props = table::type_named(SCHEMA_PROPS);
        let is_strings = node.kind() == Kind::SchemaOrStrings;
        match (value, props) {
            (Value::Object(map), Some(props)) => self.fields(props, map).map(Value::Object),
            (value @ Value::Bool(_), _) if node.kind() == Kind::SchemaOrBool => Ok(value),
            (Value::Array(list), Some(props)) if node.kind() == Kind::SchemaOrArray => {
                let mut out = Vec::with_capacity(list.len());
                for (index, value) in list.into_iter().enumerate() {
                    let map = object(value, "v1.JSONSchemaProps")?;
                    out.push(Value::Object(self.within(&format!("[{index}]"), |w| w.fields(props, map))?));
                }
                Ok(Value::Array(out))
            }
            (Value::Array(list), _) if is_strings && list.iter().all(Value::is_string) => Ok(Value::Array(list)),
            (value, _) => self.mismatch(node, &value),
        }
    }
}

/// The zero value at a position as Go writes it; `None` for kinds that have none of their own.
fn zero(node: Node, walk: &mut Walk) -> Result<Option<Value>, DecodeError> {
    Ok(Some(match node.kind() {
        Kind::Struct => Value::Object(walk.fields(node, Map::new())?),
        Kind::String => Value::String(String::new()),
        Kind::Int32 | Kind::Int64 | Kind::Number | Kind::IntOrString => Value::from(0),
        Kind::Boolean => Value::Bool(false),
        Kind::Quantity => Value::String("0".to_owned()),
        Kind::Duration => Value::String("0s".to_owned()),
        _ => Value::Null,
    }))
}

fn bytes(text: &str) -> Result<Value, DecodeError> {
    // Go's decoder skips line ends inside the text.
    let compact: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match STANDARD.decode(&compact) {
        Ok(_) => Ok(Value::String(compact)),
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Err(DecodeError::Base64(at))
        }
        Err(_) => Err(DecodeError::Base64(compact.len() / 4 * 4)),
    }
}
