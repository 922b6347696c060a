//! Canonical JSON values to protobuf.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::wire::Writer;
use crate::table::{self, Kind, Node};
use crate::timestamp;

const SCHEMA_PROPS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// Writes the fields of a struct.
pub(super) fn message(node: Node, value: &Value, out: &mut Writer) {
    let empty = Map::new();
    let map = value.as_object().unwrap_or(&empty);
    let mut fields: Vec<([u8; 3], Node)> =
        node.built_in_fields().map(|f| (f.tags(), f)).filter(|(tags, _)| tags[0] != 0).collect();
    fields.sort_by_key(|(tags, _)| *tags);
    level(&fields, 0, map, out);
}

/// Writes fields whose numbers agree up to `depth`; those with a further number sit in an inlined message.
fn level(mut fields: &[([u8; 3], Node)], depth: usize, map: &Map<String, Value>, out: &mut Writer) {
    while let Some((tags, node)) = fields.first() {
        let is_inlined = depth + 1 < tags.len() && tags[depth + 1] != 0;
        if !is_inlined {
            field(*node, tags[depth], map.get(node.name()), out);
            fields = &fields[1..];
            continue;
        }
        let end = fields.iter().take_while(|(t, _)| t[depth] == tags[depth]).count();
        let mut inner = Writer::default();
        level(&fields[..end], depth + 1, map, &mut inner);
        out.block(tags[depth], &inner.bytes);
        fields = &fields[end..];
    }
}

fn field(node: Node, number: u8, value: Option<&Value>, out: &mut Writer) {
    match (node.kind(), value.filter(|v| !v.is_null())) {
        (Kind::List, Some(Value::Array(list))) => {
            let Some(element) = node.element() else { return };
            if node.name() == "verbs" && node.tags()[0] == 4 && !node.states_list_type() {
                // `APIResource.verbs` is a message of its own.
                out.block(number, &strings(list));
                return;
            }
            list.iter().for_each(|item| single(element, number, item, out));
        }
        (Kind::Map, Some(Value::Object(map))) => {
            let Some(element) = node.element() else { return };
            for (key, item) in map {
                let mut entry = Writer::default();
                entry.text(1, key);
                match (element.kind(), item) {
                    // A list cannot be a map's value: it is wrapped (`ExtraValue`).
                    (Kind::List, Value::Array(list)) => entry.block(2, &strings(list)),
                    _ => single(element, 2, item, &mut entry),
                }
                out.block(number, &entry.bytes);
            }
        }
        (Kind::List | Kind::Map, _) => {}
        (_, Some(value)) => single(node, number, value, out),
        (_, None) if node.is_pointer() => {}
        (_, None) => absent(node, number, out),
    }
}

fn strings(list: &[Value]) -> Vec<u8> {
    let mut inner = Writer::default();
    list.iter().for_each(|item| inner.text(1, item.as_str().unwrap_or_default()));
    inner.bytes
}

/// A value that is no pointer is written even when it is zero.
fn absent(node: Node, number: u8, out: &mut Writer) {
    match node.kind() {
        Kind::Bytes => {}
        Kind::String => out.text(number, ""),
        Kind::Int32 | Kind::Int64 | Kind::Boolean => out.int(number, 0),
        Kind::Number => out.double(number, 0.0),
        Kind::IntOrString => single(node, number, &Value::from(0), out),
        Kind::Quantity => single(node, number, &Value::from("0"), out),
        Kind::Struct => {
            let mut inner = Writer::default();
            message(node, &Value::Null, &mut inner);
            out.block(number, &inner.bytes);
        }
        _ => out.block(number, &[]),
    }
}

fn raw_json(value: &Value) -> Vec<u8> {
    let mut inner = Writer::default();
    inner.block(1, value.to_string().as_bytes());
    inner.bytes
}

fn time(seconds: i64, nanos: i32) -> Vec<u8> {
    let mut inner = Writer::default();
    inner.int(1, seconds);
    inner.int(2, i64::from(nanos));
    inner.bytes
}

fn nested(node: Option<Node>, value: &Value) -> Vec<u8> {
    let mut inner = Writer::default();
    if let Some(node) = node {
        message(node, value, &mut inner);
    }
    inner.bytes
}

/// Writes one value that is present.
fn single(node: Node, number: u8, value: &Value, out: &mut Writer) {
    let text = value.as_str().unwrap_or_default();
    match node.kind() {
        Kind::Struct => out.block(number, &nested(Some(node), value)),
        Kind::String => out.text(number, text),
        Kind::Bytes => out.block(number, &STANDARD.decode(text).unwrap_or_default()),
        Kind::Int32 | Kind::Int64 => out.int(number, value.as_i64().unwrap_or_default()),
        Kind::Boolean => out.int(number, i64::from(value.as_bool().unwrap_or_default())),
        Kind::Number => out.double(number, value.as_f64().unwrap_or_default()),
        Kind::Quantity => {
            let mut inner = Writer::default();
            inner.text(1, text);
            out.block(number, &inner.bytes);
        }
        Kind::Time => {
            let parsed = timestamp::parse_time(text).map(|t| time(t.as_second(), 0));
            out.block(number, &parsed.unwrap_or_default());
        }
        Kind::MicroTime => {
            let parsed = timestamp::parse_micro_time(text).map(|t| time(t.as_second(), t.subsec_nanosecond()));
            out.block(number, &parsed.unwrap_or_default());
        }
        Kind::IntOrString => {
            let mut inner = Writer::default();
            inner.int(1, i64::from(value.is_string()));
            inner.int(2, value.as_i64().unwrap_or_default());
            inner.text(3, text);
            out.block(number, &inner.bytes);
        }
        Kind::RawExtension | Kind::Fields | Kind::Json => out.block(number, &raw_json(value)),
        Kind::SchemaOrArray | Kind::SchemaOrBool | Kind::SchemaOrStrings => out.block(number, &schema_or(node.kind(), value)),
        Kind::Duration | Kind::List | Kind::Map => {}
    }
}

/// A JSON schema or what may stand in its place: the schema is number 1 (2 beside a boolean), the rest 2 (1).
fn schema_or(kind: Kind, value: &Value) -> Vec<u8> {
    let props = table::type_named(SCHEMA_PROPS);
    let mut inner = Writer::default();
    match (kind, value) {
        (Kind::SchemaOrBool, Value::Bool(allows)) => inner.int(1, i64::from(*allows)),
        (Kind::SchemaOrBool, schema) => {
            inner.int(1, 1);
            inner.block(2, &nested(props, schema));
        }
        (Kind::SchemaOrArray, Value::Array(list)) => {
            list.iter().for_each(|schema| inner.block(2, &nested(props, schema)));
        }
        (Kind::SchemaOrStrings, Value::Array(list)) => {
            list.iter().for_each(|item| inner.text(2, item.as_str().unwrap_or_default()));
        }
        (_, schema) => inner.block(1, &nested(props, schema)),
    }
    inner.bytes
}
