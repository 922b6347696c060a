//! Connections to a port inside a Pod. The launcher connects in the Pod's network and passes the connection back.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use tokio::process::Command;

use super::sys;
use crate::error::{Error, Result};
use crate::limits;
use crate::runtime::{Sandbox, Stream};

/// Connects to `port` on the Pod's loopback address; on the Pod's own address where Pods share the node's network.
pub async fn dial(program: &Path, sandbox: &Sandbox, port: u16) -> Result<Box<dyn Stream>> {
    let Some(netns) = &sandbox.netns else {
        let address = format!("{}:{port}", sandbox.ip);
        let stream = tokio::net::TcpStream::connect(&address).await.map_err(Error::file(address))?;
        return Ok(Box::new(stream));
    };
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(Error::file("socket pair"))?;
    let mut command = Command::new(program);
    command.args(["node-launch", "dial"]).arg(netns).arg(port.to_string()).env_clear().kill_on_drop(true);
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = tokio::time::timeout(limits::START_TIMEOUT, command.output())
        .await
        .map_err(|_| Error::Start(format!("no connection to port {port} in time")))?
        .map_err(Error::file(program))?;
    if !output.status.success() {
        return Err(Error::Start(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let stream = std::net::TcpStream::from(receive(&ours)?);
    stream.set_nonblocking(true).map_err(Error::file("connection"))?;
    Ok(Box::new(tokio::net::TcpStream::from_std(stream).map_err(Error::file("connection"))?))
}

/// Takes the one descriptor that the launcher has sent before it ended.
fn receive(socket: &std::os::unix::net::UnixStream) -> Result<OwnedFd> {
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([i32; 1]);
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut bytes, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)
        .map_err(Error::system("receive the connection"))?;
    let mut controls = message.cmsgs().map_err(Error::system("receive the connection"))?;
    match controls.next() {
        Some(ControlMessageOwned::ScmRights(fds)) if !fds.is_empty() => Ok(sys::inherited(fds[0])),
        _ => Err(Error::Start("the launcher passed no connection".to_owned())),
    }
}
