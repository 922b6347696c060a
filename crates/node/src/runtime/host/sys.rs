//! The few system calls for which there is no safe wrapper. Callers are single-threaded launcher roles.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{ForkResult, Pid};

/// `fork` of a process that has one thread.
pub fn fork() -> nix::Result<ForkResult> {
    // SAFETY: launcher and shim start no threads before this, so the child may go on to use the allocator.
    unsafe { nix::unistd::fork() }
}

/// Ends the process without running destructors or flushing what the parent has buffered too.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` touches no memory of this process.
    unsafe { libc::_exit(code) }
}

/// Marks all descriptors from 3 on close-on-exec.
pub fn close_on_exec_from(first: u32) -> nix::Result<()> {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    // SAFETY: `close_range` with CLOEXEC changes flags of descriptors only.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC) };
    Errno::result(result).map(drop)
}

/// A descriptor that becomes readable when the process ends, whoever its parent is.
pub fn pidfd_open(pid: i32) -> nix::Result<OwnedFd> {
    // SAFETY: `pidfd_open` takes two integers.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Makes the terminal the controlling one of this session.
pub fn set_controlling_terminal(terminal: impl AsFd) -> nix::Result<()> {
    // SAFETY: TIOCSCTTY takes an integer argument and no pointer.
    Errno::result(unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSCTTY, 0) }).map(drop)
}

/// Sets the size of a terminal.
pub fn set_terminal_size(terminal: impl AsFd, columns: u16, rows: u16) -> nix::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads one `winsize`, which lives across the call.
    Errno::result(unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }).map(drop)
}

/// Puts `from` in the place of standard descriptor `to`.
pub fn replace_standard(from: impl AsFd, to: RawFd) -> nix::Result<()> {
    // SAFETY: `dup2` onto 0, 1 or 2 closes what was there, which no owned descriptor of this process stands for.
    Errno::result(unsafe { libc::dup2(from.as_fd().as_raw_fd(), to) }).map(drop)
}

/// Standard input as a descriptor.
pub fn standard_input() -> BorrowedFd<'static> {
    // SAFETY: descriptor 0 stays open as long as the process runs.
    unsafe { BorrowedFd::borrow_raw(0) }
}

/// Takes a descriptor that the parent process left open for this one under a known number.
pub fn inherited(fd: RawFd) -> OwnedFd {
    // SAFETY: the number was agreed with the parent, which passed the descriptor for this process to own.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Lowers what root may do: the bounding set now, and the sets of this thread by [`set_capabilities`].
pub fn drop_bounding(keep: u64) -> nix::Result<()> {
    for capability in 0..=last_capability() {
        if keep & (1 << capability) == 0 {
            // SAFETY: PR_CAPBSET_DROP takes integers.
            let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
            match Errno::result(result) {
                Ok(_) | Err(Errno::EINVAL) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

/// Highest capability that the kernel knows.
fn last_capability() -> u32 {
    std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").ok().and_then(|t| t.trim().parse().ok()).unwrap_or(40).min(63)
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Sets permitted and effective capabilities of this process, without inheritable ones. Capabilities that it does not
/// have are left out rather than refused.
pub fn set_capabilities(keep: u64) -> nix::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = CapabilityHeader { version: VERSION_3, pid: 0 };
    let mut data = [CapabilityData { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: header and the two data records have the layout of version 3 and live across the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    for (i, word) in data.iter_mut().enumerate() {
        let wanted = (keep >> (32 * i)) as u32 & word.permitted;
        *word = CapabilityData { effective: wanted, permitted: wanted, inheritable: 0 };
    }
    // SAFETY: as above.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) }).map(drop)
}

/// `execve` with whole vectors; returns only on failure.
pub fn execute(program: &str, argv: &[String], env: &[(String, String)]) -> Errno {
    let text = |s: &str| CString::new(s).ok();
    let Some(program) = text(program) else { return Errno::EINVAL };
    let argv: Option<Vec<CString>> = argv.iter().map(|a| text(a)).collect();
    let env: Option<Vec<CString>> = env.iter().map(|(k, v)| text(&format!("{k}={v}"))).collect();
    let (Some(argv), Some(env)) = (argv, env) else { return Errno::EINVAL };
    match nix::unistd::execve(&program, &argv, &env) {
        Err(e) => e,
        Ok(never) => match never {},
    }
}

/// Turns the result of `waitpid` into an exit code and a signal.
pub fn wait_for(pid: Pid) -> nix::Result<(i32, Option<i32>)> {
    use nix::sys::wait::{WaitStatus, waitpid};
    loop {
        match waitpid(pid, None) {
            Ok(WaitStatus::Exited(_, code)) => return Ok((code, None)),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok((128 + signal as i32, Some(signal as i32))),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// A broken pipe ends a program unless it says otherwise; Rust programs ignore the signal, and so would their children.
pub fn default_sigpipe() -> nix::Result<()> {
    use nix::sys::signal::{SigHandler, Signal, signal};
    // SAFETY: the default disposition installs no handler.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.map(drop)
}

/// A descriptor that tokio waits for.
pub fn asynchronous(fd: OwnedFd, interest: tokio::io::Interest) -> std::io::Result<tokio::io::unix::AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is the same open descriptor as long as it lives, and the `AsyncFd` owns it.
    unsafe { tokio::io::unix::AsyncFd::register_with_interest(fd, interest) }.map_err(Into::into)
}
