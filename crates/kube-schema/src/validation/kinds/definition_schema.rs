//! The schema of a custom resource definition: what OpenAPI allows, and what makes it structural. Rules in CEL must be there; whether
//! they compile is judged where they are evaluated.

use serde_json::Value;

use super::super::check::Check;
use super::super::path::Path;
use super::super::structural;
use super::super::view::{at, entries, flag, has, is_empty, list, text, texts};
use crate::structural::Structural;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const UNSUPPORTED: [&str; 6] = ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
/// What may stand at the root of a schema with a status subresource, besides what is plain validation.
const NOT_AT_ROOT: [&str; 12] = [
    "not",
    "allOf",
    "anyOf",
    "oneOf",
    "enum",
    "default",
    "nullable",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
];

/// Where in the structure a schema stands.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What holds for the part of a schema that is being looked at.
#[derive(Clone, Copy)]
struct Place {
    level: Level,
    /// Why no default may stand here.
    no_defaults: Option<&'static str>,
    is_in_metadata: bool,
}

/// `schema` of a version, which may have a status subresource.
pub fn validation(c: &mut Check<'_>, version: &Value, validation: &Value, path: &Path<'_>) {
    let schema = at(validation, "openAPIV3Schema");
    if schema.is_null() {
        return;
    }
    let path = path.field("openAPIV3Schema");
    if has(version, "subresources.status") {
        if !matches!(text(schema, "type"), "" | "object") {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            c.invalid(&path.field("type"), text(schema, "type"), detail);
        } else if NOT_AT_ROOT.iter().any(|f| schema.get(*f).is_some_and(|v| !is_empty(v) && *v != Value::Bool(false))) {
            let detail = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled";
            c.invalid(&path, schema.clone(), detail);
        }
    }
    if flag(schema, "nullable") {
        c.forbidden(&path.field("nullable"), "nullable cannot be true at the root");
    }
    // What OpenAPI knows and structural schemas do not is reported alone.
    if !has_unsupported(schema) {
        let before = c.errors.len();
        structure(c, schema, Level::Root, &path);
        if c.errors.len() == before {
            completeness(c, schema, schema, &path);
        }
        if c.errors.len() == before {
            defaults(c, schema, &path);
        }
    }
    openapi(c, schema, Place { level: Level::Root, no_defaults: None, is_in_metadata: false }, &path);
}

fn has_unsupported(schema: &Value) -> bool {
    UNSUPPORTED.iter().any(|f| schema.get(*f).is_some_and(|v| !is_empty(v) && *v != Value::Bool(false)))
        || at(schema, "items").is_array()
        || ["items", "additionalProperties", "not"].iter().any(|f| at(schema, f).is_object() && has_unsupported(at(schema, f)))
        || ["allOf", "anyOf", "oneOf"].iter().any(|f| list(schema, f).iter().any(has_unsupported))
        || entries(schema, "properties").iter().any(|(_, p)| has_unsupported(p))
}

/// Errors of each default by the schema that it stands in.
fn defaults(c: &mut Check<'_>, schema: &Value, path: &Path<'_>) {
    if let Some(default) = schema.get("default").filter(|d| !d.is_null()) {
        let node = Structural::parse(schema);
        let place = path.field("default").to_string();
        // The texts speak of the value alone.
        for mut error in structural::validate_value(&node, "", default) {
            error.field = if error.field == "<nil>" { place.clone() } else { format!("{place}.{}", error.field) };
            c.errors.push(error);
        }
    }
    let properties = path.field("properties");
    for (name, property) in entries(schema, "properties") {
        defaults(c, property, &properties.key(name));
    }
    for field in ["items", "additionalProperties"] {
        if at(schema, field).is_object() {
            defaults(c, at(schema, field), &path.field(field));
        }
    }
}

fn is_int_or_string(schemas: &[Value]) -> bool {
    schemas.len() == 2 && text(&schemas[0], "type") == "integer" && text(&schemas[1], "type") == "string"
}

