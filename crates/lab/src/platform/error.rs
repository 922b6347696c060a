//! What can go wrong while the platform is put up or taken down. Each text is the one line that the user sees.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{} belongs to a running platform (process {owner}): use it, or end it with 'atoll down --dir {}'", dir.display(), dir.display())]
    InUse { dir: PathBuf, owner: String },
    #[error("{program} failed: {why}")]
    Tool { program: String, why: String },
    #[error("'{0}' is needed and not installed: install the package {1}")]
    Missing(&'static str, &'static str),
    #[error("the range {range} collides with the route {route}: choose another with {flag}")]
    RouteTaken { range: String, route: String, flag: &'static str },
    #[error("{0}")]
    Invalid(String),
    #[error("{what} was not ready within {seconds} s: see {}", log.display())]
    NotReady { what: String, seconds: u64, log: PathBuf },
    #[error("{what}: {source}")]
    Api { what: String, source: Box<kube::Error> },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: std::io::Error) -> Error {
        Error::Io { what: what.into(), source }
    }

    pub(crate) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
        let what = what.into();
        move |source| Error::Api { what, source: Box::new(source) }
    }
}
