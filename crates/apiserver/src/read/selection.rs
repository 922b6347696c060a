//! Which objects a list, watch or deletecollection is about.

use atoll_kube_schema::{FieldSelector, LabelSelector};
use atoll_store::Entry;

use super::load;
use crate::convert::is_stored_as_served;
use crate::encoding;
use crate::error::{ApiError, Result};
use crate::pipeline::call::Call;
use crate::stored::{self, Layout};

/// What a request selects, by label, field and name.
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    layout: Layout,
    name: Option<String>,
}

impl Selection {
    pub fn of(call: &Call) -> Result<Selection> {
        let invalid = |e: &dyn std::fmt::Display| ApiError::bad_request(e.to_string());
        Ok(Selection {
            labels: LabelSelector::parse(call.query.text("labelSelector")).map_err(|e| invalid(&e))?,
            fields: FieldSelector::parse(&call.def, call.query.text("fieldSelector")).map_err(|e| invalid(&e))?,
            layout: encoding::layout(&call.def),
            name: Some(call.info.name.clone()).filter(|n| !n.is_empty()),
        })
    }

    /// Whether everything is selected (then the number of remaining items is known).
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_none()
    }

    /// Whether a stored version of an object is selected.
    pub fn matches(&self, call: &Call, name: &str, entry: &Entry) -> bool {
        if self.name.as_ref().is_some_and(|n| n != name) {
            return false;
        }
        if !self.labels.is_empty() {
            let Some(metadata) = self.layout.metadata(&entry.value) else { return false };
            if !self.labels.matches(&metadata.labels) {
                return false;
            }
        }
        self.fields.is_empty() || self.matches_fields(call, entry)
    }

    fn matches_fields(&self, call: &Call, entry: &Entry) -> bool {
        // The paths of a selectable field are those of the version of the request.
        let object = if is_stored_as_served(&call.def) { stored::from_stored(&entry.value, 0) } else { load(call, entry) };
        object.is_ok_and(|object| self.fields.matches(&object))
    }
}
