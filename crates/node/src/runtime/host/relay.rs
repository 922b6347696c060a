//! The shim's loop: from the container's output to its log and to attached clients, and from them to its input.
//!
//! Frames on the attach socket, both ways: one byte of channel, four bytes of length (big endian), the payload.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::log::{LogWriter, Stream};
use super::shim::Stdio;
use super::spec::LaunchSpec;
use super::sys;
use crate::error::{Error, Result};
use crate::limits;

/// Channels of the attach socket.
pub mod channel {
    /// Client to container.
    pub const STDIN: u8 = 0;
    /// Container to client.
    pub const STDOUT: u8 = 1;
    /// Container to client.
    pub const STDERR: u8 = 2;
    /// Client to container: columns and rows, two bytes each, big endian.
    pub const RESIZE: u8 = 4;
    /// Client to container: no more input.
    pub const STDIN_CLOSE: u8 = 5;
}

/// One attached client.
struct Client {
    socket: UnixStream,
    input: Vec<u8>,
    backlog: Vec<u8>,
}

/// State of the loop.
pub struct Relay {
    log: LogWriter,
    stdin: Option<OwnedFd>,
    outputs: Vec<(Stream, OwnedFd)>,
    terminal: Option<OwnedFd>,
    stdin_once: bool,
    listener: UnixListener,
    clients: Vec<Client>,
}

impl Relay {
    /// Opens log and attach socket.
    pub fn new(spec: &LaunchSpec, stdio: Stdio) -> Result<Self> {
        let log = LogWriter::open(&spec.log).map_err(Error::file(&spec.log))?;
        let _ = std::fs::remove_file(&spec.attach_socket);
        let listener = UnixListener::bind(&spec.attach_socket).map_err(Error::file(&spec.attach_socket))?;
        listener.set_nonblocking(true).map_err(Error::file(&spec.attach_socket))?;
        let terminal = stdio.terminal.then(|| stdio.stdout.as_fd().try_clone_to_owned()).transpose();
        let terminal = terminal.map_err(Error::file("terminal"))?;
        let mut outputs = vec![(Stream::Stdout, stdio.stdout)];
        outputs.extend(stdio.stderr.map(|fd| (Stream::Stderr, fd)));
        Ok(Relay { log, stdin: stdio.stdin, outputs, terminal, stdin_once: spec.stdin_once, listener, clients: Vec::new() })
    }

    /// Runs until the container has ended and its output is read.
    pub fn run(&mut self, watch: &OwnedFd) {
        let mut ended = false;
        while !(ended && self.outputs.is_empty()) {
            let ready = self.wait(watch, ended);
            let count = self.outputs.len();
            // A program that handed its output to a survivor would keep the shim: after the end one empty look is enough.
            if ended && !ready.iter().take(count).any(|r| *r) {
                break;
            }
            for i in (0..count).rev() {
                if ready[i] {
                    self.read_output(i);
                }
            }
            if ready[count] {
                ended = true;
            }
            if ready[count + 1] {
                self.accept();
            }
            let clients = ready.len() - count - 2;
            for i in (0..clients).rev() {
                if ready[count + 2 + i] && !self.serve(i) {
                    self.drop_client(i);
                }
            }
        }
        let _ = self.log.finish(jiff::Timestamp::now());
    }

