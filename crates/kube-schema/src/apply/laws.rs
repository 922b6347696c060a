//! Laws that hold for all objects and sets.

use proptest::prelude::*;
use serde_json::json;

use super::element::{PathElement, same_value};
use super::*;
use crate::structural::Structural;

/// JSON of any shape, shallow.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..100).prop_map(Value::from),
        prop_oneof![Just(1.5), Just(-2.0), Just(1e300)].prop_map(Value::from),
        "[a-c$/~.:<é\"]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof!["[a-c]", "(f|k|v|i|x):[a-c0-9{}\"]{0,4}", Just(".".to_owned()), Just("$patch".to_owned())];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn any_element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        "[a-d]".prop_map(PathElement::Field),
        (0i64..3).prop_map(|n| PathElement::Value(json!(n))),
        "[ab]".prop_map(|n| PathElement::Key(vec![("n".to_owned(), json!(n))])),
        (0i64..2).prop_map(PathElement::Index),
    ]
}

fn any_set() -> impl Strategy<Value = FieldSet> {
    prop::collection::vec(prop::collection::vec(any_element(), 1..4), 0..8).prop_map(|paths| {
        let mut out = FieldSet::new();
        for path in paths {
            out.insert(path);
        }
        out
    })
}

fn schema() -> Structural {
    let list_map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "items":
        {"type": "object", "properties": {"n": {"type": "string"}, "v": {"type": "integer"},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}});
    Structural::parse_root(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "items": list_map,
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "atoms": {"type": "array", "items": {"type": "integer"}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "integer"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "size": {"type": "integer"},
    }}}}))
}

fn strings(alphabet: &'static str, least: usize) -> impl Strategy<Value = Value> {
    prop::collection::btree_set(alphabet, least..3).prop_map(|s| json!(s))
}

/// A configuration; all names in it are from the alphabet, and lists and objects have at least so many members. (Nobody owns an
/// empty list, so laws about who states what do not hold for them.)
fn any_config(alphabet: &'static str, least: usize) -> impl Strategy<Value = Value> {
    let map = || prop::collection::btree_map(alphabet, 0i64..3, least..3).prop_map(|m| json!(m));
    let item = (0i64..3, prop::option::of(strings("[x-z]", least)));
    let items = prop::collection::btree_map(alphabet, item, least..3).prop_map(|m| {
        let list = m.into_iter().map(|(n, (v, tags))| match tags {
            Some(tags) => json!({"n": n, "v": v, "tags": tags}),
            None => json!({"n": n, "v": v}),
        });
        Value::Array(list.collect())
    });
    let parts = (
        prop::option::of(map()),
        prop::option::of(items),
        prop::option::of(strings(alphabet, least)),
        prop::option::of(map()),
        prop::option::of(0i64..3),
        prop::option::of(map()),
    );
    parts.prop_map(|(map, items, set, free, size, whole)| {
        let mut spec = Map::new();
        let parts =
            [("map", map), ("items", items), ("set", set), ("free", free), ("size", size.map(Value::from)), ("whole", whole)];
        for (name, part) in parts {
            spec.extend(part.map(|p| (name.to_owned(), p)));
        }
        json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": spec})
    })
}

fn context<'a>(schema: &'a Structural, manager: &'a str, second: i64) -> UpdateContext<'a> {
    UpdateContext {
        schema: Schema::Custom(schema),
        api_version: "x/v1",
        kind: "X",
        subresource: "",
        manager,
        now: jiff::Timestamp::from_second(second).expect("time"),
        reset: None,
        versions: &OneVersion,
    }
}

fn forced(schema: &Structural, manager: &str, live: Option<&Value>, config: &Value) -> Value {
    apply(&context(schema, manager, 7), OnConflict::Force, live, config).expect("a forced apply of a valid configuration")
}

