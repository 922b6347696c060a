//! Every bound of this crate.

/// Cards that one node may register; HAMi-core serves at most 16 devices, racks with more are several nodes.
pub const CARDS_PER_NODE_MAX: usize = 128;
/// Slots that one card may be cut into.
pub const SLOTS_PER_CARD_MAX: u32 = 1_000;
/// Largest value that HAMi accepts for any of its resources.
pub const RESOURCE_VALUE_MAX: i64 = i32::MAX as i64;
/// Bytes of an annotation that is decoded; Kubernetes itself ends at 256 KiB for all annotations of an object.
pub const ANNOTATION_BYTES_MAX: usize = 256 * 1024;
/// Entries of a comma-separated selector annotation.
pub const SELECTOR_ENTRIES_MAX: usize = 256;
