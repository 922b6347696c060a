//! Each directive, and upstream's answers to what is wrong.

use super::*;
use crate::table;
use serde_json::json;

fn run(kind: (&str, &str, &str), current: &Value, patch: Value) -> Result<Value, u16> {
    let node = table::type_of_kind(kind.0, kind.1, kind.2).expect("kind");
    apply_strategic(Schema::BuiltIn(node), current, &patch).map_err(|e| e.code())
}

fn pod(spec: Value) -> Value {
    json!({"kind": "Pod", "spec": spec})
}

fn patched_pod(spec: Value, patch: Value) -> Result<Value, u16> {
    run(("", "v1", "Pod"), &pod(spec), json!({"spec": patch})).map(|mut out| out["spec"].take())
}

#[test]
fn lists_merge_by_key_and_atomic_lists_are_replaced() {
    let out = patched_pod(
        json!({"containers": [{"name": "a", "image": "1", "args": ["x", "y"]}, {"name": "b"}]}),
        json!({"containers": [{"name": "a", "image": "2", "args": ["z"]}, {"name": "c"}]}),
    );
    assert_eq!(out, Ok(json!({"containers": [{"name": "a", "image": "2", "args": ["z"]}, {"name": "c"}, {"name": "b"}]})));
}

#[test]
fn directives_delete_replace_and_order_list_elements() {
    let spec = json!({
        "containers": [{"name": "a", "env": [{"name": "E1"}, {"name": "E2"}]}, {"name": "b"}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}],
    });
    let out = patched_pod(
        spec.clone(),
        json!({"containers": [
            {"name": "b", "$patch": "delete"},
            {"name": "a", "env": [{"$patch": "replace"}, {"name": "ONLY"}]},
        ]}),
    );
    assert_eq!(out.map(|s| s["containers"].clone()), Ok(json!([{"name": "a", "env": [{"name": "ONLY"}]}])));

    let out = patched_pod(
        spec.clone(),
        json!({"$setElementOrder/containers": [{"name": "n"}, {"name": "a"}], "containers": [{"name": "n"}],
            "$setElementOrder/volumes": [{"name": "w"}, {"name": "v"}]}),
    )
    .expect("patch");
    let names: Vec<&str> = out["containers"].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect();
    assert_eq!(names, ["n", "a", "b"]);
    assert_eq!(out["volumes"][0]["name"], "w");

    let out = patched_pod(
        spec,
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x", "type": null}}]}),
    );
    assert_eq!(
        out.map(|s| s["volumes"].clone()),
        Ok(json!([{"name": "v", "hostPath": {"path": "/x"}}, {"name": "w", "emptyDir": {}}]))
    );
}

#[test]
fn primitive_lists_merge_and_delete() {
    let current = json!({"metadata": {"finalizers": ["a", "b"], "labels": {"l": "1"}}});
    let kind = ("", "v1", "ConfigMap");
    assert_eq!(
        run(
            kind,
            &current,
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"],
            "labels": {"$patch": "replace", "only": "this"}}})
        ),
        Ok(json!({"metadata": {"finalizers": ["c", "b"], "labels": {"only": "this"}}}))
    );
    assert_eq!(
        run(kind, &current, json!({"metadata": {"labels": {"$patch": "delete"}}})),
        Ok(json!({"metadata": {"finalizers": ["a", "b"], "labels": {}}}))
    );
}

#[test]
fn errors_have_upstreams_codes() {
    let spec = json!({"containers": [{"name": "a"}], "volumes": [{"name": "v"}]});
    for (patch, code) in [
        (json!({"containers": [{"image": "no-key"}]}), 500),
        (json!({"containers": [{"name": "a", "$patch": "explode"}]}), 500),
        (json!({"containers": [{"name": "a", "$patch": "merge"}]}), 500),
        (json!({"containers": [{"$patch": "delete"}]}), 500),
        (json!({"containers": ["x"]}), 500),
        (json!({"$patch": 1}), 500),
        (json!({"$retainKeys": "x"}), 400),
        (json!({"$retainKeys": ["volumes"], "containers": [{"name": "a"}]}), 400),
        (json!({"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}), 500),
        (json!({"$setElementOrder/containers": {}}), 500),
        (json!({"$setElementOrder": []}), 400),
        (json!({"$deleteFromPrimitiveList": ["a"]}), 400),
        (json!({"containers": [[1]]}), 500),
    ] {
        assert_eq!(patched_pod(spec.clone(), patch.clone()), Err(code), "{patch}");
    }
    assert_eq!(run(("", "v1", "Pod"), &pod(spec), json!({"spec": 1})).map(|v| v["spec"].clone()), Ok(json!(1)));
    assert_eq!(run(("", "v1", "Pod"), &json!({}), json!([])), Err(400));
}

#[test]
fn service_ports_merge_by_port_and_selectors_by_key() {
    let current =
        json!({"spec": {"ports": [{"name": "p1", "port": 80}, {"name": "p2", "port": 81}], "selector": {"a": "b", "c": "d"}}});
    let out = run(
        ("", "v1", "Service"),
        &current,
        json!({"spec": {"ports": [{"port": 81, "targetPort": "web"}, {"port": 82}], "selector": {"a": null, "e": "f"}}}),
    );
    assert_eq!(
        out,
        Ok(json!({"spec": {
            "ports": [{"name": "p1", "port": 80}, {"name": "p2", "port": 81, "targetPort": "web"}, {"port": 82}],
            "selector": {"c": "d", "e": "f"},
        }}))
    );
}

#[test]
fn a_large_list_is_not_quadratic() {
    let list = |n: usize| -> Vec<Value> { (0..n).map(|i| json!({"name": format!("c{i}")})).collect() };
    let out = patched_pod(json!({"containers": list(40_000)}), json!({"containers": list(40_000)})).expect("patch");
    assert_eq!(out["containers"].as_array().map(Vec::len), Some(40_000));
}
