//! Agent and server together, over real TLS on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use atoll_pki::{CertificateAuthority, LeafSpec, Usages, certificates_of_pem};
use atoll_tunnel::agent::{self, AgentOptions};
use atoll_tunnel::{AgentAuthenticator, AgentCredentials, DialError, TunnelServer};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(10);

struct OneToken(&'static str);

#[async_trait]
impl AgentAuthenticator for OneToken {
    async fn authenticate(&self, credentials: &AgentCredentials) -> Result<String, String> {
        match credentials.bearer.as_deref() {
            Some(token) if token == self.0 => Ok("system:serviceaccount:kube-system:konnectivity-agent".to_owned()),
            _ => Err("the token is not this tenant's".to_owned()),
        }
    }
}

struct Ca(CertificateAuthority);

impl Ca {
    fn new() -> Ca {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Ca(CertificateAuthority::generate("kubernetes", jiff::Timestamp::now()).expect("ca"))
    }

    fn server_config(&self) -> Arc<rustls::ServerConfig> {
        let spec = LeafSpec {
            common_name: "konnectivity-server",
            organizations: &[],
            names: &["127.0.0.1".to_owned()],
            usages: Usages::SERVER,
            ttl: Duration::from_secs(3600),
        };
        let pair = self.0.issue(&spec, jiff::Timestamp::now()).expect("leaf");
        let chain = certificates_of_pem(&pair.certificate_pem).expect("pem");
        let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).expect("key");
        let mut config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).expect("tls");
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }

    fn client_config(&self) -> Arc<rustls::ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in certificates_of_pem(self.0.certificate_pem()).expect("pem") {
            roots.add(certificate).expect("root");
        }
        let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}

async fn start_server(ca: &Ca, token: &'static str) -> (TunnelServer, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let server = TunnelServer::new(Arc::new(OneToken(token)), format!("server-{token}"), 1);
    let (running, tls) = (server.clone(), ca.server_config());
    tokio::spawn(async move { running.serve(listener, tls, std::future::pending()).await });
    (server, address)
}

/// An agent that runs until the returned sender is dropped or sent `true`.
fn start_agent(ca: &Ca, server: SocketAddr, token: &str) -> watch::Sender<bool> {
    start_agent_as(ca, server, token, &format!("agent-{token}"))
}

fn agent_options(ca: &Ca, server: SocketAddr, token: &str, agent_id: &str) -> AgentOptions {
    let directory = std::env::temp_dir().join(format!("atoll-tunnel-{}-{}", std::process::id(), server.port()));
    std::fs::create_dir_all(&directory).expect("directory");
    let token_file = directory.join(token);
    std::fs::write(&token_file, token).expect("token");
    AgentOptions {
        server_host: server.ip().to_string(),
        server_port: server.port(),
        tls: ca.client_config(),
        token_file: Some(token_file),
        agent_id: agent_id.to_owned(),
        identifiers: "ipv4=127.0.0.1".to_owned(),
    }
}

fn start_agent_as(ca: &Ca, server: SocketAddr, token: &str, agent_id: &str) -> watch::Sender<bool> {
    let options = agent_options(ca, server, token, agent_id);
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(agent::run(options, agent::AgentStatus::default(), stopped));
    stop
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Echoes until the peer closes, then counts the connection as over.
async fn start_echo() -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let open = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = open.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let counter = counter.clone();
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            tokio::spawn(async move {
                let (mut reader, mut writer) = socket.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                counter.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
    });
    (address, open)
}

