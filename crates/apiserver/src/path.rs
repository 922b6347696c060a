//! Dotted paths of fields (`spec.template`), as the columns of a row name them. A number is a list index when reading.

use serde_json::{Map, Value};

pub fn get<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut at = object;
    for segment in path.split('.') {
        at = match at {
            Value::Array(items) => items.get(segment.parse::<usize>().ok()?)?,
            other => other.get(segment)?,
        };
    }
    Some(at)
}

/// Sets a field, making the objects on the way.
pub fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    let mut segments = path.split('.').peekable();
    while let Some(segment) = segments.next() {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Some(map) = at.as_object_mut() else { return };
        if segments.peek().is_none() {
            map.insert(segment.to_owned(), value);
            return;
        }
        at = map.entry(segment).or_insert(Value::Null);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_set_and_read_by_path() {
        let mut object = json!({"spec": {"a": [{"b": 1}]}});
        assert_eq!(get(&object, "spec.a.0.b"), Some(&json!(1)));
        set(&mut object, "status.c", json!(2));
        assert_eq!(object, json!({"spec": {"a": [{"b": 1}]}, "status": {"c": 2}}));
    }
}