fn structure(c: &mut Check<'_>, schema: &Value, level: Level, path: &Path<'_>) {
    let kind = text(schema, "type");
    let (embedded, preserves) =
        (flag(schema, "x-kubernetes-embedded-resource"), flag(schema, "x-kubernetes-preserve-unknown-fields"));
    let is_either = flag(schema, "x-kubernetes-int-or-string");
    let type_path = path.field("type");
    if kind == "array" && !has(schema, "items") {
        c.required(&path.field("items"), "must be specified");
    }
    if at(schema, "items").is_object() {
        structure(c, at(schema, "items"), Level::Item, &path.field("items"));
    }
    let properties = path.field("properties");
    for (name, property) in entries(schema, "properties") {
        structure(c, property, Level::Field, &properties.key(name));
    }
    let additional = at(schema, "additionalProperties");
    let additional_path = path.field("additionalProperties");
    if !additional.is_null() && level == Level::Root {
        c.forbidden(&additional_path, "must not be used at the root");
    }
    if additional.is_object() {
        structure(c, additional, Level::Field, &additional_path);
    }
    if is_either && preserves {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        c.invalid(&path.field("x-kubernetes-preserve-unknown-fields"), true, detail);
    }
    if is_either && embedded {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        c.invalid(&path.field("x-kubernetes-embedded-resource"), true, detail);
    }
    value_validation(c, schema, path);
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() { c.required(&type_path, detail) } else { c.invalid(&type_path, kind, detail) }
    } else if kind.is_empty() && !is_either && !preserves {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        c.required(&type_path, detail);
    }
    if embedded && !additional.is_null() {
        c.forbidden(&additional_path, "must not be used if x-kubernetes-embedded-resource is set");
    }
    if level == Level::Root && !matches!(kind, "" | "object") {
        c.invalid(&type_path, kind, "must be object at the root");
    }
    object_fields(c, schema, level, path);
    if embedded && !preserves && is_empty(at(schema, "properties")) {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        c.required(&properties, detail);
    }
}

/// `kind`, `apiVersion` and `metadata` of what is an object of the API.
fn object_fields(c: &mut Check<'_>, schema: &Value, level: Level, path: &Path<'_>) {
    let is_object = level == Level::Root || flag(schema, "x-kubernetes-embedded-resource");
    let properties = path.field("properties");
    for name in ["kind", "apiVersion"] {
        let property = at(at(schema, "properties"), name);
        if is_object && !property.is_null() && text(property, "type") != "string" {
            c.invalid(&properties.key(name).field("type"), text(property, "type"), "must be string");
        }
    }
    let metadata = at(schema, "properties.metadata");
    let Some(fields) = metadata.as_object() else { return };
    let place = properties.key("metadata");
    if is_object && text(metadata, "type") != "object" {
        c.invalid(&place.field("type"), text(metadata, "type"), "must be object");
    }
    if level != Level::Root {
        return;
    }
    let has_other_fields = fields.iter().any(|(key, value)| match key.as_str() {
        "type" | "default" | "description" => false,
        "properties" => entries(metadata, "properties").iter().any(|(name, _)| !matches!(*name, "name" | "generateName")),
        _ => !is_empty(value),
    });
    if has_other_fields {
        c.forbidden(&place, "must not specify anything other than name and generateName, but metadata is implicitly specified");
    }
}

