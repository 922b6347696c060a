//! Resource definitions: one row per served (group, version, resource), built-in and custom alike.

mod custom;
mod rows;
mod strategy;

use std::cmp::Ordering;
use std::sync::Arc;

use crate::schema::Schema;
use crate::structural::Structural;
use crate::table;

pub use custom::{CustomError, PrinterColumn};
pub use strategy::{NameRule, SelectableField, Strategy};

/// Where a custom or built-in kind gets its schema from.
#[derive(Clone, Debug)]
pub enum SchemaSource {
    BuiltIn(table::Node),
    Custom(Arc<Structural>),
    /// A custom kind without a schema: everything is kept.
    None,
}

/// A subresource of a resource (`status`, `scale`, `binding`, …).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubresourceDef {
    pub name: String,
    /// Kind of its body, with its own group and version where they differ (`Scale` is `autoscaling/v1`).
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<String>,
    /// Dotted paths that a write through this endpoint leaves as they are stored. `metadata` stands for all of it but
    /// `managedFields` and `resourceVersion`.
    pub reset_fields: Vec<String>,
}

/// Where objects of a row are stored: rows that share `group` and `plural` here are one object in several versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageIdentity {
    pub group: String,
    pub plural: String,
    pub version: String,
    pub kind: String,
}

/// Where the `scale` subresource finds its numbers (dotted paths).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    /// Built-in kinds have a `LabelSelector` here (a plain map for `ReplicationController`), custom ones its text form.
    pub selector: Option<String>,
}

/// One served resource. Everything a request needs to know of its kind is a column of this row.
#[derive(Clone, Debug)]
pub struct ResourceDef {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Kubernetes verbs in discovery's order; a virtual resource (`TokenReview`) has `create` alone.
    pub verbs: Vec<String>,
    pub subresources: Vec<SubresourceDef>,
    pub storage: StorageIdentity,
    pub schema: SchemaSource,
    /// Whether anything is stored (false for reviews).
    pub is_stored: bool,
    pub strategy: Strategy,
    pub scale: Option<ScalePaths>,
    /// Columns that a custom resource definition states; built-in kinds have code for theirs.
    pub printer_columns: Vec<PrinterColumn>,
    /// A deprecated version's warning, as clients are shown it.
    pub deprecation_warning: Option<String>,
}

impl ResourceDef {
    /// `apiVersion` of the row's objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `plural.group` as messages name a resource; `plural` for the core group.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub fn is_custom(&self) -> bool {
        !matches!(self.schema, SchemaSource::BuiltIn(_))
    }

    /// The root of the row's schema; `None` for a custom kind without one.
    pub fn schema(&self) -> Option<Schema<'_>> {
        match &self.schema {
            SchemaSource::BuiltIn(node) => Some(Schema::BuiltIn(*node)),
            SchemaSource::Custom(structural) => Some(Schema::Custom(structural)),
            SchemaSource::None => None,
        }
    }

    /// Full name of the kind's protobuf message; custom kinds have no protobuf form.
    pub fn protobuf_type(&self) -> Option<&'static str> {
        match &self.schema {
            SchemaSource::BuiltIn(node) => node.type_name(),
            _ => None,
        }
    }

    pub fn subresource(&self, name: &str) -> Option<&SubresourceDef> {
        self.subresources.iter().find(|s| s.name == name)
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// Paths that a write through `subresource` (empty: the resource itself) leaves as they are stored.
    pub fn reset_fields(&self, subresource: &str) -> &[String] {
        if subresource.is_empty() {
            return &self.strategy.reset_fields;
        }
        self.subresource(subresource).map(|s| s.reset_fields.as_slice()).unwrap_or_default()
    }

    fn key(&self) -> (&str, &str, &str) {
        (&self.group, &self.plural, &self.version)
    }
}

/// A served API group and its versions, the preferred one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDef {
    pub name: String,
    /// `groupPriorityMinimum` of its APIService.
    pub priority: i32,
    /// Versions with their `versionPriority`.
    pub versions: Vec<(String, i32)>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Sorted by (group, plural, version).
    rows: Vec<Arc<ResourceDef>>,
    /// In discovery's order: by priority, then name.
    groups: Vec<GroupDef>,
}

/// An immutable snapshot of everything served. Cloning is cheap; adding and removing rows gives a new snapshot.
#[derive(Clone, Debug)]
pub struct Registry {
    tables: Arc<Tables>,
}

impl Registry {
    /// All built-in resources of the API level.
    pub fn builtin() -> Registry {
        let (mut rows, groups) = rows::parse();
        rows.sort_by(|a, b| a.key().cmp(&b.key()));
        Registry { tables: Arc::new(Tables { rows: rows.into_iter().map(Arc::new).collect(), groups }) }
    }

