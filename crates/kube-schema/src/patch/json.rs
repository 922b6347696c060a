//! JSON patch (RFC 6902) with the deviations that clients of Kubernetes know: `replace` of an absent key of an object sets it.

use std::io;

use serde_json::{Map, Value};

use super::PatchError;
use crate::limits;

/// Applies a JSON patch, all of it or nothing.
pub fn apply_json(current: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = parse(patch)?;
    let mut doc = current.clone();
    let mut copied_bytes = 0;
    for operation in operations {
        operation.apply(&mut doc, &mut copied_bytes)?;
    }
    Ok(doc)
}

/// Members of operations that RFC 6902 does not know, for field validation `Warn` and `Strict`, in the words of strict decoding.
pub fn unknown_operation_fields(patch: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for (index, operation) in patch.as_array().into_iter().flatten().enumerate() {
        for key in operation.as_object().into_iter().flat_map(Map::keys) {
            if !matches!(key.as_str(), "op" | "path" | "from" | "value") {
                out.push(format!("json patch unknown field \"[{index}].{key}\""));
            }
        }
    }
    out
}

struct Operation<'a> {
    op: &'a str,
    path: Option<&'a str>,
    from: Option<&'a str>,
    /// `Some(Null)` when stated as null, `None` when not stated.
    value: Option<&'a Value>,
}

fn parse(patch: &Value) -> Result<Vec<Operation<'_>>, PatchError> {
    let bad = |what: &str| PatchError::BadRequest(format!("error decoding patch: {what}"));
    let list = patch.as_array().ok_or_else(|| bad("a JSON patch must be a list of operations"))?;
    let mut out = Vec::with_capacity(list.len().min(limits::JSON_PATCH_OPERATIONS_MAX));
    for item in list {
        let empty = Value::Null;
        if !item.is_object() && *item != empty {
            return Err(bad("an operation must be an object"));
        }
        let text = |key: &str| match item.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(s)) => Ok(Some(s.as_str())),
            Some(_) => Err(bad(&format!("{key} must be a string"))),
        };
        out.push(Operation {
            op: text("op")?.unwrap_or("unknown"),
            path: text("path")?,
            from: text("from")?,
            value: item.get("value"),
        });
    }
    if out.len() > limits::JSON_PATCH_OPERATIONS_MAX {
        return Err(PatchError::TooLarge(format!(
            "a JSON patch may have {} operations, this one has {}",
            limits::JSON_PATCH_OPERATIONS_MAX,
            out.len()
        )));
    }
    Ok(out)
}

fn unfit(message: String) -> PatchError {
    PatchError::Unprocessable(message)
}

impl<'a> Operation<'a> {
    fn apply(&self, doc: &mut Value, copied_bytes: &mut usize) -> Result<(), PatchError> {
        match self.op {
            "add" => add(doc, self.path()?, self.value()?.clone()),
            "remove" => remove(doc, self.path()?).map(drop),
            "replace" => replace(doc, self.path()?, self.value()?.clone()),
            "move" => {
                let value = remove(doc, self.from()?)?;
                add(doc, self.path()?, value)
            }
            "copy" => {
                let value = find(doc, self.from()?)?.clone();
                *copied_bytes = copied_bytes.saturating_add(encoded_len(&value));
                if *copied_bytes > limits::JSON_PATCH_COPY_BYTES_MAX {
                    return Err(unfit(format!(
                        "copy operations add {copied_bytes} bytes, more than {}",
                        limits::JSON_PATCH_COPY_BYTES_MAX
                    )));
                }
                add(doc, self.path()?, value)
            }
            "test" => {
                let (path, expected) = (self.path()?, self.value()?);
                // An absent member of an object equals null; an absent parent does not.
                let found = match find(doc, path) {
                    Ok(found) => found,
                    Err(_) if expected.is_null() && has_object_parent(doc, path) => return Ok(()),
                    Err(e) => return Err(e),
                };
                if found == expected { Ok(()) } else { Err(unfit(format!("the value at {path:?} is not the one tested for"))) }
            }
            other => Err(unfit(format!("there is no operation {other:?}"))),
        }
    }

