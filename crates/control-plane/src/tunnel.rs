//! The tunnel as the API server's way into the cluster.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use atoll_apiserver::egress::{self, DialError, DialTarget, Dialed, Dialer};
use atoll_tunnel::{AgentAuthenticator, AgentCredentials, TunnelServer, TunnelSession};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::RwLock;

/// Audience of an agent's token, and the one account that may serve as agent: Konnectivity's names.
const AUDIENCE: &str = "system:konnectivity-server";
const AGENT: &str = "system:serviceaccount:kube-system:konnectivity-agent";

/// Judges agents by a TokenReview of this control plane: a token of another tenant is signed by another key.
#[derive(Default)]
pub(crate) struct TokenJudge {
    /// Set once the API server answers.
    client: RwLock<Option<Client>>,
}

impl TokenJudge {
    pub(crate) fn set(&self, client: Client) {
        *self.client.write() = Some(client);
    }
}

#[async_trait]
impl AgentAuthenticator for TokenJudge {
    async fn authenticate(&self, credentials: &AgentCredentials) -> Result<String, String> {
        let token = credentials.bearer.clone().ok_or("a service-account token is needed")?;
        let client = self.client.read().clone().ok_or("the control plane is starting")?;
        let review =
            TokenReview { spec: TokenReviewSpec { token, audiences: Some(vec![AUDIENCE.to_owned()]) }, ..TokenReview::default() };
        let answer = Api::<TokenReview>::all(client)
            .create(&PostParams::default(), &review)
            .await
            .map_err(|e| format!("the token could not be reviewed: {e}"))?;
        let status = answer.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            return Err("the token is not of this cluster, or has expired".to_owned());
        }
        let user = status.user.and_then(|u| u.username).unwrap_or_default();
        if user == AGENT { Ok(user) } else { Err(format!("{user} may not serve as tunnel agent, {AGENT} may")) }
    }
}

/// Dials through the tunnel, and nowhere else.
pub(crate) struct ThroughTunnel(pub(crate) TunnelServer);

#[async_trait]
impl Dialer for ThroughTunnel {
    async fn dial(&self, target: &DialTarget, deadline: Instant) -> Result<Dialed, DialError> {
        let host = if target.host.contains(':') { format!("[{}]", target.host) } else { target.host.clone() };
        let address = format!("{host}:{}", target.port);
        let left = deadline.saturating_duration_since(Instant::now());
        match self.0.dial_from(target.node.as_deref(), &address, left).await {
            Ok(stream) => {
                let dial_id = stream.dial_id();
                let line = Box::new(Line(stream.session()));
                Ok(Dialed { io: Box::new(stream), dial_id: Some(dial_id), line: Some(line) })
            }
            Err(error) => Err(as_egress(error)),
        }
    }
}

/// The tunnel's session that a stream belongs to.
struct Line(TunnelSession);

impl egress::Line for Line {
    fn fault(&self) -> Option<DialError> {
        self.0.fault().map(as_egress)
    }
}

fn as_egress(error: atoll_tunnel::DialError) -> DialError {
    match error {
        atoll_tunnel::DialError::NoAgent { .. } => DialError::TunnelNoAgent,
        atoll_tunnel::DialError::NoAnswer { agent, detail, .. } => DialError::TunnelNoAnswer(format!("{agent}, {detail}")),
        atoll_tunnel::DialError::TimedOut { address, .. } => DialError::Timeout(address),
        atoll_tunnel::DialError::Failed { address, why, .. } => DialError::TunnelRefused { target: address, why },
    }
}

/// The tunnel server of one control plane with its judge.
pub(crate) fn server(judge: Arc<TokenJudge>, identity: &str) -> TunnelServer {
    TunnelServer::new(judge, identity.to_owned(), 1)
}
