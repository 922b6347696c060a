//! Whole writes: who owns what after them.

use super::*;
use crate::table;
use serde_json::json;

fn kind(group: &str, version: &str, kind: &str) -> Schema<'static> {
    Schema::BuiltIn(table::type_of_kind(group, version, kind).expect("kind"))
}

fn context(manager: &str, second: i64) -> UpdateContext<'_> {
    UpdateContext {
        schema: kind("", "v1", "ConfigMap"),
        api_version: "v1",
        kind: "ConfigMap",
        subresource: "",
        manager,
        now: jiff::Timestamp::from_second(second).expect("time"),
        reset: None,
        versions: &OneVersion,
    }
}

fn config(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn applied(manager: &str, second: i64, live: Option<&Value>, data: Value) -> Value {
    apply(&context(manager, second), OnConflict::Refuse, live, &config(data)).expect("apply")
}

/// `manager operation: fields` of each entry.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries
        .iter()
        .map(|e| {
            format!(
                "{} {}: {}",
                e["manager"].as_str().unwrap_or_default(),
                e["operation"].as_str().unwrap_or_default(),
                e["fieldsV1"]
            )
        })
        .collect()
}

#[test]
fn create_records_what_it_sets_but_not_identity() {
    let object = config(json!({"x": "1"}));
    let out = update(&context("me", 0), None, object);
    assert_eq!(owners(&out), [r#"me Update: {"f:data":{".":{},"f:x":{}}}"#]);
    assert_eq!(out["metadata"]["managedFields"][0]["time"], "1970-01-01T00:00:00Z");
}

#[test]
fn an_update_takes_what_it_changes_and_a_write_that_changes_nothing_keeps_times() {
    let created = update(&context("a", 0), None, config(json!({"x": "1", "y": "1"})));
    let mut wanted = created.clone();
    wanted["data"]["x"] = json!("2");
    let changed = update(&context("b", 5), Some(&created), wanted);
    assert_eq!(owners(&changed), [r#"a Update: {"f:data":{".":{},"f:y":{}}}"#, r#"b Update: {"f:data":{"f:x":{}}}"#]);
    let again = update(&context("b", 9), Some(&changed), changed.clone());
    assert_eq!(again, changed);
    let mut without = changed.clone();
    without["metadata"]["managedFields"] = Value::Null;
    assert_eq!(update(&context("c", 9), Some(&changed), without), changed);
}

#[test]
fn appliers_share_give_up_and_remove() {
    let one = applied("alpha", 0, None, json!({"x": "1"}));
    assert_eq!(owners(&one), [r#"alpha Apply: {"f:data":{"f:x":{}}}"#]);
    let two = applied("beta", 1, Some(&one), json!({"x": "1", "z": "1"}));
    let three = applied("alpha", 2, Some(&two), json!({}));
    assert_eq!(three["data"], json!({"x": "1", "z": "1"}));
    assert_eq!(owners(&three), [r#"alpha Apply: {"f:data":{}}"#, r#"beta Apply: {"f:data":{"f:x":{},"f:z":{}}}"#]);
    let four = applied("beta", 3, Some(&three), json!({"z": "1"}));
    assert_eq!(four["data"], json!({"z": "1"}));
    let bare = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let five = apply(&context("beta", 4), OnConflict::Refuse, Some(&four), &bare).expect("apply");
    assert_eq!(owners(&five), [r#"alpha Apply: {"f:data":{}}"#]);
    assert_eq!(five.get("data"), Some(&json!({})));
}

#[test]
fn conflicts_name_manager_and_field_and_force_takes() {
    let live = update(&context("editor", 0), None, config(json!({"x": "1", "y": "1"})));
    let refused = apply(&context("me", 1), OnConflict::Refuse, Some(&live), &config(json!({"x": "2"})));
    let Err(ApplyError::Conflicts(conflicts)) = refused else { panic!("{refused:?}") };
    assert_eq!(conflicts.len(), 1);
    assert_eq!(
        (conflicts[0].message().as_str(), conflicts[0].field().as_str()),
        ("conflict with \"editor\" using v1", ".data.x")
    );
    let forced = apply(&context("me", 1), OnConflict::Force, Some(&live), &config(json!({"x": "2"}))).expect("apply");
    assert_eq!(owners(&forced), [r#"me Apply: {"f:data":{"f:x":{}}}"#, r#"editor Update: {"f:data":{".":{},"f:y":{}}}"#]);
}

#[test]
fn unowned_objects_belong_to_before_first_apply() {
    let mut live = config(json!({"x": "1"}));
    live["metadata"]["uid"] = json!("u");
    let out = apply(&context("me", 1), OnConflict::Refuse, Some(&live), &config(json!({"x": "1", "y": "2"}))).expect("apply");
    assert_eq!(
        owners(&out),
        [r#"me Apply: {"f:data":{"f:x":{},"f:y":{}}}"#, r#"before-first-apply Update: {"f:data":{".":{},"f:x":{}}}"#]
    );
    // An ordinary write to an object without owners does not start to track it.
    let mut wanted = live.clone();
    wanted["data"]["x"] = json!("9");
    assert_eq!(owners(&update(&context("b", 2), Some(&live), wanted)), Vec::<String>::new());
}

#[test]
fn an_empty_list_forgets_owners() {
    let live = update(&context("a", 0), None, config(json!({"x": "1"})));
    let registry = crate::Registry::builtin();
    let def = registry.get("", "v1", "configmaps").expect("kind");
    for reset in [json!([]), json!([{}])] {
        let mut wanted = live.clone();
        wanted["metadata"]["managedFields"] = reset;
        let wanted = crate::decode::canonicalise(def, wanted).expect("decode");
        assert_eq!(update(&context("b", 1), Some(&live), wanted)["metadata"].get("managedFields"), None);
    }
    let mut invalid = live.clone();
    invalid["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    assert_eq!(update(&context("b", 1), Some(&live), invalid), live);
}

#[test]
fn kubectl_takes_over_from_client_side_apply() {
    let mut object = config(json!({"x": "1", "y": "1"}));
    object["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": config(json!({"x": "1", "y": "1"})).to_string()});
    let live = update(&context("kubectl-client-side-apply", 0), None, object);
    let other = apply(&context("other", 1), OnConflict::Refuse, Some(&live), &config(json!({"x": "2"})));
    assert!(matches!(other, Err(ApplyError::Conflicts(_))));
    let out = apply(&context("kubectl", 1), OnConflict::Refuse, Some(&live), &config(json!({"x": "2"}))).expect("apply");
    assert_eq!(
        out["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"],
        "{\"apiVersion\":\"v1\",\"data\":{\"x\":\"2\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n"
    );
    assert_eq!(owners(&out)[0], r#"kubectl Apply: {"f:data":{"f:x":{}}}"#);
}

#[test]
fn invalid_configurations_have_upstreams_codes() {
    let code = |config: Value| apply(&context("me", 0), OnConflict::Refuse, None, &config).map_err(|e| e.code());
    let with = |key: &str, value: Value| {
        let mut out = config(json!({}));
        out[key] = value;
        out
    };
    assert_eq!(code(with("kind", json!("Secret"))), Err(400));
    assert_eq!(code(with("apiVersion", Value::Null)), Err(400));
    assert_eq!(code(with("metadata", json!({"managedFields": [{"manager": "x"}]}))), Err(400));
    assert_eq!(code(with("nope", json!(1))), Err(500));
    assert_eq!(code(with("data", json!(["x"]))), Err(500));
}

#[test]
fn reset_fields_are_not_owned() {
    let filter = Filter::exclude(&[&["status"]]);
    let ctx = UpdateContext { schema: kind("", "v1", "Pod"), kind: "Pod", reset: Some(&filter), ..context("me", 0) };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "status": {"phase": "Failed"}});
    let out = apply(&ctx, OnConflict::Refuse, None, &pod).expect("apply");
    assert_eq!(owners(&out), [r#"me Apply: {"f:metadata":{"f:labels":{"f:a":{}}}}"#]);
    assert_eq!(owners(&update(&ctx, None, pod)), [r#"me Update: {"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#]);
}

#[test]
fn list_elements_go_with_the_last_who_states_them() {
    let ctx = |manager, second| UpdateContext {
        schema: kind("", "v1", "PodTemplate"),
        kind: "PodTemplate",
        ..context(manager, second)
    };
    let template = |containers: Value| json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"}, "template": {"spec": {"containers": containers}}});
    let apply = |manager, second, live: Option<&Value>, containers| {
        apply(&ctx(manager, second), OnConflict::Refuse, live, &template(containers)).expect("apply")
    };
    let one = apply("alpha", 0, None, json!([{"name": "a", "image": "1", "ports": [{"containerPort": 80}]}]));
    let two = apply(
        "beta",
        1,
        Some(&one),
        json!([{"name": "a", "ports": [{"containerPort": 81}], "env": [{"name": "E"}]}, {"name": "b"}]),
    );
    let three = apply("beta", 2, Some(&two), json!([{"name": "b"}]));
    assert_eq!(
        three["template"]["spec"]["containers"],
        json!([{"name": "a", "image": "1", "ports": [{"containerPort": 80}]}, {"name": "b"}])
    );
    let four = apply("alpha", 3, Some(&three), json!([]));
    assert_eq!(four["template"]["spec"]["containers"], json!([{"name": "b"}]));
}

/// A kind whose two versions call a field by different names.
struct Renamed;

impl Versions for Renamed {
    fn schema(&self, api_version: &str) -> Option<Schema<'_>> {
        (api_version == "v1" || api_version == "v1beta1").then(|| kind("", "v1", "ConfigMap"))
    }
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        self.schema(api_version)?;
        let (from, to) = if api_version == "v1" { ("old", "new") } else { ("new", "old") };
        let mut out = object.clone();
        out["apiVersion"] = json!(api_version);
        if let Some(data) = out.get_mut("data").and_then(Value::as_object_mut)
            && let Some(value) = data.remove(from)
        {
            data.insert(to.to_owned(), value);
        }
        Some(out)
    }
}

#[test]
fn entries_of_other_versions_are_compared_in_theirs() {
    let entry = |version: &str, fields: Value| json!({"manager": "a", "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields});
    let mut live = config(json!({"new": "1", "x": "1"}));
    live["metadata"]["managedFields"] =
        json!([entry("v1beta1", json!({"f:data": {"f:old": {}, "f:x": {}}})), entry("v0", json!({"f:data": {"f:gone": {}}})),]);
    let mut wanted = live.clone();
    wanted["data"]["new"] = json!("2");
    let ctx = UpdateContext { versions: &Renamed, ..context("b", 1) };
    assert_eq!(
        owners(&update(&ctx, Some(&live), wanted)),
        [r#"a Update: {"f:data":{"f:x":{}}}"#, r#"b Update: {"f:data":{"f:new":{}}}"#]
    );
    let refused = apply(&ctx, OnConflict::Refuse, Some(&live), &config(json!({"new": "2"})));
    let Err(ApplyError::Conflicts(conflicts)) = refused else { panic!("{refused:?}") };
    assert_eq!(conflicts[0].field(), ".data.old");
    assert_eq!(conflicts[0].manager.api_version, "v1beta1");
}