#[tokio::test]
async fn bytes_go_both_ways_and_a_dropped_connection_is_closed_at_its_destination() {
    let ca = Ca::new();
    let (server, address) = start_server(&ca, "a").await;
    let _agent = start_agent(&ca, address, "a");
    until("an agent is connected", || server.agents() == ["agent-a"]).await;
    let (echo, open) = start_echo().await;

    let mut stream = server.dial(&echo.to_string(), PATIENCE).await.expect("dialled");
    let sent: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let mut received = vec![0; sent.len()];
    let (written, read) = tokio::join!(writer.write_all(&sent), reader.read_exact(&mut received));
    written.expect("written");
    read.expect("read");
    assert!(received == sent, "the megabyte came back changed");
    drop(stream);
    until("the destination sees the close", || open.load(std::sync::atomic::Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn all_that_a_destination_wrote_before_it_closed_arrives() {
    let ca = Ca::new();
    let (server, address) = start_server(&ca, "a").await;
    let _agent = start_agent(&ca, address, "a");
    until("an agent is connected", || !server.agents().is_empty()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let target = listener.local_addr().expect("address");
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("accepted");
        socket.write_all(&vec![7; 300_000]).await.expect("written");
    });
    let mut stream = server.dial(&target.to_string(), PATIENCE).await.expect("dialled");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.expect("read");
    assert_eq!(received.len(), 300_000);
}

#[tokio::test]
async fn the_agent_that_is_asked_for_dials_and_another_one_stands_in_for_it() {
    let ca = Ca::new();
    let (server, address) = start_server(&ca, "a").await;
    let _agent = start_agent(&ca, address, "a");
    let _other = start_agent_as(&ca, address, "a", "agent-b");
    until("both agents are connected", || server.agents().len() == 2).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("bind").local_addr().expect("address").to_string();
    for wanted in ["agent-b", "agent-a"] {
        let error = server.dial_from(Some(wanted), &closed, PATIENCE).await.expect_err("nothing listens");
        assert!(matches!(&error, DialError::Failed { agent, .. } if agent == wanted), "{wanted}: {error}");
    }
    let error = server.dial_from(Some("agent-c"), &closed, PATIENCE).await.expect_err("nothing listens");
    assert!(matches!(&error, DialError::Failed { .. }), "{error}");
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let ca = Ca::new();
    let (server, address) = start_server(&ca, "a").await;
    let error = server.dial("127.0.0.1:1", PATIENCE).await.expect_err("no agent");
    assert_eq!(error.code(), "TunnelNoAgent");

    let agent = start_agent(&ca, address, "a");
    until("an agent is connected", || !server.agents().is_empty()).await;
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        listener.local_addr().expect("address")
    };
    let error = server.dial(&closed.to_string(), PATIENCE).await.expect_err("nothing listens");
    assert!(matches!(&error, DialError::Failed { why, .. } if why.contains("refused")), "{error}");

    agent.send(true).expect("running");
    until("the agent is gone", || server.agents().is_empty()).await;
    let error = server.dial("127.0.0.1:1", PATIENCE).await.expect_err("agent stopped");
    assert_eq!(error.code(), "TunnelNoAgent", "an agent that said goodbye is not one that fell silent");
}

/// An address that takes no further connection: its queue is full and nobody accepts.
async fn start_full() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
    let socket = tokio::net::TcpSocket::new_v4().expect("socket");
    socket.bind("127.0.0.1:0".parse().expect("address")).expect("bind");
    let listener = socket.listen(1).expect("listen");
    let address = listener.local_addr().expect("address");
    let mut waiting = Vec::new();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        waiting.push(stream.expect("connected"));
        assert!(waiting.len() < 16, "the queue has no end");
    }
    (address, listener, waiting)
}

#[tokio::test]
async fn a_destination_that_does_not_accept_is_not_the_agents_fault() {
    let ca = Ca::new();
    let (server, address) = start_server(&ca, "a").await;
    let _agent = start_agent(&ca, address, "a");
    until("an agent is connected", || !server.agents().is_empty()).await;
    let (full, _listener, _waiting) = start_full().await;
    let error = server.dial(&full.to_string(), Duration::from_secs(2)).await.expect_err("full");
    assert_eq!(error.code(), "DialTimeout", "{error}");
}

#[tokio::test]
async fn a_stream_knows_whether_its_session_is_at_fault() {
    let ca = Ca::new();
    let (server, address) = start_server(&ca, "a").await;
    let (line, cut) = start_line(address).await;
    let _agent = start_agent_as(&ca, line, "a", "agent-cut");
    until("an agent is connected", || !server.agents().is_empty()).await;
    let (echo, _) = start_echo().await;
    let stream = server.dial(&echo.to_string(), PATIENCE).await.expect("dialled");
    let session = stream.session();
    assert_eq!(session.fault(), None);
    cut.send(true).expect("the line runs");
    until("the fault is seen", || session.fault().is_some()).await;
    assert_eq!(session.fault().map(|f| f.code()), Some("TunnelNoAnswer"));

    let agent = start_agent(&ca, address, "a");
    until("the other agent is connected", || server.agents() == ["agent-a"]).await;
    let stream = server.dial(&echo.to_string(), PATIENCE).await.expect("dialled");
    let session = stream.session();
    agent.send(true).expect("running");
    until("the fault is seen", || session.fault().is_some()).await;
    assert_eq!(session.fault().map(|f| f.code()), Some("TunnelNoAgent"));
}

