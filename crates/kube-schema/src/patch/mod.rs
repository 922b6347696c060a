//! The three patch kinds that change a current object: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge
//! patch. Each is a pure function of the current object and the patch; server-side apply lives in [`crate::apply`].
//!
//! The functions see objects in the version of the request, as JSON, and return the patched JSON undecoded: whether the result is
//! an object of its kind is for the decoder to say (a failure there is a 422 with the one cause `patch`).

mod json;
mod merge;
mod order;
mod strategic;

#[cfg(test)]
mod laws;

pub use json::{apply_json, unknown_operation_fields};
pub use merge::apply_merge;
pub use strategic::apply_strategic;

/// Why a patch was refused. The variants are upstream's answers; see [`PatchError::code`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// Not a patch of this kind at all: 400 `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// A patch that does not fit the object: 422 `Invalid`, without causes or details.
    #[error("{0}")]
    Unprocessable(String),
    /// More operations than [`crate::limits::JSON_PATCH_OPERATIONS_MAX`]: 413 `RequestEntityTooLarge`.
    #[error("{0}")]
    TooLarge(String),
    /// Strategic merge patch reports a missing merge key, an unknown directive and the like as a failure of its own: 500 with no reason.
    #[error("{0}")]
    Internal(String),
}

impl PatchError {
    /// HTTP status that upstream answers with.
    pub fn code(&self) -> u16 {
        match self {
            PatchError::BadRequest(_) => 400,
            PatchError::Unprocessable(_) => 422,
            PatchError::TooLarge(_) => 413,
            PatchError::Internal(_) => 500,
        }
    }

    /// `Status.reason` that goes with the code.
    pub fn reason(&self) -> &'static str {
        match self {
            PatchError::BadRequest(_) => "BadRequest",
            PatchError::Unprocessable(_) => "Invalid",
            PatchError::TooLarge(_) => "RequestEntityTooLarge",
            PatchError::Internal(_) => "",
        }
    }
}
