//! Times of entries follow changes, not requests.

use serde_json::{Map, Value};

/// Puts the stored times of `managedFields` back into `new` if nothing else differs from `old`: an apply that sets what is already
/// there writes nothing. To be called when the object is ready to be stored. `resourceVersion` is left out of the comparison.
pub fn keep_times_of_equal(old: &Value, new: &mut Value) {
    let (Some(before), Some(after)) = (entries(old), entries(new)) else { return };
    let same_entries = before.len() == after.len() && before.iter().zip(after).all(|(a, b)| same_but_for(a, b, &["time"]));
    if before.is_empty() || before == after || !same_entries || !same_object(old, new) {
        return;
    }
    let before = before.clone();
    if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("managedFields".to_owned(), Value::Array(before));
    }
}

fn entries(object: &Value) -> Option<&Vec<Value>> {
    object.get("metadata")?.get("managedFields")?.as_array()
}

fn same_object(old: &Value, new: &Value) -> bool {
    let metadata = |object: &Value| object.get("metadata").cloned().unwrap_or_default();
    same_but_for(old, new, &["metadata"]) && same_but_for(&metadata(old), &metadata(new), &["managedFields", "resourceVersion"])
}

/// Whether two objects are equal apart from some members.
fn same_but_for(a: &Value, b: &Value, left_out: &[&str]) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return a == b };
    let counted = |map: &Map<String, Value>| map.keys().filter(|k| !left_out.contains(&k.as_str())).count();
    counted(a) == counted(b) && a.iter().all(|(k, v)| left_out.contains(&k.as_str()) || b.get(k) == Some(v))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(data: &str, time: &str) -> Value {
        json!({"metadata": {"name": "a", "managedFields": [{"manager": "m", "time": time}]}, "data": data})
    }

    #[test]
    fn equal_objects_keep_their_times_and_changed_ones_do_not() {
        let old = object("x", "1");
        let mut new = object("x", "2");
        keep_times_of_equal(&old, &mut new);
        assert_eq!(new, old);
        let mut new = object("y", "2");
        keep_times_of_equal(&old, &mut new);
        assert_eq!(new, object("y", "2"));
    }
}