    fn path(&self) -> Result<&'a str, PatchError> {
        self.path.ok_or_else(|| unfit(format!("{} operation has no path", self.op)))
    }

    fn from(&self) -> Result<&'a str, PatchError> {
        self.from.ok_or_else(|| unfit(format!("{} operation has no from", self.op)))
    }

    fn value(&self) -> Result<&'a Value, PatchError> {
        self.value.ok_or_else(|| unfit(format!("{} operation has no value", self.op)))
    }
}

/// Splits a pointer into its container's pointer and the unescaped last token; `None` for the root.
fn split(path: &str) -> Result<Option<(&str, String)>, PatchError> {
    if path.is_empty() {
        return Ok(None);
    }
    if !path.starts_with('/') {
        return Err(unfit(format!("{path:?} is not a JSON pointer: it must start with a slash")));
    }
    let at = path.rfind('/').unwrap_or(0);
    Ok(Some((&path[..at], unescape(&path[at + 1..]))))
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// An index into a list: digits without leading zeros.
fn index(token: &str) -> Option<usize> {
    let canonical = token == "0" || (!token.starts_with('0') && !token.is_empty() && token.bytes().all(|b| b.is_ascii_digit()));
    if canonical { token.parse().ok() } else { None }
}

fn missing(path: &str) -> PatchError {
    unfit(format!("there is nothing at {path:?}"))
}

fn container<'d>(doc: &'d mut Value, parent: &str, path: &str) -> Result<&'d mut Value, PatchError> {
    let mut at = doc;
    for token in parent.split('/').skip(1) {
        at = match at {
            Value::Object(map) => map.get_mut(&unescape(token)),
            Value::Array(list) => index(&unescape(token)).and_then(|i| list.get_mut(i)),
            _ => None,
        }
        .ok_or_else(|| missing(path))?;
    }
    match at {
        Value::Object(_) | Value::Array(_) => Ok(at),
        _ => Err(missing(path)),
    }
}

fn find<'d>(doc: &'d Value, path: &str) -> Result<&'d Value, PatchError> {
    let mut at = doc;
    if !path.is_empty() && !path.starts_with('/') {
        return Err(missing(path));
    }
    for token in path.split('/').skip(1) {
        at = match at {
            Value::Object(map) => map.get(&unescape(token)),
            Value::Array(list) => index(&unescape(token)).and_then(|i| list.get(i)),
            _ => None,
        }
        .ok_or_else(|| missing(path))?;
    }
    Ok(at)
}

fn has_object_parent(doc: &Value, path: &str) -> bool {
    path.rfind('/').is_some_and(|at| find(doc, &path[..at]).is_ok_and(Value::is_object))
}

