//! What ends a role, or one of its calls.

/// Failures of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server could not be asked, or refused.
    #[error("API call failed: {}", api_message(.0))]
    Api(#[from] Box<kube::Error>),
    /// The API server did not answer in time.
    #[error("API call took longer than {}s", .0.as_secs())]
    Timeout(std::time::Duration),
    /// A string or object that somebody else wrote.
    #[error(transparent)]
    Devices(#[from] atoll_devices::Error),
    /// A certificate or key.
    #[error(transparent)]
    Pki(#[from] atoll_pki::Error),
    /// TLS cannot be set up from what was given.
    #[error("TLS: {0}")]
    Tls(String),
    /// A file or socket.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The node agent's sockets.
    #[error("{what}: {message}")]
    NodeAgent {
        /// What was tried.
        what: &'static str,
        /// What it answered.
        message: String,
    },
    /// An option that cannot be followed.
    #[error("{0}")]
    Option(String),
    /// Another process holds the Lease now.
    #[error("the lease {0} was lost")]
    LeaseLost(String),
}

/// What the API server said, without the Status around it: it goes into events.
fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

impl Error {
    /// An IO error with what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Whether the API server answered with this code.
    pub(crate) fn is_status(&self, code: u16) -> bool {
        match self {
            Self::Api(error) => matches!(error.as_ref(), kube::Error::Api(status) if status.code == code),
            _ => false,
        }
    }
}

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Runs an API call under the call timeout.
pub(crate) async fn call<T>(future: impl Future<Output = Result<T, kube::Error>>) -> Result<T> {
    match tokio::time::timeout(crate::limits::CALL_TIMEOUT, future).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(Error::Timeout(crate::limits::CALL_TIMEOUT)),
    }
}