/// Lists as sets, and no times: what order of applies may change.
fn unordered(value: &Value) -> Value {
    match value {
        Value::Array(list) => {
            let mut out: Vec<Value> = list.iter().map(unordered).collect();
            out.sort_by(element::compare_values);
            Value::Array(out)
        }
        Value::Object(map) => map.iter().filter(|(k, _)| *k != "time").map(|(k, v)| (k.clone(), unordered(v))).collect(),
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sets_obey_algebra(a in any_set(), b in any_set(), c in any_set()) {
        prop_assert_eq!(a.clone().union(&b), b.clone().union(&a));
        prop_assert_eq!(a.clone().union(&b).union(&c), a.clone().union(&b.clone().union(&c)));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.clone().union(&a), a.clone());
        prop_assert_eq!(a.intersection(&a), a.clone());
        prop_assert!(a.clone().difference(&a).is_empty());
        prop_assert_eq!(a.clone().difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.clone().difference(&b).intersection(&b).is_empty());
        prop_assert_eq!(a.intersects(&b), !a.intersection(&b).is_empty());
        let mut below = a.clone();
        below.subtract_recursive(&b);
        prop_assert_eq!(below.clone().intersection(&a.clone().difference(&b)), below);
        prop_assert_eq!(a.paths().len(), a.len());
        prop_assert!(a.paths().iter().all(|p| a.has(p)));
        prop_assert!(a.leaves().clone().difference(&a).is_empty());
        prop_assert_eq!(FieldSet::from_json(&a.to_json()), Ok(a.clone()));
        prop_assert_eq!(serde_json::to_value(&a).expect("json"), a.to_json());
    }

    #[test]
    fn readers_never_panic(json in any_json(), text in ".{0,12}") {
        let _ = PathElement::parse(&text);
        let _ = Managers::from_json(Some(&json!([{"operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": json.clone()}])));
        if let Ok(set) = FieldSet::from_json(&json) {
            prop_assert_eq!(FieldSet::from_json(&set.to_json()), Ok(set));
        }
    }

    #[test]
    fn any_document_is_applied_or_refused(config in any_json(), live in any_json()) {
        let schema = schema();
        let object = |spec: Value| json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": spec});
        let _ = apply(&context(&schema, "m", 0), OnConflict::Force, Some(&object(live.clone())), &object(config.clone()));
        let _ = update(&context(&schema, "m", 0), Some(&object(live)), object(config));
    }

    #[test]
    fn applying_twice_is_applying_once(a in any_config("[a-d]", 0), b in any_config("[a-d]", 0)) {
        let schema = schema();
        let live = forced(&schema, "other", None, &a);
        let once = forced(&schema, "me", Some(&live), &b);
        prop_assert_eq!(forced(&schema, "me", Some(&once), &b), once);
    }

    #[test]
    fn an_applier_owns_what_it_states(a in any_config("[a-d]", 0), b in any_config("[a-d]", 0)) {
        let schema = schema();
        let live = forced(&schema, "other", None, &a);
        let out = forced(&schema, "me", Some(&live), &b);
        let mut stated = field_set(Schema::Custom(&schema), &b).expect("set");
        strip(&mut stated);
        let managers = Managers::from_json(out["metadata"].get("managedFields")).expect("managers");
        let owned = managers.0.get(&ManagerId::new("me", Operation::Apply, "", "")).map(|o| o.set.clone()).unwrap_or_default();
        prop_assert_eq!(owned, stated);
    }

    #[test]
    fn giving_everything_up_leaves_what_others_state(a in any_config("[a-d]", 1), b in any_config("[a-d]", 1)) {
        let schema = schema();
        let nothing = json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}});
        let mine = forced(&schema, "me", None, &b);
        let both = forced(&schema, "other", Some(&mine), &a);
        let left = forced(&schema, "me", Some(&both), &nothing);
        let alone = forced(&schema, "other", None, &a);
        let spec = |v: &Value| unordered(&without_empty(&json!([v["spec"]])));
        prop_assert_eq!(spec(&left), spec(&alone));
    }

    #[test]
    fn disjoint_applies_commute(a in any_config("[a-c]", 1), b in any_config("[p-r]", 1)) {
        let schema = schema();
        let (mut a, mut b) = (a, b);
        for key in ["size", "whole"] {
            // Owned as a whole, so not disjoint whatever the names.
            a["spec"].as_object_mut().expect("spec").remove(key);
            b["spec"].as_object_mut().expect("spec").remove(key);
        }
        let one = forced(&schema, "beta", Some(&forced(&schema, "alpha", None, &a)), &b);
        let other = forced(&schema, "alpha", Some(&forced(&schema, "beta", None, &b)), &a);
        prop_assert_eq!(unordered(&one), unordered(&other));
    }

    #[test]
    fn differences_are_empty_for_equal_objects_only(a in any_config("[a-d]", 0), b in any_config("[a-d]", 0)) {
        let schema = schema();
        let schema = Schema::Custom(&schema);
        prop_assert!(diff(schema, &a, &a).expect("diff").is_empty());
        let change = diff(schema, &a, &b).expect("diff");
        prop_assert_eq!(change.is_empty(), same_value(&unordered(&a), &unordered(&b)));
        prop_assert!(!change.added.intersects(&change.removed) && !change.added.intersects(&change.modified));
        prop_assert_eq!(merge(schema, &a, &a), Ok(a));
    }

    #[test]
    fn a_writer_owns_what_it_changed(a in any_config("[a-d]", 0), b in any_config("[a-d]", 0)) {
        let schema = schema();
        let live = update(&context(&schema, "first", 0), None, a);
        let changed = update(&context(&schema, "second", 1), Some(&live), b);
        let entries = changed["metadata"].get("managedFields").cloned();
        prop_assert_eq!(update(&context(&schema, "third", 2), Some(&changed), changed.clone()), changed);
        let managers = Managers::from_json(entries.as_ref()).expect("managers");
        let sets: Vec<&FieldSet> = managers.0.values().map(|o| &o.set).collect();
        if let [one, two] = sets.as_slice() {
            prop_assert!(!one.intersects(two));
        }
    }
}

/// Without the empty objects and lists that removed members leave behind.
fn without_empty(value: &Value) -> Value {
    let is_empty = |v: &Value| v.as_object().is_some_and(Map::is_empty) || v.as_array().is_some_and(Vec::is_empty) || v.is_null();
    match value {
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), without_empty(v))).filter(|(_, v)| !is_empty(v)).collect(),
        Value::Array(list) => list.iter().map(without_empty).collect(),
        other => other.clone(),
    }
}