fn add(doc: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    let Some((parent, key)) = split(path)? else {
        *doc = value;
        return Ok(());
    };
    match container(doc, parent, path)? {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(list) => {
            let at = if key == "-" { Some(list.len()) } else { index(&key).filter(|at| *at <= list.len()) };
            list.insert(at.ok_or_else(|| unfit(format!("{path:?} is outside its list")))?, value);
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn remove(doc: &mut Value, path: &str) -> Result<Value, PatchError> {
    let Some((parent, key)) = split(path)? else {
        return Err(missing(path));
    };
    match container(doc, parent, path)? {
        Value::Object(map) => map.remove(&key).ok_or_else(|| missing(path)),
        Value::Array(list) => match index(&key).filter(|at| *at < list.len()) {
            Some(at) => Ok(list.remove(at)),
            None => Err(unfit(format!("{path:?} is outside its list"))),
        },
        _ => Err(missing(path)),
    }
}

fn replace(doc: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    let Some((parent, key)) = split(path)? else {
        *doc = value;
        return Ok(());
    };
    match container(doc, parent, path)? {
        // Upstream's `replace` does not ask whether the member was there.
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(list) => {
            let slot = index(&key).and_then(|at| list.get_mut(at));
            *slot.ok_or_else(|| unfit(format!("{path:?} is outside its list")))? = value;
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

/// Length of the compact encoding, counted without making it.
fn encoded_len(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.0 += buf.len();
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A counter cannot fail; an encoding error would leave the count short, never wrong in the other direction.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(doc: Value, patch: Value) -> Result<Value, u16> {
        apply_json(&doc, &patch).map_err(|e| e.code())
    }

    #[test]
    fn operations_apply_in_order() {
        let out = run(
            json!({"a": 1, "l": [1, 2], "m": {"x/y": 1, "t~e": 2}}),
            json!([
                {"op": "add", "path": "/l/1", "value": 9},
                {"op": "add", "path": "/l/-", "value": 8},
                {"op": "replace", "path": "/m/x~1y", "value": 3},
                {"op": "test", "path": "/m/t~0e", "value": 2},
                {"op": "copy", "from": "/a", "path": "/b"},
                {"op": "move", "from": "/a", "path": "/c"},
                {"op": "remove", "path": "/l/0"},
            ]),
        );
        assert_eq!(out, Ok(json!({"b": 1, "c": 1, "l": [9, 2, 8], "m": {"x/y": 3, "t~e": 2}})));
    }

    #[test]
    fn what_does_not_fit_is_422_and_what_is_no_patch_400() {
        let doc = json!({"a": {"b": 1}, "l": [1]});
        for patch in [
            json!([{"op": "test", "path": "/a/b", "value": 2}]),
            json!([{"op": "remove", "path": "/a/none"}]),
            json!([{"op": "replace", "path": "/none/x", "value": 1}]),
            json!([{"op": "frobnicate", "path": "/a"}]),
            json!([{"op": "add", "path": "a", "value": 1}]),
            json!([{"op": "add", "path": "/l/2", "value": 1}]),
            json!([{"op": "add", "path": "/l/-1", "value": 1}]),
            json!([{"op": "replace", "path": "/l/00", "value": 1}]),
            json!([{"op": "add", "path": "/a/b"}]),
            json!([{"op": "copy", "from": "/none", "path": "/x"}]),
            json!([{"op": "move", "path": "/x"}]),
            json!([{"path": "/x"}]),
            json!([null]),
        ] {
            assert_eq!(run(doc.clone(), patch.clone()), Err(422), "{patch}");
        }
        for patch in [json!({"op": "add"}), json!("x"), json!([1]), json!([{"op": 1}])] {
            assert_eq!(run(doc.clone(), patch.clone()), Err(400), "{patch}");
        }
    }

    #[test]
    fn replace_sets_absent_members_as_upstream_does() {
        assert_eq!(run(json!({}), json!([{"op": "replace", "path": "/a", "value": 1}])), Ok(json!({"a": 1})));
        assert_eq!(run(json!({}), json!([{"op": "test", "path": "/a", "value": null}])), Ok(json!({})));
    }

    #[test]
    fn the_number_of_operations_and_the_copied_bytes_are_bounded() {
        let many: Vec<Value> = vec![json!({"op": "test", "path": "/a", "value": 1}); limits::JSON_PATCH_OPERATIONS_MAX + 1];
        assert_eq!(run(json!({"a": 1}), Value::Array(many)), Err(413));
        // Each round doubles the document.
        let doubling: Vec<Value> = (0..64).map(|n| json!({"op": "copy", "from": "", "path": format!("/k{n}")})).collect();
        assert_eq!(run(json!({"a": "x".repeat(1000)}), Value::Array(doubling)), Err(422));
    }

    #[test]
    fn unknown_members_are_named() {
        assert_eq!(
            unknown_operation_fields(&json!([{"op": "test", "path": "/a", "vaule": 1}])),
            vec!["json patch unknown field \"[0].vaule\""]
        );
    }
}
