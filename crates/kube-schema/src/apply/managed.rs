//! `metadata.managedFields` as a map from manager to what it owns.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use super::diff::Diff;
use super::set::FieldSet;
use crate::limits;
use crate::schema::Schema;

/// The manager that the oldest updates are rolled into.
const ANCIENT_CHANGES: &str = "ancient-changes";

/// `operation` of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// What makes two entries one. An applier keeps its entry across versions, so its version is no part of its identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManagerId {
    pub manager: String,
    pub operation: Operation,
    /// Empty for `Apply`.
    pub api_version: String,
    pub subresource: String,
}

impl ManagerId {
    pub fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        ManagerId {
            manager: manager.to_owned(),
            operation,
            api_version: if operation == Operation::Update { api_version.to_owned() } else { String::new() },
            subresource: subresource.to_owned(),
        }
    }
}

/// How conflicts name a manager.
impl fmt::Display for ManagerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.manager)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match self.operation {
            Operation::Update => write!(f, " using {}", self.api_version),
            Operation::Apply => Ok(()),
        }
    }
}

/// What a manager owns, in the version that it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub set: FieldSet,
    pub api_version: String,
    /// RFC 3339 with seconds.
    pub time: Option<String>,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managers(pub BTreeMap<ManagerId, Owned>);

impl Managers {
    /// Reads `metadata.managedFields`; null and absence are no managers.
    pub fn from_json(entries: Option<&Value>) -> Result<Managers, String> {
        let list = match entries {
            None | Some(Value::Null) => return Ok(Managers::default()),
            Some(Value::Array(list)) => list,
            Some(_) => return Err("managedFields must be a list".to_owned()),
        };
        let mut out = BTreeMap::new();
        for (index, entry) in list.iter().enumerate() {
            let (id, owned) = read_entry(entry).map_err(|e| format!("managedFields[{index}]: {e}"))?;
            out.insert(id, owned);
        }
        Ok(Managers(out))
    }

    /// Writes `metadata.managedFields`, sorted by operation, time, manager, version and subresource. `None` if nobody owns anything.
    pub fn to_json(&self) -> Option<Value> {
        self.to_json_with(Vec::new())
    }

    /// Writes these managers and entries that were set aside.
    pub(super) fn to_json_with(&self, set_aside: Vec<Value>) -> Option<Value> {
        let mut entries = set_aside;
        entries.extend(self.0.iter().map(|(id, owned)| write_entry(id, owned)));
        entries.sort_by_cached_key(|entry| {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            (
                text("operation"),
                seconds(entry.get("time").and_then(Value::as_str)),
                text("manager"),
                text("apiVersion"),
                text("subresource"),
            )
        });
        if entries.is_empty() { None } else { Some(Value::Array(entries)) }
    }

    /// Rolls the oldest `Update` entries of each version into one, so that no more than the limit remain.
    pub(super) fn cap_updates(&mut self) {
        let mut updates: Vec<(i64, ManagerId)> = self
            .0
            .iter()
            .filter(|(id, _)| id.operation == Operation::Update)
            .map(|(id, o)| (seconds(o.time.as_deref()), id.clone()))
            .collect();
        let mut count = updates.len();
        if count <= limits::UPDATE_ENTRIES_MAX {
            return;
        }
        updates.sort();
        // The first of a version stays as it is until a second one comes to be merged with it.
        let mut first_of: BTreeMap<String, ManagerId> = BTreeMap::new();
        for (_, id) in updates {
            if count <= limits::UPDATE_ENTRIES_MAX {
                break;
            }
            let Some(version) = self.0.get(&id).map(|o| o.api_version.clone()) else { continue };
            let bucket = ManagerId::new(ANCIENT_CHANGES, Operation::Update, &version, "");
            let Some(first) = first_of.get(&version) else {
                first_of.insert(version, id);
                continue;
            };
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            let Some(owned) = self.0.remove(&id) else { continue };
            if let Some(into) = self.0.get_mut(&bucket) {
                into.set.extend(owned.set);
                into.time = owned.time;
            }
            count -= 1;
        }
    }
}

fn seconds(time: Option<&str>) -> i64 {
    time.and_then(|t| t.parse::<jiff::Timestamp>().ok()).map_or(0, |t| t.as_second())
}

/// Splits stored entries into those that a change may touch and those that it leaves as they are, which need not be read: entries
/// of the request's version that are not the writer's own and share no field with the change.
pub(super) fn set_aside(
    entries: Vec<Value>,
    writer: &ManagerId,
    api_version: &str,
    change: &Diff,
    schema: Schema<'_>,
) -> (Vec<Value>, Vec<Value>) {
    // The schema of a custom kind may have changed since an entry was written, and rolling up needs to see all of them.
    if matches!(schema, Schema::Custom(_)) || entries.len() >= limits::UPDATE_ENTRIES_MAX {
        return (entries, Vec::new());
    }
    entries.into_iter().partition(|entry| {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let is_writers = text("manager") == writer.manager
            && text("operation") == writer.operation.as_str()
            && text("subresource") == writer.subresource;
        let is_plain = text("apiVersion") == api_version
            && text("fieldsType") == "FieldsV1"
            && matches!(text("operation"), "Apply" | "Update");
        let fields = entry.get("fieldsV1").and_then(Value::as_object).filter(|f| !f.is_empty());
        let is_shared = |fields: &Map<String, Value>| {
            [&change.added, &change.modified, &change.removed].into_iter().any(|set| shares_member(fields, set))
        };
        is_writers || !is_plain || fields.is_none_or(is_shared)
    })
}

