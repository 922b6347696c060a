//! The ownership rules: what a write takes from other managers, and what an apply removes.

use serde_json::Value;

use super::diff::{Diff, diff};
use super::extract::field_set;
use super::managed::{ManagerId, Managers, Owned};
use super::merge::merge;
use super::prune::{add_named_parents, follow_schema, remove_fields};
use super::set::FieldSet;
use super::types::Type;
use super::{Filter, OnConflict, Versions};
use crate::schema::Schema;

/// The object's schema, versions and tracked fields.
#[derive(Clone, Copy)]
pub(super) struct Updater<'a> {
    pub schema: Schema<'a>,
    pub api_version: &'a str,
    pub versions: &'a dyn Versions,
    pub filter: Option<&'a Filter>,
}

/// Why an apply came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// What the write would change, by the manager that owns it.
    Conflicts(Vec<(ManagerId, FieldSet)>),
    Invalid(String),
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Failure::Invalid(message)
    }
}

impl<'a> Updater<'a> {
    /// The tracked part of a change, in the version of the request.
    pub fn change(&self, old: &Value, new: &Value) -> Result<Diff, String> {
        diff(self.schema, old, new).map(|change| self.filtered(change))
    }

    /// Takes from every manager but `except` what the change `own` from `old` to `new` modifies or removes.
    fn take(
        &self,
        own: &Diff,
        (old, new): (&Value, &Value),
        managers: &mut Managers,
        except: Option<&ManagerId>,
        on_conflict: OnConflict,
    ) -> Result<(), Failure> {
        let mut others: Vec<(String, Option<Diff>)> = Vec::new();
        let mut conflicts = Vec::new();
        let mut lost: Vec<(ManagerId, Option<FieldSet>)> = Vec::new();
        for (id, owned) in &managers.0 {
            if Some(id) == except {
                continue;
            }
            let change = if owned.api_version == self.api_version {
                Some(own)
            } else {
                let known = others.iter().position(|(version, _)| *version == owned.api_version);
                let at = match known {
                    Some(at) => at,
                    None => {
                        others.push((owned.api_version.clone(), self.diff_in(old, new, &owned.api_version)?));
                        others.len() - 1
                    }
                };
                others[at].1.as_ref()
            };
            // A version that is not served any more takes its entries with it.
            let Some(change) = change else {
                lost.push((id.clone(), None));
                continue;
            };
            let mut taken = owned.set.intersection(&change.modified);
            taken.extend(owned.set.intersection(&change.added));
            if !taken.is_empty() && on_conflict == OnConflict::Refuse {
                conflicts.push((id.clone(), taken.clone()));
            }
            taken.extend(owned.set.intersection(&change.removed));
            if !taken.is_empty() {
                lost.push((id.clone(), Some(taken)));
            }
        }
        if !conflicts.is_empty() {
            return Err(Failure::Conflicts(conflicts));
        }
        for (id, taken) in lost {
            match (taken, managers.0.get_mut(&id)) {
                (Some(taken), Some(owned)) => owned.set.subtract(&taken),
                _ => drop(managers.0.remove(&id)),
            }
        }
        managers.0.retain(|_, owned| !owned.set.is_empty());
        Ok(())
    }

    fn filtered(&self, mut change: Diff) -> Diff {
        if let Some(filter) = self.filter {
            for set in [&mut change.added, &mut change.modified, &mut change.removed] {
                filter.apply(set);
            }
        }
        change
    }

    fn diff_in(&self, old: &Value, new: &Value, version: &str) -> Result<Option<Diff>, String> {
        let Some(schema) = self.versions.schema(version) else { return Ok(None) };
        match (self.versions.convert(old, version), self.versions.convert(new, version)) {
            (Some(old), Some(new)) => diff(schema, &old, &new).map(|change| Some(self.filtered(change))),
            _ => Ok(None),
        }
    }

    /// Sets written under an older schema, brought in line with the one of today.
    fn follow_schemas(&self, managers: &mut Managers) {
        for owned in managers.0.values_mut() {
            let schema =
                if owned.api_version == self.api_version { Some(self.schema) } else { self.versions.schema(&owned.api_version) };
            if let Some(schema) = schema {
                follow_schema(Type::Of(schema), &mut owned.set);
            }
        }
    }

    /// An ordinary write that makes `change`. Returns the fields that it set, which now belong to its manager.
    pub fn update(&self, change: Diff, old: &Value, new: &Value, managers: &mut Managers) -> Result<FieldSet, String> {
        self.follow_schemas(managers);
        match self.take(&change, (old, new), managers, None, OnConflict::Force) {
            Ok(()) => {
                let mut set = change.modified;
                set.extend(change.added);
                Ok(set)
            }
            Err(Failure::Invalid(message)) => Err(message),
            Err(Failure::Conflicts(_)) => unreachable!("a forced take reports no conflicts"),
        }
    }

