//! OpenAPI v2 definitions in, table text out.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::presence::Presence;
use super::tags::Tags;

pub type Definitions = BTreeMap<String, Value>;

pub fn parse(text: &str) -> Result<Definitions, String> {
    let json: Value = serde_json::from_str(text).map_err(|e| format!("definitions: {e}"))?;
    let map = json.get("$defs").and_then(Value::as_object).ok_or("definitions: no $defs")?;
    Ok(map.iter().map(|(k, v)| (k.clone(), v.clone())).collect())
}

/// Types that are a scalar or a free value in JSON though they are messages elsewhere.
fn scalar_word(name: &str) -> Option<&'static str> {
    Some(match name.rsplit_once('.')?.1 {
        "Quantity" => "quantity",
        "Time" => "time",
        "MicroTime" => "microtime",
        "Duration" if name.contains(".meta.v1.") => "duration",
        "IntOrString" => "intorstring",
        "RawExtension" => "raw",
        "FieldsV1" => "fields",
        "JSON" => "json",
        "JSONSchemaPropsOrArray" => "schemaorarray",
        "JSONSchemaPropsOrBool" => "schemaorbool",
        "JSONSchemaPropsOrStringArray" => "schemaorstrings",
        _ => return None,
    })
}

fn type_word(schema: &Value) -> Result<String, String> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return Ok(reference.trim_start_matches("#/$defs/").to_owned());
    }
    let name = match schema.get("type") {
        Some(Value::String(s)) => s.as_str(),
        Some(Value::Array(a)) => a.first().and_then(Value::as_str).unwrap_or_default(),
        _ => return Err(format!("a field has no type: {schema}")),
    };
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
    Ok(match (name, format) {
        ("string", "byte") => "bytes".to_owned(),
        ("string", _) => "string".to_owned(),
        ("boolean", _) => "bool".to_owned(),
        ("integer", "int32") => "int32".to_owned(),
        ("integer", _) => "int64".to_owned(),
        ("number", _) => "number".to_owned(),
        ("array", _) => format!("[]{}", type_word(&schema["items"])?),
        ("object", _) if schema.get("additionalProperties").is_some() => {
            format!("{{}}{}", type_word(&schema["additionalProperties"])?)
        }
        ("object", _) => "raw".to_owned(),
        _ => return Err(format!("unknown type {name}")),
    })
}

fn attributes(schema: &Value) -> String {
    let mut out = String::new();
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    if let Some(list) = text("x-kubernetes-list-type") {
        let _ = write!(out, " list={list}");
    }
    if let Some(keys) = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array) {
        let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
        let _ = write!(out, " keys={}", keys.join(","));
    }
    if let Some(key) = text("x-kubernetes-patch-merge-key") {
        let _ = write!(out, " mergekey={key}");
    }
    if let Some(strategy) = text("x-kubernetes-patch-strategy") {
        let _ = write!(out, " strategy={strategy}");
    }
    if let Some(word @ ("atomic" | "granular")) = text("x-kubernetes-map-type") {
        let _ = write!(out, " {word}");
    }
    out
}

fn type_line(name: &str, schema: &Value) -> String {
    let mut line = name.to_owned();
    if let Some(word) = scalar_word(name) {
        let _ = write!(line, " is={word}");
    }
    if schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic") {
        line.push_str(" atomic");
    }
    let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
    match kinds.map(Vec::as_slice) {
        Some([one]) => {
            let part = |key: &str| one.get(key).and_then(Value::as_str).unwrap_or_default();
            let _ = write!(line, " gvk={}/{}/{}", part("group"), part("version"), part("kind"));
        }
        // Options and events of the machinery belong to every group.
        Some([_, ..]) => line.push_str(" gvk=*"),
        _ => {}
    }
    line
}

/// Renders the whole table, sorted by type name; fields stand in the order of encoding.
pub fn render(definitions: &Definitions, tags: &Tags, presence: &Presence) -> Result<String, String> {
    let mut out = String::from("# Written by `cargo xtask schema`. Do not edit: rows of our own are in own/.\n");
    let mut untagged = Vec::new();
    for (name, schema) in definitions {
        let _ = writeln!(out, "{}", type_line(name, schema));
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { continue };
        if scalar_word(name).is_some() {
            continue;
        }
        let siblings: Vec<&str> = properties.keys().map(String::as_str).collect();
        let order = presence.get(name).ok_or_else(|| format!("own/presence.txt lacks {name}"))?;
        if let Some(missing) = siblings.iter().find(|s| !order.iter().any(|(f, _)| f == *s)) {
            return Err(format!("own/presence.txt lacks {name} {missing}"));
        }
        let required: Vec<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        for (field, flags) in order {
            let property = properties.get(field).ok_or_else(|| format!("{name} has no field {field}"))?;
            let is_type_meta =
                matches!(field.as_str(), "apiVersion" | "kind") && schema.get("x-kubernetes-group-version-kind").is_some();
            let number = if is_type_meta { Some("-".to_owned()) } else { tags.number(name, field, &siblings) };
            let Some(number) = number else {
                untagged.push(format!("{name} {field}"));
                continue;
            };
            let mut flags = flags.replace('-', "");
            if required.contains(&field.as_str()) {
                flags.push('r');
            }
            let flags = if flags.is_empty() { "-" } else { &flags };
            let word = type_word(property).map_err(|e| format!("{name}.{field}: {e}"))?;
            let _ = writeln!(out, " {field} {word} {number} {flags}{}", attributes(property));
        }
    }
    if !untagged.is_empty() {
        return Err(format!("no protobuf number (add rows to own/tags.txt):\n{}", untagged.join("\n")));
    }
    Ok(out)
}
