//! One validation as it runs: the write, the findings so far, and the pod whose parts are being looked at.

use serde_json::Value;

use super::error::{FieldError, Reason};
use super::path::Path;
use super::view::NULL;
use super::{Write, names, tables};

/// A rule in code, for what spans fields. It sees the value, which is not null unless the row says `!!`.
pub type Hook = for<'a> fn(&mut Check<'a>, &'a Value, &Path<'_>);

/// The pod spec whose containers are being validated.
#[derive(Clone, Debug)]
pub struct PodFrame<'a> {
    pub spec: &'a Value,
    /// Volumes that passed, by name.
    pub volumes: Vec<(&'a str, &'a Value)>,
    /// A pod of its own, not a template.
    pub is_pod: bool,
}

/// A running validation.
#[derive(Debug)]
pub struct Check<'a> {
    pub write: Write<'a>,
    /// What is stored; null on create.
    pub old: &'a Value,
    pub errors: Vec<FieldError>,
    pub pod: PodFrame<'a>,
    /// Claim templates of the set around the pod template: each is a volume too.
    pub claim_templates: Vec<&'a str>,
}

impl<'a> Check<'a> {
    pub fn new(write: Write<'a>) -> Check<'a> {
        let pod = PodFrame { spec: &NULL, volumes: Vec::new(), is_pod: false };
        Check { write, old: write.old.unwrap_or(&NULL), errors: Vec::new(), pod, claim_templates: Vec::new() }
    }

    pub fn is_update(&self) -> bool {
        self.write.old.is_some()
    }

    /// Applies the rows of a section of the tables.
    pub fn section(&mut self, name: &str, value: &'a Value, path: &Path<'_>) {
        tables::section(self, name, value, path);
    }

    pub fn invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.errors.push(FieldError::invalid(path, value, detail));
    }

    pub fn required(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.errors.push(FieldError::required(path, detail));
    }

    pub fn forbidden(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.errors.push(FieldError::forbidden(path, detail));
    }

    pub fn duplicate(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.errors.push(FieldError::duplicate(path, value));
    }

    pub fn not_found(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.errors.push(FieldError::not_found(path, value));
    }

    pub fn not_supported(&mut self, path: &Path<'_>, value: impl Into<Value>, supported: &[&str]) {
        self.errors.push(FieldError::not_supported(path, value, supported));
    }

    pub fn too_long(&mut self, path: &Path<'_>, bytes_max: usize) {
        self.errors.push(FieldError::too_long(path, bytes_max));
    }

    pub fn too_many(&mut self, path: &Path<'_>, count: usize, count_max: usize) {
        self.errors.push(FieldError::too_many(path, count, count_max));
    }

    /// A finding without a value in its text.
    pub fn invalid_unshown(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        let error = FieldError { reason: Reason::Invalid, field: path.into(), bad_value: None, detail: detail.into() };
        self.errors.push(error);
    }

    /// One `Invalid` per text.
    pub fn invalid_each(&mut self, path: &Path<'_>, value: &str, texts: Vec<String>) {
        for text in texts {
            self.invalid(path, value, text);
        }
    }

    pub fn label(&mut self, path: &Path<'_>, value: &str) {
        self.invalid_each(path, value, names::dns_label(value));
    }

    pub fn subdomain(&mut self, path: &Path<'_>, value: &str) {
        self.invalid_each(path, value, names::dns_subdomain(value));
    }

    pub fn qualified_name(&mut self, path: &Path<'_>, value: &str) {
        self.invalid_each(path, value, names::qualified_name(value));
    }

    pub fn nonnegative(&mut self, path: &Path<'_>, value: i64) {
        if value < 0 {
            self.invalid(path, value, "must be greater than or equal to 0");
        }
    }

    /// `Invalid … field is immutable` unless both are the same.
    pub fn immutable(&mut self, path: &Path<'_>, new: &Value, old: &Value) {
        if !super::view::same(new, old) {
            self.invalid(path, new.clone(), "field is immutable");
        }
    }
}
