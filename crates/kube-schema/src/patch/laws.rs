//! Laws that hold for all patches: what a patch that was made from two objects does, and that no patch breaks anything.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::apply::laws::any_json;
use crate::schema::Schema;
use crate::table;

fn pod_schema() -> Schema<'static> {
    Schema::BuiltIn(table::type_of_kind("", "v1", "Pod").expect("kind"))
}

fn any_pod() -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[A-D]", 0u8..3, 0..4)
        .prop_map(|m| m.iter().map(|(n, v)| json!({"name": n, "value": v.to_string()})).collect::<Vec<_>>());
    let container = (prop::option::of(0u8..3), env, prop::collection::vec("[xy]", 0..3));
    let containers = prop::collection::btree_map("[a-e]", container, 1..5).prop_map(|m| {
        let list = m.into_iter().map(|(name, (image, env, args))| {
            let mut out = json!({"name": name, "args": args});
            if !env.is_empty() {
                out["env"] = json!(env);
            }
            if let Some(image) = image {
                out["image"] = json!(format!("i{image}"));
            }
            out
        });
        list.collect::<Vec<_>>()
    });
    let labels = prop::collection::btree_map("[a-d]", "[a-b]", 0..4);
    let finalizers = prop::collection::btree_set("[a-e]", 0..4);
    (containers.prop_shuffle(), labels, finalizers).prop_map(|(containers, labels, finalizers)| {
        json!({"metadata": {"labels": labels, "finalizers": finalizers}, "spec": {"containers": containers}})
    })
}

/// A strategic merge patch from one object to another, as a client makes it.
fn strategic_diff(schema: Schema<'_>, from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let mut out = Map::new();
    for (key, wanted) in to {
        let field = schema.field(key);
        match (from.get(key), wanted) {
            (Some(current), wanted) if current == wanted => {}
            (Some(Value::Object(current)), Value::Object(wanted)) => {
                let below = match field {
                    Some(field) if field.shape() == crate::Shape::Struct => strategic_diff(field, current, wanted),
                    _ => flat_diff(current, wanted),
                };
                out.insert(key.clone(), Value::Object(below));
            }
            (Some(Value::Array(current)), Value::Array(wanted)) if field.is_some_and(|f| f.patch_strategy().merge) => {
                list_diff(field.expect("checked"), key, current, wanted, &mut out);
            }
            (_, wanted) => {
                out.insert(key.clone(), wanted.clone());
            }
        }
    }
    out.extend(from.keys().filter(|k| !to.contains_key(*k)).map(|k| (k.clone(), Value::Null)));
    out
}

fn flat_diff(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let changed = to.iter().filter(|(k, v)| from.get(*k) != Some(v)).map(|(k, v)| (k.clone(), v.clone()));
    let removed = from.keys().filter(|k| !to.contains_key(*k)).map(|k| (k.clone(), Value::Null));
    changed.chain(removed).collect()
}

fn list_diff(list: Schema<'_>, name: &str, from: &[Value], to: &[Value], out: &mut Map<String, Value>) {
    let Some(key) = list.merge_key() else {
        let gone: Vec<&Value> = from.iter().filter(|v| !to.contains(v)).collect();
        out.insert(format!("$deleteFromPrimitiveList/{name}"), json!(gone));
        let new: Vec<&Value> = to.iter().filter(|v| !from.contains(v)).collect();
        out.insert(format!("$setElementOrder/{name}"), json!(to));
        out.insert(name.to_owned(), json!(new));
        return;
    };
    let find = |list: &[Value], id: &Value| list.iter().find(|i| i[key] == *id).cloned();
    let mut changes = Vec::new();
    for item in to {
        let change = match (find(from, &item[key]), item) {
            (Some(Value::Object(current)), Value::Object(wanted)) => {
                let mut change = strategic_diff(list.items().expect("items"), &current, wanted);
                change.insert(key.to_owned(), item[key].clone());
                Value::Object(change)
            }
            _ => item.clone(),
        };
        changes.push(change);
    }
    for item in from.iter().filter(|i| find(to, &i[key]).is_none()) {
        changes.push(json!({"$patch": "delete", (key): item[key]}));
    }
    let order: Vec<Value> = to.iter().map(|i| json!({ (key): i[key] })).collect();
    out.insert(format!("$setElementOrder/{name}"), Value::Array(order));
    out.insert(name.to_owned(), Value::Array(changes));
}

fn merge_diff(from: &Value, to: &Value) -> Value {
    let (Value::Object(current), Value::Object(wanted)) = (from, to) else { return to.clone() };
    let mut out: Map<String, Value> = wanted
        .iter()
        .filter(|(k, v)| current.get(*k) != Some(v))
        .map(|(k, v)| (k.clone(), current.get(k).map_or_else(|| v.clone(), |c| merge_diff(c, v))))
        .collect();
    out.extend(current.keys().filter(|k| !wanted.contains_key(*k)).map(|k| (k.clone(), Value::Null)));
    Value::Object(out)
}

/// Merge patches cannot state nulls.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect(),
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_strategic_patch_leads_from_one_object_to_the_other(from in any_pod(), to in any_pod()) {
        let (Value::Object(current), Value::Object(wanted)) = (&from, &to) else { unreachable!("pods are objects") };
        let patch = Value::Object(strategic_diff(pod_schema(), current, wanted));
        prop_assert_eq!(apply_strategic(pod_schema(), &from, &patch), Ok(to), "{}", patch);
    }

    #[test]
    fn a_merge_patch_leads_from_one_object_to_the_other(from in any_json(), to in any_json()) {
        let (from, to) = (json!({"v": without_nulls(&from)}), json!({"v": without_nulls(&to)}));
        let patch = merge_diff(&from, &to);
        prop_assert_eq!(apply_merge(&from, &patch), Ok(without_nulls(&to)));
    }

    #[test]
    fn no_patch_panics(current in any_json(), patch in any_json(), op in "(add|remove|replace|move|copy|test)", path in "(/[a-c~/0-9-]{0,3}){0,3}") {
        let _ = apply_merge(&current, &patch);
        let operation = json!({"op": op, "path": path, "from": "/a", "value": patch.clone()});
        let _ = apply_json(&current, &json!([operation]));
        let _ = apply_json(&current, &patch);
        let spec = |v: &Value| json!({"metadata": v, "spec": {"containers": v, "volumes": [v]}});
        let _ = apply_strategic(pod_schema(), &spec(&current), &spec(&patch));
        let _ = apply_strategic(pod_schema(), &current, &patch);
    }
}
