//! Services in loopback mode: without the right to program the kernel, the agent itself listens on those addresses of
//! Services that lie in 127.0.0.0/8 and passes connections on.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use rand::seq::IndexedRandom;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::ruleset::{Backend, Frontend, Protocol, Table};
use crate::limits;

struct Proxy {
    backends: Arc<RwLock<Vec<Backend>>>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The listeners of one node.
#[derive(Default)]
pub struct Proxies(BTreeMap<Frontend, Proxy>);

impl Proxies {
    /// Listens where the table says, and nowhere else.
    pub fn update(&mut self, table: &Table) {
        let ours = |f: &Frontend| f.address.is_loopback() && f.protocol == Protocol::Tcp;
        self.0.retain(|frontend, proxy| table.contains_key(frontend) && !proxy.task.is_finished());
        for (frontend, backends) in table.iter().filter(|(f, _)| ours(f)) {
            let list: Vec<Backend> = backends.iter().copied().collect();
            match self.0.get(frontend) {
                Some(proxy) => *proxy.backends.write() = list,
                None => {
                    let backends = Arc::new(RwLock::new(list));
                    let task = tokio::spawn(serve(*frontend, backends.clone()));
                    self.0.insert(*frontend, Proxy { backends, task });
                }
            }
        }
    }
}

async fn serve(frontend: Frontend, backends: Arc<RwLock<Vec<Backend>>>) {
    let address = (frontend.address, frontend.port);
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(e) => {
            tracing::warn!("Service address {}:{}: {e}", frontend.address, frontend.port);
            return;
        }
    };
    let room = Arc::new(tokio::sync::Semaphore::new(limits::SERVER_CONNECTIONS_MAX));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let Ok((client, _)) = listener.accept().await else { continue };
        let chosen = backends.read().choose(&mut rand::rng()).copied();
        tokio::spawn(async move {
            let _permit = permit;
            let Some(backend) = chosen else { return };
            if let Ok(server) = TcpStream::connect((backend.address, backend.port)).await {
                let _ = pass(client, server).await;
            }
        });
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream) -> std::io::Result<()> {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_loopback_service_reaches_its_endpoint() {
        let backend = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = backend.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = backend.accept().await.unwrap();
            stream.write_all(b"hello").await.unwrap();
        });
        let address = std::net::Ipv4Addr::new(127, 91, 7, 3);
        let frontend = Frontend { address, protocol: Protocol::Tcp, port };
        let backends = BTreeSet::from([Backend { address: std::net::Ipv4Addr::LOCALHOST, port }]);
        let mut proxies = Proxies::default();
        proxies.update(&Table::from([(frontend, backends)]));
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
        let mut stream = loop {
            match TcpStream::connect((address, port)).await {
                Ok(stream) => break stream,
                Err(e) => assert!(tokio::time::Instant::now() < deadline, "{e}"),
            }
            tokio::task::yield_now().await;
        };
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
        proxies.update(&Table::new());
        assert!(proxies.0.is_empty());
    }
}
