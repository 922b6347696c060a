//! Validation of a custom object by its structural schema: types, values, lists and maps, embedded objects. On update a value that
//! did not change is not judged again (ratcheting, KEP-4008). Rules in CEL (`x-kubernetes-validations`) are not judged here.

mod format;
mod lists;

use regex::RegexBuilder;
use serde_json::Value;

use super::error::FieldError;
use crate::limits;
use crate::structural::Structural;

/// Judges a whole custom object; `old` is what it replaces.
pub fn validate(schema: &Structural, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut walk = Walk { errors: Vec::new() };
    walk.value(schema, "", object, old);
    let mut errors = walk.errors;
    lists::check(schema, "", object, old, &mut errors);
    errors
}

/// Judges a value by a schema that holds for it alone (a default, for instance), at `path`.
pub fn validate_value(schema: &Structural, path: &str, value: &Value) -> Vec<FieldError> {
    let mut walk = Walk { errors: Vec::new() };
    walk.value(schema, path, value, None);
    lists::check(schema, path, value, None, &mut walk.errors);
    walk.errors
}

pub(super) fn child_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

struct Walk {
    errors: Vec<FieldError>,
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() && n.as_f64().is_some_and(|f| f.fract() != 0.0) => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn body_path(path: &str) -> String {
    if path.is_empty() { "<nil>".to_owned() } else { path.to_owned() }
}

impl Walk {
    fn invalid(&mut self, path: &str, value: &Value, text: &str) {
        self.errors.push(FieldError::invalid(body_path(path), value.clone(), format!("{path} in body {text}")));
    }

    fn value(&mut self, schema: &Structural, path: &str, value: &Value, old: Option<&Value>) {
        if old == Some(value) && !path.is_empty() {
            return;
        }
        if value.is_null() && schema.nullable {
            return;
        }
        if !self.type_fits(schema, path, value) {
            return;
        }
        self.enumeration(schema, path, value);
        match value {
            Value::String(text) => self.string(schema, path, text, value),
            Value::Number(number) => self.number(schema, path, number.as_f64().unwrap_or_default(), value),
            Value::Array(list) => self.list(schema, path, list, value, old),
            Value::Object(_) => self.object(schema, path, value, old),
            Value::Null | Value::Bool(_) => {}
        }
        self.combinations(schema, path, value);
    }

    fn type_fits(&mut self, schema: &Structural, path: &str, value: &Value) -> bool {
        let found = json_type(value);
        let wanted = schema.type_name.as_str();
        let fits = if schema.int_or_string {
            matches!(found, "integer" | "string")
        } else {
            wanted.is_empty() || wanted == found || (wanted == "number" && found == "integer")
        };
        if fits {
            return true;
        }
        let wanted = if schema.int_or_string { "integer,string" } else { wanted };
        let detail = format!("{path} in body must be of type {wanted}: {found:?}");
        self.errors.push(FieldError::type_invalid(body_path(path), value.clone(), detail));
        if wanted == "integer" && found == "number" {
            // Upstream's range check of the same number fails as well, and its error has no path.
            let detail = format!("Checked value must be of type integer with format {} in {path}", schema.format);
            self.errors.push(FieldError::invalid("<nil>", "", detail));
        }
        false
    }

    fn enumeration(&mut self, schema: &Structural, path: &str, value: &Value) {
        let Some(allowed) = &schema.enum_values else { return };
        if !allowed.contains(value) {
            let texts: Vec<String> = allowed.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            self.errors.push(FieldError::not_supported(body_path(path), value.clone(), &texts));
        }
    }

    fn string(&mut self, schema: &Structural, path: &str, text: &str, value: &Value) {
        let count = text.chars().count() as u64;
        if let Some(max) = schema.raw.get("maxLength").and_then(Value::as_u64).filter(|max| count > *max) {
            self.errors.push(FieldError::too_long(body_path(path), max as usize));
        }
        if let Some(min) = schema.raw.get("minLength").and_then(Value::as_u64).filter(|min| count < *min) {
            self.invalid(path, value, &format!("should be at least {min} chars long"));
        }
        if let Some(pattern) = schema.raw.get("pattern").and_then(Value::as_str) {
            let is_match =
                RegexBuilder::new(pattern).size_limit(limits::PATTERN_BYTES_MAX).build().is_ok_and(|regex| regex.is_match(text));
            if !is_match {
                self.invalid(path, value, &format!("should match '{pattern}'"));
            }
        }
        if !schema.int_or_string && !format::fits(&schema.format, text) {
            let detail = format!("{path} in body must be of type {}: {text:?}", schema.format);
            self.errors.push(FieldError::type_invalid(body_path(path), value.clone(), detail));
        }
    }

