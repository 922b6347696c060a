//! Hidden roles of the binary, run before any thread exists. Each enters namespaces and becomes another program.

use std::fs;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::ForkResult;

use super::spec::ExecSpec;
use super::{container, sys};
use crate::error::{Error, Result};
use crate::paths::read_record;

/// Entry point of the hidden role `node-launch`.
pub fn main(args: &[String]) -> i32 {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["exec", spec] => return exec(Path::new(spec)),
        ["enter", record, _, ..] => return crate::worker::enter::main(Path::new(record), &args[2..]),
        ["netns", handle] => make_netns(Path::new(handle)),
        ["in-netns", handle, program, ..] => in_netns(Path::new(handle)).and_then(|()| become_program(program, &args[2..])),
        ["dial", handle, port] => dial(Path::new(handle), port),
        _ => Err(Error::Option("node-launch is not for use by hand".to_owned())),
    };
    match done {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("{e}");
            1
        }
    }
}

/// Makes a network namespace that lives as long as its handle, a file that it is mounted on.
fn make_netns(handle: &Path) -> Result<()> {
    fs::File::options().create(true).append(true).open(handle).map_err(Error::file(handle))?;
    unshare(CloneFlags::CLONE_NEWNET).map_err(Error::system("make a network namespace"))?;
    mount(Some("/proc/self/ns/net"), handle, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(Error::system(format!("keep the network namespace at {}", handle.display())))
}

fn in_netns(handle: &Path) -> Result<()> {
    let file = fs::File::open(handle).map_err(Error::file(handle))?;
    setns(file, CloneFlags::CLONE_NEWNET).map_err(Error::system(format!("enter {}", handle.display())))
}

fn become_program(program: &str, argv: &[String]) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let e = std::process::Command::new(program).args(&argv[1..]).exec();
    Err(Error::Tool { program: program.to_owned(), why: e.to_string() })
}

/// Connects inside a network namespace and hands the connection to the agent over standard input, a socket.
fn dial(handle: &Path, port: &str) -> Result<()> {
    let port: u16 = port.parse().map_err(|_| Error::Option(format!("{port} is not a port")))?;
    in_netns(handle)?;
    let refused = Error::file(format!("127.0.0.1:{port}"));
    let addresses = [("127.0.0.1", port), ("::1", port)];
    let connected = addresses.iter().find_map(|a| a.to_socket_addrs().ok()?.find_map(|a| TcpStream::connect(a).ok()));
    let connection = connected.ok_or_else(|| refused(std::io::ErrorKind::ConnectionRefused.into()))?;
    let fds = [connection.as_raw_fd()];
    let bytes = [std::io::IoSlice::new(b"c")];
    let socket = sys::standard_input();
    sendmsg::<()>(socket.as_fd().as_raw_fd(), &bytes, &[ControlMessage::ScmRights(&fds)], MsgFlags::empty(), None)
        .map(drop)
        .map_err(Error::system("hand the connection over"))
}

/// Runs a command in a container that is there. The process that the agent started stays outside the container's process
/// namespace and passes the exit code on.
fn exec(path: &Path) -> i32 {
    let failed = |e: Error| {
        let _ = fs::write(path.with_extension("error"), e.to_string());
        126
    };
    let spec: ExecSpec = match read_record(path) {
        Ok(Some(spec)) => spec,
        Ok(None) => return failed(Error::Start(format!("{} is missing", path.display()))),
        Err(e) => return failed(e),
    };
    let _ = fs::remove_file(path);
    // Opened before the namespaces change: afterwards the path means something else.
    let Ok((error_in, error_out)) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC) else { return 126 };
    let own_root = fs::File::open("/");
    let child = container::join_container(&spec).and_then(|()| sys::fork().map_err(Error::system("fork")));
    match child {
        Ok(ForkResult::Child) => {
            drop(error_in);
            let e = run(&spec);
            let _ = nix::unistd::write(&error_out, e.to_string().as_bytes());
            sys::exit_now(126)
        }
        Ok(ForkResult::Parent { child }) => {
            drop(error_out);
            let mut why = String::new();
            let _ = std::io::Read::read_to_string(&mut fs::File::from(error_in), &mut why);
            if !why.is_empty() {
                let _ = sys::wait_for(child);
                return report(own_root, path, &why);
            }
            sys::wait_for(child).map_or(126, |(code, _)| code)
        }
        Err(e) => report(own_root, path, &e.to_string()),
    }
}

/// Writes why the program did not start beside the spec, as seen from the node's root.
fn report(own_root: std::io::Result<fs::File>, path: &Path, why: &str) -> i32 {
    if let Ok(root) = own_root {
        let relative = path.with_extension("error");
        let relative = relative.strip_prefix("/").unwrap_or(&relative).to_owned();
        let flags = nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_CREAT;
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
        if let Ok(file) = nix::fcntl::openat(&root, &relative, flags, mode) {
            let _ = nix::unistd::write(file, why.as_bytes());
        }
    }
    126
}

fn run(spec: &ExecSpec) -> Error {
    let prepared = nix::unistd::setsid()
        .map_err(Error::system("setsid"))
        .and_then(|_| {
            if spec.tty {
                sys::set_controlling_terminal(sys::standard_input()).map_err(Error::system("take the terminal"))
            } else {
                Ok(())
            }
        })
        .and_then(|()| container::drop_rights(&spec.user, spec.capabilities, spec.no_new_privileges, spec.own_user_namespace))
        .and_then(|()| nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(Error::system("tie to the agent")));
    match prepared {
        Ok(()) => container::execute(&spec.argv, &spec.env),
        Err(e) => e,
    }
}
