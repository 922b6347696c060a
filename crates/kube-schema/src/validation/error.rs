//! What is wrong with a field, as upstream words it: clients and their tests compare these texts.

use std::fmt;

use serde_json::Value;

/// `reason` of a status cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TooFew,
    TooShort,
    Internal,
    TypeInvalid,
}

impl Reason {
    /// The code word in `details.causes[].reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::NotFound => "FieldValueNotFound",
            Reason::Required => "FieldValueRequired",
            Reason::Duplicate => "FieldValueDuplicate",
            Reason::Invalid => "FieldValueInvalid",
            Reason::NotSupported => "FieldValueNotSupported",
            Reason::Forbidden => "FieldValueForbidden",
            Reason::TooLong => "FieldValueTooLong",
            Reason::TooMany => "FieldValueTooMany",
            Reason::TooFew => "FieldValueTooFew",
            Reason::TooShort => "FieldValueTooShort",
            Reason::Internal => "InternalError",
            Reason::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Reason::NotFound => "Not found",
            Reason::Required => "Required value",
            Reason::Duplicate => "Duplicate value",
            Reason::Invalid | Reason::TypeInvalid => "Invalid value",
            Reason::NotSupported => "Unsupported value",
            Reason::Forbidden => "Forbidden",
            Reason::TooLong => "Too long",
            Reason::TooMany => "Too many",
            Reason::TooFew => "Too few",
            Reason::TooShort => "Too short",
            Reason::Internal => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Reason::Required | Reason::Forbidden | Reason::TooLong | Reason::TooShort | Reason::Internal)
    }
}

/// One finding of validation.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub reason: Reason,
    /// `spec.containers[0].name`, `metadata.annotations[key]`.
    pub field: String,
    pub bad_value: Option<Value>,
    pub detail: String,
}

impl FieldError {
    fn new(reason: Reason, field: impl Into<String>, bad_value: Option<Value>, detail: impl Into<String>) -> FieldError {
        FieldError { reason, field: field.into(), bad_value, detail: detail.into() }
    }

    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError::new(Reason::Invalid, field, Some(value.into()), detail)
    }

    pub fn type_invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError::new(Reason::TypeInvalid, field, Some(value.into()), detail)
    }

    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(Reason::Required, field, None, detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(Reason::Forbidden, field, None, detail)
    }

    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> FieldError {
        FieldError::new(Reason::Duplicate, field, Some(value.into()), "")
    }

    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> FieldError {
        FieldError::new(Reason::NotFound, field, Some(value.into()), "")
    }

    /// `supported` in the order of the message (upstream sorts most of them).
    pub fn not_supported(field: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> FieldError {
        let listed: Vec<String> = supported.iter().map(|v| format!("{v:?}")).collect();
        let detail = if listed.is_empty() { String::new() } else { format!("supported values: {}", listed.join(", ")) };
        FieldError::new(Reason::NotSupported, field, Some(value.into()), detail)
    }

    pub fn too_long(field: impl Into<String>, bytes_max: usize) -> FieldError {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        FieldError::new(Reason::TooLong, field, None, format!("may not be more than {bytes_max} {unit}"))
    }

    pub fn too_many(field: impl Into<String>, count: usize, count_max: usize) -> FieldError {
        let unit = if count_max == 1 { "item" } else { "items" };
        FieldError::new(Reason::TooMany, field, Some(count.into()), format!("must have at most {count_max} {unit}"))
    }

    pub fn too_few(field: impl Into<String>, count: usize, count_min: usize) -> FieldError {
        let unit = if count_min == 1 { "item" } else { "items" };
        FieldError::new(Reason::TooFew, field, Some(count.into()), format!("must have at least {count_min} {unit}"))
    }

    /// The `message` of a status cause: everything but the field.
    pub fn body(&self) -> String {
        let mut out = self.reason.words().to_owned();
        if self.reason.shows_value()
            && let Some(value) = &self.bad_value
        {
            out.push_str(": ");
            out.push_str(&value.to_string());
        }
        if !self.detail.is_empty() {
            out.push_str(": ");
            out.push_str(&self.detail);
        }
        out
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// All findings as one text: `[a: …, b: …]`, a single one without brackets, repeated ones once.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}
