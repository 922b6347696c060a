//! What apply needs to know of a position: which parts of a value are owned one by one and which as a whole.

use serde_json::Value;

use super::element::PathElement;
use crate::schema::{ListType, Schema, Shape};
use crate::table::Kind;

/// The type of a position.
#[derive(Clone, Copy, Debug)]
pub(super) enum Type<'s> {
    Of(Schema<'s>),
    /// No schema: objects are owned member by member, everything else as a whole.
    Deduced,
    /// No schema: everything is owned as a whole (`RawExtension`).
    Untyped,
}

/// How a value at a position is owned.
#[derive(Clone, Debug)]
pub(super) enum Form<'s> {
    /// As a whole: a scalar, or an atomic list or object.
    Leaf,
    /// Member by member.
    Map,
    /// Element by element.
    List(ListForm<'s>),
}

/// A list that is owned element by element.
#[derive(Clone, Debug)]
pub(super) struct ListForm<'s> {
    pub items: Type<'s>,
    /// Empty for a set.
    keys: Vec<&'s str>,
}

impl<'s> Type<'s> {
    /// The type with free values replaced by what they are.
    fn resolved(self) -> Type<'s> {
        match self {
            Type::Of(schema) if schema.shape() == Shape::Any => match schema {
                Schema::BuiltIn(node) if node.kind() == Kind::RawExtension => Type::Untyped,
                _ if schema.is_atomic_map() => Type::Untyped,
                _ => Type::Deduced,
            },
            other => other,
        }
    }

    pub fn form(self, value: Option<&Value>) -> Form<'s> {
        match self.resolved() {
            Type::Untyped => Form::Leaf,
            Type::Deduced => match value {
                None | Some(Value::Object(_) | Value::Null) => Form::Map,
                Some(_) => Form::Leaf,
            },
            Type::Of(schema) => match schema.shape() {
                Shape::Struct | Shape::Map if schema.is_atomic_map() => Form::Leaf,
                Shape::Struct | Shape::Map => Form::Map,
                Shape::List => ListForm::of(schema).map_or(Form::Leaf, Form::List),
                _ => Form::Leaf,
            },
        }
    }

    /// The type of a member of an object, and whether the schema names it. `None`: there is no such field.
    pub fn member(self, name: &str) -> Option<(Type<'s>, bool)> {
        match self.resolved() {
            Type::Untyped => Some((Type::Untyped, false)),
            Type::Deduced => Some((Type::Deduced, false)),
            Type::Of(schema) => match schema.shape() {
                Shape::Struct => match schema.field(name) {
                    Some(field) => Some((Type::Of(field), true)),
                    // A type without fields accepts what it is given.
                    None if schema.preserves_unknown_fields() || schema.fields().is_empty() => Some((Type::Deduced, false)),
                    None => None,
                },
                Shape::Map => Some((schema.values().map_or(Type::Deduced, Type::Of), false)),
                _ => None,
            },
        }
    }

    /// As [`Type::member`] where an unknown field is no error.
    pub fn member_or_deduced(self, name: &str) -> (Type<'s>, bool) {
        self.member(name).unwrap_or((Type::Deduced, false))
    }

    /// The type that a path element leads to, and whether it is a named field.
    pub fn child(self, element: &PathElement) -> Option<(Type<'s>, bool)> {
        match element {
            PathElement::Field(name) => self.member(name),
            _ => match self.resolved() {
                Type::Of(schema) if schema.shape() == Shape::List => schema.items().map(|items| (Type::Of(items), false)),
                _ => None,
            },
        }
    }

    /// Whether the schema makes this an atomic list or object, so that nothing below it can be owned. `None` where only the value
    /// could tell.
    pub fn is_atomic(self) -> Option<bool> {
        match self.resolved() {
            Type::Deduced => None,
            Type::Untyped => Some(true),
            Type::Of(schema) => match schema.shape() {
                Shape::Struct | Shape::Map => Some(schema.is_atomic_map()),
                Shape::List => Some(ListForm::of(schema).is_none()),
                _ => Some(false),
            },
        }
    }
}

