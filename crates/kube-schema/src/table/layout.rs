//! Byte layout of the packed table, shared by its writer (`build.rs`) and its reader.
//!
//! All integers are little endian. Strings are addressed by their offset into the pool: a `u16` length, then the bytes. Nothing is
//! a pointer, so the table needs no relocation and its pages are shared between processes.
//!
//! ```text
//! header    type count, kind count, offsets of: types, positions, by-name index, kind index, pool   (7 × u32)
//! types     sorted by name: name, kind text, first field, root position, field count                 (5 × u32)
//! positions name, attributes, tags, child, list-map keys, merge key, kind                            (7 × u32)
//! by-name   one u16 per position: the n-th field by name of a type, relative to its first field
//! kinds     one u16 per type with a kind, sorted by `group/version/Kind`
//! ```

pub const HEADER_WORDS: usize = 7;
pub const TYPE_BYTES: usize = 20;
pub const POSITION_BYTES: usize = 28;

/// `child` of a position that has none.
pub const NO_CHILD: u32 = u32::MAX;

/// Kinds of values. The number is what is stored.
pub mod kind {
    pub const STRUCT: u32 = 0;
    pub const MAP: u32 = 1;
    pub const LIST: u32 = 2;
    pub const STRING: u32 = 3;
    pub const BYTES: u32 = 4;
    pub const INT32: u32 = 5;
    pub const INT64: u32 = 6;
    pub const NUMBER: u32 = 7;
    pub const BOOLEAN: u32 = 8;
    pub const INT_OR_STRING: u32 = 9;
    pub const QUANTITY: u32 = 10;
    pub const TIME: u32 = 11;
    pub const MICRO_TIME: u32 = 12;
    pub const DURATION: u32 = 13;
    pub const RAW: u32 = 14;
    pub const FIELDS: u32 = 15;
    pub const JSON: u32 = 16;
    pub const SCHEMA_OR_ARRAY: u32 = 17;
    pub const SCHEMA_OR_BOOL: u32 = 18;
    pub const SCHEMA_OR_STRINGS: u32 = 19;

    /// The word that the text table uses.
    pub const WORDS: [(&str, u32); 17] = [
        ("string", STRING),
        ("bytes", BYTES),
        ("int32", INT32),
        ("int64", INT64),
        ("number", NUMBER),
        ("bool", BOOLEAN),
        ("intorstring", INT_OR_STRING),
        ("quantity", QUANTITY),
        ("time", TIME),
        ("microtime", MICRO_TIME),
        ("duration", DURATION),
        ("raw", RAW),
        ("fields", FIELDS),
        ("json", JSON),
        ("schemaorarray", SCHEMA_OR_ARRAY),
        ("schemaorbool", SCHEMA_OR_BOOL),
        ("schemaorstrings", SCHEMA_OR_STRINGS),
    ];
}

/// Attribute bits of a position.
pub mod attribute {
    pub const REQUIRED: u32 = 1;
    /// Zero is a value, absence another.
    pub const POINTER: u32 = 1 << 1;
    pub const OMIT_EMPTY: u32 = 1 << 2;
    pub const OMIT_ZERO: u32 = 1 << 3;
    pub const ATOMIC_MAP: u32 = 1 << 4;
    pub const LIST_SET: u32 = 1 << 5;
    pub const LIST_MAP: u32 = 1 << 6;
    pub const MERGE: u32 = 1 << 7;
    pub const REPLACE: u32 = 1 << 8;
    pub const RETAIN_KEYS: u32 = 1 << 9;
    /// `x-kubernetes-list-type: atomic` is stated (absence means the same to apply, but OpenAPI shows the difference).
    pub const LIST_ATOMIC: u32 = 1 << 10;
    /// The field is merged key by key though its type is atomic elsewhere.
    pub const GRANULAR_MAP: u32 = 1 << 11;
}