    fn number(&mut self, schema: &Structural, path: &str, number: f64, value: &Value) {
        let bound = |key: &str| schema.raw.get(key).and_then(Value::as_f64);
        let flag = |key: &str| schema.raw.get(key).and_then(Value::as_bool).unwrap_or(false);
        if schema.format == "int32" && (number < f64::from(i32::MIN) || number > f64::from(i32::MAX)) {
            let detail = format!("Checked value must be of type {} with format int32 in {path}", schema.type_name);
            self.errors.push(FieldError::invalid("<nil>", "", detail));
        }
        if let Some(step) = bound("multipleOf").filter(|step| *step > 0.0 && (number / step).fract() != 0.0) {
            self.invalid(path, value, &format!("should be a multiple of {step}"));
        }
        if let Some(max) = bound("maximum") {
            if flag("exclusiveMaximum") && number >= max {
                self.invalid(path, value, &format!("should be less than {max}"));
            } else if number > max {
                self.invalid(path, value, &format!("should be less than or equal to {max}"));
            }
        }
        if let Some(min) = bound("minimum") {
            if flag("exclusiveMinimum") && number <= min {
                self.invalid(path, value, &format!("should be greater than {min}"));
            } else if number < min {
                self.invalid(path, value, &format!("should be greater than or equal to {min}"));
            }
        }
    }

    fn count(&mut self, schema: &Structural, path: &str, count: usize, value: &Value, keys: (&str, &str, &str)) {
        let bound = |key: &str| schema.raw.get(key).and_then(Value::as_u64);
        if let Some(max) = bound(keys.0).filter(|max| count as u64 > *max) {
            self.errors.push(FieldError::too_many(body_path(path), count, max as usize));
        }
        if let Some(min) = bound(keys.1).filter(|min| (count as u64) < *min) {
            self.invalid(path, value, &format!("should have at least {min} {}", keys.2));
        }
    }

    fn list(&mut self, schema: &Structural, path: &str, list: &[Value], value: &Value, old: Option<&Value>) {
        self.count(schema, path, list.len(), value, ("maxItems", "minItems", "items"));
        let Some(items) = schema.items.as_deref() else { return };
        for (index, item) in list.iter().enumerate() {
            let before = lists::correlated(schema, item, old);
            self.value(items, &format!("{path}[{index}]"), item, before);
        }
    }

    fn object(&mut self, schema: &Structural, path: &str, value: &Value, old: Option<&Value>) {
        let Some(map) = value.as_object() else { return };
        self.count(schema, path, map.len(), value, ("maxProperties", "minProperties", "properties"));
        if schema.embedded_resource {
            for key in ["apiVersion", "kind"] {
                if map.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
                    self.errors.push(FieldError::required(child_path(path, key), ""));
                }
            }
        }
        for name in &schema.required {
            if !map.contains_key(name) {
                self.errors.push(FieldError::required(child_path(path, name), ""));
            }
        }
        for (key, item) in map {
            if schema.is_root && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            if let Some(child) = schema.properties.get(key).or(schema.additional_properties.as_deref()) {
                self.value(child, &child_path(path, key), item, old.and_then(|o| o.get(key)));
            }
        }
    }

