//! Protobuf to JSON values.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::ProtobufError;
use super::wire::{Field, Reader};
use crate::limits;
use crate::table::{self, Kind, Node};
use crate::timestamp;

const SCHEMA_PROPS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// Reads a struct.
pub(super) fn message(node: Node, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
    let mut map = Map::new();
    let fields: Vec<([u8; 3], Node)> = node.built_in_fields().map(|f| (f.tags(), f)).collect();
    level(&fields, [0; 3], 0, bytes, depth, &mut map)?;
    Ok(Value::Object(map))
}

/// Reads a message whose numbers so far are `path[..at]`; inlined messages go one step further into the same map.
fn level(
    fields: &[([u8; 3], Node)],
    path: [u8; 3],
    at: usize,
    bytes: &[u8],
    depth: usize,
    map: &mut Map<String, Value>,
) -> Result<(), ProtobufError> {
    if depth > limits::PROTOBUF_DEPTH_MAX {
        return Err(ProtobufError::Depth);
    }
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        let Ok(number) = u8::try_from(number) else { continue };
        let mut here = path;
        here[at] = number;
        if let Some((_, node)) = fields.iter().find(|(tags, _)| *tags == here) {
            insert(*node, field, depth, map)?;
            continue;
        }
        let is_inlined = at + 1 < here.len() && fields.iter().any(|(tags, _)| tags[..=at] == here[..=at] && tags[at + 1] != 0);
        if is_inlined {
            level(fields, here, at + 1, field.bytes("an inlined message")?, depth + 1, map)?;
        }
    }
    Ok(())
}

fn insert(node: Node, field: Field<'_>, depth: usize, map: &mut Map<String, Value>) -> Result<(), ProtobufError> {
    let name = node.name();
    match (node.kind(), node.element()) {
        (Kind::List, Some(element)) => {
            if name == "verbs" && node.tags()[0] == 4 && !node.states_list_type() {
                let list = strings(field.bytes(name)?)?;
                map.insert(name.to_owned(), list);
                return Ok(());
            }
            let entry = map.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            let Some(list) = entry.as_array_mut() else { return Ok(()) };
            match (element.kind(), field) {
                // Numbers may come packed.
                (Kind::Int32 | Kind::Int64, Field::Block(bytes)) => {
                    let mut reader = Reader::new(bytes);
                    while !reader.is_empty() {
                        list.push((reader.varint()? as i64).into());
                    }
                }
                _ => list.push(single(element, name, field, depth)?),
            }
        }
        (Kind::Map, Some(element)) => {
            let (key, value) = entry(element, name, field.bytes(name)?, depth)?;
            let map = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if let Some(map) = map.as_object_mut() {
                map.insert(key, value);
            }
        }
        _ => {
            let value = single(node, name, field, depth)?;
            if !value.is_null() {
                map.insert(name.to_owned(), value);
            }
        }
    }
    Ok(())
}

fn text(bytes: &[u8], name: &str) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Content(name.to_owned()))
}

fn strings(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut list = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        if number == 1 {
            list.push(Value::String(text(field.bytes("items")?, "items")?));
        }
    }
    Ok(Value::Array(list))
}

fn entry(element: Node, name: &str, bytes: &[u8], depth: usize) -> Result<(String, Value), ProtobufError> {
    let (mut key, mut value) = (String::new(), None);
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match (number, element.kind()) {
            (1, _) => key = text(field.bytes(name)?, name)?,
            (2, Kind::List) => value = Some(strings(field.bytes(name)?)?),
            (2, _) => value = Some(single(element, name, field, depth)?),
            _ => {}
        }
    }
    let value = match value {
        Some(value) => value,
        None => single(element, name, Field::Block(&[]), depth).unwrap_or_default(),
    };
    Ok((key, value))
}

fn raw_json(bytes: &[u8], name: &str) -> Result<Value, ProtobufError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        if number == 1 {
            let raw = field.bytes(name)?;
            return serde_json::from_slice(raw).map_err(|_| ProtobufError::Content(name.to_owned()));
        }
    }
    Ok(Value::Null)
}

fn time(bytes: &[u8], name: &str) -> Result<Option<Timestamp>, ProtobufError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => seconds = field.int(name)?,
            2 => nanos = field.int(name)?,
            _ => {}
        }
    }
    let nanos = i32::try_from(nanos).map_err(|_| ProtobufError::Overflow)?;
    Timestamp::new(seconds, nanos).map(Some).map_err(|_| ProtobufError::Content(name.to_owned()))
}

fn int_or_string(bytes: &[u8], name: &str) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number, mut words) = (false, 0, String::new());
    let mut reader = Reader::new(bytes);
    while let Some((tag, field)) = reader.next()? {
        match tag {
            1 => is_text = field.int(name)? == 1,
            2 => number = field.int(name)?,
            3 => words = text(field.bytes(name)?, name)?,
            _ => {}
        }
    }
    Ok(if is_text { Value::String(words) } else { number.into() })
}

fn single(node: Node, name: &str, field: Field<'_>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match node.kind() {
        Kind::Struct => message(node, field.bytes(name)?, depth + 1)?,
        Kind::String => Value::String(text(field.bytes(name)?, name)?),
        Kind::Bytes => Value::String(STANDARD.encode(field.bytes(name)?)),
        Kind::Int32 => Value::from(field.int(name)? as i32),
        Kind::Int64 => Value::from(field.int(name)?),
        Kind::Boolean => Value::Bool(field.int(name)? != 0),
        Kind::Number => Value::from(field.double(name)?),
        Kind::Quantity => {
            let mut reader = Reader::new(field.bytes(name)?);
            let mut value = Value::String("0".to_owned());
            while let Some((number, field)) = reader.next()? {
                if number == 1 {
                    value = Value::String(text(field.bytes(name)?, name)?);
                }
            }
            // An empty text is the zero quantity.
            if value == "" { Value::String("0".to_owned()) } else { value }
        }
        Kind::Time => time(field.bytes(name)?, name)?.map_or(Value::Null, |t| timestamp::format_time(t).into()),
        Kind::MicroTime => time(field.bytes(name)?, name)?.map_or(Value::Null, |t| timestamp::format_micro_time(t).into()),
        Kind::IntOrString => int_or_string(field.bytes(name)?, name)?,
        Kind::RawExtension | Kind::Fields | Kind::Json => raw_json(field.bytes(name)?, name)?,
        Kind::SchemaOrArray | Kind::SchemaOrBool | Kind::SchemaOrStrings => {
            schema_or(node.kind(), name, field.bytes(name)?, depth + 1)?
        }
        Kind::Duration | Kind::List | Kind::Map => Value::Null,
    })
}

fn schema_or(kind: Kind, name: &str, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
    let Some(props) = table::type_named(SCHEMA_PROPS) else { return Ok(Value::Null) };
    let (mut schema, mut list, mut allows) = (None, Vec::new(), false);
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match (kind, number) {
            (Kind::SchemaOrBool, 1) => allows = field.int(name)? != 0,
            (Kind::SchemaOrBool, 2) | (Kind::SchemaOrArray | Kind::SchemaOrStrings, 1) => {
                schema = Some(message(props, field.bytes(name)?, depth)?);
            }
            (Kind::SchemaOrArray, 2) => list.push(message(props, field.bytes(name)?, depth)?),
            (Kind::SchemaOrStrings, 2) => list.push(Value::String(text(field.bytes(name)?, name)?)),
            _ => {}
        }
    }
    Ok(match (schema, kind) {
        (Some(schema), _) => schema,
        (None, Kind::SchemaOrBool) => Value::Bool(allows),
        (None, _) => Value::Array(list),
    })
}
