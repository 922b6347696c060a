//! Merging a partial object into a whole one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::element::PathElement;
use super::types::{Form, ListForm, Type};
use crate::schema::Schema;

/// Merges what a configuration states into an object: nothing is removed, what both state is the configuration's. Elements of lists
/// come in the configuration's order, the others keep their place between them.
pub fn merge(schema: Schema<'_>, object: &Value, config: &Value) -> Result<Value, String> {
    Ok(merge_values(Type::Of(schema), Some(object), Some(config))?.unwrap_or_default())
}

fn merge_values(ty: Type<'_>, object: Option<&Value>, config: Option<&Value>) -> Result<Option<Value>, String> {
    // Only free values have a form that depends on the value; the configuration's decides.
    let form = match (object, config) {
        (Some(_), None) => ty.form(object),
        _ => ty.form(config),
    };
    match form {
        Form::Leaf => Ok(config.or(object).cloned()),
        Form::Map => {
            let (left, right) = (object.and_then(Value::as_object), config.and_then(Value::as_object));
            if left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty) {
                return Ok(config.or(object).cloned());
            }
            let Some(right) = right else { return Ok(object.cloned()) };
            let mut out = Map::new();
            for (name, value) in left.into_iter().flatten() {
                let merged = match right.get(name) {
                    Some(stated) => merge_values(ty.member_or_deduced(name).0, Some(value), Some(stated))?,
                    None => Some(value.clone()),
                };
                out.extend(merged.map(|v| (name.clone(), v)));
            }
            for (name, stated) in right {
                if !left.is_some_and(|l| l.contains_key(name)) {
                    out.insert(name.clone(), stated.clone());
                }
            }
            Ok(if out.is_empty() { None } else { Some(Value::Object(out)) })
        }
        Form::List(list) => {
            let empty = Vec::new();
            let left = object.and_then(Value::as_array).unwrap_or(&empty);
            let right = config.and_then(Value::as_array).unwrap_or(&empty);
            if left.is_empty() && right.is_empty() {
                return Ok(config.or(object).cloned());
            }
            if right.is_empty() {
                return Ok(object.cloned());
            }
            merge_lists(&list, left, right).map(|out| Some(Value::Array(out)))
        }
    }
}

/// One element of the object's list.
enum Kept<'v> {
    Once(&'v Value),
    /// Elements that are there twice are not merged with what is stated, but replaced by it.
    Repeated,
}

fn merge_lists(list: &ListForm<'_>, left: &[Value], right: &[Value]) -> Result<Vec<Value>, String> {
    let (mut left_keys, mut right_keys) = (Vec::with_capacity(left.len()), Vec::with_capacity(right.len()));
    let mut objects: BTreeMap<PathElement, Kept<'_>> = BTreeMap::new();
    for item in left {
        let key = list.element(item)?;
        objects.entry(key.clone()).and_modify(|k| *k = Kept::Repeated).or_insert(Kept::Once(item));
        left_keys.push(key);
    }
    let mut stated: BTreeSet<&PathElement> = BTreeSet::new();
    for item in right {
        right_keys.push(list.element(item)?);
    }
    for key in &right_keys {
        if !stated.insert(key) {
            return Err(format!("two elements with key {key}"));
        }
    }
    // The elements of both, in the configuration's order: the next of them decides how far the object's list is read.
    let mut shared: VecDeque<&PathElement> = right_keys.iter().filter(|k| objects.contains_key(*k)).collect();
    let mut merged: BTreeSet<&PathElement> = BTreeSet::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let combine = |at: usize| {
        let current = match objects.get(&right_keys[at]) {
            Some(Kept::Once(item)) => Some(*item),
            Some(Kept::Repeated) | None => None,
        };
        merge_values(list.items, current, Some(&right[at]))
    };
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if l < left.len() && r < right.len() {
            if left_keys[l] == right_keys[r] {
                merged.insert(&right_keys[r]);
                out.extend(combine(r)?);
                (l, r) = (l + 1, r + 1);
                shared.pop_front();
                continue;
            }
            if stated.contains(&left_keys[l]) && shared.front().is_some_and(|next| **next != left_keys[l]) {
                l += 1;
                continue;
            }
        }
        if l < left.len() {
            if !stated.contains(&left_keys[l]) {
                out.push(left[l].clone());
                l += 1;
                continue;
            }
            if merged.contains(&left_keys[l]) {
                l += 1;
            }
        }
        if r < right.len() {
            merged.insert(&right_keys[r]);
            out.extend(combine(r)?);
            if shared.front() == Some(&&right_keys[r]) {
                shared.pop_front();
            }
            r += 1;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;
    use serde_json::json;

    fn containers(names: &[&str]) -> Value {
        json!({"spec": {"containers": names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>()}})
    }

    fn merged_names(left: &[&str], right: &[&str]) -> Vec<String> {
        let schema = Schema::BuiltIn(table::type_of_kind("", "v1", "Pod").expect("kind"));
        let out = merge(schema, &containers(left), &containers(right)).expect("merge");
        let list = out["spec"]["containers"].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(|c| c["name"].as_str().map(str::to_owned)).collect()
    }

    #[test]
    fn lists_take_the_configurations_order_and_keep_the_rest_in_place() {
        assert_eq!(merged_names(&["a", "b", "c"], &["b"]), ["a", "b", "c"]);
        assert_eq!(merged_names(&["a", "b", "c"], &["c", "a"]), ["b", "c", "a"]);
        assert_eq!(merged_names(&["a", "b"], &["x", "b"]), ["a", "x", "b"]);
        assert_eq!(merged_names(&["a"], &["x", "y"]), ["a", "x", "y"]);
        assert_eq!(merged_names(&[], &["x"]), ["x"]);
    }

    #[test]
    fn atomic_parts_are_replaced_and_empty_ones_kept() {
        let schema = Schema::BuiltIn(table::type_of_kind("", "v1", "Pod").expect("kind"));
        let out = merge(
            schema,
            &json!({"metadata": {"labels": {"a": "1"}}, "spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "c", "args": ["1"], "image": "i"}]}}),
            &json!({"metadata": {"labels": {}}, "spec": {"nodeSelector": {"c": "d"}, "securityContext": {}, "containers": [{"name": "c", "args": ["2"]}]}}),
        );
        assert_eq!(
            out,
            Ok(json!({"metadata": {"labels": {"a": "1"}}, "spec": {
                "nodeSelector": {"c": "d"},
                "securityContext": {},
                "containers": [{"name": "c", "args": ["2"], "image": "i"}],
            }}))
        );
    }
}
