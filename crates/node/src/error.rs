//! What can go wrong in a node agent.

use std::path::PathBuf;

/// The crate's error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the API failed.
    #[error("Kubernetes API: {0}")]
    Api(#[from] kube::Error),
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}: {why}")]
    Kubeconfig { path: PathBuf, why: String },
    /// A file or directory of the node's root.
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    /// A record of the agent's own does not parse.
    #[error("{path}: {why}")]
    Record { path: PathBuf, why: String },
    /// Keys and certificates.
    #[error(transparent)]
    Pki(#[from] atoll_pki::Error),
    /// The certificate request was denied or failed.
    #[error("certificate request {name}: {why}")]
    CertificateRequest { name: String, why: String },
    /// A program such as `ip` or `nft` failed or is missing.
    #[error("{program}: {why}")]
    Tool { program: String, why: String },
    /// A container did not start.
    #[error("{0}")]
    Start(String),
    /// A volume cannot be mounted.
    #[error("{0}")]
    Volume(String),
    /// A container's configuration refers to something that is not there.
    #[error("{0}")]
    Config(String),
    /// A device plugin.
    #[error("device plugin {resource}: {why}")]
    Device { resource: String, why: String },
    /// A system call of worker or container set-up.
    #[error("{what}: {source}")]
    System { what: String, source: nix::errno::Errno },
    /// A socket cannot be served.
    #[error("listen on {address}: {source}")]
    Listen { address: String, source: std::io::Error },
    /// An option that cannot be.
    #[error("{0}")]
    Option(String),
}

impl Error {
    /// Wraps an I/O error with the path that it is about.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, source }
    }

    /// Wraps a failed system call with what it was for.
    pub fn system(what: impl Into<String>) -> impl FnOnce(nix::errno::Errno) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
