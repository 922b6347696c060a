//! Sets of fields: the trees behind `FieldsV1`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::element::PathElement;
use crate::limits;

/// A set of paths. A path may be a member, lead to members, or both.
///
/// Invariant: below the root, a node is a member or leads to one. The root itself (the whole object) is never a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(super) is_member: bool,
    pub(super) children: BTreeMap<PathElement, FieldSet>,
}

impl FieldSet {
    pub fn new() -> Self {
        FieldSet::default()
    }

    /// A set of plain field paths, such as `["spec", "replicas"]`.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut out = FieldSet::new();
        for path in paths {
            out.insert(path.iter().map(|name| PathElement::field(*name)));
        }
        out
    }

    pub(super) fn member() -> Self {
        FieldSet { is_member: true, children: BTreeMap::new() }
    }

    /// Adds one path; its parents do not become members.
    pub fn insert(&mut self, path: impl IntoIterator<Item = PathElement>) {
        let mut at = self;
        let mut depth = 0;
        for element in path {
            at = at.children.entry(element).or_default();
            depth += 1;
        }
        if depth > 0 {
            at.is_member = true;
        }
    }

    /// Whether the path is a member.
    pub fn has(&self, path: &[PathElement]) -> bool {
        let mut at = self;
        for element in path {
            match at.children.get(element) {
                Some(child) => at = child,
                None => return false,
            }
        }
        at.is_member
    }

    pub fn is_empty(&self) -> bool {
        !self.is_member && self.children.is_empty()
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        usize::from(self.is_member) + self.children.values().map(FieldSet::len).sum::<usize>()
    }

    /// Puts a subtree at an element unless it is empty.
    pub(super) fn put(&mut self, element: &PathElement, child: FieldSet) {
        if child.is_empty() {
            return;
        }
        match self.children.entry(element.clone()) {
            Entry::Vacant(slot) => {
                slot.insert(child);
            }
            Entry::Occupied(mut slot) => slot.get_mut().extend(child),
        }
    }

    /// Union in place.
    pub fn extend(&mut self, other: FieldSet) {
        self.is_member |= other.is_member;
        if self.children.is_empty() {
            self.children = other.children;
            return;
        }
        for (element, child) in other.children {
            match self.children.entry(element) {
                Entry::Vacant(slot) => {
                    slot.insert(child);
                }
                Entry::Occupied(mut slot) => slot.get_mut().extend(child),
            }
        }
    }

    pub fn union(mut self, other: &FieldSet) -> FieldSet {
        self.extend(other.clone());
        self
    }

    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let (few, many) = if self.children.len() <= other.children.len() { (self, other) } else { (other, self) };
        let mut out = FieldSet { is_member: self.is_member && other.is_member, children: BTreeMap::new() };
        for (element, child) in &few.children {
            if let Some(twin) = many.children.get(element) {
                out.put(element, child.intersection(twin));
            }
        }
        out
    }

    /// Whether a path is a member of both.
    pub fn intersects(&self, other: &FieldSet) -> bool {
        (self.is_member && other.is_member)
            || self.children.iter().any(|(e, child)| other.children.get(e).is_some_and(|twin| child.intersects(twin)))
    }

    /// Removes the members of `other`; children of a removed member stay.
    pub fn subtract(&mut self, other: &FieldSet) {
        self.is_member &= !other.is_member;
        for (element, gone) in &other.children {
            if let Some(child) = self.children.get_mut(element) {
                child.subtract(gone);
                if child.is_empty() {
                    self.children.remove(element);
                }
            }
        }
    }

    pub fn difference(mut self, other: &FieldSet) -> FieldSet {
        self.subtract(other);
        self
    }

    /// Removes the members of `other` with all that is below them.
    pub fn subtract_recursive(&mut self, other: &FieldSet) {
        for (element, gone) in &other.children {
            if gone.is_member {
                self.children.remove(element);
            } else if let Some(child) = self.children.get_mut(element) {
                child.subtract_recursive(gone);
                if child.is_empty() {
                    self.children.remove(element);
                }
            }
        }
    }

    /// The members that have no members below them.
    pub fn leaves(&self) -> FieldSet {
        FieldSet {
            is_member: self.is_member && self.children.is_empty(),
            children: self.children.iter().map(|(e, c)| (e.clone(), c.leaves())).collect(),
        }
    }

    /// All members, at each level first those that end there.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        fn walk(set: &FieldSet, prefix: &mut Vec<PathElement>, out: &mut Vec<Vec<PathElement>>) {
            for (element, child) in &set.children {
                if child.is_member {
                    out.push(prefix.iter().chain([element]).cloned().collect());
                }
            }
            for (element, child) in &set.children {
                prefix.push(element.clone());
                walk(child, prefix, out);
                prefix.pop();
            }
        }
        let mut out = Vec::new();
        walk(self, &mut Vec::new(), &mut out);
        out
    }

    /// Reads a `FieldsV1` value.
    pub fn from_json(json: &Value) -> Result<FieldSet, String> {
        let mut out = FieldSet::read(json, 0)?;
        out.is_member = false;
        Ok(out)
    }

    fn read(json: &Value, depth: usize) -> Result<FieldSet, String> {
        if depth > limits::FIELD_PATH_ELEMENTS_MAX {
            return Err(format!("fields are nested deeper than {}", limits::FIELD_PATH_ELEMENTS_MAX));
        }
        let map = match json {
            Value::Object(map) => map,
            Value::Null => return Ok(FieldSet::member()),
            _ => return Err("fields must be an object".to_owned()),
        };
        let mut out = FieldSet::default();
        for (key, value) in map {
            if key == "." {
                out.is_member = true;
            } else if let Some(element) = PathElement::parse(key)? {
                out.put(&element, FieldSet::read(value, depth + 1)?);
            }
        }
        if out.children.is_empty() {
            out.is_member = true;
        }
        Ok(out)
    }

    /// The `FieldsV1` value.
    pub fn to_json(&self) -> Value {
        let mut map = serde_json::Map::new();
        for (element, child) in &self.children {
            let mut below = child.to_json();
            if let (true, Value::Object(fields)) = (child.has_dot(), &mut below) {
                fields.insert(".".to_owned(), Value::Object(serde_json::Map::new()));
            }
            map.insert(element.encode(), below);
        }
        Value::Object(map)
    }

    /// Whether the node is written with a member `.`.
    fn has_dot(&self) -> bool {
        self.is_member && !self.children.is_empty()
    }
}

