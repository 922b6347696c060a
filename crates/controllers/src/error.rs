//! What can go wrong while a controller does its work.

use std::time::Duration;

/// A failure of one round; the key is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server could not be asked, or refused.
    #[error("API call failed: {0}")]
    Api(#[from] kube::Error),
    /// The API server did not answer in time.
    #[error("API call took longer than {}s", .0.as_secs())]
    Timeout(Duration),
    /// A request could not be built.
    #[error("request: {0}")]
    Request(#[from] http::Error),
    /// A certificate request could not be read or signed.
    #[error("certificate: {0}")]
    Certificate(#[from] atoll_pki::Error),
    /// A token could not be made.
    #[error("token: {0}")]
    Token(String),
    /// A directory of a volume could not be made or removed.
    #[error("volume directory {path}: {source}")]
    Directory {
        /// The directory.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Work remains that nothing will announce.
    #[error("{0}")]
    Unfinished(String),
}

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Status code of the API server's answer, if it was one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Error::Api(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// Someone else wrote in between, or the object exists, or it is gone: planning again from newer caches is the answer.
    pub fn is_stale(&self) -> bool {
        matches!(self.code(), Some(404 | 409))
    }

    /// Creating in a namespace that is being deleted: nothing to retry.
    pub fn is_namespace_terminating(&self) -> bool {
        let Error::Api(kube::Error::Api(status)) = self else { return false };
        let causes = status.details.as_ref().map(|d| d.causes.as_slice()).unwrap_or_default();
        causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
    }
}
