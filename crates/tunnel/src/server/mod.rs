//! The control plane's side: takes agents' streams and dials through them.

mod accept;
mod session;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustls::pki_types::CertificateDer;
use tracing::info;

pub(crate) use session::ConnectionGuard;
use session::{DialFailure, Session};

use crate::{TunnelStream, limits};

/// What an agent showed when it connected.
#[derive(Debug, Clone)]
pub struct AgentCredentials {
    /// The token of `Authorization: Bearer …`.
    pub bearer: Option<String>,
    /// The client certificate chain; possession of the key was checked by TLS, the chain was not.
    pub certificates: Vec<CertificateDer<'static>>,
}

/// Decides who may serve a tenant's tunnel.
#[async_trait]
pub trait AgentAuthenticator: Send + Sync + 'static {
    /// Answers the agent's user name, or why it is refused (sent to the agent as `UNAUTHENTICATED`).
    async fn authenticate(&self, credentials: &AgentCredentials) -> Result<String, String>;
}

/// Why a connection could not be had. The first word of the text is [`DialError::code`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    #[error(
        "TunnelNoAgent: no tunnel agent is connected, {address} cannot be reached: see that the konnectivity-agent runs on a worker"
    )]
    NoAgent { address: String },
    #[error("TunnelNoAnswer: the tunnel agent {agent} did not answer when {address} was dialled ({detail})")]
    NoAnswer { agent: String, address: String, detail: String },
    #[error("DialTimeout: the tunnel agent {agent} answers, and {address} did not accept its connection in time")]
    TimedOut { agent: String, address: String },
    #[error("TunnelRefused: the tunnel agent {agent} could not connect to {address}: {why}")]
    Failed { agent: String, address: String, why: String },
}

impl DialError {
    /// The word that tells the causes apart.
    pub fn code(&self) -> &'static str {
        match self {
            DialError::NoAgent { .. } => "TunnelNoAgent",
            DialError::NoAnswer { .. } => "TunnelNoAnswer",
            DialError::TimedOut { .. } => "DialTimeout",
            DialError::Failed { .. } => "TunnelRefused",
        }
    }
}

/// One agent's session, as a stream's user sees it.
#[derive(Debug, Clone)]
pub struct TunnelSession {
    session: Arc<Session>,
    address: String,
}

impl TunnelSession {
    /// Why nothing comes over it, if the fault is the session's: it has ended, or its agent is silent.
    pub fn fault(&self) -> Option<DialError> {
        match self.session.ended() {
            Some(ended) if !ended.silent => Some(DialError::NoAgent { address: self.address.clone() }),
            None if self.session.silence() <= limits::SILENCE_SUSPECT => None,
            _ => {
                let detail = format!("silent since {:.0} s", self.session.silence().as_secs_f64());
                Some(no_answer(&self.session, &self.address, detail))
            }
        }
    }
}

/// A session that ended because its peer fell silent.
#[derive(Debug, Clone)]
struct Loss {
    agent: String,
    at: Instant,
}

struct Shared {
    authenticator: Arc<dyn AgentAuthenticator>,
    server_id: String,
    server_count: usize,
    next_session: AtomicU64,
    sessions: parking::Sessions,
}

/// The tunnel server of one control plane. Cheap to clone.
#[derive(Clone)]
pub struct TunnelServer {
    shared: Arc<Shared>,
}

mod parking {
    //! The set of live sessions.

    use std::sync::{Arc, Mutex, MutexGuard};

    use super::{Loss, Session};

    #[derive(Default)]
    pub(super) struct State {
        pub(super) live: Vec<Arc<Session>>,
        pub(super) last_silent: Option<Loss>,
    }

    #[derive(Default)]
    pub(super) struct Sessions(Mutex<State>);

    impl Sessions {
        /// No code panics while it holds this lock, and the state is valid after each statement, so poison is ignored.
        pub(super) fn lock(&self) -> MutexGuard<'_, State> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}

impl std::fmt::Debug for TunnelServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunnelServer").field("server_id", &self.shared.server_id).finish_non_exhaustive()
    }
}

/// Dial ids are random so that no log line of one server is taken for another's; the sign bit stays clear for readable logs.
fn new_dial_id() -> i64 {
    rand::random::<i64>() & i64::MAX
}