#[tokio::test]
async fn another_tenants_agent_is_refused() {
    let ca = Ca::new();
    let (_server, address) = start_server(&ca, "a").await;
    let foreign = agent::check(&agent_options(&ca, address, "b", "agent-b")).await.expect_err("another tenant's token");
    assert!(foreign.is_unauthenticated(), "{foreign}");
    assert_eq!(agent::check(&agent_options(&ca, address, "a", "agent-a")).await.expect("the own token"), "server-a");
    let other_ca = agent::check(&agent_options(&Ca::new(), address, "a", "agent-a")).await.expect_err("another authority");
    assert!(!other_ca.is_unauthenticated(), "the credential is not shown to a server that is not known: {other_ca}");
}

/// A proxy that can stop passing bytes while its connections stay open: what a cut line looks like.
async fn start_line(target: SocketAddr) -> (SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let (cut, is_cut) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((inside, _)) = listener.accept().await {
            let is_cut = is_cut.clone();
            tokio::spawn(async move {
                let outside = TcpStream::connect(target).await.expect("target");
                let (inside_reader, inside_writer) = inside.into_split();
                let (outside_reader, outside_writer) = outside.into_split();
                tokio::join!(pass(inside_reader, outside_writer, is_cut.clone()), pass(outside_reader, inside_writer, is_cut));
            });
        }
    });
    (address, cut)
}

async fn pass(
    mut reader: tokio::net::tcp::OwnedReadHalf,
    mut writer: tokio::net::tcp::OwnedWriteHalf,
    mut is_cut: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(size) = reader.read(&mut buffer).await {
        if size == 0 || is_cut.wait_for(|cut| !cut).await.is_err() || writer.write_all(&buffer[..size]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_cut_line_is_noticed_named_and_healed() {
    let ca = Ca::new();
    let (server, address) = start_server(&ca, "a").await;
    let (line, cut) = start_line(address).await;
    let _agent = start_agent(&ca, line, "a");
    until("an agent is connected", || !server.agents().is_empty()).await;
    let (echo, _) = start_echo().await;

    cut.send(true).expect("the line runs");
    let error = server.dial(&echo.to_string(), Duration::from_secs(1)).await.expect_err("cut");
    assert_eq!(error.code(), "TunnelNoAnswer");
    until("the silent session is closed", || server.agents().is_empty()).await;
    let error = server.dial(&echo.to_string(), Duration::from_secs(1)).await.expect_err("cut");
    assert_eq!(error.code(), "TunnelNoAnswer", "a session lost to silence is remembered as that");

    cut.send(false).expect("the line runs");
    let healed = Instant::now();
    until("the agent is back", || !server.agents().is_empty()).await;
    assert!(healed.elapsed() < Duration::from_secs(5), "back after {:?}", healed.elapsed());
    let mut stream = server.dial(&echo.to_string(), PATIENCE).await.expect("healed");
    stream.write_all(b"again").await.expect("written");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.expect("read");
    assert_eq!(&answer, b"again");
}

#[tokio::test]
async fn a_stalled_reader_loses_its_own_connection_and_holds_up_no_other() {
    let ca = Ca::new();
    let (server, address) = start_server(&ca, "a").await;
    let _agent = start_agent(&ca, address, "a");
    until("an agent is connected", || !server.agents().is_empty()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let firehose = listener.local_addr().expect("address");
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("accepted");
        let chunk = vec![1; 64 * 1024];
        while socket.write_all(&chunk).await.is_ok() {}
    });
    let mut stalled = server.dial(&firehose.to_string(), PATIENCE).await.expect("dialled");
    let (echo, _) = start_echo().await;
    let mut other = server.dial(&echo.to_string(), PATIENCE).await.expect("dialled");
    let mut answer = [0; 2];
    for _ in 0..50 {
        other.write_all(b"ok").await.expect("written");
        tokio::time::timeout(PATIENCE, other.read_exact(&mut answer)).await.expect("in time").expect("read");
    }
    let mut received = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stalled.read_to_end(&mut received)).await.expect("in time");
    assert!(end.is_err() || received.len() <= 16 * 1024 * 1024, "a stalled connection grew without a bound");
}
