//! The packed table of built-in types: one flat blob, addressed by offsets and read in place.
//!
//! The blob is written by `build.rs` from `table/types.txt` and is trusted: it is part of the program. Nothing is decoded at start
//! and nothing is cached, so an idle process pays only for the pages it touched, and shares those.

pub mod layout;

use serde_json::Value;

use crate::schema::{ListType, PatchStrategy, Schema, Shape};
use layout::{NO_CHILD, attribute, kind};

static BLOB: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/schema.bin"));

/// What a value is, more finely than [`Shape`]: tells apart the free values, which differ in protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Struct,
    Map,
    List,
    String,
    Bytes,
    Int32,
    Int64,
    Number,
    Boolean,
    IntOrString,
    Quantity,
    Time,
    MicroTime,
    Duration,
    /// `runtime.RawExtension`: a whole object of some kind.
    RawExtension,
    /// `meta/v1 FieldsV1`.
    Fields,
    /// `apiextensions JSON`: any JSON value.
    Json,
    /// `apiextensions JSONSchemaPropsOrArray` and its two siblings.
    SchemaOrArray,
    SchemaOrBool,
    SchemaOrStrings,
}

/// A position in a built-in type: a field, an element of a list or map, or a type's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node(u32);

fn word(at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&BLOB[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn half(at: usize) -> usize {
    usize::from(u16::from_le_bytes([BLOB[at], BLOB[at + 1]]))
}

fn header(field: usize) -> usize {
    word(field * 4) as usize
}

fn text(offset: u32) -> &'static str {
    let at = header(6) + offset as usize;
    std::str::from_utf8(&BLOB[at + 2..at + 2 + half(at)]).expect("the table's strings are UTF-8")
}

fn type_word(index: usize, field: usize) -> u32 {
    word(header(2) + index * layout::TYPE_BYTES + field * 4)
}

/// Binary search over `0..count` by a key of each index.
fn search(count: usize, wanted: &str, key: impl Fn(usize) -> &'static str) -> Option<usize> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = usize::midpoint(low, high);
        match key(middle).cmp(wanted) {
            std::cmp::Ordering::Equal => return Some(middle),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    None
}

/// A built-in type by its OpenAPI name (`io.k8s.api.core.v1.Pod`).
pub fn type_named(name: &str) -> Option<Node> {
    search(header(0), name, |i| text(type_word(i, 0))).map(|i| Node(type_word(i, 3)))
}

/// The type of a group, version and kind; the core group is the empty text.
pub fn type_of_kind(group: &str, version: &str, kind: &str) -> Option<Node> {
    let wanted = format!("{group}/{version}/{kind}");
    let type_at = |i: usize| half(header(5) + i * 2);
    search(header(1), &wanted, |i| text(type_word(type_at(i), 1))).map(|i| Node(type_word(type_at(i), 3)))
}

/// All built-in types, by name.
pub fn types() -> impl Iterator<Item = Node> {
    (0..header(0)).map(|i| Node(type_word(i, 3)))
}

/// The schema of `meta/v1 ObjectMeta`.
pub fn object_meta() -> Option<Node> {
    type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
}

/// The schema of a plain string: that of a name.
pub fn string() -> Option<Node> {
    type_named("io.k8s.apimachinery.pkg.apis.meta.v1.GroupVersionForDiscovery")?.built_in_field("version")
}

impl Node {
    fn word(self, field: usize) -> u32 {
        word(header(3) + self.0 as usize * layout::POSITION_BYTES + field * 4)
    }

    fn has(self, bit: u32) -> bool {
        self.word(1) & bit != 0
    }

    fn child(self) -> Option<u32> {
        Some(self.word(3)).filter(|c| *c != NO_CHILD)
    }

    pub fn kind(self) -> Kind {
        match self.word(6) {
            kind::STRUCT => Kind::Struct,
            kind::MAP => Kind::Map,
            kind::LIST => Kind::List,
            kind::STRING => Kind::String,
            kind::BYTES => Kind::Bytes,
            kind::INT32 => Kind::Int32,
            kind::INT64 => Kind::Int64,
            kind::NUMBER => Kind::Number,
            kind::BOOLEAN => Kind::Boolean,
            kind::INT_OR_STRING => Kind::IntOrString,
            kind::QUANTITY => Kind::Quantity,
            kind::TIME => Kind::Time,
            kind::MICRO_TIME => Kind::MicroTime,
            kind::DURATION => Kind::Duration,
            kind::RAW => Kind::RawExtension,
            kind::FIELDS => Kind::Fields,
            kind::SCHEMA_OR_ARRAY => Kind::SchemaOrArray,
            kind::SCHEMA_OR_BOOL => Kind::SchemaOrBool,
            kind::SCHEMA_OR_STRINGS => Kind::SchemaOrStrings,
            _ => Kind::Json,
        }
    }

    pub fn shape(self) -> Shape {
        match self.kind() {
            // A type without fields, such as `Patch`, accepts what it is given.
            Kind::Struct => Shape::Struct,
            Kind::Map => Shape::Map,
            Kind::List => Shape::List,
            Kind::String => Shape::String,
            Kind::Bytes => Shape::Bytes,
            Kind::Int32 => Shape::Int32,
            Kind::Int64 => Shape::Int64,
            Kind::Number => Shape::Number,
            Kind::Boolean => Shape::Boolean,
            Kind::IntOrString => Shape::IntOrString,
            Kind::Quantity => Shape::Quantity,
            Kind::Time => Shape::Time,
            Kind::MicroTime => Shape::MicroTime,
            Kind::Duration => Shape::Duration,
            Kind::RawExtension | Kind::Fields | Kind::Json | Kind::SchemaOrArray | Kind::SchemaOrBool | Kind::SchemaOrStrings => {
                Shape::Any
            }
        }
    }

    /// Name of the field at this position; empty for elements and roots.
    pub fn name(self) -> &'static str {
        text(self.word(0))
    }

    /// Protobuf numbers from the outside in: more than one where JSON inlines a message; zeros where there is none.
    pub fn tags(self) -> [u8; 3] {
        let tags = self.word(2).to_le_bytes();
        [tags[0], tags[1], tags[2]]
    }

    /// OpenAPI name of the type at this position, if it is a named one.
    pub fn type_name(self) -> Option<&'static str> {
        if matches!(self.kind(), Kind::Map | Kind::List) {
            return None;
        }
        self.child().map(|c| text(type_word(c as usize, 0)))
    }

    /// `(group, version, kind)` of the type at this position, if it is an object kind of one group.
    pub fn gvk(self) -> Option<(&'static str, &'static str, &'static str)> {
        if matches!(self.kind(), Kind::Map | Kind::List) {
            return None;
        }
        let mut parts = text(type_word(self.child()? as usize, 1)).splitn(3, '/');
        Some((parts.next()?, parts.next()?, parts.next()?))
    }

    /// Whether the type belongs to every group (`DeleteOptions`, `WatchEvent`).
    pub fn is_of_every_group(self) -> bool {
        self.kind() == Kind::Struct && self.child().is_some_and(|c| text(type_word(c as usize, 1)) == "*")
    }

    /// Whether zero and absence are different values.
    pub fn is_pointer(self) -> bool {
        self.has(attribute::POINTER)
    }

    /// Whether an empty value is left out when an object is written.
    pub fn omits_empty(self) -> bool {
        self.has(attribute::OMIT_EMPTY)
    }

    /// Whether a struct is left out when all of it is empty.
    pub fn omits_zero(self) -> bool {
        self.has(attribute::OMIT_ZERO)
    }

    /// Whether the field states that it is merged key by key.
    pub fn states_granular_map(self) -> bool {
        self.has(attribute::GRANULAR_MAP)
    }

    pub fn is_required(self) -> bool {
        self.has(attribute::REQUIRED)
    }

    /// Whether the schema states a list type, be it the default one.
    pub fn states_list_type(self) -> bool {
        self.has(attribute::LIST_ATOMIC | attribute::LIST_MAP | attribute::LIST_SET)
    }

    /// Fields of a struct in the order of encoding.
    pub fn built_in_fields(self) -> impl DoubleEndedIterator<Item = Node> {
        let (first, count) = match (self.kind(), self.child()) {
            (Kind::Struct, Some(c)) => (type_word(c as usize, 2), type_word(c as usize, 4)),
            _ => (0, 0),
        };
        (first..first + count).map(Node)
    }

    /// A field of a struct by its JSON name.
    pub fn built_in_field(self, name: &str) -> Option<Node> {
        if self.kind() != Kind::Struct {
            return None;
        }
        let index = self.child()? as usize;
        let first = type_word(index, 2);
        let at = |i: usize| Node(first + half(header(4) + (first as usize + i) * 2) as u32);
        search(type_word(index, 4) as usize, name, |i| at(i).name()).map(at)
    }

    /// The element of a list or map.
    pub fn element(self) -> Option<Node> {
        if matches!(self.kind(), Kind::Map | Kind::List) { self.child().map(Node) } else { None }
    }

    pub fn field(self, name: &str) -> Option<Schema<'static>> {
        self.built_in_field(name).map(Schema::BuiltIn)
    }

    pub fn fields(self) -> Vec<(&'static str, Schema<'static>)> {
        self.built_in_fields().map(|n| (n.name(), Schema::BuiltIn(n))).collect()
    }

    pub fn values(self) -> Option<Schema<'static>> {
        if self.kind() == Kind::Map { self.element().map(Schema::BuiltIn) } else { None }
    }

    pub fn items(self) -> Option<Schema<'static>> {
        if self.kind() == Kind::List { self.element().map(Schema::BuiltIn) } else { None }
    }

    pub fn list_type(self) -> ListType {
        if self.has(attribute::LIST_MAP) {
            ListType::Map
        } else if self.has(attribute::LIST_SET) {
            ListType::Set
        } else {
            ListType::Atomic
        }
    }

    pub fn list_map_keys(self) -> Vec<&'static str> {
        text(self.word(4)).split(',').filter(|k| !k.is_empty()).collect()
    }

    pub fn is_atomic_map(self) -> bool {
        self.has(attribute::ATOMIC_MAP)
    }

    pub fn merge_key(self) -> Option<&'static str> {
        Some(text(self.word(5))).filter(|k| !k.is_empty())
    }

    pub fn patch_strategy(self) -> PatchStrategy {
        PatchStrategy {
            merge: self.has(attribute::MERGE),
            replace: self.has(attribute::REPLACE),
            retain_keys: self.has(attribute::RETAIN_KEYS),
        }
    }

    pub fn required(self) -> Vec<&'static str> {
        self.built_in_fields().filter(|n| n.is_required()).map(Node::name).collect()
    }

    /// Null is absence for built-in kinds, except as a value of a free JSON position.
    pub fn is_nullable(self) -> bool {
        matches!(self.kind(), Kind::Json)
    }

    pub fn preserves_unknown_fields(self) -> bool {
        false
    }

    /// Defaults of built-in kinds are rows beside the table, not part of the schema.
    pub fn default_value(self) -> Option<Value> {
        None
    }

    /// Built-in schemas list no values; which are valid is a field rule.
    pub fn enum_values(self) -> Option<Vec<Value>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ty: &str, path: &[&str]) -> Node {
        path.iter().fold(type_named(ty).unwrap(), |node, name| match *name {
            "[]" => node.element().unwrap(),
            name => node.built_in_field(name).unwrap(),
        })
    }

    #[test]
    fn walks_from_a_kind_to_a_list_map() {
        let pod = type_of_kind("", "v1", "Pod").unwrap();
        assert_eq!(pod.type_name(), Some("io.k8s.api.core.v1.Pod"));
        let ports = at("io.k8s.api.core.v1.Pod", &["spec", "containers", "[]", "ports"]);
        assert_eq!(ports.list_type(), ListType::Map);
        assert_eq!(ports.list_map_keys(), ["containerPort", "protocol"]);
        assert_eq!(ports.merge_key(), Some("containerPort"));
        assert!(ports.patch_strategy().merge);
    }

    #[test]
    fn inlined_messages_have_a_path_of_numbers() {
        assert_eq!(at("io.k8s.api.core.v1.Volume", &["emptyDir"]).tags(), [2, 2, 0]);
        assert_eq!(at("io.k8s.api.core.v1.ConfigMapKeySelector", &["name"]).tags(), [1, 1, 0]);
    }

    #[test]
    fn every_field_is_found_by_name_and_has_a_resolvable_type() {
        let mut count = 0;
        for ty in types() {
            for field in ty.built_in_fields() {
                assert_eq!(ty.built_in_field(field.name()), Some(field));
                if field.kind() == Kind::Struct {
                    assert!(field.type_name().is_some_and(|n| type_named(n).is_some()));
                }
                count += 1;
            }
        }
        assert!(count > 3000, "{count}");
    }
}