fn value_validation(c: &mut Check<'_>, schema: &Value, path: &Path<'_>) {
    let is_either = is_int_or_string(list(schema, "anyOf"));
    for field in ["anyOf", "allOf", "oneOf"] {
        if field == "anyOf" && is_either {
            continue;
        }
        let path = path.field(field);
        for (i, nested) in list(schema, field).iter().enumerate() {
            let skips = field == "allOf" && i == 0 && is_int_or_string(list(nested, "anyOf"));
            if !skips {
                nested_validation(c, nested, &path.index(i));
            }
        }
    }
    if has(schema, "not") {
        nested_validation(c, at(schema, "not"), &path.field("not"));
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty() && regex::Regex::new(pattern).is_err() {
        c.invalid(&path.field("pattern"), pattern, "must be a valid regular expression, but isn't: error parsing regexp");
    }
}

/// Inside of logical combinations nothing may shape the value.
fn nested_validation(c: &mut Check<'_>, schema: &Value, path: &Path<'_>) {
    value_validation(c, schema, path);
    if at(schema, "items").is_object() {
        nested_validation(c, at(schema, "items"), &path.field("items"));
    }
    let properties = path.field("properties");
    for (name, property) in entries(schema, "properties") {
        nested_validation(c, property, &properties.key(name));
    }
    const FORBIDDEN: [(&str, &str); 12] = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
    ];
    for (field, detail) in FORBIDDEN {
        let value = schema.get(field).unwrap_or(&Value::Null);
        let is_unset =
            value.is_null() || *value == Value::Bool(false) && field != "additionalProperties" || value.as_str() == Some("");
        if !is_unset {
            c.forbidden(&path.field(field), detail);
        }
    }
    if !is_empty(at(schema, "x-kubernetes-validations")) {
        c.forbidden(&path.field("x-kubernetes-validations"), "must be empty to be structural");
    }
    if has(schema, "properties.metadata") {
        c.forbidden(&properties.key("metadata"), "must not be specified in a nested context");
    }
}

/// What a combination names must be part of the structure.
fn completeness(c: &mut Check<'_>, schema: &Value, base: &Value, path: &Path<'_>) {
    for field in ["anyOf", "allOf", "oneOf", "not"] {
        let nested: Vec<&Value> = match at(schema, field) {
            Value::Array(all) => all.iter().collect(),
            Value::Object(_) => vec![at(schema, field)],
            _ => continue,
        };
        for nested in nested {
            missing_parts(c, nested, base, path);
        }
    }
    let properties = path.field("properties");
    for (name, property) in entries(schema, "properties") {
        completeness(c, property, property, &properties.key(name));
    }
    for field in ["items", "additionalProperties"] {
        if at(schema, field).is_object() {
            completeness(c, at(schema, field), at(schema, field), &path.field(field));
        }
    }
}

fn missing_parts(c: &mut Check<'_>, nested: &Value, base: &Value, path: &Path<'_>) {
    let properties = path.field("properties");
    for (name, property) in entries(nested, "properties") {
        match at(base, "properties").get(name) {
            Some(found) => missing_parts(c, property, found, &properties.key(name)),
            None => c.required(&properties.key(name), "because it is defined in a nested value validation"),
        }
    }
    if at(nested, "items").is_object() {
        match at(base, "items") {
            Value::Null => c.required(&path.field("items"), "because it is defined in a nested value validation"),
            found => missing_parts(c, at(nested, "items"), found, &path.field("items")),
        }
    }
    for field in ["anyOf", "allOf", "oneOf"] {
        for deeper in list(nested, field) {
            missing_parts(c, deeper, base, path);
        }
    }
}

fn openapi(c: &mut Check<'_>, schema: &Value, place: Place, path: &Path<'_>) {
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        c.not_supported(&path.field("type"), kind, &TYPES);
    }
    if let Some(reason) = place.no_defaults.filter(|_| has(schema, "default")) {
        c.forbidden(&path.field("default"), format!("must not be set {reason}"));
    }
    for field in UNSUPPORTED {
        let value = schema.get(field).unwrap_or(&Value::Null);
        if !is_empty(value) || (*value == Value::Bool(true)) {
            c.forbidden(&path.field(field), format!("{field} is not supported"));
        }
    }
    if kind == "null" {
        c.forbidden(&path.field("type"), "type cannot be set to null, use nullable as an alternative");
    }
    if at(schema, "items").is_array() {
        c.forbidden(&path.field("items"), "items must be a schema object and not an array");
    }
    if place.is_in_metadata && flag(schema, "x-kubernetes-embedded-resource") {
        c.forbidden(&path.field("x-kubernetes-embedded-resource"), "must not be used inside of resource meta");
    }
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        c.forbidden(&path.field("uniqueItems"), detail);
    }
    let additional = at(schema, "additionalProperties");
    if !is_empty(at(schema, "properties")) && !additional.is_null() && *additional != Value::Bool(true) {
        let detail = "additionalProperties and properties are mutual exclusive";
        c.forbidden(&path.field("additionalProperties"), detail);
    }
    children(c, schema, place, path);
    extensions(c, schema, path);
    rules(c, schema, path);
}