/// Serialises as `FieldsV1` in the canonical order, for the raw bytes of the protobuf form.
impl Serialize for FieldSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.has_dot() {
            map.serialize_entry(".", &FieldSet::default())?;
        }
        for (element, child) in &self.children {
            map.serialize_entry(&element.encode(), child)?;
        }
        map.end()
    }
}

/// Text of a path as conflicts show it.
pub fn path_text(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(json: Value) -> FieldSet {
        FieldSet::from_json(&json).expect("fields")
    }

    #[test]
    fn json_round_trips() {
        let json = json!({
            "f:spec": {
                "f:ports": {".": {}, "k:{\"port\":80}": {".": {}, "f:port": {}}},
                "f:finalizers": {"v:\"a\"": {}},
                "f:replicas": {},
            }
        });
        assert_eq!(set(json.clone()).to_json(), json);
        assert_eq!(FieldSet::new().to_json(), json!({}));
    }

    #[test]
    fn canonical_text_sorts_numbers_by_value() {
        let set = set(json!({"f:a": {"v:10": {}, "v:9": {}, "f:x": {}, ".": {}}}));
        assert_eq!(serde_json::to_string(&set).expect("text"), r#"{"f:a":{".":{},"f:x":{},"v:9":{},"v:10":{}}}"#);
    }

    #[test]
    fn difference_keeps_children_and_recursive_difference_does_not() {
        let all = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let a = set(json!({"f:a": {}}));
        assert_eq!(all.clone().difference(&a), set(json!({"f:a": {"f:b": {}}, "f:c": {}})));
        let mut rest = all;
        rest.subtract_recursive(&a);
        assert_eq!(rest, set(json!({"f:c": {}})));
    }

    #[test]
    fn unknown_elements_are_dropped_and_nesting_is_bounded() {
        assert_eq!(set(json!({"f:a": {"x:new": {"f:b": {}}}})), set(json!({"f:a": {}})));
        let mut deep = json!({});
        for _ in 0..limits::FIELD_PATH_ELEMENTS_MAX + 2 {
            deep = json!({"f:a": deep});
        }
        assert!(FieldSet::from_json(&deep).is_err());
        assert!(FieldSet::from_json(&json!({"a": {}})).is_err());
        assert!(FieldSet::from_json(&json!({"f:a": 1})).is_err());
    }
}
