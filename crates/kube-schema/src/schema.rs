//! One position in the schema of a kind: the view that every walk (prune, default, validate, patch, apply, protobuf,
//! OpenAPI) is written against, so that built-in and custom kinds are the same thing to all of them.

use serde_json::Value;

use crate::structural::Structural;
use crate::table;

/// A position in a schema. Cheap to copy; borrows from the packed table or from a CRD's structural schema.
#[derive(Clone, Copy, Debug)]
pub enum Schema<'a> {
    /// A row of the packed table of built-in types.
    BuiltIn(table::Node),
    /// A node of a custom resource's structural schema.
    Custom(&'a Structural),
}

/// What kind of JSON value belongs at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An object with named fields.
    Struct,
    /// An object with free keys, all values of one schema.
    Map,
    List,
    String,
    /// Base64 text in JSON.
    Bytes,
    /// A signed integer of 32 bits.
    Int32,
    /// A signed integer of 64 bits.
    Int64,
    Number,
    Boolean,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
    /// `resource.Quantity`: text or number in JSON, text when written.
    Quantity,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// Go duration text such as `1m30s`.
    Duration,
    /// Any JSON value (`RawExtension`, `JSON`, `FieldsV1`, `x-kubernetes-preserve-unknown-fields` without properties).
    Any,
}

/// `x-kubernetes-list-type` (absent means atomic for apply).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    Atomic,
    Set,
    Map,
}

/// `x-kubernetes-patch-strategy`: what a strategic merge patch does at this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PatchStrategy {
    pub merge: bool,
    pub replace: bool,
    pub retain_keys: bool,
}

macro_rules! delegate {
    ($self:ident, $node:ident => $e:expr) => {
        match $self {
            Schema::BuiltIn($node) => $e,
            Schema::Custom($node) => $e,
        }
    };
}

impl<'a> Schema<'a> {
    pub fn shape(self) -> Shape {
        delegate!(self, n => n.shape())
    }

    /// The schema of a named field of a struct.
    pub fn field(self, name: &str) -> Option<Schema<'a>> {
        delegate!(self, n => n.field(name))
    }

    /// All named fields of a struct: built-in in the order of the Go struct where known, custom by name.
    pub fn fields(self) -> Vec<(&'a str, Schema<'a>)> {
        delegate!(self, n => n.fields())
    }

    /// The schema of a map's values.
    pub fn values(self) -> Option<Schema<'a>> {
        delegate!(self, n => n.values())
    }

    /// The schema of a list's elements.
    pub fn items(self) -> Option<Schema<'a>> {
        delegate!(self, n => n.items())
    }

    pub fn list_type(self) -> ListType {
        delegate!(self, n => n.list_type())
    }

    /// `x-kubernetes-list-map-keys`, in the order of the schema; empty unless `list_type` is `Map`.
    pub fn list_map_keys(self) -> Vec<&'a str> {
        delegate!(self, n => n.list_map_keys())
    }

    /// Whether apply treats this struct or map as one value (`x-kubernetes-map-type: atomic`).
    pub fn is_atomic_map(self) -> bool {
        delegate!(self, n => n.is_atomic_map())
    }

    /// `x-kubernetes-patch-merge-key` of a list.
    pub fn merge_key(self) -> Option<&'a str> {
        delegate!(self, n => n.merge_key())
    }

    pub fn patch_strategy(self) -> PatchStrategy {
        delegate!(self, n => n.patch_strategy())
    }

    /// Names of the fields that must be present in a struct.
    pub fn required(self) -> Vec<&'a str> {
        delegate!(self, n => n.required())
    }

    /// Whether `null` is a value here rather than absence.
    pub fn is_nullable(self) -> bool {
        delegate!(self, n => n.is_nullable())
    }

    /// Whether fields that the schema does not name are kept (custom kinds only).
    pub fn preserves_unknown_fields(self) -> bool {
        delegate!(self, n => n.preserves_unknown_fields())
    }

    /// The default that the schema states at this position.
    pub fn default_value(self) -> Option<Value> {
        delegate!(self, n => n.default_value())
    }

    /// The values allowed here, if the schema lists them.
    pub fn enum_values(self) -> Option<Vec<Value>> {
        delegate!(self, n => n.enum_values())
    }
}
