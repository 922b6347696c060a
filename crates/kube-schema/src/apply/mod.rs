//! Who owns which field: `metadata.managedFields` and server-side apply, by the rules of structured-merge-diff and KEP-555.
//!
//! [`update`] records the owner of what an ordinary write (create, update, any patch) changed. [`apply`] merges a configuration into
//! the live object for a manager, refuses to change what others own unless forced, and removes what the manager owned, no longer
//! states, and nobody else owns. Both are pure: the time is passed in, and objects of other versions come from [`Versions`].
//!
//! Objects are JSON in the canonical written form of the request's version (decoded and defaulted); a configuration to apply is the
//! user's document as it came. The result of `apply` has to be decoded and defaulted again. Calls belong before the strategy of the
//! endpoint resets fields and before mutating admission; what the strategy will reset is given as a [`Filter`].
//!
//! It deliberately does not know endpoints, users, or which versions are served.

mod conflict;
mod diff;
mod element;
mod empty;
mod extract;
mod filter;
mod last_applied;
mod managed;
mod merge;
mod name;
mod prune;
mod scale;
mod set;
mod times;
mod types;
mod updater;

use serde_json::{Map, Value};

use crate::schema::Schema;
use empty::empty_object;
use updater::{Failure, Updater};

pub use conflict::{CONFLICT_REASON, Conflict, conflicts_message};
pub use diff::{Diff, diff};
pub use element::PathElement;
pub use extract::field_set;
pub use filter::Filter;
pub use managed::{ManagerId, Managers, Operation, Owned, validate_managed_fields};
pub use merge::merge;
pub use name::{FieldManagerFault, check_field_manager, manager_or_user_agent};
pub use prune::remove_fields;
pub use scale::{ReplicasPath, scale_to_parent, scale_to_subresource};
pub use set::{FieldSet, path_text};
pub use times::keep_times_of_equal;

/// Other versions of the object's kind.
pub trait Versions {
    /// The schema of a version such as `apps/v1`; `None` if it is not known.
    fn schema(&self, api_version: &str) -> Option<Schema<'_>>;
    /// An object in another version; `None` if there is no such version. Entries of such a version are dropped.
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value>;
}

/// A kind with one version.
pub struct OneVersion;

impl Versions for OneVersion {
    fn schema(&self, _: &str) -> Option<Schema<'_>> {
        None
    }
    fn convert(&self, _: &Value, _: &str) -> Option<Value> {
        None
    }
}

/// Where and by whom an object is written.
#[derive(Clone, Copy)]
pub struct UpdateContext<'a> {
    /// Schema of the request's version.
    pub schema: Schema<'a>,
    /// `apiVersion` of the request.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// Empty at the main endpoint.
    pub subresource: &'a str,
    /// Field manager; see [`manager_or_user_agent`].
    pub manager: &'a str,
    pub now: jiff::Timestamp,
    /// What this endpoint resets.
    pub reset: Option<&'a Filter>,
    pub versions: &'a dyn Versions,
}

/// What an apply does about fields that others own with other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    Refuse,
    /// `force=true`: take them.
    Force,
}

/// Why an apply was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 400 `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not fit the schema, or stored ownership cannot be read: 500 without a reason, as upstream.
    #[error("{0}")]
    Invalid(String),
    /// 409 `Conflict` with a cause for each.
    #[error("{}", conflicts_message(.0))]
    Conflicts(Vec<Conflict>),
}

impl ApplyError {
    /// HTTP status that upstream answers with.
    pub fn code(&self) -> u16 {
        match self {
            ApplyError::BadRequest(_) => 400,
            ApplyError::Invalid(_) => 500,
            ApplyError::Conflicts(_) => 409,
        }
    }
}

