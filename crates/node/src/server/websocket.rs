//! WebSocket connections that carry numbered channels: `v5.channel.k8s.io` and `v4.channel.k8s.io`.

use futures::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use super::{Answer, text};

/// Channel that tells that another one is at its end (version 5).
pub const CLOSE: u8 = 255;

/// A connection.
pub type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Accepts an upgrade to one of `protocols` and runs `then` on the connection.
pub fn accept<F, Fut>(request: Request<Incoming>, protocols: &[&str], then: F) -> Answer
where
    F: FnOnce(Socket, String) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let header = |name: http::HeaderName| request.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let upgrade = header(http::header::UPGRADE);
    if !upgrade.eq_ignore_ascii_case("websocket") {
        let why = "this node speaks WebSocket for exec and attach; SPDY is served for port-forward only\n".to_owned();
        return Err((StatusCode::BAD_REQUEST, why));
    }
    let offered: Vec<&str> = header(http::header::SEC_WEBSOCKET_PROTOCOL).split(',').map(str::trim).collect();
    let chosen = protocols.iter().find(|p| offered.contains(p)).map(|p| (*p).to_owned());
    let chosen = chosen.ok_or_else(|| {
        let why = format!("none of the protocols {offered:?} is served, but {protocols:?} are\n");
        (StatusCode::BAD_REQUEST, why)
    })?;
    let key = derive_accept_key(header(http::header::SEC_WEBSOCKET_KEY).as_bytes());
    let mut response: Response<super::Body> = text(StatusCode::SWITCHING_PROTOCOLS, "");
    response.headers_mut().remove(http::header::CONTENT_TYPE);
    for (name, value) in [
        (http::header::CONNECTION, "Upgrade"),
        (http::header::UPGRADE, "websocket"),
        (http::header::SEC_WEBSOCKET_ACCEPT, key.as_str()),
        (http::header::SEC_WEBSOCKET_PROTOCOL, chosen.as_str()),
    ] {
        let value = http::HeaderValue::from_str(value).map_err(|e| (StatusCode::BAD_REQUEST, e.to_string()))?;
        response.headers_mut().insert(name, value);
    }
    tokio::spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(upgraded) => {
                let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
                then(socket, chosen).await;
            }
            Err(e) => tracing::debug!("upgrade: {e}"),
        }
    });
    Ok(response)
}

fn header<'a>(request: &'a Request<Incoming>, name: &str) -> &'a str {
    request.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

/// Whether the client offers a WebSocket protocol.
pub fn offers(request: &Request<Incoming>, protocol: &str) -> bool {
    header(request, "sec-websocket-protocol").split(',').any(|p| p.trim() == protocol)
}

/// Whether the client asks for plain SPDY.
pub fn is_spdy(request: &Request<Incoming>) -> bool {
    header(request, "upgrade").eq_ignore_ascii_case("SPDY/3.1")
}

/// Accepts an upgrade to SPDY with a stream protocol and runs `then` on the connection.
pub fn accept_spdy<F, Fut>(request: Request<Incoming>, protocol: &'static str, then: F) -> Answer
where
    F: FnOnce(TokioIo<Upgraded>) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let offered = header(&request, "x-stream-protocol-version");
    if !offered.split(',').any(|p| p.trim() == protocol) {
        return Err((StatusCode::FORBIDDEN, format!("stream protocol {offered:?} is not served, but {protocol} is\n")));
    }
    let mut response: Response<super::Body> = text(StatusCode::SWITCHING_PROTOCOLS, "");
    response.headers_mut().remove(http::header::CONTENT_TYPE);
    for (name, value) in [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", protocol)] {
        response.headers_mut().insert(name, http::HeaderValue::from_static(value));
    }
    tokio::spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(upgraded) => then(TokioIo::new(upgraded)).await,
            Err(e) => tracing::debug!("upgrade: {e}"),
        }
    });
    Ok(response)
}

/// Sends bytes on a channel.
pub async fn send<S>(sink: &mut S, channel: u8, bytes: &[u8]) -> bool
where
    S: futures::Sink<Message> + Unpin,
{
    let mut frame = Vec::with_capacity(bytes.len() + 1);
    frame.push(channel);
    frame.extend_from_slice(bytes);
    sink.send(Message::Binary(frame.into())).await.is_ok()
}

/// Ends the connection as a success: clients take a close without a code for a failure.
pub async fn close<S>(sink: &mut S)
where
    S: futures::Sink<Message> + Unpin,
{
    let frame = CloseFrame { code: CloseCode::Normal, reason: Default::default() };
    let _ = sink.send(Message::Close(Some(frame))).await;
}

/// The next bytes of any channel; `None` when the client is gone.
pub async fn receive<S, E>(stream: &mut S) -> Option<(u8, Vec<u8>)>
where
    S: futures::Stream<Item = Result<Message, E>> + Unpin,
{
    loop {
        match stream.next().await? {
            Ok(Message::Binary(frame)) => {
                if let Some((channel, bytes)) = frame.split_first() {
                    return Some((*channel, bytes.to_vec()));
                }
            }
            Ok(Message::Text(frame)) => {
                if let Some((channel, bytes)) = frame.as_bytes().split_first() {
                    return Some((*channel, bytes.to_vec()));
                }
            }
            Ok(Message::Close(_)) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// Terminal size as clients send it.
pub fn parse_size(bytes: &[u8]) -> Option<(u16, u16)> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let number = |name: &str| u16::try_from(value.get(name)?.as_u64()?).ok();
    Some((number("Width")?, number("Height")?))
}

/// The last message of exec and attach, on channel 3.
pub fn status(result: &Result<i32, String>) -> Vec<u8> {
    let status = match result {
        Ok(0) => serde_json::json!({"metadata": {}, "status": "Success"}),
        Ok(code) => serde_json::json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}
        }),
        Err(why) => serde_json::json!({
            "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
            "message": format!("Internal error occurred: {why}"), "details": {"causes": [{"message": why}]}
        }),
    };
    status.to_string().into_bytes()
}