impl TunnelServer {
    /// A server that no agent is connected to yet. `server_id` tells replicas of one control plane apart.
    pub fn new(authenticator: Arc<dyn AgentAuthenticator>, server_id: String, server_count: usize) -> TunnelServer {
        TunnelServer {
            shared: Arc::new(Shared {
                authenticator,
                server_id,
                server_count,
                next_session: AtomicU64::new(1),
                sessions: parking::Sessions::default(),
            }),
        }
    }

    /// Names of the connected agents, draining ones left out.
    pub fn agents(&self) -> Vec<String> {
        let state = self.shared.sessions.lock();
        state.live.iter().filter(|s| !s.is_draining()).map(|s| s.agent_id().to_owned()).collect()
    }

    /// Opens a connection to `address` (`host:port`) from the side of an agent. A session that ends meanwhile is replaced by
    /// another one as long as `timeout` lasts.
    pub async fn dial(&self, address: &str, timeout: Duration) -> Result<TunnelStream, DialError> {
        self.dial_from(None, address, timeout).await
    }

    /// As [`Self::dial`]; where `agent` is connected, its side is asked first: a Pod is reached from its own node.
    pub async fn dial_from(&self, agent: Option<&str>, address: &str, timeout: Duration) -> Result<TunnelStream, DialError> {
        let deadline = Instant::now() + timeout;
        let mut tried: Vec<u64> = Vec::new();
        let mut last = None;
        while let Some(session) = self.pick(agent, address, &tried) {
            tried.push(session.id());
            let dial_id = new_dial_id();
            let begun = Instant::now();
            let left = deadline.saturating_duration_since(begun);
            info!(dial_id, address, agent = session.agent_id(), "tunnel dial");
            match session.dial(dial_id, address, left).await {
                Ok(stream) => return Ok(stream),
                Err(DialFailure::Refused(why)) => {
                    let agent = session.agent_id().to_owned();
                    return Err(DialError::Failed { agent, address: address.to_owned(), why });
                }
                Err(DialFailure::TimedOut) if session.answered_since(begun) => {
                    return Err(DialError::TimedOut { agent: session.agent_id().to_owned(), address: address.to_owned() });
                }
                Err(DialFailure::TimedOut) => {
                    let detail = format!("waited {:.1} s", timeout.as_secs_f64());
                    return Err(no_answer(&session, address, detail));
                }
                Err(DialFailure::SessionEnded { silent }) => {
                    let detail = "its connection ended".to_owned();
                    last = silent.then(|| no_answer(&session, address, detail));
                }
            }
        }
        Err(last.unwrap_or_else(|| self.explain_absence(address)))
    }

    /// The wanted agent first, then the exact host, then agents that answer, then the one with the fewest connections.
    fn pick(&self, agent: Option<&str>, address: &str, tried: &[u64]) -> Option<Arc<Session>> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        let state = self.shared.sessions.lock();
        state
            .live
            .iter()
            .filter(|s| !tried.contains(&s.id()) && !s.is_closed())
            .min_by_key(|s| {
                let suspect = s.silence() > limits::SILENCE_SUSPECT;
                (s.is_draining(), suspect, agent != Some(s.agent_id()), !s.serves_host(host), s.load(), s.id())
            })
            .cloned()
    }

    /// No session is left. If the last one fell silent a moment ago, that is the cause, not that no agent was started.
    fn explain_absence(&self, address: &str) -> DialError {
        let state = self.shared.sessions.lock();
        match &state.last_silent {
            Some(loss) if loss.at.elapsed() < limits::LOSS_MEMORY => DialError::NoAnswer {
                agent: loss.agent.clone(),
                address: address.to_owned(),
                detail: format!("silent since {:.0} s", (loss.at.elapsed() + limits::SILENCE_MAX).as_secs_f64()),
            },
            _ => DialError::NoAgent { address: address.to_owned() },
        }
    }

    fn admit(&self, session: Arc<Session>) -> bool {
        let mut state = self.shared.sessions.lock();
        if state.live.len() >= limits::SESSIONS_MAX {
            return false;
        }
        state.last_silent = None;
        state.live.push(session);
        true
    }

    fn remove(&self, session: &Session, silent: bool) {
        let mut state = self.shared.sessions.lock();
        state.live.retain(|s| s.id() != session.id());
        if silent {
            state.last_silent = Some(Loss { agent: session.agent_id().to_owned(), at: Instant::now() });
        }
    }
}

fn no_answer(session: &Session, address: &str, detail: String) -> DialError {
    DialError::NoAnswer { agent: session.agent_id().to_owned(), address: address.to_owned(), detail }
}