impl<'s> ListForm<'s> {
    /// `None` for an atomic list.
    fn of(schema: Schema<'s>) -> Option<Self> {
        let items = schema.items().map_or(Type::Untyped, Type::Of);
        let keys = match schema.list_type() {
            ListType::Set => Vec::new(),
            ListType::Map => schema.list_map_keys(),
            ListType::Atomic => return None,
        };
        Some(ListForm { items, keys })
    }

    /// What identifies an element of the list.
    pub fn element(&self, item: &Value) -> Result<PathElement, String> {
        if self.keys.is_empty() {
            return match item {
                Value::Object(_) => Err("a set may not have objects as elements".to_owned()),
                Value::Array(_) => Err("a set may not have lists as elements".to_owned()),
                Value::Null => Err("a set may not have null as an element".to_owned()),
                scalar => Ok(PathElement::Value(scalar.clone())),
            };
        }
        let Value::Object(map) = item else {
            return Err("a list with keys may only have objects as elements".to_owned());
        };
        let mut key: Vec<(String, Value)> = Vec::with_capacity(self.keys.len());
        for name in &self.keys {
            if let Some(value) = map.get(*name).cloned().or_else(|| self.key_default(name)) {
                key.push(((*name).to_owned(), value));
            }
        }
        if key.is_empty() {
            return Err(format!("an element has none of the key fields {:?} of its list", self.keys));
        }
        key.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(PathElement::Key(key))
    }

    /// What an absent key field means: its default, or for a field that is always written its zero.
    fn key_default(&self, name: &str) -> Option<Value> {
        let Type::Of(items) = self.items else { return None };
        let field = items.field(name)?;
        if let Some(default) = field.default_value() {
            return Some(default);
        }
        let (Schema::BuiltIn(item), Schema::BuiltIn(node)) = (items, field) else { return None };
        if !node.is_pointer() && !node.omits_empty() {
            return match node.kind() {
                Kind::String => Some(Value::from("")),
                Kind::Int32 | Kind::Int64 => Some(Value::from(0)),
                Kind::Boolean => Some(Value::from(false)),
                _ => None,
            };
        }
        let type_name = item.type_name()?;
        KEY_DEFAULTS.iter().find(|(ty, key, _)| *ty == type_name && *key == name).map(|(.., default)| Value::from(*default))
    }
}

/// Key fields that may be left out although their lists are keyed by them: type, field and what leaving it out means.
const KEY_DEFAULTS: [(&str, &str, &str); 3] = [
    ("io.k8s.api.core.v1.ContainerPort", "protocol", "TCP"),
    ("io.k8s.api.core.v1.ServicePort", "protocol", "TCP"),
    ("io.k8s.api.core.v1.LocalObjectReference", "name", ""),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;
    use serde_json::json;

    fn list_at(kind: (&str, &str, &str), path: &[&str]) -> ListForm<'static> {
        let mut at = Schema::BuiltIn(table::type_of_kind(kind.0, kind.1, kind.2).expect("kind"));
        for name in path {
            at = at.field(name).or_else(|| at.items()?.field(name)).expect("field");
        }
        match Type::Of(at).form(None) {
            Form::List(list) => list,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keys_have_defaults() {
        let ports = list_at(("", "v1", "Service"), &["spec", "ports"]);
        assert_eq!(ports.element(&json!({"port": 80})).map(|e| e.encode()), Ok(r#"k:{"port":80,"protocol":"TCP"}"#.to_owned()));
        let containers = list_at(("", "v1", "Pod"), &["spec", "containers"]);
        assert_eq!(containers.element(&json!({"image": "x"})).map(|e| e.encode()), Ok(r#"k:{"name":""}"#.to_owned()));
    }

    #[test]
    fn metadata_lists_are_associative() {
        let finalizers = list_at(("", "v1", "Pod"), &["metadata", "finalizers"]);
        assert_eq!(finalizers.element(&json!("a")).map(|e| e.encode()), Ok("v:\"a\"".to_owned()));
        assert!(finalizers.element(&json!({})).is_err());
        let owners = list_at(("", "v1", "Pod"), &["metadata", "ownerReferences"]);
        assert_eq!(owners.element(&json!({"uid": "u"})).map(|e| e.encode()), Ok(r#"k:{"uid":"u"}"#.to_owned()));
    }
}