    fn combinations(&mut self, schema: &Structural, path: &str, value: &Value) {
        let alternatives = |key: &str| -> Vec<Vec<FieldError>> {
            let list = schema.raw.get(key).and_then(Value::as_array);
            list.into_iter().flatten().map(|json| judge(&Structural::parse(json), path, value)).collect()
        };
        if !schema.int_or_string {
            let any = alternatives("anyOf");
            if !any.is_empty() && !any.iter().any(Vec::is_empty) {
                self.invalid(path, value, "must validate at least one schema (anyOf)");
                self.errors.extend(any.into_iter().min_by_key(Vec::len).unwrap_or_default());
            }
        }
        let one = alternatives("oneOf");
        let valid = one.iter().filter(|errors| errors.is_empty()).count();
        if !one.is_empty() && valid != 1 {
            let found = if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
            self.invalid(path, value, &format!("must validate one and only one schema (oneOf). {found}"));
            if valid == 0 {
                self.errors.extend(one.into_iter().min_by_key(Vec::len).unwrap_or_default());
            }
        }
        let all = alternatives("allOf");
        let failed = all.iter().filter(|errors| !errors.is_empty()).count();
        if failed > 0 {
            let none = if failed == all.len() { ". None validated" } else { "" };
            self.errors.extend(all.into_iter().flatten());
            self.invalid(path, value, &format!("must validate all the schemas (allOf){none}"));
        }
        if let Some(json) = schema.raw.get("not").filter(|n| n.is_object())
            && judge(&Structural::parse(json), path, value).is_empty()
        {
            self.invalid(path, value, "must not validate the schema (not)");
        }
    }
}

/// What a schema alone has to say of a value.
fn judge(schema: &Structural, path: &str, value: &Value) -> Vec<FieldError> {
    let mut walk = Walk { errors: Vec::new() };
    walk.value(schema, path, value, None);
    walk.errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Structural {
        Structural::parse_root(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10},
            "color": {"type": "string", "enum": ["red", "blue"]},
            "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
            "tags": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
            "when": {"type": "string", "format": "date-time"},
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "one": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 3}}}}}}}}),
        )
    }

    fn found(spec: Value, old: Option<Value>) -> Vec<String> {
        let old = old.map(|spec| json!({"metadata": {}, "spec": spec}));
        let errors = validate(&schema(), &json!({"metadata": {}, "spec": spec}), old.as_ref());
        errors.iter().map(|e| format!("{} {}", e.reason.as_str(), e.field)).collect()
    }

    #[test]
    fn values_are_judged_by_the_schema() {
        let good = json!({"size": 3, "color": "red", "name": "abc", "tags": ["x"], "when": "2001-02-03T04:05:06Z", "port": "http",
            "set": ["a", "b"], "one": {"a": "x"}, "map": [{"k": "x"}, {"k": "y"}]});
        assert!(found(good, None).is_empty());
        for (spec, wanted) in [
            (json!({}), vec!["FieldValueRequired spec.size"]),
            (json!({"size": 11}), vec!["FieldValueInvalid spec.size"]),
            (json!({"size": "3"}), vec!["FieldValueTypeInvalid spec.size"]),
            (json!({"size": 2.5}), vec!["FieldValueTypeInvalid spec.size", "FieldValueInvalid <nil>"]),
            (json!({"size": 1, "color": "green"}), vec!["FieldValueNotSupported spec.color"]),
            (json!({"size": 1, "name": "ABCDEF"}), vec!["FieldValueTooLong spec.name", "FieldValueInvalid spec.name"]),
            (json!({"size": 1, "tags": ["a", "b", "c"]}), vec!["FieldValueTooMany spec.tags"]),
            (json!({"size": 1, "tags": [1]}), vec!["FieldValueTypeInvalid spec.tags[0]"]),
            (json!({"size": 1, "when": "yesterday"}), vec!["FieldValueTypeInvalid spec.when"]),
            (json!({"size": 1, "port": true}), vec!["FieldValueTypeInvalid spec.port"]),
            (json!({"size": 1, "set": ["a", "a"]}), vec!["FieldValueDuplicate spec.set[1]"]),
            (json!({"size": 1, "map": [{"k": "x"}, {"k": "x"}]}), vec!["FieldValueDuplicate spec.map[1]"]),
            (json!({"size": 1, "one": {"a": "1", "b": "1"}}), vec!["FieldValueInvalid spec.one"]),
        ] {
            assert_eq!(found(spec.clone(), None), wanted, "{spec}");
        }
    }

    #[test]
    fn what_did_not_change_is_not_judged_again() {
        let old = json!({"size": 99, "name": "BAD", "map": [{"k": "x", "v": 9}]});
        assert!(
            found(json!({"size": 99, "name": "BAD", "map": [{"k": "y", "v": 1}, {"k": "x", "v": 9}]}), Some(old.clone()))
                .is_empty()
        );
        assert_eq!(found(json!({"size": 98, "name": "BAD"}), Some(old)), ["FieldValueInvalid spec.size"]);
    }
}