fn children(c: &mut Check<'_>, schema: &Value, place: Place, path: &Path<'_>) {
    let is_object = place.level == Level::Root || flag(schema, "x-kubernetes-embedded-resource");
    let below = Place { level: Level::Field, ..place };
    if at(schema, "additionalProperties").is_object() {
        let reason = "inside additionalProperties applying to object metadata";
        let no_defaults = if place.is_in_metadata { Some(reason) } else { place.no_defaults };
        let inner = Place { no_defaults, ..below };
        openapi(c, at(schema, "additionalProperties"), inner, &path.field("additionalProperties"));
    }
    let properties = path.field("properties");
    for (name, property) in entries(schema, "properties") {
        let mut inner = below;
        let own = match name {
            "metadata" => Some("in top-level metadata"),
            "kind" => Some("in top-level kind"),
            "apiVersion" => Some("in top-level apiVersion"),
            _ => None,
        };
        if is_object && own.is_some() {
            inner.is_in_metadata = true;
            if place.level == Level::Root {
                inner.no_defaults = own;
            }
        }
        openapi(c, property, inner, &properties.key(name));
    }
    for field in ["not", "items"] {
        if at(schema, field).is_object() {
            openapi(c, at(schema, field), Place { level: Level::Item, ..place }, &path.field(field));
        }
    }
    for field in ["allOf", "oneOf", "anyOf"] {
        let path = path.field(field);
        for (i, nested) in list(schema, field).iter().enumerate() {
            openapi(c, nested, below, &path.index(i));
        }
    }
}

fn typed(c: &mut Check<'_>, schema: &Value, wanted: &str, extension: &str, path: &Path<'_>) -> bool {
    let kind = text(schema, "type");
    if kind == wanted {
        return true;
    }
    let detail = format!("must be {wanted} if {extension} is specified");
    if kind.is_empty() {
        c.required(&path.field("type"), detail)
    } else {
        c.invalid(&path.field("type"), kind, detail)
    }
    false
}

fn extensions(c: &mut Check<'_>, schema: &Value, path: &Path<'_>) {
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        c.invalid(&path.field("x-kubernetes-preserve-unknown-fields"), false, "must be true or undefined");
    }
    if has(schema, "x-kubernetes-map-type") {
        typed(c, schema, "object", "x-kubernetes-map-type", path);
        let found = text(schema, "x-kubernetes-map-type");
        if !matches!(found, "atomic" | "granular") {
            c.not_supported(&path.field("x-kubernetes-map-type"), found, &["atomic", "granular"]);
        }
    }
    let list_type = text(schema, "x-kubernetes-list-type");
    let type_path = path.field("x-kubernetes-list-type");
    if has(schema, "x-kubernetes-list-type") {
        let is_array = typed(c, schema, "array", "x-kubernetes-list-type", path);
        let item = at(schema, "items");
        if is_array && list_type == "set" && item.is_object() {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let items = path.field("items");
            match text(item, "type") {
                "array" if !matches!(text(item, "x-kubernetes-list-type"), "" | "atomic") => {
                    c.invalid(&items.field("x-kubernetes-list-type"), text(item, "x-kubernetes-list-type"), detail);
                }
                "object" if text(item, "x-kubernetes-map-type") != "atomic" => {
                    c.invalid(&items.field("x-kubernetes-map-type"), Value::Null, detail);
                }
                _ => {}
            }
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            c.not_supported(&type_path, list_type, &["atomic", "set", "map"]);
        }
    }
    let keys = texts(schema, "x-kubernetes-list-map-keys");
    if !keys.is_empty() && list_type != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        if list_type.is_empty() { c.required(&type_path, detail) } else { c.invalid(&type_path, list_type, detail) }
    }
    if list_type == "map" {
        list_map(c, schema, &keys, path);
    }
    if matches!(list_type, "map" | "set") && flag(schema, "items.nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        c.forbidden(&path.field("items.nullable"), detail);
    }
    if list_type == "map" {
        map_keys_have_values(c, schema, &keys, path);
    }
}