impl<'a> UpdateContext<'a> {
    fn updater(&self) -> Updater<'a> {
        Updater { schema: self.schema, api_version: self.api_version, versions: self.versions, filter: self.reset }
    }

    fn id(&self, manager: &str, operation: Operation) -> ManagerId {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        ManagerId::new(manager, operation, self.api_version, self.subresource)
    }

    fn time(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Gives the fields that an ordinary write set to its manager, with a new time.
    fn record(&self, mut set: FieldSet, manager: &str, managers: &mut Managers) {
        strip(&mut set);
        if set.is_empty() {
            return;
        }
        let new = Owned { set: FieldSet::new(), api_version: self.api_version.to_owned(), time: None };
        let owned = managers.0.entry(self.id(manager, Operation::Update)).or_insert(new);
        owned.set.extend(set);
        owned.time = Some(self.time());
    }
}

/// Records the owners of what an ordinary write changes. `live` is the stored object, `None` on create; `new` what the request asks
/// for, its own `metadata.managedFields` included (an empty list there forgets all owners). Returns `new` with the owners.
///
/// A write that changes nothing keeps all entries and their times. Ownership that cannot be computed is dropped rather than failing
/// the write.
pub fn update(ctx: &UpdateContext<'_>, live: Option<&Value>, mut new: Value) -> Value {
    let requested = take_managed_fields(&mut new);
    if let Some(entries) = updated_entries(ctx, live, &new, requested).unwrap_or_default() {
        set_managed_fields(&mut new, entries);
    }
    new
}

/// Whose entries an ordinary write starts from.
enum Source {
    Stored(Vec<Value>),
    /// The request brings entries of its own, or forgets all.
    Requested(Managers),
}

impl Source {
    fn of(ctx: &UpdateContext<'_>, stored: Option<&Value>, requested: Option<Value>) -> Source {
        let stored_list = |list: Option<&Value>| Source::Stored(list.and_then(Value::as_array).cloned().unwrap_or_default());
        let is_custom = matches!(ctx.schema, Schema::Custom(_));
        match requested {
            // What most requests bring along, and saves a copy.
            Some(Value::Array(list)) if Some(&list) == stored.and_then(Value::as_array) => Source::Stored(list),
            // Subresources keep what is stored, whatever the request says.
            Some(_) if !ctx.subresource.is_empty() => stored_list(stored),
            // The metadata of custom objects is read in a way that does not see an empty list.
            Some(Value::Array(list)) if list.is_empty() && is_custom => stored_list(stored),
            Some(list) if managed::is_reset(&list) => Source::Requested(Managers::default()),
            Some(list) => match Managers::from_json(Some(&list)) {
                Ok(managers) if !managers.0.is_empty() => Source::Requested(managers),
                _ => stored_list(stored),
            },
            None => stored_list(stored),
        }
    }
}

fn updated_entries(
    ctx: &UpdateContext<'_>,
    live: Option<&Value>,
    new: &Value,
    requested: Option<Value>,
) -> Result<Option<Value>, String> {
    let stored = live.and_then(|l| l.get("metadata")?.get("managedFields"));
    let updater = ctx.updater();
    let empty;
    let old = match live {
        Some(live) => live,
        None => {
            empty = empty_object(ctx.schema);
            &empty
        }
    };
    let change = updater.change(old, new)?;
    let id = ctx.id(ctx.manager, Operation::Update);
    let (mut managers, untouched) = match Source::of(ctx, stored, requested) {
        Source::Requested(managers) => (managers, Vec::new()),
        Source::Stored(list) if live.is_some() && change.is_empty() => {
            return Ok(Some(list).filter(|l| !l.is_empty()).map(Value::Array));
        }
        Source::Stored(list) => {
            let (touched, untouched) = managed::set_aside(list, &id, ctx.api_version, &change, ctx.schema);
            match Managers::from_json(Some(&Value::Array(touched))) {
                Ok(managers) => (managers, untouched),
                // What cannot be read is forgotten, all of it.
                Err(_) => (Managers::default(), Vec::new()),
            }
        }
    };
    // An object whose owners were forgotten stays without until its first apply.
    if managers.0.is_empty() && untouched.is_empty() && live.is_some() {
        return Ok(None);
    }
    let set = updater.update(change, old, new, &mut managers)?;
    ctx.record(set, ctx.manager, &mut managers);
    managers.cap_updates();
    Ok(managers.to_json_with(untouched))
}

