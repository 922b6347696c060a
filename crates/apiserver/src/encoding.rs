//! How answers are written: JSON, YAML, partial metadata; whole or streamed.

use atoll_kube_schema::print::Printer;
use atoll_kube_schema::{ResourceDef, SchemaSource, protobuf, table};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use crate::error::{ApiError, Result};
use crate::http_types::{Body, answer};
use crate::negotiate::{Accepted, Encoding, View};
use crate::pipeline::call::Call;
use crate::stored::Layout;

/// Protobuf's media type of a watch.
pub const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";
const PARTIAL_METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata";

/// The layout of a row's stored objects.
pub fn layout(def: &ResourceDef) -> Layout {
    Layout::new(&def.storage, def.is_custom())
}

/// Whether an answer of this form may be spliced from the stored bytes of this row.
pub fn can_splice(def: &ResourceDef, accepted: Accepted) -> bool {
    accepted == Accepted::JSON && !def.is_custom() && crate::convert::is_stored_as_served(def)
}

/// Answers with one object.
pub fn object_answer(call: &Call, code: u16, object: &Value) -> Result<Response<Body>> {
    let shown = match call.accepted.view {
        View::Object => return value_answer(call, code, object),
        View::PartialMetadata => partial_metadata(object),
        View::Table => table_of(call, std::slice::from_ref(object), object_list_metadata(object))?,
    };
    value_answer(call, code, &shown)
}

/// Answers with a JSON value in the encoding asked for.
pub fn value_answer(call: &Call, code: u16, value: &Value) -> Result<Response<Body>> {
    let bytes = match call.accepted.encoding {
        Encoding::Yaml => yaml(value)?.into_bytes(),
        Encoding::Protobuf => protobuf_object(value)?,
        _ if is_pretty(call) => serde_json::to_vec_pretty(value).map_err(ApiError::internal)?,
        _ => serde_json::to_vec(value).map_err(ApiError::internal)?,
    };
    Ok(answer(code, call.accepted.encoding.media_type(), with_newline(bytes, call.accepted.encoding)))
}

/// An object in protobuf's envelope; its type is found by its own `apiVersion` and `kind`.
pub fn protobuf_object(value: &Value) -> Result<Vec<u8>> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let node = match kind {
        "Status" => table::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
        "PartialObjectMetadata" => table::type_named(PARTIAL_METADATA),
        _ => table::type_of_kind(group, version, kind),
    };
    let node = node.ok_or_else(|| ApiError::not_acceptable(&[crate::http_types::JSON]))?;
    Ok(protobuf::encode_object(node, api_version, kind, value))
}

/// A list in protobuf's envelope.
pub fn protobuf_list(def: &ResourceDef, metadata: &Value, objects: &[Value]) -> Result<Vec<u8>> {
    let SchemaSource::BuiltIn(node) = &def.schema else { return Err(ApiError::not_acceptable(&[crate::http_types::JSON])) };
    let list_meta = table::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")
        .ok_or_else(|| ApiError::internal("the table has no ListMeta"))?;
    let items: Vec<Vec<u8>> = objects.iter().map(|object| protobuf::encode(*node, object)).collect();
    let raw = protobuf::encode_list(list_meta, metadata, items.iter().map(Vec::as_slice));
    Ok(protobuf::wrap(&def.api_version(), &def.list_kind, &raw))
}

fn with_newline(mut bytes: Vec<u8>, encoding: Encoding) -> Bytes {
    if encoding == Encoding::Json {
        bytes.push(b'\n');
    }
    Bytes::from(bytes)
}

fn is_pretty(call: &Call) -> bool {
    call.query.flag("pretty")
}

pub fn yaml(value: &Value) -> Result<String> {
    serde_saphyr::to_string(value).map_err(ApiError::internal)
}

/// `meta.k8s.io/v1 PartialObjectMetadata` of an object.
pub fn partial_metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

fn object_list_metadata(object: &Value) -> Value {
    // What was only tried has no version.
    match object.pointer("/metadata/resourceVersion") {
        Some(version) => json!({ "resourceVersion": version }),
        None => json!({}),
    }
}

/// `meta.k8s.io/v1 Table` of objects; `includeObject` says what of each object comes along.
pub fn table_of(call: &Call, objects: &[Value], metadata: Value) -> Result<Value> {
    let include = call.query.text("includeObject");
    if !matches!(include, "" | "Metadata" | "None" | "Object") {
        return Err(ApiError::bad_request(format!("unrecognized includeObject value: {include:?}")));
    }
    let (printer, now) = (Printer::of(&call.def), jiff::Timestamp::now());
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut row = json!({ "cells": printer.cells(object, now) });
            match include {
                "None" => row["object"] = Value::Null,
                "Object" => row["object"] = object.clone(),
                _ => row["object"] = partial_metadata(object),
            }
            if let Some(conditions) = printer.row_conditions(&call.def, object) {
                row["conditions"] = conditions;
            }
            row
        })
        .collect();
    Ok(json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": printer.column_definitions(),
        "rows": rows,
    }))
}
