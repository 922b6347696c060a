//! Which objects a request is about: label selectors and field selectors.

mod fields;
mod labels;

pub use fields::{FieldSelector, FieldTerm};
pub use labels::{LabelSelector, Operator, Requirement};

/// A selector that cannot be understood or is not supported; 400 `BadRequest`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub(crate) String);
