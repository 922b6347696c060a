//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

use super::PatchError;

/// Applies a merge patch to an object. The patch must be an object too: what RFC 7386 says of other values would replace the whole
/// object by something that is none, so upstream's decoder refuses it.
pub fn apply_merge(current: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::BadRequest("a merge patch must be a JSON object".to_owned()));
    };
    let mut out = current.clone();
    if let Value::Object(target) = &mut out {
        merge_into(target, patch);
        return Ok(out);
    }
    Err(PatchError::BadRequest("only a JSON object can be merge patched".to_owned()))
}

fn merge_into(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match (target.get_mut(key), value) {
            (_, Value::Null) => {
                target.remove(key);
            }
            (Some(Value::Object(current)), Value::Object(change)) => merge_into(current, change),
            (_, value) => {
                target.insert(key.clone(), without_nulls(value));
            }
        }
    }
}

/// A value that the patch puts where there was none (or where something else was): nulls in it ask for nothing. Inside lists a null
/// is an element and stays, but objects in lists lose theirs, as upstream.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nulls_remove_objects_merge_and_the_rest_is_replaced() {
        let current = json!({"a": 1, "b": {"c": 2, "d": 3}, "l": [1, 2], "s": "x"});
        let patch = json!({"a": null, "b": {"c": null, "e": 4}, "l": [3], "s": {"k": null, "v": 1}, "none": null});
        assert_eq!(apply_merge(&current, &patch).expect("patch"), json!({"b": {"d": 3, "e": 4}, "l": [3], "s": {"v": 1}}));
    }

    #[test]
    fn only_objects_are_patches() {
        for patch in [json!([]), json!(null), json!("x")] {
            assert_eq!(apply_merge(&json!({}), &patch).map_err(|e| e.code()), Err(400));
        }
    }

    #[test]
    fn objects_in_new_lists_lose_their_nulls() {
        assert_eq!(
            apply_merge(&json!({}), &json!({"l": [{"a": null, "b": 1}, null]})).expect("patch"),
            json!({"l": [{"b": 1}, null]})
        );
    }
}
