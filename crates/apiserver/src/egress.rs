//! How the server reaches into the cluster: kubelets, Pods, Services, webhooks.
//!
//! No address is dialled from the hosting network on a tenant's word: a tenant's server has a `Dialer` that goes through the
//! tunnel. [`Direct`] is for a control plane that stands alone on the network of its nodes.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream to something inside the cluster.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}
pub type BoxedIo = Box<dyn Io>;

/// What to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialTarget {
    /// Address or host name as the cluster sees it.
    pub host: String,
    pub port: u16,
    /// Node that should dial, where one is known (the node's own kubelet, the Pod's node).
    pub node: Option<String>,
}

/// Why something could not be reached. The text is without [`DialError::code_word`]: whoever shows it puts the word first, once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    #[error("no tunnel agent is connected")]
    TunnelNoAgent,
    #[error("the tunnel agent does not answer: {0}")]
    TunnelNoAnswer(String),
    #[error("the tunnel agent could not reach {target}: {why}")]
    TunnelRefused { target: String, why: String },
    #[error("{0} did not accept the connection in time")]
    Timeout(String),
    #[error("cannot connect to {target}: {why}")]
    Failed { target: String, why: String },
}

impl DialError {
    /// The code word, for the message and as reason of a cause.
    pub fn code_word(&self) -> &'static str {
        match self {
            DialError::TunnelNoAgent => "TunnelNoAgent",
            DialError::TunnelNoAnswer(_) => "TunnelNoAnswer",
            DialError::TunnelRefused { .. } => "TunnelRefused",
            DialError::Timeout(_) => "DialTimeout",
            DialError::Failed { .. } => "DialFailed",
        }
    }
}

/// The way that an open stream goes.
pub trait Line: Send + Sync {
    /// Why nothing comes over it, if that is the line's fault and not the destination's.
    fn fault(&self) -> Option<DialError>;
}

/// An open stream with the id under which both ends log it.
pub struct Dialed {
    pub io: BoxedIo,
    /// The tunnel's dial id, where there is a tunnel.
    pub dial_id: Option<i64>,
    /// The tunnel it goes through, where there is one.
    pub line: Option<Box<dyn Line>>,
}

/// Opens streams into the cluster.
#[async_trait]
pub trait Dialer: Send + Sync + 'static {
    /// Connects before `deadline` or says why not.
    async fn dial(&self, target: &DialTarget, deadline: Instant) -> Result<Dialed, DialError>;
}

pub type SharedDialer = Arc<dyn Dialer>;

/// Dials from this process.
#[derive(Debug, Default)]
pub struct Direct;

#[async_trait]
impl Dialer for Direct {
    async fn dial(&self, target: &DialTarget, deadline: Instant) -> Result<Dialed, DialError> {
        let shown = format!("{}:{}", target.host, target.port);
        let connect = tokio::net::TcpStream::connect((target.host.as_str(), target.port));
        match tokio::time::timeout_at(deadline.into(), connect).await {
            Err(_) => Err(DialError::Timeout(shown)),
            Ok(Err(e)) => Err(DialError::Failed { target: shown, why: e.to_string() }),
            Ok(Ok(stream)) => Ok(Dialed { io: Box::new(stream), dial_id: None, line: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_leaves_the_code_word_to_whoever_shows_it() {
        let text = || "10.0.0.1:443".to_owned();
        for error in [
            DialError::TunnelNoAgent,
            DialError::TunnelNoAnswer(text()),
            DialError::TunnelRefused { target: text(), why: text() },
            DialError::Timeout(text()),
            DialError::Failed { target: text(), why: text() },
        ] {
            assert!(!error.to_string().contains(error.code_word()), "{error}");
        }
    }
}