    /// A server-side apply of `config` over `live` by `id`. Returns the new object, or `None` if it is the live one.
    pub fn apply(
        &self,
        live: &Value,
        config: &Value,
        managers: &mut Managers,
        id: &ManagerId,
        on_conflict: OnConflict,
    ) -> Result<Option<Value>, Failure> {
        self.follow_schemas(managers);
        let merged = merge(self.schema, live, config)?;
        let mut set = field_set(self.schema, config)?;
        if let Some(filter) = self.filter {
            filter.apply(&mut set);
        }
        let last = managers.0.remove(id);
        let time = last.as_ref().and_then(|owned| owned.time.clone());
        managers.0.insert(id.clone(), Owned { set, api_version: self.api_version.to_owned(), time });
        let new = match last {
            Some(last) => self.prune(merged, managers, id, &last)?,
            None => merged,
        };
        self.take(&self.change(live, &new)?, (live, &new), managers, Some(id), on_conflict)?;
        // Equality and not the lack of a change: a new order of a list is written too.
        Ok(if *live == new { None } else { Some(new) })
    }

    /// Removes what the applier owned before, does not state now, and no other manager owns.
    fn prune(&self, merged: Value, managers: &Managers, id: &ManagerId, last: &Owned) -> Result<Value, String> {
        let stated = managers.0.get(id).map(|owned| &owned.set);
        if last.api_version == self.api_version && stated.is_some_and(|set| last.set.clone().difference(set).is_empty()) {
            return Ok(merged);
        }
        let Some(in_last) = self.in_version(&last.api_version) else { return Ok(merged) };
        let Some(before) = in_last.convert(&merged, self.api_version) else { return Ok(merged) };
        let mut gone = last.set.clone();
        in_last.add_parents(&mut gone);
        let pruned = remove_fields(in_last.schema, before.clone(), &gone);
        let pruned = self.add_back_owned(&before, pruned, &in_last, managers)?;

        // Only what this applier owned may go: not what nobody owns, or what a parent took with it.
        let mut removed = in_last.fields(&before)?;
        removed.subtract(&in_last.fields(&pruned)?);
        let removed = removed.intersection(&gone);
        let out = remove_fields(in_last.schema, before, &removed);
        if last.api_version == self.api_version {
            return Ok(out);
        }
        self.versions.convert(&out, self.api_version).ok_or_else(|| format!("cannot convert to {}", self.api_version))
    }

    /// Puts back what was pruned although a manager owns it, in the version of each manager.
    fn add_back_owned(
        &self,
        before: &Value,
        pruned: Value,
        in_last: &InVersion<'_>,
        managers: &Managers,
    ) -> Result<Value, String> {
        let mut owned_in: Vec<(&str, FieldSet)> = vec![(in_last.api_version, FieldSet::new())];
        for owned in managers.0.values() {
            match owned_in.iter_mut().find(|(version, _)| *version == owned.api_version) {
                Some((_, set)) => set.extend(owned.set.clone()),
                None => owned_in.push((&owned.api_version, owned.set.clone())),
            }
        }
        let mut pruned = pruned;
        for (version, mut keep) in owned_in {
            let Some(there) = self.in_version(version) else { continue };
            let (Some(merged), Some(rest)) =
                (there.convert(before, in_last.api_version), there.convert(&pruned, in_last.api_version))
            else {
                continue;
            };
            there.add_parents(&mut keep);
            keep.extend(there.fields(&rest)?);
            let gone = there.fields(&merged)?.difference(&keep);
            let kept = remove_fields(there.schema, merged, &gone);
            match in_last.convert(&kept, version) {
                Some(kept) => pruned = kept,
                None => continue,
            }
        }
        Ok(pruned)
    }

    fn in_version<'v>(&'v self, api_version: &'v str) -> Option<InVersion<'v>> {
        let schema = if api_version == self.api_version { self.schema } else { self.versions.schema(api_version)? };
        Some(InVersion { schema, api_version, versions: self.versions })
    }
}

/// One version of the object's kind.
struct InVersion<'v> {
    schema: Schema<'v>,
    api_version: &'v str,
    versions: &'v dyn Versions,
}

impl InVersion<'_> {
    /// An object of version `from` in this version.
    fn convert(&self, object: &Value, from: &str) -> Option<Value> {
        if from == self.api_version { Some(object.clone()) } else { self.versions.convert(object, self.api_version) }
    }

    fn add_parents(&self, set: &mut FieldSet) {
        add_named_parents(Some(Type::Of(self.schema)), set);
    }

    fn fields(&self, object: &Value) -> Result<FieldSet, String> {
        let mut set = field_set(self.schema, object)?;
        self.add_parents(&mut set);
        Ok(set)
    }
}
