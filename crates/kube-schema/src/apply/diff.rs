//! What changed between two values, as sets of fields.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::{PathElement, same_value};
use super::set::FieldSet;
use super::types::{Form, ListForm, Type};
use crate::schema::Schema;

/// The fields in which a new value differs from an old one. No field is in two of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

/// Compares two objects of one schema; `metadata.managedFields` is left out. `None` stands for an object that does not exist.
pub fn diff(schema: Schema<'_>, old: &Value, new: &Value) -> Result<Diff, String> {
    let ty = Type::Of(schema);
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return Err("only objects can be compared".to_owned());
    };
    let mut out = Diff::default();
    for_each_member(Some(old), Some(new), |name, before, after| {
        if name != "metadata" {
            return out.put_member(ty, name, before, after);
        }
        let (metadata, _) = ty.member_or_deduced(name);
        let (Some(Value::Object(before)), Some(Value::Object(after))) = (before, after) else {
            return out.put_member(ty, name, before, after);
        };
        let mut below = Diff::default();
        for_each_member(Some(before), Some(after), |name, before, after| match name {
            "managedFields" => Ok(()),
            _ => below.put_member(metadata, name, before, after),
        })?;
        out.put(&PathElement::field(name), below);
        Ok(())
    })?;
    Ok(out)
}

/// Visits the members of both objects, each once.
fn for_each_member<'v>(
    old: Option<&'v Map<String, Value>>,
    new: Option<&'v Map<String, Value>>,
    mut visit: impl FnMut(&'v str, Option<&'v Value>, Option<&'v Value>) -> Result<(), String>,
) -> Result<(), String> {
    for (name, before) in old.into_iter().flatten() {
        visit(name, Some(before), new.and_then(|n| n.get(name)))?;
    }
    for (name, after) in new.into_iter().flatten() {
        if !old.is_some_and(|o| o.contains_key(name)) {
            visit(name, None, Some(after))?;
        }
    }
    Ok(())
}

impl Diff {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    fn put(&mut self, element: &PathElement, below: Diff) {
        self.added.put(element, below.added);
        self.modified.put(element, below.modified);
        self.removed.put(element, below.removed);
    }

    fn put_member(&mut self, ty: Type<'_>, name: &str, old: Option<&Value>, new: Option<&Value>) -> Result<(), String> {
        if old == new {
            return Ok(());
        }
        let (member, _) = ty.member_or_deduced(name);
        self.put(&PathElement::field(name), compare(member, old, new)?);
        Ok(())
    }

    fn extend(&mut self, other: Diff) {
        self.added.extend(other.added);
        self.modified.extend(other.modified);
        self.removed.extend(other.removed);
    }

    /// Of a value that is owned as a whole.
    fn leaf(old: Option<&Value>, new: Option<&Value>) -> Diff {
        let mut out = Diff::default();
        match (old, new) {
            (None, Some(_)) => out.added.is_member = true,
            (Some(_), None) => out.removed.is_member = true,
            (Some(old), Some(new)) => out.modified.is_member = !same_value(old, new),
            (None, None) => {}
        }
        out
    }
}

/// Compares two values, at least one of which is there.
pub(super) fn compare(ty: Type<'_>, old: Option<&Value>, new: Option<&Value>) -> Result<Diff, String> {
    match (old, new) {
        (Some(before), Some(after)) if before == after => Ok(Diff::default()),
        (Some(_), Some(_)) => {
            let (before, after) = (ty.form(old), ty.form(new));
            let mut out = Diff::default();
            // A free value may have changed its kind: then it counts as both.
            if std::mem::discriminant(&before) != std::mem::discriminant(&after) {
                out = compare_as(ty, before, old, new)?;
            }
            out.extend(compare_as(ty, after, old, new)?);
            Ok(out)
        }
        (None, _) => compare_as(ty, ty.form(new), old, new),
        (_, None) => compare_as(ty, ty.form(old), old, new),
    }
}