/// Whether a `FieldsV1` value and a set have a member in common.
fn shares_member(fields: &Map<String, Value>, set: &FieldSet) -> bool {
    set.children.iter().any(|(element, child)| match fields.get(&element.encode()) {
        Some(Value::Object(below)) => {
            let is_member = below.is_empty() || below.contains_key(".");
            (child.is_member && is_member) || shares_member(below, child)
        }
        // Not written by us: to be read properly.
        Some(_) => true,
        None => false,
    })
}

fn read_entry(entry: &Value) -> Result<(ManagerId, Owned), String> {
    let text = |key: &str| match entry.get(key) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(s)) => Ok(s.as_str()),
        Some(_) => Err(format!("{key} must be a string")),
    };
    let operation = match text("operation")? {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be Apply or Update".to_owned()),
    };
    let api_version = text("apiVersion")?;
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    if text("fieldsType")? != "FieldsV1" {
        return Err("fieldsType must be FieldsV1".to_owned());
    }
    let set = match entry.get("fieldsV1") {
        None | Some(Value::Null) => FieldSet::new(),
        Some(fields) => FieldSet::from_json(fields)?,
    };
    let time = Some(text("time")?).filter(|t| !t.is_empty()).map(str::to_owned);
    let id = ManagerId::new(text("manager")?, operation, api_version, text("subresource")?);
    Ok((id, Owned { set, api_version: api_version.to_owned(), time }))
}

fn write_entry(id: &ManagerId, owned: &Owned) -> Value {
    let mut entry = json!({
        "operation": id.operation.as_str(),
        "apiVersion": owned.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned.set.to_json(),
    });
    for (key, text) in [("manager", &id.manager), ("subresource", &id.subresource)] {
        if !text.is_empty() {
            entry[key] = Value::from(text.as_str());
        }
    }
    if let Some(time) = &owned.time {
        entry["time"] = Value::from(time.as_str());
    }
    entry
}

/// Whether a request asks to forget all managers: an empty list, or one empty entry.
pub(super) fn is_reset(entries: &Value) -> bool {
    let Value::Array(list) = entries else { return false };
    match list.as_slice() {
        [] => true,
        [Value::Object(entry)] => entry.values().all(|v| v.is_null() || v == "" || v.as_object().is_some_and(|m| m.is_empty())),
        _ => false,
    }
}

/// Checks the entries of an object after mutating admission. On an error the entries from before are put back, with a warning.
pub fn validate_managed_fields(entries: Option<&Value>) -> Result<(), String> {
    Managers::from_json(entries).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, time: &str, field: &str) -> Value {
        let fields = Value::Object(serde_json::Map::from_iter([(field.to_owned(), json!({}))]));
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn entries_are_sorted_by_operation_time_and_manager() {
        let list = json!([
            entry("b", "Update", "2026-01-01T00:00:00Z", "f:b"),
            entry("a", "Update", "2026-01-01T00:00:00Z", "f:a"),
            entry("late", "Apply", "2026-01-02T00:00:00Z", "f:l"),
            entry("early", "Apply", "2026-01-01T00:00:00Z", "f:e"),
        ]);
        let out = Managers::from_json(Some(&list)).expect("managers").to_json().expect("entries");
        let names: Vec<&str> = out.as_array().into_iter().flatten().filter_map(|e| e["manager"].as_str()).collect();
        assert_eq!(names, ["early", "late", "a", "b"]);
        assert_eq!(out[2], list[1]);
    }

    #[test]
    fn old_updates_are_rolled_into_one_entry() {
        let list: Vec<Value> = (0..13)
            .map(|n| entry(&format!("m{n:02}"), "Update", &format!("2026-01-01T00:00:{n:02}Z"), &format!("f:x{n}")))
            .collect();
        let mut managers = Managers::from_json(Some(&Value::Array(list))).expect("managers");
        managers.cap_updates();
        assert_eq!(managers.0.len(), limits::UPDATE_ENTRIES_MAX);
        let ancient = &managers.0[&ManagerId::new("ancient-changes", Operation::Update, "v1", "")];
        assert_eq!(ancient.set.to_json(), json!({"f:x0": {}, "f:x1": {}, "f:x2": {}, "f:x3": {}}));
        assert_eq!(ancient.time.as_deref(), Some("2026-01-01T00:00:03Z"));
    }

    #[test]
    fn invalid_entries_are_refused() {
        let good = entry("a", "Update", "2026-01-01T00:00:00Z", "f:a");
        assert_eq!(validate_managed_fields(Some(&json!([good]))), Ok(()));
        for (key, value) in [
            ("operation", json!("Patch")),
            ("apiVersion", json!("")),
            ("fieldsType", json!("V2")),
            ("fieldsV1", json!({"x": {}})),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            assert!(validate_managed_fields(Some(&json!([bad]))).is_err(), "{key}");
        }
        assert!(is_reset(&json!([])) && is_reset(&json!([{}])) && !is_reset(&json!([good])) && !is_reset(&Value::Null));
    }
}
