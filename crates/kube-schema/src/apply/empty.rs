//! The object that a created one is compared with.

use serde_json::{Map, Value};

use crate::schema::Schema;
use crate::table::{Kind, Node};

/// An object of a kind before anything was said about it. A custom one is empty; a built-in one has the fields that are always
/// written (structs that are no pointers, fields that are not left out when empty), which is why their mere presence in a created
/// object is nobody's doing.
pub(super) fn empty_object(schema: Schema<'_>) -> Value {
    match schema {
        Schema::Custom(_) => Value::Object(Map::new()),
        Schema::BuiltIn(node) => zero_struct(node),
    }
}

fn zero_struct(node: Node) -> Value {
    Value::Object(node.built_in_fields().filter_map(|field| Some((field.name().to_owned(), zero(field)?))).collect())
}

/// What an untouched field is written as; `None` if it is left out.
fn zero(field: Node) -> Option<Value> {
    if field.is_pointer() {
        return if field.omits_empty() { None } else { Some(Value::Null) };
    }
    let unless_omitted = |value: Value| if field.omits_empty() || field.omits_zero() { None } else { Some(value) };
    // Go's `omitempty` does not mean structs.
    let struct_like = |value: Value| if field.omits_zero() { None } else { Some(value) };
    match field.kind() {
        Kind::Struct => struct_like(zero_struct(field)),
        Kind::Time | Kind::MicroTime | Kind::RawExtension => struct_like(Value::Null),
        Kind::Quantity => struct_like(Value::from("0")),
        Kind::IntOrString => struct_like(Value::from(0)),
        Kind::Duration => struct_like(Value::from("0s")),
        Kind::String => unless_omitted(Value::from("")),
        Kind::Int32 | Kind::Int64 | Kind::Number => unless_omitted(Value::from(0)),
        Kind::Boolean => unless_omitted(Value::from(false)),
        Kind::List | Kind::Map | Kind::Bytes | Kind::Fields | Kind::Json => unless_omitted(Value::Null),
        Kind::SchemaOrArray | Kind::SchemaOrBool | Kind::SchemaOrStrings => unless_omitted(Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;
    use serde_json::json;

    #[test]
    fn fields_that_are_always_written_are_there() {
        let of = |group: &str, kind: &str| empty_object(Schema::BuiltIn(table::type_of_kind(group, "v1", kind).expect("kind")));
        let pod = of("", "Pod");
        assert_eq!((&pod["spec"], &pod["status"]), (&json!({"containers": null}), &json!({})));
        let deployment = of("apps", "Deployment");
        assert_eq!(deployment["spec"]["selector"], Value::Null);
        assert_eq!(deployment["spec"]["strategy"], json!({}));
        assert_eq!(deployment["spec"]["template"]["spec"], json!({"containers": null}));
        assert_eq!(of("", "ConfigMap").get("data"), None);
    }
}
