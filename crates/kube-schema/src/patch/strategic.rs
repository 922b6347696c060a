//! Strategic merge patch: a merge patch that knows the merge keys of lists, with its directives.
//!
//! | directive | where | effect |
//! |---|---|---|
//! | `$patch: replace` | object, or an element of a list of objects | what follows replaces what was there |
//! | `$patch: delete` | object, or an element of a list of objects | empties the object, removes the element |
//! | `$retainKeys: [..]` | object | keys that it does not name go |
//! | `$setElementOrder/L: [..]` | beside list `L` | order of the merged list |
//! | `$deleteFromPrimitiveList/L: [..]` | beside list `L` of scalars | removes these |
//!
//! Nothing here knows kinds: merge keys and strategies come from the schema. A patch is read by the rules of upstream's
//! implementation, its less obvious ones too: nested directives in an element that is new to a list are kept for the decoder to
//! refuse, and a `$patch` for something that is absent drops it.

use serde_json::{Map, Value};

use super::PatchError;
use super::order::{Positions, arrange, identity};
use crate::schema::{PatchStrategy, Schema, Shape};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";

/// Applies a strategic merge patch to an object of `schema`.
pub fn apply_strategic(schema: Schema<'_>, current: &Value, patch: &Value) -> Result<Value, PatchError> {
    let current = match current {
        Value::Object(map) => map.clone(),
        _ => return Err(PatchError::BadRequest("only a JSON object can be patched".to_owned())),
    };
    let patch = match patch {
        Value::Object(map) => map.clone(),
        Value::Null => Map::new(),
        _ => return Err(PatchError::BadRequest("a strategic merge patch must be a JSON object".to_owned())),
    };
    merge_map(current, patch, Some(schema)).map(Value::Object)
}

type Object = Map<String, Value>;

fn failed(message: impl Into<String>) -> PatchError {
    PatchError::Internal(message.into())
}

fn no_merge_key(item: &Value, key: &str) -> PatchError {
    failed(format!("{item} has no merge key {key:?}"))
}

fn merge_map(mut original: Object, mut patch: Object, schema: Option<Schema<'_>>) -> Result<Object, PatchError> {
    match patch.get(PATCH) {
        None => {}
        Some(Value::String(s)) if s == "replace" => {
            patch.remove(PATCH);
            return Ok(patch);
        }
        Some(Value::String(s)) if s == "delete" => return Ok(Map::new()),
        Some(other) => return Err(failed(format!("unknown $patch directive {other}"))),
    }
    retain_keys(&mut original, &mut patch)?;
    set_element_orders(&mut original, &mut patch, schema)?;

    // Deletions first, so that a patch may delete from a list of scalars and add to it.
    let (deletions, changes): (Vec<_>, Vec<_>) =
        patch.into_iter().partition(|(key, _)| key.starts_with(DELETE_FROM_PRIMITIVE_LIST));
    for (key, value) in deletions {
        let key = target_list(&key, DELETE_FROM_PRIMITIVE_LIST)?.to_owned();
        merge_member(&mut original, key, value, schema, Member::Deletions)?;
    }
    for (key, value) in changes {
        merge_member(&mut original, key, value, schema, Member::Change)?;
    }
    Ok(original)
}

/// The list that a directive `$prefix/list` speaks of.
fn target_list<'k>(key: &'k str, prefix: &str) -> Result<&'k str, PatchError> {
    match key.split_once('/') {
        Some((head, list)) if head == prefix => Ok(list),
        _ => Err(PatchError::BadRequest(format!("{key:?} is not of the form {prefix}/<list>"))),
    }
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let bad = || PatchError::BadRequest("$retainKeys must list every key that the patch sets".to_owned());
    let keep = directive.as_array().ok_or_else(bad)?;
    let keep: std::collections::HashSet<&str> = keep.iter().filter_map(Value::as_str).collect();
    let is_directive = |key: &str| key.starts_with(DELETE_FROM_PRIMITIVE_LIST) || key.starts_with(SET_ELEMENT_ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !is_directive(key) && !keep.contains(key.as_str())) {
        return Err(bad());
    }
    original.retain(|key, _| keep.contains(key.as_str()));
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Change,
    Deletions,
}

