//! What can go wrong in the shell; a verdict about a Pod is not an error.

/// Failures of the scheduler's own work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server could not be asked, or refused.
    #[error("API call failed: {0}")]
    Api(#[from] kube::Error),
    /// The API server did not answer in time.
    #[error("API call took longer than {}s", .0.as_secs())]
    Timeout(std::time::Duration),
    /// A plugin could not prepare a binding.
    #[error("plugin {plugin}: {message}")]
    Plugin {
        /// Name of the plugin.
        plugin: &'static str,
        /// What it said.
        message: String,
    },
    /// The Pod was bound by someone else, or to another node.
    #[error("pod is already assigned to node {0:?}")]
    BoundElsewhere(String),
    /// The Pod was deleted or replaced under the same name.
    #[error("pod is gone")]
    PodGone,
}

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;
