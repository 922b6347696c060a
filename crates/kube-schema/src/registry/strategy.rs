//! What differs between kinds in how they are written and read, as columns of their rows.

/// Syntax of `metadata.name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NameRule {
    /// RFC 1123 subdomain, 253 characters.
    #[default]
    Subdomain,
    /// RFC 1123 label, 63 characters.
    Label,
    /// RFC 1035 label (Services).
    Dns1035,
    /// Anything that may stand in a URL path (RBAC).
    PathSegment,
    /// An IP address in canonical form (IPAddress).
    IpAddress,
}

/// A field that a field selector may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    pub label: String,
    /// Dotted paths, the first non-empty one counts; a number is a list index.
    pub paths: Vec<String>,
}

/// Columns that the write and read paths of the machinery consult.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Strategy {
    pub name_rule: NameRule,
    /// Whether `PUT` of a name that does not exist creates it.
    pub allows_create_on_update: bool,
    /// Whether `PUT` without a resourceVersion overwrites.
    pub allows_unconditional_update: bool,
    /// Dotted paths that a write through the resource itself leaves as they are stored (cleared on create).
    pub reset_fields: Vec<String>,
    /// Whether `metadata.generation` starts at 1 on create.
    pub sets_generation: bool,
    /// Dotted paths whose change raises `metadata.generation`.
    pub generation_paths: Vec<String>,
    /// A path here that changes raises the generation, except those listed: everything but metadata and status (custom kinds).
    pub generation_follows_all: bool,
    /// Selectable fields, `metadata.name` and `metadata.namespace` included where the kind has them.
    pub selectable: Vec<SelectableField>,
    /// Whether deletion honours a grace period (Pods).
    pub is_deleted_gracefully: bool,
    /// Seconds after which an object vanishes by itself (Events).
    pub ttl_seconds: Option<u64>,
    /// Whether revisions of a deleted object are erased at once from log and file (Secrets).
    pub erases_history: bool,
}

impl Strategy {
    /// The selectable field with this label; `None` means that the selector is refused.
    pub fn selectable_field(&self, label: &str) -> Option<&SelectableField> {
        self.selectable.iter().find(|f| f.label == label)
    }
}