    /// Which of outputs, container, listener and clients have something.
    fn wait(&self, watch: &OwnedFd, ended: bool) -> Vec<bool> {
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        fds.extend(self.outputs.iter().map(|(_, fd)| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        let quiet = if ended { PollFlags::empty() } else { PollFlags::POLLIN };
        fds.push(PollFd::new(watch.as_fd(), quiet));
        fds.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        for client in &self.clients {
            let out = if client.backlog.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            fds.push(PollFd::new(client.socket.as_fd(), PollFlags::POLLIN | out));
        }
        let timeout = if ended { PollTimeout::ZERO } else { PollTimeout::NONE };
        let _ = poll(&mut fds, timeout);
        fds.iter().map(|fd| fd.revents().is_some_and(|r| !r.is_empty())).collect()
    }

    fn read_output(&mut self, i: usize) {
        let mut buffer = [0; 16 << 10];
        let (stream, fd) = &self.outputs[i];
        let stream = *stream;
        match nix::unistd::read(fd, &mut buffer) {
            Ok(0) => drop(self.outputs.remove(i)),
            Ok(n) => {
                // A full disk must not stop the container: what cannot be logged is lost, what follows is tried again.
                let _ = self.log.write(stream, &buffer[..n], jiff::Timestamp::now());
                self.broadcast(stream, &buffer[..n]);
            }
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => {}
            // EIO: the last holder of the terminal is gone.
            Err(_) => drop(self.outputs.remove(i)),
        }
    }

    fn broadcast(&mut self, stream: Stream, bytes: &[u8]) {
        let channel = match stream {
            Stream::Stdout => channel::STDOUT,
            Stream::Stderr => channel::STDERR,
        };
        for i in (0..self.clients.len()).rev() {
            let client = &mut self.clients[i];
            client.backlog.extend_from_slice(&frame(channel, bytes));
            if !flush(client) || client.backlog.len() > limits::ATTACH_BACKLOG_BYTES_MAX {
                self.drop_client(i);
            }
        }
    }

    fn accept(&mut self) {
        let Ok((socket, _)) = self.listener.accept() else { return };
        if self.clients.len() < limits::ATTACH_CLIENTS_MAX && socket.set_nonblocking(true).is_ok() {
            self.clients.push(Client { socket, input: Vec::new(), backlog: Vec::new() });
        }
    }

    /// Reads what a client sent and writes what waits for it; `false` when it is gone.
    fn serve(&mut self, i: usize) -> bool {
        let mut buffer = [0; 16 << 10];
        let client = &mut self.clients[i];
        if !flush(client) {
            return false;
        }
        match client.socket.read(&mut buffer) {
            Ok(0) => return false,
            Ok(n) => client.input.extend_from_slice(&buffer[..n]),
            Err(e) => return matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
        loop {
            match take_frame(&mut self.clients[i].input) {
                Ok(Some((channel, payload))) => self.command(channel, &payload),
                Ok(None) => return true,
                Err(TooLong) => return false,
            }
        }
    }

    fn command(&mut self, channel: u8, payload: &[u8]) {
        match (channel, payload) {
            (channel::STDIN, bytes) => {
                if let Some(stdin) = &self.stdin
                    && write_all(stdin.as_fd(), bytes).is_err()
                {
                    self.stdin = None;
                }
            }
            (channel::STDIN_CLOSE, _) => self.stdin = None,
            (channel::RESIZE, &[a, b, c, d]) => {
                if let Some(terminal) = &self.terminal {
                    let _ = sys::set_terminal_size(terminal, u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                }
            }
            _ => {}
        }
    }

    fn drop_client(&mut self, i: usize) {
        self.clients.remove(i);
        if self.stdin_once {
            self.stdin = None;
        }
    }
}

fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> nix::Result<()> {
    while !bytes.is_empty() {
        match nix::unistd::write(fd, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn flush(client: &mut Client) -> bool {
    while !client.backlog.is_empty() {
        match client.socket.write(&client.backlog) {
            Ok(n) => drop(client.backlog.drain(..n)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

/// One frame of the attach socket.
pub fn frame(channel: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 5);
    out.push(channel);
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// A frame longer than any that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Takes one whole frame off the front of `buffer`, if it is there.
pub fn take_frame(buffer: &mut Vec<u8>) -> std::result::Result<Option<(u8, Vec<u8>)>, TooLong> {
    let &[channel, a, b, c, d, ..] = buffer.as_slice() else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > limits::ATTACH_FRAME_BYTES_MAX {
        return Err(TooLong);
    }
    if buffer.len() < 5 + length {
        return Ok(None);
    }
    let payload = buffer[5..5 + length].to_vec();
    buffer.drain(..5 + length);
    Ok(Some((channel, payload)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_whole_or_not_at_all() {
        let mut buffer = frame(channel::STDIN, b"abc");
        let rest = buffer.split_off(6);
        assert_eq!(take_frame(&mut buffer), Ok(None));
        buffer.extend(rest);
        buffer.extend(frame(channel::RESIZE, b"wxyz"));
        assert_eq!(take_frame(&mut buffer), Ok(Some((channel::STDIN, b"abc".to_vec()))));
        assert_eq!(take_frame(&mut buffer), Ok(Some((channel::RESIZE, b"wxyz".to_vec()))));
        assert!(buffer.is_empty());
        assert_eq!(take_frame(&mut vec![0, 255, 255, 255, 255]), Err(TooLong));
    }
}