fn compare_as(ty: Type<'_>, form: Form<'_>, old: Option<&Value>, new: Option<&Value>) -> Result<Diff, String> {
    let mut out = match form {
        Form::Leaf => return Ok(Diff::leaf(old, new)),
        Form::Map => {
            let (before, after) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            // Nothing on either side: told apart from absence, so owned as a whole.
            if before.is_none_or(Map::is_empty) && after.is_none_or(Map::is_empty) {
                return Ok(Diff::leaf(old, new));
            }
            let mut out = Diff::default();
            for_each_member(before, after, |name, before, after| out.put_member(ty, name, before, after))?;
            out
        }
        Form::List(list) => {
            let empty = Vec::new();
            let before = old.and_then(Value::as_array).unwrap_or(&empty);
            let after = new.and_then(Value::as_array).unwrap_or(&empty);
            if before.is_empty() && after.is_empty() {
                return Ok(Diff::leaf(old, new));
            }
            compare_elements(&list, before, after)?
        }
    };
    if old.is_none() {
        out.added.is_member = true;
    } else if new.is_none() {
        out.removed.is_member = true;
    }
    Ok(out)
}

fn compare_elements(list: &ListForm<'_>, old: &[Value], new: &[Value]) -> Result<Diff, String> {
    let mut groups: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old {
        groups.entry(list.element(item)?).or_default().0.push(item);
    }
    for item in new {
        groups.entry(list.element(item)?).or_default().1.push(item);
    }
    let mut out = Diff::default();
    for (element, (before, after)) in &groups {
        let below = match (before.as_slice(), after.as_slice()) {
            ([] | [_], [] | [_]) => compare(list.items, before.first().copied(), after.first().copied())?,
            // Repeated elements are owned together, so they change together.
            ([_, _, ..], [_, _, ..]) => {
                let same = before.len() == after.len() && before.iter().zip(after).all(|(a, b)| same_value(a, b));
                Diff { modified: if same { FieldSet::new() } else { FieldSet::member() }, ..Diff::default() }
            }
            ([_, _, ..], rest) => {
                let mut below = match rest.first() {
                    Some(item) => compare(list.items, None, Some(item))?,
                    None => Diff::default(),
                };
                below.removed.is_member = true;
                below
            }
            (rest, _) => {
                let mut below = match rest.first() {
                    Some(item) => compare(list.items, Some(item), None)?,
                    None => Diff::default(),
                };
                below.added.is_member = true;
                below
            }
        };
        out.put(element, below);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;
    use serde_json::json;

    fn pod_diff(old: Value, new: Value) -> Value {
        let schema = Schema::BuiltIn(table::type_of_kind("", "v1", "Pod").expect("kind"));
        let diff = diff(schema, &old, &new).expect("diff");
        json!([diff.added.to_json(), diff.modified.to_json(), diff.removed.to_json()])
    }

    #[test]
    fn members_of_lists_and_maps_are_told_apart() {
        let out = pod_diff(
            json!({"metadata": {"labels": {"a": "1", "b": "2"}, "managedFields": [1]}, "spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}}),
            json!({"metadata": {"labels": {"a": "2", "c": "3"}}, "spec": {"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}}),
        );
        assert_eq!(
            out,
            json!([
                {"f:metadata": {"f:labels": {"f:c": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}}}}},
                {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {"f:image": {}}}}},
                {"f:metadata": {"f:labels": {"f:b": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}}},
            ])
        );
    }

    #[test]
    fn a_new_container_of_fields_is_itself_added() {
        let out = pod_diff(
            json!({"spec": {"containers": null}}),
            json!({"spec": {"containers": [{"name": "a"}], "nodeSelector": {"a": "b"}}}),
        );
        assert_eq!(
            out[0],
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}, "f:nodeSelector": {}}})
        );
        let out = pod_diff(json!({}), json!({"metadata": {"annotations": {"a": "b"}}}));
        assert_eq!(out[0], json!({"f:metadata": {".": {}, "f:annotations": {".": {}, "f:a": {}}}}));
    }

    #[test]
    fn repeated_elements_change_together() {
        let list = |items: Value| json!({"spec": {"containers": [{"name": "c", "env": items}]}});
        let place = |out: &Value, n: usize| out[n]["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"]["f:env"].clone();
        let twice = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
        let out = pod_diff(list(json!([{"name": "A", "value": "1"}])), list(twice.clone()));
        assert_eq!(place(&out, 0), json!({"k:{\"name\":\"A\"}": {}}));
        assert_eq!(place(&out, 2), json!({"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}}));
        let out = pod_diff(list(twice), list(json!([{"name": "A", "value": "9"}, {"name": "A"}])));
        assert_eq!(place(&out, 1), json!({"k:{\"name\":\"A\"}": {}}));
    }
}