fn list_map(c: &mut Check<'_>, schema: &Value, keys: &[&str], path: &Path<'_>) {
    let keys_path = path.field("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        c.required(&keys_path, "must not be empty if x-kubernetes-list-type is map");
    }
    let item = at(schema, "items");
    if item.is_null() {
        return c.required(&path.field("items"), "must have a schema if x-kubernetes-list-type is map");
    }
    if text(item, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        return c.invalid(&path.field("items.type"), text(item, "type"), detail);
    }
    let properties = path.field("items.properties");
    for (i, key) in keys.iter().enumerate() {
        match at(item, "properties").get(*key) {
            Some(property) if matches!(text(property, "type"), "array" | "object") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                c.invalid(&properties.key(key).field("type"), "object", detail);
            }
            Some(_) => {}
            None => c.invalid(&keys_path, keys.to_vec(), "entries must all be names of item properties"),
        }
        if keys[..i].contains(key) {
            c.invalid(&keys_path, keys.to_vec(), "must not contain duplicate entries");
        }
    }
}

fn map_keys_have_values(c: &mut Check<'_>, schema: &Value, keys: &[&str], path: &Path<'_>) {
    let required = texts(schema, "items.required");
    let properties = path.field("items.properties");
    for key in keys {
        let Some(property) = at(schema, "items.properties").get(*key) else { continue };
        if !required.contains(key) && !has(property, "default") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            c.required(&properties.key(key).field("default"), detail);
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            c.forbidden(&properties.key(key).field("nullable"), detail);
        }
    }
}

/// `x-kubernetes-validations`, but for the expressions themselves.
fn rules(c: &mut Check<'_>, schema: &Value, path: &Path<'_>) {
    let path = path.field("x-kubernetes-validations");
    for (i, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
        let path = path.index(i);
        let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
        let has_breaks = |s: &str| s.contains(['\n', '\r']);
        if expression.is_empty() {
            c.required(&path.field("rule"), "rule is not specified");
        } else if !message.is_empty() && message.trim().is_empty() {
            c.invalid(&path.field("message"), message, "must be non-empty if specified");
        } else if has_breaks(message.trim()) {
            c.invalid(&path.field("message"), message, "must not contain line breaks");
        } else if has_breaks(expression) && message.trim().is_empty() {
            c.required(&path.field("message"), "message must be specified if rule contains line breaks");
        }
        let message_expression = text(rule, "messageExpression");
        if !message_expression.is_empty() && message_expression.trim().is_empty() {
            c.required(&path.field("messageExpression"), "messageExpression must be non-empty if specified");
        }
        let reason = text(rule, "reason");
        if has(rule, "reason") && !REASONS.contains(&reason) {
            c.not_supported(&path.field("reason"), reason, &REASONS);
        }
        let field = text(rule, "fieldPath");
        if !field.is_empty() && field.trim().is_empty() {
            c.invalid(&path.field("fieldPath"), field, "must be non-empty if specified");
        }
        if has_breaks(field) {
            c.invalid(&path.field("fieldPath"), field, "must not contain line breaks");
        }
    }
}