    /// A snapshot with these rows added; rows of the same group and plural are replaced.
    pub fn with(&self, added: Vec<ResourceDef>) -> Registry {
        let mut rows: Vec<Arc<ResourceDef>> = self
            .tables
            .rows
            .iter()
            .filter(|r| !added.iter().any(|a| a.group == r.group && a.plural == r.plural))
            .cloned()
            .collect();
        rows.extend(added.into_iter().map(Arc::new));
        self.rebuilt(rows)
    }

    /// A snapshot without any version of this resource.
    pub fn without(&self, group: &str, plural: &str) -> Registry {
        let rows = self.tables.rows.iter().filter(|r| !(r.group == group && r.plural == plural)).cloned().collect();
        self.rebuilt(rows)
    }

    fn rebuilt(&self, mut rows: Vec<Arc<ResourceDef>>) -> Registry {
        rows.sort_by(|a, b| a.key().cmp(&b.key()));
        let groups = custom::groups(&self.tables.groups, &rows);
        Registry { tables: Arc::new(Tables { rows, groups }) }
    }

    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceDef>> {
        let rows = &self.tables.rows;
        rows.binary_search_by(|r| r.key().cmp(&(group, plural, version))).ok().map(|i| &rows[i])
    }

    /// The resource whose objects are of this kind; virtual resources included, subresource bodies not.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<ResourceDef>> {
        self.group_rows(group).iter().find(|r| r.version == version && r.kind == kind)
    }

    /// All rows, by group, plural and version.
    pub fn rows(&self) -> &[Arc<ResourceDef>] {
        &self.tables.rows
    }

    /// All rows of a group.
    pub fn group_rows(&self, group: &str) -> &[Arc<ResourceDef>] {
        let rows = &self.tables.rows;
        let start = rows.partition_point(|r| r.group.as_str() < group);
        let end = rows.partition_point(|r| r.group.as_str() <= group);
        &rows[start..end]
    }

    /// All rows of one served group and version, by plural.
    pub fn version_rows<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<ResourceDef>> + 'a {
        self.group_rows(group).iter().filter(move |r| r.version == version)
    }

    /// Served groups in discovery's order; the core group (empty name) is among them.
    pub fn groups(&self) -> &[GroupDef] {
        &self.tables.groups
    }

    pub fn group(&self, name: &str) -> Option<&GroupDef> {
        self.tables.groups.iter().find(|g| g.name == name)
    }

    /// The other rows that show the same stored objects.
    pub fn siblings<'a>(&'a self, def: &'a ResourceDef) -> impl Iterator<Item = &'a Arc<ResourceDef>> + 'a {
        self.tables.rows.iter().filter(move |r| {
            r.storage.group == def.storage.group && r.storage.plural == def.storage.plural && r.key() != def.key()
        })
    }

    /// The row in whose version objects of `def` are stored (`def` itself for most).
    pub fn storage_row(&self, def: &ResourceDef) -> Option<&Arc<ResourceDef>> {
        self.get(&def.storage.group, &def.storage.version, &def.storage.plural)
    }
}

/// Kubernetes' order of version names, best first: GA before beta before alpha, higher numbers first, others by name at the end.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(x), Some(y)) => y.cmp(&x),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// (stability, major, minor) of `v1`, `v2beta3`, `v1alpha1`.
fn parse_version(name: &str) -> Option<(u8, u64, u64)> {
    let rest = name.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..digits].parse().ok().filter(|n| *n > 0)?;
    let tail = &rest[digits..];
    if tail.is_empty() {
        return Some((2, major, 0));
    }
    for (stability, word) in [(1, "beta"), (0, "alpha")] {
        if let Some(minor) = tail.strip_prefix(word) {
            return minor.parse().ok().filter(|n| *n > 0).map(|minor| (stability, major, minor));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_row_has_a_schema_and_a_group() {
        let registry = Registry::builtin();
        assert_eq!(registry.rows().len(), 68);
        for row in registry.rows() {
            assert!(row.schema().is_some(), "{}", row.kind);
            assert!(registry.group(&row.group).is_some(), "{}", row.group);
            assert!(registry.storage_row(row).is_some(), "{}", row.kind);
        }
    }

    #[test]
    fn two_rows_share_storage() {
        let registry = Registry::builtin();
        let events = registry.get("events.k8s.io", "v1", "events").unwrap();
        let names: Vec<_> = registry.siblings(events).map(|r| r.api_version()).collect();
        assert_eq!(names, ["v1"]);
    }

    #[test]
    fn versions_are_ordered_as_upstream_orders_them() {
        let mut names = ["v1beta1", "foo10", "v10", "v2", "v11alpha2", "v3beta1", "foo1", "v1"];
        names.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(names, ["v10", "v2", "v1", "v3beta1", "v1beta1", "v11alpha2", "foo1", "foo10"]);
    }
}
