//! Every bound of this crate.

/// Strict decoding errors that are reported; the rest is counted as upstream does: not at all.
pub const STRICT_ERRORS_MAX: usize = 100;
/// Bytes of all annotations of one object, keys included.
pub const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// `managedFields` subresource and manager names.
pub const FIELD_MANAGER_CHARS_MAX: usize = 128;
/// `subresource` of a managedFields entry.
pub const SUBRESOURCE_BYTES_MAX: usize = 256;
/// Bytes that a compiled `pattern` of a custom schema may take.
pub const PATTERN_BYTES_MAX: usize = 1024 * 1024;
/// `Update` entries of `managedFields` that one object keeps, as upstream.
pub const UPDATE_ENTRIES_MAX: usize = 10;
/// Elements of a path in `FieldsV1`: as deep as JSON is read.
pub const FIELD_PATH_ELEMENTS_MAX: usize = 128;
/// Operations in one JSON patch, as upstream.
pub const JSON_PATCH_OPERATIONS_MAX: usize = 10_000;
/// Bytes that all `copy` operations of one JSON patch may add together, as upstream's default.
pub const JSON_PATCH_COPY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Messages of a protobuf body within each other.
pub const PROTOBUF_DEPTH_MAX: usize = 100;
/// Events of a YAML body that aliases may expand to before it is refused.
pub const YAML_EVENTS_MAX: usize = 1_000_000;
