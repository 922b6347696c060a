//! From the bytes of a request to an object of its endpoint.

use atoll_kube_schema::table::Node;
use atoll_kube_schema::{FieldValidation, Parsed, SchemaSource, decode, parse_json, parse_yaml, protobuf};
use bytes::Bytes;
use serde_json::Value;

use crate::error::{ApiError, Cause, Result};
use crate::negotiate::{self, Encoding};
use crate::pipeline::call::Call;
use crate::strategy::{self, meta_text, metadata_mut};

/// The `fieldValidation` parameter; the default is to warn.
pub fn field_validation(call: &Call, options_kind: &str) -> Result<FieldValidation> {
    Ok(match call.query.text("fieldValidation") {
        "" | "Warn" => FieldValidation::Warn,
        "Strict" => FieldValidation::Strict,
        "Ignore" => FieldValidation::Ignore,
        other => {
            let message = format!("Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\"");
            let cause = Cause::new("FieldValueNotSupported", "fieldValidation", message);
            return Err(ApiError::invalid("meta.k8s.io", options_kind, "", vec![cause]));
        }
    })
}

/// Reads the body of a create or update: an object of the endpoint's kind, in canonical form and defaulted.
pub fn object(call: &Call, bytes: &Bytes, options_kind: &str) -> Result<Value> {
    let validation = field_validation(call, options_kind)?;
    let node = match &call.def.schema {
        SchemaSource::BuiltIn(node) => Some(*node),
        _ => None,
    };
    let parsed = parse(call, bytes, node)?;
    check_type(call, &parsed.value)?;
    let decoded = decode(&call.def, parsed, validation).map_err(|e| undecodable(call, &e))?;
    for warning in decoded.warnings {
        call.warnings.add(warning);
    }
    let mut object = decoded.value;
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".into(), call.def.api_version().into());
        map.insert("kind".into(), call.def.kind.as_str().into());
    }
    strategy::default(&call.def, &mut object);
    Ok(object)
}

/// Reads the body of a subresource that has a kind of its own.
pub fn subresource_object(call: &Call, bytes: &Bytes, node: Node, validation: FieldValidation) -> Result<Value> {
    let parsed = parse(call, bytes, Some(node))?;
    let kind = node.gvk().map(|(_, _, kind)| kind).unwrap_or_default();
    let decoded = decode::decode_built_in(node, parsed, validation)
        .map_err(|e| ApiError::bad_request(format!("{kind} cannot be handled: {e}")))?;
    decoded.warnings.into_iter().for_each(|w| call.warnings.add(w));
    let mut object = decoded.value;
    if let Some(row) = call.subresource()
        && let Some(map) = object.as_object_mut()
    {
        map.insert("apiVersion".into(), crate::stored::api_version(&row.group, &row.version).into());
        map.insert("kind".into(), row.kind.as_str().into());
    }
    atoll_kube_schema::defaults::apply_built_in(node, &mut object);
    Ok(object)
}

/// From bytes to a value, by the body's content type.
pub fn parse(call: &Call, bytes: &Bytes, node: Option<Node>) -> Result<Parsed> {
    match negotiate::body_encoding(&call.headers, node.is_some())? {
        Encoding::Yaml => parse_yaml(bytes).map_err(|e| ApiError::bad_request(e.to_string())),
        Encoding::Json => parse_json(bytes).map_err(|e| ApiError::bad_request(e.to_string())),
        Encoding::Protobuf => {
            let node = node.ok_or_else(|| ApiError::unsupported_media_type(&[]))?;
            protobuf_value(node, bytes).map(Parsed::from)
        }
    }
}

/// An object in protobuf's envelope.
fn protobuf_value(node: Node, bytes: &[u8]) -> Result<Value> {
    let invalid = |e: protobuf::ProtobufError| ApiError::bad_request(e.to_string());
    let envelope = protobuf::unwrap(bytes).map_err(invalid)?;
    let mut value = protobuf::decode(node, envelope.raw).map_err(invalid)?;
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), envelope.api_version.into());
        map.insert("kind".into(), envelope.kind.into());
    }
    Ok(value)
}

pub fn undecodable(call: &Call, error: &decode::DecodeError) -> ApiError {
    let def = &call.def;
    ApiError::bad_request(format!("{} in version {:?} cannot be handled as a {}: {error}", def.kind, def.version, def.kind))
}

/// `apiVersion` and `kind` have to be the endpoint's; a built-in object may leave them out.
fn check_type(call: &Call, object: &Value) -> Result<()> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if call.def.is_custom() && (api_version.is_empty() || kind.is_empty()) {
        let missing = if kind.is_empty() { "Kind" } else { "apiVersion" };
        return Err(ApiError::bad_request(format!("Object '{missing}' is missing in the body of the request")));
    }
    let wanted = call.def.api_version();
    if (!api_version.is_empty() && api_version != wanted) || (!kind.is_empty() && kind != call.def.kind) {
        return Err(ApiError::bad_request(format!(
            "the object provided is {api_version:?}, Kind={kind}, the endpoint takes {wanted:?}, Kind={}",
            call.def.kind
        )));
    }
    Ok(())
}

/// The namespace of the URL is that of the object.
pub fn check_namespace(call: &Call, object: &mut Value) -> Result<()> {
    let stated = meta_text(object, "namespace").to_owned();
    let wanted = if call.def.namespaced { call.info.namespace.as_str() } else { "" };
    if stated == wanted {
        return Ok(());
    }
    if !stated.is_empty() && !wanted.is_empty() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let metadata = metadata_mut(object)?;
    if wanted.is_empty() {
        // Cluster scope: a stated namespace means nothing.
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".into(), wanted.into());
    }
    Ok(())
}

/// The name of the URL is that of the object.
pub fn check_name(call: &Call, object: &Value) -> Result<()> {
    let stated = meta_text(object, "name");
    if stated == call.info.name {
        return Ok(());
    }
    if stated.is_empty() {
        return Err(ApiError::bad_request("the name of the object is missing; it has to be the name on the URL"));
    }
    Err(ApiError::bad_request(format!(
        "the name of the object ({stated}) does not match the name on the URL ({})",
        call.info.name
    )))
}