fn merge_member(
    original: &mut Object,
    key: String,
    patch: Value,
    schema: Option<Schema<'_>>,
    member: Member,
) -> Result<(), PatchError> {
    if patch.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let Some(slot) = original.get_mut(&key) else {
        if member == Member::Change {
            set(original, key, patch);
        }
        return Ok(());
    };
    match (slot.take(), patch) {
        (Value::Object(current), Value::Object(change)) => {
            let field = member_schema(schema, &key)?;
            *slot = Value::Object(if field.patch_strategy().replace { change } else { merge_map(current, change, Some(field))? });
        }
        (Value::Array(current), Value::Array(change)) => {
            let list = ListSchema::of(member_schema(schema, &key)?)?;
            *slot = Value::Array(merge_list(current, change, list, member)?);
        }
        (current, change) => match member {
            Member::Change => set(original, key, change),
            Member::Deletions => *slot = current,
        },
    }
    Ok(())
}

/// Puts a value where nothing mergeable was.
fn set(original: &mut Object, key: String, mut value: Value) {
    discard_nulls(&mut value);
    match without_directives(value) {
        Some(value) => original.insert(key, value),
        None => original.remove(&key),
    };
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Drops objects that carry a `$patch` directive, at any depth.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => {
            Some(Value::Object(map.into_iter().filter_map(|(k, v)| Some((k, without_directives(v)?))).collect()))
        }
        Value::Array(list) => Some(Value::Array(list.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

fn member_schema<'s>(schema: Option<Schema<'s>>, key: &str) -> Result<Schema<'s>, PatchError> {
    let schema = schema.ok_or_else(|| failed(format!("there is no field {key:?}")))?;
    if schema.shape() != Shape::Struct {
        return Err(failed(format!("{key:?} cannot be merged: its parent has no named fields")));
    }
    schema.field(key).ok_or_else(|| failed(format!("there is no field {key:?}")))
}

/// What the schema says of a list.
#[derive(Clone, Copy)]
struct ListSchema<'s> {
    items: Option<Schema<'s>>,
    merge_key: Option<&'s str>,
    strategy: PatchStrategy,
}