/// Applies a configuration. `live` is the stored object, `None` if the apply creates it. Returns the merged object with its owners,
/// still to be decoded and defaulted.
pub fn apply(
    ctx: &UpdateContext<'_>,
    on_conflict: OnConflict,
    live: Option<&Value>,
    config: &Value,
) -> Result<Value, ApplyError> {
    check_config(ctx, config)?;
    let nothing = Value::Object(Map::new());
    let live = live.unwrap_or(&nothing);
    let stored = live.get("metadata").and_then(|m| m.get("managedFields"));
    let mut managers = Managers::from_json(stored).map_err(ApplyError::Invalid)?;
    let updater = ctx.updater();
    if managers.0.is_empty() && *live != nothing {
        let empty = empty_object(ctx.schema);
        let change = updater.change(&empty, live).map_err(ApplyError::Invalid)?;
        let set = updater.update(change, &empty, live, &mut managers).map_err(ApplyError::Invalid)?;
        ctx.record(set, "before-first-apply", &mut managers);
    }
    let run = |managers: &Managers, on_conflict| {
        let mut managers = managers.clone();
        let id = ctx.id(ctx.manager, Operation::Apply);
        let object = updater.apply(live, config, &mut managers, &id, on_conflict)?;
        if let Some(owned) = managers.0.get_mut(&id) {
            strip(&mut owned.set);
            if object.is_some() {
                owned.time = Some(ctx.time());
            }
            if owned.set.is_empty() {
                managers.0.remove(&id);
            }
        }
        Ok((object, managers))
    };
    let mut outcome = run(&managers, on_conflict);
    if let Err(Failure::Conflicts(conflicts)) = outcome {
        let left = last_applied::unexplained(ctx, live, Conflict::list(conflicts));
        if !left.is_empty() {
            return Err(ApplyError::Conflicts(left));
        }
        outcome = run(&managers, OnConflict::Force);
    }
    let (object, managers) = outcome.map_err(|failure| match failure {
        Failure::Conflicts(conflicts) => ApplyError::Conflicts(Conflict::list(conflicts)),
        Failure::Invalid(message) => ApplyError::Invalid(message),
    })?;
    let mut object = object.unwrap_or_else(|| live.clone());
    take_managed_fields(&mut object);
    if let Some(entries) = managers.to_json() {
        set_managed_fields(&mut object, entries);
    }
    last_applied::follow(ctx, &mut object, config);
    Ok(object)
}

fn check_config(ctx: &UpdateContext<'_>, config: &Value) -> Result<(), ApplyError> {
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("apiVersion") != ctx.api_version || text("kind") != ctx.kind {
        return Err(ApplyError::BadRequest(format!(
            "the object is {:?} of {:?}, not {:?} of {:?}",
            text("kind"),
            text("apiVersion"),
            ctx.kind,
            ctx.api_version
        )));
    }
    if config.get("metadata").and_then(|m| m.get("managedFields")).is_some_and(|m| !m.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    extract::check(types::Type::Of(ctx.schema), config).map_err(|e| ApplyError::Invalid(format!("cannot apply: {e}")))
}

/// Removes what nobody ever owns: the identity of the object and what the server sets.
fn strip(set: &mut FieldSet) {
    const METADATA: [&str; 9] = [
        "clusterName",
        "creationTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    ];
    fn drop_member(set: &mut FieldSet, name: &str) {
        let element = PathElement::field(name);
        if let Some(child) = set.children.get_mut(&element) {
            child.is_member = false;
            if child.is_empty() {
                set.children.remove(&element);
            }
        }
    }
    drop_member(set, "apiVersion");
    drop_member(set, "kind");
    if let Some(metadata) = set.children.get_mut(&PathElement::field("metadata")) {
        METADATA.iter().for_each(|name| drop_member(metadata, name));
    }
    drop_member(set, "metadata");
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn set_managed_fields(object: &mut Value, entries: Value) {
    if let Value::Object(map) = object {
        let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.insert("managedFields".to_owned(), entries);
        }
    }
}

#[cfg(test)]
pub(crate) mod laws;
#[cfg(test)]
mod tests;
