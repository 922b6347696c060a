//! Why a control plane cannot start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}: {source}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Pki(#[from] atoll_pki::Error),
    #[error(transparent)]
    Store(#[from] atoll_store::Error),
    #[error("the serving certificate: {0}")]
    Tls(#[from] atoll_apiserver::serving::TlsError),
    #[error("{0:?} is no range of cluster addresses; it has to be an IPv4 range of /8 to /30 such as 10.96.0.0/12")]
    ServiceRange(String),
    #[error("cannot make the cluster's own objects: {0}")]
    Bootstrap(#[from] atoll_apiserver::ApiError),
}