impl<'s> ListSchema<'s> {
    fn of(schema: Schema<'s>) -> Result<Self, PatchError> {
        let items = schema.items();
        if items.is_some_and(|i| i.shape() == Shape::List) {
            return Err(failed("lists of lists cannot be merged"));
        }
        Ok(ListSchema { items, merge_key: schema.merge_key(), strategy: schema.patch_strategy() })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Element {
    Object,
    Scalar(&'static str),
}

/// The one type that all elements of both lists have.
fn element_type(lists: [&[Value]; 2]) -> Result<Element, PatchError> {
    let mut found = None;
    for item in lists.into_iter().flatten() {
        let kind = match item {
            Value::Object(_) => Element::Object,
            Value::String(_) => Element::Scalar("string"),
            Value::Bool(_) => Element::Scalar("bool"),
            Value::Number(n) if n.is_f64() => Element::Scalar("float"),
            Value::Number(_) => Element::Scalar("int"),
            Value::Array(_) if found.is_none() => {
                return Err(PatchError::Unprocessable("lists of lists cannot be merged".to_owned()));
            }
            Value::Array(_) => Element::Scalar("list"),
            Value::Null => Element::Scalar("null"),
        };
        if *found.get_or_insert(kind) != kind || kind == Element::Scalar("null") {
            return Err(failed("the elements of a list must be of one type"));
        }
    }
    found.ok_or_else(|| failed("both lists are empty"))
}

fn merge_list(original: Vec<Value>, patch: Vec<Value>, list: ListSchema<'_>, member: Member) -> Result<Vec<Value>, PatchError> {
    if !list.strategy.merge && member == Member::Change {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    match (element_type([&original, &patch])?, list.merge_key) {
        (Element::Scalar(_), _) if member == Member::Deletions => {
            let gone = Positions::of(&patch, None);
            Ok(original.into_iter().filter(|v| gone.get(&identity(v, None)).is_none()).collect())
        }
        (Element::Scalar(kind), Some(_)) => Err(failed(format!("expected an object, but received a {kind}"))),
        (Element::Scalar(_), None) => {
            let server_order = Positions::of(&original, None);
            let mut seen = std::collections::HashSet::new();
            let merged: Vec<Value> =
                original.into_iter().chain(patch.iter().cloned()).filter(|v| seen.insert(identity(v, None))).collect();
            Ok(arrange(merged, &patch, &server_order, None))
        }
        (Element::Object, None) => Err(failed("a list of objects without a merge key cannot be merged")),
        (Element::Object, Some(key)) => merge_objects(original, patch, key, list.items),
    }
}

/// Merges a list of objects by their merge key.
fn merge_objects(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    items: Option<Schema<'_>>,
) -> Result<Vec<Value>, PatchError> {
    let (mut changes, mut deleted, mut replace) = (Vec::new(), std::collections::HashSet::new(), false);
    for item in patch {
        match item.get(PATCH) {
            None => changes.push(item),
            Some(Value::String(s)) if s == "delete" => {
                if item.get(key).is_none() {
                    return Err(no_merge_key(&item, key));
                }
                deleted.insert(identity(&item, Some(key)));
            }
            Some(Value::String(s)) if s == "replace" => replace = true,
            Some(Value::String(s)) if s == "merge" => {
                return Err(failed("$patch: merge is not for elements of lists"));
            }
            Some(other) => return Err(failed(format!("unknown $patch directive {other} in {item}"))),
        }
    }
    if replace {
        require_keys(&changes, key)?;
        return Ok(changes);
    }
    if !deleted.is_empty() {
        original.retain(|item| item.get(key).is_none() || !deleted.contains(&identity(item, Some(key))));
    }
    require_keys(&changes, key)?;
    require_keys(&original, key)?;
    let server_order = Positions::of(&original, Some(key));
    let patch_order: Vec<Value> = changes.iter().map(|c| key_only(c, key)).collect();
    let mut merged: Vec<Value> = original;
    let mut added: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
    for change in changes {
        let id = identity(&change, Some(key));
        match server_order.get(&id).or_else(|| added.get(&id).copied()) {
            None => {
                added.insert(id, merged.len());
                merged.push(change);
            }
            Some(at) => {
                if let (Value::Object(current), Value::Object(change)) = (merged[at].take(), change) {
                    merged[at] = Value::Object(merge_map(current, change, items)?);
                }
            }
        }
    }
    require_keys(&merged, key)?;
    Ok(arrange(merged, &patch_order, &server_order, Some(key)))
}

fn key_only(item: &Value, key: &str) -> Value {
    let value = item.get(key).cloned().unwrap_or_default();
    Value::Object(Map::from_iter([(key.to_owned(), value)]))
}

fn require_keys(list: &[Value], key: &str) -> Result<(), PatchError> {
    match list.iter().find(|item| item.get(key).is_none()) {
        Some(item) if item.is_object() => Err(no_merge_key(item, key)),
        Some(_) => Err(failed("expected an object as element of the list")),
        None => Ok(()),
    }
}

/// Handles every `$setElementOrder/L`: merges `L` here, since the order needs the merged list, and takes both out of the patch.
fn set_element_orders(original: &mut Object, patch: &mut Object, schema: Option<Schema<'_>>) -> Result<(), PatchError> {
    let keys: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in keys {
        let Some(Value::Array(order)) = patch.remove(&directive) else {
            return Err(failed(format!("expected a list at {directive:?}")));
        };
        let key = target_list(&directive, SET_ELEMENT_ORDER)?;
        for side in [original.get(key), patch.get(key)].into_iter().flatten() {
            if !side.is_array() {
                return Err(failed(format!("expected a list at {key:?}")));
            }
        }
        let list = ListSchema::of(member_schema(schema, key)?)?;
        let current = take_list(original, key);
        let change = take_list(patch, key);
        if let Some(change) = &change {
            check_order(change, &order, list.merge_key)?;
        }
        let server_order = Positions::of(current.as_deref().unwrap_or_default(), list.merge_key);
        let merged = match (current, change) {
            (None, None) => continue,
            (Some(current), None) => current,
            (None, Some(change)) => change.into_iter().filter_map(without_directives).collect(),
            (Some(current), Some(change)) => merge_list(current, change, list, Member::Change)?,
        };
        element_type([&merged, &[]]).or_else(|e| if merged.is_empty() { Ok(Element::Object) } else { Err(e) })?;
        if let Some(merge_key) = list.merge_key {
            require_keys(&merged, merge_key)?;
            require_keys(&order, merge_key)?;
        }
        original.insert(key.to_owned(), Value::Array(arrange(merged, &order, &server_order, list.merge_key)));
    }
    Ok(())
}

fn take_list(object: &mut Object, key: &str) -> Option<Vec<Value>> {
    match object.remove(key) {
        Some(Value::Array(list)) => Some(list),
        _ => None,
    }
}

/// The patch list must be a subsequence of the stated order.
fn check_order(patch: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), PatchError> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let mut at = order.iter();
    for item in patch {
        if merge_key.is_some() && item.get(PATCH).is_some() {
            continue;
        }
        if let Some(key) = merge_key {
            require_keys(std::slice::from_ref(item), key)?;
        }
        let id = identity(item, merge_key);
        loop {
            let Some(next) = at.next() else {
                return Err(failed("the order of the patch list does not match its $setElementOrder list"));
            };
            if let Some(key) = merge_key {
                require_keys(std::slice::from_ref(next), key)?;
            }
            if identity(next, merge_key) == id {
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
