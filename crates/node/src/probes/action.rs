//! One probe, or one HTTP hook, of a container.

use std::collections::BTreeMap;
use std::process::Stdio;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::http;
use crate::limits;
use crate::runtime::{ExecRequest, RunKey, Runtime};

/// Runs the probe once.
pub async fn check<R: Runtime>(runtime: &R, key: &RunKey, container: &Container, ip: &str, probe: &Probe) -> Result<(), String> {
    if let Some(exec) = &probe.exec {
        let (code, output) = command(runtime, key, exec.command.clone().unwrap_or_default()).await?;
        return if code == 0 { Ok(()) } else { Err(output) };
    }
    if let Some(get) = &probe.http_get {
        return http_get(container, ip, get).await;
    }
    if let Some(tcp) = &probe.tcp_socket {
        let host = tcp.host.as_deref().filter(|h| !h.is_empty()).unwrap_or(ip);
        let address = format!("{host}:{}", port(container, &tcp.port)?);
        return TcpStream::connect(&address).await.map(drop).map_err(|e| format!("dial tcp {address}: {e}"));
    }
    if let Some(grpc) = &probe.grpc {
        // The health service's answer needs HTTP/2; that something listens is what can be said here.
        let address = format!("{ip}:{}", grpc.port);
        return TcpStream::connect(&address).await.map(drop).map_err(|e| format!("dial tcp {address}: {e}"));
    }
    Err("the probe says neither exec nor httpGet nor tcpSocket".to_owned())
}

/// Runs a command in the container: exit code and the first of its output.
pub async fn command<R: Runtime>(runtime: &R, key: &RunKey, argv: Vec<String>) -> Result<(i32, String), String> {
    let request = ExecRequest { argv, stdin: false, tty: false };
    let mut session = runtime.exec(key, &request, Stdio::piped).map_err(|e| e.to_string())?;
    let mut output = Vec::new();
    let (stdout, stderr) = (session.child.stdout.take(), session.child.stderr.take());
    let read_out = read(stdout);
    let read_err = read(stderr);
    let (out, err) = tokio::join!(read_out, read_err);
    output.extend(out);
    output.extend(err);
    let code = session.wait().await?;
    Ok((code, String::from_utf8_lossy(&output).trim().to_owned()))
}

/// Reads all, keeps the first part.
async fn read(from: Option<impl AsyncReadExt + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return kept };
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let room = limits::EXEC_OUTPUT_BYTES_MAX - kept.len();
        kept.extend_from_slice(&buffer[..n.min(room)]);
    }
    kept
}

/// A GET that is good from 200 up to 399.
pub async fn http_get(container: &Container, ip: &str, get: &HTTPGetAction) -> Result<(), String> {
    let host = get.host.as_deref().filter(|h| !h.is_empty()).unwrap_or(ip);
    let port = port(container, &get.port)?;
    let path = get.path.as_deref().unwrap_or("/");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let tls = get.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https"));
    let headers: BTreeMap<String, String> =
        get.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
    let code = http::get(host, port, &path, tls, &headers).await?;
    if (200..400).contains(&code) { Ok(()) } else { Err(format!("HTTP probe failed with statuscode: {code}")) }
}

fn port(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|p| p.name.as_deref() == Some(name));
            named.map(|p| p.container_port).or_else(|| name.parse().ok())
        }
    };
    let number = number.and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
    number.ok_or_else(|| match port {
        IntOrString::Int(n) => format!("invalid port number: {n}"),
        IntOrString::String(name) => format!("couldn't find port: {name:?}"),
    })
}
