//! Which objects a list, watch or deletecollection is about.

use std::borrow::Cow;

use atoll_kube_schema::ResourceDef;
use atoll_store::Entry;
use serde_json::Value;

use super::label_selector::LabelSelector;
use crate::error::{ApiError, Result};
use crate::pipeline::call::Call;
use crate::stored::{self, Layout};
use crate::{convert, encoding, path};

/// A field selector's term: equal or not equal.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    paths: Vec<String>,
    value: String,
    equal: bool,
}

/// What a request selects, by label, field and name.
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: Vec<FieldTerm>,
    layout: Layout,
    name: Option<String>,
}

impl Selection {
    pub fn of(call: &Call) -> Result<Selection> {
        let name = Some(call.info.name.clone()).filter(|n| !n.is_empty());
        Ok(Selection {
            labels: LabelSelector::parse(call.query.text("labelSelector"))?,
            fields: field_terms(&call.def, call.query.text("fieldSelector"))?,
            layout: encoding::layout(&call.def),
            name,
        })
    }

    /// Whether everything is selected (then the number of remaining items is known).
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_empty() && self.name.is_none()
    }

    /// Whether a stored version of an object is selected.
    pub fn matches(&self, name: &str, entry: &Entry) -> bool {
        if self.name.as_ref().is_some_and(|n| n != name) {
            return false;
        }
        if !self.labels.is_everything() {
            let Some(metadata) = self.layout.metadata(&entry.value) else { return false };
            let get = |key: &str| metadata.labels.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_ref());
            if !self.labels.matches(get) {
                return false;
            }
        }
        self.fields.is_empty() || self.matches_fields(entry)
    }

    fn matches_fields(&self, entry: &Entry) -> bool {
        let Ok(object) = stored::from_stored(&entry.value, 0) else { return false };
        self.fields.iter().all(|term| (field_text(&object, &term.paths) == term.value) == term.equal)
    }
}

/// A selectable field as text: the first of its paths that is not empty.
fn field_text<'a>(object: &'a Value, paths: &[String]) -> Cow<'a, str> {
    let texts = paths.iter().map(|p| match path::get(object, p) {
        Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
        Some(Value::Bool(b)) => Cow::Borrowed(if *b { "true" } else { "false" }),
        Some(Value::Number(n)) => Cow::Owned(n.to_string()),
        // An absent boolean is false; the only ones that can be selected by are of that kind.
        _ if p.ends_with("unschedulable") || p.ends_with("hostNetwork") => Cow::Borrowed("false"),
        _ => Cow::Borrowed(""),
    });
    texts.into_iter().find(|t| !t.is_empty()).unwrap_or_default()
}

fn field_terms(def: &ResourceDef, selector: &str) -> Result<Vec<FieldTerm>> {
    let mut terms = Vec::new();
    for term in selector.split(',').filter(|t| !t.is_empty()) {
        let (label, value, equal) = if let Some((label, value)) = term.split_once("!=") {
            (label, value, false)
        } else if let Some((label, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (label, value, true)
        } else {
            return Err(ApiError::bad_request(format!("invalid selector: '{selector}'; can't understand '{term}'")));
        };
        let field = def
            .strategy
            .selectable_field(label)
            .ok_or_else(|| ApiError::bad_request(format!("field label not supported: {label}")))?;
        // Paths are those of the row; a row that is stored in another version would need the conversion first.
        debug_assert!(convert::is_stored_as_served(def) || !field.paths.is_empty());
        terms.push(FieldTerm { paths: field.paths.clone(), value: value.to_owned(), equal });
    }
    Ok(terms)
}
